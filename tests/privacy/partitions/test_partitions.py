"""What naming items costs, exactly: the divergence of neighbours from the plans' own integers, and the bugs that it catches.

The formulas here are written anew, from the laws of the noise; no function that calibrates is used. Own items are those that
only the one user has: t of its d. Shared items have so many other users that they are always named, and are charged as if
their noisy sums were released, which is more than is.
"""

from __future__ import annotations

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
from headcount.mechanisms.accounting.thresholds import grid_threshold
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.packing import pack
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.counting.evidence import Evidence
from headcount.mechanisms.counting.noisy import add_noise
from headcount.mechanisms.counting.sums import merge_sums
from headcount.mechanisms.partitions.rounds import Round, rounds_of, zcdp_rounds
from headcount.mechanisms.partitions.select import select_partitions
from headcount.mechanisms.partitions.weights import GRID, gaussian_hiding_threshold

ONE, TWO = Relation.ADD_REMOVE, Relation.REPLACE
SETTINGS = [(1, 1e-8), (3, 1e-6), (0.2, 1e-3)]
UNIT = 1 << GRID


def one_round(strategy: str, items: int, epsilon: float, delta: float, relation: Relation) -> NoisePlan:
    (only,) = rounds_of(Budget(epsilon, delta), strategy, items, 3, relation)
    return only.plan


# Gaussian noise: own and shared items together.


def gaussian_delta(epsilon, squared, sigma):
    """Balle and Wang's formula, elementwise; a distance of nothing is left to max(0, 1 - e^epsilon)."""
    ratio = np.sqrt(np.maximum(squared, 1e-300)) / sigma
    noisy = stats.norm.cdf(ratio / 2 - epsilon / ratio) - np.exp(
        epsilon + stats.norm.logcdf(-ratio / 2 - epsilon / ratio)
    )
    return np.where(squared > 0, noisy, np.maximum(0, -np.expm1(epsilon)))


def user_shapes(items: int, weigh):
    """(own items, count of each in grid units, squared norm of the shared) of every user of d <= items, t of them own."""
    pairs = [(d, t) for d in range(1, items + 1) for t in range(d + 1)]
    return np.array([(t, weigh(d), (d - t) * weigh(d) ** 2 / UNIT**2) for d, t in pairs], dtype=float).T


def worst_delta(plan: NoisePlan, items: int, weigh, epsilon: float, relation: Relation) -> float:
    """The largest divergence over all shapes of a user, or of two where one is replaced by the other, both ways."""
    own, count, squared = user_shapes(items, weigh)
    sigma = float(plan.scale) / 2**plan.grid
    steps = float(plan.scale) * 2.0 ** (GRID - plan.grid)  # sigma in units of the weights
    threshold = plan.threshold * 2.0 ** (GRID - plan.grid) - 0.5 * 2.0 ** (GRID - plan.grid)
    log_hidden = own * np.log1p(-stats.norm.sf((threshold - count) / steps))
    if relation is TWO:
        x, y, apart = log_hidden[:, None], log_hidden[None, :], squared[:, None] + squared[None, :]
    else:
        none = np.zeros_like(log_hidden)
        x, y = np.stack([log_hidden, none]), np.stack([none, log_hidden])
        apart = np.stack([squared, squared])
    return float((-np.expm1(x) + np.exp(x) * gaussian_delta(epsilon + y - x, apart, sigma)).max())


def counted(d: int) -> int:
    return UNIT


def rooted(d: int) -> int:
    return math.isqrt(UNIT**2 // d)


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)
@pytest.mark.parametrize("items", [1, 4, 25])
@pytest.mark.parametrize(("strategy", "weigh"), [("gaussian", counted), ("weighted-gaussian", rooted)])
def test_gaussian_strategies_keep_delta_for_every_user_and_nearly_use_it_up(
    strategy, weigh, items, epsilon, delta, relation
):
    plan = one_round(strategy, items, epsilon, delta, relation)
    assert 0.9 * delta < worst_delta(plan, items, weigh, epsilon, relation) <= delta


def test_weights_that_the_noise_is_not_for_are_caught():
    """Counts of one with the noise for weights: an l2 norm of 5 in place of 1."""
    plan = one_round("weighted-gaussian", 25, 1, 1e-6, ONE)
    assert worst_delta(plan, 25, counted, 1, ONE) > 1000 * 1e-6


def test_replacing_a_user_without_its_factor_is_caught():
    plan = one_round("weighted-gaussian", 4, 1, 1e-6, ONE)
    assert worst_delta(plan, 4, rooted, 1, ONE) <= 1e-6
    assert worst_delta(plan, 4, rooted, 1, TWO) == pytest.approx(217e-6, rel=0.01)


def test_a_threshold_for_one_item_is_caught_where_users_have_many():
    few, many = (one_round("weighted-gaussian", items, 1, 1e-6, ONE) for items in (1, 100))
    low = dataclasses.replace(many, threshold=few.threshold)
    assert worst_delta(low, 100, rooted, 1, ONE) > 5e-6


# Laplace noise: own items decide, and the least threshold on the grid is taken.


def laplace_shows(plan: NoisePlan, number: int, count: int) -> mpmath.mpf:
    """The probability that one of so many own items of this count (in grid units) is named, in 60 digits."""
    with mpmath.workdps(60):
        q = mpmath.exp(-mpmath.mpf(plan.scale.denominator) / plan.scale.numerator)
        return 1 - (1 - q ** (plan.threshold - count) / (1 + q)) ** number


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)
@pytest.mark.parametrize(
    ("strategy", "items"), [("laplace", 1), ("laplace", 30), ("weighted-laplace", 1), ("weighted-laplace", 30)]
)
def test_laplace_strategies_keep_delta_and_one_step_lower_they_do_not(strategy, items, epsilon, delta, relation):
    plan = one_round(strategy, items, epsilon, delta, relation)
    share = {d: 1 << plan.grid if strategy == "laplace" else UNIT // d for d in range(1, items + 1)}

    def shown(plan):
        return max(laplace_shows(plan, d, share[d]) for d in share)

    with mpmath.workdps(60):
        assert shown(plan) <= mpmath.mpf(repr(delta))
        assert shown(dataclasses.replace(plan, threshold=plan.threshold - 1)) > mpmath.mpf(repr(delta))


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("strategy", "items"), [("laplace", 7), ("weighted-laplace", 7), ("truncated-geometric", 7)])
def test_shared_items_cost_no_more_than_epsilon(strategy, items, relation):
    """The loss is (l1 distance of neighbours) / scale, for noise that reaches everywhere; in exact fractions."""
    plan = one_round(strategy, items, 0.7, 1e-6, relation)
    for d in range(1, items + 1):
        weight = UNIT // d if strategy == "weighted-laplace" else 1 << plan.grid
        assert relation.users * d * weight / plan.scale <= Fraction(7, 10)
    wrong = items * math.isqrt(UNIT**2 // items)  # weights of 1/sqrt(d) with the noise for 1/d
    if strategy == "weighted-laplace":
        assert relation.users * wrong / plan.scale > 2 * Fraction(7, 10)


# Truncated noise: exact, item by item.


def truncated_law(plan: NoisePlan) -> tuple[np.ndarray, np.ndarray]:
    size = np.arange(-(plan.threshold - 1), plan.threshold)
    law = np.exp(-np.abs(size) / float(plan.scale))
    return size, law / law.sum()


def naming_chances(plan: NoisePlan, users: int) -> np.ndarray:
    """P[named] of an item of n users, n = 0 .. users."""
    size, law = truncated_law(plan)
    return np.array([law[size >= plan.threshold - n].sum() for n in range(users + 1)])


def truncated_delta(plan: NoisePlan, own: int, shared: int, epsilon: float) -> float:
    """The divergence of one user with own and shared items, composed exactly: a shared item shows with probability P[X = k],
    and else has a loss of one step up or down."""
    size, law = truncated_law(plan)
    end, up, down = law[-1], law[(size >= 0)][:-1].sum(), law[size < 0].sum()
    with mpmath.workdps(30):
        hidden = mpmath.mpf(1 - end) ** (own + shared)
        finite = mpmath.mpf(0)
        for ups in range(shared + 1):
            loss = (2 * ups - shared) / float(plan.scale) + own * math.log1p(-end)
            chance = mpmath.binomial(shared, ups) * up**ups * down ** (shared - ups) * mpmath.mpf(1 - end) ** own
            finite += chance * max(0, -mpmath.expm1(epsilon - loss))
        return float(1 - hidden + finite)


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)
@pytest.mark.parametrize("items", [1, 5])
def test_truncated_noise_keeps_delta_and_one_step_lower_it_does_not(items, epsilon, delta, relation):
    plan = one_round("truncated-geometric", items, epsilon, delta, relation)
    reach = relation.users * items  # items in which neighbours differ
    assert max(truncated_delta(plan, own, reach - own, epsilon) for own in range(items + 1)) <= delta * (1 + 1e-9)
    lower = dataclasses.replace(plan, threshold=plan.threshold - 1)
    assert truncated_law(lower)[1][-1] > delta / reach


@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)
def test_truncated_noise_is_optimal_for_one_item(epsilon, delta):
    """No mechanism that names an item of n users with probability p(n), p(0) = 0, does so more often than the recursion."""
    plan = one_round("truncated-geometric", 1, epsilon, delta, ONE)
    chances = naming_chances(plan, 3 * plan.threshold)

    def most(delta):
        p = [0.0]
        while len(p) < len(chances):
            p.append(min(math.exp(epsilon) * p[-1] + delta, 1 - math.exp(-epsilon) * (1 - p[-1] - delta), 1))
        return np.array(p)

    assert (chances <= most(delta) + 1e-12).all()
    own = chances[1]  # the delta that this plan spends, as the threshold is a whole number
    assert math.exp(-epsilon) * delta < own <= delta
    np.testing.assert_allclose(chances, most(own), atol=1e-9)


# Several rounds.


def rates(rounds, items):
    """-ln of the chance that a user of own items alone stays hidden, round by round, at its worst."""
    found = []
    for each in rounds:
        plan = each.plan
        tails = [
            d * -math.log1p(-stats.norm.sf((plan.threshold - 0.5 - rooted(d)) / float(plan.scale)))
            for d in range(1, items + 1)
        ]
        found.append(max(tails))
    return found


def total_delta(rounds, items: int, epsilon: float, relation: Relation) -> float:
    """Own items in all rounds, and all noise at full distance: what holds whatever the rounds name."""
    rate = sum(rates(rounds, items))
    precision = sum((UNIT / float(each.plan.scale)) ** 2 for each in rounds)
    pairs = [(rate, rate)] if relation is TWO else [(rate, 0.0), (0.0, rate)]
    shared = [gaussian_delta(epsilon + x - y, np.array(float(relation.users)), precision**-0.5) for x, y in pairs]
    return max(float(-math.expm1(-x) + math.exp(-x) * s) for (x, _), s in zip(pairs, shared, strict=True))


def unsplit(rounds: tuple[Round, ...], items: int) -> tuple[Round, ...]:
    """The bug: every round's threshold spends what is meant for all of them."""
    whole = sum(rates(rounds, items))
    made = []
    for each in rounds:
        real = gaussian_hiding_threshold(items, "l2", float(each.plan.scale) / UNIT, whole)
        made.append(
            dataclasses.replace(each, plan=dataclasses.replace(each.plan, threshold=grid_threshold(real, GRID)))
        )
    return tuple(made)


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_rounds_of_sips_keep_delta_together_and_unsplit_thresholds_do_not(number, epsilon, delta, relation):
    rounds = rounds_of(Budget(epsilon, delta), "sips", 20, number, relation)
    assert 0.9 * delta < total_delta(rounds, 20, epsilon, relation) <= delta
    if number > 1:
        assert total_delta(unsplit(rounds, 20), 20, epsilon, relation) > 1.2 * delta


def adaptive_delta(spent, epsilon: float, sigma: float) -> float:
    """The divergence if a user's items are all own or all shared, round by round as suits it best given the loss so far.

    `spent` are (share of precision, rate) of the rounds. The value of a loss L before a round is the larger of: shared items,
    the mean over the loss that the noise adds; own items, shown with 1 - e^-rate, else a loss of minus the rate.
    """
    loss = np.linspace(-6, 8, 14_001)
    value = np.maximum(0, -np.expm1(epsilon - loss))
    node, weight = np.polynomial.hermite_e.hermegauss(120)
    for share, rate in reversed(spent):
        step = math.sqrt(share) / sigma
        moved = loss[:, None] + step**2 / 2 + step * node
        shared = (np.interp(moved, loss, value) * weight).sum(axis=1) / weight.sum()
        own = -math.expm1(-rate) + math.exp(-rate) * np.interp(loss - rate, loss, value)
        value = np.maximum(shared, own)
    return float(np.interp(0.0, loss, value))


def test_a_user_whose_items_turn_from_shared_to_own_between_rounds_is_covered():
    """Within one round own items may be set off against shared ones; over rounds that breaks delta, as which a user has can
    depend on what was named."""
    epsilon, delta, items = 1.0, 1e-3, 20
    rounds = rounds_of(Budget(epsilon, delta), "sips", items, 3, ONE)
    precision = [(UNIT / float(each.plan.scale)) ** 2 for each in rounds]
    sigma = sum(precision) ** -0.5
    shares = [each / sum(precision) for each in precision]
    spent = list(zip(shares, rates(rounds, items), strict=True))
    assert delta / 2 < adaptive_delta(spent, epsilon, sigma) <= delta

    (single,) = rounds_of(Budget(epsilon, delta), "weighted-gaussian", items, 3, ONE)
    (rate,) = rates([single], items)
    one = float(single.plan.scale) / UNIT
    assert adaptive_delta([(1.0, rate)], epsilon, one) <= delta
    assert adaptive_delta([(share, share * rate) for share in shares], epsilon, one) > 1.2 * delta


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("selection", ["gaussian", "weighted-gaussian", "sips"])
def test_zcdp_rounds_hide_own_items_with_all_of_delta(selection, relation):
    items, delta = 30, 1e-6
    rounds = zcdp_rounds(0.5, delta, items, relation, selection)
    if selection == "gaussian":
        plan = rounds[0].plan
        shown = -math.expm1(
            items * math.log1p(-stats.norm.sf((plan.threshold - 0.5 - 2**plan.grid) / float(plan.scale)))
        )
    else:
        shown = -math.expm1(-sum(rates(rounds, items)))
    assert 0.99 * delta < shown <= delta


# And the mechanism itself, run.

SUBKEY = bytes(range(32))


def _above(successes: int, trials: int, probability: float) -> bool:
    """Whether so many successes refute `probability` as an upper bound, at a false-alarm rate of 1e-7."""
    return bool(stats.binom.sf(successes - 1, trials, probability) < 1e-7)


@pytest.mark.parametrize("strategy", ["truncated-geometric", "weighted-gaussian", "weighted-laplace"])
@pytest.mark.parametrize("items", [1, 4])
def test_own_items_are_named_with_probability_at_most_delta(strategy, items):
    """100,000 worlds, each one user of own items alone, at delta = 0.01; false alarm 1e-7. A threshold that is lower by one
    standard deviation is caught with power above 1 - 1e-9."""
    delta, worlds = 0.01, 100_000 // items
    plan = one_round(strategy, items, 1, delta, ONE)
    weight = {"truncated-geometric": 1, "weighted-gaussian": rooted(items), "weighted-laplace": UNIT // items}[strategy]
    names = [f"{world} {k}" for world in range(worlds) for k in range(items)]

    def shown(plan: NoisePlan) -> int:
        chunk = pack({"item": pa.array(names), "sum": pa.array(np.full(len(names), weight))})
        histogram, digest = merge_sums([chunk], SUBKEY, str)
        named = add_noise(histogram, plan, SUBKEY, Evidence.of([digest], []))
        return len({item.split()[0] for item in named.column("item").to_pylist()})

    assert not _above(shown(plan), worlds, delta)
    lower = plan.threshold - max(1, round(plan.stddev * 2**plan.grid))
    if strategy == "truncated-geometric":
        plan = dataclasses.replace(
            plan, kind="laplace"
        )  # its noise is cut at the threshold, which here comes down alone
    assert _above(shown(dataclasses.replace(plan, threshold=lower)), worlds, delta)


def test_one_user_with_very_many_items_names_none_of_them(make_release):
    """3,000 users with 200 own items each, 10 of which count; P[any item of a user is named] <= delta = 1e-3. Noise on items
    outside of the sample would give each user 200 chances. False alarm 1e-7."""
    users = [f"u{u}" for u in range(3000) for _ in range(200)]
    batch = contribution_batch(pa.array(users), pa.array([f"i{k}" for k in range(len(users))]))
    for strategy, rounds in (("sips", 3), ("truncated-geometric", 3)):
        names = select_partitions(Budget(1, 1e-3), strategy=strategy, max_items=10, rounds=rounds).run(
            [batch], make_release(), strategy
        )
        shown = {int(name[1:]) // 200 for name in names.column("item").to_pylist()}
        assert not _above(len(shown), 3000, 1e-3)


def test_every_user_lies_under_the_line_between_shared_items_alone_and_own_items_alone():
    """What the calibration of weights rests on: with a share u = t/d of own items, these show at u times the worst rate or
    less, and what is shared has a squared norm of 1 - u or less."""
    plan = one_round("weighted-gaussian", 40, 1, 1e-6, ONE)
    own, count, squared = user_shapes(40, rooted)
    rate = -own * np.log1p(-stats.norm.sf((plan.threshold - 0.5 - count) / float(plan.scale)))
    share = np.array([t / d for d in range(1, 41) for t in range(d + 1)])
    assert (rate <= share * rate.max() * (1 + 1e-12)).all()
    assert (squared <= 1 - share + 1e-15).all()
