"""A Flink cluster on this machine for Headcount's jobs, and the way to submit jobs to it or to one of your own.

`start` brings up a job manager, task managers and Beam's job server; `submit` runs a headcount command on them; `status`
shows them; `stop` ends them. flink.sh is the way to call this. What runs is written down in a state directory, so that
each call finds what an earlier one started, and `stop` ends nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import urllib.error
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "shared"))

import script  # noqa: E402
from loopback import class_path  # noqa: E402
from script import JAVA_FLAGS, SERVER_FLAGS, ask  # noqa: E402
from servers import Engine, Problem, State, end, free_port, jars, program, wait  # noqa: E402

ENGINE = Engine("Flink", HERE)
LIGHT_JOB_SERVER = HERE / "LightJobServer.java"

JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
JOB_SERVER = "org.apache.beam.runners.flink.FlinkJobServerDriver"

_ENDED = {"FINISHED", "CANCELED", "FAILED"}
_CANCEL_SECONDS = 180
# What ended at the job server may come to the cluster for so long yet.
_LATE_SECONDS = 5

# For how long a Python worker waits for the next task of its job. One that died is taken for alive as long, so that a
# failed job must not start again before.
_WORKER_SECONDS, _RESTART_SECONDS = 5, 6

# The pools of a task manager in MB, besides the managed memory that Flink sorts in: they must all be set, since no
# script of a Flink distribution computes them, and the limits of its Java process must fit them. Beam's runner may have a
# hundred groups on their way to a Python worker before it waits for it, and answers on their way back, in direct memory: with
# 256 a log of 100 million rows failed on two task managers ("Direct buffer memory"), and with 1024 once before it passed.
_TASK_HEAP, _FRAMEWORK, _TASK_DIRECT, _NETWORK, _METASPACE, _OVERHEAD = 896, 128, 2048, 320, 256, 192

# The network buffers (32 kB) that each stored exchange of a job takes. At Flink's default of 512 the largest jobs fail
# with "Insufficient number of network buffers" if too many of their exchanges, of which they have 66, are open at once;
# of these there is room for all of them.
_EXCHANGE_BUFFERS = 128


# The cluster's own pages


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
        on_its_way = script.is_on_its_way(endpoint, name)
        return not on_its_way

    if not wait(is_ended, _CANCEL_SECONDS):
        raise Problem(f"the job server at {endpoint} does not end the job {name}")
    if on_its_way is not None and wait(is_on_cluster, _LATE_SECONDS):
        _cancel(address, name)


# The commands


def start(args: argparse.Namespace, state: State) -> int:
    """Start what is not running yet, and wait until it answers."""
    with script.whole(state):
        _start(args, state)
    print(f"Flink runs at {state.content['flink']}, Beam's job server at {state.content['job_endpoint']}")
    return 0


def _start(args: argparse.Namespace, state: State) -> None:
    java = program("java", "Java, which Flink and Beam's job server run on, is not installed")
    content = state.content
    ours = script.claim(state, "flink", _with_scheme(args.flink_master) if args.flink_master else None)
    own_jar = args.job_server_jar and Path(args.job_server_jar)
    classpath = [] if args.flink_master and own_jar else class_path(state.directory / "loopback.jar", jars(ENGINE))
    if ours and "job-manager" not in state.processes:
        end([state.processes.pop(name) for name in list(state.processes)])  # what is left of an earlier cluster
        rest = free_port()
        content.update(flink=f"http://localhost:{rest}", own=True, managers=args.task_managers)
        _write_config(state.directory, rest, free_port(), args)
        config = ["--configDir", str(state.directory / "conf")]
        content["manager"] = [java, *JAVA_FLAGS, *_task_limits(), *classpath, TASK_MANAGER, *config]
        state.launch("job-manager", [java, *JAVA_FLAGS, *SERVER_FLAGS, *classpath, JOB_MANAGER, *config])
    if content["own"]:
        for number in range(content["managers"]):
            if f"task-manager-{number}" not in state.processes:
                state.launch(f"task-manager-{number}", content["manager"])
        state.require_answer(
            lambda: _managers(content["flink"]) >= content["managers"],
            f"the Flink cluster at {content['flink']} with {content['managers']} task managers",
        )

    def job_server() -> list[str]:
        server = (
            [*class_path(state.directory / "own.jar", own_jar), JOB_SERVER]
            if own_jar
            else _job_server(java, classpath, state)
        )
        master = urllib.parse.urlsplit(content["flink"]).netloc
        return [java, *JAVA_FLAGS, *SERVER_FLAGS, *server, "--flink-master", master]

    script.start_job_server(state, job_server)


def _job_server(java: str, classpath: list[str], state: State) -> list[str]:
    """How to run the fetched job server: without shipping its jars to a cluster that has them, if Java can compile."""
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True).stdout
    if not state.content["own"] or "jdk.compiler" not in modules:
        return [*classpath, JOB_SERVER]
    return [*classpath, f"-Dheadcount.shipped={script.empty_jar(state)}", str(LIGHT_JOB_SERVER)]


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
    endpoint, name = script.job_endpoint(args, state), script.job_name(state)
    address = _with_scheme(args.flink_master) if args.flink_master else None
    if not args.job_endpoint:
        address = address or state.content["flink"]
    parallelism = args.parallelism or state.content.get("managers", 1)
    status = script.run_client(args.words, beam_flags(endpoint, parallelism, name, script.worker_log(state)))
    # The job of a stream with checkpoints never ends by itself, and the job server cannot end one that the cluster has.
    if (status != 0 or args.words[0] == "stream") and address is not None:
        with contextlib.suppress(OSError):  # no cluster, no job
            _end_job(endpoint, address, name)
    return script.told(status, state, "task manager")


def beam_flags(endpoint: str, parallelism: int, name: str, log: str | None) -> list[str]:
    """Beam's flags of a job on this many task managers."""
    return [*script.beam_flags("FlinkRunner", endpoint, name, log, _WORKER_SECONDS), f"--parallelism={parallelism}"]


def status(args: argparse.Namespace, state: State) -> int:
    """Show the cluster and its jobs; 0 if all of it runs."""

    def jobs() -> None:
        address = state.content["flink"]
        print(f"{'task managers':<16} {_managers(address)}")
        for job in jobs_of(address):
            print(f"{job['name']:<30} {job['state']:<10} {job['duration'] / 1000:.1f} s")

    return script.show(state, "flink", jobs)


def stop(args: argparse.Namespace, state: State) -> int:
    """Cancel what runs, then end what start started."""

    def cancel() -> Sequence[str]:
        if "job-manager" not in state.lost():  # else its jobs have ended too, and who answers in its place is another
            # On somebody's own cluster, only jobs that were submitted from here.
            prefix = "" if state.content.get("own") else f"headcount-{state.content['token']}-"
            with contextlib.suppress(OSError):  # no cluster, no jobs
                return _cancel(state.content["flink"], prefix)
        return []

    return script.end_all(state, cancel)


def main(argv: Sequence[str]) -> int:
    """Run one command line and return its exit status."""
    commands = {"start": start, "submit": submit, "status": status, "stop": stop}
    line = script.Script(ENGINE, __doc__.split("\n\n")[0], commands)
    for name in ("start", "submit"):
        line.parsers[name].add_argument(
            "--flink-master", metavar="HOST:PORT", help="the REST address of a Flink cluster of your own"
        )
    add = line.parsers["start"].add_argument
    positive = script.positive
    add("--task-managers", type=positive, default=2, metavar="N", help="default: 2, of one slot each")
    add("--memory", type=positive, default=1024, metavar="MB", help="that each of them sorts in (default: 1024)")
    restarts = "how often a failed job starts again (default: 3; 0: never)"
    add("--restarts", type=script.whole_number, default=3, metavar="N", help=restarts)
    line.parsers["submit"].add_argument(
        "--parallelism", type=positive, metavar="N", help="default: one per task manager"
    )
    return line.run(argv)


if __name__ == "__main__":
    script.exit_by(main)
