"""Intervals of items that reached a threshold: they hold the truth as often as they say also for those that did so by luck."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.calibration import intervals
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.intervals import half_width, outward, shown_ends
from headcount.mechanisms.calibration.noise import calibrate_unknown_domain
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.partitions.rounds import one_step_round, rounds_of

BUDGET = Budget(1.0, 1e-6)


def of_bound(bound: int, noise: str) -> NoisePlan:
    return calibrate_unknown_domain(BUDGET, Bound(l0=bound, l1=bound, linf=bound), "add-remove", noise)


PLANS = {
    "Laplace, one event": of_bound(1, "laplace"),
    "Laplace, 50 events": of_bound(50, "laplace"),
    "Laplace, 1,000 events": of_bound(1000, "laplace"),
    "Laplace, names and counts at once": one_step_round(BUDGET, Relation.ADD_REMOVE, "count").plan,
    "Gaussian, 10 events": of_bound(10, "gaussian"),
    "Gaussian, 500 events": of_bound(500, "gaussian"),
    "truncated": rounds_of(BUDGET, "truncated-geometric", 1, 3, Relation.ADD_REMOVE)[0].plan,
}


def noise_law(plan: NoisePlan) -> tuple[np.ndarray, np.ndarray]:
    """All values of the noise, in steps of the grid, and their probabilities."""
    scale, most = float(plan.scale), int(float(plan.scale) * (9 if plan.kind == "gaussian" else 40))
    value = np.arange(-most, most + 1)
    if plan.kind == "truncated-geometric":
        value = np.arange(1 - plan.threshold, plan.threshold)
    weight = np.exp(-0.5 * (value / scale) ** 2 if plan.kind == "gaussian" else -np.abs(value) / scale)
    return value, weight / weight.sum()


def shown(plan: NoisePlan, true: int) -> tuple[np.ndarray, np.ndarray]:
    """All counts that may be shown of this true one, and their probabilities given that it is."""
    value, weight = noise_law(plan)
    noisy = (true << plan.grid) + value
    reached = noisy >= plan.threshold
    half = (1 << plan.grid) >> 1
    return ((noisy[reached] + half) >> plan.grid).astype(float), weight[reached] / weight[reached].sum()


def truths(plan: NoisePlan) -> list[int]:
    """Counts far below the threshold, near it, and far above, by the scale of the noise."""
    places = (plan.threshold + part * float(plan.scale) for part in (-5, -3, -2, -1, -0.5, 0, 0.5, 1, 2, 4, 9))
    return sorted({max(1, round(place / 2**plan.grid)) for place in places})


def naive(plan: NoisePlan, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The interval of the noise, whatever was hidden."""
    half = half_width(plan) * 2.0**-plan.grid + 0.5
    return outward(count - half, count + half)


def coverage(plan: NoisePlan, true: int, ends) -> float:
    count, chance = shown(plan, true)
    low, high = ends(plan, count)
    return float(chance[(low <= true) & (true <= high)].sum())


@pytest.mark.parametrize("name", PLANS)
def test_of_what_is_shown_95_percent_hold_also_near_the_threshold_where_plain_intervals_fail(name):
    """Exact, by sums over the whole law: nothing is drawn. Plain intervals hold next to nothing of what is three scales below
    the threshold and shown by luck."""
    plan = PLANS[name]
    held = {true: coverage(plan, true, shown_ends) for true in truths(plan)}
    assert min(held.values()) >= 0.95 - 1e-6, held
    assert max(held.values()) < 0.996
    plain = {true: coverage(plan, true, naive) for true in truths(plan)}
    assert min(plain.values()) < 0.35, plain


@pytest.mark.parametrize("name", PLANS)
def test_far_above_the_threshold_they_are_the_plain_ones(name):
    plan = PLANS[name]
    count = np.floor((plan.threshold + 30 * float(plan.scale)) / 2**plan.grid + np.arange(3.0))
    half = half_width(plan) * 2.0**-plan.grid
    low, high = shown_ends(plan, count)
    assert (np.abs(count - half - low) < 1.6).all() and (np.abs(count + half - high) < 1.6).all()


@pytest.mark.parametrize("name", PLANS)
def test_ends_rise_with_the_count_hold_it_and_begin_at_one_user(name):
    plan = PLANS[name]
    count = np.unique(np.rint(np.linspace(plan.threshold, plan.threshold + 25 * float(plan.scale), 500) / 2**plan.grid))
    low, high = shown_ends(plan, count)
    assert (low >= 1).all() and (low <= count).all() and (count <= high).all()
    assert (np.diff(low) >= 0).all() and (np.diff(high) >= 0).all()
    assert low[0] == 1, "what has just reached the threshold may be of one user"


def test_parts_of_a_scale_make_intervals_no_narrower_and_hardly_wider(monkeypatch):
    """With one part for each step of the grid they are exact: the others hold them, and are little wider in the mean."""
    plan = PLANS["Laplace, 1,000 events"]
    count = np.arange(plan.threshold, plan.threshold + 24_000, 59.0)
    low, high = shown_ends(plan, count)
    monkeypatch.setattr(intervals, "_PARTS", 10**9)
    exact = shown_ends(plan, count)
    assert (low <= exact[0]).all() and (exact[1] <= high).all()
    assert (exact[1] - exact[0]).sum() < (high - low).sum() < 1.03 * (exact[1] - exact[0]).sum()


def test_a_lower_threshold_than_that_of_the_release_is_caught():
    """Intervals for another threshold, as if fewer items were hidden, hold less than they say near the true one."""
    plan = PLANS["Gaussian, 10 events"]
    wrong = dataclasses.replace(plan, threshold=plan.threshold - 2 * int(plan.scale))
    true = round((plan.threshold - 2 * float(plan.scale)) / 2**plan.grid)
    assert coverage(plan, true, lambda plan, count: shown_ends(wrong, count)) < 0.9 < coverage(plan, true, shown_ends)
