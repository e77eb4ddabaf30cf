"""The private choice of a selection curve in two draws: first a limit on the items per user, then a curve within it.

    the limit:    P(K) is proportional to max(K, k)^-u exp(-e1 #{users with more than K items}),     K of the candidates
    the curve:    P(c) is proportional to K(c)^v exp(-e2 loss(c) / S),                       c with K(c) <= the limit

S is the largest sensitivity of a loss (`scored`) among those c, and twice that where a user is replaced. It grows like K^(3/4),
so that a choice among all K at once would need too much epsilon. The number of users above K moves by 1, and is cheap to ask
first. Where there are too few users to tell, all limits up to k are as likely: a user of fewer items than K loses little by it,
and one of many would lose nearly all by a small K.

Guarantee: each draw is epsilon-differentially private with delta 0, and has a range of e1 and e2. The second knows the first:
they compose adaptively (`curve_budget`). Any k, u and v that no data tells keep it (`tuning`). Proof:
docs/proofs/partitions.md, "Which curve".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, sum_up
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.choice.base import TableChoice
from headcount.mechanisms.choice.exponential import em_exponents, log_weight, probabilities, select
from headcount.mechanisms.choice.norm_bins import in_bins, tails
from headcount.mechanisms.partitions.candidates import StrategyCandidate
from headcount.mechanisms.partitions.scored import PartitionChoice
from headcount.mechanisms.partitions.select import ChosenStrategy
from headcount.mechanisms.randomness.lanes import Lanes


@dataclasses.dataclass(frozen=True)
class LimitedChoice(TableChoice):
    """Both draws: the limit has a budget of its own, and `scored` has that of the other."""

    limit: Budget
    scored: PartitionChoice

    name = "limited partitions"
    by_item = True
    bounded_range = False  # the second draw depends on the first

    @property
    def budget(self) -> Budget:
        """What both cost, added up."""
        return Budget(sum_up(self.ranges))

    @property
    def ranges(self) -> tuple[float, float]:
        """The range of each draw."""
        return self.limit.epsilon, self.scored.budget.epsilon

    @property
    def release_budget(self) -> Budget:
        """The budget of the release that it is made for."""
        return self.scored.release_budget

    @property
    def relation(self) -> Relation:
        """What a neighbouring input is."""
        return self.scored.relation

    @property
    def candidates(self) -> tuple[StrategyCandidate, ...]:
        """The public candidates."""
        return self.scored.candidates

    @property
    def limits(self) -> tuple[int, ...]:
        """The limits that can be drawn, ascending."""
        return self.scored.candidate_grid

    @property
    def entries(self) -> int:
        """The length of the table: the scores of all candidates, and the users above each limit."""
        return self.scored.entries + len(self.limits)

    def user_table(self, shard: Shard) -> list[int]:
        """The shard's users above each limit."""
        items = shard.rows_per_user()
        above = tails(in_bins(self.limits, np.searchsorted(self.limits, items)))
        return [*self.scored.user_table(shard), *above]

    def item_chunks(self, shard: Shard, shards: int) -> Iterator[tuple[int, bytes]]:
        """What the users of a shard add to their items, by item shard."""
        return self.scored.item_chunks(shard, shards)

    def item_table(self, chunks: Iterable[bytes]) -> list[int]:
        """The scores over the items of one shard."""
        return [*self.scored.item_table(chunks), *[0] * len(self.limits)]

    def limit_exponents(self, table: Sequence[int]) -> list[Fraction]:
        """The exponents of the limits."""
        losses = em_exponents(table[self.scored.entries :], 1, self.limit.epsilon_fraction)
        alike = tuning.LIMITS_ALIKE / self.release_budget.epsilon
        return [
            loss + log_weight(max(limit, alike), tuning.LARGE_BOUND_PENALTY)
            for loss, limit in zip(losses, self.limits, strict=True)
        ]

    def within(self, limit: int) -> list[int]:
        """The places of the candidates of no more items than the limit."""
        return [place for place, candidate in enumerate(self.candidates) if candidate.items <= limit]

    def exponents(self, table: Sequence[int], limit: int) -> list[Fraction]:
        """The exponents of these candidates."""
        return self._exponents(self._losses(table), limit)

    def _losses(self, table: Sequence[int]) -> list[Fraction]:
        return self.scored.losses(table[: self.scored.entries])

    def _exponents(self, losses: Sequence[Fraction], limit: int) -> list[Fraction]:
        scored, places = self.scored, self.within(limit)
        spread = self.relation.users * max(scored.sensitivities[place] for place in places)
        exponents = em_exponents([losses[place] for place in places], spread, scored.budget.epsilon_fraction)
        weights = [log_weight(limit / self.candidates[place].items, tuning.MANY_ITEMS_REWARD) for place in places]
        return [exponent + weight for exponent, weight in zip(exponents, weights, strict=True)]

    def chances(self, table: Sequence[int]) -> np.ndarray:
        """What `choose` gives to each candidate, in floats: for audits and reports."""
        found, losses = np.zeros(len(self.candidates)), self._losses(table)
        for limit, chance in zip(self.limits, probabilities(self.limit_exponents(table)).tolist(), strict=True):
            if chance > 0:
                found[self.within(limit)] += chance * probabilities(self._exponents(losses, limit))
        return found

    def choose(self, table: Sequence[int], lanes: Lanes) -> ChosenStrategy:
        """The private choice."""
        limit = self.limits[select(self.limit_exponents(table), lanes)]
        place = select(self.exponents(table, limit), lanes)
        return self.candidates[self.within(limit)[place]].chosen

    def ends(self) -> tuple[ChosenStrategy, ChosenStrategy]:
        """The choices with the fewest and the most items per user."""
        return self.scored.ends()

    def parameters(self) -> Mapping[str, Any]:
        """What defines the choice, in canonical form."""
        return {**self.scored.parameters(), "parts": [repr(epsilon) for epsilon in self.ranges]}

    def details(self) -> Mapping[str, str | int | float]:
        """What a reader of the guarantee should know of it."""
        return {**self.scored.details(), "epsilon of the limit on items per user": self.limit.epsilon}
