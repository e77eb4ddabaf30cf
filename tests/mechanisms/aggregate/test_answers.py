"""Intervals of metrics hold the truth as often as they say, also where there are few rows."""

from __future__ import annotations

import numpy as np
import pytest

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate.answers import NoisySums, fieller, ratio_answers
from headcount.mechanisms.aggregate.measures import make_plan
from headcount.mechanisms.aggregate.metrics import Metrics, parse_metric
from headcount.mechanisms.calibration.intervals import DEVIATIONS

RUNS = 20_000


def noisy_of(rows: float, mean: float, square: float, stddev: float, seed: int, missing: float = 0.0) -> NoisySums:
    """Noisy sums of so many rows with this mean of x and of x^2, and of some that lack x, again and again."""
    rng = np.random.default_rng(seed)
    truth = {"rows": rows + missing, "sum0": rows * mean, "gap0": rows * (1 - square), "missing0": missing}
    sums = {name: value + stddev * rng.normal(size=RUNS) for name, value in truth.items()}
    return NoisySums(np.arange(RUNS), sums, dict.fromkeys(truth, stddev))


@pytest.mark.parametrize("rows", [1, 20, 100, 1000, 10**5])
@pytest.mark.parametrize("mean, square", [(0.0, 0.0), (0.0, 1.0), (-0.9, 0.85), (1.0, 1.0), (0.3, 0.2)])
@pytest.mark.parametrize("missing", [0, 0.1, 40, 1000])
def test_intervals_hold_the_truth(rows, mean, square, missing):
    """Of 20,000, with noise of 20 rows: at least 94.2 %, which is five standard deviations below 95 %."""
    metrics = Metrics.of([parse_metric("mean", "x:10:30"), parse_metric("variance", "x:10:30")])
    found = ratio_answers(noisy_of(rows, mean, square, 20.0, rows, missing), metrics)
    truths = (20 + 10 * mean, 100 * (square - mean**2))
    for answer, truth, (low, high) in zip(found.values(), truths, ((10, 30), (0, 100)), strict=True):
        inside = (answer.low <= truth + 1e-9) & (truth - 1e-9 <= answer.high)
        assert inside.mean() > 0.942
        for column in (answer.value, answer.low, answer.high):
            assert column.min() >= low and column.max() <= high
        assert (answer.low <= answer.high).all()


@pytest.mark.parametrize("rows", [1000, 10**5])
def test_the_stated_noise_is_true(rows):
    """To 3 %: six standard deviations of that of 20,000. Of a mean it is that of its own sums, and the estimate has less."""
    metrics = Metrics.of([parse_metric("mean", "x:10:30"), parse_metric("variance", "x:10:30")])
    noisy = noisy_of(rows, 0.3, 0.5, 20.0, 7)
    mean, variance = ratio_answers(noisy, metrics).values()
    own = 10 * noisy.sums["sum0"] / noisy.sums["rows"]
    assert np.median(mean.noise_stddev) == pytest.approx(own.std(), rel=0.03)
    assert mean.value.std() < own.std()
    assert np.median(variance.noise_stddev) == pytest.approx(variance.value.std(), rel=0.03)


def test_the_interval_of_a_mean_is_not_wider_than_it_must_be():
    """With many rows Fieller's interval is the usual one, +-1.96 standard deviations, and holds 95 %."""
    noisy = noisy_of(10**4, 0.3, 0.5, 20.0, 5)
    low, high = fieller(noisy.sums["sum0"], noisy.sums["rows"], 20.0, 20.0, DEVIATIONS, -1.0)
    assert np.median(high - low) == pytest.approx(2 * DEVIATIONS * 20 * np.hypot(1, 0.3) / 10**4, rel=0.01)
    assert 0.942 < ((low <= 0.3) & (0.3 <= high)).mean() < 0.958


def test_without_rows_anything_may_be():
    low, high = fieller(np.array([5.0, -40.0]), np.array([3.0, -100.0]), 20.0, 20.0, DEVIATIONS, -1.0)
    assert low.tolist() == [-1, -1] and high.tolist() == [1, 1]


def test_with_one_row_on_a_key_users_are_rows():
    metrics = Metrics.of([parse_metric("mean", "x:0:1")])
    plan = make_plan(metrics, 1, 1, 1.0, Relation.ADD_REMOVE)
    assert [measure.name for measure in plan.measures] == ["rows", "sum0", "cosine0", "sine0", "missing0"]


def test_means_are_of_rows_that_have_a_value_where_some_lack_it():
    """Where none lacks it, all rows have one, for many keys and for one; fixed seeds, so that nothing is left to chance."""
    metrics = Metrics.of([parse_metric("mean", "x:10:30"), parse_metric("sum", "x:10:30")])
    (mean,) = ratio_answers(noisy_of(1000, 0.3, 0.5, 20.0, 1, missing=500), metrics).values()
    assert mean.value.mean() == pytest.approx(23, abs=0.05), "of all rows it would be 22"
    noisy = noisy_of(1000, 0.3, 0.5, 20.0, 2)
    assert noisy.typical_with_value(0) == noisy.counts("events")
    value, noise = noisy_of(1000, 0.3, 0.5, 20.0, 1, missing=500).total(metrics.each[1], metrics.values)
    assert value.mean() == pytest.approx(23_000, rel=0.001) and noise == pytest.approx(value.std(), rel=0.03)
    taken = 0
    for run in range(1000):
        one = noisy_of(1000, 0.3, 0.5, 20.0, run).sums
        alone = NoisySums(np.arange(1), {name: each[:1] for name, each in one.items()}, dict.fromkeys(one, 20.0))
        taken += alone.typical_with_value(0)[1] > 20
    assert taken <= 5, "of a mean of at most 1"
