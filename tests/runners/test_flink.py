"""A real Flink cluster, started by the deploy script: it gives what this machine gives, byte for byte, whatever happens.

Run by `make test-flink`. Java and Maven must be there: without them these tests fail, and are not skipped.
"""

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.randomness import write_key_file
from headcount.pipelines.main import COMMANDS, load

FLINK = os.path.join(os.path.dirname(__file__), "..", "..", "deploy", "flink", "flink.sh")
MINUTES = 60

# One line for each thing that a job can be asked to do: the subcommand and its own flags.
JOBS = {
    "items that nobody knew, Laplace": "histogram --epsilon 1 --delta 1e-6 --bound 5 --noise laplace",
    "items that nobody knew, Gaussian": "histogram --epsilon 1 --delta 1e-6 --bound 10 --noise gaussian",
    "at most two per item, three files": "histogram --epsilon 1 --delta 1e-6 --bound 5 --max-per-item 2 --output-files 3",
    "a public domain, Laplace": "histogram --epsilon 1 --bound 5 --domain {domain}",
    "a public domain, Gaussian": "histogram --epsilon 1 --delta 1e-6 --bound 5 --noise gaussian --domain {domain}",
    "replaced users": "histogram --epsilon 1 --delta 1e-6 --bound 5 --relation replace",
}


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """60,000 rows in four Parquet files, so that both task managers read; one user holds a tenth. A domain and a key."""
    directory = tmp_path_factory.mktemp("data")
    generator = np.random.default_rng(11)
    for number in range(4):
        user = generator.integers(1, 4_000, 15_000) * (generator.random(15_000) > 0.1)
        item = generator.geometric(0.03, 15_000)
        columns = {"user": pa.array([f"u{u}" for u in user]), "item": pa.array([f"i{i}" for i in item])}
        pq.write_table(pa.table(columns), directory / f"events-{number}.parquet")
    (directory / "domain.txt").write_text("".join(f"i{i}\n" for i in range(1, 400, 3)))
    write_key_file(directory / "key")
    return directory


class Cluster:
    """The deploy script, with a state directory of its own."""

    def __init__(self, state):
        self._state = state

    def call(self, *words):
        """One call of the script: what it printed. It must succeed."""
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=15 * MINUTES)
        assert done.returncode == 0, f"flink.sh {words[0]}: {done.stdout}{done.stderr}"
        return done.stdout

    def command(self, *words):
        return [FLINK, "--state", str(self._state), *map(str, words)]

    def open(self, *words):
        """A client that runs beside the test, in a process group of its own."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(self.command("submit", *words), start_new_session=True, **pipes)

    def state(self):
        return json.loads((self._state / "state.json").read_text())

    def rest(self, path):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.state()["flink"] + path, timeout=10) as answer:
            return json.loads(answer.read())

    def jobs(self, *states):
        """The jobs in these states."""
        return [job for job in self.rest("/jobs/overview")["jobs"] if job["state"] in states]

    def kill(self, server):
        """Take a server and its workers away at once, as when a machine is lost."""
        leader = self.state()["processes"][server]["pid"]
        os.killpg(leader, signal.SIGKILL)
        wait(lambda: leader not in groups())


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    for program in ("java", "mvn"):
        assert shutil.which(program), f"{program} is not installed, and these tests are of no use without it"
    started = Cluster(tmp_path_factory.mktemp("flink"))
    started.call("start")
    yield started
    processes = started.state()["processes"].values()
    assert started.call("stop").endswith("stopped\n")
    assert not groups() & {process["pid"] for process in processes}
    assert started.call("stop") == "not running\n"


def groups():
    """The process groups that have a living process."""
    listed = subprocess.run(["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True).stdout.splitlines()
    return {int(group) for group, stat in map(str.split, listed) if not stat.startswith("Z")}


def headcount(*words):
    """A job on this machine."""
    command = [sys.executable, "-m", "headcount.pipelines.main", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=5 * MINUTES)
    assert done.returncode == 0, done.stderr


def output(directory):
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def wait(condition, seconds=120):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.2)
    return found


def flags(data, input="events-*.parquet"):
    words = ["--input", data / input, "--user", "user", "--item", "item", "--format", "csv"]
    return [*words, "--key-file", data / "key", "--release-id", "r1"]


@pytest.mark.parametrize("job", JOBS)
def test_same_bytes_as_on_this_machine(cluster, data, tmp_path, job):
    words = [*JOBS[job].format(domain=data / "domain.txt").split(), *flags(data)]
    headcount(*words, "--output", tmp_path / "here")
    cluster.call("submit", *words, "--output", tmp_path / "there")
    assert output(tmp_path / "here") == output(tmp_path / "there")
    assert sorted(os.listdir(tmp_path)) == ["here", "there"]
    assert any(
        content.count(b"\n") > 20 for name, content in output(tmp_path / "here").items() if name.startswith("counts")
    )


def test_every_subcommand_is_run_here():
    """A subcommand that takes Beam's flags needs a line in JOBS."""
    assert {name for name in COMMANDS if load(name).takes_beam_flags} == {job.split()[0] for job in JOBS.values()}


def test_starting_again_changes_nothing(cluster):
    before = cluster.state()
    cluster.call("start")
    assert cluster.state() == before
    assert "task managers    2" in cluster.call("status")


def test_relative_paths_and_flags_of_beam(cluster, data, tmp_path):
    """Workers have a working directory of their own; and Beam's flags may stand among ours and after a bare --."""
    words = ["--input", "events-0.parquet", "--user", "user", "--item", "item", "--key-file", "key", "--format", "csv"]
    words += ["--release-id", "r2", "--epsilon", "1", "--delta", "1e-6", "--bound", "5"]
    for runner, name in (([], "here"), ([*cluster.command("submit")], "there")):
        command = [*(runner or [sys.executable, "-m", "headcount.pipelines.main"]), "histogram", *words]
        command += ["--output", str(tmp_path / name), *(["--", "--parallelism=1"] if runner else [])]
        done = subprocess.run(command, cwd=data, capture_output=True, text=True, timeout=5 * MINUTES)
        assert done.returncode == 0, done.stderr
    assert output(tmp_path / "here") == output(tmp_path / "there")


def test_a_refusal_on_a_worker_is_one_line(cluster, data, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("user,item\n" + "u,i\n" * 6 + "u,\n")
    client = cluster.open("histogram", *flags(tmp_path, "bad.csv")[:-4], *common(data), "--output", tmp_path / "out")
    out, err = client.communicate(timeout=5 * MINUTES)
    assert (client.returncode, out) == (2, "")
    assert err.startswith(f"headcount: {bad}: column 'item', row 7: is null") and err.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == ["bad.csv"]


def common(data):
    return ["--key-file", data / "key", "--release-id", "r3", "--epsilon", "1", "--delta", "1e-6", "--bound", "5"]


class Gate:
    """A CSV file on which a job stands still: a named pipe at first, and an ordinary file after `open`."""

    def __init__(self, data, directory):
        self.input = directory / "input"
        self.input.mkdir()
        table = pa.concat_tables(pq.read_table(data / f"events-{number}.parquet") for number in range(4))
        pa.csv.write_csv(table.slice(0, 50_000), self.input / "a.csv")
        pa.csv.write_csv(table.slice(50_000), directory / "rest.csv")
        self._rest, self._pipe = directory / "rest.csv", self.input / "b.csv"
        os.mkfifo(self._pipe)
        self._held = None

    def wait(self):
        """Until a worker reads; it then waits for more."""

        def reader():
            try:
                return os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK) + 1  # 0 is a descriptor too
            except OSError as error:
                assert error.errno == errno.ENXIO
                return None

        self._held = wait(reader) - 1

    def open(self):
        """From now on whoever opens the file reads it; the reader of the pipe stays where it is."""
        os.replace(self._rest, self._pipe)

    def close(self):
        if self._held is not None:
            os.close(self._held)


@pytest.fixture
def gate(data, tmp_path):
    with contextlib.closing(Gate(data, tmp_path)) as made:
        yield made


@pytest.mark.parametrize("server", ["task-manager-0", "task-manager-1"])
def test_a_lost_task_manager_is_replaced_and_the_rows_are_the_same(cluster, data, gate, tmp_path, server):
    words = ["histogram", "--input", gate.input / "*.csv", "--user", "user", "--item", "item", "--format", "csv"]
    words += common(data)
    client = cluster.open(*words, "--output", tmp_path / "there")
    gate.wait()
    cluster.kill(server)
    gate.open()
    cluster.call("start")
    _, err = client.communicate(timeout=5 * MINUTES)
    assert client.returncode == 0, err
    last = max(cluster.jobs("FINISHED"), key=lambda job: job["start-time"])
    assert cluster.rest(f"/jobs/{last['jid']}/exceptions")["exceptionHistory"]["entries"]
    headcount(*words, "--output", tmp_path / "here")
    assert output(tmp_path / "here") == output(tmp_path / "there")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_client_cancels_its_job(cluster, data, gate, tmp_path, number):
    words = ["--input", gate.input / "*.csv", "--user", "user", "--item", "item", *common(data)]
    client = cluster.open("histogram", *words, "--output", tmp_path / "out")
    gate.wait()
    assert len(cluster.jobs("RUNNING")) == 1
    client.send_signal(number)
    out, err = client.communicate(timeout=60)
    assert (client.returncode, out, err) == (128 + number, "", f"headcount: stopped by {number.name}\n")
    assert cluster.jobs("RUNNING", "CREATED", "CANCELLING", "RESTARTING") == []
    assert sorted(os.listdir(tmp_path)) == ["input", "rest.csv"]


def test_stop_cancels_what_a_killed_client_left(cluster, data, gate, tmp_path):
    """And a new start gives a cluster that works."""
    words = ["--input", gate.input / "*.csv", "--user", "user", "--item", "item", *common(data)]
    client = cluster.open("histogram", *words, "--output", tmp_path / "out")
    gate.wait()
    assert client.poll() is None, client.communicate()
    os.killpg(client.pid, signal.SIGKILL)
    client.communicate(timeout=60)
    assert len(cluster.jobs("RUNNING")) == 1
    said = cluster.call("stop")
    assert said.startswith("cancelled headcount-") and said.endswith("stopped\n")
    assert not (tmp_path / "out").exists()
    cluster.call("start")
    cluster.call("submit", "histogram", *flags(data), *common(data)[4:], "--output", tmp_path / "again")
    assert "report.json" in output(tmp_path / "again")
