"""Cohorts that are drawn before their data is seen (the paper, Lemma 6): who is asked, where not everybody can be.

Sample and threshold takes each user with probability p, by itself. Asking a fixed number of users is something else: where all
asked users but one are known to have one item, their number tells whether the last one was among them, and delta is at least p.
Two ways are left:

* `draw_cohort` draws the number of users as the independent coins would, S ~ Bin(n, p), and then S users without replacement:
  the same law as the coins, hence the same guarantee, *as long as S stays secret*.
* `known_cohort` is for a size that an adversary knows: s = m + c sqrt(m) users are asked, and each takes part with probability
  m / s, secretly. This is not the law of independent coins (the number who take part varies by sqrt(c) m^(1/4) in place of
  sqrt(m)), and c is a parameter of the privacy. With n = 2000, m = 400 and epsilon = 0.1 the coins have a delta of 6e-27. There
  it is 2e-11 at c = 10, 1e-6 at c = 3, 3e-4 at c = 1 and 0.2 at c = 0. So it is checked, by that worst case, and refused unless
  it leaves nine tenths of delta; it holds for replaced users only, since n is public.

Both give a `Cohort`, which counts the answers itself. Its members have one coin each, thrown when they were drawn. So each
counts with one item, whatever it answers, and a cohort has one question: of two items, or of two answers, of one member both
are shown or neither is, and thresholds for independent coins do not cover that. (At (1, 1e-6), with p = 1/10 and ten items
each, delta is 430 times the one that the threshold for ten coins is for.) Who needs more asks another cohort, with a budget of
its own.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pyarrow as pa

from headcount.mechanisms.accounting.bound import Bound
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.losses.parts import Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import arrow_type
from headcount.mechanisms.batches.packing import to_ipc
from headcount.mechanisms.bounding.steps import one_each, promise_of
from headcount.mechanisms.checks import check_whole
from headcount.mechanisms.counting.noisy import bounded_batches
from headcount.mechanisms.counting.released import sorted_counts
from headcount.mechanisms.counting.sums import add_sums, sum_items
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.randomness.binomial import binomial
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.randomness.lane_ids import decision_lane_ids
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.subkeys import block_key, lane_key, subkey
from headcount.mechanisms.sampled.estimates import with_estimates
from headcount.mechanisms.sampled.histogram import nothing_shown, sample_steps, shown_rows
from headcount.mechanisms.sampled.plan import SamplePlan, least_threshold

LEAST_SLACK = 10
MOST_USERS = 10**9


class Cohort:
    """Some of the users 0 .. users - 1, who were drawn to answer one question, and how their answers are counted.

    Guarantee: what `count` gives is (epsilon, delta)-differentially private for the plan's relation, per user: one item of each
    member, a uniform choice, and items that fewer members have than the threshold stay hidden. `members`, the numbers of those
    who take part, ascending, are secret, as is how many they are; so is all of it but what `count` gives. `asked` are the
    numbers of all who are asked, if everybody may know how many they are.
    """

    def __init__(
        self,
        budget: Budget,
        plan: SamplePlan,
        members: np.ndarray,
        asked: np.ndarray | None,
        release: Release,
        label: str,
    ) -> None:
        self.plan, self.members, self.asked = plan, members, asked
        self._budget, self._release, self._label = budget, release, label
        self._counted = False

    @property
    def threshold(self) -> int:
        """How many members must have an item for it to be shown, each of whom counts with one item."""
        return self.plan.threshold

    def guarantee(self) -> Guarantee:
        """What is promised of the answers to one question."""
        steps = sample_steps(self.plan, promise_of(one_each(1), Bound(), ""))
        budget, losses = self._budget, self.plan.losses()
        if self.asked is not None:
            share = budget.delta - self.plan.delta
            steps += (MechanismStep("known size", 0.0, share, {"users asked": len(self.asked)}),)
            losses = Losses.of_promise(budget.epsilon, budget.delta)  # the law is not that of the coins
        return Guarantee(budget.epsilon, budget.delta, self.plan.relation, steps, losses=losses)

    def count(self, batches: Iterable[pa.RecordBatch], item_type: type = str) -> pa.RecordBatch:
        """The released rows item, count, noise_stddev, low, high, sampled of the members' answers, sorted by item: once.

        The answers are contribution batches whose users are the numbers of members. `count` estimates how many of all users
        have the item.
        """
        if self._counted:
            raise ParameterError(
                "this cohort has answered already, and its coins are thrown: a second question needs a cohort of its own, "
                "drawn with another release id, and a budget of its own"
            )
        rows = nothing_shown(item_type)
        batches = [self._of_members(batch) for batch in batches]
        bounded = bounded_batches(batches, one_each(1), self._release, f"{self._label}/Answers")
        chunks = [chunk for batch in bounded for _, chunk in sum_items(batch, 1)]
        self._counted = True
        if chunks:
            items, sums = add_sums(chunks)
            if items.type != arrow_type(item_type):
                raise InputError(f"items are of type {items.type}, not {arrow_type(item_type)}; set item_type to match")
            shown = np.flatnonzero(sums >= self.threshold)
            rows = sorted_counts([to_ipc(shown_rows(items.take(pa.array(shown)), sums[shown]))])
        return with_estimates(rows, self.plan.rate, self.threshold)

    def _of_members(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        user = batch.column("user")
        if isinstance(user, pa.DictionaryArray):
            user = user.dictionary_decode()
        if not pa.types.is_int64(user.type) or not np.isin(np.asarray(user), self.members).all():
            raise InputError(
                "an answer is not of a member of the cohort: users must be the numbers of members, and nobody else may answer"
            )
        return batch


def draw_cohort(
    budget: Budget,
    users: int,
    rate: Fraction,
    release: Release,
    relation: Relation | str = Relation.ADD_REMOVE,
    label: str = "Cohort",
) -> Cohort:
    """A cohort of the users 0 .. users - 1: each is a member with probability `rate`, independently.

    How many there are must stay secret. A release repeats its cohort: one id is for one question.
    """
    users, relation = check_whole("users", users, 1, MOST_USERS), Relation.parse(relation)
    if isinstance(rate, bool) or not isinstance(rate, Fraction) or not 0 < rate < 1:
        raise ParameterError(f"the rate must be a Fraction between 0 and 1, got {rate!r}")
    plan = _plan(budget, rate, relation)
    key = subkey(release.key_source.fetch(), release.id, label, {"users": users, "rate": rate})
    size = int(binomial(_lanes(key, b"size", 1), [users], rate)[0])
    members = np.sort(_shuffled(_lanes(key, b"users", users))[:size])
    return Cohort(budget, plan, members, None, release, label)


@functools.lru_cache(maxsize=64)
def _plan(budget: Budget, rate: Fraction, relation: Relation) -> SamplePlan:
    """The threshold for one item of each user, who are sampled with this rate already."""
    return SamplePlan(rate, least_threshold(budget, rate, relation), budget.epsilon, budget.delta, relation)


def _lanes(key: bytes, what: bytes, count: int) -> Lanes:
    return Lanes(block_key(key, what), decision_lane_ids(lane_key(key), what, count))


def _shuffled(lanes: Lanes) -> np.ndarray:
    """The lanes in random order: by their words, with as many more words as it takes to tell all apart."""
    every = np.arange(lanes.n)
    words = [lanes.words(every)]
    while True:
        order = np.lexsort(words)
        same = np.ones(max(0, lanes.n - 1), dtype=bool)
        for column in words:
            same &= np.diff(column[order]) == 0
        if not same.any():
            return order
        words.append(lanes.words(every))


@dataclasses.dataclass(frozen=True)
class KnownCohort:
    """`size` of `users` are asked, a uniform choice, and each takes part with probability `rate`, in secret. For REPLACE.

    Together they take part with probability `sampled`, for which the threshold is calibrated, with the `rest` of the budget:
    that the size is known costs the other part.
    """

    users: int
    size: int
    rate: Fraction
    budget: Budget

    def __post_init__(self) -> None:
        lost = known_size_delta(self.users, self.rate * self.size, self.size, self.budget.epsilon)
        if lost > self.budget.delta / 10:
            raise ParameterError(
                f"a known cohort of {self.size} for a sample of {float(self.rate * self.size):g} of {self.users} users has a "
                f"delta of {lost:.2g} at epsilon = {self.budget.epsilon}, more than a tenth of {self.budget.delta}: raise the "
                "slack, or keep the size secret"
            )

    @property
    def rest(self) -> Budget:
        """What is left for showing items."""
        return Budget(self.budget.epsilon, math.nextafter(self.budget.delta * 0.9, 0))

    @property
    def sampled(self) -> Fraction:
        """The probability that a user takes part."""
        return self.rate * self.size / self.users

    @property
    def threshold(self) -> int:
        """How many members must have an item for it to be shown, each of whom counts with one item."""
        return self._plan.threshold

    @property
    def _plan(self) -> SamplePlan:
        return _plan(self.rest, self.sampled, Relation.REPLACE)

    def draw(self, release: Release, label: str = "KnownCohort") -> Cohort:
        """Who is asked, and who of them takes part: the latter in secret. One id is for one question."""
        parameters = {"users": self.users, "size": self.size, "rate": self.rate}
        key = subkey(release.key_source.fetch(), release.id, label, parameters)
        asked = np.sort(_shuffled(_lanes(key, b"users", self.users))[: self.size])
        takes_part = binomial(_lanes(key, b"part", self.size), np.ones(self.size, dtype=np.int64), self.rate)
        return Cohort(self.budget, self._plan, asked[takes_part == 1], asked, release, label)


def known_cohort(
    budget: Budget, users: int, sample: int, slack: float = LEAST_SLACK, relation: Relation | str = Relation.REPLACE
) -> KnownCohort:
    """A cohort of a size that everybody may know, of which `sample` users take part on average; refused if it gives them away.

    The check is of the worst case that is known, and no proof: where the size can be kept secret, `draw_cohort` has one.
    """
    users, sample = check_whole("users", users, 1, MOST_USERS), check_whole("sample", sample, 1, MOST_USERS)
    if Relation.parse(relation) is not Relation.REPLACE:
        raise ParameterError(
            f"a cohort of known size protects replaced users only, as it shows how many there are: give relation = "
            f"{Relation.REPLACE.value!r}, got {Relation.parse(relation).value!r}"
        )
    if isinstance(slack, bool) or not LEAST_SLACK <= slack <= MOST_USERS:
        raise ParameterError(f"the slack of a cohort of known size must be at least {LEAST_SLACK}, got {slack!r}")
    size = math.ceil(sample + slack * math.sqrt(sample))
    if size > users:
        raise ParameterError(
            f"a sample of {sample} with a slack of {slack} needs a cohort of {size}, more than the {users} users there are"
        )
    return KnownCohort(users, size, Fraction(sample, size), budget)


def known_size_delta(users: int, sample: int | Fraction, size: int, epsilon: float) -> float:
    """The divergence at `epsilon` where all users have one item, but for one whose own item stays hidden; both directions.

    Of t ~ Bin(size, sample / size) who take part, that user is one with probability t / users: then t - 1 are seen.
    """
    from scipy import stats  # slow to import, and nobody else needs it

    seen = np.arange(size + 1)
    without = stats.binom.pmf(seen, size, float(sample) / size)
    above = np.append(without[1:], 0.0)
    with_user = (1 - seen / users) * without + (seen + 1) / users * above
    both = [(with_user, without), (without, with_user)]
    return max(float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) for p, q in both) * (1 + 1e-9)
