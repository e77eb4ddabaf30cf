"""One estimator code for every model: the choice of the estimate, mode "l2" of sums that have noise already, and answers.

Noise is drawn from fixed keys here, so that each number is the same in every run.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.shape.anonymized import ESTIMATES, best_shape, noise_parameter
from headcount.mechanisms.shape.auto import shape_histogram
from headcount.mechanisms.shape.buckets import buckets_of, cells_of, release_salt
from headcount.mechanisms.shape.estimators import CoverageQuestion, DistinctQuestion, EntropyQuestion, SupportQuestion
from headcount.mechanisms.shape.hashed import hashed_histogram, rank_buckets, summed_shape, unhashed
from headcount.mechanisms.shape.isotonic import nearest_shape, noise_width
from headcount.mechanisms.shape.likelihood import likely_shape
from headcount.mechanisms.shape.papers.pan_private import pan_private_counts
from headcount.mechanisms.shape.papers.shuffled import shuffled
from headcount.mechanisms.shape.properties import ShapeProperties, shape_properties
from headcount.mechanisms.shape.tallies import Tally, make_tally, of_cells
from headcount.mechanisms.shape.tally_noise import noisy_tally

KEY = bytes(range(32))


def zipf(samples: int, items: int, seed: int = 0) -> np.ndarray:
    """The counts of samples of Zipf's law."""
    law = 1 / np.arange(1, items + 1)
    return np.random.default_rng(seed).multinomial(samples, law / law.sum())


def of_rows(rows) -> Tally:
    return Tally(np.asarray(rows.column("count")), np.asarray(rows.column("items")))


def equal(one: Tally, other: Tally) -> bool:
    return one.values.tolist() == other.values.tolist() and one.cells.tolist() == other.cells.tolist()


# The estimate.


@pytest.mark.seconds
def test_each_estimate_is_taken_from_the_same_noisy_cells():
    """Algorithm 1's own shape is the one that is nearest to the unbiased numbers, the other the most likely one; with the same
    key they are of one noise, so that both together cost no more than one."""
    counts = make_tally(zipf(10_000, 10_000))
    made = {name: shape_histogram(Budget(0.25), domain_size=10_000, estimate=name) for name in ESTIMATES}
    assert made["auto"].mode == "central" and made["likelihood"].mode == made["algorithm-1"].mode == "l1"
    made["auto"] = shape_histogram(Budget(0.25), domain_size=10_000, mode="l1")
    plan = made["auto"].plan
    noisy, p = noisy_tally(of_cells(counts, 10_000), plan.scale, KEY), noise_parameter(plan)
    expected = {"likelihood": likely_shape(noisy, p, 10_000), "algorithm-1": nearest_shape(noisy, p, 10_000)[0]}
    expected["auto"] = best_shape(noisy, p, 10_000)[0]
    assert not equal(expected["likelihood"], expected["algorithm-1"])
    for name, each in made.items():
        assert equal(of_rows(each.shape(counts, KEY)), expected[name]), name
        assert each.subkey(KEY, "id", "label") == made["auto"].subkey(KEY, "id", "label")


@pytest.mark.seconds
def test_buckets_and_the_other_models_have_the_same_choice():
    counts = make_tally(zipf(2000, 2000))
    for name in ESTIMATES:
        hashed = hashed_histogram(Budget(0.5), users=None, buckets=8000, estimate=name)
        noisy, p = noisy_tally(of_cells(counts, 8000), hashed.plan.scale, KEY), noise_parameter(hashed.plan)
        best = unhashed(best_shape(noisy, p, 8000, estimate=name)[0], 8000, 2000)
        assert equal(of_rows(hashed.shape(counts, make_tally(np.zeros(0, np.int64)), KEY, KEY)), best), name
        reports = shuffled(Budget(0.5, 1e-2), users=2000, buckets=8000, estimate=name)
        best = unhashed(best_shape(noisy, float(reports.p), 8000, estimate=name)[0], 8000, 2000)
        assert equal(of_rows(reports.shape_of_tally(noisy, ranks=None)), best), name
        assert pan_private_counts(Budget(1), buckets=10, estimate=name).estimate == name


def test_an_estimate_that_is_none_or_not_for_the_mode_is_refused():
    with pytest.raises(ParameterError, match="estimate must be 'auto', 'likelihood' or 'algorithm-1', got 'best'"):
        shape_histogram(Budget(1), domain_size=100, estimate="best")
    with pytest.raises(ParameterError, match="has an estimate of its own, got estimate 'algorithm-1'"):
        shape_histogram(Budget(1), domain_size=100, mode="central", estimate="algorithm-1")
    for made in (shuffled, pan_private_counts, hashed_histogram):
        given = {"buckets": 40} if made is pan_private_counts else {"users": 10, "buckets": 40}
        with pytest.raises(ParameterError, match="estimate must be"):
            made(Budget(1, 1e-2), **given, estimate="best")
        with pytest.raises(ParameterError, match="mode must be 'l1' or 'l2', got 'central'"):
            made(Budget(1, 1e-2), **given, mode="central")


# Mode "l2" (Corollary 3).


def positions(tally: Tally, size: int) -> np.ndarray:
    values = np.repeat(tally.values, tally.cells)[::-1][:size]
    return np.pad(values, (0, size - len(values)))


@pytest.mark.parametrize("noises", [1, 2])
def test_every_position_is_within_two_widths_of_the_truth(noises):
    """Items that have a bucket each: with the noises of a key within the width, no count is further off than twice that; the
    ranks are those of the buckets themselves. An estimate that is far off, as none that is known is, is brought there."""
    counts, p = zipf(3000, 1000), math.exp(-0.5)
    noisy = make_tally(counts)
    for number in range(noises):
        noisy = noisy_tally(noisy, Fraction(2), bytes([number]) * 32)
    width = noises * noise_width(p, noises * 1000, 0.01)
    truth = np.sort(counts)[::-1]
    rows = of_rows(summed_shape(noisy, None, p, None, noises, "l2"))
    assert np.abs(positions(rows, 1000) - truth).max() <= 2 * width
    assert (np.abs(positions(rows, 1000) - positions(noisy, 1000).clip(0)) <= width).all()


@pytest.mark.seconds
def test_hashed_items_are_brought_near_the_ranks_of_the_second_hash():
    """50 items of 200 users that all met in one bucket, as if by a bad salt: their number is lost in mode "l1", and the second
    hash has it."""
    p, buckets = math.exp(-0.25), 40_000
    met = noisy_tally(of_cells(make_tally(np.array([10_000])), buckets), Fraction(4), KEY)
    apart = of_cells(make_tally(np.full(50, 200)), rank_buckets(10_000))
    ranks = noisy_tally(apart, Fraction(4), KEY)
    width = noise_width(p, int(ranks.cells.sum()), 0.01)
    l1, l2 = (of_rows(summed_shape(met, ranks, p, 10_000, 1, mode)) for mode in ("l1", "l2"))
    assert abs(positions(l1, 1)[0] - 10_000) < 100
    assert np.abs(positions(l2, 50) - 200).max() <= 2 * width <= 150


def squares(counts: np.ndarray, buckets: int, draws: int) -> float:
    """The mean, over draws of a hash, of the squares by which the sorted sums of buckets differ from the sorted counts."""
    generator, truth = np.random.default_rng(5), np.sort(counts)[::-1]
    total = 0.0
    for _ in range(draws):
        _, place = np.unique(generator.integers(0, buckets, len(counts)), return_inverse=True)
        sums = np.sort(np.bincount(place, counts, minlength=len(counts)))[::-1]
        total += float(((sums[: len(counts)] - truth) ** 2).sum())
    return total / draws


@pytest.mark.parametrize("each", [1, 10, 40])
def test_the_second_hash_moves_ranks_by_no_more_than_the_root_of_the_samples(each):
    """n = 10,000 samples: items of `each` alike, which is the worst for the bound n^2 / B = sqrt(n). 400 draws are within a
    fifth of the mean; with four buckets for each sample, as the first hash has, it is n / 4, 25 times as much."""
    counts = np.full(10_000 // each, each)
    assert rank_buckets(10_000) == 10**6 + 1
    assert squares(counts, rank_buckets(10_000), 400) <= 1.2 * math.sqrt(10_000)
    assert squares(counts, 40_000, 20) > 10 * math.sqrt(10_000)


def test_a_second_hash_is_only_made_where_it_is_needed():
    assert shuffled(Budget(1, 1e-6), users=100, buckets=400, mode="l2", hashed=False).ranks == 0
    both = shuffled(Budget(1, 1e-6), users=100, buckets=400, mode="l2")
    assert (both.ranks, both.cells, both.reports_each) == (1001, 1401, 2)
    counters = pan_private_counts(Budget(1), buckets=400, mode="l2")
    assert (counters.ranks, counters.cells, counters.scale) == (1001, 1401, 2)
    assert pan_private_counts(Budget(1), buckets=400, mode="l2", hashed=False).scale == 1
    with pytest.raises(
        ParameterError, match="fit into memory, got 100000000 and 125000000001 for the ranks of mode 'l2'"
    ):
        pan_private_counts(Budget(1), buckets=10**8, mode="l2")


def test_the_cells_of_an_item_are_one_of_each_hash():
    names = pa.array([f"i{k}" for k in range(500)])
    cells = cells_of(names, "s", 100, 1000)
    assert np.array_equal(cells[:, 0], buckets_of(names, release_salt("s"), 100))
    assert np.array_equal(cells_of(names, "s", 100), cells[:, 0])
    assert cells[:, 1].min() >= 100 and cells[:, 1].max() < 1100
    assert len(np.unique((cells[:, 1] - 100) % 100 - cells[:, 0])) > 50, (
        "the second hash does not follow from the first"
    )


@pytest.mark.seconds
def test_a_state_with_two_hashes_is_released_near_the_truth():
    """100 items of 20 events each, epsilon 8: the noise is below 20 in every one of 1,100,000 counters, but for 1e-10."""
    counts = pan_private_counts(Budget(8), buckets=40_000, protect="either", mode="l2")
    state = counts.start()
    cells = cells_of(pa.array([f"i{k}" for k in range(100)]), "s", counts.buckets, counts.ranks)
    state.count(np.repeat(cells.ravel(), 20))
    rows = of_rows(counts.shape(state, samples=2000))
    assert abs(rows.cells[rows.values > 10].sum() - 100) <= 3


# Answers, in every model by one code (Theorem 4).

QUESTIONS = (EntropyQuestion(accuracy=0.5), DistinctQuestion(), CoverageQuestion(), SupportQuestion(100_000, 0.3))


def sums_of(counts: np.ndarray, buckets: int, scale: Fraction, noises: int) -> Tally:
    """Sums of all buckets with noise of a scale, as the models have them; keys in place of the operating system."""
    hashed = np.bincount(np.random.default_rng(1).integers(0, buckets, len(counts)), counts, minlength=buckets)
    sums = make_tally(hashed.astype(np.int64))
    for number in range(noises):
        sums = noisy_tally(sums, scale, bytes([number]) * 32)
    return sums


@pytest.mark.seconds
@pytest.mark.parametrize("noises", [1, 2])
def test_entropy_and_support_follow_from_noisy_sums_in_both_models(noises):
    """100,000 samples of Zipf's law, epsilon 1 for replaced users, 400,000 buckets, one noise (shuffle) or two (pan-private).

    The answers are near those of the counts themselves, and within twice the stated error. From the sums as they are, an
    entropy would be off by more than 1, and the number of items by 90,000.
    """
    counts = zipf(100_000, 100_000)
    p = math.exp(-0.45)
    sums = sums_of(counts, 400_000, Fraction(20, 9), noises)
    rows = summed_shape(sums, None, p, 100_000, noises)
    found = {row["property"]: row for row in shape_properties(rows, QUESTIONS).to_pylist()}
    exact = make_tally(counts[counts > 0])
    for question, most in zip(QUESTIONS[:3], (0.4, 6_000, 16_000), strict=True):
        estimator = question.estimator(100_000, 0.0)
        truth = estimator.value(estimator.exact(exact))
        row = found[question.name]
        assert abs(row["value"] - truth) <= min(most, 2 * row["noise_stddev"]), (question.name, row, truth)
    naive = np.repeat(sums.values, sums.cells).clip(0)
    share = naive[naive > 0] / naive.sum()
    estimator = QUESTIONS[0].estimator(100_000, 0.0)
    assert abs(-(share * np.log(share)).sum() - estimator.value(estimator.exact(exact))) > 1
    assert (naive > 0).sum() - len(counts[counts > 0]) > 90_000


def test_answers_of_the_models_are_those_of_the_released_rows():
    """The mechanism, its rows and its promise: nothing else has a part in the answers, which cost nothing."""
    for made in (shuffled(Budget(1, 1e-2), users=1000, buckets=4000), pan_private_counts(Budget(1), buckets=4000)):
        rows = summed_shape(sums_of(zipf(1000, 300), 4000, Fraction(2), 1), None, math.exp(-0.5), 1000)
        asked = ShapeProperties(made, QUESTIONS)
        assert asked.of_rows(rows).equals(shape_properties(rows, QUESTIONS))
        answers = asked.answers(rows)
        assert answers.guarantee.epsilon == 1 and answers.guarantee.unit == made.guarantee().unit
        assert math.fsum(step.epsilon for step in answers.guarantee.mechanisms) == pytest.approx(1)
        crowded = Tally(np.array([1]), np.array([3000]))
        assert "more than half of the 4,000 buckets" in made.notes(crowded)[0] and made.notes(of_rows(rows)) == ()
