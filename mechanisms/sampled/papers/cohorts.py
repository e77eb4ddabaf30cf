"""Cohorts that are drawn before their data is seen (the paper, Lemma 6): who is asked, where not everybody can be.

`draw_cohort` chooses a number of users to ask, a uniform choice that does not look at data. Each of them then takes part with
probability p, by a secret coin of its own that the release throws. Nobody else's answer counts, and nobody who was asked learns
whether theirs does.

Guarantee: the counts are (epsilon, delta)-differentially private per user, and so to an adversary who knows who was asked, and
every answer but one. Proof: given who was asked, this is sample and threshold of those users, with independent coins of
probability p, for which rate and threshold are calibrated (`plan`). Who was asked does not depend on the answers.
Proof: docs/proofs/sampled.md.

The chance of being asked is *not* counted as a part of p. The paper does so, for a sample of m out of n users of whom s are
asked. But people know that they were asked, and may tell. If all others do, the one user left takes part with probability m / s
and not m / n: at (1, 1e-6), with m = 200, s = 342 and n = 2000, delta is 21,931 times the claimed one. (Asking a secret number
of users and counting all of them has a delta of p, for the same reason.)

A user has one coin. So each counts with one item, whatever it answers, and a cohort has one question: of two items, or of two
answers, of one user both are shown or neither is, and thresholds for independent coins do not cover that. (At (1, 1e-6), with
p = 1/10 and ten items each, delta is 430 times the one that the threshold for ten coins is for.) Who needs more asks another
cohort, with a budget of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import arrow_type
from headcount.mechanisms.batches.packing import to_ipc
from headcount.mechanisms.bounding.steps import one_each, promise_of
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.checks import check_whole
from headcount.mechanisms.counting.noisy import bounded_batches, sums_of
from headcount.mechanisms.counting.released import sorted_counts
from headcount.mechanisms.counting.sums import add_sums
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.randomness.binomial import binomial
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.randomness.lane_ids import decision_lane_ids
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.subkeys import block_key, lane_key, subkey
from headcount.mechanisms.sampled.estimates import with_estimates
from headcount.mechanisms.sampled.histogram import nothing_shown, sample_steps, shown_rows
from headcount.mechanisms.sampled.plan import SamplePlan, calibrate_sample, least_threshold

MOST_USERS = 10**9


class Cohort:
    """Some of the users 0 .. users - 1, who are asked one question, and how their answers are counted.

    Guarantee: what `count` gives is (epsilon, delta)-differentially private for the plan's relation, per user, also to somebody
    who knows `asked`, the numbers of the users to ask, ascending. Which of them take part is secret.
    """

    def __init__(
        self, plan: SamplePlan, users: int, asked: np.ndarray, taking_part: np.ndarray, release: Release, label: str
    ) -> None:
        self.plan, self.users, self.asked = plan, users, asked
        self._taking_part, self._release, self._label = taking_part, release, label
        self._counted = False

    @property
    def threshold(self) -> int:
        """How many of those who take part must have an item for it to be shown, each of whom counts with one item."""
        return self.plan.threshold

    def guarantee(self) -> Guarantee:
        """What is promised of the answers to one question."""
        asked = MechanismStep("cohort", 0.0, 0.0, {"users asked, who may be known": len(self.asked)})
        steps = (asked, *sample_steps(self.plan, promise_of(one_each(1), Bound(), "")))
        return Guarantee(self.plan.epsilon, self.plan.delta, self.plan.relation, steps, losses=self.plan.losses())

    def count(self, batches: Iterable[pa.RecordBatch], item_type: type = str) -> pa.RecordBatch:
        """The released rows item, count, noise_stddev, low, high, sampled of the answers, sorted by item: once.

        The answers are contribution batches whose users are the numbers of those who were asked: all of them, whether they
        take part or not. `count` estimates how many of all users have the item.
        """
        if self._counted:
            raise ParameterError(
                "this cohort has answered already, and its coins are thrown: a second question needs a cohort of its own, "
                "drawn with another release id, and a budget of its own"
            )
        rows = nothing_shown(item_type)
        counted = [self._counted_rows(batch) for batch in batches]
        bounded = bounded_batches(counted, one_each(1), self._release, f"{self._label}/Answers")
        chunks, _ = sums_of(bounded)
        self._counted = True
        if chunks:
            items, sums = add_sums(chunks)
            if items.type != arrow_type(item_type):
                raise InputError(f"items are of type {items.type}, not {arrow_type(item_type)}; set item_type to match")
            shown = np.flatnonzero(sums >= self.threshold)
            rows = sorted_counts([to_ipc(shown_rows(items.take(pa.array(shown)), sums[shown]))])
        return with_estimates(rows, self.plan.rate * len(self.asked) / self.users, self.threshold)

    def _counted_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of users who take part."""
        user = batch.column("user")
        if isinstance(user, pa.DictionaryArray):
            user = user.dictionary_decode()
        if not pa.types.is_int64(user.type) or not np.isin(np.asarray(user), self.asked).all():
            raise InputError(
                "an answer is of nobody who was asked: users must be the numbers in `asked`, and nobody else may answer"
            )
        return batch.filter(pa.array(np.isin(np.asarray(user), self._taking_part)))


def draw_cohort(
    budget: Budget,
    users: int,
    size: int,
    release: Release,
    rate: Fraction | None = None,
    relation: Relation | str = Relation.ADD_REMOVE,
    label: str = "Cohort",
) -> Cohort:
    """A cohort of `size` of the users 0 .. users - 1, of whom each takes part with probability `rate`.

    By default the rate is the one that shows the rarest items. A release repeats its cohort: one id is for one question.
    """
    users, relation = check_whole("users", users, 1, MOST_USERS), Relation.parse(relation)
    size = check_whole("size", size, 1, users)
    plan = calibrate_sample(budget, relation=relation)
    if rate is not None:
        plan = SamplePlan(rate, least_threshold(budget, rate, relation), budget.epsilon, budget.delta, relation)
    parameters = {"users": users, "size": size, "plan": plan.to_json()}
    key = subkey(release.key_source.fetch(), release.id, label, parameters)
    asked = np.sort(_shuffled(_lanes(key, b"users", users))[:size])
    coins = binomial(_lanes(key, b"part", size), np.ones(size, dtype=np.int64), plan.rate)
    return Cohort(plan, users, asked, asked[coins == 1], release, label)


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
