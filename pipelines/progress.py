"""How far a local run is, for the operator's terminal alone: the step, what of it is done, and about how long the rest takes.

The counters are exact and of this process, so they show nothing of workers elsewhere. They are unprotected
statistics of the data: they are printed on a terminal and go nowhere else.

What is left is an estimate. A job is a list of steps, of which those that read files or look at users' data take most of the
time; `weights` says how much, in rough numbers from runs on synthetic logs. The pace comes from this very run, and a step that
can tell which part of it is done is taken at its word.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TextIO

#: What the labels of transforms that read the rows of files begin with.
READING = "Read/Batches"

_INTERVAL = 0.5
_CLEAR = "\r\x1b[K"
_NOTEBOOK = "JPY_PARENT_PID"  # what Jupyter tells the kernels that it starts, and they all that they start
# Of the time of a run: reading all rows, the first look at all users, another one, and anything else.
_READING, _FIRST_LOOK, _LOOK, _OTHER = 10.0, 4.5, 1.0, 0.2
_KNOWN_FROM = 0.04  # of a run: before that nothing is said of the rest
_ROUGH = 10  # seconds, from which on what is left is told in steps of five


class Step(NamedTuple):
    """One stage of a pipeline: the labels of its transforms, and the collections that it reads and writes."""

    name: str
    labels: tuple[str, ...] = ()
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()

    @property
    def is_reading(self) -> bool:
        """Whether it reads the rows of files."""
        return any(label.startswith(READING) for label in self.labels)

    @property
    def description(self) -> str:
        """What it does: "choose names" for Histogram/ChooseNames/Tabulate."""
        if self.is_reading:
            return "reading"
        paths = [label.split("/") for label in self.labels if not label.startswith("ref_")]
        names = [path[:2][-1] for path in paths if not {"Read", "Write", "Impulse"} & {*path}]
        words = re.findall(r"[A-Z]?[a-z]+|[0-9]+", re.sub(r"\(.*", "", names[-1])) if names else []
        return " ".join(words).lower() or "counting"


def weights(steps: Sequence[Step]) -> list[float]:
    """About which part of the time each step takes, of all of them in their order."""
    of_users: set[str] = set()  # collections with the data of all users
    found = []
    for step in steps:
        first = any(read.startswith("group:") and "UserShards" in read for read in step.reads)
        again = bool(step.reads & of_users)
        if first or again:
            of_users |= {write for write in step.writes if write.startswith("materialize:")}
        found.append(_READING if step.is_reading else _FIRST_LOOK if first else _LOOK if again else _OTHER)
    return found


def time_left(
    weights: Sequence[float], spent: Sequence[float], current: int, running: float, part: float | None
) -> float | None:
    """About how many seconds the rest of a run takes; None while too little of it is known.

    `spent` are the seconds of each step that has ended, `running` those of the current one so far, and `part` how much of it is
    done, if it can tell.
    """
    ended = [k for k, seconds in enumerate(spent) if seconds > 0 and k != current]
    time_, bought = sum(spent[k] for k in ended), sum(weights[k] for k in ended)
    if part:
        time_, bought = time_ + running, bought + weights[current] * part
    if bought < _KNOWN_FROM * sum(weights) or time_ <= 0:
        return None
    pace = time_ / bought
    here = running * (1 - part) / part if part else max(weights[current] * pace - running, 0.0)
    return here + pace * sum(weights[k] for k in range(len(weights)) if k != current and k not in ended)


class Seen(NamedTuple):
    """A look at a run: what a line tells."""

    rows: int = 0
    expected: int | None = None  # rows, about
    reading: float = 0.0  # seconds
    elapsed: float = 0.0
    step: str = "starting"
    number: int = 0  # of the step, from 1
    steps: int = 0
    parts: tuple[int, int] | None = None  # of the step: done, all
    left: float | None = None


def line(seen: Seen) -> str:
    """The progress as one line."""
    if seen.rows and seen.step in ("starting", "reading"):
        share = f" {min(seen.rows / seen.expected, 1):.0%} of about" if seen.expected else ""
        rate = f", {seen.rows / seen.reading:,.0f}/s" if seen.reading > 0 else ""
        doing = f"reading{share} {seen.expected or seen.rows:,} rows{rate}"
    elif seen.number:
        parts = f": {seen.parts[0]:,} of {seen.parts[1]:,} parts" if seen.parts and seen.parts[1] > 1 else ""
        doing = f"step {seen.number} of {seen.steps}, {seen.step}{parts}"
    else:
        doing = seen.step
    return f"{doing}, {minutes(seen.elapsed)}{_left(seen.left)}"


def minutes(seconds: float) -> str:
    """A time as people read it: 1:05."""
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    clock = f"{rest // 60}:{rest % 60:02d}"
    return f"{hours}:{clock:0>5}" if hours else clock


def summary(rows: int, elapsed: float) -> str:
    """The whole run as one line."""
    return f"{rows:,} rows in {elapsed:.1f} s, {rows / max(elapsed, 1e-9):,.0f} rows/s"


def _left(left: float | None) -> str:
    if left is None:
        return ""
    if left < 1:
        return ", nearly done"
    return f", about {minutes(left if left < _ROUGH else 5 * round(left / 5))} left"


class _Run:
    """What is known of the run of this process."""

    def __init__(self) -> None:
        self.rows = self.counted = 0  # read, and of these those that are not of the last batch
        self.steps: list[Step] = []
        self.weights: list[float] = []
        self.spent: list[float] = []
        self.current: int | None = None
        self.parts: int | None = None
        self.begun_parts: Callable[[], int | None] = lambda: None
        self.started = self.last_row = self.since = time.monotonic()

    def seen(self, expected: int | None) -> Seen:
        """How far it is."""
        now = time.monotonic()
        seen = Seen(self.rows, expected, self.last_row - self.started, now - self.started)
        if self.current is None:
            return seen
        step, running, stale = self.steps[self.current], now - self.since, 0.0
        part: float | None = None
        parts: tuple[int, int] | None = None
        if step.is_reading:
            if expected and self.counted:
                # Rows come in large batches: what is known is of the time of the last one, when those before were through.
                part, running, stale = (
                    min(self.counted / expected, 0.99),
                    self.last_row - self.since,
                    now - self.last_row,
                )
        elif self.parts:
            begun = self.begun_parts()
            if begun is not None and begun > 0:
                parts = (min(begun - 1, self.parts), self.parts)
                part = parts[0] / self.parts or None
        left = time_left(self.weights, self.spent, self.current, running, part)
        left = None if left is None else max(left - stale, 0.0)
        number = self.current + 1
        return seen._replace(step=step.description, number=number, steps=len(self.steps), parts=parts, left=left)


_lock = threading.Lock()
_run = _Run()


def reset() -> None:
    """Start counting anew: a run begins."""
    global _run
    with _lock:
        _run = _Run()


def advance(rows: int) -> None:
    """This number of rows more has been read."""
    with _lock:
        _run.counted, _run.rows = _run.rows, _run.rows + rows
        _run.last_row = time.monotonic()


def planned(steps: Sequence[Step]) -> None:
    """The run has these steps."""
    with _lock:
        _run.steps, _run.weights, _run.spent = [*steps], weights(steps), [0.0] * len(steps)


def begins(name: str, parts: int | None, begun: Callable[[], int | None]) -> None:
    """The step of this name begins: it has this number of parts, if that is known, and `begun` tells how many have begun."""
    with _lock:
        _run.current = next((k for k, step in enumerate(_run.steps) if step.name == name), None)
        _run.parts, _run.begun_parts, _run.since = parts, begun, time.monotonic()


def ends() -> None:
    """The current step has ended."""
    with _lock:
        if _run.current is not None:
            _run.spent[_run.current] += max(time.monotonic() - _run.since, 1e-9)
            _run.begun_parts = lambda: None


class Progress:
    """Shows the progress on a terminal while its block runs, and is silent on anything else.

    A line of a notebook (`!headcount ...`) has a terminal too, but what it prints is kept in the notebook, and goes where that
    goes: it is silent there.

    `expected` tells about how many rows there are; it is asked only if somebody sees the answer.
    """

    def __init__(self, stream: TextIO, expected: Callable[[], int | None] = lambda: None) -> None:
        self._stream = stream
        self._shown = stream.isatty() and _NOTEBOOK not in os.environ
        self._expected = expected() if self._shown else None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._show, name="headcount-progress", daemon=True)

    def __enter__(self) -> Progress:
        reset()
        if self._shown:
            self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not self._shown:
            return
        self._end.set()
        self._thread.join()
        self._stream.write(_CLEAR)
        # Other processes of this machine count for themselves: nothing to tell then.
        if error is None and _run.rows:
            self._stream.write(summary(_run.rows, time.monotonic() - _run.started) + "\n")
        self._stream.flush()

    def _show(self) -> None:
        while not self._end.wait(_INTERVAL):
            with _lock:
                text = line(_run.seen(self._expected))
            # A line that is wrapped could not be taken back.
            self._stream.write(_CLEAR + text[: shutil.get_terminal_size().columns - 1])
            self._stream.flush()
