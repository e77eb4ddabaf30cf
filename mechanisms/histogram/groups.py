"""Estimates from noisy counts of what a bound has left, and noisy totals of what there was: groups, and the scale of each.

Items are sorted by their noisy counts and cut into groups. The total of a group, which a bound has hardly touched, says by
how much the counts of its items are too low. From all groups together follows one scale, a smooth function of size. All of this
is post-processing of what is released: it costs nothing, and any function would do.

What it assumes: events that the bound has left out spread over items of similar size like those that it has kept. Items differ
in that, and intervals have a term for it.

The largest items need no such assumption. A user counts at most c on each, and so has a norm of at most c times the root of
their number on them: far less than all of its items may have together. So they are groups of their own, whose totals count
several times in a user's vector, and have less noise than the others by that factor. What users have beyond the bound of the
totals is in none of these numbers.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from headcount.mechanisms import tuning
from headcount.mechanisms.calibration.intervals import DEVIATIONS, from_least
from headcount.mechanisms.histogram.deconvolution import beyond_noise, posterior_means
from headcount.mechanisms.histogram.series import Shrunk


def largest_apart(
    counts: np.ndarray, noise: float, total_noise: float, bound: int, order: int, cap: int
) -> tuple[int, int]:
    """How many of the largest items are to be groups of their own, where a user counts at most `cap` on each, and how often
    their totals count in a user's vector of norm `bound`: l2 for `order` 2, or l1.

    All that a user may have on these items takes half of the bound to the power of the order, so that the other half is left
    for the other groups. As many are taken as stand out of their noise, and whose totals then say more of them than counts that
    are off by what the bound left out.
    """
    largest = -np.sort(-counts)[: tuning.MOST_GROUPS]
    largest = largest[largest >= tuning.GROUP_BY_OWN_NOISE * noise]
    for number in range(len(largest), 0, -1):
        times = math.isqrt(bound**2 // (2 * number * cap**2)) if order == 2 else bound // (2 * number * cap)
        if times > 1 and tuning.SPREAD_OF_LEFT_OUT * largest[number - 1] >= total_noise / times:
            return number, times
    return 0, 1


def cut_groups(
    counts: np.ndarray,
    noise: float,
    total_noise: float,
    shared: float = 0.0,
    apart: int = 0,
    to_join: bool = False,
) -> np.ndarray:
    """The group of each item, from 0 for the largest counts; `counts` are in canonical order of the items, which breaks ties.

    `noise` is the standard deviation of a count, of which a draw of `shared` is the same in all, and `total_noise` that of a
    total. The largest items, `apart` of them, stand apart, each as a group. Smaller groups do for whoever is `to_join` them.
    """
    order = np.argsort(-counts, kind="stable")
    group = np.zeros(len(counts), dtype=np.int64)
    group[order[:apart]] = np.arange(apart)
    others = order[apart:]
    least = tuning.GROUP_BY_TOTAL_NOISE * total_noise / (2 if to_join else 1)
    group[others] = apart + _runs(counts[others], noise, least, shared)
    return group


def _runs(counts: np.ndarray, noise: float, least: float, shared: float) -> np.ndarray:
    """Falling counts, cut into runs that add up to `least` or more and stand out of their noise."""
    ends = np.cumsum(counts)
    least = max(least, float(np.maximum(counts, 0).sum()) / tuning.MOST_GROUPS)
    starts, before = [0], 0.0
    size = np.arange(1, len(counts) + 1)
    own = tuning.GROUP_BY_OWN_NOISE * np.sqrt(size * (noise**2 + (size - 1) * shared**2))
    while starts[-1] < len(counts):
        start = starts[-1]
        sums = ends[start:] - before
        enough = sums >= np.maximum(least, own[: len(sums)])
        if not enough.any():
            break  # the last items are too few for a group of their own
        starts.append(start + int(np.argmax(enough)) + 1)
        before = float(ends[starts[-1] - 1])
    cuts = starts[1:-1]  # what is left over belongs to the last group
    return np.searchsorted(cuts, np.arange(len(counts)), side="right")


def join_alike(
    counts: np.ndarray, group: np.ndarray, totals: np.ndarray, total_noise: np.ndarray, apart: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The group of each item, the totals and their noise, where neighbouring groups of like scales are one, but for those
    apart.

    How much the bound has left out of a group is known when its total is, and not when it is cut: where much was, a small group
    tells its scale well. Groups are joined, the most alike first, until all neighbours differ by what is hardly noise.
    """
    sums = np.maximum(np.bincount(group, counts, minlength=len(totals)), 1e-9).tolist()
    of = [[each] for each in range(len(totals))]
    told, variance = totals.tolist(), (total_noise**2).tolist()
    while len(of) > apart + 1:
        scales = [total / kept for total, kept in zip(told, sums, strict=True)]
        squares = [each / kept**2 for each, kept in zip(variance, sums, strict=True)]
        apart_by = [
            abs(scales[first] - scales[first + 1]) / math.sqrt(squares[first] + squares[first + 1])
            for first in range(apart, len(of) - 1)
        ]
        least = min(apart_by)
        if least > tuning.GROUPS_ALIKE:
            break
        first = apart + apart_by.index(least)
        for part in (of, sums, told, variance):
            part[first] += part.pop(first + 1)
    place = np.zeros(len(totals), dtype=np.int64)
    for number, groups in enumerate(of):
        place[groups] = number
    return place[group], np.array(told), np.sqrt(np.array(variance))


@dataclasses.dataclass(frozen=True)
class Calibrated:
    """Estimates, the standard deviations of their noise, the ends of their intervals, and the share of the events that the
    bound had left out: None where the noise of all totals is too large to tell.

    `scale` is what each count was multiplied by; `below` and `above` are how far an interval goes for all but the noise of the
    counts themselves.
    """

    estimate: np.ndarray
    noise_stddev: np.ndarray
    low: np.ndarray
    high: np.ndarray
    left_out: float | None
    scale: np.ndarray
    below: np.ndarray
    above: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Scale:
    """By how much counts are too low, as a function of their size: between these sizes it is interpolated.

    `noise` is the standard deviation of the scale, and `below` and `above` are how far an interval of 95 % goes for it. They
    differ where a total tells little: it may be far above what the counts say, and not below.
    """

    size: np.ndarray
    scale: np.ndarray
    noise: np.ndarray
    below: np.ndarray
    above: np.ndarray

    def at(self, size: np.ndarray) -> tuple[np.ndarray, ...]:
        """Scale, noise, below and above for counts of these sizes."""
        place, known = np.log(np.maximum(size, 1e-9)), np.log(self.size)
        scale = np.exp(np.interp(place, known, np.log(self.scale)))
        return scale, *(np.interp(place, known, each) for each in (self.noise, self.below, self.above))


def _scale_by_size(sums: np.ndarray, size: np.ndarray, totals: np.ndarray, noise: np.ndarray, apart: int) -> _Scale:
    """The scale that totals of groups with these sums and numbers of items tell, where items apart are one group together.

    It is never below 1, as a total without news must not lower the counts, and rises with size or falls with it, whichever
    fits better: a wave is noise.
    """
    place = np.maximum(np.arange(len(totals)) - max(apart - 1, 0), 0)
    sums, items, totals, variance = (
        np.bincount(place, part.astype(np.float64)) for part in (sums, size, totals, noise**2)
    )
    mean = sums / np.maximum(items, 1)
    rank = np.argsort(mean, kind="stable")
    sums, totals, mean, noise = sums[rank], totals[rank], mean[rank], np.sqrt(variance[rank])
    told = (sums + beyond_noise(totals - sums, noise)) / sums
    scale = np.maximum(_monotone(told, (sums / np.maximum(noise, 1e-9)) ** 2), 1.0)
    news = told > 1
    most = DEVIATIONS * noise / sums
    exact = totals / sums
    below = np.where(news, np.maximum(scale - exact + most, 0.0), 0.0)
    return _Scale(mean, scale, np.where(news, noise / sums, 0.0), below, np.maximum(exact + most - scale, 0.0))


def _monotone(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The nearest values that only rise, or that only fall, whichever is nearer."""
    rising, falling = _rising(values, weight), -_rising(-values, weight)
    off = [float((weight * (each - values) ** 2).sum()) for each in (rising, falling)]
    return rising if off[0] < off[1] else falling


def _rising(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Isotonic regression: each is the largest over its predecessors of the least mean from there to a successor."""
    ends = [np.append(0.0, np.cumsum(part)) for part in (weight * values, weight)]
    sums, weights = (each[None, 1:] - each[:-1, None] for each in ends)  # from the row's on, to the column's
    after = np.tri(len(values), dtype=bool).T
    mean = np.where(after, sums / np.where(after, weights, 1.0), np.inf)
    least = np.minimum.accumulate(mean[:, ::-1], axis=1)[:, ::-1]
    return np.where(after, least, -np.inf).max(axis=0)


def calibrate(
    counts: np.ndarray,
    group: np.ndarray,
    totals: np.ndarray,
    noise: float | np.ndarray,
    total_noise: float | np.ndarray,
    *,
    own_ends: tuple[np.ndarray, np.ndarray] | None = None,
    laplace: bool = False,
    sampled: bool = False,
    apart: int = 0,
    least: int | np.ndarray = 0,
    shrunk: Shrunk | None = None,
) -> Calibrated:
    """The estimates of items with these noisy counts, groups and noisy totals of the groups, with the noise of each or of all.

    A count is what it most likely is without its noise (`deconvolution`), times a scale that is a smooth function of its size
    (`_scale_by_size`). The total of an item `apart` is a second look at it: its estimate is the mean of both, each weighted by
    how sure it is.

    An interval has the noise of the count, that of the scale, and what the assumption may be off: items of a size differ in
    what the bound left out of them, by a spread that grows with the share left out (`tuning.SPREAD_OF_LEFT_OUT`). Where second
    looks tell of a larger spread, it is that.

    `own_ends` are the ends of the intervals of the noisy counts where these had to reach a threshold, and are as they are.
    `sampled` says that counts are those of a sample of each user's items: they have the chance of the sample besides the noise,
    of a variance of at most their size. No estimate is below `least`. Counts that were `shrunk` towards their series are taken
    for what they are by that, and have one scale, so that a series keeps its shape.
    """
    total_noise = np.broadcast_to(np.asarray(total_noise, np.float64), totals.shape)
    if shrunk is not None:
        kept, counts, noise = shrunk.counts, shrunk.counts, shrunk.stddev
    elif own_ends is None:
        kept = posterior_means(counts, noise, laplace)
    else:
        kept = np.maximum(counts, 0.0)
    size = np.bincount(group, minlength=len(totals))
    sums = np.maximum(np.bincount(group, kept, minlength=len(totals)), 1e-9)
    together = apart if shrunk is None else len(totals)  # rows of a series have one scale
    scale, by_scale, below, above = _scale_by_size(sums, size, totals, total_noise, together).at(kept)
    estimate, centre = scale * kept, scale * counts
    of_sample = (
        scale * (scale - 1) * kept if sampled else np.zeros(len(kept))
    )  # 1 - 1 / scale of it is not in the sample
    variance = (scale * noise) ** 2 + (by_scale * kept) ** 2 + of_sample
    ends = (counts - DEVIATIONS * noise, counts + DEVIATIONS * noise) if own_ends is None else own_ends
    full = tuning.SPREAD_OF_LEFT_OUT * (1 if own_ends is None else tuning.SPREAD_OF_ONE_EVENT)
    full *= len(counts) > 1  # what was left out of the one item there is, its total tells
    spread = full * np.minimum(1.0, (1 - 1 / scale) / tuning.LEFT_OUT_OF_FULL_SPREAD) * estimate
    looks = np.flatnonzero(group < apart)
    look, look_noise = totals[group[looks]], total_noise[group[looks]]
    if apart:
        spread *= _more_spread(estimate[looks] - look, spread[looks], np.sqrt(variance[looks] + look_noise**2))
    beyond = DEVIATIONS**2 * (of_sample + spread**2)
    below, above = (np.sqrt((end * kept) ** 2 + beyond) for end in (below, above))
    reach = np.hypot(scale * (counts - ends[0]), below), np.hypot(scale * (ends[1] - counts), above)
    if apart:
        first = variance[looks] + spread[looks] ** 2
        weight = look_noise**2 / (first + look_noise**2)
        both = DEVIATIONS * np.sqrt(weight * first)
        for each in (estimate, centre):
            each[looks] = weight * each[looks] + (1 - weight) * look
        for end in reach:
            end[looks] = np.minimum(end[looks], both)
        variance[looks] = weight**2 * variance[looks] + ((1 - weight) * look_noise) ** 2
    estimate = np.maximum(np.rint(estimate), least)
    low, high = from_least(centre - reach[0], centre + reach[1], least)
    low, high = np.minimum(low, estimate), np.maximum(high, estimate)
    whole, unsure = float((scale * kept).sum()), math.sqrt(float((total_noise**2).sum()))
    left_out = 1 - float(kept.sum()) / whole if unsure < tuning.LEFT_OUT_UNKNOWN * whole else None
    return Calibrated(estimate, np.sqrt(variance), low, high, left_out, scale, below, above)


def _more_spread(off: np.ndarray, spread: np.ndarray, noise: np.ndarray) -> float:
    """By how much the spread is larger than it was taken to be, and never smaller, from second looks that were `off` by so much
    beside noise of these standard deviations."""
    known = spread**2 / np.maximum(spread**2 + noise**2, 1e-9)
    sure = known**2
    ratio = (off**2 - noise**2) / np.maximum(spread**2, 1e-9)
    prior = tuning.LOOKS_OF_SPREAD
    return math.sqrt(max(1.0, (prior + float((sure * ratio).sum())) / (prior + float(sure.sum()))))
