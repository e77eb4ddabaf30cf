"""Lanes: the same bits in any arrangement, and exact laws.

Statistical tests use fixed keys, so they are deterministic; each bound has a false-alarm rate below 1e-8 over the
choice of the key, below 1e-6 for the whole file.
"""

import hashlib
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness import lanes as randomness
from headcount.mechanisms.randomness.lane_ids import item_lane_ids, lane_sum, user_lane_ids
from headcount.mechanisms.randomness.lanes import Lanes, exp_floor
from headcount.mechanisms.randomness.subkeys import ALGORITHM_VERSION, block_key, lane_key, subkey

KEY = bytes(range(32))
ALARM = 1e-8


def make_ids(n, seed=0):
    return np.random.default_rng(seed).integers(0, 2**64, (n, 2), dtype=np.uint64)


def make_lanes(n, seed=0):
    return Lanes(KEY, make_ids(n, seed))


def assert_probabilities(values, probabilities):
    """Chi-square of integers 0 .. k-1 against their probabilities."""
    seen = np.bincount(values, minlength=len(probabilities))
    if len(probabilities) == 1:
        assert len(seen) == 1
        return
    assert stats.chisquare(seen, np.asarray(probabilities) * len(values)).pvalue > ALARM


def plain_word(key, high, low, j):
    block = high.to_bytes(8, "little") + ((low + j) % 2**64).to_bytes(8, "little")
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return int.from_bytes(cipher.update(block)[:8], "little")


def test_words_are_what_they_are_said_to_be():
    ids = np.array([[1, 2], [2**64 - 1, 2**64 - 2], [5, 6]], dtype=np.uint64)
    lanes = Lanes(KEY, ids)
    expected = [[plain_word(KEY, int(high), int(low), j) for j in range(6)] for high, low in ids]
    assert lanes.words([0, 1, 2]).tolist() == [row[0] for row in expected]
    assert lanes.words([2, 1]).tolist() == [expected[2][1], expected[1][1]]
    assert lanes.words_each([1, 0], np.array([4, 0])).tolist() == expected[1][2:6]
    assert lanes.words_each([0, 2], np.array([2, 3])).tolist() == expected[0][1:3] + expected[2][2:5]
    assert lanes.words([]).tolist() == [] and lanes.n == 3


@pytest.mark.parametrize("index", [[0, 0], [1, 2, 1], [-1], [3], [2, 1, 0, 2]])
def test_an_index_must_name_distinct_lanes(index):
    for draw in (
        lambda lanes: lanes.words(index),
        lambda lanes: lanes.words_each(index, np.ones(len(index), dtype=int)),
        lambda lanes: lanes.uniform_below(3, index),
        lambda lanes: lanes.geometric(index),
    ):
        with pytest.raises(ParameterError, match="distinct lanes out of 3"):
            draw(make_lanes(3))


def test_lanes_refuse_wrong_keys_and_ids():
    with pytest.raises(ParameterError, match="32 bytes"):
        Lanes(b"short", make_ids(1))
    for ids in (make_ids(2).astype(np.int64), make_ids(2).ravel(), make_ids(3).reshape(2, 3)):
        with pytest.raises(ParameterError, match="uint64"):
            Lanes(KEY, ids)


def all_draws(lanes, index):
    """Everything that a lane can be asked for, in turn; one row per lane of the index."""
    index = np.asarray(index, dtype=np.intp)
    bounds = 1 + lanes._ids[index, 0] % np.uint64(3 * 2**60)  # data of the lane itself
    each = (1 + lanes._ids[index, 1] % np.uint64(3)).astype(np.int64)
    several = lanes.uniform_below_each(bounds, index, each)
    columns = [
        lanes.words(index),
        lanes.uniform_below(3 * 2**60, index),
        lanes.uniform_below(bounds, index),
        lanes.uniform_below(2**70 + 1, index),
        lanes.bernoulli(1, 3, index),
        lanes.bernoulli_exp(7, 3, index),
        lanes.bernoulli_exp((bounds % np.uint64(5)).astype(np.int64), 2, index),
        lanes.geometric(index),
        [several[end - count : end].tolist() for end, count in zip(np.cumsum(each), each, strict=True)],
        lanes.words(index),
    ]
    return [list(map(str, row)) for row in zip(*columns, strict=True)]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.permutations(range(12)), st.integers(0, 12))
def test_draws_do_not_depend_on_the_other_lanes(seed, order, cut):
    ids = make_ids(12, seed)
    whole = all_draws(Lanes(KEY, ids), range(12))
    moved = all_draws(Lanes(KEY, ids[order]), range(12))
    assert moved == [whole[lane] for lane in order]
    parts = all_draws(Lanes(KEY, ids[:cut]), range(cut)) + all_draws(Lanes(KEY, ids[cut:]), range(12 - cut))
    assert parts == whole
    shared = Lanes(KEY, ids)
    first = all_draws(shared, order[:cut])
    assert first + all_draws(shared, order[cut:]) == moved


def test_another_block_key_gives_other_draws():
    ids = make_ids(100)
    assert not np.any(Lanes(KEY, ids).words(range(100)) == Lanes(KEY[::-1], ids).words(range(100)))


def serial_pairs(lanes):
    """Two successive draws of each lane, as one number below 100."""
    index = np.arange(lanes.n)
    return 10 * lanes.uniform_below(10, index) + lanes.uniform_below(10, index)


class RepeatingLanes(Lanes):
    """A broken generator: every word of a lane is its first one."""

    def words(self, index):
        self._drawn[:] = 0
        return super().words(index)


def test_successive_draws_are_independent():
    """Detects with certainty a lane that repeats its words (the mutation below)."""
    assert_probabilities(serial_pairs(make_lanes(100_000)), np.full(100, 0.01))
    with pytest.raises(AssertionError):
        assert_probabilities(serial_pairs(RepeatingLanes(KEY, make_ids(100_000))), np.full(100, 0.01))


# 2^64 is 16/3 times this bound: without the rejection, the lowest third would come up 6/5 times too often.
UNEVEN = 3 * 2**60


def thirds(values):
    return (values // 2**60).astype(np.int64)


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 64])
def test_uniform_below_a_small_bound(bound):
    draws = make_lanes(100_000).uniform_below(bound, np.arange(100_000))
    assert_probabilities(draws, np.full(bound, 1 / bound))


def test_uniform_below_rejects_what_would_be_uneven():
    """Power: without the rejection the lowest third would get 28 standard deviations too many draws."""
    index, even = np.arange(100_000), np.full(3, 1 / 3)
    assert_probabilities(thirds(make_lanes(100_000).uniform_below(UNEVEN, index)), even)
    assert_probabilities(thirds(make_lanes(100_000).uniform_below(np.full(100_000, UNEVEN), index)), even)
    with pytest.raises(AssertionError):
        assert_probabilities(thirds((make_lanes(100_000).words(index) % UNEVEN).astype(np.int64)), even)


def test_uniform_below_each_has_the_same_law():
    lanes, each = make_lanes(30_000), np.arange(30_000) % 7
    draws = lanes.uniform_below_each(np.where(each % 2, UNEVEN, 5), np.arange(30_000), each)
    large = np.repeat(each % 2, each) == 1
    assert len(draws) == each.sum()
    assert_probabilities(thirds(draws[large]), np.full(3, 1 / 3))
    assert_probabilities(draws[~large], np.full(5, 1 / 5))
    # The place within a lane does not matter either.
    first = np.concatenate([[0], np.cumsum(each)[:-1]])[each % 2 == 1]
    assert_probabilities(thirds(draws[first]), np.full(3, 1 / 3))


def test_uniform_below_bounds_of_different_lanes():
    bounds = 1 + np.arange(60_000) % 3
    draws = make_lanes(60_000).uniform_below(bounds, np.arange(60_000))
    for bound in (1, 2, 3):
        assert_probabilities(draws[bounds == bound], np.full(bound, 1 / bound))


@pytest.mark.parametrize("bound", [3 * 2**61, 2**64, 3 * 2**80])
def test_uniform_below_a_large_bound(bound):
    draws = make_lanes(20_000).uniform_below(bound, np.arange(20_000))
    assert all(type(draw) is int and 0 <= draw < bound for draw in draws)
    assert_probabilities((draws * 12 // bound).astype(np.int64), np.full(12, 1 / 12))
    assert_probabilities((draws % 12).astype(np.int64) // 4, np.full(3, 1 / 3))


@pytest.mark.parametrize("bound", [0, -1, np.array([1, 0]), np.array([1, 2**62 + 1]), np.array([1.0, 2.0])])
def test_uniform_below_refuses_other_bounds(bound):
    with pytest.raises(ParameterError, match="between 1 and 2.62"):
        make_lanes(2).uniform_below(bound, [0, 1])


def assert_frequency(flags, probability):
    assert stats.binomtest(int(flags.sum()), len(flags), float(probability)).pvalue > ALARM


@pytest.mark.parametrize("p", [Fraction(0), Fraction(1), Fraction(1, 3), Fraction(2**61, 3**39), Fraction(5, 2**70)])
def test_bernoulli(p):
    assert_frequency(make_lanes(50_000).bernoulli(p.numerator, p.denominator, np.arange(50_000)), p)


def test_bernoulli_refuses_what_is_no_probability():
    lanes = make_lanes(2)
    for numerator in (-1, 4, np.array([0, 4]), np.array([-1, 0])):
        with pytest.raises(ParameterError, match="between 0 and 1"):
            lanes.bernoulli(numerator, 3, [0, 1])
    with pytest.raises(ParameterError, match="x >= 0"):
        lanes.bernoulli_exp(-1, 3, [0, 1])


@pytest.mark.parametrize(
    "x", [Fraction(0), Fraction(1, 9), Fraction(1, 2), Fraction(1), Fraction(5, 2), Fraction(8), Fraction(10**30)]
)
def test_bernoulli_exp(x):
    """Power: an error of 0.012 in any of these probabilities is seen with probability above 0.99."""
    flags = make_lanes(200_000).bernoulli_exp(x.numerator, x.denominator, np.arange(200_000))
    assert_frequency(flags, np.exp(-float(x)))


def test_bernoulli_exp_of_different_lanes():
    n = 120_000
    numerators, denominators = np.arange(n) % 6, 1 + np.arange(n) % 2
    flags = make_lanes(n).bernoulli_exp(numerators, denominators, np.arange(n))
    for numerator in range(6):
        mine = numerators == numerator
        assert_frequency(flags[mine], np.exp(-numerator / denominators[mine][0]))


NEAR = [0, 1, 2, 2**12, 2**20, 2**26, 2**34]


@pytest.mark.parametrize("x", [Fraction(1, 2**61), Fraction(1, 9), Fraction(2, 3), Fraction(7, 2), Fraction(41)])
@pytest.mark.parametrize("ties", [0, 1, 2])
def test_bernoulli_exp_is_settled_by_digits_however_near(x, ties):
    """Uniform numbers on either side of exp(-x), as near as words can be and further: no float tells these apart."""
    bits = 64 * (ties + 1)
    edge = exp_floor(x, bits)
    digits = [edge + step for near in NEAR for step in (near + 1, -near - 1) if 0 <= edge + step < 2**bits]
    scripts = [[each >> 64 * k & (2**64 - 1) for k in reversed(range(ties + 1))] for each in digits]
    for numerator, denominator in ((x.numerator, x.denominator), (np.full(len(digits), x.numerator), x.denominator)):
        lanes = ScriptedLanes(*scripts)
        flags = lanes.bernoulli_exp(numerator, denominator, np.arange(len(digits)))
        assert flags.tolist() == [each < edge for each in digits]
    floats = np.array(digits, dtype=float) < np.exp(-float(x)) * 2.0**bits
    assert edge < 2**50 or floats.tolist() != [each < edge for each in digits]  # what the integers are for


def test_geometric():
    values = make_lanes(200_000).geometric(np.arange(200_000))
    probabilities = [np.exp(-v) * (1 - np.exp(-1)) for v in range(8)]
    assert_probabilities(np.minimum(values, 8), [*probabilities, np.exp(-8)])


@pytest.mark.seconds
@pytest.mark.parametrize("bits", [64, 128, 192, 2048])
def test_exp_floor_against_decimal(bits):
    with localcontext() as context:
        context.prec = 800
        for power in (1, 2, 3, 17, 44, 45, 46, 90, 200):
            assert exp_floor(power, bits) == int(Decimal(-power).exp() * 2**bits)
        for power in (
            Fraction(1, 9),
            Fraction(2**61 - 1, 2**61),
            Fraction(1, 2**62),
            Fraction(977, 13),
            Fraction(10**30, 7),
        ):
            exact = (-Decimal(power.numerator) / power.denominator).exp()
            assert exp_floor(power, bits) == int(exact * 2**bits)
        assert exp_floor(0, bits) == exp_floor(Fraction(0), bits) == 2**bits


class ScriptedLanes(Lanes):
    """Lanes whose words are given, to force what no random word would show."""

    def __init__(self, *scripts):
        super().__init__(KEY, make_ids(len(scripts)))
        self.scripts = [list(script) for script in scripts]

    def words(self, index):
        return np.array([self.scripts[lane].pop(0) for lane in index], dtype=np.uint64)

    def words_each(self, index, each):
        return np.concatenate([self.words([lane] * count) for lane, count in zip(index, each, strict=True)])


def test_uniform_below_draws_again_until_it_fits():
    """Words from 15 * 2^60 on are past the last multiple of the bound; each lane has its own number of them."""
    first, fits = 15 * 2**60, 15 * 2**60 - 1
    scripts = [[fits, 7], [first, 2**64 - 1, first, 5, 7], [first, fits, 7]]
    for bound in (UNEVEN, np.full(3, UNEVEN)):
        lanes = ScriptedLanes(*scripts)
        assert lanes.uniform_below(bound, np.arange(3)).tolist() == [UNEVEN - 1, 5, UNEVEN - 1]
        assert lanes.scripts == [[7], [7], [7]]
    scripts = [[fits, 7], [first, first, 1, first, 2, 3], [1, first, 2, first, 4]]
    for bound in (UNEVEN, np.full(3, UNEVEN)):
        lanes = ScriptedLanes(*scripts)
        draws = lanes.uniform_below_each(bound, np.arange(3), np.array([1, 3, 3]))
        assert draws.tolist() == [UNEVEN - 1, 3, 2, 1, 1, 4, 2]


def plain_geometric(digits, bits):
    """floor(-ln R) for R = (digits + 1/2) / 2^bits, in decimal."""
    with localcontext() as context:
        context.prec = 200
        return int(-((Decimal(digits) + Decimal("0.5")) / 2**bits).ln())


@pytest.mark.parametrize("power", [1, 2, 3, 20, 43])
@pytest.mark.parametrize("step", [-1, 1])
def test_geometric_settles_a_tie_by_further_words(power, step):
    """The first word(s) agree with e^-power; the following one decides, on either side of it."""
    for ties in (0, 1, 2):
        edge = exp_floor(power, 64 * (ties + 1))
        digits = edge + step
        script = [digits >> 64 * k & (2**64 - 1) for k in reversed(range(ties + 1))]
        lanes = ScriptedLanes([2**64 - 1], script, [2**63])
        assert lanes.geometric(np.arange(3)).tolist() == [0, power if step < 0 else power - 1, 0]
        assert lanes.scripts == [[], [], []]
        assert plain_geometric(digits, 64 * (ties + 1)) == (power if step < 0 else power - 1)


@pytest.mark.parametrize("digits", [2**63, 12345, 3])
def test_geometric_of_a_zero_word(digits):
    lanes = ScriptedLanes([0, digits], [0, 0, digits])
    expected = [plain_geometric(digits, 128), plain_geometric(digits, 192)]
    assert lanes.geometric(np.arange(2)).tolist() == expected


def test_geometric_stops_at_its_limit(monkeypatch):
    monkeypatch.setattr(randomness, "GEOMETRIC_LIMIT", 60)
    assert ScriptedLanes([0] * 3).geometric(np.arange(1)).tolist() == [60]


@pytest.mark.seconds
@settings(max_examples=200, deadline=None)
@given(st.integers(0, 62), st.integers(1, 2**64 - 1))
def test_geometric_by_table_equals_digit_by_digit(shift, word):
    word = max(word >> shift, 2)
    if word not in randomness._EDGES:
        lanes = ScriptedLanes([word])
        value = lanes.geometric(np.arange(1))[0]
        assert value == lanes._settle_geometric(0, word) == plain_geometric(word, 64)


def test_the_same_key_gives_the_same_bits_in_every_version():
    """If this fails, a repeated release would get other noise: raise ALGORITHM_VERSION and renew the test."""
    step = subkey(KEY, "release", "Histogram/Noise", {"scale": Fraction(10, 3), "bound": 10}, {"threshold": 7})
    items = item_lane_ids(lane_key(step), pa.array(["a", "b", "ü"]), np.array([1, -2, 3]))
    users = user_lane_ids(
        lane_key(step), pa.array([1, 2]), np.array([0, 2, 3]), pa.array(["a", "b", "c"]), np.array([1, 2, 3])
    )
    digest = (lane_sum(items) + lane_sum(users)) % 2**128
    lanes = Lanes(block_key(step, digest.to_bytes(16, "little")), np.concatenate([items, users]))
    draws = all_draws(lanes, range(5))
    assert ALGORITHM_VERSION == 1
    assert (
        hashlib.sha256(repr(draws).encode()).hexdigest()
        == "a88f79698e1adfff860d9cd25336a8a25c2508303a89fb5874d1da48be3d8356"
    )
