"""Binomial draws against their exact law, for few, many and very many trials, and in any arrangement.

Keys are fixed, so nothing here alarms by chance; over the choice of the key, each chi-square fails with probability
below 1e-8 and the file below 1e-6. Power: at 100,000 draws in 20 bins a probability that is wrong by 0.01, and each
mutation at the end, is
caught with probability above 0.999.
"""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness import binomial as thinning
from headcount.mechanisms.randomness.binomial import binomial, fair
from headcount.mechanisms.randomness.lanes import Lanes

KEY = bytes(range(32))
ALARM = 1e-8


def make_lanes(n, seed=0):
    return Lanes(KEY, np.random.default_rng(seed).integers(0, 2**64, (n, 2), dtype=np.uint64))


def p_value(values, law, bins=20):
    """Chi-square of the values in bins of about equal probability."""
    edges = np.unique(law.ppf(np.arange(1, bins) / bins))
    expected = np.diff(np.concatenate([[0.0], law.cdf(edges), [1.0]])) * len(values)
    observed = np.bincount(np.searchsorted(edges, values, side="left"), minlength=len(edges) + 1)
    assert (observed[expected == 0] == 0).all()
    return stats.chisquare(observed[expected > 0], expected[expected > 0]).pvalue


RATES = [Fraction(1, 2), Fraction(1237955000, 2**32), Fraction(1, 3), Fraction(5, 7), Fraction(1, 1000), Fraction(7, 8)]


@pytest.mark.seconds
@pytest.mark.parametrize("q", RATES, ids=str)
@pytest.mark.parametrize("count", [1, 2, 7, 63, 64, 65, 500, 512, 1535, 5000])
def test_frequencies(count, q):
    values = binomial(make_lanes(60_000), np.full(60_000, count), q)
    assert 0 <= values.min() and values.max() <= count
    assert p_value(values, stats.binom(count, float(q))) > ALARM


@pytest.mark.seconds
@pytest.mark.parametrize("q", [Fraction(1, 3), Fraction(2**31 + 1, 2**32)], ids=str)
@pytest.mark.parametrize(("count", "draws"), [(20_000, 4000), (1_000_000, 300), (2**40 + 1, 60)])
def test_frequencies_of_many_trials(count, draws, q):
    """Bins by the normal law, which is within 2e-3 of the binomial one here."""
    values = binomial(make_lanes(draws), np.full(draws, count), q)
    scaled = (values - count * float(q)) / math.sqrt(count * float(q) * (1 - float(q)))
    assert p_value(scaled, stats.norm, bins=8) > ALARM


@pytest.mark.slow("ranges")
def test_halving_very_many_trials_by_rejection():
    """The least n for which its bounds hold, odd and even, in 2500 draws each; the same law as counting bits."""
    for n in (2**13, 2**13 + 1):
        lanes = make_lanes(2500)
        values = np.array([thinning._halved(lanes, lane, n) for lane in range(2500)])
        assert p_value(values, stats.binom(n, 0.5)) > ALARM


@pytest.mark.seconds
def test_the_two_ways_to_halve_agree(monkeypatch):
    n = 5000
    drawn = fair(make_lanes(3000), np.arange(3000), np.full(3000, n))
    monkeypatch.setattr(thinning, "LAST_TABLE", 11)
    rejected = fair(make_lanes(3000), np.arange(3000), np.full(3000, n))
    assert rejected.tolist() != drawn.tolist()
    for values in (rejected, drawn):
        assert p_value(values, stats.binom(n, 0.5)) > ALARM


class TestAcceptance:
    @pytest.mark.parametrize("h", [2178, 5000, 2**20, 2**40])
    @pytest.mark.parametrize("bits", [64, 256])
    def test_bounds_hold_and_are_tight(self, h, bits):
        """Against 120 digits, at the centre, near sigma, in the tail and at the very end."""
        sigma = math.isqrt(h // 2) + 1
        with mpmath.workdps(120):
            for k in (0, 1, sigma, 5 * sigma, 20 * sigma, h - 1, h):
                if k > h:
                    continue
                block = k // sigma
                log = 2 * mpmath.loggamma(h + 1) - mpmath.loggamma(h + k + 1) - mpmath.loggamma(h - k + 1)
                exact = mpmath.exp(log + block - mpmath.mpf(33) / 64) * mpmath.mpf(2) ** bits
                low, high = thinning._acceptance(h, k, block, bits)
                assert low <= exact <= high and high - low <= 4

    @pytest.mark.parametrize("h", [2178, 2179, 10_000])
    def test_no_proposal_is_accepted_with_more_than_certainty(self, h):
        t = math.isqrt(h // 2) + 1
        k = np.arange(h + 1)
        log = (
            2 * math.lgamma(h + 1)
            - np.array([math.lgamma(h + x + 1) + math.lgamma(h - x + 1) for x in range(h + 1)])
            + k // t
            - 33 / 64
        )
        assert log.max() < 0

    def test_log_factorial_of_small_and_large_numbers(self):
        import decimal

        with mpmath.workdps(60), decimal.localcontext(decimal.Context(prec=90)):
            for n in (0, 1, 2, 100, 499, 500, 501, 10**6, 2**62):
                ours = mpmath.mpf(str(thinning._log_factorial(n, 50)))
                exact = mpmath.loggamma(n + 1) - mpmath.log(2 * mpmath.pi) / 2
                assert abs(ours - exact) < mpmath.mpf(10) ** -38, n  # of mpmath's 60 digits, 21 are before the point

    def test_bernoulli_numbers(self):
        assert [thinning._bernoulli(m) for m in (0, 1, 2, 4, 10)] == [
            1,
            Fraction(-1, 2),
            Fraction(1, 6),
            Fraction(-1, 30),
            Fraction(5, 66),
        ]


def test_a_lane_draws_the_same_whichever_others_are_present():
    counts = np.array([1, 5, 0, 64, 70, 1000, 2**21 + 7, 3, 2**36, 200_000, 2, 900])
    q = Fraction(3, 7)
    whole = binomial(make_lanes(len(counts)), counts, q)
    ids = np.random.default_rng(0).integers(0, 2**64, (len(counts), 2), dtype=np.uint64)
    for order in ([3], [11, 8, 6, 0], list(range(11, -1, -1)), [2, 4, 9]):
        assert binomial(Lanes(KEY, ids[order]), counts[order], q).tolist() == whole[order].tolist()
        assert binomial(Lanes(KEY, ids), counts[order], q, order).tolist() == whole[order].tolist()


def test_a_lane_draws_anew_each_time():
    """Two draws of one lane are independent: chi-square of the table of 100,000 pairs."""
    lanes = make_lanes(100_000)
    first, second = (binomial(lanes, np.full(100_000, 9), Fraction(1, 3)) for _ in range(2))
    assert stats.chi2_contingency(np.histogram2d(first > 2, second > 2, bins=2)[0]).pvalue > ALARM


def test_certain_trials_and_none():
    counts = np.array([0, 1, 1000, 2**40])
    assert binomial(make_lanes(4), counts, Fraction(0)).tolist() == [0, 0, 0, 0]
    assert binomial(make_lanes(4), counts, Fraction(1)).tolist() == counts.tolist()
    assert binomial(make_lanes(0), counts[:0], Fraction(1, 3)).tolist() == []


def test_the_same_lanes_give_the_same_draws_in_every_version():
    """If this fails, a repeated release would get another sample: raise ALGORITHM_VERSION and renew the test."""
    counts = [1, 10, 64, 100, 5000, 2**22 + 1, 2**30]
    assert binomial(make_lanes(7), counts, Fraction(1, 3)).tolist() == [0, 3, 18, 30, 1700, 1398898, 357943930]


@pytest.mark.parametrize(
    ("counts", "q"),
    [
        ([1, 2], Fraction(3, 2)),
        ([1, 2], Fraction(-1, 2)),
        ([1, 2], 0.5),
        ([1, 2], True),
        ([1], Fraction(1, 2)),
        ([1.0, 2.0], Fraction(1, 2)),
        ([-1, 2], Fraction(1, 2)),
        ([2**62 + 1, 2], Fraction(1, 2)),
    ],
)
def test_wrong_parameters_are_refused(counts, q):
    with pytest.raises(ParameterError):
        binomial(make_lanes(2), counts, q)


# Mutations: what the checks above must catch, each in the place of a name of the module.

_digits, _ones, _tabled, _acceptance = thinning._digits, thinning._ones, thinning._tabled, thinning._acceptance


def all_bits_of_what_tables_leave(words, trials):
    """Of 70 trials the tables leave 6, in the first round; later rounds have other numbers."""
    return _ones(words, np.full_like(trials, 64) if (trials == 6).all() else trials)


def without_the_highest_digit(lanes, places, trials, q):
    most = int(trials.max(initial=0)).bit_length()
    return _tabled(lanes, places, trials & ((1 << max(most - 1, 6)) - 1), q)


def drawn_again(lanes, places, trials, q):
    return _tabled(lanes, places, trials, q)[0], trials


MUTATIONS = {
    "digits of q inverted": ("_digits", lambda q: (1 - digit for digit in _digits(q)), 7, Fraction(1, 3)),
    "a digit is skipped": ("_digits", lambda q: iter(list(_digits(q))[:-1]), 7, Fraction(3, 8)),
    "bits beyond the trials count": ("_ones", all_bits_of_what_tables_leave, 70, lambda: _digits(Fraction(1, 3))),
    "the highest digit of n is left out": ("_tabled", without_the_highest_digit, 600, Fraction(1, 3)),
    "trials of the tables are drawn again": ("_tabled", drawn_again, 70, Fraction(1, 3)),
    "one bit too few": ("_ones", lambda words, trials: _ones(words, trials - 1), 7, Fraction(1, 3)),
    "undecided at the end succeed": (  # as they would if ones followed for ever
        "_digits",
        lambda q: itertools.chain(_digits(q), itertools.repeat(1)),
        7,
        Fraction(3, 8),
    ),
}


@pytest.mark.parametrize(("name", "other", "count", "q"), MUTATIONS.values(), ids=MUTATIONS.keys())
def test_mutations_are_caught(name, other, count, q, monkeypatch):
    monkeypatch.setattr(thinning, name, other)
    values = binomial(make_lanes(60_000), np.full(60_000, count), q)
    law = stats.binom(count, 1 / 3 if callable(q) else float(q))
    assert values.max() > count or not p_value(values, law) > ALARM


def one_side_only(self, bound, index, real=Lanes.uniform_below):
    return real(self, bound, index) | 1


REJECTION_MUTATIONS = {
    "factor inverted": (thinning, "_LOG_FACTOR", Fraction(-33, 64)),
    "block forgotten": (thinning, "_acceptance", lambda h, k, block, bits: _acceptance(h, k, 0, bits)),
    "one side only": (Lanes, "uniform_below", one_side_only),
}


@pytest.mark.slow("ranges")
@pytest.mark.parametrize("mutation", REJECTION_MUTATIONS.values(), ids=REJECTION_MUTATIONS.keys())
def test_mutations_of_the_rejection_are_caught(mutation, monkeypatch):
    monkeypatch.setattr(*mutation)
    lanes = make_lanes(2500)
    values = np.array([thinning._halved(lanes, lane, 2**13) for lane in range(2500)])
    assert not p_value(values, stats.binom(2**13, 0.5)) > ALARM
