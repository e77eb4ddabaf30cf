"""Estimates from noisy counts of what a bound has left, and noisy totals of what there was: groups, and the scale of each.

Items are sorted by their noisy counts and cut into groups. The total of a group, which a bound has hardly touched, says by
how much the counts of its items are too low. All of this is post-processing of what is released: it costs nothing, and any
function would do.

What it assumes: events that the bound has left out spread over items of similar size like those that it has kept.

Where users are counted, the largest items need no such assumption. A user adds at most 1 to each, and so has a norm of at most
the root of their number on them: far less than all of its items may have together. So they are groups of their own, whose
totals count several times in a user's vector, and have so many times less noise than the others. What users have beyond the
bound of the totals is in none of these numbers.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from headcount.mechanisms import tuning
from headcount.mechanisms.calibration.intervals import DEVIATIONS


def largest_apart(counts: np.ndarray, noise: float, total_noise: float, bound: int, order: int) -> tuple[int, int]:
    """How many of the largest items are to be groups of their own where users are counted, and how often their totals count
    in a user's vector of norm `bound`: l2 for `order` 2, or l1.

    All that a user may have on these items takes half of the bound to the power of the order, so that the other half is left
    for the other groups. As many are taken as stand out of their noise, and of that which their totals then have.
    """
    largest = -np.sort(-counts)[: tuning.MOST_GROUPS]
    largest = largest[largest >= tuning.GROUP_BY_OWN_NOISE * noise]
    for number in range(len(largest), 0, -1):
        times = math.isqrt(bound**2 // (2 * number)) if order == 2 else bound // (2 * number)
        if times > 1 and largest[number - 1] >= tuning.GROUP_BY_TOTAL_NOISE * total_noise / times:
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
    total. So many of the largest items stand `apart`, each as a group. Smaller groups do for whoever is `to_join` them.
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
    """Estimates and the standard deviations of their noise, by how much each has multiplied the noise of its count, and the
    share of the events that the bound had left out.

    `below` and `above` are how far an interval of 95 % goes for the totals and the sample, without the noise of the counts.
    They differ where a total tells little: it may be far above what the counts say, and not below.
    """

    estimate: np.ndarray
    noise_stddev: np.ndarray
    slope: np.ndarray
    left_out: float
    below: np.ndarray
    above: np.ndarray

    def reach(self, below: np.ndarray | float, above: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """How far below and above an estimate its interval goes, with that of its own noisy count, before it was scaled."""
        return np.hypot(self.slope * below, self.below), np.hypot(self.slope * above, self.above)


def calibrate(
    counts: np.ndarray,
    group: np.ndarray,
    totals: np.ndarray,
    noise: float,
    total_noise: float | np.ndarray,
    sampled: bool = False,
    apart: int = 0,
) -> Calibrated:
    """The estimates of items with these noisy counts, groups and noisy totals of the groups, with the noise of each or of all.

    A group has the sum of its counts, and beyond that what its total tells (`_beyond`). Its scale, which is never below 1, is
    interpolated between the means of the groups on a logarithmic scale, where the items that stand `apart` are one group
    together, as the total of one is noisy. Then what the scales of its items have beyond 1 is fitted to the goal of the group.
    Where counts below 0 are cut, which raises the sum, the others are lowered to the goal again, but none by more than what may
    be its own noise: a large item among many that nobody has keeps its count.

    An interval holds what the noisy total of a group was made of. It goes up to that total and 1.96 standard deviations, also
    where the estimate has made nothing of it; and down to 1.96 standard deviations below, or to the counts if it had no news.

    `sampled` says that counts are those of a sample of each user's items: they have the chance of the sample besides the noise,
    of a variance of at most their size.
    """
    size = np.bincount(group, minlength=len(totals))
    sums = np.maximum(np.bincount(group, counts, minlength=len(totals)), 0.0)
    goal = sums + _beyond(totals - sums, total_noise)
    together = np.maximum(np.arange(len(totals)) - max(apart - 1, 0), 0)  # those apart are one place, the first
    placed = [np.bincount(together, part) for part in (sums, goal, size)]
    positive = np.where(placed[0] > 0, placed[0], 1.0)
    scale = np.where(placed[0] > 0, placed[1] / positive, 1.0)
    mean = positive / np.maximum(placed[2], 1)
    rank = np.argsort(mean, kind="stable")
    local = np.exp(np.interp(np.log(np.maximum(counts, 1e-9)), np.log(mean[rank]), np.log(scale[rank])))
    shown = np.maximum(counts, 0.0)
    have, more = (np.bincount(group, part, minlength=len(totals)) for part in (shown, (local - 1) * shown))
    fitting = np.where((goal > have) & (more > 0), (goal - have) / np.where(more > 0, more, 1.0), 0.0)
    slope = 1 + fitting[group] * (local - 1)
    reached = np.bincount(group, slope * shown, minlength=len(totals))
    again = np.where(reached > 0, goal / np.where(reached > 0, reached, 1.0), 1.0)[group]
    no_noise = _beyond(counts, noise) / np.where(shown > 0, shown, 1.0)
    slope *= np.where(again < 1, np.maximum(again, no_noise), again)
    estimate = slope * shown
    told = np.where(goal > sums, total_noise, 0.0)  # a total without news has no part in the estimates
    share = np.minimum(estimate / np.maximum(goal, 1e-9)[group], 1.0)
    steepest = np.maximum(slope, 1.0)
    of_sample = np.zeros(len(counts))
    if sampled:  # a part 1 - 1 / slope of the events is not in the sample
        of_sample = slope * np.maximum(slope - 1, 0.0) * np.maximum(counts, 0.0)
    variance = (steepest * noise) ** 2 + (share * told[group]) ** 2 + of_sample
    most = DEVIATIONS * total_noise
    ends = np.where(goal > sums, goal - totals + most, 0.0), np.maximum(totals + most - goal, 0.0)
    below, above = (np.sqrt((share * end[group]) ** 2 + DEVIATIONS**2 * of_sample) for end in ends)
    kept, all_ = float(sums.sum()), float(goal.sum())
    left_out = 1 - kept / all_ if all_ > 0 else 0.0
    return Calibrated(estimate, np.sqrt(variance), steepest, left_out, below, above)


def _beyond(difference: np.ndarray, noise: float | np.ndarray) -> np.ndarray:
    """What a number has beyond 0, shrunk where it may be noise (James and Stein's rule for one number), and never below 0: a
    total without news must not raise the counts by the upper half of its noise."""
    sure = difference > noise
    return np.where(sure, difference - noise**2 / np.where(sure, difference, 1.0), 0.0)
