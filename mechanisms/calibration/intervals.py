"""The interval that 95 % of the noise stays in: exact quantiles of the discrete distributions, by sums and closed forms.

It follows from the noise plan alone, which is public. An interval around a noisy number says where the number without noise
lies; what bounding took away before is beyond it.

Of items near a threshold the lucky ones are shown, those whose noise was high. So `shown_ends` has the numbers x for which
neither a noisy number of y or more, nor one of y or less, has a chance of 2.5 % or less *among those that reach the threshold*.
For every x it holds x with a chance of 95 % or more, given that x is shown. Proof: docs/proofs/calibration.md, "Intervals of
shown counts".
"""

from __future__ import annotations

import functools
import math
import statistics
from fractions import Fraction
from typing import Any

import numpy as np

from headcount.mechanisms.accounting.gaussian import log_normal_of
from headcount.mechanisms.calibration.noise_plan import NoisePlan

#: Standard deviations of a normal distribution that hold 95 % of it on both sides.
DEVIATIONS = statistics.NormalDist().inv_cdf(0.975)

_BEYOND = 0.05

#: The same of Laplace noise, and more than enough for sums of such draws, which are closer to normal.
LAPLACE_DEVIATIONS = -math.log(_BEYOND) / math.sqrt(2)

# Above this scale, a whole number of steps is so fine that the normal quantile, rounded up, is exact within one of them.
_SUMMED = 2**12
# Where the logarithms of a closed form are this close to a whole number, the next one is taken.
_SLACK = 1e-9

# From 1e-22 to 1e22, by which powers of ten are exact floats; 1 is in the middle.
_POWERS = np.array([float(f"1e{power}") for power in range(-22, 23)])
_ONE = 22


def half_range(stddev: float) -> float:
    """What stands behind +-, wherever it does: half of the range that holds 95 % of normal noise of this standard deviation."""
    return DEVIATIONS * stddev


def half_width(plan: NoisePlan) -> int:
    """The smallest h, in units of the plan's grid, with P(|noise| <= h) >= 95 %."""
    if plan.kind == "gaussian":
        if plan.shared is not None:  # the sum of two such draws, each of many steps, is one of their joint variance
            return gaussian_half_width(Fraction(math.ceil(math.hypot(plan.scale, plan.shared.scale))))
        return gaussian_half_width(plan.scale)
    scale = float(plan.scale)
    q = math.exp(-1 / scale)
    if plan.kind == "truncated-geometric" and plan.threshold is not None:
        # P(|Z| > h) = 2 (q**(h + 1) - last) / (1 + q - 2 last), where last = q**(most + 1).
        last = math.exp(-plan.threshold / scale)
        least = last + _BEYOND / 2 * (1 + q - 2 * last)
        return min(plan.threshold - 1, _at_least(-scale * math.log(least) - 1))
    # P(|Z| > h) = 2 q**(h + 1) / (1 + q).
    return _at_least(-scale * math.log(_BEYOND / 2 * (1 + q)) - 1)


@functools.lru_cache(maxsize=64)
def gaussian_half_width(scale: Fraction) -> int:
    """The same for discrete Gaussian noise of this scale on the integers; for a large one it may be larger by 1.

    The normal quantile, rounded up, always holds: P(Z > h) <= P(N >= h) for a normal N of this scale, as the sum of e^(-x^2 /
    2 scale^2) is at most its integral from h on, and over all integers at least sqrt(2 pi) scale (Poisson summation).
    """
    if scale > _SUMMED:
        return math.ceil(DEVIATIONS * float(scale))
    size = np.arange(math.ceil(12 * float(scale)) + 2)
    weight = np.exp(-0.5 * (size / float(scale)) ** 2)
    weight[1:] *= 2
    inside = np.cumsum(weight) / weight.sum()
    return int(np.searchsorted(inside, 1 - _BEYOND + 1e-12))


# How far above a threshold, in scales of the noise, it still matters, and the parts of a scale that are told apart there. An
# interval is that of the part's end which makes it wider.
_NEAR = {"gaussian": 8, "laplace": 20, "truncated-geometric": 20}
_PARTS = 16


def shown_ends(plan: NoisePlan, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the intervals of released counts, rounded outward, given that they reached the plan's threshold."""
    assert plan.threshold is not None
    unit = 2.0**-plan.grid
    # A count that was rounded to a whole one may have been any number in between.
    half = (1 << plan.grid) >> 1
    values = count.astype(np.int64) << plan.grid
    first, last = np.maximum(values - half, plan.threshold), values + max(half - 1, 0)
    width = half_width(plan)
    low, high = first - width, last + width
    part = max(1, math.floor(plan.scale / _PARTS))
    near = np.flatnonzero(first < plan.threshold + _NEAR[plan.kind] * float(plan.scale))
    for ends, side, parts in (
        (low, 0, (first[near] - plan.threshold) // part),
        (high, 1, -((plan.threshold - last[near]) // part)),
    ):
        found, place = np.unique(parts, return_inverse=True)
        at = [_shown_ends(plan, plan.threshold + int(each) * part)[side] for each in found]
        ends[near] = np.array(at, dtype=np.int64)[place]
    return outward(low * unit, np.maximum(high, last) * unit)


@functools.lru_cache(maxsize=4096)
def _shown_ends(plan: NoisePlan, value: int) -> tuple[int, int]:
    """`low` and `high` of one noisy number, in units of the grid, by bisection. What is released has one of a user at least."""
    assert plan.threshold is not None
    threshold = plan.threshold

    def above(x: int, least: int) -> float:
        """The chance of `least` or more at x, given that it is shown."""
        return math.exp(_log_tail(plan, least - x) - _log_tail(plan, threshold - x))

    failing, low = (1 << (plan.grid - plan.bound.grid)) - 1, value
    while low - failing > 1:
        middle = (low + failing) // 2
        low, failing = (middle, failing) if above(middle, value) > _BEYOND / 2 else (low, middle)
    high, failing = value, value + math.ceil(12 * plan.scale) + 1
    while failing - high > 1:
        middle = (high + failing) // 2
        high, failing = (middle, failing) if above(middle, value + 1) < 1 - _BEYOND / 2 else (high, middle)
    return low, high


def _log_tail(plan: NoisePlan, least: int) -> float:
    """ln P(noise >= least), in units of the grid; -inf where it is never so high."""
    scale = float(plan.scale)
    if plan.kind == "gaussian":  # a grid so fine that a step of it is the integral over its width
        return log_normal_of((0.5 - least) / scale)
    if least <= 0:
        return math.log1p(-math.exp(_log_tail(plan, 1 - least)))
    q = math.exp(-1 / scale)
    if plan.kind == "laplace":
        return -least / scale - math.log1p(q)
    most = plan.threshold - 1 if plan.threshold is not None else 0
    if least > most:
        return -math.inf
    rest = -math.expm1((least - most - 1) / scale)
    return -least / scale + math.log(rest) - math.log1p(q - 2 * math.exp(-(most + 1) / scale))


def _at_least(real: float) -> int:
    return max(0, math.ceil(real - _SLACK))


def outward(low: Any, high: Any) -> tuple[np.ndarray, np.ndarray]:
    """The ends of intervals as whole numbers, rounded outward so that nothing is lost; none is below 0, as no count is."""
    low, high = from_least(low, high)
    return np.floor(low), np.ceil(high)


def from_least(low: Any, high: Any, least: Any = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Intervals of numbers of which none is below `least`. Where noise has led the middle of one below it, the interval ends
    where that around the least does: it may only be longer than what it was, and never has a width of zero."""
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    return np.maximum(low, least), np.maximum(high, least + (high - low) / 2)


def as_noise_tells(noise: np.ndarray, *numbers: np.ndarray) -> list[np.ndarray]:
    """Numbers with noise of these standard deviations, with as many decimals as tell a thousandth of it; whole ones stay.

    What lies below says nothing. Where a number was fitted, its last digits depend on the processor, and the same release would
    have other bytes on another machine.
    """
    more = 3 - (np.searchsorted(_POWERS, noise, side="right") - 1 - _ONE)
    # A whole number by a power of ten that is an exact float: the float that a short decimal is read as.
    unit = _POWERS[_ONE + np.clip(more, 0, _ONE)]
    known = noise > 0
    return [np.where(known, np.rint(each * unit) / unit + 0.0, each) for each in numbers]
