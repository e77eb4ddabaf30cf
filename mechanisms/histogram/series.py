"""Rows of keys partly public, shrunk towards their series: what a page has on one day is told by its other days, too.

Where some key columns are public, as days are, each named part has a whole series, of one noisy count for each public part. The
series of a part is its level times a shape, which all parts share; around it, each row differs by what is its own. Noise hides
that in one row, but not in all of them together: so each row is drawn to its series by as much as noise is larger than what
rows are found to differ by (Efron and Morris's rule). The rows of a part that comes each day then stay near its level, where
one distribution for all rows, most of which are near zero, would draw each of them there (`deconvolution`).

This is post-processing of what is released: it costs nothing. Where parts have shapes of their own, rows are nearer to the
truth without it. Which of the two is nearer is told by Stein's unbiased estimate of the risk, from the noisy counts alone.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from headcount.mechanisms.histogram.deconvolution import beyond_noise, posterior_means


@dataclasses.dataclass(frozen=True)
class Shrunk:
    """What noisy counts most likely are without their noise, and the standard deviation of what is left of it."""

    counts: np.ndarray
    stddev: np.ndarray


def towards_series(counts: np.ndarray, noise: float, part: np.ndarray, step: np.ndarray) -> Shrunk | None:
    """Noisy counts drawn towards their series, where that is nearer to the truth than `posterior_means` of all of them.

    Each pair of a private `part` and a public `step`, both numbered from 0, has one count, with noise of this standard
    deviation.
    """
    shape = (int(part.max(initial=-1)) + 1, int(step.max(initial=-1)) + 1)
    if min(shape) < 2:
        return None
    grid = np.empty(shape)
    grid[part, step] = counts
    fitted, unsure, own, own_noise = _fit(grid, noise)
    weight = own / (own + noise**2)
    drawn = fitted + weight[:, None] * (grid - fitted)
    # What an estimate follows its own noise by: its weight, and its share in one level for each part and in one shape for all.
    follows = shape[1] * weight + (1 - weight) * (1 + shape[1] / shape[0])
    alone = posterior_means(counts, noise)
    if _risk(drawn - grid, float(follows.sum()), noise) >= _risk(alone - counts, _slopes(counts, alone), noise):
        return None
    # How much rows differ is not known either: an interval takes it for more, by one standard deviation.
    more = ((own + own_noise) / (own + own_noise + noise**2))[:, None]
    left = np.sqrt(more * noise**2 + ((1 - more) * unsure) ** 2)
    return Shrunk(np.maximum(drawn, 0.0)[part, step], left[part, step])


def _fit(grid: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The series, level times shape, and its noise; and of each part the variance of its rows around that, and its noise."""
    parts, steps = grid.shape
    # The largest parts tell the shape, which is even where that may be noise.
    mean = grid.mean(axis=1)
    known = beyond_noise(mean, noise / np.sqrt(steps))
    if not known.any():
        known = np.ones(parts)
    shape = known @ grid
    shape = shape / max(float(shape.mean()), 1e-9) - 1
    shape_noise = noise * np.sqrt(float((known**2).sum())) / max(float(known @ mean), 1e-9)
    uneven = float((shape**2).mean())
    shape = 1 + shape * float(beyond_noise(np.array([uneven]), shape_noise**2)[0]) / max(uneven, 1e-9)
    level_noise = noise / np.sqrt(float((shape**2).sum()))
    level = posterior_means(grid @ shape / float((shape**2).sum()), level_noise)
    fitted = level[:, None] * shape
    # The square that rows of a part differ by beside noise: a share of its level, as all parts have, and what is its own.
    apart = ((grid - fitted) ** 2).sum(axis=1) / (steps - 1) - noise**2
    usual = level**2 * max(0.0, float(apart.sum()) / max(float((level**2).sum()), 1e-9))
    off = apart - usual
    own_noise = (noise**2 + usual) * np.sqrt(2 / (steps - 1))
    own = np.maximum(usual + np.sign(off) * beyond_noise(np.abs(off), own_noise), 0.0)
    return fitted, level_noise * shape[None, :], own, own_noise


def _risk(off: np.ndarray, follows: float, noise: float) -> float:
    """Stein's unbiased estimate of the sum of squares that estimates are off by, but for a number that all have in common: they
    are so much `off` from the noisy counts, and rise with these by so much in all."""
    return float((off**2).sum()) + 2 * noise**2 * follows


def _slopes(noisy: np.ndarray, means: np.ndarray) -> float:
    """The sum of the slopes of means, a function of noisy counts alone."""
    values, place, number = np.unique(noisy, return_index=True, return_counts=True)
    return float(number @ np.gradient(means[place], values)) if len(values) > 1 else 0.0
