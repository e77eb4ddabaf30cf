"""Audits of cohorts: what one coin per user costs with several items, and what a threshold of the wrong relation does."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.bounding.steps import LimitItemsStep, LimitPerItemStep
from headcount.mechanisms.sampled import cohorts
from headcount.mechanisms.sampled.cohorts import Cohort, draw_cohort, known_cohort
from headcount.mechanisms.sampled.divergence import sampled_delta
from headcount.mechanisms.sampled.plan import least_threshold


def _shown(users: int, rate: float, threshold: int, most: int) -> np.ndarray:
    """What is shown of an item with so many users: nothing, threshold, threshold + 1, ..., most."""
    shown = stats.binom.pmf(np.arange(threshold, most + 1), users, rate)
    return np.append(stats.binom.cdf(threshold - 1, users, rate), shown)


def _one_coin_delta(items: int, rate: float, threshold: int, others: int, epsilon: float) -> float:
    """The divergence that adding a user who counts with so many items, and has one coin for all of them, has at least: by the
    events of the rounded sum of log-ratios. Each item has so many other users."""
    without = _shown(others, rate, threshold, others + 1)
    taken = np.append(stats.binom.cdf(threshold - 2, others, rate), without[1:])
    taken[1:] = stats.binom.pmf(np.arange(threshold, others + 2) - 1, others, rate)
    ratio = np.log(np.maximum(taken, 1e-300) / np.maximum(without, 1e-300))
    cell = np.rint(np.clip(ratio, -5, 5) / 0.02).astype(int)
    cell -= cell.min()
    with_user, law = np.ones(1), np.ones(1)
    for _ in range(items):
        with_user = np.convolve(with_user, np.bincount(cell, weights=taken))
        law = np.convolve(law, np.bincount(cell, weights=without))
    with_user = (1 - rate) * law + rate * with_user
    return float(np.maximum(with_user - math.exp(epsilon) * law, 0).sum())


def _items_that_count(cohort: Cohort, items: int) -> int:
    """With how many items each member of a cohort counts, if all have so many: by the code, with a threshold of 1."""
    cohort.plan = dataclasses.replace(cohort.plan, threshold=1)
    names = pa.array([f"i{k}" for k in range(items)] * len(cohort.members))
    rows = cohort.count([contribution_batch(pa.array(np.repeat(cohort.members, items)), names)])
    return sum(rows.column("sampled").to_pylist()) // len(cohort.members)


@pytest.mark.parametrize(
    ("budget", "rate", "items", "times"),
    [(Budget(1, 1e-6), Fraction(1, 10), 10, 429.6), (Budget(1, 1e-8), Fraction(1, 20), 20, 75_285)],
)
def test_one_item_of_each_member_counts_and_with_all_of_them_delta_is_hundreds_of_times_the_claimed_one(
    make_release, monkeypatch, budget, rate, items, times
):
    """The mutation counts a member with all of its items, by the threshold for as many independent coins."""
    cohort = draw_cohort(budget, 1000, rate, make_release())
    threshold = cohort.threshold
    counted = _items_that_count(cohort, items)
    assert counted == 1
    near = range(threshold - 1, int(threshold / rate), 3)
    assert max(_one_coin_delta(counted, float(rate), threshold, k, budget.epsilon) for k in near) <= budget.delta
    monkeypatch.setattr(cohorts, "one_each", lambda _: (LimitItemsStep(items), LimitPerItemStep(1)))
    counted = _items_that_count(draw_cohort(budget, 1000, rate, make_release()), items)
    threshold = least_threshold(budget, rate, compositions=items)
    near = range(int(threshold / rate / 2), int(threshold / rate), 4)
    worst = max(_one_coin_delta(counted, float(rate), threshold, k, budget.epsilon) for k in near)
    assert worst / budget.delta == pytest.approx(times, rel=0.01)


def _replaced_delta(rate: float, threshold: int, epsilon: float) -> float:
    """The divergence at epsilon if a user of one item has another instead, the worst of many counts (a, b): a + 1 and b users
    against a and b + 1. Given what is shown of the second item, the first one's has a best cut, as its ratio increases."""

    def of(a: int, b: int) -> float:
        (p, q), (r, s) = (
            tuple(_shown(n, rate, threshold, max(a, b) + 1) for n in pair) for pair in ((a + 1, a), (b, b + 1))
        )
        ratio = np.divide(p, q, out=np.full(len(p), np.inf), where=q > 0)
        p, q = (np.append(np.cumsum(law[::-1])[::-1], 0) for law in (p, q))
        cut = np.divide(math.exp(epsilon) * s, r, out=np.full(len(r), np.inf), where=r > 0)
        at = np.searchsorted(ratio, cut, side="right")
        finite = r > 0
        return float((r[finite] * (p[at[finite]] - cut[finite] * q[at[finite]])).sum())

    counts = np.unique(np.linspace(threshold - 1, 2.2 * threshold / rate, 40).astype(int)).tolist()
    return max(of(a, b) for a in counts for b in counts)


def test_a_known_cohort_has_the_threshold_of_replaced_users_and_that_of_added_ones_breaks_delta():
    """Exact, of 1000 among 10,000 users at (0.1, 1e-6): 1.87 times (8 times of 2500). At (0.5, 1e-6) the accounting says 1.22
    times."""
    cohort = known_cohort(Budget(0.1, 1e-6), 10_000, 1000)
    wrong, rate = least_threshold(cohort.rest, cohort.sampled), float(cohort.sampled)
    assert (wrong, cohort.threshold) == (38, 44)
    assert _replaced_delta(rate, cohort.threshold, 0.1) <= cohort.rest.delta
    assert _replaced_delta(rate, wrong, 0.1) == pytest.approx(1.87e-6, rel=0.02)
    half = known_cohort(Budget(0.5, 1e-6), 10_000, 2500)
    wrong = least_threshold(half.rest, half.sampled)
    assert sampled_delta(0.5, half.sampled, wrong, Relation.REPLACE) == pytest.approx(1.22e-6, rel=0.01)
    assert sampled_delta(0.5, half.sampled, half.threshold, Relation.REPLACE) <= half.rest.delta
