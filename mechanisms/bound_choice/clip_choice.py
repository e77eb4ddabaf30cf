"""How much of a user counts, where the items are public and what the bound leaves out is estimated afterwards.

Two bounds are chosen from one look at the data, the first for the counts of items, the second for the totals of groups of
items by which these counts are calibrated (`histogram.estimates`):

    (R, c): at most c events on one item, and the counts scaled down to a norm of R.   loss = items * cost * R - price * worth
    B: the totals, scaled down to a norm of B.                                         loss = users above B

where cost is the expected error of one count by noise at R = 1, and worth the sum over users of

    events that both bounds leave * the part of the user's events that the cap c alone leaves.

A part of the events that are left out is misplaced by the calibration: the price, a half, stands for it. A fifth saves as much
where users are alike, but on other data it chooses norms so small that the largest counts lie outside of their intervals.
Scaling leaves a user's items in proportion, so that the calibration restores them. A cap flattens them, and what is kept is
then less like the whole: hence the second factor. Any price keeps the guarantee. What a norm of B leaves out is lost. So B is
chosen as for one total (`one_total`), with a public weight, a power of B.

The norm is l2 where noise is Gaussian, and a user of many items then keeps R sqrt(items) events. It counts here as if it kept
MOST_WORTH R at most, a public limit, since one user could else decide alone.

Guarantee: each of the two is a draw of bounded range (`choice.exponential`), epsilon-differentially private with delta 0. For
(R, c): what a user is worth depends on its own rows alone, and lies between 0 and S, where S is MOST_WORTH R, or R (l1). The
first factor is cut to S, the second is at most 1, and the product is rounded down before any sum. So one user more lowers each
loss by at most price * S, and raises none: the one-sided form. Replacing a user is the difference of two such moves. For B the
proof stands in `one_total`. `items` is the number of items that were made public before; it is 0 where no counts are asked for,
and then (R, c) is not drawn.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, sum_up
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bounding.clipping import limit_per_item, squared_norms
from headcount.mechanisms.choice.base import TableChoice
from headcount.mechanisms.choice.exponential import em_exponents, gem_exponents, log_weight, select
from headcount.mechanisms.choice.norm_bins import in_bins, tails
from headcount.mechanisms.randomness.lanes import Lanes

#: What users are worth is in the table in these parts of an event, rounded down for each user.
PARTS = 2**8


class ClipBound(NamedTuple):
    """What was chosen; public, since it is paid for. 0 stands for what was not asked for."""

    bound: int
    max_per_item: int
    noise: str
    totals_bound: int
    items: int = 0  # that are counted, which was public before
    users_bound: int = 0  # of the totals of users, where those of events have one of their own


@dataclasses.dataclass(frozen=True)
class ClipCandidate:
    """At most `max_per_item` events on one item and a norm of `bound`, with noise of an expected size of `cost` in all."""

    bound: int
    max_per_item: int
    noise: str
    cost: Fraction

    @property
    def most(self) -> int:
        """What one user keeps at most."""
        return self.bound if self.noise == "laplace" else tuning.MOST_WORTH * self.bound


def totals_share(items: int, norm: float, totals_norm: float, least: float) -> float:
    """The share of precision that totals of this norm get beside the counts of so many items, of another norm.

    The noise of a total is in all of its items at once, and that of a count in one item alone. With a precision of p for the
    totals and q for the counts, all estimates are off by about a * totals_norm / sqrt(p) + items * norm / sqrt(q). That is
    least where p / q is the ratio of the two to the power 2/3. Both norms were chosen, and the items named: all is public.
    """
    ratio = (tuning.TOTALS_NOISE_PRICE * totals_norm / (max(1, items) * norm)) ** (2 / 3)
    return max(least, min(tuning.MOST_TOTALS_SHARE, round(ratio / (1 + ratio), 2)))


NOT_ASKED = ClipCandidate(0, 0, "", Fraction(0))


@dataclasses.dataclass(frozen=True)
class ClipChoice(TableChoice):
    """The choice of both bounds. Without candidates, or without norms, nothing of that kind is chosen.

    `once` counts every item of a user once: then users are counted, and not events.
    """

    counts_budget: Budget | None
    totals_budget: Budget | None
    release_budget: Budget
    relation: Relation
    candidates: tuple[ClipCandidate, ...]
    norms: tuple[int, ...]
    once: bool = False

    name = "kept"
    misplaced = tuning.LEFT_OUT_PRICE

    @property
    def budget(self) -> Budget:
        """What both cost, added up."""
        parts = (self.counts_budget, self.totals_budget)
        return Budget(sum_up(part.epsilon for part in parts if part is not None))

    @property
    def entries(self) -> int:
        """The length of the table: the worth of each candidate, the users above each norm, and the number of items."""
        return len(self.candidates) + len(self.norms) + 1

    def items_table(self, items: int) -> list[int]:
        """The public part of the table."""
        return [0] * (self.entries - 1) + [items]

    def user_table(self, shard: Shard) -> list[int]:
        """What the shard's users are worth to each candidate, in `PARTS`, and the users above each norm."""
        whole = limit_per_item(shard, 1) if self.once else shard
        caps = sorted({each.max_per_item for each in self.candidates})
        tables = [self._part_table(part, users) for part, users in _parts(whole, caps)]
        return [*map(sum, zip([0] * (len(self.candidates) + len(self.norms)), *tables, strict=True)), 0]

    def _part_table(self, whole: Shard, users: np.ndarray | None) -> list[int]:
        """The same without the last entry, for users who stand for so many each, or for themselves (None)."""
        events = whole.totals()
        found: dict[ClipCandidate, int] = {}
        seen: dict[tuple[Any, ...], list[int]] = {}
        most = int(whole.count.max(initial=1))
        for cap, noise in {(each.max_per_item, each.noise) for each in self.candidates}:
            alike = [each for each in self.candidates if (each.max_per_item, each.noise) == (cap, noise)]
            alike.sort(key=lambda each: each.bound)
            # Caps above all counts are the same, and so is all that follows, if users may be worth as much.
            way = (min(cap, most), noise, *((each.bound, each.most) for each in alike))
            if way not in seen:
                capped = limit_per_item(whole, cap)
                totals, norms = capped.totals(), self.norms_of(capped, noise)
                seen[way] = _worth(alike, totals, norms, totals / np.maximum(events, 1), users)
            found |= zip(alike, seen[way], strict=True)
        return [*(found[each] for each in self.candidates), *self.above(events, users)]

    def norms_of(self, capped: Shard, noise: str) -> np.ndarray | None:
        """What a bound is a bound of: the users' l2 norms, or for Laplace noise their totals (None)."""
        return None if noise == "laplace" else np.sqrt(squared_norms(capped).astype(np.float64))

    def counts_exponents(self, table: Sequence[int]) -> list[Fraction]:
        """The exponents of the candidates (R, c)."""
        assert self.counts_budget is not None
        worth = table[: len(self.candidates)]
        losses = [
            table[-1] * each.cost - self.misplaced * parts / PARTS
            for each, parts in zip(self.candidates, worth, strict=True)
        ]
        sensitivities = [self.misplaced * each.most for each in self.candidates]
        epsilon, one_sided = self.counts_budget.epsilon_fraction, self.relation is Relation.ADD_REMOVE
        tau = math.ceil(2 / epsilon * Fraction(math.log(len(losses) / tuning.MISSED_BY_COUNTS)))
        return gem_exponents(losses, sensitivities, epsilon, one_sided, tau)

    def totals_exponents(self, table: Sequence[int]) -> list[Fraction]:
        """The exponents of the norms B."""
        assert self.totals_budget is not None
        first = len(self.candidates)
        return self.norm_exponents(table[first : first + len(self.norms)], self.totals_budget)

    def norm_exponents(self, above: Sequence[int], budget: Budget) -> list[Fraction]:
        """The exponents of the norms, by the users above each."""
        losses = em_exponents(above, 1, budget.epsilon_fraction)
        return [
            loss + log_weight(norm, tuning.LARGE_NORM_PENALTY) for loss, norm in zip(losses, self.norms, strict=True)
        ]

    def above(self, totals: np.ndarray, users: np.ndarray | None = None) -> list[int]:
        """How many users with these totals, who stand for themselves or for so many each, are above each norm."""
        return tails(in_bins(self.norms, np.searchsorted(self.norms, totals), users)) if self.norms else []

    def choose(self, table: Sequence[int], lanes: Lanes) -> ClipBound:
        """The private choice."""
        chosen, norm = NOT_ASKED, 0
        if self.candidates and table[-1] > 0:
            chosen = self.candidates[select(self.counts_exponents(table), lanes)]
        if self.norms:
            norm = self.norms[select(self.totals_exponents(table), lanes)]
        return ClipBound(chosen.bound, chosen.max_per_item, chosen.noise, norm, table[-1])

    def ends(self) -> tuple[ClipBound, ClipBound]:
        """The smallest and the largest that can be chosen."""
        ranked = sorted(self.candidates, key=lambda each: each.cost) or [NOT_ASKED]
        norms = self.norms or (0,)
        first, last = (
            ClipBound(each.bound, each.max_per_item, each.noise, norm)
            for each, norm in ((ranked[0], norms[0]), (ranked[-1], norms[-1]))
        )
        return first, last

    def parameters(self) -> Mapping[str, Any]:
        """What defines the choice, in canonical form."""
        parts = (self.counts_budget, self.totals_budget)
        return {
            "candidates": [dataclasses.astuple(each) for each in self.candidates],
            "norms": self.norms,
            "once": self.once,
            "parts": [None if part is None else repr(part.epsilon) for part in parts],
        }

    def details(self) -> Mapping[str, str | int | float]:
        """What a reader of the guarantee should know of it."""
        return {"candidates for the counts": len(self.candidates), "for the totals": len(self.norms)}


def _parts(shard: Shard, caps: Sequence[int]) -> Iterator[tuple[Shard, np.ndarray | None]]:
    """The users by the least cap that leaves them as they are, as caps above that need no second look. Those of single events
    are alike if they have as many items: one stands for all of them, whose numbers come beside."""
    rows = shard.rows_per_user()
    most = np.zeros(len(shard.users), dtype=np.int64)  # the largest count of each user
    if len(shard.count):
        most[rows > 0] = np.maximum.reduceat(shard.count, shard.offsets[:-1][rows > 0])
    level = np.searchsorted(sorted({1, *caps}), most)
    for number in np.flatnonzero(np.bincount(level)).tolist():
        users = np.flatnonzero(level == number)
        if number > 0:
            yield shard.of_users(users), None
            continue
        items = rows[users]
        alike = np.bincount(items)
        one_of = np.zeros(len(alike), dtype=np.int64)
        one_of[items] = users
        yield shard.of_users(one_of[alike > 0]), alike[alike > 0]


def _worth(
    candidates: Sequence[ClipCandidate],
    totals: np.ndarray,
    norms: np.ndarray | None,
    spared: np.ndarray,
    users: np.ndarray | None,
) -> list[int]:
    """What users, who stand for themselves or for so many each, are worth to candidates of one cap and noise, from the lowest
    bound on: users with these totals, and norms that are bounded unless the totals are, and the part of all events that the cap
    has spared.

    Users whom a bound leaves as they are are worth the same under every higher one, and are not looked at again.
    """
    found, settled = [], 0
    for each in candidates:
        kept = np.minimum(totals, each.most)
        if norms is not None:
            kept = np.minimum(totals * np.minimum(1.0, each.bound / np.maximum(norms, 1.0)), each.most)
        # Cut to the limit before it is a whole number, so that no product is too large for one.
        worth = (kept * spared * PARTS).astype(np.int64)
        if users is not None:
            worth *= users
        found.append(settled + int(worth.sum()))
        left = kept < totals
        settled += int(worth[~left].sum())
        totals, spared = totals[left], spared[left]
        norms, users = (None if column is None else column[left] for column in (norms, users))
    return found
