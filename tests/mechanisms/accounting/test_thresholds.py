import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.gaussian import gaussian_delta, gaussian_sigma
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.accounting.thresholds import (
    TOTAL_SHARE,
    Spread,
    gaussian_joint_delta,
    gaussian_threshold,
    grid_threshold,
    laplace_own_items_stay_hidden,
    laplace_threshold,
)
from headcount.mechanisms.errors import ParameterError


def continuous_laplace_threshold(total, cap, scale, delta):
    """The formula for continuous noise: release iff value > t."""
    return max(h + scale * math.log(1 / (2 * -math.expm1(h / total * math.log1p(-delta)))) for h in (1, cap))


class TestSpread:
    @settings(deadline=None)
    @given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 40), st.floats(0.2, 50), st.integers(0, 40))
    def test_worst_own_is_the_worst_of_all_partitions(self, total, cap, own, slope, kink):
        """Against the knapsack recursion, for two families of convex increasing functions."""
        assume(own <= total)
        spread = Spread.of_mass(total, cap)
        for phi in (lambda h: np.exp(h / slope), lambda h: 1 + np.maximum(0, h - kink)):
            best = [0.0]
            for w in range(1, own + 1):
                best.append(max(phi(h) + best[w - h] for h in range(1, min(w, spread.cap) + 1)))
            ways = spread.worst_own(own)
            assert all(sum(n * h for n, h in way) == own for way in ways)
            worst = max(sum(n * phi(h) for n, h in way if n) for way in ways)
            assert worst == pytest.approx(best[own], rel=1e-12)

    def test_shared_norm_is_the_largest_of_all_partitions(self):
        spread = Spread.of_mass(20, 7)
        best = [0]
        for w in range(1, 21):
            best.append(max(h * h + best[w - h] for h in range(1, min(w, 7) + 1)))
        assert [spread.shared_l2_squared(own) for own in range(21)] == best[::-1]
        assert Spread.of_items(5, 3).shared_l2_squared(2) == 27

    def test_l1(self):
        assert Spread.of_mass(10, 3).l1 == 10
        assert Spread.of_items(10, 3).l1 == 30
        assert Spread.of_mass(3, 10).cap == 3


@pytest.mark.seconds
class TestLaplace:
    @pytest.mark.parametrize(("total", "cap", "printed"), [(100, 100, 1774), (50, 1, 853), (100, 5, 1774)])
    def test_printed_values(self, total, cap, printed):
        """The continuous thresholds at epsilon 1 and delta 1e-6; the discrete ones lie at most one above."""
        t = continuous_laplace_threshold(total, cap, total, 1e-6)
        assert round(t) == printed
        assert t < laplace_threshold(Spread.of_mass(total, cap), Fraction(total), 1e-6) <= t + 1.5

    @settings(max_examples=60, deadline=None)
    @given(
        st.booleans(),
        st.integers(1, 300),
        st.integers(1, 300),
        st.fractions(Fraction(1, 20), 2000, max_denominator=1000),
        st.floats(1e-12, 0.49),
    )
    def test_is_the_least_that_holds(self, whole_items, units, cap, scale, delta):
        """By the definition, in 50 digits: the worst of the partitions is found by recursion."""
        cap = cap if whole_items else min(cap, units)
        spread = Spread(units, cap, whole_items)
        tau = laplace_threshold(spread, scale, delta)
        with mpmath.workdps(50):
            q = mpmath.exp(-mpmath.mpf(scale.denominator) / scale.numerator)

            def released(threshold):
                def phi(h):
                    m = threshold - h
                    tail = q**m / (1 + q) if m >= 0 else 1 - q ** (1 - m) / (1 + q)
                    return -mpmath.log(1 - tail)

                if whole_items:
                    worst = units * phi(cap)
                else:
                    phis = [0, *(phi(h) for h in range(1, cap + 1))]
                    ways = [units * phis[1], (units // cap) * phis[cap] + phis[units % cap]]
                    worst = max(*ways, (units // cap) * phis[cap] + (units % cap) * phis[1])
                return 1 - mpmath.exp(-worst)

            assert released(tau) <= mpmath.mpf(repr(delta)) < released(tau - 1)

    @pytest.mark.parametrize("total", [1, 7, 10, 64])
    def test_matches_the_closed_formula_where_the_cap_divides(self, total):
        for cap in (c for c in range(1, total + 1) if total % c == 0):
            for scale in (Fraction(1, 2), Fraction(total), Fraction(10 * total, 3)):
                q, b = math.exp(-1 / scale), float(scale)
                closed = max(h - b * math.log((1 + q) * -math.expm1(h / total * math.log1p(-1e-7))) for h in (1, cap))
                assert laplace_threshold(Spread.of_mass(total, cap), scale, 1e-7) == math.ceil(closed)

    def test_a_cap_that_does_not_divide_is_not_charged_for_the_remainder(self):
        """With cap 60 of 100 there is room for one capped item and one of 40, not for 100/60 capped ones."""
        tau = laplace_threshold(Spread.of_mass(100, 60), Fraction(10), 1e-6)
        charged = 60 + 10 * math.log(1 / ((1 + math.exp(-0.1)) * 0.6e-6))
        assert tau <= charged - 3

    @pytest.mark.parametrize("scale", [Fraction(1, 2**39), Fraction(2**40 - 1, 2**39 + 1), Fraction(2**40 - 1)])
    @pytest.mark.parametrize("delta", [5e-324, 1e-100, 0.4999])
    @pytest.mark.parametrize("units", [1, 1000, 2**40])
    def test_extremes(self, scale, delta, units):
        for spread in (Spread.of_mass(units, 3), Spread.of_items(units, 3)):
            tau = laplace_threshold(spread, scale, delta)
            assert tau > spread.cap
            assert laplace_own_items_stay_hidden(spread, scale, delta, tau)
            assert not laplace_own_items_stay_hidden(spread, scale, delta, tau - 1)

    @pytest.mark.parametrize("delta", [0.0, 0.5, 0.9])
    def test_refuses_delta(self, delta):
        with pytest.raises(ParameterError, match=f"got {delta}"):
            laplace_threshold(Spread.of_mass(1, 1), Fraction(1), delta)


@pytest.mark.seconds
class TestGaussian:
    @pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1, 20])
    @pytest.mark.parametrize("ratio", [1e-7, 1e-2, 0.5, 3])
    def test_delta_against_50_digits(self, epsilon, ratio):
        with mpmath.workdps(50):
            e, s = mpmath.mpf(epsilon), mpmath.mpf(ratio)
            for signed in (e, -e):
                exact = mpmath.ncdf(s / 2 - signed / s) - mpmath.exp(signed) * mpmath.ncdf(-s / 2 - signed / s)
                ours = float(gaussian_delta(float(signed), ratio, 1.0))
                assert ours == pytest.approx(float(exact), rel=1e-5, abs=1e-300)

    def test_delta_without_distance(self):
        assert gaussian_delta([1.0, -1.0], 0.0, 5.0) == pytest.approx([0, 1 - math.exp(-1)])

    @pytest.mark.parametrize("epsilon", [1e-6, 1e-2, 1, 30, 1e4])
    @pytest.mark.parametrize("delta", [0.3, 1e-6, 1e-12, 1e-30])
    def test_sigma_keeps_delta_and_is_tight(self, epsilon, delta):
        sigma = gaussian_sigma(epsilon, delta)
        with mpmath.workdps(50):
            e, s = mpmath.mpf(epsilon), 1 / mpmath.mpf(sigma)
            exact = mpmath.ncdf(s / 2 - e / s) - mpmath.exp(e) * mpmath.ncdf(-s / 2 - e / s)
            assert 0.9999 * delta < exact <= delta

    def test_sigma_refuses_what_floats_cannot_decide(self):
        with pytest.raises(ParameterError, match="epsilon = 1e-10 with delta = 1e-12"):
            gaussian_sigma(1e-10, 1e-12)

    @pytest.mark.parametrize(
        ("total", "cap", "sigma", "threshold"), [(100, 100, 423, 2373), (100, 5, 94.5, 531), (50, 1, 29.9, 165)]
    )
    def test_printed_values(self, total, cap, sigma, threshold):
        spread = Spread.of_mass(total, cap)
        ours = math.sqrt(spread.shared_l2_squared(0)) * gaussian_sigma(1, tuning.GAUSSIAN_NOISE_DELTA * 1e-6)
        assert ours == pytest.approx(sigma, rel=2e-3)
        t = gaussian_threshold(spread, 1, 1e-6, ours, Relation.ADD_REMOVE)
        assert t == pytest.approx(threshold, abs=0.6)

    @pytest.mark.parametrize("relation", Relation)
    @pytest.mark.parametrize("spread", [Spread.of_mass(60, 60), Spread.of_mass(60, 7), Spread.of_items(60, 2)])
    @pytest.mark.parametrize(("epsilon", "delta"), [(1, 1e-6), (0.05, 1e-3), (4, 1e-9)])
    def test_blocks_bound_the_brute_force_from_above(self, relation, spread, epsilon, delta):
        distance = math.sqrt(spread.shared_l2_squared(0) * relation.users)
        sigma = distance * gaussian_sigma(epsilon, tuning.GAUSSIAN_NOISE_DELTA * delta)
        for t in (spread.cap + 2 * sigma, gaussian_threshold(spread, epsilon, delta, sigma, relation)):
            exact = self.brute_force(spread, epsilon, sigma, t, relation)
            single = gaussian_joint_delta(spread, epsilon, sigma, t, relation)
            assert single == pytest.approx(exact, rel=1e-9)
            for blocks in (4, 10, 25):
                assert gaussian_joint_delta(spread, epsilon, sigma, t, relation, blocks) >= exact * (1 - 1e-9)

    @staticmethod
    def brute_force(spread, epsilon, sigma, t, relation):
        """Split by split in plain Python, with the sum of phi by recursion over all partitions."""

        def phi(h):
            return -math.log1p(-0.5 * math.erfc((t - h) / sigma / math.sqrt(2)))

        def divergence(w, v):
            squared = spread.shared_l2_squared(w) if w is not None else 0
            squared += spread.shared_l2_squared(v) if v is not None else 0
            own_x, own_y = (0 if u is None else own[u] for u in (w, v))
            shared = float(gaussian_delta(epsilon + own_x - own_y, math.sqrt(squared), sigma))
            return -math.expm1(-own_x) + math.exp(-own_x) * shared

        own = [0.0]
        for w in range(1, spread.units + 1):
            if spread.whole_items:
                own.append(w * phi(spread.cap))
            else:
                own.append(max(phi(h) + own[w - h] for h in range(1, min(w, spread.cap) + 1)))
        splits = range(spread.units + 1)
        if relation is Relation.REPLACE:
            return max(divergence(w, v) for w in splits for v in splits)
        return max(max(divergence(w, None), divergence(None, w)) for w in splits)

    @pytest.mark.parametrize("relation", Relation)
    @pytest.mark.parametrize(
        "spread", [Spread.of_mass(10_000, 10_000), Spread.of_mass(10_000, 3), Spread.of_items(20_000, 5)]
    )
    def test_large_bounds_lose_nothing_to_blocks(self, relation, spread):
        """The own items alone need a threshold that is at most a thousandth lower."""
        sigma = math.sqrt(spread.shared_l2_squared(0) * relation.users) * gaussian_sigma(
            1, tuning.GAUSSIAN_NOISE_DELTA * 1e-8
        )
        t = gaussian_threshold(spread, 1, 1e-8, sigma, relation)
        below = t * 0.999

        def tail(h):
            return 0.5 * math.erfc((below - h) / sigma / math.sqrt(2))

        assert max(sum(n * tail(h) for n, h in way) for way in spread.worst_own(spread.units)) > TOTAL_SHARE * 1e-8

    def test_refuses_a_sigma_that_is_too_small(self):
        with pytest.raises(ParameterError, match="sigma = 1.0 is too small"):
            gaussian_threshold(Spread.of_mass(10, 10), 1.0, 1e-6, 1.0, Relation.ADD_REMOVE)

    @pytest.mark.parametrize("sigma", [1024, 1500])
    @pytest.mark.parametrize("z", [1.0, 1.0003, 2.5, 5.3, 7])
    def test_grid_threshold_leaves_at_most_the_continuous_tail(self, sigma, z):
        """Exact sums over the grid; one step lower they exceed it."""
        k = np.arange(-40 * sigma, 40 * sigma + 1)
        weights = np.exp(-0.5 * (k / sigma) ** 2)
        for grid in (0, 3):
            m = grid_threshold(z * sigma / 2**grid, grid)
            continuous = 0.5 * math.erfc(z / math.sqrt(2))
            assert weights[k >= m].sum() / weights.sum() <= continuous
            assert weights[k >= m - 1].sum() / weights.sum() > continuous
