"""Totals of many releases, against independent computations: dp-accounting's accountants, closed forms, exact binomials.

No sampling, so there are no false alarms. The mutations are known mistakes of composing: each gives a total below the true one.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headcount.mechanisms import (
    Budget,
    Zcdp,
    compose,
    debiased_count,
    private_count_release,
    private_histogram,
    sampled_histogram,
)
from headcount.mechanisms import total as total_of
from headcount.mechanisms.accounting import losses as parts
from headcount.mechanisms.accounting import pld, pld_sums
from headcount.mechanisms.accounting.gaussian import gaussian_epsilon
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.losses import Curve, Draw, Laplace, Losses, OneOf
from headcount.mechanisms.accounting.pld_sums import losses_delta, losses_epsilon
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.accounting.thresholds import TOTAL_SHARE
from headcount.mechanisms.accounting.totals import total_delta, total_epsilon
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.sampled.divergence import loss_distributions

ITEMS = ["a", "b", "c"]
YEAR = 52


def gaussian(epsilon: float = 1.0, delta: float = 1e-8, **keywords: Any) -> Guarantee:
    return private_histogram(
        Budget(epsilon, delta), of="events", domain=ITEMS, method="one-stage", bound=10, noise="gaussian", **keywords
    ).guarantee()


def laplace(epsilon: float = 1.0, **keywords: Any) -> Guarantee:
    return private_histogram(
        Budget(epsilon), of="events", domain=ITEMS, method="one-stage", bound=10, noise="laplace", **keywords
    ).guarantee()


def least_epsilon(delta_at: Callable[[float], float], delta: float, most: float) -> float:
    low, high = 0.0, most if delta_at(0.0) > delta else 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
    return high


def pure_delta(epsilon: float, times: int, at: float) -> float:
    """The exact delta of randomised responses: a binomial number of them points one way."""
    from scipy import stats

    up = np.arange(times + 1)
    loss, mass = epsilon * (2 * up - times), stats.binom.pmf(up, times, 1 / (1 + math.exp(-epsilon)))
    return float(np.dot(mass, -np.expm1(np.minimum(at - loss, 0.0))))


def pure_epsilon(epsilon: float, times: int, delta: float) -> float:
    return least_epsilon(lambda at: pure_delta(epsilon, times, at), delta, times * epsilon)


@pytest.mark.seconds
def test_a_year_of_gaussian_releases():
    """The number that basic composition has as 52: about 10, and what one Gaussian of mu sqrt(52) has."""
    from dp_accounting import dp_event
    from dp_accounting.pld import pld_privacy_accountant

    releases = [gaussian()] * YEAR
    delta = YEAR * 1e-8
    found, whole = total_epsilon(releases, delta), compose(releases)
    mu = releases[0].losses.mu
    exact = gaussian_epsilon(mu * math.sqrt(YEAR), delta)
    accountant = pld_privacy_accountant.PLDAccountant()
    accountant.compose(dp_event.GaussianDpEvent(1 / mu), YEAR)
    assert exact <= found <= 1.001 * exact
    assert found == pytest.approx(accountant.get_epsilon(delta), rel=0.01)
    assert (whole.epsilon, whole.delta) == (found, delta) and 6 < found < 10
    assert 0 < total_delta(releases, found) <= delta


@pytest.mark.parametrize(("epsilon", "bound"), [(1.0, 10), (0.1, 1), (0.3, 100)])
def test_a_year_of_laplace_releases(epsilon, bound):
    from dp_accounting.pld import privacy_loss_distribution as pld

    plan = private_histogram(
        Budget(epsilon), of="events", domain=ITEMS, method="one-stage", bound=bound, noise="laplace"
    )
    scale, step = float(plan.plan.scale), epsilon / 500
    moved = round(epsilon * scale)  # in the grid's units
    one = pld.from_discrete_laplace_mechanism(epsilon / moved, moved, value_discretization_interval=step)
    independent = one.self_compose(YEAR)
    for delta in (1e-6, 1e-10):
        found = total_epsilon([plan.guarantee()] * YEAR, delta)
        assert found == pytest.approx(independent.get_epsilon_for_delta(delta), rel=0.01)
        # Never below what the optimistic estimate of the same law says.
        optimistic = pld.from_discrete_laplace_mechanism(
            epsilon / moved, moved, value_discretization_interval=step, pessimistic_estimate=False
        ).self_compose(YEAR)
        assert found >= optimistic.get_epsilon_for_delta(delta)
        assert found < YEAR * epsilon


def test_a_year_of_count_releases():
    """By Rényi divergences of every order: a * rho at order a, and the conversion of dp-accounting on its list of orders."""
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    released = private_count_release(Zcdp(0.02, 1e-9)).guarantee()
    orders = [1 + 0.01 * k for k in range(1, 5000)]
    for delta in (1e-6, 1e-7):
        left = delta - YEAR * 1e-9
        expected, _ = rdp.compute_epsilon(orders, [a * YEAR * 0.02 for a in orders], left)
        assert total_epsilon([released] * YEAR, delta) == pytest.approx(expected, rel=0.01)
        # Where costs are chosen on the way, three fifths of delta are for what is not hidden, whatever that was.
        adaptive, _ = rdp.compute_epsilon(orders, [a * YEAR * 0.02 for a in orders], 0.4 * delta)
        assert total_epsilon([released] * YEAR, delta, adaptive=True) == pytest.approx(adaptive, rel=0.01)
    assert total_epsilon([released] * YEAR, YEAR * 0.99e-9) == math.inf


@pytest.mark.seconds
@pytest.mark.parametrize("relation", list(Relation))
def test_a_year_of_samples(relation):
    """By dp-accounting's own distributions, made of the exact divergences at 256 points of each epsilon."""
    made = sampled_histogram(Budget(0.5, 1e-8), max_items=2, relation=relation)
    plan, delta = made.plan, 1e-5
    added, removed = loss_distributions(plan.rate, plan.threshold, plan.epsilon)
    sides = [[added, removed]] if relation is Relation.REPLACE else [[added], [removed]]
    expected = 0.0
    for side in sides:
        whole = side[0].self_compose(2 * YEAR, 1e-15)
        for other in side[1:]:
            whole = whole.compose(other.self_compose(2 * YEAR, 1e-15))
        expected = max(expected, whole.get_epsilon_for_delta(delta))
    found = total_epsilon([made.guarantee()] * YEAR, delta)
    assert found == pytest.approx(expected, rel=0.01)
    assert found < 0.7 * YEAR * 0.5


@pytest.mark.seconds
@pytest.mark.parametrize("times", [1, 2, 10, YEAR, 1000])
@pytest.mark.parametrize("epsilon", [0.0137, 0.1, 1.0])
@pytest.mark.parametrize("delta", [0.1, 1e-3, 1e-6, 1e-12, 1e-30])
def test_pure_releases_are_never_below_the_exact_binomial(times, epsilon, delta):
    found = total_epsilon([Guarantee(epsilon, 0.0, Relation.ADD_REMOVE, ())] * times, delta)
    exact = pure_epsilon(epsilon, times, delta)
    assert exact * (1 - 1e-9) <= found <= 1.001 * exact + 1e-6


def test_releases_of_many_sizes_are_never_below_the_exact_sum():
    """All 2^n outcomes of randomised responses of n sizes, with something that is not hidden."""
    random = np.random.default_rng(7)
    for _ in range(15):
        sizes, hiding = 10 ** random.uniform(-3, 0.7, random.integers(1, 11)), float(10 ** random.uniform(-9, -3))
        losses = Losses.of(*map(Laplace, sizes.tolist()), hiding=hiding)
        loss, mass = np.zeros(1), np.ones(1)
        for size in sizes.tolist():
            up = 1 / (1 + math.exp(-size))
            loss, mass = np.append(loss + size, loss - size), np.append(mass * up, mass * (1 - up))
        for epsilon in (random.uniform(0, 1, 4) * sizes.sum()).tolist():
            exact = hiding + (1 - hiding) * float(np.dot(mass, -np.expm1(np.minimum(epsilon - loss, 0.0))))
            assert exact * (1 - 1e-9) <= losses_delta(losses, epsilon)
    assert losses_delta(Losses.of(Laplace(1e-13)), 0.0) <= 1  # too fine, and too coarse, for a lattice
    assert losses_delta(Losses.of(Laplace(1e5)), 1.0) == 1.0


def test_a_tilt_that_is_far_off_costs_tightness_alone():
    """A tilt for another delta leaves most of the mass outside of the window: it must be counted all the same."""
    losses = Losses(parts=((Laplace(1.0), 10),))
    found = pld.plds_of(losses, pld.lattice_step(losses), False)
    for delta in (0.5, 1e-3, 1e-9, 1e-30, 1e-200):
        tilted = pld_sums._Sum.of(found, None, delta)
        for epsilon in (0.0, 1.0, 5.0, 9.0, 9.9):
            exact = pure_delta(1.0, 10, epsilon)
            assert tilted.delta(epsilon) >= exact * (1 - 1e-9)


def mixed() -> list[Guarantee]:
    return [
        gaussian(0.3),
        laplace(0.2),
        private_histogram(Budget(0.5, 1e-9), of="events", method="one-stage", bound=5, noise="laplace").guarantee(),
        private_histogram(Budget(0.5, 1e-9), of="events").guarantee(),
        private_count_release(Zcdp(0.01, 1e-10)).guarantee(),
        sampled_histogram(Budget(0.2, 1e-9), max_items=1).guarantee(),
        total_of(Budget(0.1), bound=20).guarantee(),
    ]


@pytest.mark.seconds
def test_more_releases_never_promise_more():
    before_epsilon, before_delta, releases = 0.0, 0.0, []
    for each in mixed() * 2:
        releases.append(each)
        epsilon, delta = total_epsilon(releases, 1e-6), total_delta(releases, 3.0)
        assert epsilon >= before_epsilon * (1 - 1e-3) and delta >= before_delta * (1 - 1e-3)
        assert epsilon <= sum(part.epsilon for part in releases) * (1 + 1e-12)
        before_epsilon, before_delta = epsilon, delta


@pytest.mark.seconds
def test_totals_survive_json():
    releases = mixed()
    again = [Guarantee.from_dict(json.loads(json.dumps(each.as_dict()))) for each in releases]
    assert again == releases
    assert total_epsilon(again, 1e-6) == total_epsilon(releases, 1e-6)
    assert total_delta(again, 3.0) == total_delta(releases, 3.0)
    assert max(len(json.dumps(each.as_dict()["losses"])) for each in releases) < 12_000


def test_composing_what_was_composed():
    a, b, c = gaussian(0.3), laplace(0.2), gaussian(0.5, 1e-9)
    parts = compose([compose([a, b]), c])
    assert parts.epsilon == pytest.approx(compose([a, b, c]).epsilon, rel=1e-3)
    assert parts.delta == compose([a, b, c]).delta
    assert total_epsilon([parts], 1e-6) == pytest.approx(total_epsilon([a, b, c], 1e-6), rel=1e-9)
    adaptive = total_epsilon([a, b, c], 1e-6, adaptive=True)
    assert total_epsilon([parts], 1e-6, adaptive=True) == pytest.approx(adaptive, rel=1e-9)


def test_a_thousand_releases_take_seconds():
    start = time.perf_counter()
    same = total_epsilon([laplace(0.1)] * 1000, 1e-7)
    different = total_epsilon([laplace(0.1 * (1 + 1e-3 * k)) for k in range(200)] + [gaussian(0.05)] * 800, 1e-4)
    assert time.perf_counter() - start < 30  # some 2 on one quiet core
    assert same < 25 and different < 10


def test_adaptive_totals_are_of_what_was_spent():
    made = private_histogram(Budget(1, 1e-8))  # which takes one of two ways, by a private choice
    planned = made.guarantee()
    plans = [made.stages.plan(*end) for end in made.stages.ends()]
    by_noise = {plan.counts is not None: plan.guarantee for plan in plans}
    assert {each.losses for each in by_noise.values()} == {planned.losses}
    by_curve, pure_way = by_noise[True], by_noise[False]
    assert by_curve.spent_order < 30 and by_curve.zcdp.rho == pytest.approx(
        1 / 2
    )  # a rho up to an order is none of all
    assert pure_way.spent.rho < 0.66 * planned.zcdp.rho
    adaptive = total_epsilon([pure_way] * YEAR, 1e-6, adaptive=True)
    assert total_epsilon([by_curve] * YEAR, 1e-6, adaptive=True) < 8 < 40 < adaptive < 50
    assert total_delta([pure_way] * YEAR, adaptive, adaptive=True) <= 1e-6
    assert total_epsilon([pure_way] * YEAR, 1e-9, adaptive=True) == math.inf


def test_what_cannot_be_composed():
    with pytest.raises(ParameterError, match="one unit only"):
        total_epsilon([gaussian().per("user-day"), gaussian()], 1e-6)
    with pytest.raises(ParameterError, match="one relation only"):
        total_delta([gaussian(), gaussian(relation=Relation.REPLACE)], 1.0)
    with pytest.raises(ParameterError, match="at least one"):
        total_epsilon([], 1e-6)
    with pytest.raises(ParameterError, match="delta must not be negative"):
        total_epsilon([gaussian()], -1e-6)


def test_the_ends():
    one, two = Guarantee(0.5, 1e-8, Relation.ADD_REMOVE, ()), Guarantee(1.0, 2e-8, Relation.ADD_REMOVE, ())
    assert total_epsilon([one, two], 3e-8) == 1.5
    assert total_epsilon([one, two], 2e-8) == math.inf
    assert total_epsilon([one], 1e-8) == 0.5
    assert total_delta([one, two], 1.5) == pytest.approx(3e-8) and total_delta([one, two], 0.0) < 1
    assert total_epsilon([laplace()] * 3, 0.0) == 3.0
    assert total_epsilon([laplace(1e5)] * 2, 1e-6) == 2e5
    assert total_delta([Guarantee(1e-13, 0.0, Relation.ADD_REMOVE, ())] * 2, 1e-12) == 0.0
    assert total_epsilon([gaussian()], 0.999) == 0.0


# The known mistakes. What they must stay above is computed without any of this.


def test_the_grid_is_kept_back_once():
    losses = Losses(mu=1.0)
    from headcount.mechanisms.accounting.gaussian import gaussian_delta

    continuous = float(gaussian_delta(3.0, 1.0, 1.0))
    assert losses_delta(losses, 3.0) == pytest.approx(continuous / TOTAL_SHARE, rel=1e-6)
    mixed_in = Losses.of(OneOf((Losses(mu=1.0), Losses(mu=0.5))))
    assert losses_delta(mixed_in, 3.0) >= continuous / TOTAL_SHARE


def test_dropped_hiding_is_seen(monkeypatch):
    releases = [
        private_histogram(Budget(1, 1e-8), of="events", method="one-stage", bound=5, noise="gaussian").guarantee()
    ] * YEAR

    def least() -> float:
        return total_delta(releases, 1000.0)  # what no epsilon hides

    hidden = 1 - (1 - TOTAL_SHARE * 1e-8) ** YEAR
    assert least() >= hidden * (1 - 1e-6)
    monkeypatch.setattr(pld, "shown", lambda hiding, delta: delta)
    monkeypatch.setattr(pld_sums, "shown", lambda hiding, delta: delta)
    assert pld_sums.losses_delta(Losses.together(each.losses for each in releases), 1000.0) < hidden / 2


def test_mu_that_shrinks_is_seen(monkeypatch):
    exact = gaussian_epsilon(2.0, 1e-6)  # four of mu = 1
    assert losses_epsilon(Losses.together([Losses(mu=1.0)] * 4), 1e-6) >= exact
    monkeypatch.setattr(parts.math, "fsum", max)  # the largest, in place of the sum of squares
    assert losses_epsilon(Losses.together([Losses(mu=1.0)] * 4), 1e-6) < exact


def test_half_of_a_range_is_seen(monkeypatch):
    """Two candidates whose losses move apart by c: a draw of range c that is as bad as randomised response of c / 2."""
    exact = pure_epsilon(0.5, YEAR, 1e-6)
    draws = Losses(parts=((Draw(1.0), YEAR),))
    assert losses_epsilon(draws, 1e-6) >= exact
    monkeypatch.setattr(Draw, "rho", lambda self: self.range**2 / 32)
    assert losses_epsilon(draws, 1e-6) < exact


def sharp_curve() -> tuple[Curve, float]:
    """Randomised response of 1 by points beside the kink, and its divergence at 0."""
    points = (0.0, 0.4, 0.8, 1.2)
    values = tuple(max(0.0, (math.e - math.exp(s)) / (1 + math.e)) for s in points)
    return Curve(points, values, values), values[0]


def test_a_curve_rounded_to_the_wrong_side_is_seen(monkeypatch):
    curve, _ = sharp_curve()
    exact = pure_epsilon(1.0, 20, 1e-3)
    losses = Losses(parts=((curve, 20),))
    assert losses_epsilon(losses, 1e-3) >= exact

    def lower(points, values, s):
        return np.array(values)[np.minimum(np.searchsorted(points, s, side="left"), len(points) - 1)]

    monkeypatch.setattr(pld, "_between", lower)  # the next point's value, in place of the chord
    assert losses_epsilon(losses, 1e-3) < exact


def test_the_largest_way_is_not_their_mean(monkeypatch):
    ways = Losses(parts=((OneOf((Losses.of(Laplace(1.0)), Losses(mu=0.1))), 20),))
    exact = pure_epsilon(1.0, 20, 1e-3)
    assert losses_epsilon(ways, 1e-3) >= exact * (1 - 1e-9)
    monkeypatch.setattr(pld, "_largest", lambda curves: curves[-1])
    monkeypatch.setattr(OneOf, "rho", lambda self: None)
    assert losses_epsilon(ways, 1e-3) < exact


def test_the_users_of_a_debiased_count_count():
    one, both = (
        debiased_count(Budget(1.0, 1e-8), "a", max_per_item=3, users=users).guarantee().losses for users in (100, None)
    )
    assert losses_delta(both, 0.95) > 0 and len(both.parts) == len(one.parts) + 1
