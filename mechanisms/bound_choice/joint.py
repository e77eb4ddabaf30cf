"""Bound, cap on one item and noise as one private choice, for the aim that the user names: beyond the paper.

For a candidate with bound C, threshold t and mean noise E, and H the expected bounded sum of an item (`expected_sums`):

    error: the loss is minus the counts saved, the sum over items of max(0, min(2(H - t), H - a)), a = min(2E, t);
    items: the loss is minus a soft number of released items, the sum over items of clip((H - t/2)/t, 0, 1).

Guarantee: epsilon-differential privacy, delta 0, by the generalised exponential mechanism. Adding a user raises each H by some
f >= 0, and the f sum up to at most C. The loss has slopes in H within [-2, 0] for error and [-1/t, 0] for items, so it
falls by at most D = 2C or D = C/t, and never rises: the one-sided form. Replacing a user is the difference of two such
moves, within D of both sides. (Without a <= t the slope at t would not be bounded.) Proof: docs/proofs/bound-choice.md.
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
from headcount.mechanisms.bound_choice.candidates import (
    Candidate,
    SumsChoice,
    make_candidates,
    score_items,
)
from headcount.mechanisms.bound_choice.expected_sums import FRACTION_BITS, CandidateGrid
from headcount.mechanisms.checks import check_one_of
from headcount.mechanisms.choice.exponential import gem_exponents
from headcount.mechanisms.choice.protocol import ChosenBound

OBJECTIVES = ("error", "items")


@dataclasses.dataclass(frozen=True)
class JointChoice(SumsChoice):
    """The choice for `release_budget`, at the cost of `budget`; a noise or a cap that is given is not chosen.

    With `distinct`, a user's distinct items count in place of its events.
    """

    budget: Budget
    release_budget: Budget
    relation: Relation
    objective: str = "error"
    noise: str = "auto"
    max_per_item: int | None = None
    distinct: bool = False

    name = "joint"

    def __post_init__(self) -> None:
        check_one_of("objective", self.objective, OBJECTIVES)

    @cached_property
    def candidate_grid(self) -> CandidateGrid:
        """The bounds and caps that are looked at."""
        caps = tuning.CAPS if self.max_per_item is None else (self.max_per_item,)
        return CandidateGrid(tuning.BOUNDS_OF_ONE_STAGE, caps)

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """What can be chosen."""
        always_capped = self.max_per_item is not None
        return make_candidates(self.release_budget, self.relation, self.candidate_grid, self.noise, always_capped)

    def item_table(self, chunks: Iterable[bytes]) -> list[int]:
        """Minus the loss of each candidate over the items of one shard, in `unit`s."""
        if self.objective == "error":
            return score_items(chunks, self.candidate_grid, self.candidates, lambda c: c.threshold, _saved)
        return score_items(chunks, self.candidate_grid, self.candidates, lambda c: c.threshold // 2, _shown)

    def unit(self, candidate: Candidate) -> Fraction:
        """What one stands for in the table."""
        parts = 1 if self.objective == "error" else 2 * candidate.threshold
        return Fraction(1, parts << FRACTION_BITS)

    def sensitivity(self, candidate: Candidate) -> Fraction:
        """By how much one user can change the loss."""
        return Fraction(2 * candidate.bound, 1 if self.objective == "error" else 2 * candidate.threshold)

    def exponents(self, table: Sequence[int]) -> list[Fraction]:
        """The exponents of the candidates: each is chosen with a probability proportional to exp(-exponent)."""
        losses = [-score * self.unit(candidate) for score, candidate in zip(table, self.candidates, strict=True)]
        sensitivities = [self.sensitivity(candidate) for candidate in self.candidates]
        one_sided = self.relation is Relation.ADD_REMOVE
        return gem_exponents(losses, sensitivities, self.budget.epsilon_fraction, one_sided)

    def ends(self) -> tuple[ChosenBound, ChosenBound]:
        """The smallest and the largest bound that can be chosen; which cap and noise goes with them is open."""
        bounds = tuning.BOUNDS_OF_ONE_STAGE
        return ChosenBound(bounds[0], 0, self.noise), ChosenBound(bounds[-1], self.max_per_item or 0, self.noise)

    def parameters(self) -> Mapping[str, Any]:
        """What defines the choice, in canonical form."""
        candidates = [dataclasses.astuple(c) for c in self.candidates]
        return {"objective": self.objective, "candidates": candidates, "distinct": self.distinct}

    def details(self) -> Mapping[str, str | int | float]:
        """What a reader of the guarantee should know of it."""
        bounds = {candidate.bound for candidate in self.candidates}
        return {
            "method": self.name,
            "objective": self.objective,
            "bounds": f"{min(bounds)} to {max(bounds)}",
            "caps on one item": f"1 to {tuning.CAPS[-1]:,}, or none"
            if self.max_per_item is None
            else self.max_per_item,
            "noise": "laplace or gaussian" if self.noise == "auto" else self.noise,
            "candidates": len(self.candidates),
        }


def _saved(candidate: Candidate, whole: np.ndarray, fraction: np.ndarray) -> int:
    """The sum of max(0, min(2(H - t), H - a)), in units of 2**-30."""
    t, a = candidate.threshold, min(tuning.LEAST_COUNT_BY_NOISE * candidate.mean_noise, candidate.threshold)
    steep = (whole >= t) & (whole < 2 * t - a)  # from t on; beyond 2t - a the other line is lower
    flat = whole >= 2 * t - a
    counts = 2 * int((whole[steep] - t).sum()) + int((whole[flat] - a).sum())
    return (counts << FRACTION_BITS) + 2 * int(fraction[steep].sum()) + int(fraction[flat].sum())


def _shown(candidate: Candidate, whole: np.ndarray, fraction: np.ndarray) -> int:
    """The sum of clip(2H - t, 0, 2t), in units of 2**-30."""
    t = candidate.threshold
    twice = 2 * fraction
    above, rest = 2 * whole - t + (twice >> FRACTION_BITS), twice & ((1 << FRACTION_BITS) - 1)
    full = above >= 2 * t
    ramp = (above >= 0) & ~full
    counts = 2 * t * int(np.count_nonzero(full)) + int(above[ramp].sum())
    return (counts << FRACTION_BITS) + int(rest[ramp].sum())
