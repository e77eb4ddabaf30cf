"""Discrete Laplace and Gaussian noise against the exact probabilities, against OpenDP, and in any arrangement.

False alarms: keys are fixed, so all but the comparison with OpenDP is deterministic. Over the choice of the key, each
bound fails with probability below 1e-8 (chi-square and binomial p-values) or below 1e-10 (7 standard deviations),
the whole file below 1e-6. Power, at 200,000 draws: a scale that is wrong by 3 % is caught with probability above
0.999 (noncentrality 180 on 40 bins), and so is each of the mutations at the end.
"""

from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness import noise
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.noise import discrete_gaussian, discrete_laplace

KEY = bytes(range(32))
DRAWS = 200_000
ALARM = 1e-8
SCALES = [Fraction(text) for text in ("1/100", "3/10", "1", "7/3", "10", "1000", "1000000")]
BINS = 40

dp.enable_features("contrib")


def make_lanes(n, seed=0):
    return Lanes(KEY, np.random.default_rng(seed).integers(0, 2**64, (n, 2), dtype=np.uint64))


class Laplace:
    """The exact law: P(y) = (1 - q) / (1 + q) q^|y|, q = exp(-1 / scale)."""

    sample = staticmethod(discrete_laplace)
    continuous = stats.laplace

    def __init__(self, scale):
        self.scale = float(scale)

    def cdf(self, y):
        above = np.exp(-(np.abs(y) + (y >= 0)) / self.scale) / (1 + np.exp(-1 / self.scale))
        return np.where(y >= 0, 1 - above, above)

    def weight(self, y):
        return np.exp(-np.abs(y) / self.scale)

    def large_scale_moment(self, k):
        return {2: 2, 4: 24, 6: 720, 8: 40320}[k] * self.scale**k


class Gaussian:
    """The exact law: P(y) proportional to exp(-y^2 / (2 sigma^2))."""

    sample = staticmethod(discrete_gaussian)
    continuous = stats.norm

    def __init__(self, scale):
        self.scale = float(scale)

    def cdf(self, y):
        if self.scale > 10_000:  # the error of this is below 1 / (24 sigma^2) < 1e-9
            return stats.norm.cdf((y + 0.5) / self.scale)
        support = support_of(self)
        return np.cumsum(self.weight(support) / self.weight(support).sum())[np.clip(y - support[0], 0, None)]

    def weight(self, y):
        return np.exp(-((y / self.scale) ** 2) / 2)

    def large_scale_moment(self, k):
        return {2: 1, 4: 3, 6: 15, 8: 105}[k] * self.scale**k


def support_of(law):
    """Beyond this lies less than 1e-17 of the mass, and of the eighth moment."""
    return np.arange(-int(80 * law.scale) - 8, int(80 * law.scale) + 9)


def moment(law, k):
    """E[y^k]; at a large scale that of the continuous law, relative error below 1 / scale^2."""
    if k % 2:
        return 0.0
    if law.scale > 10_000:
        return law.large_scale_moment(k)
    y = support_of(law)
    return float((law.weight(y) * y.astype(float) ** k).sum() / law.weight(y).sum())


def check_frequencies(law, values):
    """Chi-square on bins of similar probability, cut at the quantiles of the continuous law and around zero."""
    quantiles = law.continuous.ppf(np.arange(1, BINS) / BINS) * law.scale
    edges = np.unique(np.concatenate([np.rint(quantiles).astype(np.int64), np.arange(-3, 3)]))
    expected = np.diff(law.cdf(edges), prepend=0, append=1) * len(values)
    seen = np.diff(np.searchsorted(np.sort(values), edges, side="right"), prepend=0, append=len(values))
    rare = expected < 50
    seen, expected = np.append(seen[~rare], seen[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    if len(expected) == 2:
        # The scale is so small that next to zero all is rare.
        assert stats.binomtest(int(seen[1]), len(values), expected[1] / len(values)).pvalue > ALARM
        return
    # The bin of all that is rare may itself be rare: then it is left to the checks of the tails.
    kept = expected >= 50
    assert stats.chisquare(seen[kept], expected[kept] * (seen[kept].sum() / expected[kept].sum())).pvalue > ALARM


def check_moments(law, values):
    """Mean, variance, third and fourth moment, each within 7 standard deviations."""
    for k in (1, 2, 3, 4):
        deviation = np.sqrt((moment(law, 2 * k) - moment(law, k) ** 2) / len(values))
        assert abs(np.mean(values.astype(float) ** k) - moment(law, k)) <= 7 * deviation + 1e-12


def check_tails(law, values):
    """How often each tail is reached, at probabilities down to 1e-5."""
    for probability in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5):
        edge = int(law.continuous.isf(probability) * law.scale)
        tail = 1 - float(law.cdf(np.array([edge]))[0])
        for reached in ((values > edge).sum(), (values < -edge).sum()):
            assert stats.binomtest(int(reached), len(values), tail).pvalue > ALARM


def check(law, values):
    assert values.dtype == np.int64
    check_frequencies(law, values)
    check_moments(law, values)
    check_tails(law, values)


@pytest.mark.seconds
@pytest.mark.parametrize("law", [Laplace, Gaussian])
@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_noise_has_the_exact_law(law, scale):
    check(law(scale), law.sample(make_lanes(DRAWS), scale))


@pytest.mark.seconds
@pytest.mark.parametrize("law", [Laplace, Gaussian])
@pytest.mark.parametrize("scale", [Fraction(1), Fraction(10), Fraction(1000)], ids=str)
def test_a_scale_wrong_by_three_percent_is_caught(law, scale):
    for wrong in (scale * Fraction(103, 100), scale * Fraction(97, 100)):
        with pytest.raises(AssertionError):
            check_frequencies(law(scale), law.sample(make_lanes(DRAWS), wrong))


# Scales whose arithmetic does not fit 64 bits: numerators above 2^62, and products above 2^62.
WIDE = [
    (Laplace, Fraction(7 * 10**20 + 1, 3 * 10**20)),
    (Laplace, Fraction(2**60 + 1, 2**57)),
    (Laplace, Fraction(2**20 + 1, 2**70)),
    (Gaussian, Fraction(7 * 10**20 + 1, 3 * 10**20)),
    (Gaussian, Fraction(100001, 100)),
    (Gaussian, Fraction(3 * 2**20 + 1, 2**22)),
    (Gaussian, Fraction(2**30)),
]


@pytest.mark.seconds
@pytest.mark.parametrize(("law", "scale"), WIDE)
def test_noise_beyond_64_bits_has_the_exact_law(law, scale):
    """20,000 draws: the power is that of a scale wrong by 10 %."""
    check(law(scale), law.sample(make_lanes(20_000), scale))


def test_arithmetic_beyond_64_bits_gives_the_same_values(monkeypatch):
    before = discrete_laplace(make_lanes(1000), Fraction(7, 3))
    monkeypatch.setattr(noise, "_NARROW", 0)
    assert np.array_equal(before, discrete_laplace(make_lanes(1000), Fraction(7, 3)))


@pytest.mark.parametrize("sample", [discrete_laplace, discrete_gaussian])
def test_the_largest_scale_fits_int64(sample):
    values = sample(make_lanes(1000), 2**40)
    assert 0.8 < np.std(values) / 2**40 < 2 and np.abs(values).max() < 2**46


@pytest.mark.parametrize("sample", [discrete_laplace, discrete_gaussian])
@pytest.mark.parametrize("scale", [0, -1, Fraction(-1, 2), 1.5, True, "1", None, 2**40 + 1])
def test_other_scales_are_refused(sample, scale):
    with pytest.raises(ParameterError, match="positive integer or Fraction up to 2.40, got"):
        sample(make_lanes(1), scale)


@pytest.mark.parametrize("sample", [discrete_laplace, discrete_gaussian])
def test_no_lanes_no_noise(sample):
    assert sample(make_lanes(0), 3).tolist() == []


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.permutations(range(20)), st.integers(0, 20), st.sampled_from(SCALES))
def test_noise_of_a_lane_does_not_depend_on_the_others(seed, order, cut, scale):
    ids = np.random.default_rng(seed).integers(0, 2**64, (20, 2), dtype=np.uint64)
    for sample in (discrete_laplace, discrete_gaussian):
        whole = sample(Lanes(KEY, ids), scale)
        assert np.array_equal(sample(Lanes(KEY, ids[order]), scale), whole[order])
        parts = [sample(Lanes(KEY, ids[:cut]), scale), sample(Lanes(KEY, ids[cut:]), scale)]
        assert np.array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("sample", [discrete_laplace, discrete_gaussian])
def test_noise_does_not_depend_on_chunks(sample, monkeypatch):
    before = sample(make_lanes(1000), 5)
    monkeypatch.setattr(noise, "_CHUNK", 7)
    assert np.array_equal(sample(make_lanes(1000), 5), before)


def test_noise_of_two_calls_on_the_same_lanes_is_independent():
    """Chi-square on the signs of two successive draws of each lane; a shared draw would be caught with certainty."""
    lanes = make_lanes(100_000)
    first, second = discrete_laplace(lanes, 1000) > 0, discrete_laplace(lanes, 1000) > 0
    assert stats.chi2_contingency(np.histogram2d(first, second, bins=2)[0]).pvalue > ALARM


def test_the_same_lanes_give_the_same_noise_in_every_version():
    """If this fails, a repeated release would get other noise: raise ALGORITHM_VERSION and renew the test."""
    laplace = discrete_laplace(make_lanes(12), Fraction(100, 3))
    assert laplace.tolist() == [-91, 19, -37, -51, 36, -2, 3, 12, -9, -33, -42, -17]
    gaussian = discrete_gaussian(make_lanes(12), 1500)
    assert gaussian.tolist() == [-1873, 858, -2512, -1955, 167, -53, 909, 837, 3293, -99, -1056, -1060]


ORACLES = [
    (discrete_laplace, dp.m.make_laplace, dp.l1_distance, Fraction(3, 4)),
    (discrete_laplace, dp.m.make_laplace, dp.l1_distance, Fraction(10)),
    (discrete_gaussian, dp.m.make_gaussian, dp.l2_distance, Fraction(3, 4)),
    (discrete_gaussian, dp.m.make_gaussian, dp.l2_distance, Fraction(10)),
]


@pytest.mark.seconds
@pytest.mark.parametrize(("sample", "make", "distance", "scale"), ORACLES)
def test_noise_agrees_with_opendp(sample, make, distance, scale):
    """Two-sample chi-square with 40,000 draws each; OpenDP's are fresh: false alarm 1e-8. Power: 10 % in scale."""
    domain = dp.vector_domain(dp.atom_domain(T=int))
    oracle = np.array(make(domain, distance(T=int), scale=float(scale))([0] * 40_000))

    def p_value(values):
        limit = int(3 * scale)
        table = [np.bincount(np.clip(draws, -limit, limit) + limit) for draws in (oracle, values)]
        return stats.chi2_contingency(np.array(table)).pvalue

    assert p_value(sample(make_lanes(40_000), scale)) > ALARM
    assert p_value(sample(make_lanes(40_000), scale * Fraction(11, 10))) < ALARM


# Mutations: what the checks above must catch, by a name of the module or by lanes that draw something else.


class RefusesNone(Lanes):
    def bernoulli_exp(self, numerator, denominator, index):
        return np.ones(len(numerator), dtype=bool)


class RefusesNoProposal(Lanes):
    """Of a Gaussian with sigma 10: its Laplace proposals have the denominator 10, and stay as they are."""

    def bernoulli_exp(self, numerator, denominator, index):
        flags = super().bernoulli_exp(numerator, denominator, index)
        return flags if denominator == 10 else np.ones_like(flags)


class OneTooHigh(Lanes):
    def geometric(self, index):
        return super().geometric(index) + 1


def refusal(change):
    """`_refusal` with its slope, shift, factor and denominator changed."""
    return "_refusal", lambda n, d, t, real=noise._refusal: change(d, *real(n, d, t))


ALWAYS = ("_counts_once", lambda size, negative: np.ones(len(size), dtype=bool))
UNDIVIDED = ("_laplace_trial", lambda lanes, t, s, index, real=noise._laplace_trial: real(lanes, t, 1, index))
CENTRED = refusal(lambda d, slope, shift, factor, denominator: (slope, 0, factor, denominator))
TWICE = refusal(lambda d, slope, shift, factor, denominator: (slope, shift, 2 * factor, denominator))
UNSQUARED = refusal(lambda d, slope, shift, factor, denominator: (slope // d, shift, factor, denominator))

MUTATIONS = {
    "minus zero counts": (ALWAYS, Laplace, 1),
    "minus zero counts, scale 7/3": (ALWAYS, Laplace, Fraction(7, 3)),
    "U is never refused": (RefusesNone, Laplace, 1000),
    "V one too high": (OneTooHigh, Laplace, 10),
    "X is not divided": (UNDIVIDED, Laplace, Fraction(7, 3)),
    "proposal centred at zero": (CENTRED, Gaussian, 10),
    "factor two forgotten": (TWICE, Gaussian, 10),
    "every proposal accepted": (RefusesNoProposal, Gaussian, 10),
    "denominator not squared": (UNSQUARED, Gaussian, Fraction(7, 3)),
}


@pytest.mark.seconds
@pytest.mark.parametrize(("mutation", "law", "scale"), MUTATIONS.values(), ids=MUTATIONS.keys())
def test_mutations_are_caught_by_the_chi_square(mutation, law, scale, monkeypatch):
    lanes = make_lanes(DRAWS)
    if isinstance(mutation, tuple):
        monkeypatch.setattr(noise, *mutation)
    else:
        lanes.__class__ = mutation
    with pytest.raises(AssertionError):
        check_frequencies(law(scale), law.sample(lanes, scale))


@pytest.mark.parametrize(
    ("law", "draws"),
    [
        (Laplace(1), stats.laplace(scale=1)),
        (Laplace(Fraction(7, 3)), stats.laplace(scale=7 / 3)),
        (Gaussian(1), stats.norm(scale=1)),
    ],
)
def test_rounded_continuous_noise_is_caught(law, draws):
    rounded = np.rint(draws.rvs(size=DRAWS, random_state=np.random.default_rng(0)))
    with pytest.raises(AssertionError):
        check_frequencies(law, rounded.astype(np.int64))
