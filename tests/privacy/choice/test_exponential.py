"""Exact audits of the private selections: no sampling, so nothing here can fail or pass by chance.

For two neighbouring tables of losses, the probabilities of every candidate are computed, and the largest |log ratio| is
compared with the epsilon that is claimed: on random neighbours, which take all freedom that the stated sensitivities
leave, and on some that come near the bound, since an audit that is far from it would also pass a wrong mechanism. Then
each known mistake is made on purpose, and the same audit must find it.
"""

from fractions import Fraction

import numpy as np
import pytest
from scipy.special import logsumexp

from headcount.mechanisms.choice.exponential import (
    GRID,
    em_exponents,
    gem_exponents,
    probabilities,
)

EPSILON = Fraction(1, 10)
EPSILONS = pytest.mark.parametrize("epsilon", [EPSILON, Fraction(1), Fraction(4)], ids=str)
ROUNDING = 1 + 1e-9  # of the audit's own floats
TABLES = 100


def loss(before, after):
    """The largest |log ratio| of any candidate, from the exponents on the two neighbours."""
    p, q = probabilities(before), probabilities(after)
    assert min(p.min(), q.min()) > 0  # else the floats are too short for the audit
    return float(np.abs(np.log(p) - np.log(q)).max())


def tables(seed=0):
    """A generator, and random losses: few or many candidates, some of them close and some far apart."""
    rng = np.random.default_rng(seed)
    for _ in range(TABLES):
        yield rng, [int(q) for q in rng.integers(0, 2 ** rng.integers(0, 7), rng.integers(2, 12))]


def moved(losses, changes):
    return [q + change for q, change in zip(losses, changes, strict=True)]


def moves(rng, lows, highs):
    """How each loss may move, by itself: half of them to an end of what it may."""
    for low, high in zip(lows, highs, strict=True):
        part = Fraction(int(rng.integers(0, 101)), 100)
        yield [low, high, low + part * (high - low), low + part * (high - low)][rng.integers(4)]


# --- the exponential mechanism ----------------------------------------------------------------------------------


def em_losses(epsilon, low, high, spread):
    """Over random neighbours with low <= dq <= high for every candidate, the largest loss, in epsilons."""
    worst = 0.0
    for rng, losses in tables():
        losses = [(high - low) * q for q in losses]
        shift = int(rng.integers(-(10**9), 10**9))  # moves of all alike are free
        after = moved(losses, [shift + move for move in moves(rng, [low] * len(losses), [high] * len(losses))])
        pair = em_exponents(losses, spread, epsilon), em_exponents(after, spread, epsilon)
        worst = max(worst, loss(*pair) / float(epsilon))
    return worst


@EPSILONS
def test_em_keeps_epsilon_if_the_spread_is_the_range(epsilon):
    for low, high in ((0, 5), (-5, 0), (-5, 5), (-2, 3), (Fraction(1, 7), Fraction(2, 7))):
        assert 0.8 < em_losses(epsilon, low, high, high - low) <= ROUNDING


@EPSILONS
def test_em_is_tight(epsilon):
    """One rare candidate becomes worse by the range: nearly all of epsilon, in either direction."""
    before = [0] * 60 + [1]
    for after, spread in ((moved(before, [0] * 60 + [5]), 5), (moved(before, [-5] * 60 + [5]), 10)):
        pair = em_exponents(before, spread, epsilon), em_exponents(after, spread, epsilon)
        for x, y in (pair, pair[::-1]):
            assert 0.9 * float(epsilon) < loss(x, y) <= float(epsilon) * ROUNDING


@EPSILONS
def test_a_spread_below_the_range_is_caught(epsilon):
    """Among them the factor 2 that is missing when losses move both ways: D in place of 2 D."""
    assert em_losses(epsilon, 0, 5, 4) > 1.05
    assert em_losses(epsilon, -5, 5, 5) > 1.6


def zcdp(before, after):
    """The largest Renyi divergence of an order a, divided by a."""
    p, q = np.log(probabilities(before)), np.log(probabilities(after))
    return max(
        float(logsumexp(a * x + (1 - a) * y) / (a - 1) / a) for a in (1.01, 1.5, 2, 8, 64) for x, y in ((p, q), (q, p))
    )


@EPSILONS
def test_select_is_concentrated(epsilon):
    """epsilon^2 / 8 in zCDP, and not much less if two change places."""
    allowed = float(epsilon) ** 2 / 8
    for rng, losses in tables():
        after = moved(losses, moves(rng, [0] * len(losses), [5] * len(losses)))
        pair = em_exponents(losses, 5, epsilon), em_exponents(after, 5, epsilon)
        assert zcdp(*pair) <= allowed * ROUNDING
    swap = em_exponents([0, 5], 10, epsilon), em_exponents([5, 0], 10, epsilon)
    assert 0.6 * allowed < zcdp(*swap) <= allowed * ROUNDING


# --- the generalised exponential mechanism ----------------------------------------------------------------------


def scores(losses, sensitivities, one_sided, tau):
    """floor(GRID s), as integers."""
    return [int(x * 2 * GRID) for x in gem_exponents(losses, sensitivities, Fraction(1), one_sided, tau)]


def gem_losses(epsilon, one_sided, both_ways, claimed=1):
    """Over random neighbours with |dq| <= D (both_ways) or -D <= dq <= 0: the largest move of a score, in units of the
    sensitivity that it must not exceed, and the largest loss, in epsilons. `claimed` D are used in place of D."""
    moved_most = worst = 0.0
    for rng, losses in tables():
        exact = rng.random() < 0.5
        true = [int(d) if exact else Fraction(8 * int(d), 7) for d in 2 ** rng.integers(0, 8, len(losses))]
        after = moved(losses, moves(rng, [-d for d in true], true if both_ways else [0] * len(true)))
        sensitivities = [claimed * d for d in true]
        tau = [None, 0, 1][rng.integers(3)]
        table = [scores(q, sensitivities, one_sided, tau) for q in (losses, after)]
        moved_most = max(moved_most, *(abs(a - b) / GRID for a, b in zip(*table, strict=True)))
        pair = [gem_exponents(q, sensitivities, epsilon, one_sided, tau) for q in (losses, after)]
        worst = max(worst, loss(*pair) / float(epsilon))
    return moved_most, worst


@EPSILONS
@pytest.mark.parametrize("one_sided", [False, True], ids=["two-sided", "one-sided"])
def test_gem_keeps_epsilon(epsilon, one_sided):
    moved_most, worst = gem_losses(epsilon, one_sided, both_ways=not one_sided)
    assert moved_most == 1  # in integers: the rounding to the grid adds nothing
    assert 0.5 < worst <= ROUNDING


def gem_pair(losses, changes, sensitivities, one_sided, epsilon=EPSILON):
    """Exponents at tau = 0 on a table and on its neighbour, once it is seen that the sensitivities are true."""
    for change, d in zip(changes, sensitivities, strict=True):
        assert -d <= change <= (0 if one_sided else d)
    return [gem_exponents(q, sensitivities, epsilon, one_sided, tau=0) for q in (losses, moved(losses, changes))]


# Most of the mass is on many equal candidates whose score falls by 1, while that of another one rises by 1.
COPIES = 200


def test_gem_is_tight():
    """Scores 5, 2 and 0 become 6, 1 and 0: the copies are measured by the last, the first by the copies."""
    pair = gem_pair([10] + [0] * COPIES + [-2002], [1] + [-1] * COPIES + [1000], [1] + [1] * COPIES + [1000], False)
    for x, y in (pair, pair[::-1]):
        assert 0.9 < loss(x, y) / float(EPSILON) <= ROUNDING


def test_one_sided_gem_is_tight():
    """Scores 1, 10 and 0 become 2, 9 and 0: the copies are measured by the first, the first by the last."""
    pair = gem_pair([0] + [10] * COPIES + [-1000], [0] + [-1] * COPIES + [-1000], [1] + [1] * COPIES + [1000], True)
    for x, y in (pair, pair[::-1]):
        assert 0.9 < loss(x, y) / float(EPSILON) <= ROUNDING


def test_the_one_sided_form_fails_where_losses_move_both_ways():
    """As when a user is replaced. Scores 10, 2.002 and 0 become 12, 1.001 and 0, on the table above that is tight."""
    assert gem_losses(EPSILON, one_sided=True, both_ways=True)[0] > 1.5
    losses, changes = [10] + [0] * COPIES + [-2002], [1] + [-1] * COPIES + [1000]
    sensitivities = [1] + [1] * COPIES + [1000]
    pair = [gem_exponents(q, sensitivities, EPSILON, True, tau=0) for q in (losses, moved(losses, changes))]
    assert loss(*pair) / float(EPSILON) > 1.4


@pytest.mark.parametrize("one_sided", [False, True], ids=["two-sided", "one-sided"])
def test_sensitivities_that_are_too_small_are_caught(one_sided):
    moved_most, worst = gem_losses(EPSILON, one_sided, not one_sided, claimed=Fraction(1, 2))
    assert moved_most > 1.9 and worst > 1.05
