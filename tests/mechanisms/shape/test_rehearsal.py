"""The error of a shape, by estimating it once more. All is deterministic: the draws follow from the shape."""

import math
from fractions import Fraction

import numpy as np
import pytest

from headcount.mechanisms.shape.anonymized import estimated_shape
from headcount.mechanisms.shape.rehearsal import rehearsed_errors, throw
from headcount.mechanisms.shape.tallies import Tally, l1_distance, make_tally, of_cells
from headcount.mechanisms.shape.tally_noise import noisy_tally

NOTHING = make_tally(np.zeros(0, dtype=np.int64))


def tally(values, cells):
    return Tally(np.asarray(values, dtype=np.int64), np.asarray(cells, dtype=np.int64))


def test_rows_share_the_distance_by_the_counts_that_they_end():
    """Items with at least r: 5 5 2 2 2, estimated as 6 3 2 2 0 0 0 1 in place of these (one item too many with 8)."""
    shape = tally([2, 5], [3, 2])
    again = tally([1, 2, 4, 8], [3, 0, 2, 1])
    again = make_tally(again.values, again.cells)
    errors = rehearsed_errors(shape, shape, 10, 0.5, 1, lambda _: again, thrown=False)
    assert errors.tolist() == [1 + 2, 1 + 1 + 1 + 3]
    assert errors.sum() == l1_distance(shape, again)
    of_one_row = rehearsed_errors(tally([3], [4]), shape, 10, 0.5, 1, lambda _: again, thrown=False)
    assert of_one_row.tolist() == [errors.sum()]


@pytest.mark.seconds
@pytest.mark.parametrize("noises", [1, 2])
def test_cells_get_as_much_noise_as_the_true_ones(noises):
    """10^6 cells, four times: the variance of noise is known, and its mean is within 5.5 standard errors."""
    seen = []

    def estimate(noisy):
        seen.append(noisy)
        return NOTHING

    p, cells = math.exp(-1 / 3), 10**6
    rehearsed_errors(tally([7], [cells]), tally([7], [cells]), cells, p, noises, estimate, thrown=False)
    variance = noises * 2 * p / (1 - p) ** 2
    assert len({noisy.values.tobytes() + noisy.cells.tobytes() for noisy in seen}) == len(seen) == 4
    for noisy in seen:
        assert int(noisy.cells.sum()) == cells
        squares = (noisy.values - 7) ** 2
        found, fourth = (float(noisy.cells @ power) / cells for power in (squares, squares**2))
        assert abs(found - variance) < 5.5 * math.sqrt((fourth - found**2) / cells)


def test_items_are_thrown_into_all_buckets_alike_and_add_up_where_they_meet():
    """10^5 items of 2 and 1000 of 300 into 10^6 buckets: how many meet others is within 5.5 standard deviations of the mean."""
    items, buckets = tally([2, 300], [100_000, 1_000]), 10**6
    found = throw(items, buckets, bytes(32))
    assert found.total == items.total
    pairs = 101_000 * 100_999 / 2 / buckets  # that meet, with about this variance
    assert abs(101_000 - int(found.cells.sum()) - pairs * (1 - 101_000 / 3 / buckets)) < 5.5 * math.sqrt(pairs)
    assert set(found.values.tolist()) >= {2, 4, 300, 302}


def test_the_chance_of_collisions_is_in_the_error():
    """Without noise there is no error but where items meet; here some 45 of 300, in 1000 buckets, do."""
    items = tally([5], [300])
    errors = [
        rehearsed_errors(items, items, 1000, 0.0, 1, lambda noisy: of_cells(noisy, 300), thrown=thrown).sum()
        for thrown in (False, True)
    ]
    assert errors[0] == 0 < errors[1]


def test_nothing_to_say_of_nothing_and_no_error_without_noise():
    for shape in (NOTHING, tally([1, 4], [100, 3])):
        found, errors = estimated_shape(of_cells(shape, 1000), 0.0, 1000)
        assert l1_distance(found, shape) == 0
        assert errors.tolist() == [0.0] * len(shape.values)


@pytest.mark.seconds
def test_the_error_of_one_item_far_from_all_others_is_that_of_its_noise():
    """E|noise| = 2p / (1 - p^2), of four draws; within a factor that four draws keep but for 1e-6."""
    p, cells = math.exp(-1 / 20), 1000
    noisy = noisy_tally(tally([0, 10**6], [cells - 1, 1]), Fraction(20), bytes(32))
    shape, errors = estimated_shape(noisy, p, cells)
    assert (shape.cells[-1], abs(shape.values[-1] - 10**6) < 300) == (1, True)
    assert 0.02 < errors[-1] / (2 * p / (1 - p * p)) < 6


def test_the_same_shape_has_the_same_error():
    noisy = noisy_tally(tally([0, 1, 5], [500, 400, 100]), Fraction(2), bytes(32))
    once, again = (estimated_shape(noisy, math.exp(-0.5), 1000)[1] for _ in range(2))
    assert np.array_equal(once, again) and once.all()
