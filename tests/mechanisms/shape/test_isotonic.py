"""Unbiased numbers from a noisy tally and the nearest that a shape can have, against sums over all cells and brute force.

Seeds are fixed, so that all is deterministic.
"""

import math

import numpy as np
import pytest

from headcount.mechanisms.shape import isotonic
from headcount.mechanisms.shape.isotonic import (
    antitonic_l1,
    clip_to_positions,
    cumulative_runs,
    items_by_count,
    noise_width,
    sorted_fit,
    step_kernel,
)
from headcount.mechanisms.shape.tallies import make_tally


def brute_force(targets, lengths, most):
    """The least cost of non-increasing integers, by dynamic programming over all values."""
    cost = np.zeros(most + 1)
    for target, length in zip(targets[::-1], lengths[::-1], strict=True):
        cost = np.minimum.accumulate(length * np.abs(np.arange(most + 1) - np.clip(target, 0, most)) + 0.0 + cost)
    return cost[-1]


def test_the_isotonic_regression_is_optimal():
    """T8, against brute force; targets beyond the range and between integers, runs of various lengths."""
    rng = np.random.default_rng(1)
    for _ in range(400):
        size, most = int(rng.integers(1, 9)), int(rng.integers(1, 8))
        targets = np.rint(rng.normal(most / 2, most, size) * 16) / 16
        lengths = rng.integers(1, 6, size)
        fit = antitonic_l1(targets, lengths, most)
        assert (np.diff(fit) <= 0).all() and fit.min() >= 0 and fit.max() <= most
        cost = (lengths * np.abs(fit - np.clip(targets, 0, most))).sum()
        assert cost == pytest.approx(brute_force(targets, lengths, most), abs=1e-9)


@pytest.mark.parametrize("noises", [1, 2, 3])
def test_the_kernel_has_no_bias(noises):
    """E f(h + noise - r) is 1 if h >= r and else 0, to the last digits."""
    for p in (0.1, 0.5, 0.61, 0.9):
        y = np.arange(-800, 801)
        single = (1 - p) / (1 + p) * p ** np.abs(y)
        noise = single
        for _ in range(noises - 1):
            noise = np.convolve(noise, single, mode="same")
        f = np.zeros(len(y))
        f[800 - noises : 800 + noises], f[800 + noises :] = step_kernel(p, noises), 1
        for above in (-12, -2, -1, 0, 1, 5):
            mean = np.interp(y + above, y, f, left=0, right=1) @ noise
            assert mean == pytest.approx(float(above >= 0), abs=1e-9)


@pytest.mark.parametrize("noises", [1, 2])
def test_runs_are_the_sums_over_all_cells(noises):
    rng = np.random.default_rng(2)
    p = 0.6
    for _ in range(30):
        values = np.rint(rng.normal(rng.choice([0, 3, 40], 50), 3)).astype(np.int64)
        runs = cumulative_runs(make_tally(values), p, noises)
        top = max(values.max() + noises, 1)
        assert runs.first[0] == 1 and runs.last[-1] == top and (runs.first[1:] == runs.last[:-1] + 1).all()
        dense = np.repeat(runs.estimate, runs.lengths)
        spread = np.repeat(runs.variance, runs.lengths)
        kernel = dict(zip(range(-noises, noises), step_kernel(p, noises), strict=True))
        for r in range(1, top + 1):
            f = np.array([kernel.get(int(v - r), float(v >= r)) for v in values])
            assert dense[r - 1] == pytest.approx(f.sum())
            assert spread[r - 1] == pytest.approx(max((f * (f - 1)).sum(), 0))


def test_the_shape_is_the_conjugate():
    counts = make_tally(np.array([7, 7, 3, 1, 1, 1]))
    at_least = [6, 3, 3, 2, 2, 2, 2]
    shape = items_by_count(np.arange(1, 8), np.array(at_least))
    assert np.array_equal(shape.values, counts.values) and np.array_equal(shape.cells, counts.cells)


def test_positions_are_clipped_as_if_they_were_written_out():
    rng = np.random.default_rng(3)
    for _ in range(100):
        shape = make_tally(rng.integers(1, 30, rng.integers(0, 20)))
        noisy = make_tally(rng.integers(-9, 30, rng.integers(20, 40)))  # as many cells as items or more
        width = int(rng.integers(0, 5))
        long = max(shape.cells.sum(), noisy.cells.sum())
        x, s = (np.repeat(t.values, t.cells)[::-1] for t in (shape, noisy))
        x, s = np.pad(x, (0, long - len(x))), np.pad(s, (0, long - len(s)))
        expected = np.clip(x, np.maximum(s - width, 0), np.maximum(s + width, 0))
        clipped = clip_to_positions(shape, noisy, width)
        assert np.array_equal(np.repeat(clipped.values, clipped.cells)[::-1], expected[expected > 0])


def test_the_width_holds_all_noise():
    """P[some of 1000 noises is beyond] is at most 0.01, and above it with a width lower by two."""
    p = math.exp(-0.5)
    for cells in (1, 1000):
        width = noise_width(p, cells, 0.01)
        beyond = 2 * p ** (width + 1) / (1 + p)
        assert 1 - (1 - beyond) ** cells <= 0.01 < cells * beyond / p**2


@pytest.mark.seconds
@pytest.mark.parametrize("few", [1, 4, 1024])
def test_the_fit_to_sorted_counts_has_the_least_distance(monkeypatch, few):
    """Against the regression by heap, for each way to split the positions."""
    monkeypatch.setattr(isotonic, "_FEW", few)
    rng = np.random.default_rng(few)
    for size in (0, 1, 2, *rng.integers(3, 80, 200)):
        noisy = np.sort(rng.zipf(1.6, size).clip(0, 500))[::-1] + rng.integers(-4, 5, size)
        fit = sorted_fit(noisy)
        best = antitonic_l1(np.maximum(noisy, 0), np.ones(size, dtype=np.int64), 1000)
        assert (np.diff(fit) <= 0).all() and (fit >= 0).all()
        assert np.abs(fit - noisy).sum() == np.abs(best - noisy).sum()


def test_the_fit_is_what_was_sorted_where_noise_averages_out():
    rng = np.random.default_rng(0)
    truth = np.repeat([10**12, 500, 7, 0], [1, 3000, 5000, 20_000])
    fit = sorted_fit(truth + rng.integers(-2, 3, len(truth)))
    assert abs(fit[0] - 10**12) <= 2 and (fit[1:] != truth[1:]).sum() <= 40
