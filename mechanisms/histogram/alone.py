"""Counts that stand alone: of a public list, with nearly everything of everybody in them, and no totals beside.

Post-processing of noisy counts: a count is what it most likely is without its noise (`deconvolution`), and its interval is that
of the noise. What the norm has left out of a few users is missing from both.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.counting.released import estimates_batch
from headcount.mechanisms.histogram.deconvolution import posterior_means

#: What a reader of such counts must know of them.
NEARLY_ALL = (
    "count has nearly everything of nearly every user: what a few have beyond the norm is missing from it, and low to high has "
    "the noise alone"
)


def stand_alone(
    items: Names, noisy: np.ndarray, noise: float, ends: tuple[np.ndarray, np.ndarray], laplace: bool, least: int
) -> pa.RecordBatch:
    """The released rows of noisy counts with noise of this standard deviation and the ends of its intervals; none is below
    `least`."""
    count = np.maximum(np.rint(posterior_means(noisy, noise, laplace)), least)
    low, high = np.maximum(np.minimum(ends[0], count), least), np.maximum(ends[1], count)
    return estimates_batch(items, count, np.full(len(count), noise), noisy, ends=(low, high))
