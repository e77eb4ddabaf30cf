"""What mechanisms say of their losses dominates what they do: against exact laws of outputs on neighbours, at every loss.

No sampling, so there are no false alarms. The last tests put in known mistakes, and each must be seen by one of these laws.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from headcount.mechanisms import Budget, private_histogram, sampled_histogram, select_partitions
from headcount.mechanisms.accounting import pld
from headcount.mechanisms.accounting.gaussian import gaussian_delta
from headcount.mechanisms.accounting.losses import Draw, Laplace, Losses
from headcount.mechanisms.accounting.pld_sums import losses_delta
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.accounting.thresholds import TOTAL_SHARE
from headcount.mechanisms.choice.exponential import em_exponents, gem_exponents, probabilities

LOSSES = (0.0, 0.05, 0.2, 0.5, 0.8, 1.0, 1.3, 2.0)


def divergence(p: np.ndarray, q: np.ndarray, s: float) -> float:
    """That of two laws of outputs, by the best set of them."""
    return float(np.maximum(p - math.exp(s) * q, 0.0).sum())


def covers(losses: Losses, p: np.ndarray, q: np.ndarray, rounding: float = 1e-12) -> bool:
    """Whether the losses have at least the divergences of two laws, both ways round."""
    return all(
        divergence(one, other, s) <= losses_delta(losses, s) + rounding
        for s in LOSSES
        for one, other in ((p, q), (q, p))
    )


def discrete_laplace(scale: float, moved: int, reach: int) -> np.ndarray:
    """The law of noise around `moved`, on -reach .. reach, with both tails at the ends."""
    q = math.exp(-1 / scale)
    law = (1 - q) / (1 + q) * q ** np.abs(np.arange(-reach, reach + 1) - moved)
    law[0], law[-1] = q ** (reach + moved) / (1 + q), q ** (reach - moved) / (1 + q)
    return law


def product(*laws_of_entries: np.ndarray) -> np.ndarray:
    whole = np.ones(1)
    for law in laws_of_entries:
        whole = np.multiply.outer(whole, law).ravel()
    return whole


@pytest.mark.parametrize("moves", [(1,), (4,), (2, 2), (1, 3), (1, 1, 2), (1, 1, 1, 1)])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_laplace_vectors_are_dominated_by_one_entry(moves, epsilon):
    k = sum(moves)
    part, scale = Laplace(epsilon, k), k / epsilon
    p, q = (product(*(discrete_laplace(scale, move * side, 6) for move in moves)) for side in (0, 1))
    for s in np.linspace(-1.2 * epsilon, 1.2 * epsilon, 41):
        size = abs(s)
        bound = float(pld._laplace(part, np.array([size]))[0])
        if s < 0:  # the other direction, which is the same here
            bound = 1 - math.exp(s) + math.exp(s) * bound
        assert divergence(p, q, s) <= bound + 1e-12
        if len(moves) == 1:
            assert divergence(p, q, s) == pytest.approx(bound, abs=1e-12)
    assert covers(Losses.of(part), p, q)


def test_steps_that_divide_others_and_steps_that_do_not():
    s = np.linspace(0, 1.2, 500)
    for fewer, more in ((1, 7), (2, 8), (5, 1000)):
        assert (pld._laplace(Laplace(1.0, fewer), s) >= pld._laplace(Laplace(1.0, more), s) - 1e-15).all()
    wide = pld._laplace(Laplace.in_more_steps(1.0, 8), s)
    assert all((wide >= pld._laplace(Laplace(1.0, k), s)).all() for k in range(8, 60))
    assert not (pld._laplace(Laplace(1.0, 8), s) >= pld._laplace(Laplace(1.0, 9), s)).all()  # hence the wider one


def discrete_gaussian_sum(sigma: float, times: int) -> tuple[np.ndarray, np.ndarray]:
    """Values and law of a sum of so many draws, each from the integers."""
    reach = math.ceil(12 * sigma * math.sqrt(times))
    x = np.arange(-reach, reach + 1)
    one = np.exp(-(x**2) / (2 * sigma**2))
    spectrum = np.fft.rfft(np.fft.ifftshift(one / one.sum())) ** times
    return x, np.maximum(np.fft.fftshift(np.fft.irfft(spectrum, len(x))), 0.0)


def discrete_gaussian_delta(sigma: float, move: int, times: int, epsilon: float) -> float:
    x, law = discrete_gaussian_sum(sigma, times)
    loss = move * (times * move - 2 * x) / (2 * sigma**2)
    return float(np.dot(law, -np.expm1(np.minimum(epsilon - loss, 0.0))))


@pytest.mark.parametrize(("move", "times"), [(1, 1), (1, 52), (205, 1), (205, 2), (205, 52), (2000, 3)])
def test_one_share_is_enough_for_the_grids_of_many_gaussian_releases(move, times):
    """The finest grid that is not finer than need be: sigma is 1024 of its steps."""
    mu = move * math.sqrt(times) / 1024
    for z in (0.0, 1.0, 3.0, 5.0):
        epsilon = mu**2 / 2 + z * mu
        continuous = float(gaussian_delta(epsilon, mu, 1.0))
        assert discrete_gaussian_delta(1024, move, times, epsilon) <= continuous / TOTAL_SHARE + 1e-15
        assert losses_delta(Losses(mu=mu), epsilon) >= continuous / TOTAL_SHARE


def test_a_coarse_grid_is_seen_and_states_its_zcdp():
    """On the integers noise of sigma 1/2 costs more than the formulas of continuous noise, whatever the share."""
    worst = max(
        discrete_gaussian_delta(0.5, 1, 1, epsilon) / float(gaussian_delta(epsilon, 2.0, 1.0))
        for epsilon in np.linspace(0, 12, 200)
    )
    assert worst > 1.2
    from headcount.mechanisms import Zcdp, plume

    losses = plume(Zcdp(2.0, 1e-6), max_items=1).guarantee().losses
    assert losses.rho == pytest.approx(1.0) and losses.mu == pytest.approx(math.sqrt(2.0))


def own_and_shared(plan, shared: np.ndarray, without: np.ndarray, own: float) -> tuple[np.ndarray, np.ndarray]:
    """Outputs with and without a user of one own item, which is shown with probability `own`, and one shared one."""
    return np.append((1 - own) * shared, own), np.append(without, 0.0)


@pytest.mark.parametrize("relation", list(Relation))
def test_a_threshold_with_laplace_noise(relation):
    made = private_histogram(
        Budget(1, 1e-3), of="events", method="one-stage", bound=2, noise="laplace", relation=relation
    )
    plan, losses = made.plan, made.guarantee().losses
    scale, q = float(plan.scale), math.exp(-1 / float(plan.scale))
    shown = q ** (plan.threshold - 1) / (1 + q)
    shared, without = (discrete_laplace(scale, move, 400) for move in (1, 0))
    assert covers(losses, *own_and_shared(plan, shared, without, shown))
    assert covers(losses, *own_and_shared(plan, *(discrete_laplace(scale, move, 400) for move in (2, 0)), 0.0))
    both = 1 - (1 - shown) ** 2
    assert both <= losses.hiding  # a user of two own items
    assert not covers(Losses(parts=losses.parts), np.array([1 - both, both]), np.array([1.0, 0.0]))


def test_a_threshold_with_gaussian_noise():
    made = private_histogram(Budget(1, 1e-3), of="events", method="one-stage", bound=2, noise="gaussian")
    plan, losses = made.plan, made.guarantee().losses
    sigma, unit = float(plan.scale), 2**plan.grid
    x = np.arange(-6 * int(sigma), 6 * int(sigma))

    def noisy(move: int) -> np.ndarray:
        law = np.exp(-((x - move * unit) ** 2) / (2 * sigma**2))
        return law / law.sum()

    shown = float(noisy(1)[x >= plan.threshold].sum())
    assert covers(losses, *own_and_shared(plan, noisy(1), noisy(0), shown))
    assert covers(losses, noisy(2), noisy(0))
    assert not covers(Losses(mu=losses.mu / 2, hiding=losses.hiding), noisy(2), noisy(0))


def test_truncated_noise_on_several_items():
    made = select_partitions(Budget(1.0, 1e-2), strategy="truncated-geometric", max_items=2)
    plan, losses = made.rounds[0].plan, made.guarantee().losses
    reach, q = plan.threshold - 1, math.exp(-1 / float(plan.scale))
    noise = q ** np.abs(np.arange(-reach, reach + 1.0))
    noise /= noise.sum()

    def named(users: int) -> np.ndarray:
        chance = float(noise[np.arange(-reach, reach + 1) + users >= plan.threshold].sum()) if users else 0.0
        return np.array([1 - chance, chance])

    for counts in itertools.product((0, 1, reach, reach + 1, 2 * reach), repeat=2):
        p, q_law = (product(*(named(count + more) for count in counts)) for more in (1, 0))
        assert covers(losses, p, q_law)
    one = Losses(parts=((losses.parts[0][0], 1),), hiding=losses.hiding)  # as if one item moved
    assert not covers(one, *(product(*(named(reach + more) for _ in range(2))) for more in (1, 0)))


def test_draws():
    random = np.random.default_rng(5)
    for _ in range(20):
        losses = [Fraction(int(x)) for x in random.integers(0, 20, 6)]
        moved = [a - int(b) for a, b in zip(losses, random.integers(0, 2, 6), strict=True)]
        p, q = (probabilities(em_exponents(each, 1, Fraction(7, 10))) for each in (losses, moved))
        assert covers(Losses.of(Draw(0.7)), p, q)
        sizes = [Fraction(int(x)) for x in random.integers(1, 9, 6)]
        moved = [a - s * int(b) for a, s, b in zip(losses, sizes, random.integers(0, 2, 6), strict=True)]
        p, q = (probabilities(gem_exponents(each, sizes, Fraction(7, 10), True)) for each in (losses, moved))
        assert covers(Losses.of(Draw(0.7)), p, q)


def test_half_of_the_range_does_not_cover_a_draw():
    p, q = (probabilities(em_exponents(each, 1, Fraction(7, 10))) for each in ([0, 0], [0, 1]))
    assert covers(Losses.of(Draw(0.7)), p, q) and not covers(Losses.of(Draw(0.3)), p, q)


def shown_counts(users: int, rate: float, threshold: int) -> np.ndarray:
    """The law of what a sample shows of an item: nothing, or a number from the threshold on."""
    from scipy import stats

    law = stats.binom.pmf(np.arange(users + 3), users, rate)
    return np.append(law[:threshold].sum(), law[threshold:])


@pytest.mark.parametrize("relation", list(Relation))
def test_samples(relation):
    made = sampled_histogram(Budget(1.0, 1e-3), max_items=2, relation=relation)
    plan, losses = made.plan, made.guarantee().losses
    rate, threshold = float(plan.rate), plan.threshold
    peak = round((threshold - 1) / -math.expm1(-1 + math.log1p(-rate)))
    users = sorted({threshold - 1, threshold, peak, peak + 3})
    for first, second in itertools.combinations_with_replacement(users, 2):
        up = [shown_counts(count + 1, rate, threshold) for count in (first, second)]
        down = [np.append(shown_counts(count, rate, threshold), 0.0) for count in (first, second)]
        if relation is Relation.REPLACE:  # from one item of these users to another
            assert covers(losses, product(up[0], down[1]), product(down[0], up[1]))
        else:
            assert covers(losses, product(*up), product(*down))
    half = Losses(parts=((losses.parts[0][0], 1),))  # as if one of both items had a coin
    worst = [(shown_counts(peak + 1, rate, threshold), np.append(shown_counts(peak, rate, threshold), 0.0))] * 2
    if relation is Relation.ADD_REMOVE:
        assert not covers(half, product(*(p for p, _ in worst)), product(*(q for _, q in worst)))
