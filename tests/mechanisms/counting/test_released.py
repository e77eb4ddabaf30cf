"""Columns of released counts: what each is, and the interval beside it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import calibrate_public_domain, calibrate_unknown_domain
from headcount.mechanisms.counting.noisy import noise_of
from headcount.mechanisms.counting.released import counts_batch, empty_counts, estimates_batch, normal_counts_batch
from headcount.mechanisms.randomness.lanes import Lanes

ONE = Bound(l0=1, l1=1, linf=1)
PLANS = {
    "Laplace": calibrate_public_domain(Budget(1.0), ONE, "add-remove"),
    "Gaussian": calibrate_public_domain(Budget(1.0, 1e-6), ONE, "add-remove", "gaussian"),
    "Laplace, threshold": calibrate_unknown_domain(Budget(1.0, 1e-6), ONE, "add-remove", "laplace"),
    "Gaussian, threshold": calibrate_unknown_domain(Budget(1.0, 1e-6), ONE, "add-remove", "gaussian"),
}


@pytest.mark.parametrize("name", PLANS)
def test_95_percent_of_intervals_hold_the_number_without_noise(name):
    """Of 40,000 draws, a share below 0.945 has a chance below 1e-6 if it is 0.95 or more, by a normal law with 4.6 stddevs.

    Half the interval would hold some 70 %, hundreds of stddevs away.
    """
    plan, draws, true = PLANS[name], 40_000, 1000
    lanes = Lanes(bytes(range(32)), np.arange(2 * draws, dtype=np.uint64).reshape(-1, 2))
    value = (true << plan.grid) + noise_of(plan, lanes)
    count = value * 2.0**-plan.grid
    if plan.threshold is not None:
        count = np.floor(count + 0.5)
    rows = counts_batch(pa.array(np.arange(draws)), count, plan)
    low, high = (np.asarray(rows.column(end)) for end in ("low", "high"))
    assert ((low <= true) & (true <= high)).mean() > 0.945
    narrow = (high - low) / 4
    assert (np.abs(count - true) <= narrow).mean() < 0.9
    assert (np.asarray(rows.column("noise_stddev")) == plan.stddev).all()


def test_columns_stand_in_the_order_in_which_they_are_read():
    counts = ["item", "bounded_count", "noise_stddev", "low", "high"]
    item, number = pa.array(["a"]), np.array([5.0])
    assert empty_counts(pa.int64()).schema.names == normal_counts_batch(item, number, number).schema.names == counts
    rows = estimates_batch(item, number, number, number)
    assert rows.schema.names == ["item", "count", "noise_stddev", "low", "high", "bounded_count"]


def test_ends_of_an_estimate_stay_within_what_it_may_be():
    rows = estimates_batch(
        pa.array(["a", "b"]), np.array([5.0, 90.0]), np.array([10.0, 10.0]), np.array([1.0, 2.0]), 100
    )
    assert rows.column("low").to_pylist() == [0, 70] and rows.column("high").to_pylist() == [25, 100]
    assert Fraction(rows.column("bounded_count")[1].as_py()) == 2
