"""The interval that 95 % of the noise stays in: exact quantiles of the discrete laws, by sums and closed forms.

It follows from the noise plan alone, which is public. An interval around a noisy number says where the number without noise
lies; what bounding took away before is beyond it.
"""

from __future__ import annotations

import functools
import math
import statistics
from fractions import Fraction
from typing import Any

import numpy as np

from headcount.mechanisms.accounting.calibration import NoisePlan

#: Standard deviations of a normal law that hold 95 % of it on both sides.
DEVIATIONS = statistics.NormalDist().inv_cdf(0.975)

_BEYOND = 0.05
# Above this scale, a whole number of steps is so fine that the normal quantile, rounded up, is exact within one of them.
_SUMMED = 2**12
# Where the logarithms of a closed form are this close to a whole number, the next one is taken.
_SLACK = 1e-9


def half_width(plan: NoisePlan) -> int:
    """The smallest h, in units of the plan's grid, with P(|noise| <= h) >= 95 %."""
    if plan.kind == "gaussian":
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


def _at_least(real: float) -> int:
    return max(0, math.ceil(real - _SLACK))


def outward(low: Any, high: Any) -> tuple[np.ndarray, np.ndarray]:
    """The ends of intervals as whole numbers, rounded outward so that nothing is lost; none is below 0, as no count is."""
    ends = np.floor(np.asarray(low, np.float64)), np.ceil(np.asarray(high, np.float64))
    return np.maximum(ends[0], 0.0), np.maximum(ends[1], 0.0)
