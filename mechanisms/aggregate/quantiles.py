"""Quantiles from trees of noisy rows, and their intervals: post-processing, which costs nothing.

The quantile q of n rows is the least value that q n of them do not exceed. On the way down to it, D(e) = (rows below e) - q n
is looked at on the edges of a node's children. The quantile is in the child at whose left edge D < 0, and at whose right edge D
>= 0. What is known of D at the ends of a node, from the levels above, and the noisy rows of its children, are put together as
the unbiased estimate of least variance (`_inner`). So levels agree with each other. Its covariance depends on the place of the
children alone, and not on any data.

    value      the child with as many edges before it as have D < 0. If it has hardly any rows, the fullest of those children
               in which D may be 0 just as well, as quantiles are values of rows. Down to a node that has fewer rows than its
               children have noise: in there rows are taken to lie evenly
    low        the first child at whose right edge D >= 0 may be, which is where D is not below -z standard deviations
    high       the last child at whose left edge D < 0 may be, likewise

low to high holds the quantile in 95 % of all releases or more, whatever the rows are. Proof: docs/proofs/aggregate.md,
"Intervals of quantiles". Several quantiles of one tree look at the same noise. Their values ascend, and intervals are made no
narrower for that.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.aggregate.measures import Measure
from headcount.mechanisms.aggregate.metrics import Metrics
from headcount.mechanisms.aggregate.trees import BRANCHING, LEAVES, LEVELS, NoisyTrees

_SURE = statistics.NormalDist().inv_cdf(1 - 0.025 / LEVELS)
_EDGES = np.arange(BRANCHING + 1)
_FIRST, _LAST = np.array([[0]]), np.array([[BRANCHING]])

# The covariance of what is known of D at two edges of each node, by their numbers.
Covariance = Callable[[np.ndarray, np.ndarray], np.ndarray]

_KEYS = 4096


@dataclasses.dataclass(frozen=True)
class KeyQuantiles:
    """One row per key and a column per quantile: values from 0 to 1 in the range, their ends, and stddevs of their ranks."""

    value: np.ndarray
    rank_stddev: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Nodes:
    """What is known of D at the left and at the right end of nodes, and the covariance of that; arrays of one column."""

    left: np.ndarray
    right: np.ndarray
    left_left: np.ndarray
    left_right: np.ndarray
    right_right: np.ndarray

    @classmethod
    def of(cls, edges: np.ndarray, covariance: Covariance, i: np.ndarray, k: np.ndarray) -> _Nodes:
        """What is between edges i and k of each node."""
        i, k = (np.broadcast_to(each, (len(edges), 1)) for each in (i, k))
        left, right = (np.take_along_axis(edges, each, axis=1) for each in (i, k))
        return cls(left, right, covariance(i, i), covariance(i, k), covariance(k, k))

    @property
    def rows(self) -> np.ndarray:
        """About how many rows nodes have."""
        return self.right - self.left

    def inside(self, otherwise: np.ndarray) -> np.ndarray:
        """Where between its ends D is 0, from 0 to 1, if rows lie evenly; and if there are none, where else."""
        some = self.rows > 0
        return np.where(some, np.clip(-self.left / np.where(some, self.rows, 1.0), 0.0, 1.0), otherwise)

    def variance(self, inside: np.ndarray) -> np.ndarray:
        """The variance of D there."""
        t, u = inside, 1 - inside
        return u * u * self.left_left + 2 * t * u * self.left_right + t * t * self.right_right


def quantile_columns(
    trees: NoisyTrees, measure: Measure, metrics: Metrics, rows: tuple[np.ndarray, float]
) -> dict[str, pa.Array]:
    """The columns of all quantiles that the trees of a measure tell, in the unit of the values."""
    of = metrics.values[measure.value]
    asked = [metric for metric in metrics.each if metric.kind == "quantile" and metric.of == of]
    found = key_quantiles(trees, measure.stddev, [metric.share for metric in asked if metric.share is not None], rows)
    columns = {}
    for place, metric in enumerate(asked):
        for part, column in (("", found.value), ("_low", found.low), ("_high", found.high)):
            columns[metric.name + part] = pa.array(of.low + (of.high - of.low) * column[:, place])
        columns[f"{metric.name}_{metric.spread}"] = pa.array(found.rank_stddev[:, place])
    return columns


def key_quantiles(
    trees: NoisyTrees, stddev: float, shares: Sequence[Fraction], rows: tuple[np.ndarray, float]
) -> KeyQuantiles:
    """The quantiles of all keys; `rows` are their noisy rows that have a value, and the standard deviation of their noise."""
    order = sorted(range(len(shares)), key=lambda place: shares[place])
    ascending = np.array([float(shares[place]) for place in order])
    parts = [np.zeros((4, 0, len(shares)))]
    for start in range(0, len(trees.ids), _KEYS):
        keys = np.arange(start, min(start + _KEYS, len(trees.ids)))
        parts.append(_descend(trees, keys, stddev, ascending, (rows[0][keys], rows[1])))
    value, spread, low, high = np.concatenate(parts, axis=1)
    value = np.maximum.accumulate(value, axis=1)
    low = np.minimum(np.minimum.accumulate(low[:, ::-1], axis=1)[:, ::-1], value)
    high = np.maximum(np.maximum.accumulate(high, axis=1), value)
    back = np.argsort(order)
    return KeyQuantiles(value[:, back], spread[:, back], low[:, back], high[:, back])


def _descend(
    trees: NoisyTrees, keys: np.ndarray, stddev: float, shares: np.ndarray, rows: tuple[np.ndarray, float]
) -> np.ndarray:
    """Values, stddevs of ranks, low and high of each key and quantile, by three ways down for each of them. All go down level
    by level, so that each node is drawn once."""
    ways = 3 * len(shares)
    key, goal = np.repeat(keys, ways), np.tile(np.arange(3), len(keys) * len(shares))[:, None]
    share = np.tile(np.repeat(shares, 3), len(keys))[:, None]
    node = np.zeros(len(key), dtype=np.int64)
    value, spread, going = np.zeros_like(share), np.zeros_like(share), goal == 0
    root = known = None
    for level in range(1, LEVELS + 1):
        at, where = np.unique(key * LEAVES + node, return_inverse=True)
        counts = trees.children(level, at // LEAVES, at % LEAVES)[where]
        if known is None:
            counted = np.repeat(rows[0], ways)[:, None]
            edges, covariance = _outer(counts, stddev * stddev, share, counted, rows[1] * rows[1])
            whole = root = _Nodes.of(edges, covariance, _FIRST, _LAST)
        else:
            edges, covariance = _inner(counts, stddev * stddev, known)
            whole = _Nodes.of(edges, covariance, _FIRST, _LAST)
        stop = going & (whole.rows < tuning.ROWS_TO_LOOK_INTO * stddev)
        inside = whole.inside(share if whole is root else np.full_like(share, 0.5))
        uneven = whole.rows * np.maximum(inside, 1 - inside)
        value = np.where(stop, (node[:, None] + inside) / BRANCHING ** (level - 1), value)
        spread = np.where(stop, whole.variance(inside) + uneven**2, spread)
        going = going & ~stop
        noise = np.sqrt(np.maximum(covariance(_EDGES[None], _EDGES[None]), 0.0))
        child = np.choose(goal, (_at(edges, noise, stddev), _first(edges, noise), _last(edges, noise)))
        known = _Nodes.of(edges, covariance, child, child + 1)
        node = node * BRANCHING + child[:, 0]
    assert known is not None and root is not None
    inside = known.inside(np.full_like(share, 0.5))
    value = np.where(going, (node[:, None] + inside) / LEAVES, value)
    spread = np.where(going, known.variance(inside), spread)
    # A rank is off by no more than all there are.
    farthest = np.maximum(share, 1 - share)
    noise = np.where(root.rows > 0, np.sqrt(np.maximum(spread, 0.0)) / np.where(root.rows > 0, root.rows, 1.0), 1.0)
    found = (value, np.minimum(noise, farthest), node[:, None] / LEAVES, (node[:, None] + 1) / LEAVES)
    shape = (len(keys), len(shares), 3)
    return np.stack([each.reshape(shape)[:, :, goal] for each, goal in zip(found, (0, 0, 1, 2), strict=True)])


def _outer(
    counts: np.ndarray, variance: float, share: np.ndarray, rows: np.ndarray, of_rows: float
) -> tuple[np.ndarray, Covariance]:
    """D at the edges of the first level, which are told by its counts and by the rows, and its covariance.

    With n the noisy rows, of variance s, and S the sum of the b counts, of variance v each, the best estimate of all rows is
    (1 - a) n + a S with a = s / (s + b v). What it has more than S is spread evenly.
    """
    a = of_rows / (of_rows + BRANCHING * variance)
    ends = np.concatenate([np.zeros((len(counts), 1)), np.cumsum(counts, axis=1)], axis=1)
    more = (1 - a) * (rows - ends[:, -1:])
    edges = ends - share * (ends[:, -1:] + more) + _EDGES * (more / BRANCHING)

    def covariance(i: np.ndarray, k: np.ndarray) -> np.ndarray:
        by_rows = a * share * (share * BRANCHING - (i + k)) - (1 - a) * i * k / BRANCHING
        return variance * (np.minimum(i, k) + by_rows)

    return edges, covariance


def _inner(counts: np.ndarray, variance: float, known: _Nodes) -> tuple[np.ndarray, Covariance]:
    """The same at the edges of the children of nodes whose ends are known: D at the left end and the counts up to an edge, less
    what these have in common with r, which is what the ends say beyond all counts together."""
    ends = np.concatenate([np.zeros((len(counts), 1)), np.cumsum(counts, axis=1)], axis=1)
    r = known.rows - ends[:, -1:]
    of_r = known.left_left + known.right_right - 2 * known.left_right + BRANCHING * variance

    def shared(i: np.ndarray) -> np.ndarray:
        return known.left_right - known.left_left - i * variance

    def covariance(i: np.ndarray, k: np.ndarray) -> np.ndarray:
        return known.left_left + np.minimum(i, k) * variance - shared(i) * shared(k) / of_r

    return known.left + ends - shared(_EDGES[None]) * (r / of_r), covariance


def _at(edges: np.ndarray, noise: np.ndarray, stddev: float) -> np.ndarray:
    """The child that the value is in."""
    child = (edges[:, 1:-1] < 0).sum(axis=1, keepdims=True)
    rows = np.diff(edges, axis=1)
    as_well = (edges[:, :-1] < tuning.RANK_AS_WELL * noise[:, :-1]) & (
        edges[:, 1:] >= -tuning.RANK_AS_WELL * noise[:, 1:]
    )
    fullest = np.argmax(np.where(as_well, rows, -np.inf), axis=1)[:, None]
    here, there = (np.take_along_axis(rows, each, axis=1) for each in (child, fullest))
    return np.where((here < tuning.HARDLY_ROWS * stddev) & (there >= tuning.HARDLY_ROWS * stddev), fullest, child)


def _first(edges: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The first child that the quantile may be in, or else the last one."""
    reached = edges[:, 1:] + _SURE * noise[:, 1:] >= 0
    reached[:, -1] = True
    return np.argmax(reached, axis=1)[:, None]


def _last(edges: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The last child that the quantile may be in, or else the first one."""
    below = edges[:, :-1] - _SURE * noise[:, :-1] < 0
    below[:, 0] = True
    return BRANCHING - 1 - np.argmax(below[:, ::-1], axis=1)[:, None]
