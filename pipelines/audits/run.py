"""Runs audits: many releases of each case, on all cores, and what they show."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import multiprocessing
import os
from collections.abc import Callable, Sequence

import numpy as np

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.randomness.keys import KeySource
from headcount.pipelines.audits.bugs import BUGS
from headcount.pipelines.audits.cases import CASES, Case
from headcount.pipelines.audits.evidence import Found, Scores, found

_AT_ONCE = 100  # releases of one task


@dataclasses.dataclass(frozen=True)
class Asked:
    """One line of an audit: a case, with a bug put in or none."""

    name: str
    case: Case
    bug: str | None = None


@dataclasses.dataclass(frozen=True)
class Audited:
    """What was stated of a case, and what was found."""

    asked: Asked
    stated: Budget
    found: Found

    @property
    def exceeds(self) -> bool:
        """Whether the stated epsilon is refuted."""
        return self.found.epsilon > self.stated.epsilon

    def values(self) -> dict[str, object]:
        """The same for a program."""
        return {
            "case": self.asked.name,
            "bug": self.asked.bug,
            "command": self.asked.case.command,
            "epsilon": self.stated.epsilon,
            "delta": self.stated.delta,
            "found": self.found.epsilon,
            "seen": list(self.found.seen),
            "runs": self.found.runs,
        }


def of_cases(names: Sequence[str]) -> list[Asked]:
    """All cases, or those of these commands."""
    return [Asked(name, case) for name, case in CASES.items() if not names or case.command in names]


def of_bugs(names: Sequence[str]) -> list[Asked]:
    """The cases that see these bugs, with each put in."""
    return [Asked(BUGS[name].case, CASES[BUGS[name].case], name) for name in names]


def audit(
    asked: Sequence[Asked],
    runs: int,
    confidence: float,
    source: KeySource,
    *,
    processes: int | None = None,
    told: Callable[[Audited], None] = lambda audited: None,
) -> list[Audited]:
    """Each line by so many releases on both neighbours. With the confidence, all lower bounds hold at once."""
    of_one = 1 - (1 - confidence) / len(asked)
    starts = range(0, runs, _AT_ONCE)
    done = []
    with contextlib.ExitStack() as stack:
        run: Callable[..., list[Scores]] = _here
        if processes != 1:
            spawn = multiprocessing.get_context("spawn")  # a fork of a process with threads may wait for ever
            pool = concurrent.futures.ProcessPoolExecutor(processes or os.cpu_count(), spawn)
            run = functools.partial(_in, stack.enter_context(pool))
        for each in asked:
            tasks = [
                (each, with_one, source, start, min(_AT_ONCE, runs - start))
                for with_one in (False, True)
                for start in starts
            ]
            scores = run(tasks)
            without, with_one = np.concatenate(scores[: len(starts)]), np.concatenate(scores[len(starts) :])
            with _put_in(each.bug):
                stated = each.case.prepared(False).stated()
            done.append(Audited(each, stated, found(without, with_one, stated.delta, of_one)))
            told(done[-1])
    return done


def _here(tasks: Sequence[tuple[Asked, bool, KeySource, int, int]]) -> list[Scores]:
    return [_scores(*task) for task in tasks]


def _in(pool: concurrent.futures.Executor, tasks: Sequence[tuple[Asked, bool, KeySource, int, int]]) -> list[Scores]:
    return list(pool.map(_scores, *zip(*tasks, strict=True)))


def _scores(asked: Asked, with_one: bool, source: KeySource, start: int, number: int) -> Scores:
    """The numbers of some releases on one of the neighbours."""
    with _put_in(asked.bug):
        made = asked.case.prepared(with_one)
        return np.array([made.score(source, f"{with_one:d}-{start + k}") for k in range(number)])


def _put_in(bug: str | None) -> contextlib.AbstractContextManager[object]:
    return contextlib.nullcontext() if bug is None else BUGS[bug].put_in()
