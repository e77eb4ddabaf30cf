"""What noisy counts are most likely made of: empirical Bayes, from all noisy counts of a release together.

A noisy count alone says that its item has this many, give or take the noise. All of them together say which counts are common:
where most items have some fifty events and the noise is thirty, a noisy count of minus ten is an item of some forty, and not
of none. The nonparametric maximum likelihood (Kiefer and Wolfowitz) finds the distribution of counts that makes the noisy ones
most likely, and each item gets its posterior mean: in mean squared error nearly as good as if that distribution were known.

This is post-processing of what is released, and costs nothing. A posterior mean rises with the noisy count, so that items of
equal noisy counts get equal estimates and none changes places; and it is above 0, as counts are.
"""

from __future__ import annotations

import numpy as np

from headcount.mechanisms import tuning

_LEAST = 1e-300  # what a density is at least, so that nothing is divided by 0


def posterior_means(noisy: np.ndarray, noise: float | np.ndarray, laplace: bool = False) -> np.ndarray:
    """The means of counts, given their noisy counts with independent noise of this standard deviation: Gaussian, or Laplace.
    Where counts have noise of their own, counts by their noise are taken for alike.

    Beyond `tuning.FARTHEST_SHRUNK` standard deviations noise hardly matters, and counts stay as they are; up to there the two
    are blended.
    """
    counts = np.maximum(noisy, 0.0)
    end = tuning.FARTHEST_SHRUNK
    noise = np.broadcast_to(np.asarray(noise, np.float64), noisy.shape)
    near = noisy < end * noise
    if not near.any():
        return counts
    noise = noise[near]
    scaled = noisy[near] / noise
    step = tuning.SHRINKAGE_STEP
    bins = np.floor(scaled * (2 / step)).astype(np.int64)
    values, items = np.unique(bins, return_counts=True)
    centres = (values + 0.5) * (step / 2)
    points = np.arange(0.0, max(centres[-1], 1.0) + step, step)
    points[0] = step / 8  # a count is above 0
    density = _density(centres, points, laplace)
    prior = _most_likely(density, items)
    means = (density @ (prior * points)) / np.maximum(density @ prior, _LEAST)
    blend = np.clip((end - scaled) / (end / 3), 0.0, 1.0)
    counts[near] = noise * (blend * np.interp(scaled, centres, means) + (1 - blend) * np.maximum(scaled, 0.0))
    return counts


def _density(noisy: np.ndarray, points: np.ndarray, laplace: bool) -> np.ndarray:
    """How likely each noisy count is of each true one, in standard deviations, but for a factor."""
    distance = noisy[:, None] - points[None, :]
    return np.exp(-np.sqrt(2) * np.abs(distance)) if laplace else np.exp(-(distance**2) / 2)


def _most_likely(density: np.ndarray, items: np.ndarray) -> np.ndarray:
    """The distribution on the points that makes noisy counts of these numbers of items most likely, by EM from an even one.

    The likelihood has one maximum; stopping before it leaves the distribution smooth.
    """
    prior = np.full(density.shape[1], 1 / density.shape[1])
    for _ in range(tuning.SHRINKAGE_ROUNDS):
        prior = prior * (density.T @ (items / np.maximum(density @ prior, _LEAST))) / items.sum()
    return prior


def beyond_noise(value: np.ndarray, noise: float | np.ndarray) -> np.ndarray:
    """What a number has beyond 0, shrunk where it may be noise (James and Stein's rule for one number), and never below 0: a
    total without news must not raise the counts by the upper half of its noise."""
    sure = value > noise
    return np.where(sure, value - noise**2 / np.where(sure, value, 1.0), 0.0)
