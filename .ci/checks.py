"""The checks that every change must pass, from a fresh clone: what the README tells people to run.

    .ci/run                all of them; how much runs on clusters follows from what has changed (.ci/changed)
    .ci/run --some         some jobs on clusters, whatever has changed
    .ci/run --engines      all jobs on Flink and Prism
    .ci/run --everything   what waits for this as well; if all of it passes, that is recorded
    .ci/run --some lint    targets of the Makefile, one after the other, and no others

What fails ends it, once what runs beside it has ended. Then, however it ends, it prints what took how long.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

TOP = Path(__file__).resolve().parents[1]
CHANGED, PASSED = TOP / ".ci" / "changed", TOP / ".ci" / "everything"
# The targets of a step run at once, two at most: most keep two cores busy, and what keeps one busy has something beside it.
# The site and the demo come first, each alone in what it installs; never are two things built of the checkout, or put into
# .venv, at once.
STEPS = (
    (".venv/uv",),
    (".venv/docs", ".venv-release/ready"),
    ("docs", ".venv-plain/ready"),
    ("demo", ".venv-oldest/ready"),
    (".venv/development",),
    ("lint", "types", "unit"),
    ("test-slow",),
    ("test-as-run",),
    ("test-docs",),
    ("test-flink",),
    ("test-postgres", "test-browser", "test-spark", "test-beam"),
)
ENGINES = ("test-flink",)  # all jobs on Spark take as long as all else: they wait for --everything
SLOWEST = 10
_ORPHANS_COME_TO_ME = 36  # PR_SET_CHILD_SUBREAPER of Linux


class Spent(NamedTuple):
    """What a target took, in seconds, and whether it passed."""

    target: str
    clock: float
    processor: float
    passed: bool


def command(target: str, mode: str) -> list[str]:
    """How a target is made where this much is asked for: `some`, all on `engines`, or `everything`."""
    whole = mode == "everything" or (mode == "engines" and target in ENGINES)
    return ["make", "--no-print-directory", target, *(["EVERYTHING=yes"] if whole else [])]


def begin(words: Sequence[str], out: IO[bytes] | None) -> int:
    """A process that runs a command. Servers that the command leaves alone become its own, so that their time is known, too."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_ORPHANS_COME_TO_ME, 1, 0, 0, 0)
        started = subprocess.Popen(
            words, cwd=TOP, stdin=subprocess.DEVNULL, stdout=out, stderr=out and subprocess.STDOUT
        )
        ended = 0
        while ended != started.pid:
            ended, status = os.waitpid(-1, 0)
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except (ChildProcessError, KeyboardInterrupt):  # none is left; or it is stopped
        pass
    finally:
        os._exit(status != 0)


def run_step(step: Sequence[str], mode: str, spent: list[Spent]) -> bool:
    """Whether all targets of a step pass. What one of several says is shown when it has ended."""
    waiting, running, passed = [*step], {}, True
    while running or (waiting and passed):
        while waiting and passed and len(running) < 2:
            target, out = waiting.pop(0), tempfile.TemporaryFile() if len(step) > 1 else None
            print(f"== {target} begins", flush=True)
            running[begin(command(target, mode), out)] = target, out, time.monotonic()
        process, status, usage = os.wait4(-1, 0)
        target, out, since = running.pop(process)
        spent.append(Spent(target, time.monotonic() - since, usage.ru_utime + usage.ru_stime, status == 0))
        passed = passed and status == 0
        if out:
            out.seek(0)
            print(f"== {target} said", out.read().decode(errors="replace"), sep="\n", end="", flush=True)
            out.close()
        print(f"== {target} {'has passed' if status == 0 else 'FAILED'}", flush=True)
    return passed


def table(spent: Sequence[Spent], tests: Sequence[dict[str, Any]], clock: float) -> str:
    """What took how long, in seconds: each target, and of all tests the slowest; and which tests ran twice, and why."""
    lines = [f"{'':<24} {'clock':>8} {'processor':>10}"]
    for each in spent:
        lines.append(f"{each.target:<24} {each.clock:8.0f} {each.processor:10.0f}{'' if each.passed else '   FAILED'}")
    lines += [f"{'in all':<24} {clock:8.0f} {sum(each.processor for each in spent):10.0f}", ""]
    lines += [f"The {SLOWEST} slowest tests, by the clock:"]
    for test in sorted(tests, key=lambda test: -test["seconds"])[:SLOWEST]:
        lines.append(f"{test['seconds']:8.1f} {test['test']}")
    again = [test for test in tests if test["rerun"]]
    lines += ["", "Tests that ran twice:" if again else "No test ran twice."]
    lines += [f"  {test['test']}: {test['rerun']}" for test in again]
    return "\n".join(lines)


def now() -> str:
    """The trees that .ci/changed compares; "" where they are not committed."""
    return subprocess.run([CHANGED, "--now"], cwd=TOP, capture_output=True, text=True).stdout


def main(words: Sequence[str]) -> int:
    """Run the targets, and print what they took."""
    flags = [word for word in words if word.startswith("-")]
    chosen = [word for word in words if word not in flags]
    if len(flags) > 1 or not {*flags} <= {"--some", "--engines", "--everything"}:
        print(__doc__, file=sys.stderr)
        return 2
    before = now()
    mode = (flags or [subprocess.run([CHANGED], cwd=TOP, stdout=subprocess.PIPE, text=True, check=True).stdout])[0]
    mode = mode.strip().removeprefix("--")
    spent: list[Spent] = []
    passed, since = False, time.monotonic()
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as record:
        os.environ["HEADCOUNT_CI_RECORD"] = record.name
        try:
            if not chosen:
                subprocess.run([TOP / ".ci" / "install"], check=True)
            passed = all(run_step(step, mode, spent) for step in ([[target] for target in chosen] or STEPS))
        finally:
            tests = [json.loads(line) for line in Path(record.name).read_text().splitlines()]
            print(f"\nSeconds of this run ({mode}):\n{table(spent, tests, time.monotonic() - since)}", flush=True)
    if passed and mode == "everything" and not chosen and before and before == now():
        PASSED.write_text(before)
        print(f"{PASSED.relative_to(TOP)} says so now: commit it")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
