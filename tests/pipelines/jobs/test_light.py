"""What a job on this machine does not import, and when it does."""

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.pipelines.jobs import light

PROGRAM = """
import os, sys
from headcount.pipelines import main
def told(status):
    print(status, *sorted(sys.modules))
    sys.stdout.flush()
    end(status)
end, os._exit = os._exit, told
main.run()
"""


def test_a_job_on_files_of_this_machine_imports_no_library_of_a_service(tmp_path):
    pq.write_table(pa.table({"user": ["a", "b"], "item": ["x", "x"]}), tmp_path / "e.parquet")
    words = f"--input {tmp_path}/e.parquet --user user --item item --epsilon 1 --delta 1e-6 --output {tmp_path}/out"
    command = [sys.executable, "-c", PROGRAM, "histogram", *words.split()]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    status, *modules = said.splitlines()[-1].split()
    assert status == "0"
    assert "apache_beam" in modules
    assert not {*light._UNUSED} & {*modules}
    assert not {"beartype._decor", "httplib2.auth", "pyparsing", "requests", "urllib3", "yaml.loader"} & {*modules}
    assert (tmp_path / "out" / "report.json").exists()


@pytest.mark.parametrize(
    ("words", "left_out"),
    [
        (["histogram", "--input", "e.parquet"], True),
        (["histogram", "--input", "gs://b/e.parquet"], False),
        (["histogram", "--input", "e.parquet", "--temp_location=gs://b/t"], False),
        (["histogram", "--input", "bigquery://p.d.t"], False),
        (["histogram", "--input", "e.parquet", "--runner", "DataflowRunner"], False),
        (["histogram", "--input", "e.parquet", "--runn=FlinkRunner"], False),
        (["histogram", "--input", "e.parquet", "--verbose"], False),
        (["explain-yaml", "pipeline.yaml"], False),
        (["histogram", "--input", "e.parquet", "--key-secret", "projects/p/secrets/s/versions/1"], False),
    ],
)
def test_whoever_names_a_service_gets_its_library(monkeypatch, words, left_out):
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    light.leave_out_services(words)
    assert isinstance(sys.meta_path[0], light._Missing) == left_out
    if left_out:
        monkeypatch.delitem(sys.modules, "pymongo", raising=False)
        with pytest.raises(ImportError, match="no word of the command names a service"):
            __import__("pymongo")


READ = """
import sys
from headcount.pipelines.jobs.light import leave_out_services
leave_out_services(["histogram"])
import yaml, yaml as again
from beartype.door import is_subhint
assert not {"yaml.loader", "beartype.typing"} & {*sys.modules}
assert yaml.safe_load("a: 1") == {"a": 1} and yaml.__spec__.loader is yaml.__loader__
assert is_subhint(bool, int) and not is_subhint(str, int)
assert {"yaml.loader", "beartype.typing"} <= {*sys.modules}
"""


def test_what_was_left_for_later_is_there_when_it_is_used():
    subprocess.run([sys.executable, "-c", READ], check=True)
