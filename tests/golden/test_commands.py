"""What every command releases for one fixed key, id and input, by two digests: `rows` of what is released, and `report` of what
is said about it. A change of words moves the second alone. The report tells enough to release it again.

To change words on purpose, run `python -m pytest tests/golden --golden-record`, which writes the reports that differ, and still
refuses other rows. To change rows on purpose, run it with `--golden-record=rows`, and commit digests.json alone, with the
reason.
"""

from __future__ import annotations

import pyarrow.csv
import pytest

from headcount.pipelines.main import main
from tests.golden import events
from tests.golden.digests import parts
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
    golden(f"command: {job}", **parts(tmp_path / "out", data))
    given = [*source[:2], *release[:2], *(["--domain", str(data / "domain.txt")] if "--domain" in own else [])]
    capsys.readouterr()
    assert main(["verify", str(tmp_path / "out"), *given]) == 0
    assert capsys.readouterr().out.startswith("complete and unchanged, and it came from this input with this key")


@pytest.mark.parametrize("law", ["tail", "spread"])
def test_a_log_is_generated_as_it_was(law, tmp_path, golden, capsys):
    words = f"generate --law {law} --rows 1000 --users 300 --items 80 --seed 7 --output"
    assert main([*words.split(), str(tmp_path / "log.csv")]) == 0
    golden(f"command: generate {law}", rows=pyarrow.csv.read_csv(tmp_path / "log.csv").to_pylist())
