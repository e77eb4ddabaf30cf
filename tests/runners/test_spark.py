"""A real Spark cluster, started by the deploy script: it gives what this machine gives, byte for byte.

Run by `make test-spark`: three jobs, or with --everything all that is here. Java and Maven must be there: without them these
tests fail, and are not skipped.
"""

import os
import signal

import pytest

from tests.network import watched
from tests.runners.harness import (
    MINUTES,
    SparkCluster,
    headcount,
    histogram,
    output,
    rows,
    running,
    wait,
)
from tests.runners.jobs import tried_first

# The first choice of a user; the most exchanges; samples and state.
SOME = ["estimates", "metrics in chosen ranges, zCDP", "a distribution, sparse"]
ACTIVE = ("WAITING", "RUNNING")


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """Two workers; a failed task starts again."""
    with running(tmp_path_factory.mktemp("spark"), kind=SparkCluster) as started:
        yield started


@pytest.fixture(scope="module", autouse=True)
def seen(spark):
    """All sockets on which the cluster and its workers listen meanwhile."""
    with watched(lambda: [server["pid"] for server in spark.state()["processes"].values()]) as found:
        yield found


@pytest.mark.parametrize("job", tried_first(SOME))
def test_same_bytes_as_on_this_machine(spark, words_of, here, tmp_path, job):
    spark.submit(*words_of(job), "--output", tmp_path / "there")
    assert output(tmp_path / "there") == here(job)
    assert os.listdir(tmp_path) == ["there"]
    assert rows(here(job)) > 0


def test_all_listens_on_loopback_alone(spark, seen, words_of, tmp_path):
    """After the jobs above, or one that is run here: executors have ports, too, and servers for their Python workers."""
    if len(seen) < 16:
        spark.submit(*words_of("estimates"), "--output", tmp_path / "there")
    assert len(seen) >= 16
    assert {each for each in seen if each.is_reached_from_outside} == set()


@pytest.mark.everything
def test_starting_again_changes_nothing(spark):
    before = spark.state()
    spark.call("start")
    assert spark.state() == before
    assert "workers          2" in spark.call("status")


@pytest.mark.everything
def test_a_refusal_on_a_worker_is_one_line(spark, data, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("user,item\n" + "u,i\n" * 6 + "u,\n")
    done = spark.run("submit", *histogram(data, bad), "--output", tmp_path / "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith(f"headcount: {bad}: column 'item', row 7: is null")
    assert os.listdir(tmp_path) == ["bad.csv"]


@pytest.mark.everything
def test_a_worker_that_is_lost_is_replaced_and_the_rows_are_the_same(spark, data, gate, tmp_path):
    """The worker of Spark, with its executor, that stands in the middle of a file."""
    words = histogram(data, gate.input)
    client = spark.open(*words, "--output", tmp_path / "there")
    gate.wait(client)
    spark.kill(spark.server_of(gate.reader()))
    gate.open()
    spark.call("start")
    _, err = client.communicate(timeout=10 * MINUTES)
    assert client.returncode == 0, err
    headcount(*words, "--output", tmp_path / "here")
    assert output(tmp_path / "here") == output(tmp_path / "there")
    assert sorted(os.listdir(tmp_path)) == ["here", "input", "there"]


@pytest.mark.everything
def test_a_python_worker_that_is_lost_fails_the_job_and_leaves_nothing(spark, data, gate, tmp_path):
    """The executor takes it for alive, and spends all attempts of the task on it."""
    client = spark.open(*histogram(data, gate.input), "--output", tmp_path / "out")
    gate.wait(client)
    gate.kill_reader()
    gate.open()
    out, err = client.communicate(timeout=10 * MINUTES)
    assert (client.returncode, out) == (1, "")
    assert err.splitlines()[-1].startswith("spark.sh: the job failed and left no output; the logs in ")
    assert sorted(os.listdir(tmp_path)) == ["input"]


@pytest.mark.everything
def test_a_stopped_client_cancels_its_job(spark, data, gate, tmp_path):
    client = spark.open(*histogram(data, gate.input), "--output", tmp_path / "out")
    gate.wait(client)
    assert len(spark.applications(*ACTIVE)) == 1
    client.send_signal(signal.SIGTERM)
    out, err = client.communicate(timeout=5 * MINUTES)
    told = err.splitlines()[-1]  # after the states of the job
    assert (client.returncode, out, told) == (128 + signal.SIGTERM, "", "headcount: stopped by SIGTERM")
    assert spark.applications(*ACTIVE) == []
    assert sorted(os.listdir(tmp_path)) == ["input", "rest.csv"]


@pytest.mark.everything
def test_two_jobs_at_once_come_one_after_the_other(spark, data, tmp_path):
    first = spark.open(*histogram(data), "--output", tmp_path / "first")
    wait(lambda: spark.applications("RUNNING"))
    second = spark.open(*histogram(data), "--output", tmp_path / "second")
    assert second.stderr.readline().startswith("waiting for the job before")
    for client in (first, second):
        _, err = client.communicate(timeout=10 * MINUTES)
        assert client.returncode == 0, err
    assert output(tmp_path / "first") == output(tmp_path / "second")


@pytest.mark.everything
def test_stop_cancels_what_a_killed_client_left(spark, data, gate, tmp_path):
    """And a new start gives a cluster that works."""
    client = spark.open(*histogram(data, gate.input), "--output", tmp_path / "out")
    gate.wait(client)
    os.killpg(client.pid, signal.SIGKILL)
    client.communicate(timeout=5 * MINUTES)
    assert len(spark.applications(*ACTIVE)) == 1
    said = spark.call("stop")
    assert said.startswith("cancelled headcount-") and said.endswith("stopped\n")
    assert not (tmp_path / "out").exists()
    spark.call("start")
    spark.call("submit", *histogram(data), "--output", tmp_path / "again")
    assert "report.json" in output(tmp_path / "again")


@pytest.mark.everything
def test_a_cluster_of_your_own(spark, words_of, here, tmp_path):
    """Only a job server is started and stopped, and ships what the cluster may not have."""
    master = spark.state()["spark"]
    with running(
        tmp_path / "state", "--spark-master", master, "--conf", "spark.cores.max=1", kind=SparkCluster
    ) as other:
        assert list(other.state()["processes"]) == ["job-server"]
        other.call("submit", *words_of("estimates"), "--output", tmp_path / "there")
    assert output(tmp_path / "there") == here("estimates")
    spark.call("status")
