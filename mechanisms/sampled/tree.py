"""What a tree of sampled nodes tells: estimates of all nodes, quantiles and range counts, as post-processing.

The paper takes each node's estimate by itself. But every level has a sample of its own, so that a node, the sum of its
children, that of their children, ... are independent estimates of one number: put together they have a fraction of the
variance (Hay et al., "Boosting the accuracy of differentially private histograms through consistency", 2010).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headcount.mechanisms.sampled.leaves import Leaves
from headcount.mechanisms.sampled.plan import SamplePlan

#: Standard deviations to either side that hold 95 % of a normal distribution.
WITHIN = 1.96


@dataclasses.dataclass(frozen=True)
class NodeEstimates:
    """Estimates of the nodes of one level from all that is below them, their variances, and by how many users they may be too
    low, since parts with too few sampled users are hidden."""

    count: np.ndarray
    variance: np.ndarray
    hidden: np.ndarray


class _Node(NamedTuple):
    """The last node that can be told on the way down to a rank: leaves first .. last, the share of the way through them at
    which the rank is, the share of all users that it has, and the variance of the rank by sampling and hiding."""

    first: Fraction
    last: Fraction
    inside: float
    mass: float
    variance: float


@dataclasses.dataclass(frozen=True)
class SampledTree:
    """The sampled users of every node, from the level below the root to the leaves, 0 where they were too few to show."""

    plan: SamplePlan
    leaves: Leaves
    branching: int
    sampled: tuple[np.ndarray, ...]

    @functools.cached_property
    def estimates(self) -> tuple[NodeEstimates, ...]:
        """Level by level, from the leaves up: a node's own estimate and the sum of its children's, each weighted by the
        other's mean squared error.

        An estimate n of a sampled number has the variance c n with c = (1 - p) / p. Where all is shown, the weights come out as
        the levels that each side stands for, whatever the numbers (weights that follow the noise would bias the result). A
        suppressed node is taken as 0, with an unknown error of up to theta / p; such errors add up, they do not average out.
        """
        noise = float((1 - self.plan.rate) / self.plan.rate)
        hidden = float(self.plan.threshold / self.plan.rate)
        result: list[NodeEstimates] = []
        count = variance = error = np.zeros(0)
        for sampled in reversed(self.sampled):
            own, shown = sampled * float(1 / self.plan.rate), sampled > 0
            if not result:
                count, variance, error = own, noise * own, np.where(shown, 0.0, hidden)
            else:
                below, spread, unknown = (x.reshape(-1, self.branching).sum(axis=1) for x in (count, variance, error))
                size = np.where(shown, (own + below) / 2, below)
                relative = spread / np.where(below > 0, below, 1.0)
                own_error = np.where(shown, noise * size, hidden**2 / 3)
                below_error = relative * size + unknown**2 / 3
                w = below_error / (own_error + below_error)
                count = w * own + (1 - w) * below
                variance = w**2 * noise * own + (1 - w) ** 2 * spread
                error = w * np.where(shown, 0.0, hidden) + (1 - w) * unknown
            result.append(NodeEstimates(count, variance, error))
        return tuple(reversed(result))

    def quantiles(self, wanted: Sequence[Fraction]) -> pa.RecordBatch:
        """Rows quantile, value, low, high, rank_stddev.

        From the root down, the wanted share of a node's users is looked for among its children, by their shares of their sum.
        Inside of the last node that can be told, users are taken to lie evenly. They need not: all may have one value. So the
        rank of what is released may be that of either end of the node, and `rank_stddev` has the farther one besides the
        sampling: whatever the values are, the error of the rank is no more than that, in the mean square. `low` and `high` are
        the outer edges of the nodes at WITHIN standard deviations of the sampling below and above. All is NaN if nothing at all
        was shown.
        """
        return quantile_rows([self._quantile(float(q)) for q in wanted])

    def _quantile(self, q: float) -> tuple[float, float, float, float, float]:
        found = self._descend(q)
        if found is None:
            return q, math.nan, math.nan, math.nan, math.nan
        spread = math.sqrt(found.variance)
        below, above = (self._descend(min(1.0, max(0.0, q + ends * spread))) for ends in (-WITHIN, WITHIN))
        assert below is not None and above is not None  # the first level is the same
        places = found.first + Fraction(found.inside) * (found.last - found.first), below.first, above.last
        value, low, high = (float(self.leaves.edge(place)) for place in places)
        return q, value, low, high, math.hypot(spread, found.mass * max(found.inside, 1 - found.inside))

    def _descend(self, share: float) -> _Node | None:
        b = self.branching
        node, width, mass, variance = 0, Fraction(self.leaves.count), 1.0, 0.0
        for depth, level in enumerate(self.estimates):
            children = slice(node * b, (node + 1) * b)
            count = level.count[children]
            total = float(count.sum())
            if total == 0:
                if depth == 0:
                    return None
                break
            ends = np.cumsum(count)
            child = min(int(np.searchsorted(ends, share * total, side="right")), int(np.flatnonzero(count)[-1]))
            inside = min(1.0, max(0.0, (share * total - float(ends[child] - count[child])) / float(count[child])))
            # The rank is the sum of part * count over total, with part 1 before the child, and 0 behind it.
            part = np.where(np.arange(b) < child, 1.0, 0.0)
            part[child] = inside
            spread = level.variance[children] + level.hidden[children] ** 2 / 3
            variance += (mass / total) ** 2 * float(((part - share) ** 2 * spread).sum())
            mass *= float(count[child]) / total
            node, width, share = node * b + child, width / b, inside
        return _Node(node * width, (node + 1) * width, share, mass, variance)

    def range_counts(self, ranges: Sequence[tuple[int | float, int | float]]) -> pa.RecordBatch:
        """Rows low, high, count, noise_stddev: the users with a value in low <= x < high, for ends moved to an edge of a leaf
        (`Leaves.nearest_edge`); lo and hi, or beyond, take in all that lies outside.

        The count is the sum over the largest nodes that make up the range, on every level at most 2 (b - 1) of them. Users of
        hidden nodes are missing from it, somewhere between none and as many as may be hidden: `stddev` has the mean square of
        that besides the sampling, since what is missing adds up.
        """
        edge = self.leaves.nearest_edge
        found = [(low, high, *self._count(edge(low), edge(high))) for low, high in ranges]
        return rows_of(("low", "high", "count", "noise_stddev"), found)

    def _count(self, first: int, last: int) -> tuple[float, float]:
        """The estimate of leaves first .. last - 1: from the leaves up, each level gives what its parents do not cover."""
        count = variance = hidden = 0.0
        for depth in range(len(self.estimates) - 1, -1, -1):
            level, b = self.estimates[depth], self.branching
            begin, end = (-(-first // b) * b, last // b * b) if depth else (last, last)  # what whole parents cover
            if begin > end:
                begin = end = last
            for rest in (slice(first, begin), slice(end, last)):
                count += float(level.count[rest].sum())
                variance += float(level.variance[rest].sum())
                hidden += float(level.hidden[rest].sum())
            first, last = begin // b, end // b
        return count, math.sqrt(variance + hidden**2 / 3)


def quantile_rows(rows: Sequence[tuple[float, float, float, float, float]]) -> pa.RecordBatch:
    """Released quantiles as a batch quantile, value, low, high, rank_stddev."""
    return rows_of(("quantile", "value", "low", "high", "rank_stddev"), rows)


def rows_of(names: Sequence[str], rows: Sequence[Sequence[float]]) -> pa.RecordBatch:
    """Rows of numbers as a batch with these columns."""
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return pa.RecordBatch.from_pydict(
        {name: pa.array(list(column), pa.float64()) for name, column in zip(names, columns, strict=True)}
    )
