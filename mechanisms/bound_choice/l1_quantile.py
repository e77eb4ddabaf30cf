"""An l1 bound for a public domain with Laplace noise: a private quantile of the users' norms (the paper, Lemma 4.2).

Let u be 1/epsilon (adding or removing a user) or 2/epsilon (replacing one). With d items and l1 norms m, the error is at most
G(C) = sum of (m - C)^+ + d u C, which is lowest where ceil(d u) users are above C. Two methods:

    "quantile-rank": the exponential mechanism on the distance | #{m > C} - ceil(d u) |. One user changes it by at most 1
        for every C, hence its range is 2.
    "quantile-gem": the generalised mechanism on q(C) = d u C - sum of min(m, C), which a further user lowers by at most
        C and never raises.

Guarantee: epsilon-differential privacy of the choice, delta 0, for either relation. (The paper's rank ceil(d/epsilon) is that
for adding or removing; used for replacing it picks too high a bound.) Proof: docs/proofs/bound-choice.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.choice.exponential import em_exponents, gem_exponents
from headcount.mechanisms.choice.norm_bins import NormChoice, clipped, enough, in_bins, tails
from headcount.mechanisms.errors import ParameterError

METHODS = ("quantile-rank", "quantile-gem")


@dataclasses.dataclass(frozen=True)
class QuantileChoice(NormChoice):
    """The l1 bound of a histogram with Laplace noise over `domain_size` public items, counts capped at `max_per_item` first."""

    budget: Budget
    release_budget: Budget
    relation: Relation
    domain_size: int
    name: str = "quantile-gem"
    grid: tuple[int, ...] = tuning.NORMS_OF_PUBLIC_DOMAIN
    max_per_item: int | None = None

    noise = "laplace"

    def __post_init__(self) -> None:
        if self.name not in METHODS:
            raise ParameterError(f"the method for Laplace noise must be one of {METHODS}, got {self.name!r}")

    @property
    def unit_noise(self) -> Fraction:
        """The mean absolute noise of one item at a bound of 1."""
        return self.relation.users / self.release_budget.epsilon_fraction

    @property
    def rank(self) -> int:
        """How many users the best bound leaves above it."""
        return math.ceil(self.domain_size * self.unit_noise)

    def user_table(self, shard: Shard) -> list[int]:
        """The users in each bin; the ranks need no more, since a norm counts as rounded up to the grid."""
        return in_bins(self.grid, np.searchsorted(self.grid, self.capped(shard).totals()))

    def exponents(self, table: Sequence[int]) -> list[Fraction]:
        """The exponents of the bounds: each is chosen with a probability proportional to exp(-exponent)."""
        epsilon = self.budget.epsilon_fraction
        if self.name == "quantile-rank":
            return em_exponents([abs(above - self.rank) for above in tails(table)], 2, epsilon)
        noise = self.domain_size * self.unit_noise
        losses = [noise * c - kept for c, kept in zip(self.grid, clipped(self.grid, table), strict=True)]
        return gem_exponents(losses, self.grid, epsilon, self.relation is Relation.ADD_REMOVE)

    def parameters(self) -> Mapping[str, Any]:
        """What defines the choice, in canonical form."""
        return {
            "method": self.name,
            "items": self.domain_size,
            "unit": self.unit_noise,
            "grid": self.grid,
            "max_per_item": self.max_per_item,
        }


def favoured(
    choice_budget: Budget, release_budget: Budget, relation: Relation, domain_size: int, grid: Sequence[int]
) -> str:
    """The method that public numbers favour: ranks if many users are left above the best bound."""
    probe = QuantileChoice(choice_budget, release_budget, relation, domain_size)
    return "quantile-rank" if probe.rank >= enough(choice_budget, len(grid)) else "quantile-gem"
