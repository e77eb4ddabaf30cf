"""What is asked of users' numbers, dates or times, as a value: a quantile by a search, or quantiles and ranges off a tree.

Both are made here for all who ask: parameters are checked once, and the rows are those that go out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from fractions import Fraction

import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.checks import check_share
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.sampled.axis import Axis, Value
from headcount.mechanisms.sampled.leaves import Leaves
from headcount.mechanisms.sampled.quantiles import Hierarchy, QuantileSearch, quantile_hierarchy, quantile_search

Range = tuple[Value, Value]


@dataclasses.dataclass(frozen=True)
class SearchOverValues:
    """One quantile of values on an axis, by a search. Guarantee: that of the search; contributions are (user, leaf) rows."""

    axis: Axis
    search: QuantileSearch

    @property
    def name(self) -> str:
        """That of the search."""
        return self.search.name

    @property
    def leaves(self) -> Leaves:
        """The grid of the values."""
        return self.search.leaves

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self.search.guarantee()

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released row, or none if nothing at all was shown."""
        return self.axis.shown(self.search.run(batches, release, label))


@dataclasses.dataclass(frozen=True)
class TreeOverValues:
    """Quantiles, and counts of users by ranges, of values on an axis, off one sampled tree.

    Guarantee: that of the tree, however much is read off it; contributions are (user, leaf) rows.
    """

    axis: Axis
    tree: Hierarchy
    quantiles: tuple[Fraction, ...]
    ranges: tuple[tuple[float, float], ...]

    @property
    def name(self) -> str:
        """That of the tree."""
        return self.tree.name

    @property
    def leaves(self) -> Leaves:
        """The grid of the values."""
        return self.tree.leaves

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self.tree.guarantee()

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows of the quantiles, or of the ranges where there are none; `label` names the sample."""
        nodes = self.tree.run(batches, release, label)
        return self.quantile_rows(nodes) if self.quantiles else self.range_rows(nodes)

    def quantile_rows(self, nodes: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the quantiles, read off released nodes."""
        return self.axis.shown(self.tree.tree(nodes).quantiles(self.quantiles))

    def range_rows(self, nodes: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the ranges, read off released nodes."""
        return self.axis.shown(self.tree.tree(nodes).range_counts(self.ranges))


def search_over_values(
    budget: Budget, q: float, lo: Value, hi: Value, *, rounds: int = 10, relation: Relation = Relation.ADD_REMOVE
) -> SearchOverValues:
    """One quantile of the values from `lo` to `hi`, which are public numbers, dates or times."""
    axis = Axis.of(lo, hi)
    ends = axis.number("lo", lo), axis.number("hi", hi)
    return SearchOverValues(axis, quantile_search(budget, q, *ends, rounds=rounds, relation=relation))


def tree_over_values(
    budget: Budget,
    quantiles: Sequence[float],
    lo: Value,
    hi: Value,
    *,
    ranges: Sequence[Range] = (),
    levels: int = 10,
    branching: int = 2,
    relation: Relation = Relation.ADD_REMOVE,
) -> TreeOverValues:
    """Quantiles of the values from `lo` to `hi`, and counts of users by ranges of them, off one tree."""
    axis = Axis.of(lo, hi)
    shares = tuple(check_share("a quantile", q) for q in quantiles)
    if not quantiles and not ranges:
        raise ParameterError("give at least one quantile or one range")
    number = axis.number
    wanted = tuple((number("a range", low), number("a range", high)) for low, high in ranges)
    for given, (low, high) in zip(ranges, wanted, strict=True):
        if not low < high:
            raise ParameterError(f"a range must begin below its end, got {given!r}", "a range")
    tree = quantile_hierarchy(
        budget, number("lo", lo), number("hi", hi), levels=levels, branching=branching, relation=relation
    )
    leaves = tree.leaves
    for given, (low, high) in zip(ranges, wanted, strict=True):
        if low >= leaves.hi or high <= leaves.lo:
            raise ParameterError(
                f"a range must overlap with lo .. hi, which values outside count as, got {given!r}", "a range"
            )
        if leaves.nearest_edge(low) == leaves.nearest_edge(high):
            raise ParameterError(
                f"a range must not be smaller than one of the {leaves.count} parts of lo .. hi, got {given!r}: give "
                "more levels, or a lo and hi that are nearer",
                "a range",
            )
    return TreeOverValues(axis, tree, shares, wanted)
