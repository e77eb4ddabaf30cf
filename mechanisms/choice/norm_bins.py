"""The norms of users in bins: all that a choice of a bound for a public domain looks at.

Every user falls into the bin of its norm on a public grid, and the table of the bins, a few hundred numbers, is summed over
all users. A norm counts as rounded up to the grid, so the table alone gives the sums that a choice needs, in integers.
With a cap on one item the norm is that of the capped counts, as the release will see them: still a function of one user's
own rows, and any function of these puts a user into one bin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bounding.clipping import limit_per_item
from headcount.mechanisms.choice.base import ExponentialChoice
from headcount.mechanisms.choice.protocol import ChosenBound


class NormChoice(ExponentialChoice[ChosenBound]):
    """What the choices by norm have in common: a bound on a public grid, and a table of users by their norms."""

    name: str
    grid: tuple[int, ...]
    noise: str
    max_per_item: int | None = None

    @property
    def outcomes(self) -> Sequence[ChosenBound]:
        """The bounds of the grid."""
        return [self.chosen(bound) for bound in self.grid]

    @property
    def entries(self) -> int:
        """The length of the table: a bin for each point of the grid, and one beyond."""
        return len(self.grid) + 1

    def chosen(self, bound: int) -> ChosenBound:
        """This bound as the choice, with the cap and the noise that are given."""
        return ChosenBound(bound, self.max_per_item or 0, self.noise)

    def capped(self, shard: Shard) -> Shard:
        """The users' counts as the release will scale them."""
        return shard if self.max_per_item is None else limit_per_item(shard, self.max_per_item)

    def details(self) -> Mapping[str, str | int | float]:
        """What a reader of the guarantee should know of it."""
        bounds = f"{self.grid[0]} to {self.grid[-1]}"
        cap = {} if self.max_per_item is None else {"cap on one item": self.max_per_item}
        return {"method": self.name, "bounds": bounds, **cap, "candidates": len(self.grid)}


def grid_to(most: int) -> tuple[int, ...]:
    """The grid for norms that never exceed `most`, a public number: a higher bound would keep no more, and cost noise."""
    grid = tuning.NORMS_OF_PUBLIC_DOMAIN
    return (*(point for point in grid if point < most), most) if most < grid[-1] else grid


def enough(budget: Budget, candidates: int) -> float:
    """The error of the exponential mechanism, in units of the sensitivity, except with a small chance."""
    return 2 / budget.epsilon * math.log(candidates / tuning.MISSED_BY_NORM)


def in_bins(grid: Sequence[int], step: np.ndarray, weight: np.ndarray | None = None) -> list[int]:
    """The number, or the integer weight, of the users in each bin; the last one is beyond the grid."""
    if weight is None:
        return [int(n) for n in np.bincount(step, minlength=len(grid) + 1)]
    order = np.argsort(step, kind="stable")
    ends = np.searchsorted(step[order], np.arange(len(grid) + 2))
    sums = np.append(0, np.cumsum(weight[order]))
    return [int(sums[end] - sums[start]) for start, end in zip(ends[:-1], ends[1:], strict=True)]


def tails(table: Sequence[int]) -> list[int]:
    """What lies above each point of the grid."""
    total = sum(table)
    return [total - below for below in accumulate(table[:-1])]


def clipped(grid: Sequence[int], table: Sequence[int]) -> list[int]:
    """The sum of weight * min(C, norm) at each point C of the grid: the area under the tails up to C."""
    widths = np.diff(grid, prepend=0).tolist()
    above = [sum(table), *tails(table)]
    return list(accumulate(width * weight for width, weight in zip(widths, above, strict=False)))
