"""An l2 bound for a public domain with Gaussian noise, from the weighted tail of the users' norms (the paper, Theorem 4.3).

With d items, l2 norms a and w = l1 norm / l2 norm, the error is at most G(C) = sum of w (a - C)^+ + M C, where M =
d sigma sqrt(2/pi). It is lowest where W(C), the sum of w over the users with a > C, falls to M. w is *capped* at sqrt(s), for a
public sparsity s. The paper only assumes that no user has more than s items, and one dense user then breaks its guarantee:
one with 90,000 items costs 25 times the claimed epsilon at s = 9. Both methods look at one table of W:

    "em": the exponential mechanism on |W(C) - M|, whose range is 2 sqrt(s).
    "gem": the generalised mechanism on q(C) = C M - sum of w min(C, a), which a further user lowers by at most sqrt(s) C
        and never raises.

Guarantee: epsilon-differential privacy of the choice with delta 0, for either relation. All sums are integers; w is rounded
down to a multiple of 2**-20, and squared norms are compared with squared grid points. The paper's other methods are in
`papers.baselines`. Proof: docs/proofs/bound-choice.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting import gaussian
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bounding.clipping import squared_norms
from headcount.mechanisms.choice.exponential import em_exponents, gem_exponents
from headcount.mechanisms.choice.norm_bins import NormChoice, clipped, enough, in_bins, tails
from headcount.mechanisms.errors import ParameterError

METHODS = ("em", "gem")

WEIGHT_BITS = 20


@dataclasses.dataclass(frozen=True)
class TailChoice(NormChoice):
    """The l2 bound of a histogram with Gaussian noise over `domain_size` public items, counts capped at `max_per_item` first.

    `sparsity` is s; `users` is a public guess of how many there are, which only output perturbation uses (`papers`).
    """

    budget: Budget
    release_budget: Budget
    relation: Relation
    domain_size: int
    sparsity: int
    name: str = "gem"
    users: int = tuning.GUESSED_USERS
    grid: tuple[int, ...] = tuning.NORMS_OF_PUBLIC_DOMAIN
    max_per_item: int | None = None

    noise = "gaussian"
    methods: ClassVar[tuple[str, ...]] = METHODS

    def __post_init__(self) -> None:
        if self.name not in self.methods:
            raise ParameterError(f"the method for Gaussian noise must be one of {self.methods}, got {self.name!r}")

    @cached_property
    def noise_weight(self) -> Fraction:
        """M: the expected error from noise at a bound of 1."""
        sigma = gaussian.gaussian_sigma(self.release_budget.epsilon, self.release_budget.delta)
        weight = self.domain_size * sigma * math.sqrt(self.relation.users * 2 / math.pi)
        return Fraction(round(weight * 1024), 1024)

    @property
    def cap(self) -> int:
        """sqrt(s) in units of 2**-20, rounded down: what no weight exceeds."""
        return math.isqrt(self.sparsity << 2 * WEIGHT_BITS)

    def user_table(self, shard: Shard) -> list[int]:
        """The weight in each bin, in units of 2**-20."""
        shard = self.capped(shard)
        squared = squared_norms(shard)
        ratio = shard.totals() / np.sqrt(squared.astype(np.float64))
        weight = np.minimum((ratio * 2.0**WEIGHT_BITS).astype(np.int64), self.cap)
        return in_bins(self.grid, self.bins(squared), weight)

    def bins(self, squared: np.ndarray) -> np.ndarray:
        """The bin of each user, by the squared norms."""
        last = self.grid[-1] ** 2
        return np.searchsorted(np.array(self.grid) ** 2, np.minimum(squared, last + 1).astype(np.int64))

    def exponents(self, table: Sequence[int]) -> list[Fraction]:
        """The exponents of the bounds: each is chosen with a probability proportional to exp(-exponent)."""
        epsilon = self.budget.epsilon_fraction
        unit = Fraction(1, 1 << WEIGHT_BITS)
        if self.name == "em":
            losses = [abs(above * unit - self.noise_weight) for above in tails(table)]
            return em_exponents(losses, 2 * self.cap * unit, epsilon)
        kept = clipped(self.grid, table)
        losses = [c * self.noise_weight - sum_ * unit for c, sum_ in zip(self.grid, kept, strict=True)]
        sensitivities = [c * self.cap * unit for c in self.grid]
        return gem_exponents(losses, sensitivities, epsilon, self.relation is Relation.ADD_REMOVE)

    def parameters(self) -> Mapping[str, Any]:
        """What defines the choice, in canonical form."""
        return {
            "method": self.name,
            "items": self.domain_size,
            "weight": self.noise_weight,
            "sparsity": self.sparsity,
            "users": self.users,
            "delta": repr(self.budget.delta),
            "grid": self.grid,
            "max_per_item": self.max_per_item,
        }

    def details(self) -> Mapping[str, str | int | float]:
        """What a reader of the guarantee should know of it."""
        return {**super().details(), "sparsity": self.sparsity}


def favoured(
    choice_budget: Budget,
    release_budget: Budget,
    relation: Relation,
    domain_size: int,
    sparsity: int,
    grid: Sequence[int],
) -> str:
    """The method that public numbers favour: tails if much weight is left above the best bound."""
    probe = TailChoice(choice_budget, release_budget, relation, domain_size, sparsity)
    needed = math.sqrt(sparsity) * enough(choice_budget, len(grid))
    return "em" if probe.noise_weight >= needed else "gem"
