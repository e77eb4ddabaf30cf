"""What the scripts of all clusters share: to start whole or not at all, Beam's job server, clients, the command line."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from servers import Engine, Problem, State, end, free_port, is_open

BOOT = Path(__file__).resolve().parents[1] / "flink" / "boot.py"

_OPENED = ("lang", "lang.invoke", "lang.reflect", "math", "net", "io", "nio", "text", "time", "util", "util.concurrent")
JAVA_FLAGS = [
    *("--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", "-Dorg.slf4j.simpleLogger.showDateTime=true"),
    *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED),
]

# Servers that only tell others what to do run little code, most of it once: compiling that well takes longer than running it.
SERVER_FLAGS = ["-Xmx768m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


def ask(address: str, path: str, method: str = "GET") -> Any:
    """What a cluster's own pages answer; OSError if they do not."""
    local = urllib.parse.urlsplit(address).hostname in ("localhost", "127.0.0.1")
    opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if local else []))
    with opener.open(urllib.request.Request(address + path, method=method), timeout=10) as answer:
        return json.loads(answer.read() or b"{}")


@contextlib.contextmanager
def whole(state: State) -> Iterator[None]:
    """What the block starts is there whole or not at all."""
    with state.locked():
        before = [process["pid"] for process in state.processes.values()]
        try:
            for name in state.lost():
                end([state.processes.pop(name)])
            yield
        except BaseException:
            end([process for process in state.processes.values() if process["pid"] not in before])
            if not before:
                state.remove()
            raise


def claim(state: State, key: str, master: str | None) -> bool:
    """Take a cluster of somebody's own, of this address, into the state; whether one of ours is to be started instead."""
    content = state.content
    if state.processes and master and content[key] != master:
        raise Problem(f"another cluster is in use, {content[key]}: call stop first, or give another --state")
    content.setdefault("token", secrets.token_hex(4))
    if master:
        content.update({key: master, "own": False})
    return not master and not (state.processes and not content["own"])


def start_job_server(state: State, command: Callable[[], Sequence[str]]) -> None:
    """Beam's job server on free ports, by this command, unless it runs."""
    content = state.content
    if "job-server" not in state.processes:
        port = free_port()
        content["job_endpoint"] = f"localhost:{port}"
        ports = ["--job-port", str(port), "--artifact-port", str(free_port()), "--expansion-port", "-1"]
        artifacts = ["--artifacts-dir", str(state.directory / "tmp" / "artifacts")]
        state.launch("job-server", [*command(), *artifacts, *ports])
    state.require_answer(lambda: is_open(content["job_endpoint"]), "Beam's job server")


def empty_jar(state: State) -> Path:
    """What a job server ships with each job to a cluster that has all its jars."""
    shipped = state.directory / "empty.jar"
    with zipfile.ZipFile(shipped, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n\n")
    return shipped


def job_endpoint(args: argparse.Namespace, state: State) -> str:
    """The job server that a job goes to."""
    endpoint: str | None = args.job_endpoint or state.content.get("job_endpoint")
    if not args.job_endpoint and (endpoint is None or not is_open(endpoint)):
        raise Problem("no cluster runs: call start first, or give --job-endpoint of a job server of your own")
    assert endpoint is not None
    return endpoint


def job_name(state: State) -> str:
    return f"headcount-{state.content.get('token', 'own')}-{secrets.token_hex(4)}"


def worker_log(state: State) -> str | None:
    """Where the workers of our own cluster print."""
    return str(state.directory / "logs" / "workers.log") if state.content.get("own") else None


def beam_flags(runner: str, endpoint: str, name: str, log: str | None, kept: int) -> list[str]:
    """Beam's flags of a job; with a log for its workers, of one on our own cluster. Later ones on the command line win.

    There, workers outlive a task by `kept` seconds, for the next one of their job: starting Python and Beam takes long.
    """
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    environment = {"command": str(BOOT), "env": {"PATH": path, **({"HEADCOUNT_WORKER_LOG": log} if log else {})}}
    return [
        *(f"--runner={runner}", f"--job_endpoint={endpoint}", f"--job_name={name}"),
        *("--environment_type=PROCESS", f"--environment_config={json.dumps(environment)}"),
        "--experiments=disable_logging_submission_environment",  # that is a run of pip, for a file that nobody reads
        *([f"--environment_cache_millis={1000 * kept}"] if log else []),
    ]


def with_flags(words: Sequence[str], flags: Sequence[str]) -> list[str]:
    """A headcount command line with more flags behind the command, which may be of two words, and before its own, which win."""
    first = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    return [*words[:first], *flags, *words[first:]]


def run_client(words: Sequence[str], flags: Sequence[str]) -> int:
    """The exit status of a headcount command with Beam's flags; the signals that end this process are handed on to it."""
    command = [sys.executable, "-m", "headcount.pipelines.main", *with_flags(words, flags)]
    clients: list[subprocess.Popen[bytes]] = []
    early: list[int] = []  # signals that came before there was a client

    def hand_on(number: int, _: object) -> None:
        if clients:
            clients[0].send_signal(number)
        else:
            early.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, hand_on)
    clients.append(subprocess.Popen(command))
    for number in early:
        clients[0].send_signal(number)
    return clients[0].wait()


def told(status: int, state: State, lost: str) -> int:
    """The exit status of the script for that of a client; where a failed job is explained, is said."""
    if status == 1:
        logs = f"in {state.directory / 'logs'}" if state.content.get("own") else "of the cluster"
        print(
            f"{state.engine.word}.sh: the job failed and left no output; the logs {logs} tell more. If a {lost} was lost, call "
            "start, which replaces it; then submit again",
            file=sys.stderr,
        )
    return status if status >= 0 else 128 - status


def is_on_its_way(endpoint: str, name: str, cancel: bool = False) -> bool | None:
    """Whether the job server has a job of this name that has not ended, maybe before the cluster knows of it; None if it knows
    of no such job. It is told to cancel it, if that is asked for."""
    import grpc  # this and Beam are slow to import, and only a job that was stopped needs them
    from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

    ended = {getattr(beam_job_api_pb2.JobState, state) for state in ("DONE", "FAILED", "CANCELLED")}
    with contextlib.suppress(grpc.RpcError), grpc.insecure_channel(endpoint) as channel:
        stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
        found = stub.GetJobs(beam_job_api_pb2.GetJobsRequest(), timeout=10).job_info
        job = next((job for job in found if job.job_name == name), None)
        if cancel and job and job.state not in ended:
            stub.Cancel(beam_job_api_pb2.CancelJobRequest(job_id=job.job_id), timeout=10)
        return None if job is None else job.state not in ended
    return None  # no job server, no job


def show(state: State, key: str, more: Callable[[], None]) -> int:
    """Print what runs, and what else the cluster tells of itself; the exit status of `status`."""
    if not state.processes:
        print("not running")
        return 1
    lost, address = state.lost(), state.content[key]
    for name, process in state.processes.items():
        print(f"{name:<16} {'ended by itself' if name in lost else 'runs'}, process {process['pid']}")
    print(f"{state.engine.name:<16} {address}\n{'job server':<16} {state.content.get('job_endpoint')}")
    try:
        more()
    except OSError:
        print(f"{address} does not answer")
        return 1
    return 1 if lost else 0


def end_all(state: State, cancel: Callable[[], Sequence[str]]) -> int:
    """End the job server, then what `cancel` cancels and tells the names of, then all that start started."""
    with state.locked():
        if not state.processes:
            print("not running")
            return 0
        server = state.processes.pop("job-server", None)  # first, or it may submit one more
        end([server] if server else [])
        for name in cancel():
            print(f"cancelled {name}")
        end(list(state.processes.values()))
        state.remove()
    print("stopped")
    return 0


class Script:
    """The command line of a cluster: start, submit, status and stop, of which each engine adds its own flags."""

    def __init__(self, engine: Engine, description: str, commands: Mapping[str, Callable[[Any, State], int]]) -> None:
        self._engine, self._commands = engine, commands
        self._parser = argparse.ArgumentParser(prog=f"{engine.word}.sh", description=description, allow_abbrev=False)
        self._parser.add_argument(
            "--state",
            metavar="DIR",
            help="where to keep what runs, and logs (default: in your home, one for each checkout)",
        )
        below = self._parser.add_subparsers(required=True, metavar="start|submit|status|stop")
        self.parsers = {
            name: below.add_parser(name, help=run.__doc__, allow_abbrev=False) for name, run in commands.items()
        }
        for name, run in commands.items():
            self.parsers[name].set_defaults(run=run)
        self.parsers["start"].add_argument(
            "--job-server-jar", metavar="JAR", help="a job server of your own, instead of the one fetched"
        )
        self.parsers["submit"].add_argument(
            "--job-endpoint", metavar="HOST:PORT", help="a running job server of your own"
        )

    def run(self, argv: Sequence[str]) -> int:
        """Run one command line and return its exit status."""
        submit = self.parsers["submit"]
        submit.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND ...", help="a headcount command line")
        args = self._parser.parse_args(argv)
        if args.run is self._commands["submit"] and not args.words:
            self._parser.error("submit needs a headcount command, for example: submit histogram --input ...")
        try:
            return int(args.run(args, State(self._engine, args.state)))
        except Problem as problem:
            print(f"{self._engine.word}.sh: {problem}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            return 128 + signal.SIGINT


def whole_number(text: str, least: int = 0) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, got {text!r}")
    return int(text)


def positive(text: str) -> int:
    return whole_number(text, 1)


def exit_by(script: Callable[[Sequence[str]], int]) -> NoReturn:
    """Run the script as a program, which SIGTERM ends as Ctrl-C does."""

    def on_sigterm(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, on_sigterm)
    sys.exit(script(sys.argv[1:]))
