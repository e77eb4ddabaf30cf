"""The Gaussian mechanism by itself: its exact divergence (Balle and Wang 2018), and the least noise for a promise.

This is continuous noise. What is drawn is discrete, on a grid of at most sigma / 1024: `thresholds` says which share of delta
is kept back for the difference.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from headcount.mechanisms.errors import ParameterError

#: Gaussian noise is sampled on a grid of at most sigma / 2^10: on a coarse one the continuous formulas understate delta (by up
#: to 2 on the integers).
STEPS = 2**10

# Beyond this the two tails of the Gaussian formula cancel to less than the digits that the shares above need.
LARGEST_GAUSSIAN_SIGMA = 1e8

# Below this, normal probabilities come close to leaving the floats.
_SERIES_BELOW = -30


@functools.lru_cache(maxsize=16)
def gaussian_sigma(epsilon: float, delta: float) -> float:
    """The least standard deviation of Gaussian noise that is (epsilon, delta) private at l2 distance 1.

    By bisection, to a relative 1e-12, always from the private side. (dp-accounting's own calibration agrees, as a
    test shows, but importing it would double the time in which a job starts.)
    """
    if delta < 1e-300:
        raise ParameterError(f"Gaussian noise needs a delta above 1e-300, got {delta}: raise it, or take Laplace noise")
    low, high = 0.0, 1.0
    while gaussian_delta(epsilon, 1.0, high) > delta:
        low, high = high, 2 * high
        if high > LARGEST_GAUSSIAN_SIGMA:
            raise ParameterError(
                f"Gaussian noise cannot be calibrated for epsilon = {epsilon} with delta = {delta}: raise one of "
                "them, or take Laplace noise"
            )
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(epsilon, 1.0, middle) > delta else (low, middle)
    return high * (1 + 1e-9)  # beyond the rounding of the formula itself


def gaussian_delta(epsilon: Any, distance: Any, sigma: float) -> np.ndarray:
    """The divergence at `epsilon` (of any sign) of Gaussian noise at l2 `distance`, elementwise.

    Phi(s/2 - epsilon/s) - e^epsilon Phi(-s/2 - epsilon/s) with s = distance/sigma (Balle and Wang 2018).
    """
    epsilon, ratio = np.broadcast_arrays(np.asarray(epsilon, float), np.asarray(distance, float) / sigma)
    apart = ratio > 0
    safe = np.where(apart, ratio, 1.0)
    log_first = log_normal(safe / 2 - epsilon / safe)
    log_second = epsilon + log_normal(-safe / 2 - epsilon / safe)
    noisy = np.exp(log_first) * -np.expm1(np.minimum(log_second - log_first, 0.0))
    return np.where(apart, noisy, -np.expm1(np.minimum(epsilon, 0.0)))


def log_normal_of(x: float) -> float:
    """ln P[N(0, 1) <= x]. Far below, where the probability leaves the floats, by its asymptotic series (error 1e-9)."""
    if x > _SERIES_BELOW:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    square = x * x
    return (
        -square / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log1p(-1 / square + 3 / square**2 - 15 / square**3)
    )


def log_normal(x: Any) -> np.ndarray:
    """The same elementwise, to the last bit. (scipy.special would take longer to import than all of these take to compute.)"""
    x = np.asarray(x, float)
    if not (x > _SERIES_BELOW).all():
        return np.fromiter(map(log_normal_of, x.ravel().tolist()), float, x.size).reshape(x.shape)
    chances = _each(math.erfc, -x / math.sqrt(2)) / 2
    return _each(math.log, chances).reshape(x.shape)


def _each(function: Callable[[float], float], x: np.ndarray) -> np.ndarray:
    return np.fromiter(map(function, x.ravel().tolist()), float, x.size)


@functools.lru_cache(maxsize=16)
def gaussian_epsilon(mu: float, delta: float) -> float:
    """An epsilon that Gaussian noise of distance `mu` to its standard deviation keeps with `delta`, to a relative 1e-9. It is
    above 0 also where 0 would do."""
    low, high = 0.0, 1.0
    while gaussian_delta(high, mu, 1.0) > delta:
        low, high = high, 2 * high
    while high - low > max(1e-9 * high, 1e-12):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(middle, mu, 1.0) > delta else (low, middle)
    return high


def whole_sigma(sigma: float, grid: int) -> tuple[int, Fraction]:
    """A grid, the given one or finer, on which `sigma` is so large that formulas of the continuous Gaussian hold; and sigma,
    rounded up, in its units."""
    while sigma * 2**grid < STEPS:
        grid += 1
    return grid, Fraction(math.ceil(sigma * 2**grid))
