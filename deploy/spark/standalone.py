"""A Spark cluster on this machine for Headcount's jobs, and the way to submit jobs to it or to one of your own.

`start` brings up Spark's standalone master, workers and Beam's job server; `submit` runs a headcount command on them;
`status` shows them; `stop` ends them. spark.sh is the way to call this. What runs is written down in a state directory, so
that each call finds what an earlier one started, and `stop` ends nothing else.

Beam's job server is the driver of each job: an application of its own at the master, with executors of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "shared"))

import script  # noqa: E402
from loopback import class_path  # noqa: E402
from servers import Engine, Problem, State, end, free_port, jars, program, wait  # noqa: E402

ENGINE = Engine("Spark", HERE)

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
JOB_SERVER = "org.apache.beam.runners.spark.SparkJobServerDriver"

LOOPBACK = "loopback.jar"  # in the state directory, see shared/loopback.py

_CANCEL_SECONDS = 180

# For how long a Python worker waits for the next task of its job: between two of them an executor may have none for long.
_WORKER_SECONDS = 600

_JAVA_FLAGS = [
    *script.JAVA_FLAGS,
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    *(f"--add-opens=java.base/sun.{package}=ALL-UNNAMED" for package in ("nio.cs", "security.action", "util.calendar")),
]


def applications(pages: str) -> list[dict[str, Any]]:
    """The applications that the master knows of, of which each is a job; those that run last."""
    told = script.ask(pages, "/json/")
    found: list[dict[str, Any]] = [*told["completedapps"], *told["activeapps"]]
    return found


def _running(state: State, prefix: str) -> list[str]:
    """The jobs of our own cluster whose names start so and that have not ended."""
    found = script.ask(state.content["pages"], "/json/")["activeapps"]
    return [each["name"] for each in found if each["name"].startswith(prefix)]


def _workers(pages: str) -> int:
    try:
        return sum(worker["state"] == "ALIVE" for worker in script.ask(pages, "/json/")["workers"])
    except OSError:
        return 0


def start(args: argparse.Namespace, state: State) -> int:
    """Start what is not running yet, and wait until it answers."""
    with script.whole(state):
        _start(args, state)
    print(f"Spark runs at {state.content['spark']}, Beam's job server at {state.content['job_endpoint']}")
    return 0


def _start(args: argparse.Namespace, state: State) -> None:
    java = program("java", "Java, which Spark and Beam's job server run on, is not installed")
    content = state.content
    ours = script.claim(state, "spark", args.spark_master)
    own_jar = args.job_server_jar and Path(args.job_server_jar)
    classpath = [] if args.spark_master and own_jar else class_path(state.directory / LOOPBACK, jars(ENGINE))
    server = [java, *_JAVA_FLAGS, *script.SERVER_FLAGS, *classpath]
    if ours and "master" not in state.processes:
        end([state.processes.pop(name) for name in list(state.processes)])  # what is left of an earlier cluster
        port, pages = free_port(), free_port()
        content.update(spark=f"spark://localhost:{port}", pages=f"http://localhost:{pages}", own=True)
        content.update(workers=args.workers, memory=args.memory)
        place = ["--host", "localhost", "--port", str(port), "--webui-port", str(pages)]
        state.launch("master", [*server, MASTER, *place], _variables(state))
        state.require_answer(lambda: script.is_open(f"localhost:{port}"), f"Spark's master at {content['spark']}")
    if content["own"]:
        for number in range(content["workers"]):
            name = f"worker-{number}"
            if name not in state.processes:
                place = ["--host", "localhost", "--webui-port", "0", "--work-dir", str(state.directory / "tmp" / name)]
                size = ["--cores", "1", "--memory", f"{content['memory']}m"]
                state.launch(name, [*server, WORKER, *place, *size, content["spark"]], _variables(state))
        state.require_answer(
            lambda: _workers(content["pages"]) >= content["workers"],
            f"the Spark cluster at {content['spark']} with {content['workers']} workers",
        )

    memory = content.setdefault("memory", args.memory)

    def job_server() -> list[str]:
        path = class_path(state.directory / "own.jar", own_jar) if own_jar else classpath
        flags = [java, *_JAVA_FLAGS, *script.SERVER_FLAGS, f"-Xmx{memory}m", *_settings(args, state)]
        return [*flags, *path, JOB_SERVER, "--spark-master-url", content["spark"]]

    script.start_job_server(state, job_server)


def _variables(state: State) -> dict[str, str]:
    """The environment of master and workers: where executors find Spark, which lies nowhere but in the jars."""
    home, local = state.directory / "tmp" / "home", str(state.directory / "tmp")
    home.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (home / "jars").symlink_to(jars(ENGINE))
    return {
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.12",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": local,
    }


def _settings(args: argparse.Namespace, state: State) -> list[str]:
    """Spark's settings for all jobs, as flags of the job server, which is their driver."""
    settings: dict[str, object] = {"spark.ui.enabled": "false"}
    if state.content["own"]:
        # Noise and sampling follow from the key, so that a task that is run again gives the same rows.
        settings |= {
            "spark.task.maxFailures": args.restarts + 1,
            "spark.executor.memory": f"{state.content['memory']}m",
        }
        settings |= {"spark.driver.host": "localhost", "spark.local.dir": state.directory / "tmp"}
        settings |= {"spark.default.parallelism": state.content["workers"]}
        settings |= {"spark.executor.extraClassPath": state.directory / LOOPBACK}  # before the jars of SPARK_HOME
    return [*(f"-D{name}={value}" for name, value in settings.items()), *(f"-D{each}" for each in args.conf)]


def submit(args: argparse.Namespace, state: State) -> int:
    """Run a headcount command on the cluster. If it is stopped or killed, so is its job."""
    endpoint, name = script.job_endpoint(args, state), script.job_name(state)
    with _turn(args, state):
        status = script.run_client(args.words, beam_flags(endpoint, name, state))
        if status != 0:
            _end_job(endpoint, name, state)
    return script.told(status, state, "worker")


@contextlib.contextmanager
def _turn(args: argparse.Namespace, state: State) -> Iterator[None]:
    """The jobs of one job server come one after the other, since Spark has one context in a process."""
    if args.job_endpoint:
        yield
        return
    others = "the job before, since Beam's job server for Spark runs one at a time"
    with state.alone("turn", others, sys.stderr):
        try:
            free = not state.content["own"] or wait(lambda: not _running(state, "headcount-"), _CANCEL_SECONDS)
        except OSError:
            raise Problem("Spark's master does not answer: call start, which replaces it") from None
        if not free:
            raise Problem("a job runs whose client was killed: wait for its end, which status tells, or stop and start")
        yield


def _end_job(endpoint: str, name: str, state: State) -> None:
    """Take a job with its client."""

    def is_ended() -> bool:
        return not script.is_on_its_way(endpoint, name, cancel=True)

    if not wait(is_ended, _CANCEL_SECONDS):
        raise Problem(f"the job server at {endpoint} does not end the job {name}")
    if state.content.get("own"):
        with contextlib.suppress(OSError):  # no cluster, no job
            wait(lambda: not _running(state, name), _CANCEL_SECONDS)


def beam_flags(endpoint: str, name: str, state: State) -> list[str]:
    """Beam's flags of a job."""
    shipped = [f"--files_to_stage={script.empty_jar(state)}"] if state.content.get("own") else []
    return [*script.beam_flags("SparkRunner", endpoint, name, script.worker_log(state), _WORKER_SECONDS), *shipped]


def status(args: argparse.Namespace, state: State) -> int:
    """Show the cluster and its jobs; 0 if all of it runs."""

    def jobs() -> None:
        if state.content["own"]:
            print(f"{'pages':<16} {state.content['pages']}\n{'workers':<16} {_workers(state.content['pages'])}")
            for each in applications(state.content["pages"]):
                print(f"{each['name'].partition('_')[0]:<30} {each['state']:<10} {each['duration'] / 1000:.1f} s")

    return script.show(state, "spark", jobs)


def stop(args: argparse.Namespace, state: State) -> int:
    """Cancel what runs, then end what start started."""
    running: list[str] = []
    if state.content.get("own"):
        with contextlib.suppress(OSError):  # no cluster, no jobs
            running = _running(state, "")
    return script.end_all(state, lambda: [name.partition("_")[0] for name in running])


def main(argv: Sequence[str]) -> int:
    """Run one command line and return its exit status."""
    commands = {"start": start, "submit": submit, "status": status, "stop": stop}
    line = script.Script(ENGINE, __doc__.split("\n\n")[0], commands)
    add = line.parsers["start"].add_argument
    add("--spark-master", metavar="URL", help="of a Spark cluster of your own, such as spark://HOST:7077")
    add("--workers", type=script.positive, default=2, metavar="N", help="default: 2, of one core each")
    memory = "of each of them and of the job server (default: 1024)"
    add("--memory", type=script.positive, default=1024, metavar="MB", help=memory)
    restarts = "how often a failed task starts again (default: 3; 0: never)"
    add("--restarts", type=script.whole_number, default=3, metavar="N", help=restarts)
    conf = "a setting of Spark for all jobs; may be given several times"
    add("--conf", action="append", default=[], metavar="NAME=VALUE", help=conf)
    return line.run(argv)


if __name__ == "__main__":
    script.exit_by(main)
