"""What a user who is there in several windows is promised."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.accounting.windows import over_windows, window_description, window_of
from headcount.mechanisms.errors import ParameterError


def test_pure_promises_add_up_and_laplace_noise_attains_the_sum():
    assert over_windows(0.1, 0.0, 7) == (0.7, 0.0)
    # A count to which each of 7 windows adds one, with Laplace noise of scale 1 / epsilon: far out, the densities of 0 and 7.
    ratio = math.exp(-0.1 * abs(100 - 7)) / math.exp(-0.1 * 100)
    assert math.log(ratio) == pytest.approx(0.7, rel=1e-12)


@pytest.mark.parametrize(
    ("epsilon", "delta", "windows"), [(1.0, 1e-8, 7), (0.1, 1e-6, 30), (2.0, 1e-12, 3), (0.5, 0.01, 2)]
)
def test_delta_is_the_sum_over_the_steps_and_never_below(epsilon, delta, windows):
    total, bound = over_windows(epsilon, delta, windows)
    exact = Fraction(delta) * sum(Fraction(math.exp(step * epsilon)) for step in range(windows))
    assert total == pytest.approx(windows * epsilon, rel=1e-12)
    assert exact <= Fraction(bound) <= exact * (1 + Fraction(1, 10**6))


@pytest.mark.parametrize("windows", [2, 3, 5])
def test_no_mechanism_that_keeps_the_promise_breaks_the_total(windows):
    """The worst mechanism for (epsilon, delta), chained: each step moves as much mass as it may, and the bound is attained."""
    epsilon, delta = 0.4, 0.001
    total, bound = over_windows(epsilon, delta, windows)
    bad = [0.0]  # the probability of one outcome, from that of the data set one step away
    for _ in range(windows):
        bad.append(math.exp(epsilon) * bad[-1] + delta)
    assert bad[-1] - math.exp(total) * bad[0] == pytest.approx(bound, rel=1e-6)
    assert bad[-1] <= bound
    assert bad[-1] > windows * delta  # deltas that only add up would be a wrong promise


def test_many_windows_promise_nothing():
    assert over_windows(1.0, 1e-8, 10_000)[1] == 1.0
    weekly = Guarantee(1.0, 1e-8, Relation.ADD_REMOVE, (), "user-week")
    assert "a user who is there in 4 weeks is promised epsilon = 4 and delta = 3.12e-07" in window_description(
        weekly, 4
    )
    assert "is promised nothing in total" in window_description(weekly, 365)


def test_the_unit_is_in_the_words():
    day = Guarantee(1.0, 0.0, Relation.ADD_REMOVE, ()).per("user-day")
    assert day.description() == (
        "User-day-level (epsilon = 1, delta = 0) differential privacy under adding or removing one user's data of one day."
    )
    assert "replacing one event by any other" in Guarantee(1.0, 0.0, Relation.REPLACE, (), "event").description()
    with pytest.raises(ParameterError, match="each event"):
        Guarantee(1.0, 0.0, Relation.REPLACE, (), "event").per("user-day")
    assert (
        window_description(Guarantee(1.0, 0.0, Relation.ADD_REMOVE, ()), 1)
        == "all that a user did is protected together"
    )


def test_what_can_be_protected():
    assert [window_of(each) for each in ("user", "user-day", "user-week", "user-month")] == [
        None,
        "day",
        "week",
        "month",
    ]
    with pytest.raises(ParameterError, match="user-day"):
        window_of("day")
    with pytest.raises(ParameterError, match="windows"):
        over_windows(1.0, 0.0, 0)
