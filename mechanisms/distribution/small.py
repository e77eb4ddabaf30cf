"""Small success probabilities from who has a symbol at all (the paper, Algorithm 4, corrected).

If a symbol has probability p, a user with m samples does not have it with probability (1 - p)^m. So from a noisy number b of
those who have it, out of s users, 1 - (1 - b/s)^(1/m) estimates p: post-processing. This is good where p is below some c/m,
since there hardly anyone has the symbol twice; above, the estimate is clamped to c/m, and says only that p is not small.

What differs from the paper: it adds noise of scale 1/epsilon to the *mean*, which moves by 1/s at most (at epsilon = 0.1 the
result is 0 or 1 in 95 of 100 cases). It clamps at a mean of 0, where p is 1. And it spends a budget on each symbol, where here
one vector gets noise for what a user can do to all of it: one more, or one less, for K symbols. The number of those who do
*not* have a symbol is never used: under ADD_REMOVE it would follow the number of users, for all symbols.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np

from headcount.mechanisms import tuning


def small_probabilities(holders: np.ndarray, samples: int, users: int) -> np.ndarray:
    """Estimates of p from (noisy) numbers of users who have each symbol, in 0 .. LARGEST_SMALL / m."""
    least = max(0.0, 1 - tuning.LARGEST_SMALL / samples) ** samples
    without = np.clip(1 - np.asarray(holders) / users, least, 1.0)
    return -np.expm1(np.log(np.maximum(without, 1e-300)) / samples) * (without < 1)


@functools.cache
def large_share(samples: int) -> float:
    """The share of users who have a symbol of p = LEAST_LARGE / m, or infinity: exact numbers, as all workers must agree."""
    if samples <= tuning.LEAST_LARGE:
        return math.inf
    return float(1 - (1 - Fraction(tuning.LEAST_LARGE, samples)) ** samples)


def holders_slope(p: np.ndarray, samples: int) -> np.ndarray:
    """How fast the share of users who have a symbol rises with p, up to LARGEST_SMALL / m."""
    limited = np.minimum(p, min(1.0, tuning.LARGEST_SMALL / samples) * (1 - 1e-9))
    return samples * (1 - limited) ** (samples - 1)
