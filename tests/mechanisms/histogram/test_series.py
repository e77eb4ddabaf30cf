"""Rows of series: nearer to the truth where series are alike, with intervals that hold it, and left alone where not."""

from __future__ import annotations

import numpy as np
import pytest

from headcount.mechanisms.histogram.deconvolution import posterior_means
from headcount.mechanisms.histogram.groups import calibrate
from headcount.mechanisms.histogram.series import towards_series

NOISE = 30.0
WEEK = 1 + 0.4 * np.sin(np.arange(28) * 2 * np.pi / 7)


Places = tuple[np.ndarray, np.ndarray]


def series_of(parts: int, steps: int, own: float, seed: int) -> tuple[np.ndarray, np.ndarray, Places]:
    """True counts of parts of falling levels by steps of one weekly shape, of which this share is each part's own; noisy ones,
    in an order of their own; and the part and step of each."""
    random = np.random.default_rng(seed)
    shapes = (1 - own) * WEEK[:steps] + own * steps * random.dirichlet(np.full(steps, 0.5), parts)
    truth = random.poisson(1000 / np.arange(1, parts + 1)[:, None] ** 0.7 * shapes).ravel()
    order = random.permutation(truth.size)
    part, step = np.divmod(order, steps)
    return truth[order], truth[order] + NOISE * random.standard_normal(truth.size), (part, step)


@pytest.mark.parametrize("parts, steps, less", [(300, 28, 0.3), (20, 28, 0.7), (300, 7, 0.6)])
def test_series_that_are_alike_are_nearer_to_the_truth_and_known_to_be(parts, steps, less):
    truth, noisy, places = series_of(parts, steps, 0.0, 1)
    made = towards_series(noisy, NOISE, *places)
    assert made is not None
    off, before = np.abs(made.counts - truth), np.abs(posterior_means(noisy, NOISE) - truth)
    assert (off**2).sum() < less * (before**2).sum()
    assert np.mean(off <= 1.96 * made.stddev) > 0.93 and (made.stddev <= NOISE).all() and (made.counts >= 0).all()


@pytest.mark.parametrize("parts, steps", [(300, 28), (20, 28), (300, 3)])
def test_series_that_have_nothing_in_common_are_left_alone(parts, steps):
    _, noisy, places = series_of(parts, steps, 1.0, 2)
    assert towards_series(noisy, NOISE, *places) is None


@pytest.mark.parametrize("own", np.linspace(0, 1, 6))
def test_it_is_never_much_worse_than_without(own):
    """What the risk says for one release has noise of its own: so at most a hundredth is lost, in each of five releases."""
    for seed in range(5):
        truth, noisy, places = series_of(60, 14, own, seed)
        made, before = towards_series(noisy, NOISE, *places), posterior_means(noisy, NOISE)
        found = before if made is None else made.counts
        assert ((found - truth) ** 2).sum() <= 1.01 * ((before - truth) ** 2).sum()


def test_what_is_a_parts_own_stays():
    """One part has its own shape, far above the noise: its rows are kept as they are, to a fifth of the noise."""
    truth, noisy, (part, step) = series_of(50, 28, 0.0, 3)
    own = 900.0 * (step % 2) * (part == 0)
    made = towards_series(noisy + own, NOISE, part, step)
    assert made is not None
    assert np.abs(made.counts - noisy - own)[part == 0].mean() < 0.2 * NOISE


def test_one_part_or_one_step_is_no_series_and_nothing_but_noise_is_no_error():
    assert towards_series(np.array([3.0, 9.0]), NOISE, np.array([0, 0]), np.array([0, 1])) is None
    assert towards_series(np.array([3.0, 9.0]), NOISE, np.array([0, 1]), np.array([0, 0])) is None
    assert towards_series(np.zeros(0), NOISE, np.zeros(0, int), np.zeros(0, int)) is None
    noise = NOISE * np.random.default_rng(4).standard_normal(40)
    made = towards_series(noise, NOISE, *np.divmod(np.arange(40), 4))
    assert made is None or np.abs(made.counts).max() < NOISE


def test_rows_of_series_have_one_scale():
    """Half of each count was left out, and the total says so: each row is doubled, and its interval with it."""
    truth, noisy, places = series_of(40, 14, 0.0, 5)
    made = towards_series(noisy, NOISE, *places)
    group = (np.argsort(np.argsort(-noisy)) >= 100).astype(int)
    totals = 2.0 * np.bincount(group, truth)
    both = calibrate(noisy, group, totals, NOISE, 10.0, shrunk=made)
    assert np.ptp(both.scale) == 0 and both.scale[0] == pytest.approx(2, abs=0.05)
    assert np.mean((both.low <= 2 * truth) & (2 * truth <= both.high)) > 0.95
    assert both.noise_stddev.min() < 1.5 * NOISE < NOISE * both.scale[0]
