"""What the tests of this folder share: the deploy script, jobs on this machine, and an input on which a job stands still."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from headcount.pipelines.main import main

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "flink"
SPARK = DEPLOY.parent / "spark"
sys.path += [str(DEPLOY), str(SPARK)]  # the scripts' modules are found so
script, spark_script = importlib.import_module("cluster"), importlib.import_module("standalone")
FACTORY = importlib.import_module("loopback").FACTORY
MINUTES = 60  # seconds
# Task managers of small jobs spend half of their time on compiling well what runs for seconds.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
UNFINISHED = ("INITIALIZING", "CREATED", "RUNNING", "FAILING", "CANCELLING", "RESTARTING", "SUSPENDED", "RECONCILING")
Of = TypeVar("Of", bound="Cluster")
HEADCOUNT = [sys.executable, "-m", "headcount.pipelines.main"]


class Cluster:
    """The deploy script, with a state directory of its own; `environment` is that of the servers, not of clients."""

    script = DEPLOY / "flink.sh"

    def __init__(self, state: Path, environment: Mapping[str, str] | None = None) -> None:
        self._state = state
        self._environment = {**os.environ, "JAVA_TOOL_OPTIONS": _SHORT_LIVED, **(environment or {})}

    def command(self, *words: object) -> list[str]:
        return [str(self.script), "--state", str(self._state), *map(str, words)]

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        """One call of the script, however it ends."""
        environment = self._environment if words[0] == "start" else None
        options = {"capture_output": True, "text": True, "timeout": 20 * MINUTES, "env": environment}
        return subprocess.run(self.command(*words), **options)

    def call(self, *words: object) -> str:
        """One call of the script, which must succeed: what it printed."""
        done = self.run(*words)
        assert done.returncode == 0, f"{self.script.name} {words[0]}: {done.stdout}{done.stderr}"
        return done.stdout

    def submit(self, *words: object) -> None:
        """A job with the script's flags, which must succeed, by a client in this process: another would import Beam first."""
        headcount(*words, *self.flags(self.state()["job_endpoint"], f"headcount-{uuid.uuid4()}"))

    def flags(self, endpoint: str, name: str) -> list[str]:
        """Beam's flags of a job of this name."""
        log = str(self._state / "logs" / "workers.log")
        return script.beam_flags(endpoint, self.state()["managers"], name, log)

    def open(self, *words: object) -> subprocess.Popen[str]:
        """A client that runs beside the test, in a process group of its own.

        Where the tests run in the background of a shell, Ctrl-C is ignored, and a client would inherit that.
        """
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        command = ["env", "--default-signal=INT", *self.command("submit", *words)]
        return subprocess.Popen(command, start_new_session=True, **pipes)

    def state(self) -> dict[str, Any]:
        return json.loads((self._state / "state.json").read_text())

    def rest(self, path: str) -> Any:
        """What Flink says of itself."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.state()["flink"] + path, timeout=10) as answer:
            return json.loads(answer.read())

    def settings(self) -> dict[str, str]:
        """The configuration that the cluster's servers were started with."""
        lines = (self._state / "conf" / "config.yaml").read_text().splitlines()
        return dict(line.split(": ", 1) for line in lines)

    def jobs(self, *states: str) -> list[dict[str, Any]]:
        """The jobs in these states."""
        return [job for job in self.rest("/jobs/overview")["jobs"] if job["state"] in states]

    def is_idle(self) -> bool:
        """Whether nothing runs, nor is on its way from the job server."""
        with grpc.insecure_channel(self.state()["job_endpoint"]) as channel:
            stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
            found = stub.GetJobs(beam_job_api_pb2.GetJobsRequest(), timeout=MINUTES, wait_for_ready=True).job_info
        ended = {getattr(beam_job_api_pb2.JobState, name) for name in ("DONE", "FAILED", "CANCELLED")}
        return not self.jobs(*UNFINISHED) and all(job.state in ended for job in found)

    def failures(self, job: Mapping[str, Any]) -> list[Any]:
        """What a job had to be started again for."""
        return self.rest(f"/jobs/{job['jid']}/exceptions")["exceptionHistory"]["entries"]

    def kill(self, server: str) -> None:
        """Take a server and its workers away at once, as when a machine is lost."""
        leader = self.state()["processes"][server]["pid"]
        os.killpg(leader, signal.SIGKILL)
        wait(lambda: leader not in {group for _, group in living()})


class SparkCluster(Cluster):
    """The same for Spark."""

    script = SPARK / "spark.sh"

    def flags(self, endpoint: str, name: str) -> list[str]:
        return spark_script.beam_flags(endpoint, name, spark_script.State(spark_script.ENGINE, str(self._state)))

    def server_of(self, worker: int) -> str:
        """The server that a worker process belongs to."""
        (found,) = [name for name, each in self.state()["processes"].items() if each["pid"] == os.getpgid(worker)]
        return found

    def applications(self, *states: str) -> list[dict[str, Any]]:
        """The applications in these states; each is a job."""
        return [each for each in spark_script.applications(self.state()["pages"]) if each["state"] in states]


@contextlib.contextmanager
def running(
    state: Path, *flags: object, environment: Mapping[str, str] | None = None, kind: type[Of] = Cluster
) -> Iterator[Of]:
    """A cluster by the deploy script, from start to stop, of which nothing is left afterwards."""
    cluster = kind(state, environment)
    cluster.call("start", *flags)
    try:
        yield cluster
    finally:
        processes = cluster.state()["processes"].values()
        assert cluster.call("stop").endswith("stopped\n")
        assert all_ended(processes)
        assert cluster.call("stop") == "not running\n"


class Gate:
    """CSV files of which the second lets a job stand still: a named pipe at first, and an ordinary file after `open`."""

    def __init__(self, data: Path, directory: Path) -> None:
        (directory / "input").mkdir()
        table = pa.concat_tables(pq.read_table(file) for file in sorted(data.glob("events-*.parquet")))
        pyarrow.csv.write_csv(table.slice(0, 50_000), directory / "input" / "a.csv")
        pyarrow.csv.write_csv(table.slice(50_000), directory / "rest.csv")
        self.input = directory / "input" / "*.csv"
        self._rest, self._pipe = directory / "rest.csv", directory / "input" / "b.csv"
        os.mkfifo(self._pipe)
        self._held: int | None = None

    def wait(self, client: subprocess.Popen[str]) -> None:
        """Until a worker reads; it then waits for more."""

        def reader() -> int | None:
            assert client.poll() is None, client.communicate()
            try:
                return os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK) + 1  # 0 is a descriptor too
            except OSError as error:
                assert error.errno == errno.ENXIO
                return None

        self._held = wait(reader) - 1

    def open(self) -> None:
        """From now on whoever opens the file reads it; the reader of the pipe stays where it is."""
        os.replace(self._rest, self._pipe)

    def reader(self) -> int:
        """The worker process that reads."""
        (reader,) = wait(
            lambda: {int(link.parts[2]) for link in Path("/proc").glob("[0-9]*/fd/*") if self._reads(link)}
        )
        return reader

    def kill_reader(self) -> None:
        """Take only the worker process away that reads; its task manager stays."""
        reader = self.reader()
        os.kill(reader, signal.SIGKILL)
        wait(lambda: reader not in {pid for pid, _ in living()})

    def _reads(self, link: Path) -> bool:
        try:
            return link.parts[2] != str(os.getpid()) and os.readlink(link) == str(self._pipe)
        except OSError:  # a process that ended meanwhile
            return False

    def close(self) -> None:
        if self._held is not None:
            os.close(self._held)


def histogram(data: Path, input: object = None) -> list[object]:
    """A histogram of the events of `data`, or of other files: all flags but --output."""
    words = [
        "histogram",
        "--of",
        "events",
        "--input",
        input or data / "events-*.parquet",
        "--user",
        "user",
        "--item",
        "item",
    ]
    words += [
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--format",
        "csv",
        "--output-files",
        "2",
    ]
    return [*words, "--key-file", data / "key", "--release-id", "r1"]


def headcount(*words: object) -> None:
    """A job by a client in this process, which must succeed, and in time."""
    said = io.StringIO()
    before = signal.signal(signal.SIGALRM, _too_late)
    signal.alarm(10 * MINUTES)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = main([*map(str, words)])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert status == 0, said.getvalue()


def _too_late(number: int, frame: object) -> None:
    raise TimeoutError("the job did not end in time")


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Whether a folder that the workers of the tests share is still to be filled: the others wait for whoever comes first."""
    folder.mkdir(parents=True, exist_ok=True)
    done = folder.with_name(f"{folder.name}.done")
    with open(folder.with_name(f"{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not done.exists()
        done.touch()


def output(directory: Path) -> dict[str, bytes]:
    """The files of an output."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def without_page(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """An output but for its page, which only a client makes that lives until its job has ended."""
    return {name: content for name, content in files.items() if name != "report.html"}


def rows(files: Mapping[str, bytes]) -> int:
    """How many rows the CSV files of an output have."""
    return sum(content.count(b"\n") - 1 for name, content in files.items() if name.endswith(".csv"))


def living() -> set[tuple[int, int]]:
    """The processes that run, each with its group."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,pgid=,stat="], capture_output=True, text=True).stdout.splitlines()
    return {(int(pid), int(group)) for pid, group, stat in map(str.split, listed) if not stat.startswith("Z")}


def all_ended(processes: Iterable[Mapping[str, Any]]) -> bool:
    """Whether nothing is left of these servers of a state, nor of what they started."""
    return not {group for _, group in living()} & {process["pid"] for process in processes}


def wait(condition: Callable[[], Any], seconds: float = 3 * MINUTES) -> Any:
    """What the condition gives once it is true."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.2)
    return found
