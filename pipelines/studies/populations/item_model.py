"""How often items occur, told from noisy counts of those that a release shows, and of the ones just below its threshold.

The counts of all but the largest items follow a model: a number of items is expected for each unit of the logarithm of the
count,

    exp(level + slope x + curve x^2)        x: the logarithm of the count, from a count near the least

A power law has no curve. Noise is taken off by the model alone: it is the one under which the noisy counts, as they are shown
and no others, are likely. What is shown is either all that is above a threshold with its noise; or items are named apart from
their counts, those with about a least count or more. Where all items have about the same count, and the model of all of them
fits the counts far better (`_PEAK_WORTH`), there is none below.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

# Of the items shown, the largest are taken as they are: a twentieth, but twenty if there are that many, and at most a third.
_TOP, _LEAST_TOP, _MOST_TOP = 20, 20, 3

# What is to be expected before anything is known, with standard deviations: models of very different kind in mind, no data.
_SLOPE, _CURVE, _LEAST = (-1.2, 1.0), (0.0, 0.1), 1.5
_BLUR = (np.log(0.2), 0.3)  # of what an item needs, in counts
_PEAK_WORTH = 4.0

_POINTS, _GRID = 1000, 400
_BELOW = 4.0  # so far below the threshold the model is followed; beyond, by its slope there, of at most 1
_MOST_ITEMS = 1_000_000


@dataclasses.dataclass(frozen=True, eq=False)
class NoisyCounts:
    """Noisy counts of the items of a release, their noise, and the share of events that are in them.

    `threshold` is what noisy counts had to reach; None if items were named by something else.
    """

    counts: np.ndarray
    stddev: float
    kept: float
    threshold: float | None

    def scaled(self) -> np.ndarray:
        """Estimates of the true counts, the largest first; below 0 as well."""
        return np.sort(self.counts / self.kept)[::-1]

    def noise(self, count: np.ndarray) -> np.ndarray:
        """The standard deviation of an estimate for an item of this number of events: by noise, and by chance.

        Where counts had to reach the threshold themselves, they are those of a sample, and the model is of what is expected.
        Where items were named apart, it was by what they have, and the model is of that.
        """
        chance = count / self.kept if self.threshold is not None else np.zeros_like(count)
        return np.sqrt((self.stddev / self.kept) ** 2 + chance)


@dataclasses.dataclass(frozen=True, eq=False)
class ItemModel:
    """A model of counts below `cut`, with the counts above it as they are; `least` is about what an item needs to be shown."""

    largest: np.ndarray
    cut: float
    origin: float
    level: float
    slope: float
    curve: float
    least: float

    def density(self, logs: np.ndarray) -> np.ndarray:
        """The items that are expected for each unit of the logarithm of the count."""
        x = np.maximum(logs, self._end) - self.origin
        found = np.exp(np.clip(self.level + self.slope * x + self.curve * x * x, -60, 60))
        end = self._end - self.origin
        slope = min(0.0, max(-1.0, self.slope + 2 * self.curve * end))
        return found * np.exp(np.clip(slope * np.minimum(logs - self._end, 0.0), -60, 60))

    @property
    def _end(self) -> float:
        return float(np.log(max(1.0, self.least / _BELOW)))

    def counts(self) -> np.ndarray:
        """The expected count of each item, the largest first: the mean of each rank, down to 1."""
        logs = np.linspace(0.0, np.log(self.cut), 4000)
        density = self.density(logs)
        steps = (density[1:] + density[:-1]) / 2 * np.diff(logs)
        above = np.append(np.cumsum(steps[::-1])[::-1], 0.0)
        ranks = np.arange(min(int(above[0]), _MOST_ITEMS)) + 0.5
        return np.concatenate([self.largest, np.exp(np.interp(ranks, above[::-1], logs[::-1]))])


@dataclasses.dataclass(frozen=True, eq=False)
class FittedItems:
    """The likeliest model, and others about as likely as they should be, by the curvature of the likelihood."""

    best: ItemModel
    others: tuple[ItemModel, ...]


def low_items(counts: np.ndarray) -> np.ndarray:
    """The places of all but the largest counts, which are taken as they are."""
    return np.argsort(-counts, kind="stable")[_largest(len(counts)) :]


def _largest(number: int) -> int:
    return min(max(_LEAST_TOP, number // _TOP), number // _MOST_TOP)


def fit_items(noisy: NoisyCounts, random: np.random.Generator, others: int) -> FittedItems:
    """The model of the items that noisy counts tell of, with this number of `others`."""
    counts = noisy.scaled()
    top = _largest(len(counts))
    problem = _Problem(noisy, counts, top)
    named = problem.fit(peak=False)
    if problem.fit(peak=True)[1] < named[1] - _PEAK_WORTH:
        whole = _Problem(noisy, counts, 0)  # the largest of equals are those with the most noise
        model = whole.model(whole.fit(peak=True)[0], peak=True)
        return FittedItems(model, (model,) * others)
    drawn = _spread(problem.cost, named[0], random, others)
    return FittedItems(problem.model(named[0]), tuple(problem.model(each) for each in drawn))


class _Problem:
    """Minus the logarithm of the likelihood of the counts below the largest ones, on a grid of true counts."""

    def __init__(self, noisy: NoisyCounts, counts: np.ndarray, top: int) -> None:
        from scipy.special import ndtr

        self.largest, below = counts[:top], counts[top:]
        self.cut = float(max(self.largest[-1] if top else 2 * counts[0], 2.0))
        floor = float(noisy.noise(np.zeros(1))[0])
        typical = max(float(np.median(counts)), floor, 1.0)
        logs = np.linspace(np.log(max(typical / 30, 0.5)), np.log(2 * max(self.cut, typical)), _GRID)
        self.count, self.step = np.exp(logs), logs[1] - logs[0]
        noise = noisy.noise(self.count)
        points = below
        if len(below) > _POINTS:
            points = np.quantile(below, (np.arange(_POINTS) + 0.5) / _POINTS)
        self.weight = len(below) / max(1, len(points))
        self.kernel = np.exp(-(((points[:, None] - self.count) / noise) ** 2) / 2) / (noise * np.sqrt(2 * np.pi))
        self.seen = ndtr((self.cut - self.count) / noise)
        self.threshold = None if noisy.threshold is None else noisy.threshold / noisy.kept
        if self.threshold is not None:
            self.seen = np.maximum(self.seen - ndtr((self.threshold - self.count) / noise), 0.0)
        self.origin = float(np.log(max(float(np.quantile(below, 0.1)), floor, 1.0)))
        self.x, self.typical, self.number = logs - self.origin, np.log(typical) - self.origin, len(counts)

    def cost(self, at: np.ndarray, peak: bool = False) -> float:
        """Of a power law: level, slope, curve, the logarithms of the least count and of its blur. Of a peak: its level, place
        and the logarithm of its width."""
        from scipy.special import ndtr

        if peak:
            mass = np.exp(np.clip(at[0] - ((self.x - at[1]) / np.exp(at[2])) ** 2 / 2, -60, 60))
            prior = (at[2] + 1) ** 2 + at[1] ** 2
        else:
            mass = np.exp(np.clip(at[0] + at[1] * self.x + at[2] * self.x**2, -60, 60))
            prior = _off(at[1], *_SLOPE) + _off(at[2], *_CURVE)
            if self.threshold is None:
                mass = mass * ndtr((self.count / np.exp(at[3]) - 1) / np.exp(at[4]))
                prior += _off(at[3], self.origin, _LEAST) + _off(at[4], *_BLUR)
        mass = mass * self.step
        likely = np.log(self.kernel @ mass + 1e-300)
        return float((mass * self.seen).sum() - self.weight * likely.sum() + prior / 2)

    def fit(self, peak: bool) -> tuple[np.ndarray, float]:
        """The likeliest parameters, and what they cost."""
        from scipy.optimize import minimize

        level = np.log(max(1, self.number))
        at = [level, self.typical, -1.0] if peak else [level, -1.0, 0.0]
        if not peak and self.threshold is None:
            at += [self.origin, _BLUR[0]]
        for _ in range(2):  # again from where the first search has ended
            found = minimize(
                self.cost, at, (peak,), "Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-2, "maxiter": 2000}
            )
            at = found.x
        return np.asarray(found.x), float(found.fun)

    def model(self, at: np.ndarray, peak: bool = False) -> ItemModel:
        """The model with these parameters."""
        level, slope, curve = at[:3]
        least = self.threshold
        if peak:
            width = np.exp(2 * at[2])
            level, slope, curve = at[0] - at[1] ** 2 / (2 * width), at[1] / width, -1 / (2 * width)
            least = 1.0
        elif least is None:
            least = float(np.exp(at[3]))
        return ItemModel(self.largest, self.cut, self.origin, level, slope, curve, float(least))


def _off(value: float, expected: float, stddev: float) -> float:
    return ((value - expected) / stddev) ** 2


def _spread(
    cost: Callable[[np.ndarray], float], at: np.ndarray, random: np.random.Generator, number: int
) -> list[np.ndarray]:
    """Parameters drawn by the normal distribution that the curvature of the cost at its minimum stands for."""
    size, step = len(at), 0.05
    moves = np.eye(size) * step
    middle = cost(at)
    hessian = np.empty((size, size))
    for i in range(size):
        for j in range(i + 1):
            if i == j:
                second = cost(at + moves[i]) - 2 * middle + cost(at - moves[i])
            else:
                second = (
                    cost(at + moves[i] + moves[j])
                    - cost(at + moves[i] - moves[j])
                    - cost(at - moves[i] + moves[j])
                    + cost(at - moves[i] - moves[j])
                ) / 4
            hessian[i, j] = hessian[j, i] = second / step**2
    values, vectors = np.linalg.eigh(hessian)
    scale = 1 / np.sqrt(np.maximum(values, 1.0))  # no direction is less sure than a prior of 1
    return [at + vectors @ (scale * random.standard_normal(size)) for _ in range(number)]
