"""Rows of poor quality are left out by what was released alone, and it is told how many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.counting.quality import EVERY_ROW, Quality, left_out
from headcount.mechanisms.counting.released import estimates_batch, normal_counts_batch
from headcount.mechanisms.errors import ParameterError

NAMES = pa.array(["a", "b", "c", "d", "e"])
COUNTS = np.array([1000.0, 196.1, 195.9, 50.0, -20.0])
ROWS = normal_counts_batch(NAMES, COUNTS, np.full(5, 10.0))
NOISY = "their noise is above 0.1 of the count"


def kept(rows: pa.RecordBatch) -> str:
    return "".join(rows.column("item").to_pylist())


def test_noise_is_compared_with_the_count_at_196_hundredths_of_its_standard_deviation():
    rows = Quality(max_relative_error=0.1).keep(ROWS)  # 1.96 * 10 is a tenth of 196
    assert kept(rows) == "ab" and left_out(rows) == {NOISY: 3}


def test_a_count_below_0_is_never_good_enough():
    assert kept(Quality(max_relative_error=10).keep(ROWS)) == "abcd"


def test_small_counts_are_left_out_after_the_noise_and_a_row_counts_once():
    rows = Quality(suppress_below=196).keep(ROWS)
    assert kept(rows) == "ab" and left_out(rows) == {"their count is below 196": 3}
    both = Quality(0.1, 1000).keep(ROWS)
    assert kept(both) == "a" and left_out(both) == {NOISY: 3, "their count is below 1,000": 1}


def test_an_estimate_is_looked_at_and_not_what_it_was_made_of():
    rows = estimates_batch(NAMES, COUNTS * 2, np.full(5, 10.0), COUNTS)
    assert kept(Quality(suppress_below=390).keep(rows)) == "abc"


def test_no_limit_leaves_nothing_out():
    assert not EVERY_ROW.limits and left_out(ROWS) == {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_relative_error": 0}, "max_relative_error must be a number above 0 and up to 10, got 0"),
        ({"max_relative_error": float("nan")}, "max_relative_error must be a number above 0"),
        ({"max_relative_error": True}, "max_relative_error must be a number above 0"),
        ({"suppress_below": 0}, "suppress_below must be an integer from 1"),
        ({"suppress_below": 2.5}, "suppress_below must be an integer from 1"),
    ],
)
def test_limits_that_are_refused(given, words):
    with pytest.raises(ParameterError, match=words):
        Quality(**given)
