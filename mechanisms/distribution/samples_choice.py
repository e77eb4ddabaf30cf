"""How many samples of each user to look at, chosen privately (the paper, Appendix E; reconstructed, with a better rule).

Users with fewer samples than the chosen m are left out, and those with more count with m of them. Two rules:

    "median": half of the users have m or more: the exponential mechanism on | #{m_u >= x} - #{m_u < x} |, which moves by at
        most 1 when a user is added and by 2 when one is replaced. As it moves either way, its range is twice that.
    "auto": the error from privacy is proportional to 1 / (users sqrt(m)), so that #{m_u >= x} sqrt(x) is to be large: the
        generalised mechanism on minus that, which a further user lowers by at most sqrt(x), and never raises.

Guarantee: epsilon-differential privacy of the choice, delta 0, for either relation. All is in integers: sqrt(x) is rounded
down to a multiple of 2**-10, in the loss and in its sensitivity alike. Proof: docs/proofs/distribution.md.
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
from headcount.mechanisms.choice.norm_bins import NormChoice, in_bins
from headcount.mechanisms.distribution.tables import MOST_SAMPLES
from headcount.mechanisms.errors import ParameterError

RULES = ("auto", "median")

_ROOT_BITS = 10


@dataclasses.dataclass(frozen=True)
class SamplesChoice(NormChoice):
    """The number of samples per user of a distribution, as the chosen `bound`, by the users in each bin of a public grid."""

    budget: Budget
    release_budget: Budget
    relation: Relation
    name: str = "auto"
    grid: tuple[int, ...] = tuple(x for x in tuning.NORMS_OF_PUBLIC_DOMAIN if x <= MOST_SAMPLES)

    noise = ""  # what comes later draws its noise by itself

    def __post_init__(self) -> None:
        if self.name not in RULES:
            raise ParameterError(f"the rule for the samples per user must be one of {RULES}, got {self.name!r}")

    def user_table(self, shard: Shard) -> list[int]:
        """The users from each point of the grid up to the next; the first entry is those below all."""
        return in_bins(self.grid, np.searchsorted(self.grid, shard.totals(), side="right"))

    def exponents(self, table: Sequence[int]) -> list[Fraction]:
        """The exponents of the candidates: each is chosen with a probability proportional to exp(-exponent)."""
        users, epsilon = sum(table), self.budget.epsilon_fraction
        enough = [users - below for below in np.cumsum(table)[:-1].tolist()]  # users with that many samples or more
        if self.name == "median":
            losses = [abs(2 * above - users) for above in enough]
            return em_exponents(losses, 2 * self.relation.users, epsilon)
        roots = [math.isqrt(x << 2 * _ROOT_BITS) for x in self.grid]
        losses = [-above * root for above, root in zip(enough, roots, strict=True)]
        # Users with x samples or more: if one is added, removed or replaced, they become more, or fewer, for all x alike.
        return gem_exponents(losses, roots, epsilon, one_sided=True)

    def parameters(self) -> Mapping[str, Any]:
        """What defines the choice, in canonical form."""
        return {"rule": self.name, "grid": self.grid}

    def details(self) -> Mapping[str, str | int | float]:
        """What a reader of the guarantee should know of it."""
        return {"rule": self.name, "samples": f"{self.grid[0]} to {self.grid[-1]}", "candidates": len(self.grid)}
