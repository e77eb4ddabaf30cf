"""Exact audits of the calibrated histograms: no sampling, so nothing here can fail or pass by chance.

The divergence of two neighbours at epsilon is computed from the probability mass functions of the discrete noise,
over all ways in which the users that differ can spread over their own and over shared items, and compared with the
delta that the calibration claims. Then every known trap is built in on purpose, and the same audit must find it.
"""

import collections
import dataclasses
import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtri

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.gaussian import gaussian_sigma
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import calibrate_public_domain, calibrate_unknown_domain
from headcount.mechanisms.calibration.noise_plan import NoisePlan

ROUNDING = 1 + 1e-9  # of the audits' own floats
BOTH = pytest.mark.parametrize("relation", Relation)


# --- what users can do ------------------------------------------------------------------------------------------


def partitions(total, cap):
    """All multisets of integers from 1 to cap that add up to total."""
    if total == 0:
        yield ()
    for first in range(1, min(total, cap) + 1):
        for rest in partitions(total - first, first):
            yield (first, *rest)


def mass_users(total, cap):
    """(own counts, shared counts) of every user with at most `total` counts, at most `cap` on one item."""
    return [
        (own, shared)
        for mass in range(total + 1)
        for w in range(mass + 1)
        for own in partitions(w, cap)
        for shared in partitions(mass - w, cap)
    ]


def item_users(items, cap):
    """The same for at most `items` items with at most `cap` counts each."""
    return [
        (own, shared)
        for n in range(items + 1)
        for k in range(n + 1)
        for own in itertools.combinations_with_replacement(range(1, cap + 1), k)
        for shared in itertools.combinations_with_replacement(range(1, cap + 1), n - k)
    ]


def pairs(users, relation):
    """Neighbours: the user on one side and the one on the other, in both directions."""
    nobody = ((), ())
    if relation is Relation.REPLACE:
        return list(itertools.product(users, users))
    return [pair for user in users for pair in ((user, nobody), (nobody, user))]


# --- the noise --------------------------------------------------------------------------------------------------


@functools.lru_cache
def gaussian_mass(sigma):
    """The discrete Gaussian on -12 sigma..12 sigma (in steps of its grid)."""
    k = np.arange(-math.ceil(12 * sigma), math.ceil(12 * sigma) + 1)
    weights = np.exp(-0.5 * (k / sigma) ** 2)
    return k, weights / weights.sum()


def tail(plan, at):
    """P[Z >= at] of the plan's noise, in its grid units."""
    if plan.kind == "gaussian":
        k, mass = gaussian_mass(float(plan.scale))
        return float(mass[k >= at].sum())
    q = math.exp(-1 / plan.scale)
    return q**at / (1 + q) if at >= 0 else 1 - q ** (1 - at) / (1 + q)


def laplace_losses(shift, scale):
    """The privacy loss, an integer from -shift to shift in units of 1/scale, of one item that moves by `shift`."""
    q = math.exp(-1 / scale)
    law = np.zeros(2 * shift + 1)
    law[2 * shift] = 1 / (1 + q)
    law[0] = q**shift / (1 + q)
    inner = np.arange(1, shift)
    law[2 * (shift - inner)] = (1 - q) / (1 + q) * q**inner
    return law


@functools.lru_cache(maxsize=4096)
def losses(kind, scale, grid, shifts):
    """Losses and their probabilities for items that move by `shifts` counts each."""
    if kind == "laplace":
        law = functools.reduce(np.convolve, [laplace_losses(h * 2**grid, scale) for h in shifts], np.ones(1))
        reach = sum(shifts) * 2**grid
        return np.arange(-reach, reach + 1) / float(scale), law
    # The loss is linear in the sum of h * k over the items, k the noise: an integer, whose law is a convolution.
    k, mass = gaussian_mass(float(scale))
    reach = int(k[-1]) * sum(shifts)
    size = 2 ** math.ceil(math.log2(2 * reach + 1)) if shifts else 1
    transform = np.ones(size // 2 + 1, complex)
    for h, items in collections.Counter(shifts).items():
        stretched = np.zeros(size)
        stretched[(h * k) % size] = mass
        transform = transform * np.fft.rfft(stretched) ** items
    law = np.fft.irfft(transform, size) if shifts else np.ones(1)
    at = np.arange(size)
    at = np.where(at > size // 2, at - size, at)
    step, squared = 2.0**grid, sum(h * h for h in shifts) * 4.0**grid
    return (step * at + squared / 2) / float(scale) ** 2, np.maximum(law, 0)


# --- the audit --------------------------------------------------------------------------------------------------


def hidden(plan, own):
    """-ln of the probability that none of these own items is released."""
    return sum(-math.log1p(-tail(plan, plan.threshold - h * 2**plan.grid)) for h in own)


def divergence(plan, x, y, epsilon=None):
    """The hockey-stick divergence of the output with user x from the output with user y instead.

    x and y share no item with each other, but their shared ones with so many others that no threshold matters; that
    this is the worst case is what `test_outputs_one_by_one` is for.
    """
    epsilon = plan.epsilon if epsilon is None else epsilon
    own_x, own_y = hidden(plan, x[0]), hidden(plan, y[0])
    shifts = tuple(sorted(x[1] + y[1]))
    loss, law = losses(plan.kind, plan.scale, plan.grid, shifts)
    excess = np.maximum(0, math.exp(-own_x) - np.exp(epsilon - own_y - loss))
    return -math.expm1(-own_x) + float((law * excess).sum())


def audit(plan, users, relation):
    """The largest divergence of any neighbours."""
    return max(divergence(plan, x, y) for x, y in pairs(users, relation))


def lower(plan, steps=1):
    """The plan with a threshold that is `steps` grid steps lower."""
    return dataclasses.replace(plan, threshold=plan.threshold - steps)


# --- unknown domain: the calibration holds, and is tight ---------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1, 1e-6), (3, 1e-9), (1, 0.05), (0.01, 0.4)])
@pytest.mark.parametrize("total", [1, 2, 5, 8])
def test_laplace_mass_add_remove(epsilon, delta, total):
    for cap in range(1, total + 1):
        bound = Bound(l1=total, linf=cap)
        plan = calibrate_unknown_domain(Budget(epsilon, delta), bound, Relation.ADD_REMOVE, "laplace")
        users = mass_users(total, cap)
        assert audit(plan, users, Relation.ADD_REMOVE) <= delta * ROUNDING
        assert audit(lower(plan), users, Relation.ADD_REMOVE) > delta


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1, 1e-6), (3, 1e-9), (0.01, 0.4)])
@pytest.mark.parametrize(("total", "cap"), [(1, 1), (2, 1), (3, 2), (4, 1), (4, 3), (4, 4)])
def test_laplace_mass_replace(epsilon, delta, total, cap):
    """Also where delta is so large that own items of the *other* user weigh more than epsilon."""
    bound = Bound(l1=total, linf=cap)
    plan = calibrate_unknown_domain(Budget(epsilon, delta), bound, Relation.REPLACE, "laplace")
    users = mass_users(total, cap)
    assert audit(plan, users, Relation.REPLACE) <= delta * ROUNDING
    assert audit(lower(plan), users, Relation.REPLACE) > delta


@BOTH
@pytest.mark.parametrize(("items", "cap"), [(1, 3), (2, 2), (3, 1), (3, 3)])
def test_laplace_items(relation, items, cap):
    for epsilon, delta in ((0.5, 1e-6), (2, 1e-3)):
        plan = calibrate_unknown_domain(Budget(epsilon, delta), Bound(l0=items, linf=cap), relation, "laplace")
        users = item_users(items, cap)
        assert audit(plan, users, relation) <= delta * ROUNDING
        assert audit(lower(plan), users, relation) > delta


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1, 1e-6), (3, 1e-9), (0.5, 0.05)])
@pytest.mark.parametrize(("total", "cap"), [(1, 1), (3, 2), (5, 1), (5, 3), (5, 5)])
def test_gaussian_mass_add_remove(epsilon, delta, total, cap):
    bound = Bound(l1=total, linf=cap)
    plan = calibrate_unknown_domain(Budget(epsilon, delta), bound, Relation.ADD_REMOVE, "gaussian")
    found = audit(plan, mass_users(total, cap), Relation.ADD_REMOVE)
    assert 0.985 * delta < found <= delta * ROUNDING


@pytest.mark.parametrize(("epsilon", "delta"), [(0.2, 1e-4), (1, 1e-6), (3, 1e-9)])
@pytest.mark.parametrize(("total", "cap"), [(1, 1), (2, 1), (3, 3), (4, 2)])
def test_gaussian_mass_replace(epsilon, delta, total, cap):
    bound = Bound(l1=total, linf=cap)
    plan = calibrate_unknown_domain(Budget(epsilon, delta), bound, Relation.REPLACE, "gaussian")
    found = audit(plan, mass_users(total, cap), Relation.REPLACE)
    assert 0.985 * delta < found <= delta * ROUNDING


@BOTH
@pytest.mark.parametrize(("items", "cap"), [(2, 2), (3, 1)])
def test_gaussian_items(relation, items, cap):
    plan = calibrate_unknown_domain(Budget(1, 1e-6), Bound(l0=items, linf=cap), relation, "gaussian")
    found = audit(plan, item_users(items, cap), relation)
    assert 0.985e-6 < found <= 1e-6 * ROUNDING


@BOTH
def test_gaussian_noise_in_many_dimensions(relation):
    """40 items of one count each: the grid makes no difference to speak of in any number of dimensions."""
    plan = calibrate_unknown_domain(Budget(1, 1e-6), Bound(l1=40, linf=1), relation, "gaussian")
    users = [((1,) * own, (1,) * (40 - own)) for own in (0, 1, 5, 20, 40)]
    assert 0.985e-6 < audit(plan, users, relation) <= 1e-6 * ROUNDING


@BOTH
def test_outputs_one_by_one(relation):
    """No analysis of own and shared items: the law of the whole output over two items, hidden or any released value,
    for every pair of contributions and every load of other users, from none to far above the threshold."""
    total, epsilon, delta = 3, 1.0, 1e-3
    plan = calibrate_unknown_domain(Budget(epsilon, delta), Bound(l1=total), relation, "laplace")
    q = math.exp(-1 / plan.scale)

    def law(count):
        """P[hidden], P[tau], P[tau + 1], ..., P[at least the top]."""
        released = np.arange(plan.threshold, plan.threshold + 400)
        if count == 0:
            return np.concatenate([[1.0], np.zeros(401)])
        mass = (1 - q) / (1 + q) * q ** np.abs(released - count)
        top = tail(plan, plan.threshold + 400 - count)
        return np.concatenate([[1 - mass.sum() - top], mass, [top]])

    law = functools.lru_cache(law)
    users = [h for h in itertools.product(range(total + 1), repeat=2) if sum(h) <= total]
    neighbours = itertools.product(users, users) if relation is Relation.REPLACE else (
        pair for h in users for pair in ((h, (0, 0)), ((0, 0), h))
    )  # fmt: skip
    worst = 0.0
    for x, y in neighbours:
        for others in itertools.product((0, 1, plan.threshold, plan.threshold + 200), repeat=2):
            left = np.outer(law(others[0] + x[0]), law(others[1] + x[1]))
            right = np.outer(law(others[0] + y[0]), law(others[1] + y[1]))
            worst = max(worst, float(np.maximum(0, left - math.exp(epsilon) * right).sum()))
    assert 0.5 * delta < worst <= delta * ROUNDING


# --- public domain -----------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("grid", [0, 5])
def test_public_laplace_is_pure(relation, grid):
    """No loss exceeds epsilon; at an epsilon that is a little lower there is a divergence, so the scale is tight."""
    plan = calibrate_public_domain(Budget(0.7), Bound(l1=3, grid=grid), relation)
    users = [((), shared) for shared in partitions(3, 3)]
    for x, y in pairs(users, relation):
        assert divergence(plan, x, y) <= 1e-12
        assert divergence(plan, x, y, epsilon=0.69) > 1e-4


@BOTH
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1, 1e-6), (4, 1e-9)])
@pytest.mark.parametrize("bound", [Bound(l2=1), Bound(l2=3), Bound(l1=4, linf=2)])
def test_public_gaussian(relation, epsilon, delta, bound):
    plan = calibrate_public_domain(Budget(epsilon, delta), bound, relation, "gaussian")
    worst = {1: (1,), 3: (3,), None: (2, 2)}[bound.l2]
    found = max(divergence(plan, x, y) for x, y in pairs([((), worst)], relation))
    assert 0.96 * delta < found <= delta * ROUNDING  # rounding sigma up to a whole grid step costs up to 3 %


# --- mutations: each must be seen --------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "found"), [(0.5, 0.124), (1, 0.242), (2, 0.448)])
def test_catches_laplace_without_the_factor_2_for_replace(epsilon, found):
    """A user that moves from one heavy item to another: `found` is known from the continuous noise."""
    bound = Bound(l1=100)
    wrong = calibrate_public_domain(Budget(epsilon), bound, Relation.ADD_REMOVE)
    assert divergence(wrong, ((), (100,)), ((), (100,))) == pytest.approx(found, abs=6e-4)
    right = calibrate_public_domain(Budget(epsilon), bound, Relation.REPLACE)
    assert divergence(right, ((), (100,)), ((), (100,))) <= 1e-12
    small = calibrate_unknown_domain(Budget(epsilon, 1e-6), Bound(l1=3), Relation.ADD_REMOVE, "laplace")
    assert audit(small, mass_users(3, 3), Relation.REPLACE) > 0.1


def test_catches_gaussian_without_the_root_2_for_replace():
    """218 times the claimed delta at epsilon 1 and delta 1e-6."""
    wrong = calibrate_public_domain(Budget(1, 1e-6), Bound(l2=3), Relation.ADD_REMOVE, "gaussian")
    assert divergence(wrong, ((), (3,)), ((), (3,))) / 1e-6 == pytest.approx(218, rel=0.01)
    wrong = calibrate_unknown_domain(Budget(1, 1e-6), Bound(l1=3), Relation.ADD_REMOVE, "gaussian")
    assert audit(wrong, mass_users(3, 3), Relation.REPLACE) > 100e-6


@BOTH
def test_catches_a_gaussian_threshold_a_little_lower(relation):
    """Two grid steps are enough. (For Laplace noise each test above looks at one step.)"""
    plan = calibrate_unknown_domain(Budget(1, 1e-6), Bound(l1=4, linf=2), relation, "gaussian")
    users = mass_users(4, 2)
    assert audit(plan, users, relation) <= 1e-6
    assert audit(lower(plan, 2), users, relation) > 1e-6


def test_catches_the_continuous_threshold_with_discrete_noise():
    """Release iff value > 1 + b ln(1/(2 delta)): 1.67 times the claimed delta."""
    plan = calibrate_unknown_domain(Budget(2.2, 1e-6), Bound(l1=1), Relation.ADD_REMOVE, "laplace")
    continuous = 1 + math.log(1 / 2e-6) / 2.2
    wrong = dataclasses.replace(plan, threshold=math.floor(continuous) + 1)
    found = audit(wrong, mass_users(1, 1), Relation.ADD_REMOVE)
    assert found == pytest.approx(1.67e-6, rel=5e-3)
    assert audit(plan, mass_users(1, 1), Relation.ADD_REMOVE) <= 1e-6


@pytest.mark.parametrize(("epsilon", "delta", "ratio"), [(1, 1e-8, 1.04), (3, 1e-6, 1.38)])
def test_catches_gaussian_noise_on_the_integers(epsilon, delta, ratio):
    """One shared item, the standard deviation of the continuous formula, noise on whole numbers."""
    plan = calibrate_public_domain(Budget(epsilon, delta), Bound(l2=1), Relation.ADD_REMOVE, "gaussian")
    assert divergence(plan, ((), (1,)), ((), ())) <= delta
    coarse = dataclasses.replace(plan, grid=0, scale=Fraction(gaussian_sigma(epsilon, delta)))
    found = max(divergence(coarse, ((), (1,)), ((), ())), divergence(coarse, ((), ()), ((), (1,))))
    assert found / delta == pytest.approx(ratio, abs=0.01)


def test_catches_the_continuous_gaussian_threshold_on_the_integers():
    """A lone user with one own item: 1.95 times the claimed delta."""
    plan = calibrate_unknown_domain(Budget(2, 1e-8), Bound(l1=1), Relation.ADD_REMOVE, "gaussian")
    assert audit(plan, mass_users(1, 1), Relation.ADD_REMOVE) <= 1e-8
    sigma = gaussian_sigma(2, 0.99e-8)
    continuous = 1 - sigma * ndtri(0.999e-8)
    coarse = dataclasses.replace(plan, grid=0, scale=Fraction(sigma), threshold=math.ceil(continuous))
    assert divergence(coarse, ((1,), ()), ((), ())) / 1e-8 == pytest.approx(1.95, abs=0.01)


def test_catches_clipping_by_norm_before_a_threshold():
    """A user's 10 counts, scaled down onto 1280 own items of 1/128: 116 times the claimed delta."""
    plan = calibrate_unknown_domain(Budget(1, 1e-6), Bound(l1=10), Relation.ADD_REMOVE, "laplace")
    fine = dataclasses.replace(plan, grid=7, scale=plan.scale * 128, threshold=plan.threshold * 128)
    released = 1280 * tail(fine, fine.threshold - 1)
    whole = 10 * tail(fine, fine.threshold - 128)
    assert whole <= 1e-6
    assert released / whole == pytest.approx(116, rel=0.01)
    assert released > 90e-6


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_catches_two_bounded_collections_taken_for_one(noise):
    """Each holds at most 3 counts of a user, together 6."""
    plan = calibrate_unknown_domain(Budget(1, 1e-6), Bound(l1=3), Relation.ADD_REMOVE, noise)
    assert audit(plan, mass_users(3, 3), Relation.ADD_REMOVE) <= 1e-6 * ROUNDING
    assert audit(plan, mass_users(6, 6), Relation.ADD_REMOVE) > (0.2 if noise == "laplace" else 1e-3)


@pytest.mark.parametrize("rows", [100, 1000, 10_000])
def test_catches_noise_on_items_whose_bounded_sum_is_0(rows):
    """A user with `rows` items of which 10 survive: each other one could pass the threshold from 0."""
    plan: NoisePlan = calibrate_unknown_domain(Budget(1, 1e-6), Bound(l1=10), Relation.ADD_REMOVE, "laplace")
    own = (1,) * 10
    assert -math.expm1(-hidden(plan, own)) <= 1e-6
    wrong = hidden(plan, own) - (rows - 10) * math.log1p(-tail(plan, plan.threshold))
    assert -math.expm1(-wrong) > 5e-8 * rows
