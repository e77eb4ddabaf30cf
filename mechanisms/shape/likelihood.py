"""From the tally of noisy counts to the most likely shape: which counts explain it best under a known noise.

All of this is post-processing of noisy values, so that floats are in order here.

A cell of count c has the noisy value v with probability P[noise = v - c], so that the tally is a sample of a mixture, whose
weights are the shape. Its likelihood is concave in the weights, and expectation maximization climbs it: each count's cells
are multiplied by the sum over all noisy cells of their probability at this count over that in the mixture. Extrapolation
(Nesterov) of the logarithms makes thousands of steps a hundred; where the fit gets worse, it starts anew from where it is.

The start is flat, and early steps move what is sure: late ones raise the likelihood by little and fit the noise. So it stops
where 1.3 times as many steps gain less than a fixed bit (of the logarithm; a quarter at p = 0.6). The bit is smaller for little
noise, where there is nothing to be gained by stopping, and for much, where early steps say little. The l1 distance to the truth
was measured on seven distributions, against that of the unbiased estimate (`isotonic.cumulative_runs`) after a regression. It
is 0.96 to 1.09 times as much at p = 0.14, 0.89 to 1.04 at p = 0.37, 0.67 to 0.91 at p = 0.61 and 0.30 to 0.55 at p = 0.88.

The likelihood of one Laplace noise is convex in a cell's count between two noisy values that were seen, so that it is
enough to look at these, and at zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from headcount.mechanisms import tuning
from headcount.mechanisms.shape.isotonic import items_by_count
from headcount.mechanisms.shape.tallies import Tally

# Probabilities that do not matter: of a noise that brings a cell below zero so far that it is moved up, and of one whose
# share in a sum is left out.
_UNLIKELY = 1e-25
_NOTHING = 1e-30

# What stands for zero where a logarithm is taken, and the lowest logarithm of a number of cells: beyond, floats get slow.
_TINY = 1e-300
_LOWEST = -500.0


def likely_shape(noisy: Tally, p: float, most: int, noises: int = 1) -> Tally:
    """The shape, with at most `most` items, behind cells that had noise of parameter p `noises` times."""
    counts, cells = unmixed(noisy, p, noises)
    at_least = np.minimum(np.floor(np.cumsum(cells[::-1])[::-1] + 0.5), most).astype(np.int64)
    return items_by_count(counts[1:], at_least[1:])


def unmixed(noisy: Tally, p: float, noises: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Counts, ascending from zero on, and how many cells have each: not whole numbers, as many as there are in all."""
    p = max(p, _TINY)
    unit = max(1, int(-1 / (tuning.LIKELY_RESOLUTION * math.log(p))))
    lowest = int(math.log(_UNLIKELY) / math.log(p))
    values, p = np.maximum((noisy.values + unit // 2) // unit, -(lowest // unit)), p**unit
    points = np.unique(np.append(values, 0))
    seen = np.zeros(len(points))
    np.add.at(seen, np.searchsorted(points, values), noisy.cells)
    zero = int(np.searchsorted(points, 0))
    least_gain = tuning.LIKELY_LEAST_GAIN * p**3 * (1 - p) ** 2
    return points[zero:] * unit, climbed(seen, zero, blurring(points, p, noises), least_gain)


def climbed(seen: np.ndarray, zero: int, blur: Callable[[np.ndarray], np.ndarray], least_gain: float) -> np.ndarray:
    """The cells at each point from the one numbered `zero` on that explain those seen at each point after the noise."""
    total, some, below = float(seen.sum()), np.flatnonzero(seen), np.zeros(zero)
    if not total:
        return seen[zero:]
    logs = before = np.full(len(seen) - zero, math.log(total / (len(seen) - zero)))
    best = checked = -math.inf
    streak, due = 0, tuning.LIKELY_FIRST_CHECK
    for step in range(1, tuning.LIKELY_MOST_STEPS + 1):
        streak += 1
        ahead = np.maximum(logs + (streak - 1) / (streak + 2) * (logs - before), _LOWEST)
        cells = np.exp(ahead)
        mixed = np.maximum(blur(np.append(below, cells)), _TINY)
        fit = float(seen[some] @ np.log(mixed[some] * (total / cells.sum()) / seen[some]))
        if fit < best and streak > 1:
            streak, before, best = 0, logs, -math.inf
            continue
        best = fit
        before, logs = logs, ahead + np.log(np.maximum(blur(seen / mixed)[zero:], _TINY))
        if step >= due:
            if fit - checked < least_gain:
                break
            checked, due = fit, math.ceil(step * tuning.LIKELY_GROWTH)
    return np.exp(logs)


def blurring(points: np.ndarray, p: float, noises: int) -> Callable[[np.ndarray], np.ndarray]:
    """What takes numbers x at the points to the sum of x[j] * P[noise = points[i] - points[j]] at each of them.

    By doubling: once each point has the sums over the w points up to it, those of the point that is w before it make them
    sums over 2w, until all further points are too far. The sums are of x * p^gap * binomial(gap, k), for the law of the
    noise (`law_of_noise`); that of a sum of two gaps is the sum of products of both (Vandermonde). The same is done from
    the other end, and what is at the point itself counts once.
    """
    law = law_of_noise(p, noises)
    passes: list[tuple[int, np.ndarray]] = []
    width = 1
    while width < len(points):
        gaps = (points[width:] - points[:-width]).astype(np.float64)
        factors = np.empty((noises, len(gaps)))
        factors[0] = p**gaps
        for k in range(1, noises):
            factors[k] = factors[k - 1] * np.maximum(gaps - k + 1, 0) / k
        factors[factors < _NOTHING] = 0
        near = np.flatnonzero(factors.any(axis=0))
        if len(near) == 0:
            break
        passes.append((width, factors[:, : near[-1] + 1]))  # points are crowded near zero
        width *= 2

    def blur(x: np.ndarray) -> np.ndarray:
        up, down = np.zeros((2, noises, len(x)))
        up[0] = down[0] = x
        for width, factors in passes:
            pairs = factors.shape[1]
            for k in range(noises - 1, -1, -1):
                up[k, width : width + pairs] += sum(factors[k - j] * up[j, :pairs] for j in range(k + 1))
                down[k, :pairs] += sum(factors[k - j] * down[j, width : width + pairs] for j in range(k + 1))
        return np.asarray(law @ (up + down) - law[0] * x)

    return blur


def law_of_noise(p: float, noises: int) -> np.ndarray:
    """Weights w such that the sum of this number of noises is d with probability p^|d| * sum_k w[k] * binomial(|d|, k).

    It is the difference of two sums of that number of geometric numbers. With t noises, w[k] is (1 - p)^2t times the sum over j
    of binomial(j + t - 1, t - 1) binomial(j + t - 1, t - 1 - k) p^2j. Here the product of both is a sum of binomials.
    """
    top, weights = noises - 1, np.zeros(noises)
    for k in range(noises):
        for i in range(noises - k):
            degree = 2 * top - k - i
            times = math.comb(degree, i) * math.comb(degree - i, top - i)  # of binomial(j + top, degree)
            weights[k] += times * p ** (2 * (degree - top)) / (1 - p * p) ** (degree + 1)
    return weights * (1 - p) ** (2 * noises)
