import dataclasses
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.mechanisms.accounting.budget import Budget, Zcdp, zcdp_delta, zcdp_epsilon, zcdp_rho
from headcount.mechanisms.errors import ParameterError


@pytest.mark.seconds
class TestBudget:
    @pytest.mark.parametrize("epsilon", [0, -1, -0.0, math.nan, math.inf, -math.inf, True, "1", None, 1j, 10**400])
    def test_refuses_epsilon(self, epsilon):
        with pytest.raises(ParameterError, match="epsilon") as error:
            Budget(epsilon)
        assert repr(epsilon) in str(error.value)

    @pytest.mark.parametrize("delta", [1, 1.0, -1e-9, 2, math.nan, math.inf, False, "0", None])
    def test_refuses_delta(self, delta):
        with pytest.raises(ParameterError, match="delta") as error:
            Budget(1, delta)
        assert repr(delta) in str(error.value)

    def test_is_frozen_and_holds_plain_floats(self):
        budget = Budget(np.float64(2), np.float32(0.5))
        assert (type(budget.epsilon), type(budget.delta)) == (float, float)
        assert budget == Budget(2, 0.5)
        with pytest.raises(dataclasses.FrozenInstanceError):
            budget.epsilon = 1.0

    @pytest.mark.parametrize(
        ("epsilon", "fraction"),
        [(0.1, Fraction(1, 10)), (1, Fraction(1)), (1e-3, Fraction(1, 1000)), (2.5, Fraction(5, 2))],
    )
    def test_epsilon_fraction_is_what_was_written(self, epsilon, fraction):
        assert Budget(epsilon).epsilon_fraction == fraction
        assert Budget(np.float64(epsilon)).epsilon_fraction == fraction

    def test_split(self):
        assert Budget(0.1).split(1, 9) == (Budget(0.01), Budget(0.09))
        assert Budget(1, 1e-8).split(1) == (Budget(1, 1e-8),)
        assert Budget(1, 1e-8).split(1, 9, delta=(0, 1)) == (Budget(0.1), Budget(0.9, 1e-8))
        assert Budget(1, 1e-8).split(1, 1, delta=(1, 4)) == (Budget(0.5, 2e-9), Budget(0.5, 8e-9))
        assert Budget(1).split(1, 1, delta=(0, 1)) == (Budget(0.5), Budget(0.5))

    def test_split_asks_for_delta_weights(self):
        with pytest.raises(ParameterError, match=r"delta = 1e-08 was split into 2 parts.*delta=\(0, 1\)"):
            Budget(1, 1e-8).split(1, 9)

    @pytest.mark.parametrize("weights", [(), (0, 1), (0,), (1, -1), (1, math.nan), (1, math.inf), (1, "2"), (True, 1)])
    def test_split_refuses_weights(self, weights):
        with pytest.raises(ParameterError, match="weight"):
            Budget(1).split(*weights)

    @pytest.mark.parametrize("delta", [(), (1,), (0, 0), (1, -1), (1, 1, 1)])
    def test_split_refuses_delta_weights(self, delta):
        with pytest.raises(ParameterError, match="delta weight"):
            Budget(1, 1e-8).split(1, 1, delta=delta)

    @settings(deadline=None)
    @given(
        st.floats(1e-6, 100),
        st.floats(1e-15, 0.1),
        st.lists(st.integers(1, 50) | st.floats(0.01, 50), min_size=1, max_size=5),
    )
    def test_parts_never_add_up_to_more(self, epsilon, delta, weights):
        whole = Budget(epsilon, delta)
        parts = whole.split(*weights, delta=tuple(weights))
        for name in ("epsilon", "delta"):
            total = sum(Fraction(repr(getattr(part, name))) for part in parts)
            exact = Fraction(repr(getattr(whole, name)))
            assert exact * (1 - Fraction(1, 10**14)) <= total <= exact


# rho, delta, epsilon as the formula of Canonne, Kamath and Steinke gives it, and epsilon of the plain Gaussian
# mechanism of that rho, which no conversion can undercut
TABLE = [
    (0.1, 1e-6, 2.142, 1.995),
    (0.1, 1e-9, 2.7155, 2.583),
    (0.5, 1e-6, 5.222, 4.887),
    (0.5, 1e-9, 6.474, 6.174),
    (1, 1e-6, 7.766, 7.286),
    (1, 1e-9, 9.5215, 9.093),
    (4, 1e-6, 17.861, 16.860),
]


@pytest.mark.seconds
class TestZcdp:
    def test_split(self):
        parts = Zcdp(1, 1e-6).split(1, 4, delta=(1, 0))
        assert parts == (Zcdp(0.2, 1e-6), Zcdp(0.8))
        with pytest.raises(ParameterError, match="without saying"):
            Zcdp(1, 1e-6).split(1, 4)

    @pytest.mark.parametrize(("rho", "delta", "tight", "gaussian"), TABLE)
    def test_reproduces_the_table(self, rho, delta, tight, gaussian):
        epsilon = zcdp_epsilon(rho, delta)
        assert epsilon == pytest.approx(tight, abs=6e-4)
        assert gaussian < epsilon < rho + 2 * math.sqrt(rho * math.log(1 / delta))

    @pytest.mark.parametrize(("rho", "delta"), [(0.1, 1e-6), (1, 1e-9), (4, 1e-6)])
    def test_agrees_with_dp_accounting(self, rho, delta):
        from dp_accounting.rdp import compute_epsilon

        orders = 1 + np.geomspace(1e-1, 1e4, 100_000)
        theirs = compute_epsilon(orders, rho * orders, delta)[0]
        assert zcdp_epsilon(rho, delta) == pytest.approx(theirs, rel=1e-8)
        assert zcdp_epsilon(rho, delta) <= theirs * (1 + 1e-12)

    @pytest.mark.parametrize("rho", [1e-6, 0.02, 1, 50, 1000])
    @pytest.mark.parametrize("epsilon", [0, 1e-3, 1, 30])
    def test_delta_is_the_minimum_over_orders(self, rho, epsilon):
        """No order of a fine list does better (in 30 digits), and some order does as well."""

        def at(u):
            u, r, e = mpmath.mpf(u), mpmath.mpf(rho), mpmath.mpf(epsilon)
            return u * ((1 + u) * r - e) + u * mpmath.log(u) - (1 + u) * mpmath.log(1 + u)

        least = min(at(u) for u in np.geomspace(1e-12, 1e12, 4001))
        ours = zcdp_delta(rho, epsilon)
        assert 0 < ours <= 1
        if least < -744:
            assert ours == 5e-324  # never 0, which would promise more than there is
            return
        assert math.log(ours) <= float(least) + 1e-9
        assert math.log(ours) >= float(least) - 0.01 * max(1, abs(float(least)))

    @pytest.mark.parametrize("order", [1.001, 1.7, 25.7, 1e4])
    @pytest.mark.parametrize("rho", [1e-6, 0.02, 1, 50])
    def test_with_an_order_delta_is_the_minimum_over_lower_ones(self, rho, order):
        u = np.append((order - 1) * np.geomspace(1e-9, 1, 20_000), order - 1)
        for epsilon in (0.0, 1e-3, 1.0, 30.0):
            least = (u * ((1 + u) * rho - epsilon) - np.log1p(u) - u * np.log1p(1 / u)).min()
            ours = math.log(zcdp_delta(rho, epsilon, order))
            assert max(ours, -700) == pytest.approx(max(min(least, 0.0), -700), rel=1e-4, abs=1e-8)
            assert ours >= math.log(zcdp_delta(rho, epsilon))
        for delta in (0.1, 1e-6, 1e-30):
            epsilon = zcdp_epsilon(rho, delta, order)
            assert zcdp_delta(rho, epsilon, order) <= delta
            assert epsilon < 1e-12 or zcdp_delta(rho, epsilon * (1 - 1e-6), order) > delta

    @pytest.mark.parametrize("order", [1, 0, -math.inf, math.nan, "2"])
    def test_refuses_order(self, order):
        with pytest.raises(ParameterError, match="order"):
            zcdp_delta(1, 1, order)

    @pytest.mark.parametrize("rho", [1e-4, 0.1, 3])
    @pytest.mark.parametrize("delta", [0.1, 1e-6, 1e-30])
    def test_inverses_round_towards_privacy(self, rho, delta):
        epsilon = zcdp_epsilon(rho, delta)
        assert zcdp_delta(rho, epsilon) <= delta
        if zcdp_delta(rho, 0) <= delta:
            assert epsilon < 1e-12
            return
        assert zcdp_delta(rho, epsilon * (1 - 1e-6)) > delta
        back = zcdp_rho(epsilon, delta)
        assert back == pytest.approx(rho, rel=1e-6)
        assert zcdp_delta(back, epsilon) <= delta

    def test_rho_of_a_budget(self):
        assert zcdp_rho(1, 1e-6) == pytest.approx(0.02435, abs=1e-5)
        assert Zcdp.from_budget(Budget(1, 1e-6)) == Zcdp(zcdp_rho(1, 1e-6))

    def test_approximate_zcdp_adds_its_delta(self):
        assert Zcdp(0.1).to_budget(1e-6) == Budget(zcdp_epsilon(0.1, 1e-6), 1e-6)
        budget = Zcdp(0.1, 0.25).to_budget(0.5)
        assert budget.delta == 0.25 + 0.75 * 0.5
        assert Zcdp.from_budget(Budget(1, 0.625), delta=0.25) == Zcdp(zcdp_rho(1, 0.5), 0.25)

    @settings(max_examples=25, deadline=None)
    @given(st.floats(0.01, 10), st.floats(1e-12, 0.1), st.floats(0, 0.9))
    def test_from_budget_keeps_within_it(self, epsilon, delta, share):
        budget = Budget(epsilon, delta)
        zcdp = Zcdp.from_budget(budget, delta=delta * share)
        back = zcdp.to_budget((delta - zcdp.delta) / (1 - zcdp.delta))
        assert back.epsilon <= epsilon * (1 + 1e-9)
        assert back.delta <= delta * (1 + 1e-12)

    @pytest.mark.parametrize("rho", [0, -1, math.nan, math.inf, True, "1"])
    def test_refuses_rho(self, rho):
        with pytest.raises(ParameterError, match="rho"):
            Zcdp(rho)
        with pytest.raises(ParameterError, match="rho"):
            zcdp_delta(rho, 1)

    @pytest.mark.parametrize("delta", [0, 1, -1, math.nan, "0.1"])
    def test_refuses_delta_for_conversion(self, delta):
        for call in (zcdp_epsilon, zcdp_rho):
            with pytest.raises(ParameterError, match="delta"):
                call(1, delta)
        with pytest.raises(ParameterError, match="delta"):
            Zcdp(1).to_budget(delta)

    def test_refuses_a_budget_whose_delta_is_used_up(self):
        for budget, delta in ((Budget(1), 0), (Budget(1, 1e-6), 1e-6)):
            with pytest.raises(ParameterError, match="delta above its own"):
                Zcdp.from_budget(budget, delta=delta)
