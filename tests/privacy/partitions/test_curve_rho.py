"""Names by a selection curve at all orders: the rho that curves state, by their integers, and what composition makes of it.

No sampling. Divergences are computed from the chances alone, of all pairs of states that users can move.
"""

import dataclasses
import math

import numpy as np
import pytest

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.losses import Draw, Laplace, Losses
from headcount.mechanisms.accounting.pld_sums import losses_delta, losses_epsilon
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.account import make_account
from headcount.mechanisms.partitions import coins
from headcount.mechanisms.partitions.coins import slope_ratio
from headcount.mechanisms.partitions.curve_budget import CurvePart
from headcount.mechanisms.partitions.selection_curve import SelectionCurve, curve_weight, make_curve
from tests.privacy.partitions.test_selection_curve import WHOLE, _divergence, chances_of, largest_ratio, states_of

ONE, TWO = Relation.ADD_REMOVE, Relation.REPLACE
SETTINGS = [(1, 1e-8), (0.3, 1e-5), (4, 1e-3)]


def part_of(epsilon: float, delta: float, relation: Relation = ONE) -> CurvePart:
    account = make_account(Budget(epsilon, delta), named=True, chosen=True, calibrated=True, pure=False)
    assert account.law is not None
    return CurvePart(account.budget, relation, account.law.order, account.law.cost, account.hiding)


def worst_rho(curve: SelectionCurve, items: int, order: float, number: int = 60) -> float:
    """The largest d D_alpha / alpha of all pairs, at orders close to each other, those near 1 too."""
    orders = 1 + (order - 1) * np.linspace(0.03, 1, number) ** 2
    return max(max(_divergence(curve, items, a)) / a for a in orders.tolist())


@pytest.mark.parametrize("share", [1.0, 0.1])
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)
@pytest.mark.parametrize("items", [1, 2, 3, 4, 6, 9, 12])
def test_all_pairs_of_states_keep_the_stated_rho_at_all_orders(items, epsilon, delta, relation, share):
    part = part_of(epsilon, delta, relation)
    curve = part.curve(items, False, share)
    found = relation.users * worst_rho(curve, items, part.order) / (part.rho * share)
    assert (0.75 if share == 1 else 0.5) < found <= 1
    if share == 1 and items < 10:  # these use up what is stated, and lose none of W in their tails
        assert found > (0.96 if items < 9 else 0.9)
        assert max(_divergence(curve, items, part.order)) > 0.98 * part.cost / relation.users


def test_a_small_law_keeps_rho_in_intervals():
    part = part_of(1, 1e-8)
    curve = part.curve(1, False, 1.0)
    for order in (1.01, 1.5, 3.0, 9.0, 20.0, part.order):
        assert largest_ratio(curve, 1, order, order * part.rho) <= 1


@pytest.mark.parametrize("items", [1, 3, 4])
def test_a_law_that_is_not_held_back_is_caught(items, monkeypatch):
    part = part_of(1, 1e-8)
    free = make_curve(items, part.order, part.cost, part.shown, 1 if items == 1 else 4)
    assert worst_rho(free, items, part.order) > 1.2 * part.rho
    monkeypatch.setattr(tuning, "HELD_BACK_BY", 0.1)  # it is not held back, and then refused
    make_curve.cache_clear()
    with pytest.raises(ParameterError, match="cannot be computed"):
        part.curve(items, False, 1.0)
    make_curve.cache_clear()


def test_a_rho_that_is_only_kept_at_the_last_order_is_caught(monkeypatch):
    """The mistake: the chord from 1 to the last order is taken for a bound at no cost."""
    part = part_of(1, 1e-8)
    monkeypatch.setattr(coins, "_chord", lambda b, low, c, high: high / (c * (1 + c)))
    monkeypatch.setattr(tuning, "HELD_BACK_BY", 0.1)
    make_curve.cache_clear()
    assert worst_rho(part.curve(3, False, 1.0), 3, part.order) > 1.2 * part.rho
    make_curve.cache_clear()


def test_laws_of_many_items_are_not_held_back_at_all():
    part = part_of(1, 1e-8)
    for items in (10, 30, 100, 1000):
        free = make_curve(items, part.order, part.cost * (1 - 1e-9), part.shown * (1 - 1e-9))
        assert part.curve(items, False, 1.0) == free


def median(curve: SelectionCurve) -> float:
    return next(x for x, chance in enumerate(chances_of(curve.chances)) if chance > WHOLE // 2) / 2**curve.grid


@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)
def test_laws_of_few_items_name_nearly_as_much_as_before(epsilon, delta):
    part = part_of(epsilon, delta)
    for items in (3, 6):
        free = make_curve(items, part.order, part.cost, part.shown)
        assert median(free) <= median(part.curve(items, False, 1.0)) <= 1.03 * median(free)


def test_the_largest_ratio_of_a_chord_is_found():
    random = np.random.default_rng(5)
    for _ in range(200):
        b, c = sorted(random.exponential(3, 2).tolist())
        low = random.uniform() * b * (1 + b)
        high = low * c / b + random.exponential()  # as a convex function that is 0 at 1 has it
        v = np.linspace(b, c, 2001)
        line = (low + (v - b) / (c - b) * (high - low)) / (v * (1 + v))
        assert line.max() <= coins._chord(b, low, c, high) * (1 + 1e-12)
        assert coins._chord(b, low, c, high) <= line.max() * (1 + 1e-3)
    assert coins._chord(0.0, 0.0, 2.0, 6.0) == 3.0


def test_a_middle_is_stated_for_any_budget():
    for epsilon in (0.05, 0.3, 1, 4, 8):
        for delta in (1e-10, 1e-8, 1e-5):
            part = part_of(epsilon, delta)
            assert 1 < slope_ratio(part.order, part.cost) < 1.45


# What composition makes of it.


def outcomes(curve: SelectionCurve, items: int, state: int) -> tuple[np.ndarray, np.ndarray]:
    """The laws of all coins of a user of so many items, all in one state, with the user and without; in 2^items outcomes."""
    chances = chances_of(curve.chances)
    found = []
    for x in (min(state + curve_weight(items, curve.grid), len(chances) - 1), state):
        one, whole = np.array([1 - chances[x] / WHOLE, chances[x] / WHOLE]), np.ones(1)
        for _ in range(items):
            whole = np.outer(whole, one).ravel()
        found.append(whole)
    return found[0], found[1]


@pytest.mark.parametrize("items", [1, 3])
def test_losses_with_an_order_cover_two_laws_together(items):
    """The worst of all pairs of states, exactly, against what two of these losses come to."""
    part = part_of(1, 1e-3)
    curve = part.curve(items, False, 1.0)
    losses = Losses.together([Losses(rho=part.rho, order=part.order)] * 2)
    bounds = {s: losses_delta(losses, s) for s in (0.0, 0.1, 0.3, 0.6, 1.0, 1.5)}
    states = states_of(items, curve.grid, len(chances_of(curve.chances)) - 1)
    closest = 0.0
    for one in states[:: max(1, len(states) // 20)]:
        for other in states[:: max(1, len(states) // 20)]:
            (p1, q1), (p2, q2) = outcomes(curve, items, one), outcomes(curve, items, other)
            p, q = np.outer(p1, p2).ravel(), np.outer(q1, q2).ravel()
            for s, bound in bounds.items():
                exact = max(np.maximum(p - math.exp(s) * q, 0).sum(), np.maximum(q - math.exp(s) * p, 0).sum())
                assert exact <= bound + 1e-15
                closest = max(closest, exact / bound)
    assert closest > 0.3


def test_an_order_that_is_forgotten_promises_too_much():
    """A coin that is next to never 1, and twice as often for one: a rho at low orders that higher ones do not keep."""
    q, p = 1e-7, 5e-8
    order = 5.0
    power = math.log(q**order * p ** (1 - order) + (1 - q) ** order * (1 - p) ** (1 - order))
    rho = power / (order - 1) / order
    s = 0.6
    exact = q - math.exp(s) * p
    assert losses_delta(Losses(rho=rho, order=order), s) >= exact > losses_delta(Losses(rho=rho), s)


def test_losses_with_an_order_survive_everything():
    one, other = Losses(rho=0.1, order=20.0), Losses.of(Draw(0.1), rho=0.2, hiding=1e-9, order=5.5)
    both = one + other
    assert (both.rho, both.order) == (pytest.approx(0.3), 5.5) and both.rho >= 0.3
    ways = Losses.one_of(one, other) + Losses(mu=0.1)
    assert ways.order == math.inf and ways.order_of_all() == 5.5 and ways.zcdp() is None
    assert Losses.one_of(Losses.of(Laplace(1.0)), Losses(mu=1.0)).zcdp() is not None
    for each in (one, other, both, ways, Losses(mu=1.0)):
        assert Losses.from_dict(each.as_dict()) == each
    assert "order" not in Losses(rho=0.1).as_dict() and both.as_dict()["order"] == 5.5
    for wrong in (1.0, math.nan, "3", None):
        with pytest.raises(ParameterError, match="order"):
            Losses.from_dict({"rho": 0.1, "order": wrong})
    assert losses_epsilon(ways, 1e-6) >= losses_epsilon(one, 1e-6)


@pytest.mark.parametrize("number", [1, 10])
def test_an_order_costs_where_it_is_low_and_nothing_where_it_is_high(number):
    rho = 0.01
    without = losses_epsilon(Losses.together([Losses(rho=rho)] * number), 1e-6)
    high, low = (
        losses_epsilon(Losses.together([Losses(rho=rho, order=order)] * number), 1e-6) for order in (500.0, 4.0)
    )
    assert without == pytest.approx(high, rel=1e-6) and low > 1.5 * without
    mixed = dataclasses.replace(Losses.of(Draw(0.05), mu=0.1, rho=rho), order=500.0)
    assert losses_epsilon(mixed, 1e-6) == pytest.approx(
        losses_epsilon(dataclasses.replace(mixed, order=math.inf), 1e-6), rel=1e-3
    )
