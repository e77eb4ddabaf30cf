"""Numbers of cells with at least r from the tally of noisy counts, without bias; and the nearest that do not increase in r.

All of this is post-processing of noisy values, so that floats are in order here.

How many cells have a true count of at least r? A cell whose noisy value is v adds f(v - r). Here f is the step function
convolved with K = (-p, 1 + p^2, -p) / (1 - p)^2, once for each time that discrete Laplace noise of parameter p was added. K
undoes that noise, so that the sum over all cells is unbiased. f is 0 below -t and 1 from t on (t: how many noises), which
leaves few places where the sum changes. As a cell is below or at least r, the square of f's mean is its mean, and the sum of f
(f - 1) estimates the variance, without bias either.
"""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

import numpy as np

from headcount.mechanisms.shape.tallies import Tally

# A target's fraction is rounded to multiples of 2^-20, so that the regression works with whole numbers and is exact.
_GRID_BITS = 20

# Positions that are fitted one by one.
_FEW = 1 << 10


class Runs(NamedTuple):
    """For r from first[i] to last[i]: the estimated number of cells with a count of at least r, and its variance.

    Runs follow each other without a gap from 1 on; from the end of the last one on, the number is 0.
    """

    first: np.ndarray  # int64
    last: np.ndarray  # int64
    estimate: np.ndarray  # float64
    variance: np.ndarray  # float64, not negative

    @property
    def lengths(self) -> np.ndarray:
        """How many r each run has."""
        return self.last - self.first + 1

    @property
    def errors(self) -> np.ndarray:
        """By how much the estimates of each run are off in sum, in the mean: E|x| of a normal x is its stddev * sqrt(2/pi)."""
        return self.lengths * np.sqrt(2 / math.pi * self.variance)


def step_kernel(p: float, noises: int = 1) -> np.ndarray:
    """f(d) for d from -noises to noises - 1; it is 0 below and 1 above.

    f belongs to the noise: that of one noise on values with two has a bias of 0.38 a cell.
    """
    kernel = np.ones(1)
    for _ in range(noises):
        kernel = np.convolve(kernel, np.array([-p, 1 + p * p, -p]) / (1 - p) ** 2)
    return np.cumsum(kernel)[:-1]


def cumulative_runs(noisy: Tally, p: float, noises: int = 1) -> Runs:
    """The unbiased numbers of cells with at least r, of cells with this number of noises of parameter p on them."""
    kernel = step_kernel(p, noises)
    shifts = np.arange(-noises, noises)
    values, cells = noisy
    if len(values) == 0:
        return Runs(*(np.zeros(0, dtype=kind) for kind in (np.int64, np.int64, np.float64, np.float64)))
    top = max(int(values[-1]) + noises, 1)
    critical = np.unique((values[:, None] - shifts).ravel())
    critical = critical[(critical >= 1) & (critical <= top)]
    before = np.append(0, critical)
    gaps = np.flatnonzero(np.diff(before) > 1)
    first = np.concatenate([critical, before[gaps] + 1])
    last = np.concatenate([critical, critical[gaps] - 1])
    if len(critical) == 0 or critical[-1] < top:
        first, last = np.append(first, before[-1] + 1), np.append(last, top)
    order = np.argsort(first)
    first, last = first[order], last[order]
    above = np.append(np.cumsum(cells[::-1])[::-1], 0)  # cells with at least values[i]
    estimate = above[np.searchsorted(values, first + noises)].astype(np.float64)
    variance = np.zeros(len(first))
    for shift, f in zip(shifts.tolist(), kernel.tolist(), strict=True):
        place = np.minimum(np.searchsorted(values, first + shift), len(values) - 1)
        here = np.where(values[place] == first + shift, cells[place], 0)
        estimate += f * here
        variance += f * (f - 1) * here
    return Runs(first, last, estimate, np.maximum(variance, 0.0))


def nearest_shape(noisy: Tally, p: float, most: int, noises: int = 1) -> tuple[Tally, Runs]:
    """The shape of at most `most` items that is nearest to the unbiased numbers: what Algorithm 1 of the paper gives."""
    runs = cumulative_runs(noisy, p, noises)
    return items_by_count(runs.last, antitonic_l1(runs.estimate, runs.lengths, most)), runs


def antitonic_l1(estimate: np.ndarray, lengths: np.ndarray, most: int) -> np.ndarray:
    """The non-increasing integers y in 0 .. most with the least sum of lengths[i] * |y[i] - estimate[i]|.

    Between two integers the distance to a target is linear, so that on integers it is the weighted sum of the distances to
    both neighbours: each target becomes two kinks. From the end on, the least cost of what follows is a convex function of
    the value here, with its kinks in a heap; its increasing part is cut off, since what follows may be lower.
    """
    targets = np.clip(estimate, 0, most)
    floors = np.floor(targets)
    parts = np.rint((targets - floors) * (1 << _GRID_BITS)).astype(np.int64).tolist()
    result = np.zeros(len(targets), dtype=np.int64)
    heap: list[list[int]] = []  # of [-place, change of slope]
    bounds, weights = floors.astype(np.int64).tolist(), lengths.tolist()
    for i in range(len(parts) - 1, -1, -1):
        part, weight = parts[i], weights[i] << _GRID_BITS
        for place, share in ((bounds[i], (1 << _GRID_BITS) - part), (bounds[i] + 1, part)):
            if share:
                heapq.heappush(heap, [-place, 2 * weights[i] * share])
        while weight:
            if heap[0][1] > weight:
                heap[0][1] -= weight
                break
            weight -= heapq.heappop(heap)[1]
        result[i] = -heap[0][0]
    return np.minimum.accumulate(result)


def items_by_count(last: np.ndarray, at_least: np.ndarray) -> Tally:
    """How many items have which count, from how many have at least r, for runs of r that end there (see `Runs`)."""
    drop = at_least - np.append(at_least[1:], 0)
    some = np.flatnonzero(drop)
    return Tally(last[some], drop[some])


def clip_to_positions(shape: Tally, noisy: Tally, width: int) -> Tally:
    """Each position's count brought to within `width` of the noisy value that has the same rank, and not below 0.

    Both are step functions of the rank. If no noise exceeds the width, then the interval holds the true count of that rank,
    and a number that is brought into it gets nearer to the truth.
    """
    ranks = [np.cumsum(tally.cells[::-1]) for tally in (shape, noisy)]
    size = max(int(ranks[0][-1]) if len(ranks[0]) else 0, int(ranks[1][-1]) if len(ranks[1]) else 0)
    ends = np.unique(np.concatenate([*ranks, [size]]))
    ends = ends[ends > 0]
    counts, values = (
        np.append(tally.values[::-1], 0)[np.searchsorted(rank, ends)]
        for tally, rank in zip((shape, noisy), ranks, strict=True)
    )
    clipped = np.clip(counts, np.maximum(values - width, 0), np.maximum(values + width, 0))
    held = np.diff(ends, prepend=0)
    some = np.flatnonzero(clipped)
    kept, start = np.unique(clipped[some], return_inverse=True)
    cells = np.zeros(len(kept), dtype=np.int64)
    np.add.at(cells, start, held[some])
    return Tally(kept, cells)


def noise_width(p: float, cells: int, failure: float) -> int:
    """The least w that the noise of parameter p of all `cells` stays within, but for a probability `failure`."""
    return max(0, math.ceil(math.log(2 * cells / ((1 + p) * failure)) / math.log(1 / p))) if p > 0 else 0


def sorted_fit(noisy: np.ndarray) -> np.ndarray:
    """The non-increasing integers, not below zero, with the least sum of distances to the given ones.

    A distance is the number of thresholds that are between two numbers. So for each threshold t by itself, the positions with
    more than t are the first ones, up to where fewest values are on the wrong side; of several cuts that are as good, the
    middle one is taken. Whichever it is, there are best cuts for higher thresholds before it and for lower ones behind it, so
    that it splits the positions, and the thresholds, into two problems.
    """
    fit = np.zeros(len(noisy), dtype=np.int64)
    # Each part: its positions from, to; the least and the largest number that they can have.
    parts = [(0, len(noisy), 0, max(0, int(noisy.max(initial=0))))]
    while parts:
        start, stop, low, high = parts.pop()
        values = noisy[start:stop]
        if low == high or start == stop:
            fit[start:stop] = low
        elif stop - start <= _FEW:
            fit[start:stop] = low + antitonic_l1(values - low, np.ones(len(values), dtype=np.int64), high - low)
        else:
            usual = int(np.median(values[:: 1 + len(values) // _FEW]))
            threshold = min(max(usual, low), high - 1)
            wrong = np.append(0, np.cumsum(np.where(values > threshold, -1, 1)))
            best = np.flatnonzero(wrong == wrong.min())
            cut = start + int(best[len(best) // 2])
            parts += [(start, cut, threshold + 1, high), (cut, stop, low, threshold)]
    return fit
