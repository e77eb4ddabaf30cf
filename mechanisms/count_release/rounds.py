"""The rounds of a private count release: draw an item, measure its count, and go on while the budget lasts.

`count_release` has the guarantee and its proof; here is the loop, which pays for everything before it looks at the data.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.accounting.filters import ZcdpFilter, rounded_up
from headcount.mechanisms.choice.exponential import select_by_excess
from headcount.mechanisms.count_release.frames import Frame, draw_excess
from headcount.mechanisms.counting.released import normal_counts_batch
from headcount.mechanisms.randomness.lane_ids import decision_lane_ids
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.noise import discrete_gaussian
from headcount.mechanisms.randomness.subkeys import block_key, lane_key


@dataclasses.dataclass(frozen=True)
class Level:
    """The numbers of all rounds with the same epsilon: T, the stddev of a count in users, and what they cost.

    `measured` are the stddevs of the measurements that a count is the mean of: one, unless noise is reduced step by step.
    """

    epsilon: Fraction
    threshold: Fraction
    sigma: Fraction
    measured: tuple[Fraction, ...]
    draw_rho: Fraction
    delta: Fraction

    @functools.cached_property
    def count_rho(self) -> Fraction:
        """The cost of all measurements of one count: its real cost, or with fewer of them more than that."""
        return sum(map(noise_rho, self.measured), Fraction(0))

    @property
    def rho(self) -> Fraction:
        """The cost of one round at most: a draw, and all measurements of the item that it finds."""
        return self.draw_rho + self.count_rho


class LevelSpent(NamedTuple):
    """What the rounds of one level came to. All of it is public."""

    epsilon: float
    threshold: float
    sigma: float
    rounds: int
    items: int
    rho: float
    delta: float


class Target(NamedTuple):
    """When a count is exact enough: at `deviations` standard deviations the error is `relative_error` of it.

    `most` is what one user adds to a sum at most: noise is in units of it.
    """

    relative_error: Fraction
    deviations: Fraction
    most: int

    def met(self, mean: Fraction, precision: Fraction) -> bool:
        """Whether a noisy sum of this precision, in units of `most`, needs no more of it."""
        return mean > 0 and (self.relative_error * mean) ** 2 * precision >= (self.deviations * self.most) ** 2


class _Pending(NamedTuple):
    """A row that was drawn and is still to be measured, with a lane for each measurement."""

    row: int
    lanes: np.ndarray


class Rounds:
    """All rounds on one frame, level by level."""

    def __init__(self, frame: Frame, subkey: bytes, budget: ZcdpFilter, target: Target) -> None:
        self._frame, self._budget, self._target = frame, budget, target
        self._lanes = _RoundLanes(subkey, frame)
        self._alive = np.arange(len(frame.items))
        self._rows: list[int] = []
        self._means: list[float] = []
        self._deviations: list[float] = []

    def run(self, level: Level) -> LevelSpent | None:
        """The rounds at one level, until a draw finds nothing or no further one fits; None if not even one does.

        Items are drawn for as long as the budget has room for all measurements of all of them, and then measured together;
        if that took less than was reserved, there may be room for more.
        """
        before, items, rounds, bot = self._budget.spent, len(self._rows), 0, False
        while not bot:
            pending: list[_Pending] = []
            while not bot and self._budget.can(level.draw_rho + (len(pending) + 1) * level.count_rho, level.delta):
                rounds += 1
                drawn = self._draw(level)
                bot = drawn is None
                pending += [drawn] if drawn is not None else []
            self._measure(pending, level)
            if not pending:
                break
        if rounds == 0:
            return None
        rho, delta = (float(now - then) for now, then in zip(self._budget.spent, before, strict=True))
        epsilon, far, sigma = map(float, (level.epsilon, level.threshold, level.sigma))
        return LevelSpent(epsilon, far, sigma, rounds, len(self._rows) - items, rho, delta)

    def counts(self) -> pa.RecordBatch:
        """The released rows item, bounded_count, noise_stddev, low, high, sorted by item."""
        items = self._frame.items.take(pa.array(self._rows, pa.int64()))
        counts = normal_counts_batch(items, np.array(self._means, float), np.array(self._deviations, float))
        return counts.take(pc.sort_indices(counts.column("item")))

    def _draw(self, level: Level) -> _Pending | None:
        """One draw from the rows that are left; None for bot."""
        self._budget.spend(level.draw_rho, level.delta, "draw")
        users = self._frame.users[self._alive]
        lane = self._lanes.next_round(level)
        place = select_by_excess(*draw_excess(users, self._frame.base, level.epsilon, level.threshold), lane)
        if place == len(users):
            self._lanes.advance(-1)
            return None
        row = int(self._alive[place])
        self._alive = np.delete(self._alive, place)
        self._lanes.advance(row)
        return _Pending(row, self._lanes.measurements(level))

    def _measure(self, pending: list[_Pending], level: Level) -> None:
        """Measures the sums of the rows, again and again with those whose mean is not exact enough.

        A mean is weighted by the precisions. All measurements were reserved, and are spent on before each.
        """
        totals, precision = dict.fromkeys(range(len(pending)), Fraction(0)), Fraction(0)
        for number, sigma in enumerate(level.measured):
            if not totals:
                break
            for _ in totals:
                self._budget.spend(noise_rho(sigma), Fraction(0), "count")
            ids = np.array([pending[k].lanes[number] for k in totals], dtype=np.uint64).reshape(-1, 2)
            noise = discrete_gaussian(self._lanes.of(ids), sigma * self._target.most)
            weight = 1 / sigma**2
            precision += weight
            last = number + 1 == len(level.measured)
            for k, drawn in zip(list(totals), noise.tolist(), strict=True):
                totals[k] += (int(self._frame.values[pending[k].row]) + drawn) * weight
                if last or self._target.met(totals[k] / precision, precision):
                    self._rows.append(pending[k].row)
                    self._means.append(float(totals.pop(k) / precision))
                    self._deviations.append(self._target.most / math.sqrt(precision))


class _RoundLanes:
    """One lane for every draw of a loop: no two of them share their bits.

    A lane's identity is the number of the round, the kind and number of the draw in it, its run-time parameters, and a
    running digest of the frame, the base and all that was drawn so far. The block key depends on the frame, too.
    """

    def __init__(self, subkey: bytes, frame: Frame) -> None:
        self._lane_key = lane_key(subkey)
        self._drawn = frame.digest(self._lane_key)
        self._block_key = block_key(subkey, self._drawn)
        self._round = 0

    def next_round(self, level: Level) -> Lanes:
        """The lane of the next round's draw."""
        self._round += 1
        return self.of(self._ids("draw", 1, level.epsilon, level.threshold))

    def measurements(self, level: Level) -> np.ndarray:
        """The lanes of all measurements of what this round has drawn, numbered."""
        return self._ids("count", len(level.measured), level.epsilon, level.threshold, *level.measured)

    def advance(self, row: int) -> None:
        """A row of the frame was drawn, or -1 for none."""
        said = self._drawn + row.to_bytes(8, "little", signed=True)
        self._drawn = hashlib.blake2b(said, key=self._lane_key, digest_size=32, person=b"headcount.drawn").digest()

    def of(self, ids: np.ndarray) -> Lanes:
        """Lanes to draw from."""
        return Lanes(self._block_key, ids)

    def _ids(self, kind: str, draws: int, *parameters: Fraction) -> np.ndarray:
        identity = json.dumps([self._round, kind, *map(str, parameters)]).encode()
        return decision_lane_ids(self._lane_key, self._drawn + identity, draws)


@functools.cache
def noise_rho(sigma: Fraction) -> Fraction:
    """The cost of a count with discrete Gaussian noise of this stddev, in units of what one user adds to it at most.

    As the filter rounds it, so that what is reserved for several is enough.
    """
    return rounded_up(1 / (2 * sigma**2))
