"""What changed between releases: every row between each two that follow each other, and between the first and the last.

A change is real where the intervals of both releases say so, at one rate of false alarms over all rows, numbers and pairs of
releases together (`mechanisms.calibration.differences`). A row that a release does not show is no 0, and no change is told of.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from headcount.mechanisms.calibration.differences import Differences, differences, holm
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.pipelines.over_time.kind import Side, check_one_kind
from headcount.pipelines.over_time.numbers import Panel, numbers_of, panel

ROSE, FELL, NOISE, HIDDEN, UNTESTED = "rose", "fell", "within the noise", "not shown", "not tested"
FALSE_ALARMS = 0.05
_MOST_FALSE_ALARMS = 0.5


@dataclasses.dataclass(frozen=True)
class Change:
    """One number of one row in two releases: `before` and `after` are value, low and high there, None where it is not shown.

    `least_rate` is the least rate of false alarms at which the change would be called real, None where it is not tested.
    """

    row: tuple[Any, ...]
    number: str
    first: str
    second: str
    before: tuple[float, float, float] | None
    after: tuple[float, float, float] | None
    ends: tuple[float, float] | None
    verdict: str
    least_rate: float | None
    why: str = ""

    @property
    def is_real(self) -> bool:
        """Whether it is more than noise."""
        return self.verdict in (ROSE, FELL)

    @property
    def change(self) -> float | None:
        """After less before."""
        return None if self.before is None or self.after is None else self.after[0] - self.before[0]


@dataclasses.dataclass(frozen=True)
class Block:
    """One number in two releases: what was found of the rows that were tested, and why others were not."""

    panel: Panel
    before: int
    after: int
    tested: np.ndarray  # the places of rows
    found: Differences
    untested: dict[int, str]
    rate: np.ndarray  # the least one, of the rows that were tested

    def changes(self, false_alarms: float) -> Iterator[Change]:
        """Every row that one of the two releases shows."""
        place = {int(row): k for k, row in enumerate(self.tested)}
        first, second = (self.panel.sides[at].name for at in (self.before, self.after))
        for row, name in enumerate(self.panel.names):
            before, after = (self._at(at, row) for at in (self.before, self.after))
            if before is None and after is None:
                continue
            k, ends, verdict, rate, why = place.get(row), None, UNTESTED, None, self.untested.get(row, "")
            if before is None or after is None:
                verdict, why = HIDDEN, self._hidden(self.before if before is None else self.after)
            elif k is not None:
                ends, rate = (float(self.found.low[k]), float(self.found.high[k])), float(self.rate[k])
                risen = after[0] + after[1] + after[2] > before[0] + before[1] + before[2]
                verdict = NOISE if rate > false_alarms else ROSE if risen else FELL
            yield Change(name, self.panel.number.name, first, second, before, after, ends, verdict, rate, why)

    def _at(self, at: int, row: int) -> tuple[float, float, float] | None:
        found = tuple(float(part[at][row]) for part in (self.panel.value, self.panel.low, self.panel.high))
        return None if math.isnan(found[0]) else (found[0], found[1], found[2])

    def _hidden(self, at: int) -> str:
        side = self.panel.sides[at]
        needed = side.report.get("users_needed")
        many = f": it takes about {needed:,} users there to be shown" if isinstance(needed, int) else ""
        return f"{side.name} does not show the row, which is no 0{many}"


@dataclasses.dataclass(frozen=True)
class Found:
    """All changes, over which one rate of false alarms holds, and what is to be said of the releases."""

    sides: Sequence[Side]
    panels: Sequence[Panel]
    blocks: Sequence[Block]
    false_alarms: float
    notes: Sequence[str]

    @property
    def tested(self) -> int:
        """How many changes were tested."""
        return sum(len(block.tested) for block in self.blocks)

    def changes(self) -> Iterator[Change]:
        """All changes, pair by pair."""
        for block in self.blocks:
            yield from block.changes(self.false_alarms)


def find_changes(sides: Sequence[Side], metric: Sequence[str] | None, false_alarms: float) -> Found:
    """The changes between releases of one kind, in their order; refuses others."""
    check_rate(false_alarms)
    if len(sides) < 2:
        raise ParameterError(f"two releases or more are needed to see a change, got {len(sides)}")
    notes = check_one_kind(sides)
    panels = [panel(sides, number) for number in numbers_of(sides, metric)]
    if not panels:
        raise InputError(f"the rows of {sides[0].place!r} have no numbers with intervals")
    last = len(sides) - 1
    pairs = [(k, k + 1) for k in range(last)] + ([(0, last)] if last > 1 else [])
    blocks = [_block(each, *pair) for each in panels for pair in pairs]
    if not any(len(block.tested) or block.untested for block in blocks):
        raise InputError(
            "no row is in two of these releases, so there is nothing to put side by side: their keys are others, such as the "
            "days of other weeks, or nothing came out"
        )
    rates = holm(np.concatenate([block.found.p for block in blocks]))
    ends = np.cumsum([len(block.tested) for block in blocks])[:-1]
    made = [dataclasses.replace(block, rate=rate) for block, rate in zip(blocks, np.split(rates, ends), strict=True)]
    return Found(sides, panels, made, false_alarms, [*notes, *_cautions(panels)])


def check_rate(false_alarms: float) -> None:
    """Refuse what is no rate of false alarms."""
    if not 0 < false_alarms <= _MOST_FALSE_ALARMS:
        raise ParameterError(
            f"--false-alarms must be above 0 and at most {_MOST_FALSE_ALARMS}, got {false_alarms:g}", "false_alarms"
        )


def _block(panel: Panel, before: int, after: int) -> Block:
    both = panel.shown(before) & panel.shown(after)
    known = both & ~np.isnan(panel.low[[before, after]] + panel.high[[before, after]]).any(axis=0)
    unlike = panel.number.untested or panel.unlike(before, after)
    untested = {int(row): "its range has no ends" for row in np.flatnonzero(both & ~known)}
    if unlike:
        untested |= {int(row): unlike for row in np.flatnonzero(both)}
        known = np.zeros(len(both), dtype=bool)
    a, b = panel.bound[before], panel.bound[after]
    for row in np.flatnonzero(known & ~np.isnan(a + b) & (a != b)):
        untested[int(row)] = f"at most {a[row]:,.0f} of one user count before and {b[row]:,.0f} after"
        known[row] = False
    tested = np.flatnonzero(known)
    normal = panel.sides[before].is_normal and panel.sides[after].is_normal
    found = differences(panel.numbers(before, tested), panel.numbers(after, tested), normal)
    return Block(panel, before, after, tested, found, untested, np.ones(len(tested)))


def _cautions(panels: Sequence[Panel]) -> list[str]:
    """What a reader must know of numbers whose ranges are those of the noise alone, where limits on users may differ."""
    command = panels[0].sides[0].report["command"]
    sampled = [each.number.name for each in panels if each.number.ratio] if command == "aggregate" else []
    told = []
    if sampled:
        told.append(
            f"{', '.join(sampled)}: of a sample of each user's rows; which rows those are is no part of the ranges"
        )
    bounded = [each.number.name for each in panels if each.number.name.startswith("bounded_")]
    if bounded:
        told.append(f"{', '.join(bounded)}: of what a limit on each user leaves; a change is one of that")
    return told
