"""A bound for an unknown domain by the paper's own measure V(C) (Algorithm 4).

    V(C) = kappa * sum over users of (m - C)^+  +  sum over items of min(H, t(C))

with m a user's events, H the item's expected bounded sum (`expected_sums`) and t(C) the threshold; for kappa = 2, V bounds the
expected error from above. Noise is Laplace, and there is no cap on one item.

Guarantee: epsilon-differential privacy, delta 0. What is scored is q(C) = V(C) - kappa * sum of m, the same up to a shift
common to all C. Adding a user changes V(C) by kappa (m - C)^+ + L with 0 <= L <= min(m, C). So q falls by at most kappa C and
never rises (kappa >= 1): the generalised mechanism, one-sided when adding. And for c < c' V changes by at most c more at c'
than at c, and by at most kappa (c' - c) + c more at c than at c'. So the range over all candidates is at most the larger of
kappa (Cmax - c) + c over c, and twice the own part, kappa (Cmax - c) + 2c, when one user is replaced. (The paper's
sensitivities, 5 Cmax / 2 and 3 Cmax, hold for kappa = 2 but are loose.) Proof: docs/proofs/bound-choice.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bound_choice.candidates import (
    Candidate,
    SumsChoice,
    above,
    make_candidates,
    score_items,
)
from headcount.mechanisms.bound_choice.expected_sums import FRACTION_BITS, CandidateGrid, total_sums
from headcount.mechanisms.choice.exponential import em_exponents, gem_exponents
from headcount.mechanisms.errors import ParameterError


@dataclasses.dataclass(frozen=True)
class VolumeChoice(SumsChoice):
    """Algorithm 4 for `release_budget`, at the cost of `budget`: `name` is "gem", or "em" for the mechanism by range."""

    budget: Budget
    release_budget: Budget
    relation: Relation
    name: str = "gem"
    kappa: Fraction = Fraction(2)
    bounds: tuple[int, ...] = tuning.BOUNDS_OF_ONE_STAGE

    def __post_init__(self) -> None:
        if self.kappa < 1:
            raise ParameterError(f"kappa must be at least 1, got {self.kappa}", "kappa")

    @property
    def candidate_grid(self) -> CandidateGrid:
        """The bounds that are looked at."""
        return CandidateGrid(self.bounds)

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """What can be chosen."""
        return make_candidates(self.release_budget, self.relation, self.candidate_grid, "laplace")

    def user_table(self, shard: Shard) -> list[int]:
        """kappa * sum of min(m, C) over users less the sum of H over items: the part of -q without thresholds."""
        totals, sums = shard.totals(), total_sums(shard, self.candidate_grid)
        events = [int(np.minimum(totals, bound).sum()) << FRACTION_BITS for bound in self.bounds]
        return [self.kappa.numerator * m - self.kappa.denominator * h for m, h in zip(events, sums, strict=True)]

    def item_table(self, chunks: Iterable[bytes]) -> list[int]:
        """The sum of (H - t)^+, since min(H, t) = H - (H - t)^+."""
        scores = score_items(chunks, self.candidate_grid, self.candidates, lambda c: c.threshold, above)
        return [self.kappa.denominator * score for score in scores]

    def exponents(self, table: Sequence[int]) -> list[Fraction]:
        """The exponents of the candidates: each is chosen with a probability proportional to exp(-exponent)."""
        losses = [Fraction(-score, self.kappa.denominator << FRACTION_BITS) for score in table]
        epsilon = self.budget.epsilon_fraction
        if self.name == "em":
            return em_exponents(losses, self.spread(), epsilon)
        one_sided = self.relation is Relation.ADD_REMOVE
        return gem_exponents(losses, [self.kappa * bound for bound in self.bounds], epsilon, one_sided)

    def spread(self) -> Fraction:
        """By how much more one user can change the loss of one candidate than that of another."""
        most = self.bounds[-1]
        return max(self.kappa * (most - c) + self.relation.users * c for c in (self.bounds[0], most))

    def parameters(self) -> Mapping[str, Any]:
        """What defines the choice, in canonical form."""
        candidates = [dataclasses.astuple(c) for c in self.candidates]
        return {"method": self.name, "kappa": self.kappa, "candidates": candidates}

    def details(self) -> Mapping[str, str | int | float]:
        """What a reader of the guarantee should know of it."""
        return {
            "method": self.name,
            "kappa": float(self.kappa),
            "bounds": f"{self.bounds[0]} to {self.bounds[-1]}",
            "candidates": len(self.bounds),
        }
