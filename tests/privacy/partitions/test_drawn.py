"""Names by law, through the code that draws: how many words name each sum, and what a user is seen by.

All is exact. Nothing is taken from the law but what it is compared with; the divergences are those of the words that name.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.counting import noisy
from headcount.mechanisms.histogram.factory import estimates
from headcount.mechanisms.partitions.rounds import rounds_of
from headcount.mechanisms.partitions.select import ChosenStrategy
from headcount.mechanisms.partitions.selection_curve import curve_weight
from headcount.mechanisms.randomness.noise import NEVER, by_curve
from tests.privacy.partitions.drawn import WHOLE, named, named_as_meant, naming_draws


def partitions_plan(items: int, delta: float = 1e-8):
    return rounds_of(Budget(1, delta), "law", items, 1, Relation.ADD_REMOVE)[0].plan


def histogram_plan(items: int, delta: float = 1e-8):
    """How the default histogram names items of users who have so many, in one round."""
    stages = estimates(Budget(1, delta), of="events").stages
    return stages.names_plan(ChosenStrategy("law", items, 1)).rounds[0].plan


def last_state(plan) -> int:
    return len(plan.law) // 16 - 1


def certain_beyond_the_last(lanes, law):
    """The bug: sums beyond the last state are named whatever is drawn."""
    drawn = by_curve(lanes, law)
    return np.where(drawn == NEVER, len(law) // 16, drawn)


def one_state_too_high(lanes, law):
    """The bug: a sum of x is named by pi(x + 1)."""
    drawn = by_curve(lanes, law)
    return np.where(drawn == NEVER, NEVER, np.maximum(drawn - 1, 0))


def as_the_law_says(monkeypatch, plan) -> bool:
    """Whether every sum, also those beyond the last state, is named by exactly as many draws as the law has for it."""
    last = last_state(plan)
    sums = [*range(1, last + 1), last + 1, last + 2**plan.grid, 10 * last, 2**61, 2**63 - 1]
    return bool(named_as_meant(monkeypatch, plan, sums).all())


@pytest.mark.parametrize("items", [1, 3, 30])
@pytest.mark.parametrize("make", [partitions_plan, histogram_plan])
def test_every_sum_is_named_by_as_many_draws_as_its_law_has(monkeypatch, make, items):
    plan = make(items)
    assert as_the_law_says(monkeypatch, plan)
    for bug in (certain_beyond_the_last, one_state_too_high):
        with monkeypatch.context() as patch:
            patch.setattr(noisy, "by_curve", bug)
            assert not as_the_law_says(monkeypatch, plan)


def test_sums_beyond_the_last_state_stay_hidden_for_the_largest_draws(monkeypatch):
    plan = histogram_plan(30)
    last = last_state(plan)
    sums = [last, last + 1, 10 * last, 2**63 - 1]
    assert not named(monkeypatch, plan, sums, [WHOLE - 1] * len(sums)).any()
    assert named(monkeypatch, plan, sums, [WHOLE // 2] * len(sums)).all()


def true_delta(monkeypatch, plan, items: int, epsilon: float) -> float:
    """The divergence of a user of so many items that others have too, all in one state, at the worst state; by the draws that
    name each sum. Sums of others go from 1 to beyond the last state."""
    weight = curve_weight(items, plan.grid) if items > 1 else 1
    sums = range(1, last_state(plan) + 2 * weight + 2)
    draws = naming_draws(monkeypatch, plan, sums)
    shown, hidden = (np.array([each / WHOLE for each in side]) for side in (draws, [WHOLE - each for each in draws]))
    k = np.arange(items + 1)
    ways = special.gammaln(items + 1) - special.gammaln(k + 1) - special.gammaln(items - k + 1)
    logs = ways + special.xlogy(k, shown[:, None]) + special.xlogy(items - k, hidden[:, None])
    chances = np.exp(logs)
    without, with_user = chances[:-weight], chances[weight:]
    ratio = math.exp(epsilon)
    both = (np.maximum(p - ratio * q, 0).sum(axis=1).max() for p, q in ((without, with_user), (with_user, without)))
    return float(max(both))


@pytest.mark.parametrize(
    ("items", "delta", "broken"), [(10, 1e-8, 2), (30, 1e-8, 6), (100, 1e-8, 20), (10, 1e-10, 200), (100, 1e-10, 2000)]
)
def test_a_user_of_many_items_keeps_delta_and_sums_that_are_named_for_certain_break_it(
    monkeypatch, items, delta, broken
):
    plan = histogram_plan(items, delta)
    assert true_delta(monkeypatch, plan, items, 1) <= delta
    monkeypatch.setattr(noisy, "by_curve", certain_beyond_the_last)
    assert true_delta(monkeypatch, plan, items, 1) > broken * delta
