"""Totals that hold even if costs are chosen after a look at earlier outputs: exact deltas of whole strategies.

No sampling, so there are no false alarms. The mutations are two ways to accept more, each of which breaks the promise.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy.stats import norm

from headcount.mechanisms import Budget, private_histogram
from headcount.mechanisms.accounting.budget import zcdp_delta
from headcount.mechanisms.accounting.guarantee import Guarantee, total_zcdp
from headcount.mechanisms.accounting.losses import Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.accounting.totals import total_delta, total_epsilon

LIMITS = [(8.0, 1e-6), (1.0, 1e-6), (3.0, 1e-3), (20.0, 1e-9)]
Rule = Callable[[Sequence[Guarantee], float], float]


def by_filter(parts: Sequence[Guarantee], epsilon: float) -> float:
    return total_delta(parts, epsilon, adaptive=True)


def by_what_is_left(parts: Sequence[Guarantee], epsilon: float) -> float:
    """A known mistake: rho may have whatever delta is not spent on what is not hidden, on each course by itself."""
    spent = total_zcdp(parts)
    assert spent is not None
    return spent.delta + (1 - spent.delta) * zcdp_delta(spent.rho, epsilon)


def gaussian(rho: float) -> Guarantee:
    return Guarantee(100.0, 0.5, Relation.ADD_REMOVE, (), losses=Losses(mu=math.sqrt(2 * rho)))


def shown(delta: float) -> Guarantee:
    return Guarantee(0.0, delta, Relation.ADD_REMOVE, ())


def largest(fits: Callable[[float], bool], most: float) -> float:
    low, high = 0.0, most
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def worst_course(rule: Rule, epsilon: float, delta: float) -> float:
    """The delta of a strategy by which every course is accepted: Gaussian noise, and by its loss so far more of it, as much as
    fits in, or something that shows all with a small probability, the largest that fits in."""
    most = largest(lambda rho: rule([gaussian(rho)], epsilon) <= delta, 100.0)
    found = 0.0
    for share in np.linspace(0.1, 0.9, 17):
        rho = share * most
        more = largest(lambda more: rule([gaussian(rho), gaussian(more)], epsilon) <= delta, most)  # noqa: B023
        hidden = largest(lambda hidden: rule([gaussian(rho), shown(hidden)], epsilon) <= delta, delta)  # noqa: B023
        deviation, mu = math.sqrt(2 * rho), math.sqrt(2 * more)
        loss, width = np.linspace(rho - 12 * deviation, rho + 12 * deviation, 4001, retstep=True)
        left = epsilon - loss
        with_more = norm.cdf(mu / 2 - left / mu) - np.exp(left + norm.logcdf(-mu / 2 - left / mu))
        with_less = hidden + (1 - hidden) * -np.expm1(np.minimum(left, 0.0))
        chances = norm.pdf(loss, rho, deviation) * width
        found = max(found, float((np.maximum(with_more, with_less) * chances).sum()))
    return found


@pytest.mark.parametrize(("epsilon", "delta"), LIMITS)
def test_no_course_exceeds_the_limit(epsilon, delta):
    assert 0.5 * delta < worst_course(by_filter, epsilon, delta) <= delta


@pytest.mark.parametrize(("epsilon", "delta"), LIMITS)
def test_audit_sees_that_courses_may_not_share_what_is_left(epsilon, delta):
    assert worst_course(by_what_is_left, epsilon, delta) > 1.1 * delta


def test_rho_up_to_an_order_counts_up_to_that_order():
    """With a probability of .0019 a loss of 4, and hardly any else: at order 2 that is a rho of .05."""
    chance, loss, order, rho = 0.0019, 4.0, 2.0, 0.05
    assert math.log1p(chance * math.exp((order - 1) * loss)) / (order - 1) < order * rho
    exact = chance * -math.expm1(3.0 - loss)
    made = Guarantee(4.0, 0.0, Relation.ADD_REMOVE, (), losses=Losses(rho=rho, order=order))
    assert by_filter([made], 3.0) >= exact
    assert total_epsilon([made], 1e-6, adaptive=True) > 4.0
    # A total that does not look at the order promises a thousandth of it.
    assert by_filter([dataclasses.replace(made, losses=Losses(rho=rho))], 3.0) < exact / 500


def test_names_by_law_count_by_what_was_spent():
    """52 releases: 7.9 on the Gaussian way, where what may be chosen counts 47, and the promises 63."""
    made = private_histogram(Budget(1, 1e-8))
    plans = [made.stages.plan(*end).guarantee for end in made.stages.ends()]
    by_curve = next(plan for plan in plans if math.isfinite(plan.spent_order))
    assert 7.5 < total_epsilon([by_curve] * 52, 1e-6, adaptive=True) < 8.2
    assert Guarantee.from_dict(by_curve.as_dict()) == by_curve
    # A limit so small that it is converted beyond the order counts the promise, which does not fit.
    assert total_delta([by_curve], 0.3, adaptive=True) > 1e-4
    total = total_epsilon([by_curve] * 52, 1e-6, adaptive=True)
    assert total_delta([by_curve] * 52, total, adaptive=True) <= 1e-6
    mixed = total_epsilon([by_curve] * 10 + [plans[0]], 1e-6, adaptive=True)
    assert (
        total_epsilon([by_curve] * 10, 1e-6, adaptive=True)
        < mixed
        < total_epsilon([plans[0]] * 11, 1e-6, adaptive=True)
    )
