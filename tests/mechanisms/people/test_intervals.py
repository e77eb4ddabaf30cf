"""Intervals of counts and shares hold as often as they say, over thousands of releases at once: one for each value of `by`."""

from __future__ import annotations

import numpy as np
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.people.questions import ActivesQuestion, ActivityQuestion, FunnelQuestion, RetentionQuestion
from headcount.mechanisms.people.shares import Part, deviations, falling, shares
from headcount.mechanisms.people.table import make_table, noisy_cells

RELEASES = 40_000  # so that .94 and .96 are nine standard deviations from .95: a false alarm is far below 1e-6


def noisy(table, true):
    """Cells with the noise that a release draws, of one fixed key: that of cells without users, to which those are added."""
    return true + noisy_cells([], [], table, RELEASES, bytes(range(32)))


def held(found, name, true, ends=("low", "high")):
    """How often an interval holds what is true, by row."""
    low, high = (found[f"{name}{end}"].to_numpy(zero_copy_only=False).reshape(RELEASES, -1) for end in ends)
    return ((low <= true) & (true <= high)).mean(axis=0)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("depths", [(5000, 3000, 2000, 4000), (500, 20000, 300, 900), (9000, 700)])
def test_those_of_a_funnel(kind, depths):
    question = FunnelQuestion(tuple(f"page={k}" for k in range(len(depths))))
    table = make_table(Budget(0.02, 1e-6), question.sizes, 1, Relation.ADD_REMOVE, kind)
    true = np.cumsum(np.array(depths, dtype=float)[::-1])[::-1]
    found = question.answer(noisy(table, np.array(depths, dtype=float)), table.noise())
    assert ((held(found, "", true) > 0.94) & (held(found, "", true) < 0.96)).all()
    for name, share in (("share_of_first_", true / true[0]), ("share_of_before_", true[1:] / true[:-1])):
        often = held(found, name, share if len(share) == len(true) else np.append(1, share))[1:]
        assert ((often > 0.94) & (often < 0.98)).all(), name  # more where the share may be all


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_those_of_activity(kind):
    true = np.array([4000.0, 900, 15000, 2500])
    question = ActivityQuestion((1, 2, 4, 9))
    table = make_table(Budget(0.02, 1e-6), question.sizes, 1, Relation.ADD_REMOVE, kind)
    found = question.answer(noisy(table, true), table.noise())
    for often in (held(found, "", true), held(found, "share_", true / true.sum())):
        assert ((often > 0.94) & (often < 0.96)).all()


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_those_of_retention(kind):
    """Also where a draw is shared by a row, which the share takes off again where it is large."""
    question = RetentionQuestion((0, 7, 14, 21))
    table = make_table(Budget(0.05, 1e-6), question.sizes, question.most, Relation.ADD_REMOVE, kind)
    true = np.array([9000.0, 7000, 6500, 3000, 8000, 2500, 2000, 5000, 4900, 6000])
    cohort = np.repeat(np.array([9000.0, 8000, 5000, 6000]), question.sizes)
    found = question.answer(noisy(table, true), table.noise())
    for often, ages in (
        (held(found, "", true), slice(None)),
        (held(found, "share_", true / cohort), [1, 2, 3, 5, 6, 8]),
    ):
        assert ((often[ages] > 0.94) & (often[ages] < 0.98)).all()  # more where the share may be all


def test_those_of_actives():
    """A longer window has all users of a shorter one, also after the noise."""
    question = ActivesQuestion(0, 2)
    table = make_table(Budget(0.05, 1e-6), question.sizes, question.most, Relation.ADD_REMOVE, "gaussian")
    true = np.array([2000.0, 3000, 4000, 9000, 8000, 7500, 20000, 19000, 18000])
    found = question.answer(noisy(table, true), table.noise())
    by_day = true.reshape(3, 3).T
    often = held(found, "", by_day.reshape(-1))
    assert ((often > 0.94) & (often < 0.96)).all()
    often = held(found, "share_", (by_day / by_day[:, 2:]).reshape(-1))[[0, 1, 3, 4, 6, 7]]
    assert ((often > 0.94) & (often < 0.96)).all()
    close = question.answer(noisy(table, np.full(9, 3000.0)), table.noise())["count"].to_numpy().reshape(-1, 3)
    assert (np.diff(close, axis=1) >= 0).all()


def test_a_share_is_between_0_and_1_and_of_nothing_it_is_unknown():
    numerator, denominator = np.array([5.0, -3.0, 20.0, 0.0]), np.array([10.0, 10.0, 10.0, -4.0])
    share, low, high = shares(numerator, denominator, [Part(1, 1, 4.0, 3.0), Part(0, 1, 4.0, 3.0)])
    assert share[:3].tolist() == [0.5, 0.0, 1.0] and np.isnan(share[3])
    assert (low[3], high[3]) == (0.0, 1.0)
    known = low[:3] >= 0, low[:3] <= share[:3], share[:3] <= high[:3], high[:3] <= 1
    assert all(each.all() for each in known)


def test_the_quantile_of_a_sum_of_draws_is_near_the_exact_one():
    rng = np.random.default_rng(1)
    for draws in (1, 2, 5):
        sums = rng.laplace(0, np.sqrt(0.5 / draws), (2_000_000, draws)).sum(axis=1)
        assert np.quantile(np.abs(sums), 0.95) == pytest.approx(deviations(3 / draws), rel=0.03)


def test_counts_of_a_funnel_fall_whatever_the_noise_is():
    rng = np.random.default_rng(4)
    table = falling(rng.normal(2, 5, (500, 6)), 1 / np.arange(6, 0, -1))
    assert (np.diff(table, axis=1) <= 1e-9).all() and (table >= 0).all()
    straight = np.array([[9.0, 5.0, 1.0]])
    assert falling(straight, np.ones(3)).tolist() == straight.tolist()
    assert falling(np.array([[1.0, 3.0]]), np.array([1.0, 3.0])).tolist() == [[2.5, 2.5]]
    question = FunnelQuestion(("a=b", "c=d", "e=f"))
    noise = make_table(Budget(0.1), question.sizes, 1, Relation.ADD_REMOVE, "laplace").noise()
    counts = question.answer(rng.normal(0, 30, (200, 3)), noise)["count"].to_numpy().reshape(200, 3)
    assert (np.diff(counts, axis=1) <= 0).all() and (counts >= 0).all()


def test_the_parts_of_a_triangle_have_less_noise_the_later_their_cohort():
    table = make_table(Budget(1.0, 1e-8), (12, 11, 2, 1), 12, Relation.ADD_REMOVE, "gaussian")
    each = [plan.stddev for plan in table.plans]
    assert each == sorted(each, reverse=True) and each[0] > 2 * each[-1]
    alone = make_table(Budget(1.0, 1e-8), (12,), 12, Relation.REPLACE, "gaussian").plans[0].stddev
    assert each[0] < 0.75 * alone / np.sqrt(2), "the draw that a row shares"
