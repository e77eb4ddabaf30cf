"""A bound for one total: how many events of a user count at most, so that few users are above it and the noise stays small.

The exponential mechanism on the number of users above a bound C, with a public weight C^-3 on the candidates:

    P(C) is proportional to C^-3 exp(-epsilon #{users with more than C events}).

Guarantee: epsilon-differential privacy of the choice, delta 0, for either relation. Proof: docs/proofs/bound-choice.md.

The choices for a histogram do not do for a single number. By rank (`l1_quantile`), all bounds beyond the largest user are as
good as each other, up to a million, and the generalised mechanism takes one of those with a chance of some percent. With the
weight, a bound of ten times as much must leave 3 ln 10 / epsilon fewer users above it. The exponent is 3 so that the mean
squared noise of a choice among ever larger bounds stays finite.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.choice.exponential import em_exponents, log_weight
from headcount.mechanisms.choice.norm_bins import NormChoice, in_bins, tails

WEIGHTS = tuple(log_weight(bound, tuning.LARGE_BOUND_PENALTY) for bound in tuning.BOUNDS_OF_TOTAL)


@dataclasses.dataclass(frozen=True)
class TotalChoice(NormChoice):
    """The bound of one total with Laplace noise."""

    budget: Budget
    release_budget: Budget
    relation: Relation

    name = "tail-count"
    grid = tuning.BOUNDS_OF_TOTAL
    noise = "laplace"

    def user_table(self, shard: Shard) -> list[int]:
        """The users in each bin by their events; only how many are above a bound matters."""
        return in_bins(self.grid, np.searchsorted(self.grid, shard.totals()))

    def exponents(self, table: Sequence[int]) -> list[Fraction]:
        """The exponents of the bounds: each is chosen with a probability proportional to exp(-exponent)."""
        losses = em_exponents(tails(table), 1, self.budget.epsilon_fraction)
        return [loss + weight for loss, weight in zip(losses, WEIGHTS, strict=True)]

    def parameters(self) -> Mapping[str, Any]:
        """What defines the choice, in canonical form."""
        return {"method": self.name, "grid": self.grid, "weights": WEIGHTS}
