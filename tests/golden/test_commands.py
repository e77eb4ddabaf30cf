"""What every command releases for one fixed key, id and input, by digest: a change that means to move nothing moves none.
Its report tells enough to release it again.

To change a digest on purpose, run `python -m pytest tests/golden --golden-record`, which writes those that differ, and commit
digests.json alone, with the reason.
"""

from __future__ import annotations

import json

import pyarrow.csv
import pytest

from headcount.pipelines.main import main
from tests.golden import events
from tests.runners.jobs import JOBS, column


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("golden")
    events.write(directory)
    return directory


@pytest.mark.parametrize("job", JOBS)
def test_a_command_releases_what_it_did(job, data, tmp_path, golden, capsys):
    command, *own = JOBS[job].format(domain=data / "domain.txt").split()
    source = ["--input", str(data / "events.parquet"), "--user", "user", *column(command, own)]
    release = ["--key-file", str(data / "key"), "--release-id", events.RELEASE_ID]
    assert main([command, *source, *own, *release, "--format", "csv", "--output", str(tmp_path / "out")]) == 0
    files = sorted((tmp_path / "out").glob("*.csv"))
    rows = [[path.name, pyarrow.csv.read_csv(path).to_pylist()] for path in files]
    report = json.loads((tmp_path / "out" / "report.json").read_text().replace(str(data), "DATA"))
    golden(f"command: {job}", events.digest(rows, report))
    given = [*source[:2], *release[:2], *(["--domain", str(data / "domain.txt")] if "--domain" in own else [])]
    capsys.readouterr()
    assert main(["verify", str(tmp_path / "out"), *given]) == 0
    assert capsys.readouterr().out.startswith("complete and unchanged, and it came from this input with this key")


@pytest.mark.parametrize("law", ["tail", "spread"])
def test_a_log_is_generated_as_it_was(law, tmp_path, golden, capsys):
    words = f"generate --law {law} --rows 1000 --users 300 --items 80 --seed 7 --output"
    assert main([*words.split(), str(tmp_path / "log.csv")]) == 0
    golden(f"command: generate {law}", events.digest(pyarrow.csv.read_csv(tmp_path / "log.csv").to_pylist()))
