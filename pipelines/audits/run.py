"""Runs audits: many releases of each case, on all cores, and what they show."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.randomness.keys import KeySource
from headcount.pipelines.audits.bugs import BUGS
from headcount.pipelines.audits.cases import CASES, Case
from headcount.pipelines.audits.evidence import Found, Scores, found
from headcount.pipelines.spawned import spawned

_AT_ONCE = 500  # releases of one task, for which a case is read and planned once


@dataclasses.dataclass(frozen=True)
class Asked:
    """One line of an audit: a case, with a bug put in or none."""

    name: str
    case: Case
    bug: str | None = None


@dataclasses.dataclass(frozen=True)
class Audited:
    """What was stated of a case, in whole and of what was looked at, and what was found."""

    asked: Asked
    stated: Budget
    claimed: float
    found: Found

    @property
    def exceeds(self) -> bool:
        """Whether what is stated is refuted."""
        return self.found.shown > self.claimed

    @property
    def share(self) -> float:
        """What was found in parts of what is stated."""
        return self.found.shown / (self.stated.delta if self.asked.case.by == "delta" else self.stated.epsilon)

    def values(self) -> dict[str, object]:
        """The same for a program."""
        case, seen = self.asked.case, self.found.seen
        return {
            "case": self.asked.name,
            "bug": self.asked.bug,
            "command": case.command,
            "epsilon": self.stated.epsilon,
            "delta": self.stated.delta,
            "by": case.by,
            "found": self.found.shown,
            "share": self.share,
            "refuted": self.exceeds,
            "most": case.most,
            "why": case.why,
            "seen": [seen.more, seen.less],
            "runs": seen.runs,
        }


def of_cases(names: Sequence[str]) -> list[Asked]:
    """All cases, or those of these commands."""
    return [Asked(name, case) for name, case in CASES.items() if not names or case.command in names]


def of_bugs(names: Sequence[str]) -> list[Asked]:
    """The cases that see these bugs, with each put in."""
    return [Asked(BUGS[name].case, CASES[BUGS[name].case], name) for name in names]


def audit(
    asked: Sequence[Asked],
    runs: int | None,
    confidence: float,
    source: KeySource,
    *,
    processes: int | None = None,
    told: Callable[[Audited], None] = lambda audited: None,
) -> list[Audited]:
    """Each line by so many releases on both neighbours, or by as many as its case says. With the confidence, all lower bounds
    hold at once."""
    of_one = 1 - (1 - confidence) / len(asked)
    lines = [(each, _tasks(each, source, runs or each.case.runs)) for each in asked]
    done = []
    with contextlib.ExitStack() as stack:
        waiting: Iterator[Iterable[Scores]] = ((_scores(*task) for task in tasks) for _, tasks in lines)
        if processes != 1:
            pool = stack.enter_context(spawned(processes or os.cpu_count() or 1))
            waiting = iter([pool.map(_scores, *zip(*tasks, strict=True)) for _, tasks in lines])
        for (each, _), outcomes in zip(lines, waiting, strict=True):
            scores = list(outcomes)
            without, with_one = (np.concatenate(scores[first::2]) for first in (0, 1))
            with _put_in(each.bug):
                made = each.case.prepared(False)
                stated, claim = made.stated(), made.claim()
            done.append(Audited(each, stated, claim.most, found(without, with_one, claim, of_one)))
            told(done[-1])
    return done


def _tasks(asked: Asked, source: KeySource, runs: int) -> list[tuple[Asked, bool, KeySource, int, int]]:
    """The releases of a line, some at once: first without the user, then with, and so on."""
    starts = range(0, runs, _AT_ONCE)
    return [
        (asked, with_one, source, start, min(_AT_ONCE, runs - start)) for start in starts for with_one in (False, True)
    ]


def _scores(asked: Asked, with_one: bool, source: KeySource, start: int, number: int) -> Scores:
    """The numbers of some releases on one of the neighbours."""
    with _put_in(asked.bug):
        made = asked.case.prepared(with_one)
        return np.array([made.score(source, f"{with_one:d}-{start + k}") for k in range(number)])


def _put_in(bug: str | None) -> contextlib.AbstractContextManager[object]:
    return contextlib.nullcontext() if bug is None else BUGS[bug].put_in()
