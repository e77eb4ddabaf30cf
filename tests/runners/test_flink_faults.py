"""What can be lost while a job runs on Flink: machines, workers, the client. The result is the same, whole, or not there."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.runners.harness import DEPLOY, MINUTES, UNFINISHED, headcount, histogram, output, wait, without_page

pytestmark = pytest.mark.everything
RECORDING = Path(__file__).with_name("recording.py")


@pytest.mark.parametrize("lost", ["task-manager-0", "task-manager-1", "worker"])
def test_what_is_lost_is_replaced_and_the_rows_are_the_same(cluster, data, gate, tmp_path, lost):
    """Either task manager with its workers, or only the worker that stands in the middle of a file."""
    words = histogram(data, gate.input)
    client = cluster.open(*words, "--output", tmp_path / "there")
    gate.wait(client)
    (job,) = cluster.jobs("RUNNING")
    if lost == "worker":
        gate.kill_reader()
    else:
        cluster.kill(lost)
    gate.open()
    cluster.call("start")
    _, err = client.communicate(timeout=10 * MINUTES)
    assert client.returncode == 0, err
    assert cluster.failures(job) and cluster.rest(f"/jobs/{job['jid']}")["state"] == "FINISHED"
    headcount(*words, "--output", tmp_path / "here")
    assert output(tmp_path / "here") == output(tmp_path / "there")
    assert sorted(os.listdir(tmp_path)) == ["here", "input", "there"]


@pytest.mark.parametrize("noise", ["headcount", "fresh"])
def test_no_two_values_of_one_count_reach_a_sink(cluster, data, tmp_path, noise):
    """A sink that fails makes the job draw all noise again. Headcount's is the same again; fresh noise, beyond the same
    barrier, is not, and is caught by this test: 20 of its bits agree on all 25 items with a probability of 1e-150."""
    boot = {"command": str(DEPLOY / "boot.py"), "env": {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}}
    command = [sys.executable, RECORDING, "--noise", noise, "--seen", tmp_path, "--key-file", data / "key"]
    command += ["--runner=FlinkRunner", f"--job_endpoint={cluster.state()['job_endpoint']}", "--parallelism=2"]
    command += ["--environment_type=PROCESS", f"--environment_config={json.dumps(boot)}"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=10 * MINUTES)
    assert done.returncode == 0, done.stderr
    last = max(cluster.jobs("FINISHED"), key=lambda job: job["start-time"])
    assert "as it was told to" in json.dumps(cluster.failures(last))
    lines = [line for file in tmp_path.glob("seen-*") for line in file.read_text().splitlines()]
    times, values = Counter(line.split("\t")[0] for line in lines), Counter(set(lines))
    assert len(times) == 25 and min(times.values()) >= 2, "every count must come again"
    assert (len(values) == len(times)) == (noise == "headcount")


@pytest.mark.parametrize("then", ["stop", "wait", "nothing"])
def test_a_client_ended_at_any_moment_leaves_all_or_nothing(cluster, data, tmp_path, then):
    """At moments that are spread over the life of a job, a little beyond its end, and then the next job clears up.

    What a killed client has on the cluster is cancelled by stop, or runs to its end; one that is asked to end (SIGTERM)
    leaves nothing to do, also while its job is on the way to the cluster.
    """
    number, moments = {"stop": (signal.SIGKILL, 2), "wait": (signal.SIGKILL, 4), "nothing": (signal.SIGTERM, 12)}[then]
    out, words = tmp_path / "out", [*histogram(data), "--output", tmp_path / "out"]
    start = time.monotonic()
    cluster.call("submit", *words)
    life, whole = time.monotonic() - start, output(out)
    for moment in (np.arange(moments) + np.random.default_rng(5).random(moments)) / (moments - 0.5):
        if (out / "report.json").exists():
            shutil.rmtree(out)
        client = cluster.open(*words)
        with contextlib.suppress(subprocess.TimeoutExpired):
            client.wait(moment * life)
        with contextlib.suppress(ProcessLookupError):  # it has ended
            client.send_signal(number) if number == signal.SIGTERM else os.killpg(client.pid, number)
        client.communicate(timeout=5 * MINUTES)
        if then == "stop":
            cluster.call("stop")
            cluster.call("start")
        elif then == "nothing":
            assert cluster.jobs(*UNFINISHED) == []  # the books of the job server close a moment later
        wait(cluster.is_idle)
        assert not (out / "report.json").exists() or without_page(output(out)) == without_page(whole)
    cluster.call("submit", *words, "--overwrite")
    assert output(out) == whole and os.listdir(tmp_path) == ["out"]
