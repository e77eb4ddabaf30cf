"""The private choice of the bounds of an estimated histogram: how much of a user counts, where what is left out is estimated.

Three bounds are drawn from one look at the data. The first says what is counted, the second how much of it the counts of items
see, the third how much the totals of groups see by which these counts are calibrated (`histogram.estimates`):

    c: at most c events of a user on one item count.    loss = users' shares of items above c, and q users for each step of c
    R: the counts, scaled down to a norm of R.          loss = items * cost * R - price * worth
    B: the totals, scaled down to a norm of B.          loss = users above B

q is a hundredth: c is raised by a step where one in a hundred of the pairs of a user and an item needs it, each user with a
weight of one, so that a few users who do very much cannot raise it. cost is the expected error of one count by noise at R = 1.
worth is the sum over users of the events that R leaves, each user cut to MOST_WORTH R where the norm is l2. A part of what R
leaves out is misplaced by the calibration: the price, a half, stands for it; without totals it is one. A fifth saves as much
where users are alike, but on other data it chooses norms so small that the largest counts lie outside of their intervals. What
a norm of B leaves out is lost: B is chosen as for one total (`one_total`).

Guarantee: each of the three is a draw of bounded range (`choice.exponential`), epsilon-differentially private with delta 0, for
any price. Each may depend on those before it, and their ranges add up. Proof: docs/proofs/bound-choice.md.
"""

from __future__ import annotations

import dataclasses
import itertools
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
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.lanes import Lanes

#: What users are worth is in the table in these parts of an event, rounded down for each user.
PARTS = 2**8

#: What a step of the cap costs, in these parts of a user.
CAP_STEP = round(PARTS * tuning.ABOVE_CAP)


def check_caps(caps: Sequence[int]) -> None:
    """Refuses caps that do not rise, and more of them than the proof has steps for."""
    if list(caps) != sorted({*caps}):
        raise ParameterError(f"caps to choose from must rise, got {tuple(caps)}")
    if CAP_STEP * (len(caps) - 1) > PARTS:
        raise ParameterError(f"{len(caps)} caps are too many to choose from: give at most {PARTS // CAP_STEP + 1}")


class ClipBound(NamedTuple):
    """What was chosen; public, since it is paid for. 0 stands for what was not asked for."""

    bound: int
    max_per_item: int
    noise: str
    totals_bound: int
    items: int = 0  # that are counted, which was public before
    users_bound: int = 0  # of the totals of users, where those of events have one of their own
    cap: int = 0  # what counts on one item at all: the sums of an aggregate may see less of it


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


def root_above(items: int) -> int:
    """The root of a number of items, rounded up: the norm of a user who has all of them once."""
    return math.isqrt(max(items, 1) - 1) + 1


def norms_of_list(items: int | None, cap: int, noise: str) -> tuple[int, ...]:
    """The norms to choose from: of a public list up to the least that no user can exceed; of items that are named, all."""
    if items is None:
        return tuning.BOUNDS_OF_ESTIMATES
    most, menu = cap * (items if noise == "laplace" else root_above(items)), tuning.BOUNDS_OF_ONE_STAGE
    return tuple(norm for place, norm in enumerate(menu) if place == 0 or not most or menu[place - 1] < most)


def totals_share(items: int, norm: float, totals_norm: float, least: float) -> float:
    """The share of precision that totals of this norm get beside the counts of `items` items, of another norm.

    The noise of a total is in all of its items at once, and that of a count in one item alone. With a precision of p for the
    totals and q for the counts, all estimates are off by about a * totals_norm / sqrt(p) + items * norm / sqrt(q). That is
    least where p / q is the ratio of the two to the power 2/3. Both norms were chosen, and the items named: all is public.
    """
    ratio = (tuning.TOTALS_NOISE_PRICE * totals_norm / (max(1, items) * norm)) ** (2 / 3)
    return max(least, min(tuning.MOST_TOTALS_SHARE, round(ratio / (1 + ratio), 2)))


NOT_ASKED = ClipCandidate(0, 0, "", Fraction(0))


@dataclasses.dataclass(frozen=True)
class ClipChoice(TableChoice):
    """The choice of the bounds. Without candidates, or without norms, nothing of that kind is chosen.

    `caps` are those on one item to choose from, if there is a budget for that; else the one that is given, where 0 stands for
    none. Users are events with a cap of 1.
    """

    counts_budget: Budget | None
    totals_budget: Budget | None
    release_budget: Budget
    relation: Relation
    candidates: tuple[ClipCandidate, ...]
    norms: tuple[int, ...]
    caps: tuple[int, ...] = (0,)
    cap_budget: Budget | None = None

    name = "kept"

    @property
    def misplaced(self) -> Fraction:
        """What an event costs that R leaves out: all of it where no totals are there to make up for it."""
        return Fraction(1) if self.totals_budget is None else tuning.LEFT_OUT_PRICE

    @property
    def flattens(self) -> bool:
        """Whether what a cap takes away is to be estimated, too."""
        return False

    def __post_init__(self) -> None:
        check_caps(self.caps)

    @property
    def budget(self) -> Budget:
        """What all cost, added up."""
        parts = (self.counts_budget, self.totals_budget, self.cap_budget)
        return Budget(sum_up(part.epsilon for part in parts if part is not None))

    @property
    def entries(self) -> int:
        """The length of the table: the worth of each candidate, the users above each norm under each cap, the losses of the
        caps, and the number of items."""
        return len(self.candidates) + len(self.caps) * (len(self.norms) + 1) + 1

    def items_table(self, items: int) -> list[int]:
        """The public part of the table."""
        return [0] * (self.entries - 1) + [items]

    def user_table(self, shard: Shard) -> list[int]:
        """What the shard's users are worth to each candidate, in `PARTS`, the users above each norm, and what they add to the
        loss of each cap, in `PARTS`."""
        caps = sorted({each.max_per_item for each in self.candidates} | {*self.caps} - {0})
        tables = [self._part_table(part, users) for part, users in _parts(shard, caps)]
        none = [0] * (len(self.candidates) + len(self.caps) * (len(self.norms) + 1))
        return [*map(sum, zip(none, *tables, strict=True)), 0]

    def _part_table(self, whole: Shard, users: np.ndarray | None) -> list[int]:
        """The same without the last entry, for users who stand for a number of users each, or for themselves (None)."""
        events, most = whole.totals(), int(whole.count.max(initial=1))
        found: dict[ClipCandidate, int] = {}
        # Caps above all counts are the same, and so is all that follows, if users may be worth as much.
        capped: dict[int, Shard] = {}
        seen: dict[tuple[Any, ...], list[int]] = {}
        for cap in {each.max_per_item for each in self.candidates} | {*self.caps}:
            least = min(cap or most, most)
            if least not in capped:
                capped[least] = limit_per_item(whole, least)
        for cap, noise in {(each.max_per_item, each.noise) for each in self.candidates}:
            alike = [each for each in self.candidates if (each.max_per_item, each.noise) == (cap, noise)]
            alike.sort(key=lambda each: each.bound)
            least = min(cap or most, most)
            way = (least, noise, *((each.bound, each.most) for each in alike))
            if way not in seen:
                totals, norms = capped[least].totals(), self.norms_of(capped[least], noise)
                spared = totals / np.maximum(events, 1) if self.flattens else np.ones(len(totals))
                seen[way] = _worth(alike, totals, norms, spared, users)
            found |= zip(alike, seen[way], strict=True)
        above = [self.above(capped[min(cap or most, most)].totals(), users) for cap in self.caps]
        return [*(found[each] for each in self.candidates), *itertools.chain(*above), *self._cap_losses(whole, users)]

    def _cap_losses(self, whole: Shard, users: np.ndarray | None) -> list[int]:
        """What users add to the loss of each cap: the shares of their items above it, rounded down, and a part for each step.
        Users without items add nothing."""
        rows = whole.rows_per_user()
        there = rows > 0
        number = int(there.sum() if users is None else users[there].sum())
        losses = []
        for step, cap in enumerate(self.caps):
            shares = 0
            if 0 < cap < int(whole.count.max(initial=0)):
                above = np.add.reduceat((whole.count > cap).astype(np.int64), whole.offsets[:-1][there])
                share = above * PARTS // rows[there]
                shares = int((share if users is None else share * users[there]).sum())
            losses.append(shares + CAP_STEP * step * number)
        return losses

    def norms_of(self, capped: Shard, noise: str) -> np.ndarray | None:
        """What a bound is a bound of: the users' l2 norms, or for Laplace noise their totals (None)."""
        return None if noise == "laplace" else np.sqrt(squared_norms(capped).astype(np.float64))

    def cap_exponents(self, table: Sequence[int]) -> list[Fraction]:
        """The exponents of the caps."""
        assert self.cap_budget is not None
        first = len(self.candidates) + len(self.caps) * len(self.norms)
        losses = [Fraction(loss, PARTS) for loss in table[first : first + len(self.caps)]]
        return em_exponents(losses, 1, self.cap_budget.epsilon_fraction)

    def under(self, cap: int) -> tuple[ClipCandidate, ...]:
        """The candidates that are left where this cap was drawn."""
        return tuple(each for each in self.candidates if each.max_per_item == cap)

    def ended(self, candidates: Sequence[ClipCandidate], items: int) -> tuple[ClipCandidate, ...]:
        """Those up to the least norm that no user can exceed on this number of items; the number is public."""
        enough: dict[tuple[int, str], int] = {}
        for each in candidates:
            most = each.max_per_item * (items if each.noise == "laplace" else root_above(items))
            if most and each.bound >= most:
                way = each.max_per_item, each.noise
                enough[way] = min(each.bound, enough.get(way, each.bound))
        return tuple(
            each for each in candidates if each.bound <= enough.get((each.max_per_item, each.noise), each.bound)
        )

    def counts_exponents(
        self, table: Sequence[int], candidates: Sequence[ClipCandidate] | None = None
    ) -> list[Fraction]:
        """The exponents of the norms R, or of these candidates."""
        assert self.counts_budget is not None
        asked = self.candidates if candidates is None else candidates
        items, worth = table[-1], dict(zip(self.candidates, table, strict=False))
        losses = [self.loss(each, worth[each], items) for each in asked]
        sensitivities = [self.sensitivity(each, items) for each in asked]
        epsilon, one_sided = self.counts_budget.epsilon_fraction, self.relation is Relation.ADD_REMOVE
        tau = math.ceil(2 / epsilon * Fraction(math.log(len(losses) / tuning.MISSED_BY_COUNTS)))
        return gem_exponents(losses, sensitivities, epsilon, one_sided, tau)

    def loss(self, candidate: ClipCandidate, worth: int, items: int) -> Fraction:
        """The loss of a candidate to which all users are worth this, in `PARTS`."""
        return items * candidate.cost - self.misplaced * Fraction(worth, PARTS)

    def sensitivity(self, candidate: ClipCandidate, items: int) -> Fraction:
        """What one user more lowers that by, at most."""
        return self.misplaced * self.most(candidate, items)

    def most(self, candidate: ClipCandidate, items: int) -> int:
        """What a user is worth to a candidate at most, where this number of items is counted."""
        if candidate.noise == "laplace":
            return candidate.most
        all_items = candidate.max_per_item * items or candidate.most
        return min(candidate.most, candidate.bound * root_above(items), all_items)

    def totals_exponents(self, table: Sequence[int], place: int = 0) -> list[Fraction]:
        """The exponents of the norms B, under the cap of this place."""
        assert self.totals_budget is not None
        first = len(self.candidates) + place * len(self.norms)
        return self.norm_exponents(table[first : first + len(self.norms)], self.totals_budget)

    def norm_exponents(self, above: Sequence[int], budget: Budget) -> list[Fraction]:
        """The exponents of the norms, by the users above each."""
        losses = em_exponents(above, 1, budget.epsilon_fraction)
        return [
            loss + log_weight(norm, tuning.LARGE_NORM_PENALTY) for loss, norm in zip(losses, self.norms, strict=True)
        ]

    def above(self, totals: np.ndarray, users: np.ndarray | None = None) -> list[int]:
        """How many users with these totals, who stand for themselves or for several each, are above each norm."""
        return tails(in_bins(self.norms, np.searchsorted(self.norms, totals), users)) if self.norms else []

    def choose(self, table: Sequence[int], lanes: Lanes) -> ClipBound:
        """The private choice."""
        return self.choose_under(self.cap_place(table, lanes), table, lanes)

    def cap_place(self, table: Sequence[int], lanes: Lanes) -> int:
        """The place of the cap that is drawn, or given."""
        return 0 if self.cap_budget is None else select(self.cap_exponents(table), lanes)

    def choose_under(self, place: int, table: Sequence[int], lanes: Lanes) -> ClipBound:
        """What is drawn once the cap is known."""
        chosen, norm, cap = NOT_ASKED, 0, self.caps[place]
        candidates = self.ended(self.candidates if self.cap_budget is None else self.under(cap), table[-1])
        if candidates and table[-1] > 0:
            chosen = candidates[select(self.counts_exponents(table, candidates), lanes)]
            cap = chosen.max_per_item
        if self.norms:
            norm = self.norms[select(self.totals_exponents(table, place), lanes)]
        return ClipBound(chosen.bound, cap, chosen.noise, norm, table[-1], cap=self.caps[place])

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
        parts = (self.counts_budget, self.totals_budget, self.cap_budget)
        return {
            "candidates": [dataclasses.astuple(each) for each in self.candidates],
            "norms": self.norms,
            "caps": self.caps,
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
    """What users, who stand for themselves or for several each, are worth to candidates of one cap and noise, from the lowest
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
