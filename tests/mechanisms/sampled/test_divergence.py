"""The privacy curve of sample and threshold against direct sums, its loss distributions, and the choice of rate and
threshold.

Nothing here is random but the settings, which are seeded.
"""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import special, stats

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.sampled import plan as sampled_plan
from headcount.mechanisms.sampled.divergence import STEPS, added_delta, loss_distributions, removed_delta, sampled_delta
from headcount.mechanisms.sampled.plan import (
    RATE_GRID,
    SamplePlan,
    calibrate_sample,
    laplace_w50,
    least_threshold,
    paper_parameters,
)


def law(count, rate, threshold, size):
    """The probabilities of nothing, threshold, threshold + 1, ... up to `size`."""
    shown = stats.binom.pmf(np.arange(threshold, size + 1), count, rate)
    return np.append(stats.binom.cdf(threshold - 1, count, rate), shown)


def divergence(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def largest_divergences(epsilon, rate, threshold, most):
    """Both suprema over counts up to `most`, by the definition."""
    pairs = [(law(k + 1, rate, threshold, most + 1), law(k, rate, threshold, most + 1)) for k in range(most)]
    return max(divergence(p, q, epsilon) for p, q in pairs), max(divergence(q, p, epsilon) for p, q in pairs)


@pytest.mark.seconds
class TestCurve:
    def test_is_the_supremum_of_direct_sums(self):
        """40 settings, counts up to 8 theta / p: in none is the closed form below the sums, nor above by more than
        rounding."""
        rng = np.random.default_rng(0)
        for _ in range(40):
            epsilon, rate = float(np.exp(rng.uniform(-4, 1.5))), float(rng.uniform(0.05, 0.9))
            threshold = int(rng.integers(1, 12))
            added, removed = largest_divergences(epsilon, rate, threshold, int(8 * threshold / rate) + 10)
            for ours, direct in (
                (added_delta(epsilon, rate, threshold), added),
                (removed_delta(epsilon, rate, threshold), removed),
            ):
                assert direct - 1e-15 <= ours <= direct * (1 + 1e-8) + 1e-11, (epsilon, rate, threshold)

    @pytest.mark.parametrize(("epsilon", "rate", "threshold"), [(1, 0.2882, 23), (0.1, 0.0608, 32), (1, 0.3119, 33)])
    def test_is_rounded_upwards_and_tight_at_a_tiny_delta(self, epsilon, rate, threshold):
        """Against 50 digits, over all counts around the worst one."""
        with mpmath.workdps(50):
            p, e = mpmath.mpf(rate), mpmath.e ** mpmath.mpf(epsilon)

            def at_least(k):
                return mpmath.fsum(mpmath.binomial(k, j) * p**j * (1 - p) ** (k - j) for j in range(threshold, k + 1))

            q = 1 - (1 - rate) * math.exp(-epsilon)
            around = range(int((threshold - 1) / q) - 4, int(threshold / q) + 4)
            exact = max(at_least(k + 1) - e * at_least(k) for k in around)
            ours = float(added_delta(epsilon, rate, threshold))
            assert exact < ours < exact * (1 + mpmath.mpf("1e-8"))

    def test_removing_costs_nothing_once_epsilon_covers_the_rate(self):
        rate = 0.3
        limit = -math.log1p(-rate)
        assert removed_delta(limit, rate, 5) == 0 and removed_delta(2 * limit, rate, 5) == 0
        assert removed_delta(0.5 * limit, rate, 5) > 0

    def test_removing_is_not_free_as_long_as_floats_cannot_tell(self):
        """One sampled user is shown, and epsilon is a hair below the rate: exactly 1.48e-16."""
        rate, epsilon = 6.28642737865448e-09, 6.2864272499953146e-09
        assert 1.48e-16 < removed_delta(epsilon, rate, 1) < 1e-10

    def test_rises_with_the_rate_and_falls_with_threshold_and_epsilon(self):
        rates, thresholds, epsilons = np.linspace(0.01, 0.9, 60), np.arange(1, 40), np.linspace(0, 4, 60)
        for delta in (added_delta, removed_delta):
            assert (np.diff(delta(0.5, rates, 7)) >= 0).all()
            assert (np.diff(delta(0.5, 0.6, thresholds)) <= 0).all()
            assert (np.diff(delta(epsilons, 0.6, 7)) <= 0).all()

    @pytest.mark.parametrize("epsilon", [0.0, 1e-9, 700.0, 1e6])
    def test_is_finite_at_the_ends(self, epsilon):
        assert 0 < added_delta(epsilon, 0.3, 7) <= 1
        assert 0 <= removed_delta(epsilon, 0.3, 7) <= 1

    def test_one_copy_is_shown_with_the_rate(self):
        assert added_delta(3.0, 0.2, 1) == pytest.approx(0.2)

    def test_the_loose_configuration_of_the_audit(self):
        assert added_delta(1, 0.3707, 5) == pytest.approx(0.009998, rel=1e-4)
        assert added_delta(1, 0.3707, 4) == pytest.approx(0.01888, rel=1e-3)  # a threshold one lower
        assert added_delta(1, 0.3707 * 1.5, 5) == pytest.approx(0.053, rel=1e-2)  # a rate too large


class TestPaper:
    @pytest.mark.parametrize(
        ("epsilon", "delta", "exact"),
        [(0.1, 1e-8, 1.8e-25), (1, 1e-6, 4.8e-20), (1, 1e-8, 2.1e-27), (1, 1e-10, 3.2e-35), (2, 1e-8, 3.4e-29)],
    )
    def test_its_theorem_holds_with_much_to_spare(self, epsilon, delta, exact):
        rate, threshold = paper_parameters(epsilon, delta)
        assert sampled_delta(epsilon, rate, threshold) == pytest.approx(exact, rel=0.04)

    def test_its_lambert_formula_is_caught(self):
        """For showing the items alone the paper prints theta = e W(ln(1 / (e delta)) / e), which is 4 at delta = 1e-8:
        with the rate that goes with it, the exact delta is 100,000 times the claim. Solved rightly, x ln x = y gives
        11.84."""
        delta, c = 1e-8, -math.expm1(-1)
        y = math.log(1 / (math.e * delta)) / math.e
        w = float(special.lambertw(y).real)
        printed, right = math.e * w, math.exp(1 + w)
        assert printed == pytest.approx(4.0, abs=0.01) and right == pytest.approx(11.84, abs=0.01)
        assert sampled_delta(1, c / printed, math.ceil(printed - 0.01)) == pytest.approx(1.0e-3, rel=0.05)
        assert sampled_delta(1, c / right, math.ceil(right)) < delta

    def test_at_its_rate_a_threshold_of_six_is_enough(self):
        assert least_threshold(Budget(1, 1e-8), paper_parameters(1, 1e-8)[0]) == 6


@pytest.mark.seconds
class TestLosses:
    def two_fold(self, epsilon, rate, threshold, first, second, most=24):
        """The largest divergence of two independent items over all pairs of counts, by the definition; `first` and
        `second` are +1 for an item with one user more, -1 for one less."""

        def pair(k, sign):
            p, q = law(k + 1, rate, threshold, most + 1), law(k, rate, threshold, most + 1)
            return (p, q) if sign > 0 else (q, p)

        found = 0.0
        for k1, k2 in itertools.product(range(most), repeat=2):
            (p1, q1), (p2, q2) = pair(k1, first), pair(k2, second)
            found = max(found, divergence(np.outer(p1, p2), np.outer(q1, q2), epsilon))
        return found

    def test_two_items_cost_at_least_what_direct_sums_say_and_little_more(self):
        exact = max(self.two_fold(1, 0.3707, 5, 1, 1), self.two_fold(1, 0.3707, 5, -1, -1))
        assert exact == pytest.approx(0.01929, rel=1e-3)
        ours = sampled_delta(1, 0.3707, 5, compositions=2)
        assert exact <= ours <= 0.0207

    def test_replacing_costs_at_least_what_direct_sums_say_and_little_more(self):
        exact = self.two_fold(1, 0.3707, 5, 1, -1)
        ours = sampled_delta(1, 0.3707, 5, Relation.REPLACE)
        assert exact <= ours <= 1.25 * exact
        assert ours > sampled_delta(1, 0.3707, 5)

    def test_replacing_at_a_tiny_delta(self):
        """Exact 5.39e-9; the simple bound alone would say 1.5e-7."""
        assert 5.39e-9 <= sampled_delta(1, 0.2528, 21, Relation.REPLACE) <= 6.4e-9
        assert added_delta(1 + math.log1p(-0.2528), 0.2528, 21) == pytest.approx(1.5e-7, rel=0.05)

    @pytest.mark.parametrize("steps", [STEPS, tuning.SEARCH_STEPS])
    @pytest.mark.parametrize(("rate", "threshold"), [(0.2882, 23), (0.3707, 5)])
    def test_distributions_dominate_the_curve_on_and_between_their_steps(self, rate, threshold, steps):
        distributions = loss_distributions(rate, threshold, 1.0, steps=steps)
        for distribution, delta in zip(distributions, (added_delta, removed_delta), strict=True):
            for epsilon in (0.0, 0.1, 0.33, 0.9991, 1.0, 2.5):
                exact = float(delta(epsilon, rate, threshold))
                assert exact * (1 - 1e-9) - 1e-12 <= distribution.get_delta_for_epsilon(epsilon)
            assert distribution.get_delta_for_epsilon(1.0) <= float(delta(1.0, rate, threshold)) * 1.01 + 1e-12

    def test_composing_by_transforms_is_covered_by_the_allowance(self):
        """Ten-fold, at a delta of about 1e-12: against sums of positive products, which lose nothing."""
        rate, threshold, epsilon, times = 0.13, 22, 1.0, 10
        one, _ = loss_distributions(rate, threshold, epsilon, 1e-18)
        probabilities = np.ones(1)
        for _ in range(times):
            probabilities = np.convolve(probabilities, one._probs)
        losses = (np.arange(len(probabilities)) + times * one._lower_loss) * one._discretization
        direct = float((np.maximum(-np.expm1(epsilon - losses), 0) * probabilities).sum()) + times * one._infinity_mass
        ours = sampled_delta(epsilon, rate, threshold, compositions=times, precise=1e-14)
        assert 1e-13 < direct < 1e-11
        assert direct <= ours <= direct + 1e-12

    def test_basic_composition_takes_over_where_transforms_end(self):
        """Far below the rounding of transforms, delta is still that of ten parts with a tenth of epsilon."""
        ours = sampled_delta(1, 0.01, 30, compositions=10)
        assert ours == pytest.approx(10 * sampled_delta(0.1, 0.01, 30)) and ours < 1e-20


# epsilon, delta, rate, threshold, threshold / rate, W95, the paper's W95
TABLE = [
    (0.1, 1e-8, 0.0609, 32, 526, 682, 6803),
    (0.5, 1e-8, 0.2038, 27, 132, 172, 1642),
    (1, 1e-6, 0.3500, 20, 57, 75, 643),
    (1, 1e-8, 0.2882, 23, 80, 104, 1021),
    (1, 1e-10, 0.3119, 33, 106, 132, 1481),
    (2, 1e-8, 0.4122, 23, 56, 71, 745),
    (4, 1e-8, 0.4160, 21, 50, 65, 656),
]


@pytest.mark.seconds
class TestChoice:
    @pytest.mark.parametrize(("epsilon", "delta", "rate", "threshold", "half", "w95", "paper_w95"), TABLE)
    def test_table(self, epsilon, delta, rate, threshold, half, w95, paper_w95):
        plan = calibrate_sample(Budget(epsilon, delta))
        assert (round(float(plan.rate), 4), plan.threshold, plan.w95) == (rate, threshold, w95)
        assert round(plan.threshold / plan.rate) == half
        paper = SamplePlan(*paper_parameters(epsilon, delta), epsilon, delta, Relation.ADD_REMOVE)
        assert paper.w95 == pytest.approx(paper_w95, abs=1)
        assert 8 < paper.w95 / plan.w95 < 12

    @pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-8), (1, 1e-6), (1, 1e-100), (3, 1e-3)])
    def test_keeps_the_budget_and_nothing_smaller_does(self, epsilon, delta):
        plan = calibrate_sample(Budget(epsilon, delta))
        assert plan.rate.denominator <= RATE_GRID
        assert sampled_delta(epsilon, plan.rate, plan.threshold) <= delta
        assert sampled_delta(epsilon, plan.rate + Fraction(1, RATE_GRID), plan.threshold) > delta
        assert sampled_delta(epsilon, plan.rate, plan.threshold - 1) > delta
        assert sampled_delta(epsilon, plan.rate * Fraction(3, 2), plan.threshold) > delta
        assert least_threshold(Budget(epsilon, delta), plan.rate) == plan.threshold
        found = sampled_plan._largest_rates(epsilon, delta, np.array([plan.threshold]))
        assert Fraction(int(found[0]), sampled_plan.RATE_GRID) == plan.rate

    def test_the_counts_that_are_found(self):
        plan = calibrate_sample(Budget(1, 1e-8))
        for chance, count in ((0.5, plan.w50), (0.95, plan.w95)):
            shown = [stats.binom.sf(plan.threshold - 1, c, float(plan.rate)) for c in (count - 1, count)]
            assert shown[0] < chance <= shown[1]
        assert calibrate_sample(Budget(1, 1e-8), "w50").w50 <= plan.w50 < laplace_w50(Budget(1, 1e-8)) * 5

    def test_laplace_for_comparison(self):
        """1 + ln(1 / 2 delta) / epsilon for continuous noise, which is 18.7; the discrete threshold is the next
        integer."""
        assert laplace_w50(Budget(1, 1e-8)) == 20

    @pytest.mark.parametrize(
        ("levels", "rate", "threshold", "half"), [(5, 0.16, 16, 100), (10, 0.13, 15, 115), (20, 0.10, 14, 140)]
    )
    def test_levels_table(self, levels, rate, threshold, half):
        """(1, 1e-8): the table's rates are cut to two digits, so that ours lie above by less than one of them."""
        found = sampled_plan._largest_composed(1, 1e-8, threshold, Relation.ADD_REMOVE, levels)
        assert rate <= found < rate + 0.01
        assert threshold / found <= half
        assert sampled_delta(1, found, threshold, compositions=levels, precise=1e-8) <= 1e-8
        above = sampled_delta(1, found * Fraction(1001, 1000), threshold, compositions=levels, precise=1e-8)
        assert above > 1e-8

    @pytest.mark.parametrize("relation", list(Relation))
    def test_several_items(self, relation):
        plan = calibrate_sample(Budget(1, 1e-8), "w50", relation, 10)
        assert sampled_delta(1, plan.rate, plan.threshold, relation, 10, 1e-8) <= 1e-8
        assert plan.threshold / plan.rate < (112 if relation is Relation.ADD_REMOVE else 122)
        assert plan.rate < calibrate_sample(Budget(1, 1e-8)).rate

    def test_where_transforms_cannot_tell_it_still_keeps_the_budget(self):
        plan = calibrate_sample(Budget(1, 1e-18), compositions=3)
        assert 3 * sampled_delta(1 / 3, plan.rate, plan.threshold) <= 1e-18

    @pytest.mark.parametrize(
        "call",
        [
            lambda: calibrate_sample(Budget(1)),
            lambda: calibrate_sample(Budget(1, 0.6)),
            lambda: calibrate_sample((1, 1e-8)),
            lambda: calibrate_sample(Budget(1, 1e-8), "w99"),
            lambda: calibrate_sample(Budget(1, 1e-8), compositions=0),
            lambda: least_threshold(Budget(1, 1e-8), 0.1),
            lambda: least_threshold(Budget(1, 1e-8), Fraction(1, 2**33)),
            lambda: calibrate_sample(Budget(1, 1e-8)).count_found(1.0),
            lambda: least_threshold(Budget(0.01, 1e-8), Fraction(99, 100)),
        ],
    )
    def test_wrong_parameters_are_named(self, call):
        with pytest.raises(ParameterError):
            call()
