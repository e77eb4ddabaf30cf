"""What the deploy script can be told: no restarts, keys of the environment, a cluster and a job server of one's own."""

import os
import zipfile
from pathlib import Path

import pytest

from tests.runners.harness import FACTORY, MINUTES, Cluster, histogram, output, running
from tests.runners.jobs import JOBS

pytestmark = pytest.mark.everything
KEY = "HEADCOUNT_TEST_KEY"
JOB = next(iter(JOBS))


@pytest.fixture(scope="module")
def bare(data, tmp_path_factory):
    """One task manager, with the key in its environment; a failed job stays failed."""
    environment = {KEY: (data / "key").read_text().strip()}
    flags = ["--task-managers", 1, "--restarts", 0, "--memory", 512]
    with running(tmp_path_factory.mktemp("bare"), *flags, environment=environment) as started:
        yield started


@pytest.mark.parametrize("lost", ["task-manager-0", "worker"])
def test_without_restarts_a_loss_fails_the_job_and_leaves_nothing(bare, data, gate, tmp_path, lost):
    client = bare.open(*histogram(data, gate.input), "--output", tmp_path / "out")
    gate.wait(client)
    (job,) = bare.jobs("RUNNING")
    if lost == "worker":
        gate.kill_reader()
    else:
        bare.kill(lost)
    out, err = client.communicate(timeout=10 * MINUTES)
    bare.call("start")
    assert (client.returncode, out) == (1, "")
    assert err.splitlines()[-1].startswith("flink.sh: the job failed and left no output; the logs in ")
    assert {"task-manager-0": "is no longer reachable", "worker": "CANCELLED"}[lost] in err
    assert bare.rest(f"/jobs/{job['jid']}")["state"] == "FAILED"
    assert sorted(os.listdir(tmp_path)) == ["input", "rest.csv"]


def with_key_of_workers(words, name):
    at = words.index("--key-file")
    return [*words[:at], "--key-env", name, *words[at + 2 :]]


def test_a_key_in_the_environment_of_the_workers(bare, words_of, here, tmp_path):
    assert KEY not in os.environ
    bare.call("submit", *with_key_of_workers(words_of(JOB), KEY), "--output", tmp_path / "there")
    assert output(tmp_path / "there") == here(JOB)


def test_a_key_that_the_workers_do_not_have_is_told_in_one_line(bare, words_of, tmp_path):
    done = bare.run("submit", *with_key_of_workers(words_of(JOB), "NO_SUCH_KEY"), "--output", tmp_path / "there")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("headcount: environment variable NO_SUCH_KEY is not set")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("own_jar", [False, True])
def test_a_cluster_of_your_own(bare, words_of, here, tmp_path, own_jar):
    """Only a job server is started and stopped, the fetched one or one of your own."""
    jar = ["--job-server-jar", job_server_jar(bare, tmp_path)] if own_jar else []
    address = bare.state()["flink"].removeprefix("http://")
    with running(tmp_path / "state", "--flink-master", address, *jar) as other:
        assert list(other.state()["processes"]) == ["job-server"]
        other.call("submit", *words_of(JOB), "--output", tmp_path / "there")
        assert "FINISHED" in other.call("status")
    assert output(tmp_path / "there") == here(JOB)
    bare.call("status")


def job_server_jar(cluster, directory):
    """A jar as the one that Beam publishes: of the same classes, which it only names, but for that which opens ports."""
    classpath = cluster.state()["manager"]
    folder = Path(classpath[classpath.index("-cp") + 1].rpartition(":")[2]).parent
    names = " ".join(path.as_uri() for path in sorted(folder.glob("*.jar")))
    lines = ["Manifest-Version: 1.0", "Main-Class: org.apache.beam.runners.flink.FlinkJobServerDriver"]
    long = f"Class-Path: {names}"
    lines += [(" " if at else "") + long[at : at + 70] for at in range(0, len(long), 70)]
    (core,) = folder.glob("beam-sdks-java-core-*.jar")
    with zipfile.ZipFile(core) as held, zipfile.ZipFile(directory / "job-server.jar", "w") as jar:
        jar.writestr(FACTORY, held.read(FACTORY))
        jar.writestr("META-INF/MANIFEST.MF", "\r\n".join(lines) + "\r\n\r\n")
    return directory / "job-server.jar"


def test_a_job_server_that_runs_already(bare, words_of, here, tmp_path):
    """Nothing is started, and no state is needed."""
    endpoint = bare.state()["job_endpoint"]
    words = ["--job-endpoint", endpoint, "--parallelism", 1, *words_of(JOB)]
    Cluster(tmp_path / "state").call("submit", *words, "--output", tmp_path / "there")
    assert output(tmp_path / "there") == here(JOB)
    assert os.listdir(tmp_path) == ["there"]
