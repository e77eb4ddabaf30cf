"""Selection curves: every pair of states in interval arithmetic, items alone and shared together, rounds, and the choice
before.

No sampling but where it is said. "Audits" compute divergences from the integers of the curve alone.
"""

import dataclasses
import math
from fractions import Fraction

import mpmath
import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.user_shards import users_of
from headcount.mechanisms.calibration.noise import curve_chance
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.partitions import selection_curve as curves
from headcount.mechanisms.partitions.curve_budget import CurveBudget, _larger, worst_mean
from headcount.mechanisms.partitions.rounds import curve_rounds, rounds_of
from headcount.mechanisms.partitions.select import counts_in_rounds
from headcount.mechanisms.partitions.selection_curve import (
    BITS,
    SelectionCurve,
    curve_steps,
    curve_weight,
    make_curve,
    one_item_curve,
)
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.noise import NEVER, by_curve

ONE, TWO = Relation.ADD_REMOVE, Relation.REPLACE
WHOLE = 1 << BITS
SETTINGS = [(1, 1e-8), (0.3, 1e-5), (4, 1e-3)]


def chances_of(curve: bytes) -> list[int]:
    return [int.from_bytes(curve[start : start + 16], "little") for start in range(0, len(curve), 16)]


def states_of(items: int, grid: int, last: int, weigh=curve_weight) -> list[int]:
    """The sums of weights up to the last state, and one user's more."""
    weights = sorted({weigh(number, grid) for number in range(1, items + 1)})
    reached = np.zeros(last + weights[-1] + 1, dtype=bool)
    reached[0] = True
    for state in range(last + 1):
        if reached[state]:
            reached[[state + weight for weight in weights]] = True
    return np.flatnonzero(reached[: last + 1])[1:].tolist()


def largest_ratio(curve: SelectionCurve, items: int, order: float, cost: float, weigh=curve_weight) -> float:
    """The largest d D_a / W over all pairs of states that differ by the weight of d items, in both directions.

    In intervals: what is returned is no less than the truth.
    """
    chances, iv = chances_of(curve.chances), mpmath.iv
    last = len(chances) - 1
    states = states_of(items, curve.grid, last, weigh)
    one, zero = {}, {}
    for state in states:
        one[state] = iv.log(iv.mpf(chances[state]) / WHOLE)
        zero[state] = iv.log(iv.mpf(WHOLE - chances[state]) / WHOLE)
    a, worst, seen = iv.mpf(order), 0.0, {}
    most = {weigh(number, curve.grid): number for number in range(1, items + 1)}
    for state in states:
        for weight, number in most.items():
            after = min(state + weight, last)
            pair = chances[state], chances[after]
            if pair not in seen:
                both = []
                for q, p in ((after, state), (state, after)):
                    power = iv.exp(a * one[q] + (1 - a) * one[p]) + iv.exp(a * zero[q] + (1 - a) * zero[p])
                    both.append(float((iv.log(power) / (a - 1)).b))
                seen[pair] = max(both)
            worst = max(worst, number * seen[pair] / cost)
    return worst


def own_ratio(curve: SelectionCurve, items: int, shown: float, weigh=curve_weight) -> float:
    """The largest d pi(w(d)) / H, exactly."""
    chances = chances_of(curve.chances)
    return float(max(Fraction(d * chances[weigh(d, curve.grid)], WHOLE) for d in range(1, items + 1)) / Fraction(shown))


@pytest.mark.parametrize("in_rounds", [False, True])
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)
@pytest.mark.parametrize("items", [2, 9])
def test_every_pair_of_states_keeps_its_bound_and_the_worst_nearly_uses_it_up(
    items, epsilon, delta, relation, in_rounds
):
    budget = CurveBudget(Budget(epsilon, delta), relation)
    cost, shown = budget.cost(in_rounds)
    curve = make_curve(items, budget.order, cost, shown, 2)
    chances = chances_of(curve.chances)
    assert chances[0] == 0 and chances == sorted(chances) and chances[-1] < WHOLE
    assert 0.999 < largest_ratio(curve, items, budget.order, cost) <= 1
    assert 0.5 < own_ratio(curve, items, shown) <= 1


def test_the_law_of_very_many_items_keeps_its_bound_in_floats():
    """300 items: too many pairs for intervals. Logarithms of 128-bit chances, each rounded once, are far finer than the gap."""
    budget = CurveBudget(Budget(1, 1e-8), ONE)
    cost, shown = budget.cost(False)
    curve = budget.curve(300, False, 1.0)
    states = np.array(states_of(300, curve.grid, len(curve.chances) // 16 - 1))
    chances = chances_of(curve.chances)
    one = np.array([math.log(chance / WHOLE) if chance else -np.inf for chance in chances])
    zero = np.array([math.log((WHOLE - chance) / WHOLE) for chance in chances])
    a, worst = budget.order, 0.0
    for weight, number in curve_steps(300, curve.grid):
        after = np.minimum(states + weight, len(chances) - 1)
        for q, p in ((after, states), (states, after)):
            power = np.logaddexp(a * one[q] + (1 - a) * one[p], a * zero[q] + (1 - a) * zero[p])
            worst = max(worst, number * power.max() / (a - 1) / cost)
    assert 0.999 < worst <= 1 and own_ratio(curve, 300, shown) <= 1


def test_a_law_that_falls_is_caught(monkeypatch):
    """Without lowering earlier states, the first ones rise above later ones."""
    monkeypatch.setattr(curves, "_lowered", lambda pi, here: np.array([], dtype=np.int64))
    with pytest.raises(ParameterError, match="cannot be computed"):
        make_curve(9, 25.0, 0.4, 1.1e-8)
    make_curve.cache_clear()


def wrong_law(items: int, order: float, cost: float, own) -> SelectionCurve:
    """A curve whose own items have these chances in place of H / d, unchecked."""
    grid = curves.curve_grid(items, 2)
    weights, numbers = (np.array(column) for column in zip(*curve_steps(items, grid), strict=True))
    return SelectionCurve.of(
        grid, curves._chances(curves._rising(weights, order, cost / numbers, np.log(own(numbers))))
    )


def test_own_items_that_do_not_share_are_caught():
    """H / sqrt(d) in place of H / d: nine items would be named thrice as often as one may."""
    wrong = wrong_law(9, 25.0, 0.4, lambda d: 1e-8 / np.sqrt(d))
    assert own_ratio(wrong, 9, 1e-8) > 2


def test_weights_that_are_rounded_up_are_caught():
    budget = CurveBudget(Budget(1, 1e-8), ONE)
    curve = make_curve(9, budget.order, *budget.cost(False), 2)

    def up(items: int, grid: int) -> int:
        down = curve_weight(items, grid)
        return down if down**4 * items == 16**grid else down + 1

    assert largest_ratio(curve, 9, budget.order, budget.cost(False)[0], up) > 1.05


def user_delta(curve: SelectionCurve, items: int, own: int, epsilon: float) -> float:
    """The divergence of a user of `items`, so many of them its own and the others in one state, at the worst state; exactly."""
    chances = np.array([chance / WHOLE for chance in chances_of(curve.chances)])
    weight = curve_weight(items, curve.grid)
    hidden, shared = (1 - chances[weight]) ** own, items - own
    states = np.array(states_of(items, curve.grid, len(chances) - 1))
    after, k = np.minimum(states + weight, len(chances) - 1), np.arange(shared + 1)
    p, q = (hidden**n * stats.binom.pmf(k, shared, chances[s][:, None]) for n, s in ((1, after), (0, states)))
    there = 1 - hidden + np.maximum(0, p - math.exp(epsilon) * q).sum(axis=1)
    back = np.maximum(0, q - math.exp(epsilon) * p).sum(axis=1)
    return float(max(there.max(), back.max()))


@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)
def test_own_and_shared_items_keep_delta_together(epsilon, delta):
    items = 12
    (single,) = rounds_of(Budget(epsilon, delta), "law", items, 1, ONE)
    curve = SelectionCurve(single.plan.grid, single.plan.law)
    found = [user_delta(curve, d, own, epsilon) for d in range(1, items + 1) for own in range(d + 1)]
    assert 0.2 * delta < max(found) <= delta


def adaptive_delta(rounds, epsilon: float, items: int) -> float:
    """The divergence if a user's items are own or shared, few or many, in whichever state, as suits it best given the loss so
    far; both directions. Losses are rounded up to a lattice."""
    loss = np.linspace(-4, 8, 2401)
    worst = 0.0
    for sign in (1, -1):
        value = np.maximum(0, -np.expm1(epsilon - loss))
        for each in reversed(rounds):
            chances = np.array([chance / WHOLE for chance in chances_of(each.plan.law)])
            best = value
            for d in (1, 3, items):
                weight = curve_weight(d, each.plan.grid)
                hidden = d * math.log1p(-chances[weight])
                own = np.interp(loss + sign * hidden, loss, value)
                best = np.maximum(best, own * math.exp(hidden) - math.expm1(hidden) if sign > 0 else own)
                states = np.array(states_of(items, each.plan.grid, len(chances) - 1 - weight))
                for p in states[np.linspace(0, len(states) - 1, 30).astype(int)].tolist():
                    k = np.arange(d + 1)
                    up, down = (stats.binom.logpmf(k, d, chances[x]) for x in (p + weight, p)[::sign])
                    moved = np.interp(loss[:, None] + (up - down), loss, value)
                    best = np.maximum(best, (moved * np.exp(up)).sum(axis=1))
            value = best
        worst = max(worst, float(np.interp(0.0, loss, value)))
    return worst


def unsplit(rounds, budget: CurveBudget, items: int):
    """The bug: every round spends what is meant for all of them."""
    curve = budget.curve(items, True, 1.0)
    return [
        dataclasses.replace(each, plan=dataclasses.replace(each.plan, law=curve.chances, grid=curve.grid))
        for each in rounds
    ]


def test_adaptive_rounds_keep_delta_together_and_unsplit_ones_do_not():
    epsilon, delta, items = 1.0, 1e-3, 6
    budget = CurveBudget(Budget(epsilon, delta), ONE)
    rounds = curve_rounds(budget, items, 3)
    assert 0.1 * delta < adaptive_delta(rounds, epsilon, items) <= delta
    assert adaptive_delta(unsplit(rounds, budget, items), epsilon, items) > 2 * delta


def renyi_delta(parts, epsilon: float, order: float) -> float:
    """The least delta, over this order and others, that the largest divergences of all rounds give, added up at one order."""
    found = []
    for a in [order, *np.geomspace(3, 120, 60).tolist()]:
        cost = sum(max(_divergence(curve, items, a)) for curve, items in parts)
        found.append((a - 1) * (cost - epsilon + math.log1p(-1 / a)) - math.log(a))
    return math.exp(min(found))


def _divergence(curve: SelectionCurve, items: int, a: float) -> list[float]:
    chances = chances_of(curve.chances)
    states = np.array(states_of(items, curve.grid, len(chances) - 1))
    one = np.array([math.log(chance / WHOLE) if chance else -np.inf for chance in chances])
    zero = np.array([math.log((WHOLE - chance) / WHOLE) for chance in chances])
    found = []
    for weight, number in curve_steps(items, curve.grid):
        after = np.minimum(states + weight, len(chances) - 1)
        for q, p in ((after, states), (states, after)):
            power = np.logaddexp(a * one[q] + (1 - a) * one[p], a * zero[q] + (1 - a) * zero[p])
            found.append(number * power.max() / (a - 1))
    return found


def test_rounds_of_one_order_add_up_and_an_order_for_each_round_is_caught():
    epsilon, delta, items = 1.0, 1e-8, 5
    budget = CurveBudget(Budget(epsilon, delta), ONE)
    cost, shown = budget.cost(True)
    halves = [(make_curve(items, budget.order, cost / 2, shown / 2, 2), items)] * 2
    assert 0.6 * delta < renyi_delta(halves, epsilon, budget.order) <= delta * 2 / 3
    wrong = []
    for order in (budget.order * 0.7, budget.order * 1.8):
        whole = budget._divergence(order, 0.5)
        wrong.append((make_curve(items, order, whole / 2, shown / 2, 2), items))
    assert renyi_delta(wrong, epsilon, budget.order) > 10 * delta


# One item of each user.


@pytest.mark.parametrize(("epsilon", "delta"), [*SETTINGS, (0.01, 1e-6)])
def test_the_law_of_one_item_keeps_epsilon_and_delta_exactly_and_is_the_best(epsilon, delta):
    exact_epsilon, exact_delta = Fraction(repr(epsilon)), Fraction(repr(delta))
    chances = chances_of(one_item_curve((exact_epsilon, exact_delta)).chances)
    with mpmath.workdps(120):
        low = Fraction(int(mpmath.exp(mpmath.mpf(repr(epsilon))) * 10**100), 10**100)  # below e^epsilon
        extra = exact_delta * WHOLE
        assert chances[0] == 0 and chances[1] == int(extra) and chances[-1] == WHOLE - 1
        best = mpmath.mpf(0)
        power, share = mpmath.exp(mpmath.mpf(repr(epsilon))), mpmath.mpf(repr(delta))
        for before, after in zip(chances, chances[1:], strict=False):
            assert before <= after <= low * before + extra
            assert WHOLE - before <= low * (WHOLE - after) + extra
            best = min(power * best + share, 1 - (1 - best - share) / power, mpmath.mpf(1))
            assert mpmath.mpf(after) / WHOLE >= best * (1 - mpmath.mpf(2) ** -80) - mpmath.mpf(2) ** -100


def test_truncated_noise_names_a_lone_user_with_half_of_what_the_law_has():
    """Its radius is a whole number: at (1, 1e-3) 0.43 of delta are used."""
    (curve,) = rounds_of(Budget(1, 1e-3), "law", 1, 3, ONE)
    assert curve_chance(curve.plan.law, 1) == pytest.approx(1e-3, rel=1e-12)
    (replaced,) = rounds_of(Budget(1, 1e-3), "law", 1, 3, TWO)
    assert replaced.plan.law == one_item_curve((Fraction(1, 2), Fraction(1, 2000))).chances


# The choice before a curve.


def choice_then(delta_at, c: float, epsilon: float) -> float:
    """The delta of the worst choice of two outcomes, with losses t and t - c, before what has delta_at(e)."""
    worst = 0.0
    for t in np.linspace(0, c, 21).tolist():
        p = math.exp(t) * (1 - math.exp(t - c)) / (math.exp(t) - math.exp(t - c))
        worst = max(worst, p * delta_at(epsilon - t) + (1 - p) * delta_at(epsilon - t + c))
    return worst


def one_item_delta(curve: bytes, epsilon: float) -> float:
    p = np.array([chance / WHOLE for chance in chances_of(curve)])
    return float(
        max(
            (p[1:] - math.exp(epsilon) * p[:-1]).max(),
            ((1 - p[:-1]) - math.exp(epsilon) * (1 - p[1:])).max(),
        )
    )


def rounds_delta(budget: CurveBudget, epsilon: float) -> float:
    """What rounds have at most at this epsilon, by their W and H: all own items, and all of the divergence."""
    (cost, shown), a = budget.cost(True), budget.order
    return shown + math.exp((a - 1) * (cost - epsilon - math.log1p(-shown) + math.log1p(-1 / a)) - math.log(a))


@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)
def test_a_choice_and_any_law_behind_it_keep_delta_together(epsilon, delta):
    c = epsilon / 20
    budget = CurveBudget(Budget(epsilon, delta), ONE, (c,))
    items = 8
    many = make_curve(items, budget.order, *budget.cost(False), 2)
    one = budget.curve(1, False, 1.0)
    ways = (
        lambda e: one_item_delta(one.chances, e),
        lambda e: max(user_delta(many, items, own, e) for own in (0, 3, items)),
        lambda e: rounds_delta(budget, e),
    )
    found = choice_then(lambda e: max(way(e) for way in ways), c, epsilon)
    assert 0.5 * delta < found <= delta
    alone = CurveBudget(Budget(epsilon, delta), ONE).curve(
        1, False, 1.0
    )  # the bug: a curve that does not know of the choice
    assert choice_then(lambda e: one_item_delta(alone.chances, e), c, epsilon) > 2 * delta


@pytest.mark.parametrize(("c", "order"), [(0.05, 25.0), (0.004, 216.0), (0.3, 3.5), (0.1, 2.0)])
def test_the_mean_over_the_losses_of_the_choice_is_the_worst_of_all_choices(c, order):
    """Choices of three outcomes with losses within c, drawn at random, and those of two."""
    d = order * c**2 / 8
    random, worst = np.random.default_rng(4), 1.0
    for t in np.linspace(0, c, 300)[1:-1].tolist():
        losses = np.array([t, t - c * random.random(), t - c])
        weights = random.random((200, 3)) * [1, 1, 1]
        weights[0, 1] = 0
        second = weights * np.exp(-losses)
        # The first curve is made such that both are curves: the weight of the lowest loss sets off the others.
        rest = (weights[:, :2] - second[:, :2]).sum(axis=1) / (math.exp(c - t) - 1)
        first = np.column_stack([weights[:, :2], rest])[rest >= 0]
        first /= first.sum(axis=1, keepdims=True)
        assert first @ np.exp(-losses) == pytest.approx(1)
        means = first @ np.array([_larger(math.exp((order - 1) * (loss - d))) for loss in losses.tolist()])
        worst = max(worst, float(means.max(initial=1)))
        assert (first @ np.exp((order - 1) * losses) <= math.exp((order - 1) * d) * (1 + 1e-9)).all()  # D
    assert 0.95 * worst_mean((c,), order) < worst <= worst_mean((c,), order)


# The draw.

KEY = bytes(range(32))


def lanes(number: int) -> Lanes:
    return Lanes(KEY, np.arange(2 * number, dtype=np.uint64).reshape(-1, 2))


def test_draws_have_the_chances_of_the_law():
    """300,000 draws from five states: chi-square with 5 degrees of freedom and a false-alarm rate of 1e-7; a chance that is off
    by a hundredth is seen with power above 1 - 1e-9."""
    chances = np.array([0, 0.1, 0.1, 0.4, 0.9])
    drawn = by_curve(lanes(300_000), SelectionCurve.of(0, [int(chance * WHOLE) for chance in chances.tolist()]).chances)
    expected = np.diff(np.append(chances, 1.0), prepend=0) * len(drawn)
    assert set(drawn[drawn > 4].tolist()) == {NEVER}
    found = np.bincount(np.minimum(drawn, 5), minlength=6)
    there = expected > 0
    assert (found[~there] == 0).all()
    assert ((found - expected)[there] ** 2 / expected[there]).sum() < 42


def test_the_second_word_decides_where_the_first_is_that_of_the_law():
    lane = lanes(1)
    first, second = (int(lane.words([0])[0]) for _ in range(2))
    draw = first << 64 | second
    around = sorted([draw - 1, draw, draw + 1, first << 64, 0, WHOLE - 1])
    assert by_curve(lanes(1), SelectionCurve.of(0, around).chances).tolist() == [sum(entry <= draw for entry in around)]


def test_a_law_releases_names_and_nothing_of_their_sums(make_release):
    rows = {"user": [f"u{u}" for u in range(900)], "item": [f"i{min(u, 300) % 3}" for u in range(900)]}
    batch = contribution_batch(*(pa.array(column) for column in rows.values()))
    rounds = rounds_of(Budget(1, 1e-3), "law", 1, 3, ONE)
    named = counts_in_rounds(users_of([batch]), rounds, make_release(), "L")
    assert named.num_rows == 3 and len(set(named.column(1).to_pylist())) == 1
