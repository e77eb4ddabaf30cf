"""Intervals of sums of noisy cells, and of shares of them: all of it is made of released numbers.

A sum of m independent draws of Laplace noise is not normal: its excess kurtosis is 3 / m. Its 97.5 % quantile is taken by the
expansion of Cornish and Fisher to that term, which is within 2 % of the exact one also for m = 1, where it is too wide.

The interval of a share is Fieller's: all p for which (numerator - p * denominator) is within 95 % of its noise of 0. It holds
what the two have in common, such as the cells that both are sums of. It is cut to [0, 1]; where the denominator is not clearly
above 0, it is all of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from headcount.mechanisms.calibration.intervals import DEVIATIONS


class Part(NamedTuple):
    """Independent noise, of this variance and excess kurtosis, that is in the numerator and in the denominator, or in one."""

    in_numerator: int
    in_denominator: int
    variance: np.ndarray | float
    kurtosis: np.ndarray | float


def deviations(kurtosis: Any) -> Any:
    """The standard deviations that hold 95 % of noise of this excess kurtosis on both sides."""
    z = DEVIATIONS
    return z + (z**3 - 3 * z) / 24 * kurtosis


def shares(
    numerator: np.ndarray, denominator: np.ndarray, parts: Sequence[Part]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shares of noisy numbers, and the ends of their 95 % intervals, all within [0, 1]; a share of nothing is NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(denominator > 0, np.clip(numerator / denominator, 0, 1), np.nan)
    at = np.where(np.isnan(share), 0.5, share)
    numerator = np.clip(
        numerator, 0, np.maximum(denominator, 0)
    )  # what noise has led out of that is taken for the nearest
    weights = [each.in_numerator - at * each.in_denominator for each in parts]
    variance = sum(w**2 * each.variance for w, each in zip(weights, parts, strict=True))
    fourth = sum(w**4 * each.variance**2 * each.kurtosis for w, each in zip(weights, parts, strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        z2 = deviations(np.where(variance > 0, fourth / variance**2, 0.0)) ** 2
    top, both, below = (
        sum(each.variance * first * second for each, first, second in products)
        for products in (
            [(each, each.in_numerator, each.in_numerator) for each in parts],
            [(each, each.in_numerator, each.in_denominator) for each in parts],
            [(each, each.in_denominator, each.in_denominator) for each in parts],
        )
    )
    # (n - p d)^2 <= z^2 (var n - 2 p cov + p^2 var d), as a p^2 - 2 b p + c <= 0.
    a = denominator**2 - z2 * below
    b = numerator * denominator - z2 * both
    c = numerator**2 - z2 * top
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(np.maximum(b**2 - a * c, 0))
        low, high = (b - root) / a, (b + root) / a
    clear = (a > 0) & (denominator > 0)
    low, high = np.where(clear, low, 0.0), np.where(clear, high, 1.0)
    low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)
    return share, np.fmin(low, share), np.fmax(high, share)


def falling(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The rows of a table, each replaced by the nearest one that does not rise, by weighted least squares; none is below 0.

    By the formula of minima of maxima of means of isotonic regression, which is fast for few columns.
    """
    columns = values.shape[1]
    sums = np.concatenate([np.zeros((len(values), 1)), np.cumsum(values * weights, axis=1)], axis=1)
    added = np.append(0.0, np.cumsum(weights))
    made = np.empty_like(values)
    for column in range(columns):
        ends = np.arange(column + 1, columns + 1)
        best = np.full(len(values), np.inf)
        for first in range(column + 1):
            means = (sums[:, ends] - sums[:, [first]]) / (added[ends] - added[first])
            best = np.minimum(best, means.max(axis=1))
        made[:, column] = best
    return np.maximum(made, 0.0)
