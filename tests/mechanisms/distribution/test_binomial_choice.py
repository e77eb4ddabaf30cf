"""The private choice of a binomial law: cover, laws and losses against other ways to compute them, and the law of the draw."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from headcount.mechanisms.choice.exponential import probabilities
from headcount.mechanisms.distribution.binomial_choice import (
    GRID_BITS,
    LARGEST_ALPHA,
    BinomialChoice,
    cover,
    rounded_down,
    scaled_tails,
)
from headcount.mechanisms.distribution.tables import ValueCounts
from headcount.mechanisms.errors import ParameterError

UNIT = 1 << GRID_BITS
SUBKEY = bytes(32)


def table_of(*symbols: dict[int, int]) -> ValueCounts:
    """Tables from {value: users} of each symbol."""
    rows = [sorted(each.items()) for each in symbols]
    offsets = np.append(0, np.cumsum([len(each) for each in rows]))
    flat = np.array([pair for each in rows for pair in each], dtype=np.int64).reshape(-1, 2)
    return ValueCounts(pa.array([f"s{i}" for i in range(len(rows))]), offsets, flat[:, 0].copy(), flat[:, 1].copy())


def binomial_table(p: float, samples: int, users: int, seed: int = 0) -> ValueCounts:
    values, counts = np.unique(np.random.default_rng(seed).binomial(samples, p, users), return_counts=True)
    return table_of({int(v): int(n) for v, n in zip(values, counts, strict=True) if v})


def tails(table: ValueCounts, samples: int) -> np.ndarray:
    value, users = table.row(0)
    return np.array([users[value > x].sum() for x in range(samples)], dtype=np.int64)


@pytest.mark.parametrize("samples", [1, 2, 20, 1000])
def test_the_cover_has_even_steps_in_total_variation_from_0_to_1(samples):
    step = 0.1
    p = cover(samples, step)
    assert p[0] == 0 and p[-1] == 1 and (np.diff(p) > 0).all()
    assert len(p) == pytest.approx(1.26 * math.sqrt(samples) / step, rel=0.05, abs=2)
    x = np.arange(samples)
    apart = np.abs(np.diff(stats.binom.sf(x[:, None], samples, p), axis=1)).max(axis=0)
    assert apart.max() < 1.7 * step  # where m p is below 1, the law's steps are not so even
    if samples > 100:
        inner = (samples * p[:-1] > 5) & (samples * (1 - p[1:]) > 5)
        assert apart[inner] == pytest.approx(step, rel=0.1)


@pytest.mark.parametrize("samples", [1, 2, 30, 2000])
def test_the_laws_are_binomial_and_rounded_to_the_grid(samples):
    p, users = cover(samples, 0.3), 10**6
    seen = 0
    for block, first, found in scaled_tails(p, samples, users):
        x = np.arange(samples)
        exact = users * UNIT * stats.binom.sf(x[:, None], samples, p[block])
        whole = np.full(exact.shape, 0.0)
        whole[:first] = users * UNIT
        whole[first : first + len(found)] = found
        assert np.abs(whole - exact).max() <= 0.51
        seen += whole.shape[1]
    assert seen == len(p)


@pytest.mark.seconds
@pytest.mark.parametrize(("samples", "users", "epsilon"), [(1, 100, 1), (7, 60, 0.5), (20, 500, 0.1), (400, 3000, 0.2)])
def test_ks_losses_are_the_largest_difference_over_all_values(samples, users, epsilon):
    """Against the plain maximum over all x, also for data that no binomial law gives, and for more users than were said."""
    choice = BinomialChoice(samples, users, rounded_down(Fraction(epsilon)))
    limits = np.zeros((samples, len(choice.candidates)), dtype=np.int64)
    for block, first, found in scaled_tails(choice.candidates, samples, users):
        limits[:first, block] = users * UNIT
        limits[first : first + len(found), block] = found
    rng = np.random.default_rng(1)
    odd = {int(v): int(rng.integers(1, users)) for v in rng.integers(1, samples + 1, 6)}
    for table in (
        table_of({}),
        table_of({samples: users}),
        table_of({1: 2 * users}),
        table_of(odd),
        *(binomial_table(p, samples, users) for p in (0.001, 0.05, 0.5, 0.97)),
    ):
        brute = np.abs(tails(table, samples)[:, None] * UNIT - limits).max(axis=0)
        assert (choice.losses(table)[0] == brute).all()


def test_many_symbols_at_once_have_the_losses_of_each():
    choice = BinomialChoice(30, 400, rounded_down(Fraction(1, 10)))
    alone = [{3: 5}, {}, {1: 399, 2: 1}, {30: 7, 1: 2}]
    together = choice.losses(table_of(*alone))
    for row, each in zip(together, alone, strict=True):
        assert (row == choice.losses(table_of(each))[0]).all()


@pytest.mark.seconds
def test_phs_scores_are_those_of_the_paper():
    """Gamma as printed, in floats: sets W by comparing the laws value by value. Rounding moves a score by 2 units at most."""
    samples, users = 12, 3000
    choice = BinomialChoice(samples, users, Fraction(1, 2), "phs")
    p, alpha = choice.candidates, choice.alpha
    law = stats.binom.pmf(np.arange(samples + 1)[:, None], samples, p)
    for table in (
        binomial_table(0.3, samples, users),
        binomial_table(0.02, samples, users),
        table_of({12: 10, 1: 900}),
    ):
        held = np.zeros(samples + 1)
        value, counts = table.row(0)
        held[value], held[0] = counts, users - counts.sum()
        score = np.empty(len(p))
        for i in range(len(p)):
            gammas = []
            for j in range(len(p)):
                w = law[:, i] > law[:, j] * (1 + 1e-12)
                near = law[w, i].sum() - law[w, j].sum() <= 3 * alpha
                gammas.append(users if near else max(0.0, held[w].sum() - users * (law[w, j].sum() + 1.5 * alpha)))
            score[i] = min(gammas)
        assert -choice.losses(table)[0] / UNIT == pytest.approx(score, abs=2 / UNIT)


def test_the_accuracy_of_phs_follows_from_public_numbers():
    """alpha = max(sqrt(ln(2|H|/.05) / 2s), 4 ln(|H|/.05) / (1.5 epsilon s)), and beyond a quarter there are too few users."""
    for samples, users, epsilon in (
        (20, 20_000, Fraction(1, 10)),
        (1000, 2000, Fraction(1, 2)),
        (100, 10**6, Fraction(1)),
    ):
        choice = BinomialChoice(samples, users, epsilon, "phs")
        size = len(choice.candidates)
        by_sampling = math.sqrt(math.log(2 * size / 0.05) / (2 * users))
        by_privacy = 4 * math.log(size / 0.05) / (1.5 * float(epsilon) * users)
        needed = max(by_sampling, by_privacy)
        assert needed * 0.99 <= choice.alpha <= 1e-6 + max(1.11 * needed, 8 * math.sqrt(samples) / 3 / 4096)
    assert BinomialChoice(20, 50, Fraction(1, 10), "phs").alpha == LARGEST_ALPHA


@pytest.mark.seconds
@pytest.mark.parametrize("kind", ["ks", "phs"])
def test_the_choice_is_near_the_truth(kind):
    """Within four times the width of the law of the choice and of sampling; misses have a probability below 1e-6 in all."""
    samples, users, epsilon = 50, 20_000, Fraction(1, 4)
    for seed, p in enumerate((0.004, 0.1, 0.5, 0.93)):
        choice = BinomialChoice(samples, users, epsilon, kind)
        (found,) = choice.estimates(binomial_table(p, samples, users, seed), SUBKEY, seed)
        off = np.abs(
            stats.binom.sf(np.arange(samples), samples, found) - stats.binom.sf(np.arange(samples), samples, p)
        ).max()
        assert off < 4 * choice.alpha if kind == "phs" else off < 40 / (0.25 * users) + 5 * 0.5 / math.sqrt(users)


def test_phs_takes_what_is_rare_for_its_edge():
    """Probabilities of a fifth and of a half of the edge: all choices are within a step of the cover of the edge, none is near
    the truth (others have a probability below 1e-4 by the exact law, and nothing is drawn). "ks" has no edge."""
    choice = BinomialChoice(20, 20_000, Fraction(1, 10), "phs")
    for share in (0.2, 0.5):
        table = binomial_table(share * choice.edge, 20, 20_000)
        law = probabilities(choice.exponents(table))
        near = np.abs(choice.candidates - choice.edge) < 0.2 * choice.edge
        assert near.any() and law[~near].sum() < 1e-4
    assert BinomialChoice(20, 20_000, Fraction(1, 10)).edge == 0


@pytest.mark.seconds
@pytest.mark.parametrize("kind", ["ks", "phs"])
def test_choices_have_the_stated_law(kind):
    """2500 symbols with one table: the chosen places against the exact probabilities, in ten groups of about equal weight.
    False alarm below 1e-7; a law of twice the epsilon is told apart for sure."""
    choice, n = BinomialChoice(6, 40, Fraction(1, 8), kind), 2500
    same = {1: 9, 2: 5, 4: 1}
    law = probabilities(choice.exponents(table_of(same)))
    group = np.minimum((np.cumsum(law) * 10).astype(int), 9)
    expected = np.bincount(group, law, minlength=10)

    def statistic(chosen: BinomialChoice) -> float:
        found = chosen.estimates(table_of(*[same] * n), SUBKEY, 5)
        seen = np.bincount(group[np.searchsorted(choice.candidates, found)], minlength=10)
        used = expected > 0
        return float(((seen - n * expected)[used] ** 2 / (n * expected[used])).sum())

    limit = stats.chi2.isf(1e-7, 9)
    assert statistic(choice) < limit
    if kind == "ks":
        wrong = BinomialChoice(6, 40, Fraction(1, 4), kind)
        object.__setattr__(wrong, "candidates", choice.candidates)
        assert statistic(wrong) > limit


def test_symbols_that_nobody_has_draw_by_themselves():
    choice = BinomialChoice(5, 50, Fraction(1, 10))
    found = choice.estimates(table_of(*[{}] * 50), SUBKEY, 0)
    assert len(set(found.tolist())) > 10
    mixed = choice.estimates(table_of({}, {1: 3}, {}), SUBKEY, 0)
    assert mixed[[0, 2]].tolist() == found[[0, 2]].tolist(), "a symbol's lane does not depend on its neighbours"


def test_a_choice_repeats_itself_and_changes_with_key_table_and_digest():
    choice = BinomialChoice(20, 4000, Fraction(1, 50))
    table = table_of(*[{1: 40 + i, 2: i} for i in range(40)])
    first = choice.estimates(table, SUBKEY, 1)
    assert (choice.estimates(table, SUBKEY, 1) == first).all()
    assert (choice.estimates(table.take(np.arange(40)[::-1]), SUBKEY, 1) == first[::-1]).all()
    for other in (choice.estimates(table, bytes([1]) * 32, 1), choice.estimates(table, SUBKEY, 2)):
        assert (other != first).mean() > 0.5


def test_exponents_are_those_that_are_drawn_by():
    choice = BinomialChoice(8, 100, Fraction(3, 16))
    table = table_of({1: 30, 2: 4})
    excess, places = choice._excess(choice.losses(table)[0])
    exponents = choice.exponents(table)
    assert [Fraction(int(e), choice._denominator) for e in excess] == [exponents[place] for place in places]


@pytest.mark.parametrize(
    "epsilon", [Fraction(1), Fraction(1, 3), Fraction(10**9 + 7, 10**9), Fraction(1, 10**7), Fraction(39)]
)
def test_epsilons_are_rounded_down_a_little(epsilon):
    rounded = rounded_down(epsilon)
    assert epsilon * (1 - Fraction(1, 2**14)) <= rounded <= epsilon and rounded.numerator < 2**16


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "tv"}, "must be one of .* got 'tv'"),
        ({"users": 0}, "users must be an integer from 1"),
        ({"epsilon": Fraction(0)}, "epsilon must be positive"),
        ({"epsilon": Fraction(2**16 + 1, 3)}, "numerator below 2"),
        ({"epsilon": Fraction(1, 2**40)}, "no better than none"),
    ],
)
def test_what_cannot_be_meant_is_refused(given, words):
    with pytest.raises(ParameterError, match=words):
        BinomialChoice(**{"samples": 3, "users": 10, "epsilon": Fraction(1)} | given)


def test_a_table_beyond_the_samples_is_refused_without_naming_a_value():
    with pytest.raises(ParameterError, match="more than 3 samples") as error:
        BinomialChoice(3, 10, Fraction(1)).losses(table_of({17: 1}))
    assert "17" not in str(error.value)
