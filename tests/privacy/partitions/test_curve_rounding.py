"""Laws as they are rounded, to multiples of 2**-128: what is too small is refused, and what is drawn keeps its bound."""

from __future__ import annotations

import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.partitions import selection_curve as curves
from headcount.mechanisms.partitions.curve_budget import CurveBudget, CurvePart
from headcount.mechanisms.partitions.rounds import curve_rounds, rounds_of
from headcount.mechanisms.partitions.selection_curve import SelectionCurve, make_curve
from tests.privacy.partitions.test_selection_curve import ONE, WHOLE, chances_of, largest_ratio, own_ratio


@pytest.mark.parametrize("delta", [1e-26, 1e-36, 1e-40, 1e-45, 1e-300])
def test_a_delta_whose_chances_would_be_rounded_away_is_refused(delta):
    """At 1e-45 the first states of a curve of several items were 0 and later ones were not: 8.8e6 times delta."""
    for make in (
        lambda: CurveBudget(Budget(1, delta), ONE),
        lambda: CurvePart(Budget(1, delta), ONE, 25.0, 0.4, delta),
        lambda: rounds_of(Budget(1, delta), "law", 1, 3, ONE),
    ):
        with pytest.raises(ParameterError, match="needs a delta of at least 1e-25 here"):
            make()


@pytest.mark.parametrize(("items", "rounds"), [(1, 1), (2, 1), (1000, 3)])
def test_at_the_least_delta_laws_of_all_numbers_of_items_keep_their_bound(items, rounds):
    budget = CurveBudget(Budget(1, curves.LEAST_DELTA), ONE)
    for each in curve_rounds(budget, items, rounds):
        chances = chances_of(each.plan.law)
        assert chances[0] == 0 and chances == sorted(chances) and chances[-1] < WHOLE
    if items == 2:
        cost, shown = budget.cost(False)
        curve = SelectionCurve(each.plan.grid, each.plan.law)
        assert largest_ratio(curve, items, budget.order, cost) <= 1 and own_ratio(curve, items, shown) <= 1


def test_a_law_is_checked_as_it_is_rounded(monkeypatch):
    """Chances near 2**-128: the states that floats give keep their bound, and those that are drawn must, too."""
    order, cost, shown = 25.0, 0.4, 9 * 2.0**-126
    assert largest_ratio(make_curve(9, order, cost, shown, 2), 9, order, cost) <= 1
    with pytest.raises(ParameterError, match="cannot be computed"):
        make_curve(9, order, cost, 2.0**-126, 2)
    monkeypatch.setattr(curves, "_logits", lambda chances, wanted: wanted)  # the bug
    make_curve.cache_clear()
    wrong = make_curve(9, order, cost, shown, 2)
    make_curve.cache_clear()
    assert largest_ratio(wrong, 9, order, cost) > 1.005
