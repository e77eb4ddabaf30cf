"""A real Flink cluster, started by the deploy script: it gives what this machine gives, byte for byte.

Run by `make test-flink`: a dozen jobs, or with --everything all that is here. Java and Maven must be there: without them these
tests fail, and are not skipped.
"""

import os
import signal
import subprocess

import pytest

from tests.runners.harness import HEADCOUNT, MINUTES, UNFINISHED, histogram, output, rows
from tests.runners.jobs import DOZEN, tried_first, without_a_job

BUFFER = 2**15  # bytes of a network buffer, Flink's default


@pytest.mark.parametrize("job", tried_first(DOZEN))
def test_same_bytes_as_on_this_machine(cluster, words_of, here, tmp_path, job):
    cluster.submit(*words_of(job), "--output", tmp_path / "there")
    assert output(tmp_path / "there") == here(job)
    assert os.listdir(tmp_path) == ["there"]
    assert rows(here(job)) > 0


@pytest.mark.everything
def test_all_exchanges_of_a_job_find_room_at_once(cluster, words_of, tmp_path):
    """Whether too many are open at once is a matter of chance: so there must be room for all. The job with the most of them."""
    cluster.call("submit", *words_of("metrics in chosen ranges, zCDP"), "--output", tmp_path / "out")
    settings = cluster.settings()
    of_each = int(settings["taskmanager.network.sort-shuffle.min-buffers"])
    total = int(settings["taskmanager.memory.network.min"].removesuffix("m")) * 2**20 // BUFFER
    for job in cluster.jobs("FINISHED"):
        nodes = cluster.rest(f"/jobs/{job['jid']}")["plan"]["nodes"]
        kinds = [edge["exchange"] for node in nodes for edge in node.get("inputs", [])]
        # One that is not stored takes little: a buffer for each task that it leads to, and some that they share.
        assert kinds.count("blocking") * of_each + kinds.count("pipelined") * 16 <= total


def test_every_subcommand_is_run_here():
    """A subcommand that takes Beam's flags needs a line in JOBS and one in WIRED."""
    assert without_a_job() == set()


@pytest.mark.everything
def test_starting_again_changes_nothing(cluster):
    before = cluster.state()
    cluster.call("start")
    assert cluster.state() == before
    assert "task managers    2" in cluster.call("status")


@pytest.mark.everything
def test_relative_paths_and_flags_of_beam(cluster, data, tmp_path):
    """Workers have a working directory of their own; and Beam's flags may stand among ours and after a bare --."""
    words = ["--input", "events-0.parquet", "--user", "user", "--item", "item", "--key-file", "key", "--format", "csv"]
    words += ["--release-id", "r2", "--epsilon", "1", "--delta", "1e-6", "--method", "one-stage", "--bound", "5"]
    for command, name, more in (
        (HEADCOUNT, "here", []),
        (cluster.command("submit"), "there", ["--", "--parallelism=1"]),
    ):
        whole = [*command, "histogram", *words, "--output", str(tmp_path / name), *more]
        done = subprocess.run(whole, cwd=data, capture_output=True, text=True, timeout=5 * MINUTES)
        assert done.returncode == 0, done.stderr
    assert output(tmp_path / "here") == output(tmp_path / "there")


@pytest.mark.everything
def test_a_refusal_on_a_worker_is_one_line(cluster, data, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("user,item\n" + "u,i\n" * 6 + "u,\n")
    done = cluster.run("submit", *histogram(data, bad), "--output", tmp_path / "out")
    assert (done.returncode, done.stdout) == (2, "")
    *states, refusal = done.stderr.splitlines()
    assert refusal.startswith(f"headcount: {bad}: column 'item', row 7: is null")
    assert states and all(line.startswith("headcount: ") and bad.name not in line for line in states)
    assert os.listdir(tmp_path) == ["bad.csv"]


@pytest.mark.everything
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_client_cancels_its_job(cluster, data, gate, tmp_path, number):
    client = cluster.open(*histogram(data, gate.input), "--output", tmp_path / "out")
    gate.wait(client)
    assert len(cluster.jobs("RUNNING")) == 1
    client.send_signal(number)
    out, err = client.communicate(timeout=5 * MINUTES)
    told = err.splitlines()[-1]  # after the states of the job
    assert (client.returncode, out, told) == (128 + number, "", f"headcount: stopped by {number.name}")
    assert cluster.jobs(*UNFINISHED) == []
    assert sorted(os.listdir(tmp_path)) == ["input", "rest.csv"]


@pytest.mark.everything
def test_stop_cancels_what_a_killed_client_left(cluster, data, gate, tmp_path):
    """And a new start gives a cluster that works."""
    client = cluster.open(*histogram(data, gate.input), "--output", tmp_path / "out")
    gate.wait(client)
    os.killpg(client.pid, signal.SIGKILL)
    client.communicate(timeout=5 * MINUTES)
    assert len(cluster.jobs("RUNNING")) == 1
    said = cluster.call("stop")
    assert said.startswith("cancelled headcount-") and said.endswith("stopped\n")
    assert not (tmp_path / "out").exists()
    cluster.call("start")
    cluster.call("submit", *histogram(data), "--output", tmp_path / "again")
    assert "report.json" in output(tmp_path / "again")
