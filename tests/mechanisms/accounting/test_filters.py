"""The filter and odometer: what they allow is compared with sums of exact fractions, by replaying the ledger."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.mechanisms.accounting.budget import Zcdp
from headcount.mechanisms.accounting.filters import BudgetExceeded, ZcdpFilter
from headcount.mechanisms.errors import HeadcountError, ParameterError

UNIT = Fraction(1, 2**100)
costs = st.fractions(0, 1, max_denominator=10**12)


def replayed(ledger):
    """rho and delta of a ledger, added up anew."""
    return sum((spend.rho for spend in ledger), Fraction(0)), sum((spend.delta for spend in ledger), Fraction(0))


@pytest.mark.seconds
@settings(max_examples=200, deadline=None)
@given(st.floats(1e-9, 3), st.floats(0, 0.4), st.lists(st.tuples(costs, costs.map(lambda c: c / 5)), max_size=30))
def test_whatever_is_asked_the_ledger_never_exceeds_the_budget(rho, delta, asked):
    meter = ZcdpFilter(Zcdp(rho, delta))
    whole = Fraction(repr(rho)), Fraction(repr(delta))
    true = [Fraction(0), Fraction(0)]
    for number, cost in enumerate(asked):
        before = meter.spent
        # What fits is refused only if it is within the rounding, of one unit for each spend and one for the budget.
        fits = all(part + more <= most for part, more, most in zip(true, cost, whole, strict=True))
        close = all(
            part + more + (number + 2) * UNIT <= most for part, more, most in zip(true, cost, whole, strict=True)
        )
        allowed = meter.can(*cost)
        assert close <= allowed <= fits
        if allowed:
            meter.spend(*cost, f"step {number}")
            true = [part + more for part, more in zip(true, cost, strict=True)]
        else:
            with pytest.raises(BudgetExceeded):
                meter.spend(*cost, f"step {number}")
            assert meter.spent == before
    assert replayed(meter.ledger) == meter.spent
    for spent, exact, left, most in zip(meter.spent, true, meter.left, whole, strict=True):
        assert exact <= spent <= exact + len(asked) * UNIT
        assert spent <= most and 0 <= left <= most - spent < left + UNIT


def test_the_budget_is_the_decimal_that_it_prints_as():
    """Ten times a tenth is one, though the float 0.1 is more than a tenth; and not the least bit more fits."""
    meter = ZcdpFilter(Zcdp(1, 1e-6))
    for _ in range(10):
        meter.spend(Fraction(1, 10) - UNIT, Fraction(1, 10**7) - UNIT, "a tenth")
    assert not meter.can(Fraction(1, 10**6), Fraction(0)) and not meter.can(Fraction(0), Fraction(1, 10**12))
    assert meter.can(Fraction(0), Fraction(0))
    exact = ZcdpFilter(Zcdp(0.5))
    exact.spend(Fraction(1, 2), Fraction(0), "all")
    assert exact.left == (0, 0) and exact.spent == (Fraction(1, 2), 0)


def test_costs_are_rounded_up():
    meter = ZcdpFilter(Zcdp(1))
    meter.spend(Fraction(1, 3), Fraction(0), "a third")
    assert Fraction(1, 3) < meter.spent[0] <= Fraction(1, 3) + UNIT
    meter.spend(Fraction(1, 10**60), Fraction(0), "next to nothing")
    assert meter.ledger[1].rho == UNIT


def test_either_part_alone_refuses_and_says_so():
    meter = ZcdpFilter(Zcdp(0.1, 1e-3))
    for cost in ((Fraction(1, 5), Fraction(0)), (Fraction(0), Fraction(1, 500))):
        assert not meter.can(*cost)
        with pytest.raises(
            HeadcountError, match="the 7th draw costs rho = .* rho = 0.1 and delta = 0.001: nothing was spent"
        ):
            meter.spend(*cost, "the 7th draw")
    assert meter.ledger == () and meter.spent == (0, 0)
    meter.spend(Fraction(1, 20), Fraction(1, 2000), "half")
    assert [spend.what for spend in meter.ledger] == ["half"]


@pytest.mark.parametrize("cost", [-1, Fraction(-1, 10**9), 0.1, True, None])
def test_costs_must_be_exact_and_not_negative(cost):
    meter = ZcdpFilter(Zcdp(1, 0.1))
    for name, pair in (("rho", (cost, Fraction(0))), ("delta", (Fraction(0), cost))):
        with pytest.raises(ParameterError, match=f"a cost in {name} must be an integer or Fraction, 0 or more, got"):
            meter.spend(*pair, "step")
    assert meter.spent == (0, 0)
