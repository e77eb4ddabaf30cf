"""Whole histograms whose items all lie below the threshold, so that those shown are the lucky ones: their intervals hold."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.calibration.intervals import DEVIATIONS
from headcount.mechanisms.histogram.factory import histogram

BUDGET, ITEMS = Budget(1.0, 1e-6), 12_000
ASKED = {
    "one stage, Laplace": {"method": "one-stage", "bound": 1, "noise": "laplace"},
    "one stage, Gaussian": {"method": "one-stage", "bound": 1, "noise": "gaussian"},
    "estimates, names and counts at once": {"noise": "laplace"},
    "the same, not calibrated": {"noise": "laplace", "calibrate": "none"},
}


def equal_items(users: int) -> pa.RecordBatch:
    """So many items, each of so many users, who have nothing else."""
    item = np.repeat(np.arange(ITEMS), users)
    return contribution_batch(pa.array(np.arange(len(item))), pa.array(item))


@pytest.mark.seconds
@pytest.mark.parametrize("name", ASKED)
def test_intervals_of_items_that_are_shown_by_luck_hold_the_truth_and_plain_ones_do_not(name, make_release):
    """Items some scales of the noise below the threshold, of which some hundreds are shown. Fewer of their intervals hold than
    are allowed with a chance of 1e-7, if 95 % do. Plain ones, of 1.96 standard deviations, hold so few that they are refused
    with power above 1 - 1e-9."""
    made = histogram(BUDGET, of="events", item_type=int, **ASKED[name])
    plan = (
        made.stages.names_plan(made.stages.names_choice.ends()[0]).rounds[0].plan if "stage" not in name else made.plan
    )
    below = (1.5 if plan.kind == "gaussian" else 3.5) * float(plan.scale)
    true = round((plan.threshold - below) / 2**plan.grid)
    rows = made.run([equal_items(true)], make_release())
    count = np.asarray(rows.column("count" if "count" in rows.schema.names else "bounded_count"))
    low, high, stddev = (np.asarray(rows.column(column)) for column in ("low", "high", "noise_stddev"))
    least = stats.binom.ppf(1e-7, len(count), 0.95)
    assert 100 < len(count) < ITEMS / 5 and (count > true).all()
    assert ((low <= true) & (true <= high)).sum() >= least
    plain = np.abs(count - true) <= DEVIATIONS * stddev
    assert plain.sum() < least
