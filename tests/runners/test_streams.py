"""Streams: each window gives the rows of the batch job of its id, while the stream goes on; on Prism and on a real Flink.

Rows come out of order, one window has none, and one frame comes too late on Prism. The stream on Flink never ends, so that a
window that is there did not wait for its end; how long each took is printed (`pytest -s`), and not tested.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runners import streaming
from tests.runners.harness import MINUTES, UNFINISHED, wait
from tests.runners.streaming import EMPTY, JOBS, NUMBER, SIZE

START = 1_800_000_000  # of the TestStream; a multiple of SIZE
PROGRAM = [sys.executable, "-m", "tests.runners.streaming"]
GROUPS = [[job for job in JOBS if job not in ("histogram", "aggregate")], ["histogram"], ["aggregate"]]
ROOT = Path(__file__).parents[2]


def ends(start: int) -> list[int]:
    return [start + SIZE * (number + 1) for number in range(NUMBER)]


def lines(seen: Path) -> list[list[Any]]:
    """(time, job, end, rows), in the order of time."""
    every = [line for file in seen.glob("seen-*") for line in file.read_text().splitlines(keepends=True)]
    return sorted(json.loads(line) for line in every if line.endswith("\n"))


def releases(seen: Path) -> dict[tuple[str, int], set[str]]:
    """What was ever seen of each job in each window."""
    found: dict[tuple[str, int], set[str]] = {}
    for _, job, end, rows in lines(seen):
        if job != "came":
            found.setdefault((job, end), set()).add(rows)
    return found


def batch(jobs: list[str], start: int, data: Path, folder: Path) -> dict[tuple[str, int], set[str]]:
    """What batch jobs on this machine give."""
    (folder / "batch").mkdir()
    streaming.batch_jobs(jobs, start, str(data / "key"), str(folder / "batch"))
    return releases(folder / "batch")


def on_prism(program: Path, data: Path, seen: Path, jobs: list[str], *more: str) -> None:
    """One run of the TestStream to its end."""
    flags = ["--runner=PrismRunner", f"--prism_location={program}", "--environment_type=LOOPBACK", *more]
    command = [
        *PROGRAM,
        "--source",
        "test",
        "--start",
        str(START),
        "--seen",
        str(seen),
        "--key-file",
        str(data / "key"),
    ]
    command += [word for job in jobs for word in ("--job", job)] + flags
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10 * MINUTES)
    assert done.returncode == 0, done.stderr


@pytest.mark.everything
@pytest.mark.parametrize("jobs", GROUPS, ids=["one stage", "histogram", "aggregate"])
def test_windows_on_prism_are_batch_jobs_and_close_before_rows_of_the_window_after_the_next(
    prism, data, tmp_path, jobs
):
    on_prism(prism, data, tmp_path, jobs)
    found = releases(tmp_path)
    assert found == batch(jobs, START, data, tmp_path)
    assert {len(eval(rows)) > 0 for (job, end), (rows,) in found.items() if end != ends(START)[EMPTY]} == {True}
    order = [(job, end) for _, job, end, _ in lines(tmp_path)]
    for job in jobs:
        for end in ends(START)[:-2]:
            assert order.index((job, end)) < order.index(("came", end + 2 * SIZE)), "it waited"


@pytest.mark.everything
def test_a_window_that_fires_twice_is_caught(prism, data, tmp_path):
    """The mutation: lateness is let in. Then the late row makes a second release of the same users, with other noise."""
    on_prism(prism, data, tmp_path, ["one stage"], "--mutation=lateness")
    found, expected = releases(tmp_path), batch(["one stage"], START, data, tmp_path)
    twice = ends(START)[streaming.LATE]
    assert {end for _, end in expected if len(found["one stage", end]) > 1} == {twice}
    assert found != expected


@contextlib.contextmanager
def on_flink(cluster, data: Path, seen: Path, jobs: list[str], *more: str) -> Iterator[int]:
    """The start of the first window of an endless stream, which is cancelled afterwards."""
    start = (int(time.time() + 40) // SIZE) * SIZE
    name = f"stream-{start}-{os.getpid()}"
    command = [
        *PROGRAM,
        "--source",
        "clock",
        "--start",
        str(start),
        "--seen",
        str(seen),
        "--key-file",
        str(data / "key"),
    ]
    command += [word for job in jobs for word in ("--job", job)]
    flags = cluster.flags(cluster.state()["job_endpoint"], name)
    command += [_with_path(flag) for flag in flags if not flag.startswith("--parallelism")]
    command += ["--parallelism=1", "--max_bundle_time_mills=50", *more]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True) as client:
        try:
            yield start
        finally:
            for job in cluster.jobs(*UNFINISHED):
                if job["name"].startswith(name):
                    _cancel(cluster, job["jid"])
            os.killpg(client.pid, signal.SIGKILL)
            wait(lambda: not cluster.jobs(*UNFINISHED))


def _with_path(flag: str) -> str:
    """Workers must find the program's module."""
    name, _, value = flag.partition("=")
    if name != "--environment_config":
        return flag
    config = json.loads(value)
    return f"{name}={json.dumps(config | {'env': config['env'] | {'PYTHONPATH': str(ROOT)}})}"


def _cancel(cluster, job: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(urllib.request.Request(f"{cluster.state()['flink']}/jobs/{job}?mode=cancel", method="PATCH"))


@pytest.mark.everything
@pytest.mark.parametrize("jobs", GROUPS, ids=["one stage", "histogram", "aggregate"])
def test_windows_on_flink_are_batch_jobs_and_close_in_a_stream_without_end(cluster, data, tmp_path, jobs):
    with on_flink(cluster, data, tmp_path, jobs) as start:
        wait(lambda: len(releases(tmp_path)) == NUMBER * len(jobs), 5 * MINUTES)
    assert releases(tmp_path) == batch(jobs, start, data, tmp_path)
    assert set(Counter((job, end) for _, job, end, _ in lines(tmp_path) if job != "came").values()) == {1}
    told = {
        end: at for at, job, end, _ in lines(tmp_path) if job == "came"
    }  # the clock is as far as the next tick then
    for job in jobs:
        late = [at - told[end] for at, each, end, _ in lines(tmp_path) if each == job]
        print(f"\n{job}: seconds after the end of each window was told: {', '.join(f'{one:.1f}' for one in late)}")


def test_a_lost_task_manager_in_the_middle_of_a_stream_changes_no_byte(cluster, data, tmp_path):
    """What comes again after the last checkpoint has the same bytes: a sink that keeps the first loses nothing."""
    checkpoints = tmp_path / "checkpoints"
    more = ["--checkpointing_interval=1000", "--finish_bundle_before_checkpointing", "--state_backend=filesystem"]
    more += [f"--state_backend_storage_path=file://{checkpoints}"]
    jobs = ["one stage", "histogram"]
    with on_flink(cluster, data, tmp_path, jobs, *more) as start:
        wait(lambda: len(releases(tmp_path)) >= 6, 5 * MINUTES)
        (job,) = cluster.jobs("RUNNING")
        cluster.kill("task-manager-0")
        cluster.kill("task-manager-1")
        cluster.call("start")
        wait(lambda: len(releases(tmp_path)) == NUMBER * len(jobs), 10 * MINUTES)
        assert cluster.failures(job)
    assert releases(tmp_path) == batch(jobs, start, data, tmp_path)
