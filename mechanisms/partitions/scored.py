"""What each candidate for naming items would be worth, as the loss of a private choice.

For a candidate with K items per user and median t, let H be the weight that an item is expected to have in one round. A user of
d distinct items keeps each with probability min(1, K/d), and so adds to the H of each of them

    f = min(1, K/d) / min(d, K)^(1/4)       for curves:                                  together at most K^(3/4)
    f = min(1, K/d) / sqrt(min(d, K))       where noise is for weights, of threshold t:  together at most sqrt(K)
    f = min(1, K/d)                         where noise is for counts of one:            together min(d, K)

The loss is minus the sum of V = clip(H/t - 1/2, 0, 5/4) over all items, which is about the number of names. (For noise for
weights V is H/t less the first quarter, up to 2.) A candidate in rounds has 3/8 max(O/t - 7/4, 0) more, since items that are
named early leave room for others; noise has 1/4 max(O/t - 2, 0). O is the sum like H of what users of other items have.

Guarantee: one user more lowers the loss by at most 1/t of what is written at the right above, its sensitivity, and raises none;
replacing a user is the difference of two such moves. Proof: docs/proofs/partitions.md, "Which curve".
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.choice.base import ExponentialChoice
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.partitions.candidates import THRESHOLD_BITS, StrategyCandidate
from headcount.mechanisms.partitions.expected_weights import FRACTION_BITS, ItemWeights, merged_weights, split_weights
from headcount.mechanisms.partitions.select import ChosenStrategy

_NARROW = 1 << 58  # sums and thresholds below this, in units of 2**-40, are compared in 64 bits


@dataclasses.dataclass(frozen=True)
class PartitionChoice(ExponentialChoice[ChosenStrategy]):
    """The losses of public candidates, for a release of which it is a part; that has `release_budget` as a whole."""

    budget: Budget
    release_budget: Budget
    relation: Relation
    candidates: tuple[StrategyCandidate, ...]

    name = "partitions"
    by_item = True

    def __post_init__(self) -> None:
        weighed = {candidate.strategy == "law" for candidate in self.candidates if candidate.items > 1}
        if len(weighed) > 1:
            raise ParameterError(
                "curves and noise weigh items differently: a choice is among curves, or without any, but for ways of one item"
            )

    @property
    def outcomes(self) -> Sequence[ChosenStrategy]:
        """What can be chosen."""
        return [candidate.chosen for candidate in self.candidates]

    @property
    def by_curve(self) -> bool:
        """Whether there are curves among the candidates."""
        return any(candidate.strategy == "law" for candidate in self.candidates)

    @property
    def candidate_grid(self) -> tuple[int, ...]:
        """The numbers of items per user among the candidates, ascending."""
        return tuple(sorted({candidate.items for candidate in self.candidates}))

    def item_chunks(self, shard: Shard, shards: int) -> Iterator[tuple[int, bytes]]:
        """What the users of a shard add to their items, by item shard."""
        return split_weights(shard, shards)

    def item_table(self, chunks: Iterable[bytes]) -> list[int]:
        """Minus the loss of each candidate over the items of one shard, in `unit`s."""
        steps = [self.candidate_grid.index(candidate.items) for candidate in self.candidates]
        # An item of n users has sums of at most n, and adds nothing where these are below the start of every candidate.
        least = -(-min(each.shape.start * each.threshold for each in self.candidates) // (8 << THRESHOLD_BITS))
        table = [0] * self.entries
        for sums in merged_weights(chunks, self.candidate_grid, least, self.by_curve):
            for number, (step, candidate) in enumerate(zip(steps, self.candidates, strict=True)):
                table[number] += _worth(candidate, sums, step)
        return table

    def unit(self, candidate: StrategyCandidate) -> Fraction:
        """What one stands for in the table."""
        return candidate.worth / (8 * candidate.threshold << FRACTION_BITS)

    @functools.cached_property
    def units(self) -> list[Fraction]:
        """The same of each candidate."""
        return [self.unit(candidate) for candidate in self.candidates]

    def sensitivity(self, candidate: StrategyCandidate) -> Fraction:
        """By how much one user can change the loss."""
        return candidate.worth * candidate.weight_of_all(THRESHOLD_BITS)[1] / candidate.threshold

    @functools.cached_property
    def sensitivities(self) -> list[Fraction]:
        """The same of each candidate."""
        return [self.sensitivity(candidate) for candidate in self.candidates]

    def losses(self, table: Sequence[int]) -> list[Fraction]:
        """The loss of each candidate."""
        return [-score * unit for score, unit in zip(table, self.units, strict=True)]

    def ends(self) -> tuple[ChosenStrategy, ChosenStrategy]:
        """The choices with the fewest and the most items per user."""
        ranked = sorted(self.candidates, key=lambda candidate: (candidate.items, candidate.weighed))
        return ranked[0].chosen, ranked[-1].chosen

    def parameters(self) -> Mapping[str, Any]:
        """What defines the choice, in canonical form."""
        told = [[c.strategy, c.items, c.threshold, str(c.worth)] for c in self.candidates]
        return {
            "candidates": [
                [*each, c.rounds] if c.rounds else each for each, c in zip(told, self.candidates, strict=True)
            ]
        }

    def details(self) -> Mapping[str, str | int | float]:
        """What a reader of the guarantee should know of it."""
        return {
            "strategies": ", ".join(sorted({candidate.strategy for candidate in self.candidates})),
            "items per user": f"{self.candidate_grid[0]} to {self.candidate_grid[-1]}",
            "candidates": self.entries,
        }


def _worth(candidate: StrategyCandidate, sums: ItemWeights, step: int) -> int:
    """What the items are worth together, in eighths of 2**-40: the sum of clip(8H - 2t, 0, 14t), and 2 of the rest in rounds;
    or for curves of clip(8H - 4t, 0, 10t), and 3.

    H = below + slope * beyond: users up to the step count as they are, or by their roots. Of those beyond, each item is kept
    with probability K/d and then counts 1, or 1/sqrt(K), so that the share 1/d is multiplied by K, or by sqrt(K).
    """
    beyond = sums.shares[:, -1] - sums.shares[:, step]
    below = sums.roots[:, step] if candidate.weighed else sums.users[:, step] << FRACTION_BITS
    slope = candidate.weight_of_all(THRESHOLD_BITS)[0]
    t = candidate.threshold << FRACTION_BITS
    # Floats tell what is far below, and what needs Python's integers; all else is computed exactly.
    about = below * 2.0**THRESHOLD_BITS + beyond * float(slope)
    shape = candidate.shape
    near = about > (shape.start - 0.1) / 8 * t
    narrow = (about < _NARROW) & (t < _NARROW)
    whole = 0
    for rows, kind in ((near & narrow, np.int64), (near & ~narrow, object)):
        low, high, others = (column[rows].astype(kind) for column in (below, beyond, sums.others[:, step]))
        held = (low << THRESHOLD_BITS) + high * slope
        worth = np.clip(8 * held - shape.start * t, 0, (shape.end - shape.start) * t)
        if candidate.in_rounds:
            worth += shape.back * np.maximum((others << THRESHOLD_BITS) + high * slope - shape.end * t // 8, 0)
        # In two halves, since a sum over items does not fit 64 bits.
        whole += (int((worth >> 32).sum()) << 32) + int((worth & 0xFFFFFFFF).sum())
    return whole
