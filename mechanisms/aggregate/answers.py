"""Metrics and their intervals from noisy sums: post-processing, which costs nothing.

Means, variances and quantiles are of the rows that have a value: n, the noisy rows less the noisy rows without one. Halves
(`measures`) tell n by their sum, and the sum of x by their difference. Both have the same noise, and are not correlated.

The interval of a mean r of x is Fieller's, for n and noisy sums S: all r in [-1, 1] for which S - r n is within
1.96 standard deviations of 0, where those are sqrt(sigma_S^2 + r^2 sigma_n^2). As S - r n has mean 0 for the true r, the
interval holds it in 95 % of all releases, however few rows there are; where n may be 0, it is the whole range. The mean itself
is an estimate by the sums of all keys (`pooled`), cut to that interval. It is closer than S / n, whose noise is stated. Where
nothing tells that values are missing, the rows alone are n for the estimate: intervals do not rest on that, but for those of
sums. Halves tell only of rows that have a value, and so the same holds for users and events: the upper end of their interval is
that of all rows where it is higher (`may_be_missing`).

With halves, a mean is often of one row of each user, and who is in the sample by chance matters as much as noise. So its
interval has the variance (1 - r^2) f n k more, for samples of n / k users at least, with k rows of each at most: f is how far
values spread on keys, as the gaps of all keys tell it. A key on which values spread more than on others has one that is too
narrow.

The noise of S - r n is Gaussian. Of halves it is that of two Laplace draws, of which 2.12 standard deviations hold 95 % or
more, and are taken in place of 1.96.

A share of the users of a key is the mean of flags, of 1 for users with a row that meets a condition and -1 for others, by the
same formulas with users for rows.

A ratio of two sums is theirs, with Fieller's interval too, of any size. Both sums may rest on the same noisy rows: so the noise
of above - r below has a covariance in it.

A variance is half^2 (1 - g - r^2), with g the mean gap and r the mean. Its interval puts those of g and r together, each of
97.5 %: so it holds the truth in 95 % of all releases or more.

Quantiles come with their intervals (`quantiles`). All intervals are of the noise: they are about the rows that the bounds have
left.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.aggregate.measures import AUXILIARY_MOMENTS, HALVES, VARIANCE_MOMENT, MeasuresPlan
from headcount.mechanisms.aggregate.metrics import Metric, Metrics
from headcount.mechanisms.aggregate.pooled import pooled
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.calibration.intervals import (
    DEVIATIONS,
    LAPLACE_DEVIATIONS,
    as_noise_tells,
    from_least,
    outward,
)
from headcount.mechanisms.columns.value_ranges import ValueRange

# For each of two intervals that hold together with a probability of 95 %.
_BOTH = statistics.NormalDist().inv_cdf(1 - 0.025 / 2)


@dataclasses.dataclass(frozen=True)
class Answer:
    """The released numbers of one metric; the noise of a quantile is that of its rank."""

    value: np.ndarray
    noise_stddev: np.ndarray
    low: np.ndarray
    high: np.ndarray


def columns_of(metric: Metric, name: str) -> tuple[str, str, str, str]:
    """The columns of a metric of this name."""
    return name, f"{name}_{metric.spread}", f"{name}_low", f"{name}_high"


@dataclasses.dataclass(frozen=True)
class NoisySums:
    """The noisy sums of all named keys, sorted, and the standard deviations of their noise; public. `trees` has the columns of
    what came out of trees."""

    items: Names
    sums: Mapping[str, np.ndarray]
    stddev: Mapping[str, float]
    trees: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    deviations: float = DEVIATIONS  # standard deviations of the noise that hold 95 % of it
    spreads: Mapping[int, float] = dataclasses.field(default_factory=dict)  # of ranges, where a mean is of a sample

    @classmethod
    def of(cls, rows: pa.RecordBatch, plan: MeasuresPlan) -> NoisySums:
        """Those in a batch of noisy sums."""
        stddev = {measure.name: measure.stddev for measure in plan.measures if measure.kind != "tree"}
        numbers = {name: np.asarray(rows.column(name)) for name in rows.schema.names if name != "item"}
        sums, trees = (
            {name: numbers[name] for name in numbers if (name in stddev) is is_sum} for is_sum in (True, False)
        )
        spreads: dict[int, float] = {}
        if plan.noise == "laplace":
            sums, stddev, spreads = _of_halves(sums, stddev)
            spreads = {number: plan.max_per_item * spread for number, spread in spreads.items()}
        if "users" not in sums and plan.max_per_item == 1 and "rows" in sums:  # with one row a key, users are rows
            for users, rows_ in (("users", "rows"), ("users_at_most", "rows_at_most")):
                if rows_ in sums:
                    sums, stddev = sums | {users: sums[rows_]}, stddev | {users: stddev[rows_]}
        deviations = LAPLACE_DEVIATIONS if plan.noise == "laplace" else DEVIATIONS
        return cls(rows.column("item"), sums, stddev, trees, deviations, spreads)

    def counts(self, kind: str) -> tuple[np.ndarray, float]:
        """The noisy users, events, or events with a value, and the standard deviation of their noise."""
        if kind.startswith("valued"):
            return self.typical_with_value(int(kind.removeprefix("valued")))
        name = "rows" if kind == "events" else kind
        return self.sums[name], self.stddev[name]

    def may_be_missing(self, kind: str) -> np.ndarray | float:
        """How much higher the interval of users or events may end, by rows without a value of which noise hides that they are
        missing.

        The lower end is that of the noise of the rows that have a value, and the upper one of all rows, if that is higher: each
        fails in 2.5 % of all releases at most.
        """
        count, noise = self.counts(kind)
        most = f"{'rows' if kind == 'events' else kind}_at_most"
        if most not in self.sums:
            return 0.0
        above = self.sums[most] - count + self.deviations * (self.stddev[most] - noise)
        return np.maximum(above, 0.0)

    def total(self, metric: Metric, values: tuple[ValueRange, ...]) -> tuple[np.ndarray, float]:
        """A total and the standard deviation of its noise: of users, of events, or middle * n + half * sum."""
        if metric.of is None:
            return self.counts(metric.kind)
        number = values.index(metric.of)
        return self.sum_of(metric.of, number, self.typical_with_value)

    def sum_of(
        self, of: ValueRange, number: int, with_value: Callable[[int], tuple[np.ndarray, float]]
    ) -> tuple[np.ndarray, float]:
        """The sum of a range and the standard deviation of its noise, by the rows that have a value, as they are told."""
        own, noise = of.half * self.sums[f"sum{number}"], of.half * self.stddev[f"sum{number}"]
        if "rows" not in self.sums:  # a sum alone of a range around 0
            return own, noise
        rows, rows_noise = with_value(number)
        return of.midpoint * rows + own, float(np.hypot(of.midpoint * rows_noise, noise))

    def with_value(self, number: int) -> tuple[np.ndarray, float]:
        """The noisy rows that have a value of this range, and the standard deviation of their noise."""
        missing, valued = f"missing{number}", f"valued{number}"
        if valued in self.sums:
            return self.sums[valued], self.stddev[valued]
        noise = float(np.hypot(self.stddev["rows"], self.stddev[missing]))
        return self.sums["rows"] - self.sums[missing], noise

    def typical_with_value(self, number: int) -> tuple[np.ndarray, float]:
        """The same, or all rows, which have less noise, where nothing tells that values are missing."""
        missing, noise = self.sums[f"missing{number}"], self.stddev[f"missing{number}"]
        return self.with_value(number) if _told(missing, noise, self.deviations) else self.counts("events")


def _told(missing: np.ndarray, noise: float, deviations: float) -> bool:
    """Whether more than noise is missing, on one key or on all together; Laplace noise has the longer tail."""
    keys = max(1, len(missing))
    chances = [tuning.TAKEN_FOR_MISSING / 2 / looks for looks in (keys, 1)]
    of_one, of_all = (statistics.NormalDist().inv_cdf(1 - chance) for chance in chances)
    if deviations > DEVIATIONS:
        of_one = -math.log(2 * chances[0]) / math.sqrt(2)
    return bool(missing.max(initial=0.0) > of_one * noise or missing.sum() > of_all * noise * math.sqrt(keys))


def _of_halves(
    halves: Mapping[str, np.ndarray], stddev: Mapping[str, float]
) -> tuple[dict[str, np.ndarray], dict[str, float], dict[int, float]]:
    """The noisy sums, rows with a value, and rows, by halves, and the spread of each range. All ranges tell of the rows, and
    what is missing of one counts only where it is told."""
    sums, noise, spreads = dict(halves), dict(stddev), {}
    ranges = sum(name.startswith("upper") for name in halves)
    for number in range(ranges):
        upper, lower, missing = (f"{kind}{number}" for kind in HALVES)
        both = math.hypot(stddev[upper], stddev[lower])
        valued = sums.pop(upper), sums.pop(lower)
        sums |= {f"sum{number}": valued[0] - valued[1], f"valued{number}": valued[0] + valued[1]}
        noise |= {f"sum{number}": both, f"valued{number}": both}
        gaps = sums.pop(f"gap{number}"), stddev[f"gap{number}"]
        spreads[number] = _spread(sums[f"sum{number}"], sums[f"valued{number}"], both, gaps)
    every = range(ranges)
    told = [
        number for number in every if _told(sums[f"missing{number}"], noise[f"missing{number}"], LAPLACE_DEVIATIONS)
    ]
    for name, counted in (("rows", told), ("rows_at_most", every)):
        parts = [*(f"valued{number}" for number in every), *(f"missing{number}" for number in counted)]
        sums[name] = np.sum([sums[part] for part in parts], axis=0) / ranges
        noise[name] = math.sqrt(sum(noise[part] ** 2 for part in parts)) / ranges
    return sums, noise, spreads


def _spread(sums: np.ndarray, rows: np.ndarray, noise: float, gaps: tuple[np.ndarray, float]) -> float:
    """The variance of x on keys, as a share of 1 - r^2, which is the most that it can be where the mean is r: of all keys
    together, and no less than that in 97.5 % of all releases."""
    square = float(((sums * sums - noise * noise) / np.maximum(rows, noise)).sum())  # of r, for each row
    most = float(rows.sum()) - max(square, 0.0)
    deviation = gaps[1] * math.sqrt(len(rows))
    if most <= deviation:
        return 1.0
    return min(max((most - float(gaps[0].sum()) + DEVIATIONS * deviation) / most, 0.0), 1.0)


def total_answer(
    metric: Metric,
    value: np.ndarray,
    noise_stddev: np.ndarray | float,
    ends: tuple[np.ndarray, np.ndarray],
) -> Answer:
    """A total with its interval, which has these ends. None that cannot be negative has an end below 0, and ends of counts are
    whole numbers."""
    stddev = np.broadcast_to(np.asarray(noise_stddev, np.float64), value.shape)
    low, high = ends
    if metric.of is None:
        low, high = outward(low, high)
    elif metric.is_total:
        low, high = from_least(low, high)
    return Answer(value, stddev, low, high)


def ratio_answers(noisy: NoisySums, metrics: Metrics) -> dict[Metric, Answer]:
    """Means, variances, quantiles, shares and ratios."""
    found = {}
    for metric in metrics.each:
        if metric.kind == "quantile":
            found[metric] = Answer(*(noisy.trees[column] for column in columns_of(metric, metric.name)))
        if metric.kind == "ratio":
            found[metric] = _ratio_of_sums(noisy, metric, metrics.values)
        if metric.of is not None and metric.kind in _RATIOS:
            found[metric] = _RATIOS[metric.kind](noisy, metrics.values.index(metric.of), metric.of)
    return found


def mean_ratio(noisy: NoisySums, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The means of x, by all keys together, each within its interval; and the ends of that."""
    own, names = (
        noisy.stddev[f"sum{number}"],
        [f"{kind}{number}" for kind in ("sum", *VARIANCE_MOMENT, *AUXILIARY_MOMENTS)],
    )
    rows, noise = noisy.with_value(number)
    chance = noisy.spreads.get(number, 0.0) * np.maximum(rows, 0.0)
    low, high = fieller(noisy.sums[f"sum{number}"], rows, own, noise, noisy.deviations, -1.0, chance)
    sums = [noisy.sums[name] for name in names if name in noisy.sums]
    rows, noise = noisy.typical_with_value(number)
    means = pooled(sums, rows, own, noise)
    return np.clip(means, low, high), low, high


def _mean(noisy: NoisySums, number: int, of: ValueRange) -> Answer:
    rows, by_rows = noisy.typical_with_value(number)
    noise = by_rows, noisy.stddev[f"sum{number}"]
    ratio, low, high = mean_ratio(noisy, number)
    # A number within the range is within half of it from the middle.
    stddev = np.minimum(np.hypot(noise[1], ratio * noise[0]) / np.maximum(rows, noise[0]), 1.0)
    return _within(of, ratio, stddev, low, high)


def _share(noisy: NoisySums, number: int, of: ValueRange) -> Answer:
    """Of the users of a key, the share that has a flag: as of a mean, with users for rows."""
    sums, own = noisy.sums[f"flag{number}"], noisy.stddev[f"flag{number}"]
    users, noise = noisy.counts("users")
    low, high = fieller(sums, users, own, noise, DEVIATIONS, -1.0)
    ratio = np.clip(pooled([sums], users, own, noise), low, high)
    return _within(of, ratio, np.minimum(np.hypot(own, ratio * noise) / np.maximum(users, noise), 1.0), low, high)


def _within(of: ValueRange, ratio: np.ndarray, stddev: np.ndarray, low: np.ndarray, high: np.ndarray) -> Answer:
    return Answer(
        of.midpoint + of.half * ratio, of.half * stddev, of.midpoint + of.half * low, of.midpoint + of.half * high
    )


def _variance(noisy: NoisySums, number: int, of: ValueRange) -> Answer:
    sums, gaps, own = noisy.sums[f"sum{number}"], noisy.sums[f"gap{number}"], noisy.stddev[f"sum{number}"]
    rows, noise = noisy.typical_with_value(number)
    mean, gap = _ratio(sums, rows, noise, -1.0), _ratio(gaps, rows, noise, 0.0)
    size = np.maximum(rows, noise)
    by_rows = (gap + 2 * mean**2) * noise
    stddev = np.minimum(np.sqrt((1 + 4 * mean**2) * own**2 + by_rows**2) / size, 0.5)
    rows, noise = noisy.with_value(number)
    means = fieller(sums, rows, own, noise, _BOTH, -1.0)
    gap_low, gap_high = fieller(gaps, rows, own, noise, _BOTH, 0.0)
    squares = np.square(means)
    least = np.where((means[0] <= 0) & (means[1] >= 0), 0.0, squares.min(axis=0))
    square = of.half**2
    low, high = 1 - gap_high - squares.max(axis=0), 1 - gap_low - least
    low, high = from_least(low, high)
    return Answer(
        square * np.clip(1 - gap - mean**2, 0.0, 1.0),
        square * stddev,
        square * low,
        square * np.minimum(high, 1.0),
    )


def _ratio_of_sums(noisy: NoisySums, metric: Metric, values: tuple[ValueRange, ...]) -> Answer:
    """One noisy sum by another, in the interval of all ratios r for which above - r below is within its noise. Both may have
    the noise of the same rows in them. Where below may be 0, any ratio may be true, and the interval has no ends."""
    assert metric.of is not None and metric.by is not None
    ways = noisy.typical_with_value, noisy.with_value
    (above, _), (sure_above, above_noise) = (noisy.sum_of(metric.of, values.index(metric.of), way) for way in ways)
    (below, _), (sure_below, below_noise) = (noisy.sum_of(metric.by, values.index(metric.by), way) for way in ways)
    shared = metric.of.midpoint * metric.by.midpoint * noisy.stddev.get("rows", 0.0) ** 2
    least = 0.0 if metric.of.low >= 0 and metric.by.low >= 0 else -math.inf
    low, high = fieller_open(sure_above, sure_below, (above_noise**2, shared, below_noise**2), least)
    size = np.copysign(np.maximum(np.abs(below), below_noise), below)
    ratio = np.fmin(np.fmax(np.maximum(above / size, least), low), high)  # which pass over ends that are not there
    square = above_noise**2 - 2 * ratio * shared + (ratio * below_noise) ** 2
    return Answer(ratio, np.sqrt(np.maximum(square, 0.0)) / np.abs(size), low, high)


_RATIOS = {"mean": _mean, "variance": _variance, "share": _share}


def _ratio(above: np.ndarray, below: np.ndarray, noise: float, least: float) -> np.ndarray:
    """above / below, within [least, 1]; where there may be no rows at all, the middle of that."""
    sure = below > noise
    ratio = np.clip(above / np.where(sure, below, 1.0), least, 1.0)
    return np.where(sure, ratio, (least + 1) / 2)


def fieller(
    above: np.ndarray,
    below: np.ndarray,
    above_noise: float,
    below_noise: float,
    deviations: float,
    least: float,
    chance: np.ndarray | float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """The ratios r in [least, 1] with (above - r below)^2 <= deviations^2 v as an interval, for a variance v of
    above_noise^2 + r^2 below_noise^2 + (1 - r^2) chance.

    These are the r between the roots of a square, if that opens upwards, and else at least all of the interval's middle: then
    it is the whole of it. Where the noise has led out of the range, `above` is first taken for what is nearest within, so that
    there always are such r; those that were there stay.
    """
    above = np.where(below > 0, np.clip(above, least * below, np.maximum(below, least * below)), above)
    a = below**2 - (deviations * below_noise) ** 2
    c = above**2 - (deviations * above_noise) ** 2 - deviations**2 * chance
    known = (a > 0) & (below > 0)
    safe = np.where(known, a + deviations**2 * chance, 1.0)
    centre = above * below / safe
    root = np.sqrt(np.maximum(centre**2 - c / safe, 0.0))
    low = np.where(known, np.clip(centre - root, least, 1.0), least)
    high = np.where(known, np.clip(centre + root, least, 1.0), 1.0)
    return low, high


def fieller_open(
    above: np.ndarray, below: np.ndarray, noise: tuple[float, float, float], least: float
) -> tuple[np.ndarray, np.ndarray]:
    """The same of ratios of any size, no less than `least`: `noise` has the variance of what is above, the covariance of both,
    and the variance of what is below. NaN for both ends where the range of the noise of `below` holds 0."""
    z = DEVIATIONS**2
    if math.isfinite(least):  # noise that has led below it is taken for none
        above = np.where(below > 0, np.maximum(above, least * below), above)
    a, b, c = below**2 - z * noise[2], above * below - z * noise[1], above**2 - z * noise[0]
    known = a > 0
    safe = np.where(known, a, 1.0)
    root = np.sqrt(np.maximum(b**2 - safe * c, 0.0))
    low, high = (np.where(known, np.maximum((b + sign * root) / safe, least), np.nan) for sign in (-1, 1))
    return low, high


def answers_batch(items: Names, answers: Mapping[str, tuple[Metric, Answer]]) -> pa.RecordBatch:
    """The released rows: the key, and for each metric its value, the noise, `low` and `high`, by the name of the metric."""
    made: dict[str, pa.Array] = {"item": items}
    for name, (metric, answer) in answers.items():
        columns = [answer.value, answer.noise_stddev, answer.low, answer.high]
        # The noise of a quantile is in ranks, and says nothing of its value, which is an edge of a public grid.
        fitted = slice(1, 2) if metric.kind == "quantile" else slice(None)
        columns[fitted] = as_noise_tells(answer.noise_stddev, *columns[fitted])
        known = zip(columns_of(metric, name), columns, strict=True)
        # Only a ratio may have ends that are not there.
        made |= {part: pa.array(column, pa.float64(), from_pandas=metric.kind == "ratio") for part, column in known}
    return pa.RecordBatch.from_pydict(made)
