"""A smaller population that looks the same to a mechanism: with fewer users, and a larger budget.

With a k-th part of the users, sums are a k-th. So noise and thresholds must be a k-th as well: Laplace noise is at k times
epsilon, and Gaussian noise at that epsilon with a delta that is found here. A threshold is some noise and a user's own weight.
The weight stays what it is, while the larger delta lowers the noise: by luck about as much as that asks for, up to k = 16.
"""

from __future__ import annotations

import math

from headcount.mechanisms.accounting.gaussian import gaussian_sigma

_LARGEST_DELTA = 0.01


def similar_budget(epsilon: float, delta: float, smaller: float) -> tuple[float, float]:
    """The epsilon and delta for a population that is so many times smaller."""
    if smaller <= 1:
        return epsilon, delta
    if delta == 0:
        return smaller * epsilon, 0.0
    sigma = gaussian_sigma(epsilon, delta) / smaller
    low, high = math.log(delta), math.log(_LARGEST_DELTA)
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_sigma(smaller * epsilon, math.exp(middle)) > sigma else (low, middle)
    return smaller * epsilon, math.exp(low)
