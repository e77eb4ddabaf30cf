"""Tables of Bin(2^k, q) against exact numbers, and draws from them against the tables.

Keys are fixed, so nothing here alarms by chance; over the choice of the key, each chi-square fails with probability below
1e-8. Power: a table whose law is that of another place is caught with probability above 0.999.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from headcount.mechanisms.randomness import binomial_tables
from headcount.mechanisms.randomness.binomial_tables import LAST_TABLE, _around_mode, _table, _words_table, draw_power
from headcount.mechanisms.randomness.lanes import Lanes

RATE = Fraction(1237955000, 2**32)
RATES = [Fraction(1, 2), RATE, Fraction(1, 3), Fraction(2**32 - 5, 2**32), Fraction(1, 10**6), Fraction(1, 2**80)]


def exact_floors(n, q, bits):
    """floor(2^bits P[X <= i]) for all i below n."""
    a, b = q.as_integer_ratio()
    sums = itertools.accumulate(math.comb(n, i) * a**i * (b - a) ** (n - i) for i in range(n))
    return [(total << bits) // b**n for total in sums]


@pytest.mark.slow("ranges")
@pytest.mark.parametrize("q", RATES, ids=str)
@pytest.mark.parametrize("k", [6, 7, 9, 10])
@pytest.mark.parametrize("bits", [64, 128, 192])
def test_tables_are_exact_and_complete(k, q, bits):
    """Every floor, and none is left out that differs from the ends'."""
    first, edges = _table(k, q, bits)
    exact = exact_floors(1 << k, q, bits)
    assert edges == exact[first : first + len(edges)]
    assert first == 0 or edges[0] == 0
    assert all(floor == 0 for floor in exact[:first])
    assert all(floor == 2**bits - 1 for floor in exact[first + len(edges) :])
    assert first + len(edges) == 1 << k or edges[-1] == 2**bits - 1


def test_numbers_with_more_digits_than_their_denominator_are_exact():
    first, edges = _table(9, Fraction(1, 2), 1024)
    assert first == 0 and edges[0] == 1 << 512 and edges[-1] == (1 << 1024) - (1 << 512) and len(edges) == 512


def test_too_few_places_are_told():
    n, (a, b) = 1 << 12, RATE.as_integer_ratio()
    assert _around_mode(n, a, b, 64, 70) is None
    assert _around_mode(n, a, b, 64, 160) == _around_mode(n, a, b, 64, 512) is not None


@pytest.mark.parametrize("k", [16, 20, LAST_TABLE])
def test_large_tables_follow_the_normal_law(k):
    """With the correction of one half, by how near the binomial law is to it (Berry and Esseen's order)."""
    for q in (Fraction(1, 2), RATE):
        n, p = 2.0**k, float(q)
        first, edges = _words_table(k, q)
        at = (first + np.arange(len(edges)) + 0.5 - n * p) / math.sqrt(n * p * (1 - p))
        assert np.abs(edges / 2.0**64 - stats.norm.cdf(at)).max() < 1e-6 + abs(1 - 2 * p) / math.sqrt(n * p) / 5


@pytest.mark.parametrize("q", [Fraction(1, 2), RATE], ids=str)
@pytest.mark.parametrize("k", [9, 14])
def test_words_on_an_edge_are_settled_by_more(k, q):
    """A word that is the first 64 digits of P[X <= j]: j or j + 1, by the digits that follow."""
    first, edges = _table(k, q, 64)
    finer_first, finer = _table(k, q, 192)
    rng = np.random.default_rng(k)
    for place in (0, 1, len(edges) // 2, len(edges) - 1):
        for more in [0, 2**64 - 1, *map(int, rng.integers(0, 2**64, 20, dtype=np.uint64))]:
            found = int(draw_power(Scripted([edges[place], more, 1 << 40]), np.array([0]), k, q)[0])
            digits = edges[place] << 128 | more << 64 | 1 << 40
            assert found == finer_first + sum(edge <= digits for edge in finer)
            assert place != len(edges) // 2 or found in (first + place, first + place + 1)


def test_a_second_tie_is_settled_too():
    _, edges = _table(9, RATE, 128)
    digits = edges[len(edges) // 2]
    finer_first, finer = _table(9, RATE, 192)
    lanes = Scripted([digits >> 64, digits & (2**64 - 1), 12345])
    exact = finer_first + sum(edge <= (digits << 64 | 12345) for edge in finer)
    assert int(draw_power(lanes, np.array([0]), 9, RATE)[0]) == exact and not lanes.left


class Scripted:
    """A lane whose words are given."""

    def __init__(self, words):
        self.left = list(words)

    def words(self, index):
        return np.array([self.left.pop(0) for _ in index], dtype=np.uint64)


# Mutations: what the comparison with the law catches.


def frequencies(draw, k, q):
    """Chi-square of 60,000 draws in bins of about equal probability."""
    lanes = Lanes(bytes(range(32)), np.random.default_rng(0).integers(0, 2**64, (60_000, 2), dtype=np.uint64))
    values, law = draw(lanes, np.arange(60_000), k, q), stats.binom(1 << k, float(q))
    edges = np.unique(law.ppf(np.arange(1, 20) / 20))
    expected = np.diff(np.concatenate([[0.0], law.cdf(edges), [1.0]])) * 60_000
    observed = np.bincount(np.searchsorted(edges, values, side="left"), minlength=len(edges) + 1)
    assert (observed[expected == 0] == 0).all()
    return stats.chisquare(observed[expected > 0], expected[expected > 0]).pvalue


@pytest.mark.parametrize("q", [*RATES[:3], Fraction(7, 8)], ids=str)
@pytest.mark.parametrize("k", [6, 8, 13])
def test_frequencies(k, q):
    assert frequencies(draw_power, k, q) > 1e-8


def one_too_low(k, q, real=_words_table):
    first, edges = real(k, q)
    return first - 1, edges


def without_the_edge_at_the_mode(n, a, b, bits, places, real=_around_mode):
    first, edges = real(n, a, b, bits, places)
    return first, edges[: (n + 1) * a // b - first] + edges[(n + 1) * a // b - first + 1 :]


def without_the_mode(tail, slack, least, bits, real=binomial_tables._floors):
    """The weight of the mode is 2^places, and the first try is with 96 places more than bits."""
    return real(tail, slack, least - (1 << bits + 96), bits)


def failures(more, fewer, x, y, places, real=binomial_tables._falling):
    return real(more, fewer, y, x, places)


MUTATIONS = {
    "a table one too low": ("_words_table", one_too_low),
    "the edge at the mode is left out": ("_around_mode", without_the_edge_at_the_mode),
    "the mode has no weight": ("_floors", without_the_mode),
    "successes for failures": ("_falling", failures),
}


@pytest.fixture
def no_tables():
    """No table is at hand before, and none of a mutation after."""
    for cached in (_table, _words_table):
        cached.cache_clear()
    yield
    for cached in (_table, _words_table):
        cached.cache_clear()


@pytest.mark.parametrize(("name", "other"), MUTATIONS.values(), ids=MUTATIONS.keys())
def test_mutations_are_caught(name, other, no_tables, monkeypatch):
    monkeypatch.setattr(binomial_tables, name, other)
    assert not frequencies(draw_power, 8, RATE) > 1e-8
