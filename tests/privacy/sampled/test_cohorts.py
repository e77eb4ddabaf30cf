"""Audits of cohorts: an adversary who knows who was asked, and what one coin per user costs with several items."""

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
from headcount.mechanisms.sampled.papers import cohorts
from headcount.mechanisms.sampled.papers.cohorts import Cohort, draw_cohort
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
    """With how many items each who takes part counts, if all have so many: by the code, with a threshold of 1."""
    cohort.plan = dataclasses.replace(cohort.plan, threshold=1)
    names = pa.array([f"i{k}" for k in range(items)] * len(cohort.asked))
    rows = cohort.count([contribution_batch(pa.array(np.repeat(cohort.asked, items)), names)])
    return sum(rows.column("sampled").to_pylist()) // len(cohort._taking_part)


@pytest.mark.parametrize(
    ("budget", "rate", "items", "times"),
    [(Budget(1, 1e-6), Fraction(1, 10), 10, 429.6), (Budget(1, 1e-8), Fraction(1, 20), 20, 75_285)],
)
def test_one_item_of_each_user_counts_and_with_all_of_them_delta_is_hundreds_of_times_the_claimed_one(
    make_release, monkeypatch, budget, rate, items, times
):
    """The mutation counts a user with all of its items, by the threshold for as many independent coins."""
    cohort = draw_cohort(budget, 3000, 1000, make_release(), rate)
    threshold = cohort.threshold
    counted = _items_that_count(cohort, items)
    assert counted == 1
    near = range(threshold - 1, int(threshold / rate), 3)
    assert max(_one_coin_delta(counted, float(rate), threshold, k, budget.epsilon) for k in near) <= budget.delta
    monkeypatch.setattr(cohorts, "one_each", lambda _: (LimitItemsStep(items), LimitPerItemStep(1)))
    counted = _items_that_count(draw_cohort(budget, 3000, 1000, make_release(), rate), items)
    threshold = least_threshold(budget, rate, compositions=items)
    near = range(int(threshold / rate / 2), int(threshold / rate), 4)
    worst = max(_one_coin_delta(counted, float(rate), threshold, k, budget.epsilon) for k in near)
    assert worst / budget.delta == pytest.approx(times, rel=0.01)


def _chance_to_take_part(users: int, size: int, releases: int, make_release) -> float:
    """The share of releases in which the last who was asked takes part, as seen by somebody who knows who was asked and all
    other answers: by what the cohort counts, with a threshold of 1."""
    seen = 0
    for number in range(releases):
        cohort = draw_cohort(Budget(1, 1e-6), users, size, make_release(f"r{number}"))
        cohort.plan = dataclasses.replace(cohort.plan, threshold=1)
        items = ["others"] * (size - 1) + ["mine"]
        rows = cohort.count([contribution_batch(pa.array(cohort.asked), pa.array(items))])
        seen += "mine" in rows.column("item").to_pylist()
    return seen / releases


def _asked_delta(chance: float, threshold: int, others: int, epsilon: float) -> float:
    """The divergence of one user more who was asked, where so many others who were asked have its item."""
    most = others + 1
    law, more = (_shown(n, chance, threshold, most) for n in (others, others + 1))
    both = ((more, law), (law, more))
    return max(float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) for p, q in both)


def test_delta_holds_for_whoever_knows_who_was_asked(make_release):
    """The chance that the cohort's own code lets one of the asked take part is the one that its threshold is for: 2,000 draws
    within 5.5 standard deviations (4e-8). With that chance delta holds whatever others have; with the threshold of the paper's
    Lemma 6, for the chance m / n of being asked *and* taking part, it is 21,931 times as large."""
    budget, users, sample, size = Budget(1, 1e-6), 2000, 200, 342
    cohort = draw_cohort(budget, users, size, make_release())
    chance = float(cohort.plan.rate)
    found = _chance_to_take_part(50, 10, 2000, make_release)
    assert abs(found - chance) < 5.5 * math.sqrt(chance * (1 - chance) / 2000)
    near = range(cohort.threshold - 1, int(4 * cohort.threshold / chance))
    assert 0.5e-6 < max(_asked_delta(chance, cohort.threshold, k, 1) for k in near) <= 1e-6
    # The paper: `size` is sample + 10 sqrt(sample), each takes part with sample / size, the threshold is for sample / users.
    threshold = least_threshold(Budget(1, 0.9e-6), Fraction(sample, users), Relation.REPLACE)
    worst = max(_asked_delta(sample / size, threshold, k, 1) for k in range(threshold - 1, 100))
    assert worst / 1e-6 == pytest.approx(21_931, rel=0.001)
