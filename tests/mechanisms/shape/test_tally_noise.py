"""The noise of many equal cells, drawn together: it has the exact law.

Keys and seeds are fixed, so that all is deterministic. Over the choice of the key, each chi-square fails with probability 1e-8,
the whole file below 1e-6. Power: a probability of the splitting that is off by 1 % is caught with probability above 0.999, as
are the mutations.
"""

import decimal
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from headcount.mechanisms.shape import tally_noise
from headcount.mechanisms.shape.tallies import Tally
from headcount.mechanisms.shape.tally_noise import logistic_digits, logistic_floor, noisy_positions, noisy_tally

KEY = bytes(range(32))
ALARM = 1e-8
SCALES = [Fraction(text) for text in ("1/3", "1", "7/3", "20", "1000")]


def tally(values, cells):
    return Tally(np.array(values, dtype=np.int64), np.array(cells, dtype=np.int64))


def law(scale, y):
    p = math.exp(-1 / float(scale))
    return (1 - p) / (1 + p) * p ** np.abs(y)


def check_law(noise, cells, scale):
    """Chi-square of so many cells' noise, in bins that expect 50 or more."""
    width = max(1, int(float(scale) / 6))
    middle = (np.arange(-40, 41)) * width
    expected = np.array([law(scale, np.arange(m, m + width)).sum() for m in middle]) * cells.sum()
    bins = (noise - middle[0]) // width
    inside = (bins >= 0) & (bins < len(middle))
    seen = np.bincount(bins[inside], weights=cells[inside], minlength=len(middle))
    kept = expected >= 50
    seen = np.append(seen[kept], cells.sum() - seen[kept].sum())
    expected = np.append(expected[kept], cells.sum() - expected[kept].sum())
    if expected[-1] < 50:
        seen, expected = seen[:-1], expected[:-1] * seen[:-1].sum() / expected[:-1].sum()
    assert stats.chisquare(seen, expected).pvalue > ALARM


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("scale", "cells"), [*((scale, 300_000) for scale in SCALES), (Fraction(1, 3), 10**9), (Fraction(7, 3), 10**9)]
)
def test_the_noise_of_many_equal_cells_has_the_exact_law(scale, cells):
    noisy = noisy_tally(tally([7], [cells]), scale, KEY)
    assert noisy.cells.sum() == cells and (np.diff(noisy.values) > 0).all() and (noisy.cells > 0).all()
    check_law(noisy.values - 7, noisy.cells, scale)


@pytest.mark.seconds
@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("each", [1, 9])
def test_the_noise_of_few_cells_at_each_of_many_values_has_the_exact_law(scale, each):
    apart = 10**6
    values = np.arange(20_000) * apart
    noisy = noisy_tally(tally(values, np.full(len(values), each)), scale, KEY)
    home = (noisy.values + apart // 2) // apart
    assert (np.bincount(home, weights=noisy.cells) == each).all()
    check_law(noisy.values - home * apart, noisy.cells, scale)


def test_cells_of_one_value_are_independent_of_each_other():
    """How many of 50 cells keep their value is Bin(50, P[no noise]), over 10,000 lanes: no more alike, and no less."""
    values = np.arange(10_000) * 1000
    noisy = noisy_tally(tally(values, np.full(len(values), 50)), Fraction(2), KEY)
    for offset in (0, 1, -3):
        kept = np.zeros(len(values), dtype=np.int64)
        there = np.flatnonzero((noisy.values - offset) % 1000 == 0)
        kept[(noisy.values[there] - offset) // 1000] = noisy.cells[there]
        expected = stats.binom.pmf(np.arange(51), 50, law(2, offset)) * len(values)
        some = expected >= 20
        seen = np.bincount(kept, minlength=51)
        seen, expected = np.append(seen[some], seen[~some].sum()), np.append(expected[some], expected[~some].sum())
        assert stats.chisquare(seen[expected > 5], expected[expected > 5] * 1.0, sum_check=False).pvalue > ALARM


@pytest.mark.seconds
@pytest.mark.parametrize("scale", [Fraction(1), Fraction(7, 3)])
def test_noisy_positions_have_the_exact_law_in_the_order_of_the_counts(scale, monkeypatch):
    cells = tally([0, 5, 100_000], [150_000, 49_990, 10])
    noisy = noisy_positions(cells, scale, KEY)
    truth = np.repeat([100_000, 5, 0], [10, 49_990, 150_000])
    check_law(noisy - truth, np.ones(len(noisy), dtype=np.int64), scale)
    assert stats.spearmanr(noisy[10:-1] - truth[10:-1], noisy[11:] - truth[11:]).pvalue > ALARM
    monkeypatch.setattr(tally_noise, "_CHUNK", 7777)
    assert np.array_equal(noisy_positions(cells, scale, KEY), noisy)


def test_noise_depends_on_the_key_and_on_the_whole_tally():
    """One cell of another value changes the noise of all: a hundred lanes agree by chance with probability below 1e-20."""
    values = np.arange(100) * 10_000
    base = tally(values, np.full(100, 3))
    assert np.array_equal(noisy_tally(base, Fraction(50), KEY).values, noisy_tally(base, Fraction(50), KEY).values)
    one_more = tally(np.append(values, 10**8), np.full(101, 3))
    for other in (noisy_tally(base, Fraction(50), KEY[::-1]), noisy_tally(one_more, Fraction(50), KEY)):
        assert len(set(noisy_tally(base, Fraction(50), KEY).values) & set(other.values)) < 30
    first, second = noisy_positions(base, Fraction(50), KEY), noisy_positions(one_more, Fraction(50), KEY)[3:]
    assert (first == second).mean() < 0.2


def test_the_same_key_and_tally_give_the_same_noise_in_every_version():
    """If this fails, a repeated release would get other noise: raise ALGORITHM_VERSION and renew the test."""
    noisy = noisy_tally(tally([0, 3], [1000, 20]), Fraction(2), KEY)
    assert noisy.values.tolist() == [-13, *range(-9, 13)]
    assert noisy.cells.tolist()[10:16] == [254, 141, 89, 51, 39, 24]
    positions = noisy_positions(tally([0, 3], [6, 4]), Fraction(20), KEY)
    assert positions.tolist() == [0, -62, -17, 10, 2, -3, -47, 0, 16, 23]


def test_no_cells_and_the_ends_of_the_scale():
    assert noisy_tally(tally([], []), Fraction(1), KEY).cells.tolist() == []
    assert noisy_positions(tally([], []), Fraction(1), KEY).tolist() == []
    assert noisy_tally(tally([5], [9]), Fraction(1, 10**6), KEY) == ([5], [9])
    wide = noisy_tally(tally([5], [1000]), Fraction(2**40), KEY)
    assert wide.cells.sum() == 1000 and 0.5 < wide.values.std() / 2**40 < 3


# What stands in the place of a name of the module, for a scale of 2: a digit's exponent is then 2^digit / 2.
MUTATIONS = {
    "zero is as likely as two signs make it": ("logistic_digits", lambda numerator, x: logistic_digits(1, x)),
    "digits of another geometric": (
        "logistic_digits",
        lambda numerator, x: logistic_digits(numerator, x if numerator == 2 else Fraction(int(2 * x).bit_length(), 2)),
    ),
    "a probability off by 1 %": (
        "logistic_digits",
        lambda numerator, x: logistic_digits(numerator, x * Fraction(101, 100) if numerator == 2 else x),
    ),
    "sizes from 0": ("_LEAST_SIZE", 0),
    "one sign": ("_SIGNS", (1, 1)),
}


@pytest.mark.seconds
@pytest.mark.parametrize(("name", "other"), MUTATIONS.values(), ids=MUTATIONS)
def test_the_check_of_the_law_catches_mutations(name, other, monkeypatch):
    monkeypatch.setattr(tally_noise, name, other)
    noisy = noisy_tally(tally([7], [10**7]), Fraction(2), KEY)
    with pytest.raises(AssertionError):
        check_law(noisy.values - 7, noisy.cells, Fraction(2))


@pytest.mark.slow("ranges")
@pytest.mark.parametrize("numerator", [1, 2])
@pytest.mark.parametrize("exponent", [Fraction(1, 10**9), Fraction(1, 3), Fraction(1), Fraction(50), Fraction(5000)])
def test_digits_of_probabilities_are_those_of_500_digits(numerator, exponent):
    with decimal.localcontext(decimal.Context(prec=5000, Emin=-(10**8), Emax=10**8)):
        exact = numerator / (1 + (decimal.Decimal(exponent.numerator) / exponent.denominator).exp())
        expected = [int(exact * 2**bits) for bits in (1, 64, 200, 1000)]
    assert [logistic_floor(numerator, exponent, bits) for bits in (1, 64, 200, 1000)] == expected
    read = 0
    for digit in itertools.islice(logistic_digits(numerator, exponent), 200):
        read = 2 * read + digit
    assert read == expected[2]
