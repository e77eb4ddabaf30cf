"""Counts behind noisy ones, by empirical Bayes: closer than the noisy ones, in their order, and never below 0."""

from __future__ import annotations

import numpy as np
import pytest

from headcount.mechanisms.histogram.deconvolution import beyond_noise, posterior_means


def noise_of(size: int, laplace: bool, seed: int = 1) -> np.ndarray:
    """Noise of a standard deviation of 1."""
    random = np.random.default_rng(seed)
    return random.laplace(0, 0.5**0.5, size) if laplace else random.normal(0, 1, size)


@pytest.mark.parametrize("laplace", [False, True])
def test_where_all_items_are_alike_nearly_all_noise_is_gone(laplace):
    noisy = 100 + 30 * noise_of(2000, laplace)
    assert np.abs(posterior_means(noisy, 30.0, laplace) - 100).mean() < 4


@pytest.mark.parametrize("laplace", [False, True])
def test_where_they_differ_it_is_never_worse_than_the_noisy_counts_and_keeps_the_sum(laplace):
    truth = np.concatenate([3000 / np.arange(1, 301), np.full(700, 40.0)])
    noisy = truth + 20 * noise_of(1000, laplace)
    found = posterior_means(noisy, 20.0, laplace)
    assert np.abs(found - truth).sum() < 0.7 * np.abs(np.maximum(noisy, 0) - truth).sum()
    assert found.sum() == pytest.approx(noisy.sum(), rel=0.02)


def test_the_order_stays_and_all_are_above_0():
    noisy = np.sort(50 * noise_of(500, False) + np.repeat([0.0, 200.0], 250))
    found = posterior_means(noisy, 50.0)
    assert (np.diff(found) >= 0).all() and (found > 0).all()


def test_counts_far_above_the_noise_and_single_ones_stay():
    noisy = np.array([90.0, 1000.0, 50_000.0])
    assert posterior_means(noisy, 1.0)[1:] == pytest.approx(noisy[1:])
    assert posterior_means(np.array([300.0]), 10.0) == pytest.approx([300], abs=3)
    assert posterior_means(np.array([-3.0, 700.0]), 10.0)[1] == pytest.approx(700)
    assert len(posterior_means(np.zeros(0), 10.0)) == 0


def test_it_is_continuous_where_it_ends():
    noisy = np.linspace(30, 70, 4001) * 10.0
    assert np.abs(np.diff(posterior_means(noisy, 10.0))).max() < 1


def test_a_total_without_news_hardly_raises_the_counts():
    """James and Stein's rule on noise alone has a mean of 0.13 of it, by quadrature, where the upper half has 0.40."""
    z = np.linspace(-9, 9, 100_001)
    weight = np.exp(-(z**2) / 2)
    assert np.dot(weight, beyond_noise(z, 1.0)) / weight.sum() == pytest.approx(0.130, abs=0.001)
    assert beyond_noise(np.array([100.0]), 1.0) == pytest.approx([99.99])
    assert (beyond_noise(np.linspace(-50, 1, 99), 1.0) == 0).all()
    assert (np.diff(beyond_noise(np.linspace(-5, 50, 999), 1.0)) >= 0).all()
