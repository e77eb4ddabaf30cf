"""Without the extras: local files need none of their libraries, and what needs one says which."""

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

# Runs a command line where the libraries of all extras are hidden.
PROGRAM = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("google.cloud.", "google.auth", "google.api_core", "boto", "hdfs", "azure")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
from headcount.pipelines.main import main

sys.exit(main(sys.argv[1:]))
"""
SHAPE = ["--user", "user", "--item", "item", "--epsilon", "1", "--delta", "1e-6", "--bound", "2"]


def run(*words):
    command = [sys.executable, "-c", PROGRAM, "histogram", *SHAPE, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow("services")
def test_local_files_need_no_extra(tmp_path):
    pq.write_table(pa.table({"user": ["u"] * 9, "item": ["i"] * 9}), tmp_path / "e.parquet")
    done = run("--input", tmp_path / "e.parquet", "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    for where, extra in (("gs://b/out", "gcp"), ("s3://b/out", "aws"), ("bigquery://p-1.d.t", "gcp")):
        done = run("--input", tmp_path / "e.parquet", "--output", where)
        words = f"headcount: '{where}' needs the extra headcount[{extra}]: pip install '.[{extra}]' in its checkout\n"
        assert (done.returncode, done.stderr) == (2, words)
