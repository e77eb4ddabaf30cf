"""How many items of a user count in a sample, chosen privately.

Few items leave counts far below the number of users who have an item: with one of twenty, at a twentieth of it, so that no item
has the share of users that is asked for. Many raise the number of users that an item needs to be shown, though not by much.
So the choice is for the users who count, over all items that are shown. With K items per user, let w be the number of users of
an item with which it is shown half of the time, and H the number of an item's users who are expected to keep it. The loss is

    minus the sum over items of max(0, H - w/2).

(From w/2 on: an item that is hidden for sure gives nothing, and one that is shown for sure loses w/2 of its users, as a price
of raising w. The number of items shown would take K = 1 wherever all are shown anyway.)

Guarantee: epsilon-differential privacy, delta 0, by the generalised exponential mechanism. A user of d distinct items keeps
each with probability min(1, K/d), which is what it adds to H, rounded down (`expected_sums`): together at most K. Slopes in H
lie in [-1, 0], so one user more lowers each loss by at most K, and raises none: the one-sided form. Replacing a user is the
difference of two such moves. Whatever w is, it is public. Proof: docs/proofs/sampled.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.bound_choice.candidates import Candidate, SumsChoice, above, score_items
from headcount.mechanisms.bound_choice.expected_sums import FRACTION_BITS, CandidateGrid
from headcount.mechanisms.choice.exponential import gem_exponents
from headcount.mechanisms.sampled.plan import Objective, calibrate_sample


@dataclasses.dataclass(frozen=True)
class ItemsChoice(SumsChoice):
    """The items per user of a sample with `release_budget`, at the cost of `budget`, as the chosen `bound`: no noise goes with
    it."""

    budget: Budget
    release_budget: Budget
    relation: Relation
    objective: Objective = "w95"

    name = "items"
    distinct = True

    @property
    def candidate_grid(self) -> CandidateGrid:
        """The numbers of items that are looked at, ascending."""
        return CandidateGrid(tuple(sorted({candidate.bound for candidate in self.candidates})))

    @cached_property
    def w50(self) -> Mapping[int, int]:
        """For each number of items, about how many users an item needs to be shown half of the time."""
        return about_w50(self.release_budget, self.relation, self.objective)

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """What can be chosen; the threshold of the loss is half of the users."""
        return tuple(Candidate(items, None, "", -(-users // 2), 0) for items, users in self.w50.items())

    def item_table(self, chunks: Iterable[bytes]) -> list[int]:
        """Minus the loss of each candidate over the items of one shard, in units of 2**-30."""
        return score_items(chunks, self.candidate_grid, self.candidates, lambda c: c.threshold, above)

    def exponents(self, table: Sequence[int]) -> list[Fraction]:
        """The exponents of the candidates: each is chosen with a probability proportional to exp(-exponent)."""
        losses = [Fraction(-score, 1 << FRACTION_BITS) for score in table]
        one_sided = self.relation is Relation.ADD_REMOVE
        sensitivities, epsilon = [candidate.bound for candidate in self.candidates], self.budget.epsilon_fraction
        tau = math.ceil(2 / epsilon * Fraction(math.log(self.entries / tuning.MISSED_BY_SAMPLE)))
        return gem_exponents(losses, sensitivities, epsilon, one_sided, tau)

    def parameters(self) -> Mapping[str, Any]:
        """What defines the choice, in canonical form."""
        return {"candidates": [dataclasses.astuple(candidate) for candidate in self.candidates]}

    def details(self) -> Mapping[str, str | int | float]:
        """What a reader of the guarantee should know of it."""
        return {
            "items per user": f"{tuning.ITEMS_OF_SAMPLE[0]} to {tuning.ITEMS_OF_SAMPLE[-1]}",
            "candidates": self.entries,
        }


def about_w50(budget: Budget, relation: Relation, objective: Objective) -> dict[int, int]:
    """For each of ITEMS_OF_SAMPLE, the number of users from which on an item is shown more often than not, within a tenth.

    The exact ones take seconds each. They rise as a power of the number of items, from a number on that grows with epsilon and
    with the logarithm of delta; fitted to budgets from (0.1, 1e-8) to (4, 1e-8) and from (1, 1e-4) to (1, 1e-12).
    """
    one = calibrate_sample(budget, objective).w50
    some = tuning.SAMPLE_USERS_BY_DELTA * math.log(1 / budget.delta)
    some *= math.exp(tuning.SAMPLE_USERS_BY_EPSILON * min(budget.epsilon, 100.0))
    users = tuning.SAMPLE_USERS_REPLACED if relation is Relation.REPLACE else 1.0
    return {
        items: round(one * (1 + users * (items - 1) / some) ** tuning.SAMPLE_USERS_POWER)
        for items in tuning.ITEMS_OF_SAMPLE
    }
