"""How many rows of a user on a key count, how many keys and rows the sums see, and the norm of the totals: chosen privately.

This is the choice of `bound_choice.clip_choice` with another bound: of a user of d named keys the sums see m, so min(1, m / d)
of its rows, capped at r on each, in place of what a norm leaves.

    c          loss = users' shares of keys with more than c rows, and a hundredth of all users for each step of c
    (m, r)     loss = keys * cost - price * worth, where worth is what the users' rows that are left are worth; r is c at most.
               Where means may have Laplace noise, -g / (keys * cost), with g = worth / sqrt(1 + worth / h)
    B          loss = users with more than B rows, of which c on each key count
    b          loss = users with more than b keys, where the totals of users get noise of their own beside those of events

c says what events and sums are of, so that a few users who do very much cannot set them. Sums see fewer rows where that has
less noise, and totals of all that counts tell what they leave out. c is drawn where events or sums are calibrated, if it is not
given.

The noise of every metric is a cost, and what is left out is one for totals alone: so cost is the mean size of the noise of a
key's rows, times what noise counts for a metric in the mean, where means, variances and quantiles count twice. Any
price and any cost keep the guarantee.

A mean is off by keys * noise by the rows N that are left, in the mean over keys, and by the chance of who is left, of which the
variance is that of values, times keys, by N. So what is least is keys * cost / g(N), where h, the rows at which both are alike,
is keys * cost^2 times a public number: more rows on a key, or more keys, are worth it only as long as their noise grows no
faster than N. Noise is a standard deviation here, Gaussian or Laplace's.

Guarantee: that of `clip_choice`, with b as one more draw like B. What a user is worth depends on its own rows alone and lies
between 0 and `most`, so one user more lowers each loss by at most price * most, and raises none. g rises with N, and by no more
than N does: g^2 = N^2 h / (N + h), and its root is concave with a slope of 1 at 0. It is rounded down to whole `PARTS`, so one
user more raises it by at most `most` and one part, and lowers it never: the loss moves by that by keys * cost.
Proof: docs/proofs/bound-choice.md.
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
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bound_choice.clip_choice import PARTS, ClipBound, ClipCandidate, ClipChoice
from headcount.mechanisms.choice.exponential import select
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.lanes import Lanes


@dataclasses.dataclass(frozen=True)
class KeysCandidate(ClipCandidate):
    """At most `bound` keys with `max_per_item` rows each."""

    @property
    def most(self) -> int:
        """What one user keeps at most in the table: all that the bounds leave, or a public multiple of their norm."""
        return self.max_per_item * min(self.bound, tuning.MOST_WORTH * (math.isqrt(self.bound - 1) + 1))


@dataclasses.dataclass(frozen=True)
class KeysChoice(ClipChoice):
    """The choice of c, of m and r, and of the norms of the totals; `users_budget` is for that of users beside events."""

    users_budget: Budget | None = None
    of_means: bool = False  # whether what is least is the error of means

    name = "keys"

    def __post_init__(self) -> None:
        super().__post_init__()
        least = min((each.max_per_item for each in self.candidates), default=0)
        if self.cap_budget is not None and least > self.caps[0]:
            raise ParameterError(
                f"caps to choose from must leave a candidate, got {self.caps} and {least} rows at least"
            )

    @property
    def budget(self) -> Budget:
        """What all cost, added up."""
        users = () if self.users_budget is None else (self.users_budget.epsilon,)
        return Budget(sum_up((super().budget.epsilon, *users)))

    @property
    def entries(self) -> int:
        """The length of the table: with the users above each norm by their keys, before the number of items."""
        return super().entries + (0 if self.users_budget is None else len(self.norms))

    def user_table(self, shard: Shard) -> list[int]:
        """What the shard's users add."""
        *table, items = super().user_table(shard)
        if self.users_budget is not None:
            table += self.above(shard.rows_per_user())
        return [*table, items]

    def ended(self, candidates: Sequence[ClipCandidate], items: int) -> tuple[ClipCandidate, ...]:
        """Those up to the least number of keys that all there are; the number of these is public."""
        enough = min((each.bound for each in candidates if each.bound >= items), default=items)
        return tuple(each for each in candidates if each.bound <= enough)

    def most(self, candidate: ClipCandidate, items: int) -> int:
        """What a user is worth to a candidate at most."""
        return candidate.most

    @property
    def flattens(self) -> bool:
        """Whether what a cap takes away is to be estimated, too; a mean of a sample needs no such estimate."""
        return not self.of_means

    def loss(self, candidate: ClipCandidate, worth: int, items: int) -> Fraction:
        """The loss of a candidate to which all users are worth this, in `PARTS`."""
        if not self.of_means:
            return super().loss(candidate, worth, items)
        alike = tuning.NOISE_BY_CHANCE * items * candidate.cost**2 * PARTS
        seen = math.isqrt(math.floor(worth**2 * alike / (worth + alike)))
        return -Fraction(seen, PARTS) / (items * candidate.cost)

    def sensitivity(self, candidate: ClipCandidate, items: int) -> Fraction:
        """What one user more lowers that by, at most."""
        if not self.of_means:
            return super().sensitivity(candidate, items)
        return (self.most(candidate, items) + Fraction(1, PARTS)) / (items * candidate.cost)

    def under(self, cap: int) -> tuple[ClipCandidate, ...]:
        """The candidates of no more rows than count."""
        return tuple(each for each in self.candidates if each.max_per_item <= cap)

    def users_exponents(self, table: Sequence[int]) -> list[Fraction]:
        """The exponents of the norms b."""
        assert self.users_budget is not None
        return self.norm_exponents(table[-1 - len(self.norms) : -1], self.users_budget)

    def choose(self, table: Sequence[int], lanes: Lanes) -> ClipBound:
        """The private choice. A user has no more keys than rows, so a b above B is one that noise has drawn."""
        chosen = super().choose(table, lanes)
        if self.users_budget is None:
            return chosen
        drawn = self.norms[select(self.users_exponents(table), lanes)]
        return chosen._replace(users_bound=min(drawn, chosen.totals_bound))

    def ends(self) -> tuple[ClipBound, ClipBound]:
        """The smallest and the largest that can be chosen."""
        first, last = super().ends()
        if self.users_budget is None:
            return first, last
        return first._replace(users_bound=first.totals_bound), last._replace(users_bound=last.totals_bound)

    def largest(self) -> list[ClipBound]:
        """The largest that can be chosen with either noise."""
        _, last = self.ends()
        found = {each.noise: each for each in sorted(self.candidates, key=lambda each: each.cost)}
        return [last._replace(bound=c.bound, max_per_item=c.max_per_item, noise=c.noise) for c in found.values()]

    def parameters(self) -> Mapping[str, Any]:
        """What defines the choice, in canonical form."""
        users = {} if self.users_budget is None else {"users": repr(self.users_budget.epsilon)}
        return {**super().parameters(), **users, **({"of": "means"} if self.of_means else {})}

    def norms_of(self, capped: Shard, noise: str) -> np.ndarray:
        """The number of keys of each user, whatever the noise is."""
        return capped.rows_per_user().astype(np.float64)
