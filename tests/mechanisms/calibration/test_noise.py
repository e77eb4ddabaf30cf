import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.gaussian import gaussian_sigma
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.accounting.thresholds import Spread, laplace_threshold
from headcount.mechanisms.bounding.steps import ClipNormStep, promise_of
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import calibrate_public_domain, calibrate_unknown_domain, choose_noise
from headcount.mechanisms.errors import ParameterError

BUDGET = Budget(1, 1e-6)
BOTH = pytest.mark.parametrize("relation", Relation)


class TestLaplaceScale:
    @pytest.mark.parametrize("epsilon", [0.1, 1, 2.5, 1e-3])
    @BOTH
    def test_is_exactly_distance_over_epsilon(self, epsilon, relation):
        exact = relation.users * 10 / Fraction(str(epsilon))
        assert calibrate_public_domain(Budget(epsilon), Bound(l1=10), relation).scale == exact
        assert calibrate_unknown_domain(Budget(epsilon, 1e-6), Bound(l1=10), relation, "laplace").scale == exact
        fine = calibrate_public_domain(Budget(epsilon), Bound(l1=10, grid=7), relation)
        assert (fine.scale, fine.grid) == (exact * 128, 7)

    def test_takes_the_smaller_of_two_limits(self):
        assert calibrate_public_domain(BUDGET, Bound(l1=10, l0=3, linf=2), Relation.ADD_REMOVE).scale == 6
        assert calibrate_public_domain(BUDGET, Bound(l1=4, l0=3, linf=2), Relation.ADD_REMOVE).scale == 4

    @settings(deadline=None)
    @given(st.floats(1e-6, 1e6), st.integers(1, 10**4))
    def test_is_rounded_upwards_into_40_bits(self, epsilon, l1):
        budget = Budget(epsilon)
        plan = calibrate_public_domain(budget, Bound(l1=l1), Relation.REPLACE)
        exact = 2 * l1 / budget.epsilon_fraction
        assert max(plan.scale.numerator, plan.scale.denominator) < 2**40
        assert exact <= plan.scale <= exact * (1 + Fraction(1, 2**18)) + Fraction(1, 2**38)

    def test_a_third_of_the_budget_costs_no_noise_to_speak_of(self):
        part, _ = Budget(1).split(1, 2)
        scale = calibrate_public_domain(part, Bound(l1=10), Relation.ADD_REMOVE).scale
        assert 30 <= scale <= 30 * (1 + Fraction(1, 10**9))

    def test_refuses_more_noise_than_can_be_sampled(self):
        with pytest.raises(ParameterError, match=r"epsilon = 1e-12 .*l1 <= 10.*raise epsilon or lower the bound"):
            calibrate_public_domain(Budget(1e-12), Bound(l1=10), Relation.ADD_REMOVE)
        with pytest.raises(ParameterError, match="raise epsilon or lower the bound"):
            calibrate_public_domain(BUDGET, Bound(l2=2**39), Relation.ADD_REMOVE, "gaussian")

    def test_public_domain_spends_no_delta(self):
        assert calibrate_public_domain(BUDGET, Bound(l1=10), Relation.ADD_REMOVE).delta == 0


class TestGaussianScale:
    @BOTH
    def test_public_domain(self, relation):
        plan = calibrate_public_domain(BUDGET, Bound(l2=7), relation, "gaussian")
        sigma = 7 * math.sqrt(relation.users) * gaussian_sigma(1, 0.999e-6)
        assert sigma <= plan.scale / 2**plan.grid <= sigma * (1 + 2**-10)
        assert plan.stddev == float(plan.scale / 2**plan.grid)
        assert (plan.threshold, plan.delta) == (None, 1e-6)

    @pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1, 10, 1000])
    @pytest.mark.parametrize("grid", [0, 7, 20])
    def test_grid_is_the_coarsest_allowed(self, epsilon, grid):
        plan = calibrate_public_domain(Budget(epsilon, 1e-6), Bound(l2=3, grid=grid), "add-remove", "gaussian")
        assert plan.scale.denominator == 1
        assert plan.scale >= 2**10
        assert plan.grid >= grid
        assert plan.grid == grid or plan.scale <= 2**11 + 1

    @pytest.mark.parametrize(
        ("bound", "squared"),
        [
            (Bound(l2=7), 49),
            (Bound(l1=7), 49),
            (Bound(l1=10, linf=4), 36),
            (Bound(l0=3, linf=4), 48),
            (Bound(l0=3, linf=4, l1=10), 36),
            (Bound(l1=10, l2=5), 25),
        ],
    )
    def test_l2_follows_from_the_other_limits(self, bound, squared):
        plan = calibrate_public_domain(BUDGET, bound, Relation.ADD_REMOVE, "gaussian")
        assert plan.stddev == pytest.approx(math.sqrt(squared) * gaussian_sigma(1, 0.999e-6), rel=2**-10)


class TestStddev:
    @pytest.mark.parametrize("scale", [0.01, 0.3, 1, 4.7, 300])
    def test_laplace_is_that_of_the_mass_function(self, scale):
        z = np.arange(-20_000, 20_001)
        mass = np.exp(-np.abs(z) / scale)
        exact = math.sqrt((mass * z**2).sum() / mass.sum())
        plan = calibrate_public_domain(Budget(1 / scale), Bound(l1=1), Relation.ADD_REMOVE)
        assert plan.stddev == pytest.approx(exact, rel=1e-9)

    def test_laplace_keeps_its_digits_for_large_and_tiny_scales(self):
        large = calibrate_public_domain(Budget(1e-9), Bound(l1=1), Relation.ADD_REMOVE)
        assert large.stddev == pytest.approx(math.sqrt(2) * 1e9, rel=1e-12)
        assert calibrate_public_domain(Budget(1e6), Bound(l1=1), Relation.ADD_REMOVE).stddev == 0

    def test_is_in_counts(self):
        plan = calibrate_public_domain(BUDGET, Bound(l1=10, grid=7), Relation.ADD_REMOVE)
        assert plan.stddev == pytest.approx(math.sqrt(2) * 10, rel=1e-5)


@pytest.mark.seconds
class TestUnknownDomain:
    @BOTH
    def test_structures(self, relation):
        """Mass if only the total is limited, items if their number and counts limit it at least as much."""
        cases = {
            Bound(l1=12): Spread.of_mass(12, 12),
            Bound(l1=12, linf=5): Spread.of_mass(12, 5),
            Bound(l1=12, linf=50): Spread.of_mass(12, 12),
            Bound(l1=12, l0=3): Spread.of_mass(12, 12),
            Bound(l1=12, l0=4, linf=4): Spread.of_mass(12, 4),
            Bound(l1=12, l0=3, linf=4): Spread.of_items(3, 4),
            Bound(l0=3, linf=4): Spread.of_items(3, 4),
        }
        for bound, spread in cases.items():
            plan = calibrate_unknown_domain(BUDGET, bound, relation, "laplace")
            scale = Fraction(spread.l1 * relation.users)
            assert (plan.scale, plan.grid) == (scale, 0)
            assert plan.threshold == laplace_threshold(spread, scale, 1e-6)
            gaussian = calibrate_unknown_domain(BUDGET, bound, relation, "gaussian")
            sigma = math.sqrt(spread.shared_l2_squared(0) * relation.users) * gaussian_sigma(1, 0.99e-6)
            assert gaussian.stddev == pytest.approx(sigma, rel=2**-10)

    @pytest.mark.parametrize(
        ("bound", "kind"),
        [(Bound(l1=10), "laplace"), (Bound(l1=100), "laplace"), (Bound(l1=100, linf=5), "gaussian"),
         (Bound(l1=50, linf=1), "gaussian"), (Bound(l0=100, linf=1), "gaussian")],
    )  # fmt: skip
    def test_auto_takes_the_lower_threshold(self, bound, kind):
        plans = [calibrate_unknown_domain(BUDGET, bound, "add-remove", noise) for noise in ("laplace", "gaussian")]
        auto = calibrate_unknown_domain(BUDGET, bound, "add-remove")
        assert auto == choose_noise(BUDGET, bound, "add-remove") == min(plans, key=lambda p: p.threshold_in_counts)
        assert auto.kind == kind

    def test_auto_breaks_ties_by_the_lower_deviation(self, monkeypatch):
        import dataclasses

        from headcount.mechanisms.calibration import noise as calibration

        laplace = calibrate_unknown_domain(BUDGET, Bound(l1=10), "replace", "laplace")
        tied = dataclasses.replace(laplace, kind="gaussian", grid=2, threshold=4 * laplace.threshold, stddev=1.0)
        plans = {"laplace": laplace, "gaussian": tied}
        monkeypatch.setattr(calibration, "calibrate_unknown_domain", lambda b, c, r, noise: plans[noise])
        assert choose_noise(BUDGET, Bound(l1=10), "replace") is tied

    def test_refuses_delta(self):
        for delta in (0, 0.5):
            for noise in ("auto", "laplace", "gaussian"):
                with pytest.raises(ParameterError, match=f"got {float(delta)}.*given domain"):
                    calibrate_unknown_domain(Budget(1, delta), Bound(l1=10), "add-remove", noise)

    @pytest.mark.parametrize("bound", [Bound(), Bound(l0=5), Bound(linf=5), Bound(l2=5), Bound(l0=5, l2=5)])
    def test_refuses_a_bound_without_a_total(self, bound):
        with pytest.raises(ParameterError, match="LimitItems with LimitPerItem"):
            calibrate_unknown_domain(BUDGET, bound, Relation.ADD_REMOVE)

    @pytest.mark.parametrize("noise", ["auto", "laplace", "gaussian"])
    @pytest.mark.parametrize("limit", [1, 10, 1023, 1024, 10**6])
    def test_refuses_scaled_counts_also_where_a_large_bound_leaves_no_fractions(self, limit, noise):
        bound = promise_of([ClipNormStep(limit, 1)], Bound(), "")
        assert (bound.grid == 0) == (limit >= 1024)
        with pytest.raises(ParameterError, match="as ClipNorm leaves them.*RandClip"):
            calibrate_unknown_domain(BUDGET, bound, Relation.ADD_REMOVE, noise)
        assert not bound.within(Bound(l1=limit)), "nor does noise for a sample take them"
        assert bound.within(bound) and calibrate_public_domain(BUDGET, bound, Relation.ADD_REMOVE)

    def test_refuses_fractions(self):
        with pytest.raises(ParameterError, match="in steps of 2.-7.*116 times.*RandClip"):
            calibrate_unknown_domain(BUDGET, Bound(l1=10, grid=7, label="Count/ClipNorm"), Relation.ADD_REMOVE)

    @pytest.mark.slow("ranges")
    @settings(max_examples=40, deadline=None)
    @given(
        st.floats(0.01, 20),
        st.floats(1e-15, 0.4),
        st.integers(1, 2000),
        st.integers(1, 2000),
        st.sampled_from(Relation),
    )
    def test_every_plan_is_well_formed(self, epsilon, delta, total, cap, relation):
        for noise in ("laplace", "gaussian"):
            plan = calibrate_unknown_domain(Budget(epsilon, delta), Bound(l1=total, linf=cap), relation, noise)
            assert plan.kind == noise
            assert isinstance(plan.threshold, int)
            assert min(total, cap) * 2**plan.grid < plan.threshold < 2**62
            assert 0 < plan.scale < 2**40

    def test_refuses_a_threshold_beyond_64_bits(self):
        bound = Bound(l1=2**40)
        with pytest.raises(ParameterError, match="raise epsilon"):
            calibrate_unknown_domain(Budget(0.5, 1e-6), bound, Relation.ADD_REMOVE)


class TestRefusals:
    @pytest.mark.parametrize("value", [0, -1, 2.5, True, "10", 2**41, math.inf])
    @pytest.mark.parametrize("name", ["l0", "l1", "l2", "linf"])
    def test_limits(self, name, value):
        for call in (calibrate_unknown_domain, calibrate_public_domain):
            with pytest.raises(ParameterError, match=f"{name} must be a whole number") as error:
                call(BUDGET, Bound(**{name: value}), Relation.ADD_REMOVE, "laplace")
            assert repr(value) in str(error.value)

    @pytest.mark.parametrize("grid", [-1, 1.0, 41, None])
    def test_grid(self, grid):
        with pytest.raises(ParameterError, match="grid must be"):
            calibrate_public_domain(BUDGET, Bound(l1=1, grid=grid), Relation.ADD_REMOVE)

    def test_noise_and_relation(self):
        for noise in ("gauss", None):
            with pytest.raises(ParameterError, match=f"got {noise!r}"):
                calibrate_public_domain(BUDGET, Bound(l1=1), Relation.ADD_REMOVE, noise)
        with pytest.raises(ParameterError, match="got 'normal'"):
            calibrate_unknown_domain(BUDGET, Bound(l1=1), Relation.ADD_REMOVE, "normal")
        with pytest.raises(ParameterError, match="got 'both'"):
            calibrate_unknown_domain(BUDGET, Bound(l1=1), "both")

    def test_public_domain_without_what_the_noise_needs(self):
        for bound in (Bound(), Bound(l2=3), Bound(l0=3), Bound(linf=3)):
            with pytest.raises(ParameterError, match="Laplace noise needs a limit on a user's total"):
                calibrate_public_domain(BUDGET, bound, Relation.ADD_REMOVE)
        for bound in (Bound(), Bound(l0=3), Bound(linf=3)):
            with pytest.raises(ParameterError, match="Gaussian noise needs a limit on a user's l2"):
                calibrate_public_domain(BUDGET, bound, Relation.ADD_REMOVE, "gaussian")
        with pytest.raises(ParameterError, match="Gaussian noise needs a delta above 0"):
            calibrate_public_domain(Budget(1), Bound(l2=3), Relation.ADD_REMOVE, "gaussian")


def test_to_json_is_canonical_and_tells_plans_apart():
    plan = calibrate_unknown_domain(BUDGET, Bound(l1=10, label="Clip"), "replace", "laplace")
    as_json = plan.to_json()
    assert as_json == {
        "kind": "laplace", "grid": 0, "scale": "20/1", "threshold": plan.threshold, "epsilon": "1.0",
        "delta": "1e-06", "relation": "replace", "bound": Bound(l1=10, label="Clip").to_json(),
    }  # fmt: skip
    assert all(isinstance(value, str | int) for value in as_json.values())
    public = calibrate_public_domain(BUDGET, Bound(l1=10), "replace")
    assert public.to_json()["threshold"] == "none"
    others = [
        calibrate_unknown_domain(BUDGET, Bound(l1=10, label="Other"), "replace", "laplace"),
        calibrate_unknown_domain(BUDGET, Bound(l1=10, label="Clip"), "add-remove", "laplace"),
        calibrate_unknown_domain(Budget(1, 1.01e-6), Bound(l1=10, label="Clip"), "replace", "laplace"),
        public,
    ]
    texts = {json.dumps(p.to_json(), sort_keys=True) for p in [plan, *others]}
    assert len(texts) == 5


def test_importing_does_not_load_dp_accounting():
    """Workers import this module, and only the driver calibrates."""
    import subprocess
    import sys

    code = "import sys, headcount.mechanisms.calibration.noise; sys.exit('dp_accounting' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
