"""A Flink cluster on this machine for Headcount's jobs, and the way to submit jobs to it or to one of your own.

`start` brings up a job manager, task managers and Beam's job server; `submit` runs a headcount command on them; `status`
shows them; `stop` ends them. flink.sh is the way to call this. What runs is written down in a state directory, so that
each call finds what an earlier one started, and `stop` ends nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from servers import Problem, State, end, free_port, is_open, jars, program, wait

HERE = Path(__file__).resolve().parent
BOOT = HERE / "boot.py"
LIGHT_JOB_SERVER = HERE / "LightJobServer.java"

JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
JOB_SERVER = "org.apache.beam.runners.flink.FlinkJobServerDriver"

_ENDED = {"FINISHED", "CANCELED", "FAILED"}
_CANCEL_SECONDS = 180
# What ended at the job server may come to the cluster for so long yet.
_LATE_SECONDS = 5
_OPENED = ("lang", "lang.invoke", "lang.reflect", "math", "net", "io", "nio", "text", "time", "util", "util.concurrent")
_JAVA_FLAGS = [
    *("--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", "-Dorg.slf4j.simpleLogger.showDateTime=true"),
    *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED),
]

# Job manager and job server run little code, most of it once: compiling that well takes longer than running it.
_SERVER_FLAGS = ["-Xmx768m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]

# Workers outlive a task by this much, for the next one of their job: each has a start of Python and Beam behind it. A
# worker that died is taken for alive as long, so that a failed job must not start again before.
_WORKER_SECONDS, _RESTART_SECONDS = 5, 6

# The pools of a task manager in MB, besides the managed memory that Flink sorts in: they must all be set, since no
# script of a Flink distribution computes them, and the limits of its Java process must fit them.
_TASK_HEAP, _FRAMEWORK, _TASK_DIRECT, _NETWORK, _METASPACE, _OVERHEAD = 896, 128, 256, 320, 256, 192

# The network buffers (32 kB) that each stored exchange of a job takes. At Flink's default of 512 the largest jobs fail
# with "Insufficient number of network buffers" if too many of their exchanges, of which they have 66, are open at once;
# of these there is room for all of them.
_EXCHANGE_BUFFERS = 128


# The cluster's own pages


def ask(address: str, path: str, method: str = "GET") -> Any:
    """What the job manager answers; OSError if it does not."""
    local = urllib.parse.urlsplit(address).hostname in ("localhost", "127.0.0.1")
    opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if local else []))
    with opener.open(urllib.request.Request(address + path, method=method), timeout=10) as answer:
        return json.loads(answer.read() or b"{}")


def jobs_of(address: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(address, "/jobs/overview")["jobs"]
    return sorted(found, key=lambda job: job["start-time"])


def _cancel(address: str, prefix: str) -> list[str]:
    """Cancel the jobs whose name starts so, wait for their end, and tell their names."""

    def running() -> list[dict[str, Any]]:
        return [job for job in jobs_of(address) if job["name"].startswith(prefix) and job["state"] not in _ENDED]

    names = []
    for job in running():
        names.append(job["name"])
        with contextlib.suppress(urllib.error.HTTPError):  # it ended meanwhile
            ask(address, f"/jobs/{job['jid']}?mode=cancel", "PATCH")
    if names and not wait(lambda: not running(), _CANCEL_SECONDS):
        raise Problem(f"the cluster at {address} does not end the jobs {', '.join(names)}")
    return names


def _is_on_its_way(endpoint: str, name: str) -> bool | None:
    """Whether the job server has a job of this name that has not ended, maybe before the cluster knows of it; None if it knows
    of no such job."""
    import grpc  # this and Beam are slow to import, and only a job that was stopped needs them
    from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

    ended = {getattr(beam_job_api_pb2.JobState, state) for state in ("DONE", "FAILED", "CANCELLED")}
    with contextlib.suppress(grpc.RpcError), grpc.insecure_channel(endpoint) as channel:
        stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
        found = stub.GetJobs(beam_job_api_pb2.GetJobsRequest(), timeout=10).job_info
        return next((job.state not in ended for job in found if job.job_name == name), None)
    return None  # no job server, no job


def _end_job(endpoint: str, address: str, name: str) -> None:
    """Take a job with its client: from the cluster, or wherever it is on its way there.

    What the job server has taken on comes to the cluster a moment later, with or without its client, and even if it has been
    cancelled by then: it is sent by a thread of its own.
    """

    def is_on_cluster() -> bool:
        return any(job["name"].startswith(name) for job in jobs_of(address))

    on_its_way: bool | None = None

    def is_ended() -> bool:
        nonlocal on_its_way
        _cancel(address, name)
        on_its_way = _is_on_its_way(endpoint, name)
        return not on_its_way

    if not wait(is_ended, _CANCEL_SECONDS):
        raise Problem(f"the job server at {endpoint} does not end the job {name}")
    if on_its_way is not None and wait(is_on_cluster, _LATE_SECONDS):
        _cancel(address, name)


# The commands


def start(args: argparse.Namespace, state: State) -> int:
    """Start what is not running yet, and wait until it answers."""
    with state.locked():
        before = [process["pid"] for process in state.processes.values()]
        try:
            _start(args, state)
        except BaseException:
            end([process for process in state.processes.values() if process["pid"] not in before])
            if not before:
                state.remove()
            raise
    print(f"Flink runs at {state.content['flink']}, Beam's job server at {state.content['job_endpoint']}")
    return 0


def _start(args: argparse.Namespace, state: State) -> None:
    java = program("java", "Java, which Flink and Beam's job server run on, is not installed")
    for name in state.lost():
        end([state.processes.pop(name)])
    content = state.content
    if state.processes and args.flink_master and content["flink"] != _with_scheme(args.flink_master):
        raise Problem(f"another cluster is in use, {content['flink']}: call stop first, or give another --state")
    classpath = [] if args.flink_master and args.job_server_jar else ["-cp", f"{jars()}/*"]
    content.setdefault("token", secrets.token_hex(4))
    if args.flink_master:
        content.update(flink=_with_scheme(args.flink_master), own=False)
    elif "job-manager" not in state.processes and not (state.processes and not content["own"]):
        end([state.processes.pop(name) for name in list(state.processes)])  # what is left of an earlier cluster
        rest = free_port()
        content.update(flink=f"http://localhost:{rest}", own=True, managers=args.task_managers)
        _write_config(state.directory, rest, free_port(), args)
        config = ["--configDir", str(state.directory / "conf")]
        content["manager"] = [java, *_JAVA_FLAGS, *_task_limits(), *classpath, TASK_MANAGER, *config]
        state.launch("job-manager", [java, *_JAVA_FLAGS, *_SERVER_FLAGS, *classpath, JOB_MANAGER, *config])
    if content["own"]:
        for number in range(content["managers"]):
            if f"task-manager-{number}" not in state.processes:
                state.launch(f"task-manager-{number}", content["manager"])
        state.require_answer(
            lambda: _managers(content["flink"]) >= content["managers"],
            f"the Flink cluster at {content['flink']} with {content['managers']} task managers",
        )
    if "job-server" not in state.processes:
        port = free_port()
        content["job_endpoint"] = f"localhost:{port}"
        server = ["-jar", args.job_server_jar] if args.job_server_jar else _job_server(java, classpath, state)
        ports = ["--job-port", str(port), "--artifact-port", str(free_port()), "--expansion-port", "-1"]
        master = urllib.parse.urlsplit(content["flink"]).netloc
        places = ["--flink-master", master, "--artifacts-dir", str(state.directory / "tmp" / "artifacts")]
        state.launch("job-server", [java, *_JAVA_FLAGS, *_SERVER_FLAGS, *server, *places, *ports])
    state.require_answer(lambda: is_open(content["job_endpoint"]), "Beam's job server")


def _job_server(java: str, classpath: list[str], state: State) -> list[str]:
    """How to run the fetched job server: without shipping its jars to a cluster that has them, if Java can compile."""
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True).stdout
    if not state.content["own"] or "jdk.compiler" not in modules:
        return [*classpath, JOB_SERVER]
    shipped = state.directory / "empty.jar"
    with zipfile.ZipFile(shipped, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n\n")
    return [*classpath, f"-Dheadcount.shipped={shipped}", str(LIGHT_JOB_SERVER)]


def _managers(address: str) -> int:
    try:
        return int(ask(address, "/overview")["taskmanagers"])
    except OSError:
        return 0


def _with_scheme(address: str) -> str:
    return address.rstrip("/") if "://" in address else f"http://{address}"


def _task_limits() -> list[str]:
    direct = _FRAMEWORK + _TASK_DIRECT + _NETWORK
    return [
        f"-Xmx{_FRAMEWORK + _TASK_HEAP}m",
        f"-XX:MaxDirectMemorySize={direct}m",
        f"-XX:MaxMetaspaceSize={_METASPACE}m",
    ]


def _write_config(directory: Path, rest: int, rpc: int, args: argparse.Namespace) -> None:
    """config.yaml of job and task managers."""
    temporary = directory / "tmp"
    temporary.mkdir(exist_ok=True)
    settings = {
        "jobmanager.rpc.address": "localhost",
        "jobmanager.rpc.port": rpc,
        "jobmanager.bind-host": "localhost",
        "jobmanager.memory.process.size": "1024m",
        "rest.address": "localhost",
        "rest.bind-address": "localhost",
        "rest.port": rest,
        "taskmanager.host": "localhost",
        "taskmanager.bind-host": "localhost",
        "taskmanager.numberOfTaskSlots": 1,
        "taskmanager.cpu.cores": 1.0,
        "taskmanager.memory.framework.heap.size": f"{_FRAMEWORK}m",
        "taskmanager.memory.framework.off-heap.size": f"{_FRAMEWORK}m",
        "taskmanager.memory.task.heap.size": f"{_TASK_HEAP}m",
        "taskmanager.memory.task.off-heap.size": f"{_TASK_DIRECT}m",
        "taskmanager.memory.managed.size": f"{args.memory}m",
        "taskmanager.memory.network.min": f"{_NETWORK}m",
        "taskmanager.memory.network.max": f"{_NETWORK}m",
        "taskmanager.network.sort-shuffle.min-buffers": _EXCHANGE_BUFFERS,
        "taskmanager.memory.jvm-metaspace.size": f"{_METASPACE}m",
        "taskmanager.memory.jvm-overhead.min": f"{_OVERHEAD}m",
        "taskmanager.memory.jvm-overhead.max": f"{_OVERHEAD}m",
        "io.tmp.dirs": temporary,
        # Noise and sampling follow from the key, so that a job that starts again gives the same rows.
        "restart-strategy.type": "fixed-delay" if args.restarts else "none",
        "restart-strategy.fixed-delay.attempts": args.restarts,
        "restart-strategy.fixed-delay.delay": f"{_RESTART_SECONDS} s",
        # A lost task manager must be known as such before the job starts again, or it is sent there once more.
        "heartbeat.interval": 500,
        "heartbeat.rpc-failure-threshold": 2,
        "heartbeat.timeout": 20000,
    }
    (directory / "conf").mkdir(exist_ok=True)
    lines = [
        f"{name}: {json.dumps(str(value)) if isinstance(value, Path) else value}\n" for name, value in settings.items()
    ]
    (directory / "conf" / "config.yaml").write_text("".join(lines))


def submit(args: argparse.Namespace, state: State) -> int:
    """Run a headcount command on the cluster. If it is stopped or killed, so is its job."""
    endpoint = args.job_endpoint or state.content.get("job_endpoint")
    address = _with_scheme(args.flink_master) if args.flink_master else None
    if not args.job_endpoint:
        if endpoint is None or not is_open(endpoint):
            raise Problem("no cluster runs: call start first, or give --job-endpoint of a job server of your own")
        address = address or state.content["flink"]
    name = f"headcount-{state.content.get('token', 'own')}-{secrets.token_hex(4)}"
    log = str(state.directory / "logs" / "workers.log") if state.content.get("own") else None
    command = [sys.executable, "-m", "headcount.pipelines.main", args.words[0]]
    command += beam_flags(endpoint, args.parallelism or state.content.get("managers", 1), name, log)
    clients: list[subprocess.Popen[bytes]] = []
    early: list[int] = []  # signals that came before there was a client

    def hand_on(number: int, _: object) -> None:
        if clients:
            clients[0].send_signal(number)
        else:
            early.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, hand_on)
    clients.append(subprocess.Popen(command + args.words[1:]))
    for number in early:
        clients[0].send_signal(number)
    status = clients[0].wait()
    if status != 0 and address is not None:
        with contextlib.suppress(OSError):  # no cluster, no job
            _end_job(endpoint, address, name)
    if status == 1:
        logs = f"in {state.directory / 'logs'}" if state.content.get("own") else "of the cluster"
        print(
            f"flink.sh: the job failed and left no output; the logs {logs} tell more. If a task manager was lost, call "
            "start, which replaces it; then submit again",
            file=sys.stderr,
        )
    return status if status >= 0 else 128 - status


def beam_flags(endpoint: str, parallelism: int, name: str, log: str | None) -> list[str]:
    """Beam's flags of a job; with a log for its workers, of one on our own cluster. Later ones on the command line win."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    environment = {"command": str(BOOT), "env": {"PATH": path, **({"HEADCOUNT_WORKER_LOG": log} if log else {})}}
    kept = [f"--environment_cache_millis={1000 * _WORKER_SECONDS}"] if log else []
    return [
        *("--runner=FlinkRunner", f"--job_endpoint={endpoint}", f"--job_name={name}", f"--parallelism={parallelism}"),
        *("--environment_type=PROCESS", f"--environment_config={json.dumps(environment)}"),
        "--experiments=disable_logging_submission_environment",  # that is a run of pip, for a file that nobody reads
        *kept,
    ]


def status(args: argparse.Namespace, state: State) -> int:
    """Show the cluster and its jobs; 0 if all of it runs."""
    if not state.processes:
        print("not running")
        return 1
    lost, address = state.lost(), state.content["flink"]
    for name, process in state.processes.items():
        print(f"{name:<16} {'ended by itself' if name in lost else 'runs'}, process {process['pid']}")
    print(f"{'Flink':<16} {address}\n{'job server':<16} {state.content.get('job_endpoint')}")
    try:
        print(f"{'task managers':<16} {_managers(address)}")
        for job in jobs_of(address):
            print(f"{job['name']:<30} {job['state']:<10} {job['duration'] / 1000:.1f} s")
    except OSError:
        print(f"{address} does not answer")
        return 1
    return 1 if lost else 0


def stop(args: argparse.Namespace, state: State) -> int:
    """Cancel what runs, then end what start started."""
    with state.locked():
        if not state.processes:
            print("not running")
            return 0
        server = state.processes.pop("job-server", None)  # first, or it may submit one more
        end([server] if server else [])
        # On somebody's own cluster, only jobs that were submitted from here.
        prefix = "" if state.content.get("own") else f"headcount-{state.content['token']}-"
        if "job-manager" not in state.lost():  # else its jobs have ended too, and who answers in its place is another
            with contextlib.suppress(OSError):  # no cluster, no jobs
                for name in _cancel(state.content["flink"], prefix):
                    print(f"cancelled {name}")
        end(list(state.processes.values()))
        state.remove()
    print("stopped")
    return 0


def main(argv: Sequence[str]) -> int:
    """Run one command line and return its exit status."""
    parser = argparse.ArgumentParser(prog="flink.sh", description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument(
        "--state",
        metavar="DIR",
        help="where to keep what runs, and logs (default: in your home, one for each checkout)",
    )
    commands = parser.add_subparsers(required=True, metavar="start|submit|status|stop")
    master = argparse.ArgumentParser(add_help=False)
    master.add_argument("--flink-master", metavar="HOST:PORT", help="the REST address of a Flink cluster of your own")
    one = commands.add_parser("start", help=start.__doc__, parents=[master], allow_abbrev=False)
    one.add_argument("--task-managers", type=_positive, default=2, metavar="N", help="default: 2, of one slot each")
    one.add_argument(
        "--memory", type=_positive, default=1024, metavar="MB", help="that each of them sorts in (default: 1024)"
    )
    one.add_argument(
        "--restarts",
        type=_whole,
        default=3,
        metavar="N",
        help="how often a failed job starts again (default: 3; 0: never)",
    )
    one.add_argument("--job-server-jar", metavar="JAR", help="a job server of your own, instead of the one fetched")
    one.set_defaults(run=start)
    one = commands.add_parser("submit", help=submit.__doc__, parents=[master], allow_abbrev=False)
    one.add_argument("--job-endpoint", metavar="HOST:PORT", help="a running job server of your own")
    one.add_argument("--parallelism", type=_positive, metavar="N", help="default: one per task manager")
    one.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND ...", help="a headcount command line")
    one.set_defaults(run=submit)
    commands.add_parser("status", help=status.__doc__).set_defaults(run=status)
    commands.add_parser("stop", help=stop.__doc__).set_defaults(run=stop)
    args = parser.parse_args(argv)
    if args.run is submit and not args.words:
        parser.error("submit needs a headcount command, for example: submit histogram --input ...")
    try:
        return int(args.run(args, State(args.state)))
    except Problem as problem:
        print(f"flink.sh: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _whole(text: str, least: int = 0) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, got {text!r}")
    return int(text)


def _positive(text: str) -> int:
    return _whole(text, 1)


def _on_sigterm(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _on_sigterm)
    sys.exit(main(sys.argv[1:]))
