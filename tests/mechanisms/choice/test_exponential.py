"""Private selection: the exponents against their definition, and what is drawn against the exact probabilities.

False alarms: keys and seeds are fixed, so all is deterministic. Over the choice of the key, each chi-square fails with
probability 1e-8, the whole file below 1e-6. Power: of 4,000 draws, exponents that are wrong by 20 % are caught with
probability above 0.97 (noncentrality 68 against a limit of 37; a test below has them caught), and of 1,000 draws each of
the mutations at the end. Audits of the privacy are in tests/privacy/choice/test_exponential.py.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from headcount.mechanisms.choice import exponential
from headcount.mechanisms.choice.exponential import (
    em_exponents,
    gem_exponents,
    probabilities,
    select,
)
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.lanes import GEOMETRIC_LIMIT, Lanes, exp_floor

KEY = bytes(range(32))
DRAWS = 1_000
ALARM = 1e-8

# Exponents of many kinds; in the last two, numbers do not fit 64 bits.
TABLES = {
    "one": [Fraction(5)],
    "equal": [Fraction(7, 3)] * 5,
    "mixed": [Fraction(3, 2), Fraction(0), Fraction(1, 10), Fraction(1, 10), Fraction(9, 4), Fraction(20)],
    "negative": [Fraction(-50), Fraction(-51), Fraction(-495, 10)],
    "many": [Fraction(c, 40) for c in range(100)],
    "one dominates": [Fraction(8)] * 60 + [Fraction(1)],
    "impossible ones": [Fraction(0), Fraction(10**30), Fraction(1, 2), Fraction(5000)],
    "no common denominator": [
        Fraction(c, d) for c, d in [(1, 2), (2, 3), (1, 2**61 - 1), (10**25, 10**25 + 7), (0, 1)]
    ],
    "wide": [Fraction(2**70 * c + 1, 2**71) for c in range(6)],
}
TABLE = pytest.mark.parametrize("exponents", TABLES.values(), ids=TABLES.keys())


def make_lane(seed=0):
    return Lanes(KEY, np.random.default_rng(seed).integers(0, 2**64, (1, 2), dtype=np.uint64))


def check(seen, expected):
    """Chi-square of counts against probabilities; whatever is expected fewer than 5 times is one bin."""
    seen, expected = np.asarray(seen, dtype=float), np.asarray(expected) * np.sum(seen)
    assert (seen[expected == 0] == 0).all()
    rare = expected < 5
    seen, expected = np.append(seen[~rare], seen[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    if expected[-1] < 5:  # of these few, more than 40 have probability below 1e-20
        assert seen[-1] <= 40
        seen, expected = seen[:-1], expected[:-1]
    if len(seen) > 1:
        assert stats.chisquare(seen, expected * (seen.sum() / expected.sum())).pvalue > ALARM


def counts(draw, exponents, draws=DRAWS):
    """How often each candidate is drawn, by one lane that is read on and on."""
    lane = make_lane()
    return np.bincount([draw(exponents, lane) for _ in range(draws)], minlength=len(exponents))


# --- exponents --------------------------------------------------------------------------------------------------


def test_em_exponents_are_exact():
    assert em_exponents([7, 3, Fraction(7, 2)], 4, Fraction(1, 10)) == [Fraction(1, 10), 0, Fraction(1, 80)]
    assert em_exponents([10**40, 10**40 + 1], Fraction(1, 3), Fraction(1, 7)) == [0, Fraction(3, 7)]


def test_integers_of_numpy_do_not_wrap():
    losses = np.array([2**62, -(2**62), 5], dtype=np.int64)
    large = [2**62, -(2**62), 5]
    assert em_exponents(losses, np.int64(3), Fraction(1)) == em_exponents(large, 3, Fraction(1))
    for one_sided in (False, True):
        expected = gem_exponents(large, [2**40, 3, 2], Fraction(1), one_sided)
        assert gem_exponents(losses, np.array([2**40, 3, 2]), Fraction(1), one_sided) == expected
    # A Fraction of NumPy's integers computes as they do.
    assert em_exponents([Fraction(n) for n in losses], 3, Fraction(1)) == em_exponents(large, 3, Fraction(1))


def defined_gem(losses, sensitivities, epsilon, one_sided, tau):
    """The definition, word by word."""
    shifted = [q + tau * d for q, d in zip(losses, sensitivities, strict=True)]

    def score(c):
        quotients = []
        for other in range(len(losses)):
            pair = sensitivities[c], sensitivities[other]
            quotients.append(Fraction(shifted[c] - shifted[other]) / (max(pair) if one_sided else sum(pair)))
        return max(quotients)

    return [epsilon * math.floor(2**10 * score(c)) / 2**11 for c in range(len(losses))]


rationals = st.fractions(-(10**6), 10**6, max_denominator=10**6)
positive = st.fractions(Fraction(1, 10**4), 10**4, max_denominator=10**4)


@pytest.mark.seconds
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(rationals | st.integers(-(2**100), 2**100), positive | st.integers(1, 3)), min_size=1, max_size=12
    ),
    st.booleans(),
    st.integers(0, 300),
)
def test_gem_exponents_are_those_of_the_definition(rows, one_sided, tau):
    losses, sensitivities = zip(*rows, strict=True)
    expected = defined_gem(losses, sensitivities, Fraction(1, 10), one_sided, tau)
    assert gem_exponents(losses, sensitivities, Fraction(1, 10), one_sided, tau) == expected


@pytest.mark.seconds
@pytest.mark.parametrize("one_sided", [False, True])
def test_gem_exponents_of_many_candidates_of_many_digits(one_sided):
    """400 candidates of 100 bits with denominators of their own, of which the better are the more sensitive."""
    rng = np.random.default_rng(0)
    units = [int(unit) | 1 for unit in rng.integers(2**40, 2**50, 400)]
    sensitivities = [Fraction((c + 1) * 2**50 + 1, unit) for c, unit in enumerate(units)]
    losses = [-(300 + c) * sensitivities[c] for c in range(400)]
    exponents = gem_exponents(losses, sensitivities, Fraction(1, 10), one_sided, tau=3)
    some = range(0, 400, 57)
    compared = [defined_gem([losses[c], q], [sensitivities[c], d], Fraction(1, 10), one_sided, 3)[0]
                for c in some for q, d in zip(losses, sensitivities, strict=True)]  # fmt: skip
    assert [exponents[c] for c in some] == [max(compared[i : i + 400]) for i in range(0, len(compared), 400)]


def test_the_default_tau_is_public_and_an_integer():
    losses, sensitivities, epsilon = [5, 0, 2], [1, 9, 4], Fraction(1, 10)
    tau = math.ceil(20 * math.log(3 / 0.05))
    assert gem_exponents(losses, sensitivities, epsilon, False) == gem_exponents(
        losses, sensitivities, epsilon, False, tau=tau
    )


@pytest.mark.parametrize("one_sided", [False, True])
def test_gem_keeps_what_it_promises(one_sided):
    """With probability .95, q(c) <= q(c') + 2 tau D(c') up to the grid: by exact probabilities, on random tables."""
    rng = np.random.default_rng(0)
    epsilon = Fraction(1, 2)
    for _ in range(30):
        sensitivities = [int(d) for d in 2 ** rng.integers(0, 20, 30)]
        losses = [int(q) for q in rng.integers(-(10**6), 10**6, 30)]
        chances = probabilities(gem_exponents(losses, sensitivities, epsilon, one_sided))
        tau = math.ceil(4 * math.log(30 / 0.05))
        grid = Fraction(1, 2**10)
        good = [
            all(q <= p + 2 * tau * e + grid * (d + e) for p, e in zip(losses, sensitivities, strict=True))
            for q, d in zip(losses, sensitivities, strict=True)
        ]
        assert chances[good].sum() >= 0.95
        assert not all(good)


@pytest.mark.parametrize("bad", [0, -1, Fraction(-1, 2), 0.5, True, None, "1"])
def test_wrong_parameters_are_refused_and_echoed(bad):
    echo = f"positive integer or Fraction, got {bad!r}"
    for refused in (
        lambda: em_exponents([1, 2], bad, Fraction(1)),
        lambda: em_exponents([1, 2], 1, bad),
        lambda: gem_exponents([1, 2], [1, 1], bad, False),
        lambda: gem_exponents([1, 2], [1, bad], Fraction(1), False),
    ):
        with pytest.raises(ParameterError) as error:
            refused()
        assert echo in str(error.value)


@pytest.mark.parametrize("tau", [-1, 1.5, True, Fraction(3)])
def test_a_tau_that_is_no_natural_number_is_refused(tau):
    with pytest.raises(ParameterError, match="tau must be an integer, 0 or more, got"):
        gem_exponents([1, 2], [1, 1], Fraction(1), False, tau)


def test_losses_are_refused_without_being_shown():
    for refused in (
        lambda: em_exponents([1, 123.456], 1, Fraction(1)),
        lambda: gem_exponents([1, 123.456], [1, 1], Fraction(1), True),
        lambda: select([Fraction(1), 123.456], make_lane()),
        lambda: probabilities([123.456]),
    ):
        with pytest.raises(ParameterError, match="must be") as error:
            refused()
        assert "123" not in str(error.value)


def test_no_candidates_and_lists_of_two_lengths_are_refused():
    for refused in (
        lambda: em_exponents([], 1, Fraction(1)),
        lambda: gem_exponents([], [], Fraction(1), False),
        lambda: select([], make_lane()),
    ):
        with pytest.raises(ParameterError, match="at least one candidate"):
            refused()
    with pytest.raises(ParameterError, match="each of 2 losses needs a sensitivity, got 3"):
        gem_exponents([1, 2], [1, 1, 1], Fraction(1), False)


@pytest.mark.parametrize("n", [0, 2])
def test_a_selection_takes_one_lane(n):
    lanes = Lanes(KEY, np.zeros((n, 2), dtype=np.uint64))
    with pytest.raises(ParameterError, match=f"one lane, got {n}"):
        select([Fraction(0)], lanes)


# --- probabilities ----------------------------------------------------------------------------------------------


@TABLE
def test_probabilities_add_up(exponents):
    assert abs(probabilities(exponents).sum() - 1) < 1e-12
    assert np.allclose(probabilities([x + 10**6 for x in exponents]), probabilities(exponents), rtol=1e-12)


# --- draws ------------------------------------------------------------------------------------------------------


@pytest.mark.seconds
@TABLE
def test_draws_have_the_exact_law(exponents):
    check(counts(select, exponents), probabilities(exponents))


@pytest.mark.seconds
def test_lanes_of_their_own_draw_by_the_same_law():
    exponents = TABLES["mixed"]
    drawn = [select(exponents, make_lane(seed)) for seed in range(DRAWS)]
    check(np.bincount(drawn, minlength=len(exponents)), probabilities(exponents))


@pytest.mark.seconds
def test_exponents_wrong_by_twenty_percent_are_caught():
    exponents = [Fraction(0), Fraction(2), Fraction(1)]
    seen = counts(select, exponents, 4_000)
    check(seen, probabilities(exponents))
    for wrong in (Fraction(8, 10), Fraction(12, 10)):
        with pytest.raises(AssertionError):
            check(seen, probabilities([x * wrong for x in exponents]))


@pytest.mark.seconds
def test_successive_draws_of_a_lane_are_independent():
    """Chi-square on pairs; with certainty it would see that both draw by the same words."""
    lane, exponents = make_lane(), [Fraction(0), Fraction(1, 2), Fraction(1)]
    drawn = np.array([select(exponents, lane) for _ in range(2 * DRAWS)])
    law = probabilities(exponents)
    check(np.bincount(3 * drawn[::2] + drawn[1::2], minlength=9), np.outer(law, law).ravel())


def test_one_that_dominates_many_is_found():
    """Of 20,000 candidates one has all but 1e-9 of the mass."""
    exponents = [Fraction(31)] * 12_345 + [Fraction(1, 3)] + [Fraction(30)] * 7_654
    assert [select(exponents, make_lane(seed)) for seed in range(3)] == [12_345] * 3


def test_weights_are_upper_bounds_that_end_with_one():
    """So that whatever falls to the last, w = 34 and all above it, is settled by digits that are drawn when needed."""
    for w, weight in enumerate(exponential._UPPER_WEIGHTS):
        assert exp_floor(w, 48) <= weight <= exp_floor(w, 48) + 1
    assert (exponential._UPPER_WEIGHTS[0], exponential._UPPER_WEIGHTS[-1], len(exponential._UPPER_WEIGHTS)) == (
        2**48,
        1,
        35,
    )


def rounded(whole, digits, more):
    """Whether digits that are drawn on as `more` pass as a number below 2^48 e^-whole, and how many of `more` were read."""

    class Words:
        read = 0

        def words(self, index):
            self.read += 1
            return [more[self.read - 1]]

    lane = Words()
    return exponential._is_below(digits, whole, lane), lane.read


def test_a_proposal_at_the_edge_is_settled_by_more_digits():
    for whole in (1, 20, 33, 34, 40, 60, 100):
        edge = exp_floor(whole, 48)
        next_word = exp_floor(whole, 112) - (edge << 64)
        last_word = exp_floor(whole, 176) - (exp_floor(whole, 112) << 64)
        if edge:
            assert rounded(whole, edge - 1, []) == (True, 0)
        assert rounded(whole, edge, [next_word + 1]) == (False, 1)
        if next_word:
            assert rounded(whole, edge, [next_word - 1]) == (True, 1)
        assert rounded(whole, edge, [next_word, last_word + 1]) == (False, 2)
        assert rounded(whole, edge, [next_word, last_word - 1]) == (True, 2)
    assert rounded(0, 2**48 - 1, []) == (True, 0)
    assert rounded(GEOMETRIC_LIMIT + 1, 0, []) == (False, 0)


@pytest.mark.seconds
def test_candidates_that_fall_to_the_last_weight_keep_their_law(monkeypatch):
    """Were the digits taken as read, all above e^-34 would be as likely as e^-34. Here the weights are of 2 bits, so that
    the last is soon reached: exponents of 3 and more are drawn by digits alone."""
    monkeypatch.setattr(exponential, "_WEIGHT_BITS", 2)
    monkeypatch.setattr(exponential, "_UPPER_WEIGHTS", (4, exp_floor(1, 2) + 1, exp_floor(2, 2) + 1))
    exponents = [Fraction(5, 2), Fraction(3, 2)] * 3 + [Fraction(k, 2) for k in range(16)]
    check(counts(select, exponents), probabilities(exponents))
    monkeypatch.setattr(exponential, "_is_below", lambda digits, whole, lanes: True)
    with pytest.raises(AssertionError):
        check(counts(select, exponents), probabilities(exponents))


@pytest.mark.seconds
def test_many_candidates_have_the_exact_law():
    """Ten thousand of them, grouped by their exponents: 2,000 draws, each as cheap as one of few candidates."""
    exponents = [Fraction(c, 700) for c in range(10_000)]
    excess, denominator = np.arange(10_000), 700
    lane = make_lane()
    drawn = [exponential.select_by_excess(excess, denominator, lane) for _ in range(2_000)]
    seen = np.bincount(np.array(drawn) // 350, minlength=29)
    check(seen, np.add.reduceat(probabilities(exponents), np.arange(0, 10_000, 350)))


def test_draws_depend_on_key_and_lane_alone():
    exponents = TABLES["many"]
    drawn = [select(exponents, make_lane(seed)) for seed in range(20)]
    assert drawn == [select(exponents, make_lane(seed)) for seed in range(20)]
    shifted = [x + 10**9 for x in exponents]
    assert drawn == [select(shifted, make_lane(seed)) for seed in range(20)]
    ids = np.random.default_rng(0).integers(0, 2**64, (1, 2), dtype=np.uint64)
    others = [select(exponents, Lanes(bytes([key]) * 32, ids)) for key in range(20)]
    assert drawn != others and drawn[0] != drawn[1]


def test_arithmetic_beyond_64_bits_draws_the_same(monkeypatch):
    before = [select(TABLES["mixed"], make_lane(seed)) for seed in range(100)]
    monkeypatch.setattr(exponential, "_LARGEST", 0)
    assert [select(TABLES["mixed"], make_lane(seed)) for seed in range(100)] == before


def test_the_same_lanes_draw_the_same_in_every_version():
    """If this fails, a repeated release would choose anew: raise ALGORITHM_VERSION and renew the test."""
    exponents = TABLES["many"]
    assert [select(exponents, make_lane(seed)) for seed in range(12)] == [6, 76, 74, 14, 30, 76, 24, 5, 30, 23, 27, 36]


# --- mutations: what the checks above must catch ----------------------------------------------------------------


def no_common_denominator(exponents):
    numerators = [x.numerator for x in exponents]
    return np.array(numerators) - min(numerators), math.lcm(*(x.denominator for x in exponents))


def never_fails(self, numerator, denominator, index):
    return np.ones(len(numerator), dtype=bool)


_member, _ends = exponential._member, exponential._ends
WEIGHTS_OF_THE_NEXT = (2**48, *(exp_floor(w + 1, 48) + 1 for w in range(1, 35)))

MUTATIONS = {
    "the rest of an exponent is left out": (Lanes, "bernoulli_exp", never_fails),
    "the first of a bucket": (exponential, "_member", lambda bucket, whole, place: _member(bucket, whole, 0)),
    "at most two of a bucket": (exponential, "_ends", lambda sizes: _ends([min(n, 2) for n in sizes])),
    "weights of the next whole part": (exponential, "_UPPER_WEIGHTS", WEIGHTS_OF_THE_NEXT),
    "numerators without a common denominator": (exponential, "_excess", no_common_denominator),
}


@pytest.mark.seconds
@pytest.mark.parametrize("seam", MUTATIONS.values(), ids=MUTATIONS.keys())
def test_mutations_are_caught_by_the_chi_square(seam, monkeypatch):
    monkeypatch.setattr(*seam)
    exponents = TABLES["mixed"]
    with pytest.raises(AssertionError):
        check(counts(select, exponents), probabilities(exponents))
