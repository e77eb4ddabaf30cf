"""What every command releases for one fixed key, id and input, by two digests: `rows` of what is released, and `report` of what
is said about it. A change of words moves the second alone.

To change words on purpose, run `python -m pytest tests/golden --golden-record`, which writes the reports that differ, and still
refuses other rows. To change rows on purpose, run it with `--golden-record=rows`, and commit digests.json alone, with the
reason.
"""

from __future__ import annotations

import pyarrow.csv
import pytest

from headcount.mechanisms.batches import user_shards
from headcount.pipelines.main import main
from tests.called_jobs import called
from tests.golden import events
from tests.golden.digests import parts
from tests.runners.jobs import WIRED, column, wired_first, words_of


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("golden")
    events.write(directory)
    return directory


def words(job, data):
    """The command line of a job, all but --output, and what is given again to verify it."""
    command, *own = words_of(job, data)
    source = ["--input", str(data / "events.parquet")]
    key = ["--key-file", str(data / "key")]
    more = ["--user", "user", *column(command, own), *own, "--release-id", events.RELEASE_ID, "--format", "csv"]
    given = [word for flag in ("--domain", "--join") if flag in own for word in own[own.index(flag) :][:2]]
    again = [*source, *key, *given]
    return [command, *source, *key, *more], again


@pytest.mark.parametrize("job", WIRED)
def test_a_command_releases_what_it_did(job, data, tmp_path, golden):
    """The same code as a call's, which is run for every job (tests/headcount/test_calls.py), by another door."""
    assert main([*words(job, data)[0], "--output", str(tmp_path / "out")]) == 0
    golden(f"command: {job}", **parts(tmp_path / "out", data))


@pytest.mark.parametrize("job", wired_first())
def test_so_does_its_pipeline(job, data, tmp_path, golden):
    """So small an input is read without Beam, unless shards are asked for."""
    assert main([*words(job, data)[0], "--shards", "4", "--output", str(tmp_path / "out")]) == 0
    golden(f"command: {job}", **parts(tmp_path / "out", data))


@pytest.mark.parametrize("job", wired_first())
def test_so_does_one_process_with_many_users(job, data, tmp_path, golden, monkeypatch):
    """In several shards, as more rows are."""
    monkeypatch.setattr(user_shards, "_ONE", 100)
    assert main([*words(job, data)[0], "--output", str(tmp_path / "out")]) == 0
    golden(f"command: {job}", **parts(tmp_path / "out", data))


@pytest.mark.slow("jobs")
@pytest.mark.parametrize("job", WIRED)
def test_its_report_tells_enough_to_release_it_again(job, data, tmp_path, capsys):
    """The output is that of a call, which is the command's (tests/headcount/test_calls.py); the second run is a pipeline."""
    result, args = called(job, data)
    result.save(tmp_path / "out", format="csv", output_files=args.output_files)
    assert main(["verify", str(tmp_path / "out"), *words(job, data)[1]]) == 0
    assert capsys.readouterr().out.startswith("complete and unchanged, and it came from this input with this key")


@pytest.mark.parametrize("law", ["tail", "spread"])
def test_a_log_is_generated_as_it_was(law, tmp_path, golden, capsys):
    words = f"generate --law {law} --rows 1000 --users 300 --items 80 --seed 7 --output"
    assert main([*words.split(), str(tmp_path / "log.csv")]) == 0
    golden(f"command: generate {law}", rows=pyarrow.csv.read_csv(tmp_path / "log.csv").to_pylist())
