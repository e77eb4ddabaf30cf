"""Streams on Prism: each window has the bytes of its batch job, also where the process is killed, and is paid for once."""

import functools
import os
import signal
import subprocess

import pytest

from headcount.pipelines.ledger.account import open_ledger
from headcount.pipelines.ledger.records import make_dataset
from tests.runners.arriving import QUIET, coming, outputs, past
from tests.runners.harness import HEADCOUNT, MINUTES, headcount, rows, wait

pytestmark = pytest.mark.everything
ONE_STAGE = "histogram --item item --method one-stage --bound 3 --epsilon 1 --delta 1e-6"
KILLS = (0, 1, 3)  # numbers of windows that are there when the process is killed


def flags(program):
    return ["--runner=PrismRunner", f"--prism_location={program}", "--environment_type=LOOPBACK", "--behind-firewall"]


@pytest.mark.parametrize(
    "own",
    [
        ONE_STAGE,
        pytest.param(
            "histogram --item item --method one-stage --epsilon 1 --delta 1e-6", marks=pytest.mark.slow("jobs")
        ),
        pytest.param(
            "partitions --item item --epsilon 1 --delta 1e-6 --output-files 2", marks=pytest.mark.slow("jobs")
        ),
        pytest.param("total --epsilon 1", marks=pytest.mark.slow("jobs")),
        pytest.param("histogram --item item --epsilon 1 --delta 1e-6", marks=pytest.mark.slow("jobs")),
        pytest.param(
            "aggregate --item item --users --sum number:0:9 --epsilon 1 --delta 1e-6", marks=pytest.mark.slow("jobs")
        ),
    ],
)
def test_each_window_has_the_bytes_of_its_batch_job(prism, tmp_path, own):
    stream = past(tmp_path)
    stream.put_all()
    headcount(*stream.words(own), *flags(prism), "--output", tmp_path / "out")
    found = outputs(tmp_path / "out")
    assert found == stream.batch(own)
    assert all(rows(files) > 0 for name, files in found.items() if name != stream.name(QUIET))


def test_killed_and_started_again_a_stream_goes_on(prism, tmp_path):
    stream = coming(tmp_path, 8, 2, 5)
    stream.put(0)
    url, out = f"sqlite:///{tmp_path}/ledger.db", tmp_path / "out"
    open_ledger(url).create(make_dataset("visits", "user", "add-remove", 100.0, 1e-3, None))
    words = [*stream.words(ONE_STAGE), *flags(prism), "--output", out, "--ledger", url, "--dataset", "visits"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    seen: dict[str, dict[str, bytes]] = {}

    def there():
        return [] if not out.exists() else [path.parent for path in out.glob("*Z/report.json")]

    for least in KILLS:
        process = subprocess.Popen([*HEADCOUNT, *map(str, words)], **pipes)
        stream.put_all()  # before a window is over: whatever comes later is in time for the next start alone
        wait(
            functools.partial(
                lambda process, least: process.poll() is not None or len(there()) >= least, process, least
            )
        )
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        seen |= {path.name: {"report.json": (path / "report.json").read_bytes()} for path in there()}
    done = subprocess.run([*HEADCOUNT, *map(str, words)], capture_output=True, text=True, timeout=5 * MINUTES)
    assert (done.returncode, done.stdout.splitlines()[-1].split()[0]) == (0, "all"), done.stderr
    found = outputs(out)
    assert all(found[name]["report.json"] == files["report.json"] for name, files in seen.items())
    batch = stream.batch(ONE_STAGE)
    data = "counts-00000-of-00001.csv"
    assert {name: files[data] for name, files in found.items()} == {name: files[data] for name, files in batch.items()}
    entries = open_ledger(url).entries("visits")
    committed = [entry.request.release_id for entry in entries if entry.state == "committed"]
    assert len(committed) == len(set(committed)) == stream.number
    assert {entry.state for entry in entries} <= {"committed", "given back"}


def test_a_bad_file_ends_the_stream_and_ctrl_c_stops_it(prism, tmp_path):
    stream = coming(tmp_path, 3600, 60, 4)
    stream.put(0)
    words = [*HEADCOUNT, *map(str, [*stream.words(ONE_STAGE), *flags(prism), "--output", tmp_path / "out"])]
    (tmp_path / "in" / "bad.parquet").write_bytes(b"secret")
    done = subprocess.run(words, capture_output=True, text=True, timeout=5 * MINUTES)
    assert done.returncode == 2 and "bad.parquet cannot be read: it is truncated" in done.stderr
    assert "secret" not in done.stderr
    os.remove(tmp_path / "in" / "bad.parquet")
    command = ["env", "--default-signal=INT", *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    while "RUNNING" not in (line := process.stderr.readline()):
        assert line, "it ended before it ran"
    os.kill(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=MINUTES)
    assert process.returncode == 130 and "stopped by SIGINT" in told
    assert not (tmp_path / "out").exists()
