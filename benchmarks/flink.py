"""Private jobs beside the plain count on a real Flink cluster of this machine: Flink's own time, and that of the client.

    python benchmarks/flink.py --sizes 1e6,1e7,3e7 --parallelism 1,2

Starts a cluster by deploy/flink, warms it up with one job of each kind, lets them take turns, prints two tables (Markdown) and
writes them as CSV. `private` has one stage with a given bound of events, and `default` is the default: users, with everything
chosen. Each figure is the least of the repeats, each ratio one of shown figures. The data is *tail*: heavy users who repeat
themselves. Needs what flink.sh needs: Java, and Maven the first time.

A job's figures: `flink` is the duration that Flink itself tells of it, `client` the whole command, `to running` the time
from the command's start to the state RUNNING, `cpu` the processor seconds of client, cluster and workers together, `shuffled`
what its operators sent to the next ones. A third table, in flink-steps.csv, has each operator of each job: when it began and
ended, and what it sent.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from _shared import DATA, HERE, OUT, default_job, event_log, plain_job, private_job, run, write_csv

from headcount.mechanisms.randomness.keys import write_key_file

DEPLOY = HERE.parent / "deploy" / "flink"
sys.path.insert(0, str(DEPLOY))

import cluster  # noqa: E402  # the tool behind flink.sh
from servers import State, group  # noqa: E402

PRIVATE = {"private": private_job, "default": default_job}
JOBS = ("plain", *PRIVATE)
WHOLE_AT = 10_000_000  # rows
CHEAPER_PER_ROW, FASTER_WHOLE, SECONDS_TO_RUNNING = 4.0, 2.5, 10.0  # the bars


class Times(NamedTuple):
    """Seconds of one job."""

    flink: float
    client: float
    to_running: float
    cpu: float
    shuffled: float  # megabytes


class Case(NamedTuple):
    """One job to measure."""

    rows: int
    parallelism: int
    job: str


@contextmanager
def running(directory: Path | None, managers: int) -> Iterator[State]:
    """The cluster of a state directory, started unless it runs; only one that was started here is stopped."""
    with tempfile.TemporaryDirectory(prefix="headcount-flink-") as own:
        place = directory or Path(own)
        script = [str(DEPLOY / "flink.sh"), "--state", str(place)]
        ours = not State(cluster.ENGINE, str(place)).processes
        say(f"{'starting' if ours else 'using'} the cluster of {place}")
        subprocess.run([*script, "start", "--task-managers", str(managers)], check=True, stdout=sys.stderr)
        try:
            yield State(cluster.ENGINE, str(place))
        finally:
            if ours:
                subprocess.run([*script, "stop"], check=True, stdout=sys.stderr)


def measure(case: Case, path: Path, work: Path, state: State) -> tuple[Times, list[dict[str, str]]]:
    """Run one job on the cluster, to its end; and a line for each of its operators."""
    if case.job == "plain":
        log = str(state.directory / "logs" / "workers.log")
        flags = cluster.beam_flags(state.content["job_endpoint"], case.parallelism, "plain-count", log)
        command = plain_job(path, work / "plain", flags=flags)
    else:
        command = [str(DEPLOY / "flink.sh"), "--state", str(state.directory), "submit"]
        command += ["--parallelism", str(case.parallelism), *PRIVATE[case.job](path, work / case.job)]
        command += ["--key-file", str(work / "key")]
    address = state.content["flink"]
    before, used = {job["jid"] for job in cluster.jobs_of(address)}, cpu_seconds(state)
    start = time.time()  # Flink's times of day come from the same clock
    client, cpu, _ = run(command)
    (new,) = [job["jid"] for job in cluster.jobs_of(address) if job["jid"] not in before]
    told = cluster.ask(address, f"/jobs/{new}")
    to_running = told["timestamps"]["RUNNING"] / 1000 - start
    steps = steps_of(case, told)
    shuffled = sum(float(step["sent, MB"]) for step in steps)
    return Times(told["duration"] / 1000, client, to_running, cpu + cpu_seconds(state) - used, shuffled), steps


def steps_of(case: Case, told: Mapping[str, Any]) -> list[dict[str, str]]:
    """The operators of a job, in the order in which they began."""
    ran = [each for each in told["vertices"] if each["start-time"] > 0]
    return [
        {
            **{name: str(value) for name, value in case._asdict().items()},
            "began, s": f"{(each['start-time'] - told['start-time']) / 1000:.1f}",
            "ended, s": f"{(each['end-time'] - told['start-time']) / 1000:.1f}",
            "sent, MB": f"{each['metrics']['write-bytes'] / 1e6:.2f}",
            "operator": each["name"],
        }
        for each in sorted(ran, key=lambda each: each["start-time"])
    ]


def cpu_seconds(state: State) -> float:
    """What the cluster's servers and their workers have used so far, ended ones included."""
    ticks = 0
    for server in state.processes.values():
        for process in group(server["pid"]):
            try:
                fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            except FileNotFoundError:
                continue  # it ended meanwhile, and its parent has the sum
            ticks += sum(map(int, fields[11:15]))  # its own time and that of its ended children, see proc(5)
    return ticks / os.sysconf("SC_CLK_TCK")


def lines_of(best: dict[Case, Times]) -> list[dict[str, str]]:
    """One line per job; the plain one of the same size and parallelism is what it is compared with."""
    return [
        {
            "rows": f"{case.rows:g}",
            "parallelism": str(case.parallelism),
            "job": case.job,
            "flink, s": f"{times.flink:.1f}",
            "client, s": f"{times.client:.1f}",
            "to running, s": f"{times.to_running:.1f}",
            "cpu, s": f"{times.cpu:.1f}",
            "shuffled, MB": f"{times.shuffled:.0f}",
            **beside_plain(times, best.get(case._replace(job="plain"))),
        }
        for case, times in best.items()
    ]


def beside_plain(times: Times, plain: Times | None) -> dict[str, str]:
    """How many times less a job takes than the plain one, if that ran."""
    if plain is None:
        return {}
    return {"times faster": f"{plain.flink / times.flink:.2f}", "times less cpu": f"{plain.cpu / times.cpu:.2f}"}


def bars_of(best: dict[Case, Times]) -> list[dict[str, str]]:
    """What was asked for beside what was seen, for each parallelism."""
    lines = []

    def add(parallelism: int, job: str, what: str, plain: str, private: str, seen: float, bar: str, met: bool) -> None:
        line = {"parallelism": str(parallelism), "job": job, "figure": what, "plain": plain, "private": private}
        lines.append({**line, "seen": f"{seen:.2f}", "bar": bar, "met": "yes" if met else "no"})

    sizes = sorted({case.rows for case in best})
    ran = {case.job for case in best}
    jobs = [job for job in PRIVATE if {job, "plain"} <= ran]
    turns = [(parallelism, job) for parallelism in sorted({case.parallelism for case in best}) for job in jobs]
    for parallelism, private in turns:
        of = {(case.rows, case.job): times for case, times in best.items() if case.parallelism == parallelism}
        two = ("plain", private)
        if len(sizes) > 1:
            few, many = sizes[-2:]
            slopes = [(of[many, job].flink - of[few, job].flink) / (many - few) * 1e6 for job in two]
            ratio = slopes[0] / slopes[1]
            words = [f"us per further row, {few:g} to {many:g}", *(f"{slope:.3f}" for slope in slopes)]
            add(parallelism, private, *words, ratio, f">= {CHEAPER_PER_ROW:g}", ratio >= CHEAPER_PER_ROW)
        if WHOLE_AT in sizes:
            whole = [of[WHOLE_AT, job].flink for job in two]
            ratio = whole[0] / whole[1]
            words = [f"s whole, {WHOLE_AT:g}", *(f"{seconds:.1f}" for seconds in whole)]
            add(parallelism, private, *words, ratio, f">= {FASTER_WHOLE:g}", ratio >= FASTER_WHOLE)
        slowest = [max(of[rows, job].to_running for rows in sizes) for job in two]
        words = ["s from submit to running, slowest", *(f"{seconds:.1f}" for seconds in slowest)]
        add(parallelism, private, *words, slowest[1], f"<= {SECONDS_TO_RUNNING:g}", slowest[1] <= SECONDS_TO_RUNNING)
    return lines


def table(lines: list[dict[str, str]]) -> str:
    """Lines as Markdown."""
    rows = [list(lines[0]), ["---"] * len(lines[0]), *(list(line.values()) for line in lines)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def say(words: str) -> None:
    """Progress, beside the tables."""
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)


def whole_numbers(text: str) -> list[int]:
    """Reads 1e6,3000000."""
    numbers = [float(word) for word in text.split(",")]
    if any(number < 1 or number != int(number) for number in numbers):
        raise argparse.ArgumentTypeError(f"must be whole numbers of at least 1, got {text!r}")
    return sorted({int(number) for number in numbers})


def main() -> None:
    """Generates what is missing, runs all jobs, prints the tables and writes them as CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", type=whole_numbers, default=[10**6, 10**7, 3 * 10**7], help="rows (default: 1e6,1e7,3e7)"
    )
    parser.add_argument("--parallelism", type=whole_numbers, default=[1, 2], help="default: 1,2")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS), help="default: all of them")
    parser.add_argument("--repeats", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--data", type=Path, default=DATA, help="where generated logs are kept (default: %(default)s)")
    parser.add_argument(
        "--state", type=Path, help="as for flink.sh: a cluster that runs there is used, and left running"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="where the CSV files go (default: %(default)s)")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and so stops the cluster
    files = {rows: event_log("tail", rows, args.data) for rows in args.sizes}
    turns = [
        Case(rows, parallelism, job)
        for rows in args.sizes
        for parallelism in args.parallelism
        for _ in range(args.repeats)
        for job in args.jobs
    ]
    best: dict[Case, Times] = {}
    steps: dict[Case, list[dict[str, str]]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="headcount-jobs-") as work,
        running(args.state, max(args.parallelism)) as state,
    ):
        write_key_file(Path(work) / "key")
        for job in args.jobs:
            say(f"warming up: {job}")
            measure(Case(args.sizes[0], max(args.parallelism), job), files[args.sizes[0]], Path(work), state)
        for number, case in enumerate(turns, 1):
            times, steps[case] = measure(case, files[case.rows], Path(work), state)
            seen = ", ".join(f"{name} {value:.1f}" for name, value in times._asdict().items())
            say(f"{number} of {len(turns)}: {case.job}, {case.rows:g} rows, parallelism {case.parallelism}: {seen}")
            best[case] = Times(*map(min, times, best.get(case, times)))
    lines, bars = lines_of(best), bars_of(best)
    for name, made in (("flink", lines), ("flink-bars", bars)):
        if made:
            print(f"{table(made)}\n")
            write_csv(made, args.out / f"{name}.csv")
    write_csv([line for lines in steps.values() for line in lines], args.out / "flink-steps.csv")


if __name__ == "__main__":
    main()
