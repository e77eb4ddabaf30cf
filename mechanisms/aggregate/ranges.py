"""The private choice of a range that nobody knows: 0 to U, or -U to U, with U out of a public grid, for each column.

The grid is 1, 2, 5, 10, ... from 10^-9 to 10^12, whatever the data are. A small U cuts values, which makes sums too low, and a
large one has noise in proportion to it. The expected error is least where the users whose values are above U are as many as
noise: so U is a quantile, as in the paper of `bound_choice`, of a rank that noise, keys and bounds give, which are public by
then. From an end to the next, a_i is the part of that step that the values of a user reach, in the mean over its rows that
have one, and A_i the sum over users:

    loss(U_i) = max(0, t - A_(i-1), A_i - t),          t = noise + tau,

where tau is the `default_tau`: fewer users than that cannot be told from none, and without it ends beyond all values would be
as good as the best. Values come in whole (`AutoRange`), and are cut and made fixed point by the range that was chosen, and by
nothing else that the data say.

Guarantee: for each column a draw of bounded range, epsilon-differentially private with delta 0, under both relations, for any
ends and any rank. Proof: docs/proofs/aggregate.md, "Ranges that nobody knows".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, sum_up
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.run_sums import run_sums
from headcount.mechanisms.batches.shards import MISSING, MOST_COUNT
from headcount.mechanisms.batches.value_rows import ValueShard
from headcount.mechanisms.choice.base import TableChoice
from headcount.mechanisms.choice.exponential import default_tau, em_exponents, select
from headcount.mechanisms.columns.value_ranges import AutoRange, ChosenRange, ValueRange
from headcount.mechanisms.randomness.lanes import Lanes

_ENDS = np.array([float(end) for end in tuning.RANGE_ENDS])

# The rows of a user weigh this together, less what is rounded off: one less, so that rounded quotients add up to no more.
_WEIGHT = 2**16 - 1

# What a user reaches of a step counts in these parts, rounded down.
_PARTS = 2**10

# Of one user who reaches all of a step, in the table.
_WHOLE = (_WEIGHT + 1) * _PARTS

# Public numbers are in the table in these parts.
_NOISE_PARTS = 2**10

# How much more two losses can move apart by one user.
_SPREAD = 2

# For each column: what users reach of each step, and the noise.
_COLUMN = len(tuning.RANGE_ENDS)


@dataclasses.dataclass(frozen=True)
class ChosenEnds:
    """The ends that were chosen, one for each range that was asked for."""

    ends: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class RangeChoice(TableChoice):
    """The choices of all ranges: of the values at these places, each for a budget of its own."""

    budgets: tuple[Budget, ...]
    release_budget: Budget
    relation: Relation
    ranges: Mapping[int, AutoRange]

    name = "ranges"

    @property
    def budget(self) -> Budget:
        """What all cost, added up."""
        return Budget(sum_up(part.epsilon for part in self.budgets))

    @property
    def users_needed(self) -> int:
        """How many users it takes: fewer than tau do not reach any end, and some more are needed to be told from that."""
        return max(
            math.ceil(3 * default_tau(len(tuning.RANGE_ENDS), part.epsilon_fraction) / 10) * 10 for part in self.budgets
        )

    @property
    def entries(self) -> int:
        """The length of the table."""
        return len(self.ranges) * _COLUMN

    def noise_table(self, noise: Sequence[float]) -> list[int]:
        """The public part of the table: for each column the noise of all keys at U = 1, for each row of a user that counts."""
        return [entry for each in noise for entry in (*([0] * (_COLUMN - 1)), round(each * _NOISE_PARTS))]

    def user_table(self, shard: ValueShard) -> list[int]:
        """What the users of a shard add."""
        starts = shard.starts[shard.pairs.offsets]
        count = np.minimum(shard.count, MOST_COUNT)
        table: list[int] = []
        for place, of in self.ranges.items():
            known = np.where(shard.values[place] == MISSING, 0, count)  # a row without a number has no weight
            rows = np.repeat(run_sums(known, starts[:-1]), np.diff(starts))  # of the user of each row
            weight = (known / np.maximum(rows, 1) * _WEIGHT).astype(np.int64)
            values = np.nan_to_num(of.numbers(shard.values[place]), nan=0.0)
            size = np.minimum(np.abs(values) if of.low < 0 else np.maximum(values, 0.0), _ENDS[-1])
            step = np.clip(np.searchsorted(_ENDS, size) - 1, 0, len(tuning.RANGE_ENDS) - 2)  # the last that is begun
            low, high = _ENDS[step], _ENDS[step + 1]
            parts = np.clip((size - low) / (high - low) * _PARTS, 0, _PARTS).astype(np.int64)
            last, whole = (np.zeros(len(tuning.RANGE_ENDS) - 1, dtype=np.int64) for _ in range(2))
            np.add.at(last, step, weight * parts)
            np.add.at(whole, step, weight)
            beyond = np.append(np.cumsum(whole[::-1])[::-1][1:], 0)  # of those who have gone further
            table += [*(last + beyond * _PARTS).tolist(), 0]
        return table

    def exponents(self, table: Sequence[int]) -> list[list[Fraction]]:
        """The exponents of all ends, for each column."""
        columns = (table[first : first + _COLUMN] for first in range(0, len(table), _COLUMN))
        return [
            em_exponents(_losses(column, part.epsilon_fraction), _SPREAD, part.epsilon_fraction)
            for column, part in zip(columns, self.budgets, strict=True)
        ]

    def choose(self, table: Sequence[int], lanes: Lanes) -> ChosenEnds:
        """The private choice."""
        return ChosenEnds(tuple(float(tuning.RANGE_ENDS[select(each, lanes)]) for each in self.exponents(table)))

    def ends(self) -> tuple[ChosenEnds, ChosenEnds]:
        """The smallest and the largest that can be chosen."""
        ends = tuning.RANGE_ENDS
        first, last = (ChosenEnds((float(end),) * len(self.ranges)) for end in (ends[0], ends[-1]))
        return first, last

    def parameters(self) -> Mapping[str, Any]:
        """What defines the choice, in canonical form."""
        return {
            "ranges": [[place, of.text()] for place, of in self.ranges.items()],
            "ends": [str(end) for end in tuning.RANGE_ENDS],
            "parts": [repr(part.epsilon) for part in self.budgets],
        }

    def details(self) -> Mapping[str, str | int | float]:
        """What a reader of the guarantee should know of it."""
        ends = tuning.RANGE_ENDS
        return {"ends": f"{float(ends[0]):g} to {float(ends[-1]):g}", "candidates": len(ends)}


def _losses(column: Sequence[int], epsilon: Fraction) -> list[Fraction]:
    """The losses of all ends, by the table of one column."""
    target = Fraction(column[-1], _NOISE_PARTS) + default_tau(len(tuning.RANGE_ENDS), epsilon)
    reached = [Fraction(each, _WHOLE) - target for each in column[:-1]]
    nothing = Fraction(0)
    return [
        max(nothing, -before, after) for before, after in zip((nothing, *reached), (*reached, nothing), strict=True)
    ]


def in_range(shard: ValueShard, values: Sequence[ValueRange]) -> ValueShard:
    """The same rows with values within the ranges that were chosen, in fixed point."""
    made = (
        of.from_auto(column) if isinstance(of, ChosenRange) else column
        for of, column in zip(values, shard.values, strict=True)
    )
    return dataclasses.replace(shard, values=tuple(made))
