"""Quantiles from a sample: `Quantile`, by a search, and `Quantiles`, off a tree whose nodes are sampled once.

What a sample is, and which transforms read the same one, is said in `transforms.sampled.release`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.packing import to_ipc
from headcount.mechanisms.columns.key_column import KeyColumn
from headcount.mechanisms.columns.preparation import preparation
from headcount.mechanisms.columns.reading import reading
from headcount.mechanisms.columns.row_schema import RowSchema
from headcount.mechanisms.counting.evidence import Origin
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.sampled.axis import Axis, Value
from headcount.mechanisms.sampled.histogram import CHOICES, SampleKey
from headcount.mechanisms.sampled.over_values import Range, TreeOverValues, search_over_values, tree_over_values
from headcount.mechanisms.sampled.quantiles import Hierarchy, QuantileSearch, add_leaves
from headcount.transforms.bounding import Bounded
from headcount.transforms.core.barrier import rows_beyond_barrier
from headcount.transforms.core.base import PrivateTransform
from headcount.transforms.core.contributions import as_contributions
from headcount.transforms.core.noise import sum_by_item
from headcount.transforms.core.rows import (
    QuantileTime,
    QuantileValue,
    RangeCount,
    RangeTimeCount,
    ToRows,
    in_first,
)
from headcount.transforms.core.user_shards import item_shards
from headcount.transforms.core.values import Values
from headcount.transforms.core.windows import every, window_keys
from headcount.transforms.sampled.sampling import Sampled, check_sample, sample_name


class QuantilesAndRanges(NamedTuple):
    """The result of `Quantiles` that was asked for both."""

    quantiles: beam.PCollection
    ranges: beam.PCollection


class _OverValues(PrivateTransform):
    """What quantiles share: users' values become leaves of a public grid."""

    mechanism: QuantileSearch | Hierarchy

    def __init__(
        self,
        mechanism: QuantileSearch | Hierarchy,
        axis: Axis,
        *,
        release: Release | None,
        shards: int | None,
        output_files: int | None,
        user: str,
        value: str,
        count: str | None,
        drop_null: bool,
        where: str | None,
        join: Any,
        on: str | None,
    ) -> None:
        super().__init__(mechanism, release=release, shards=shards, output_files=output_files)
        self.axis = axis
        self._columns = user, value, count
        prepare = preparation(where, join, on)
        self._row_schema = RowSchema(user, (KeyColumn(value),), count, drop_null, prepare=prepare)
        self._of_leaves = False

    def of_leaves(self) -> Self:
        """The same transform, for `Contributions` whose items are the numbers of leaves, as `mechanism.leaves` gives them."""
        return self._but(_of_leaves=True)

    def _reading(self, rows: beam.PCollection) -> str:
        if self._of_leaves:
            return super()._reading(rows)
        user, value, count = self._columns
        asked = self._row_schema
        return reading(user=user, value=value, count=count, drop_null=asked.drop_null, **asked.prepare.said)

    def _bounded(self, rows: beam.PCollection, release: Release, drawn_as: str | None = None) -> beam.PCollection:
        """Record batches in which each user has one leaf, once."""
        if self._of_leaves:
            leaves = as_contributions(rows)
        else:
            leaves = rows | "Values" >> Values(self.axis, self.mechanism.leaves, self._row_schema)
        return leaves | "Bounded" >> Bounded(self.mechanism.steps, release, self._shards, drawn_as)


class Quantile(_OverValues):
    """One quantile of the users' values, by a search that halves lo .. hi in each of its rounds (the paper).

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`. Each user counts with the value of one
    of its rows, chosen uniformly, and is sampled anew in each of the `rounds`, which compose. Every search is a release of its
    own.

    The result is one `QuantileValue` row (`QuantileTime` for dates and times), or none if too few users were sampled to tell.
    Rows go in: Arrow batches, pandas frames, dicts, `beam.Row`s or named tuples with the fields `user` and `value`, or (user,
    value) or (user, value, count) tuples; or `Contributions`, whose items are then the values.

    Parameters:
        budget: what all of it may cost; it needs a delta.
        q: which quantile, between 0 and 1.
        lo, hi: the public ends, numbers, dates or times; values outside count as the ends. Wider ones are searched coarser.
        rounds: how often the range is halved (default: 10). More are finer, and sample fewer users each.
        user, value: the fields of a row (default: "user" and "value").
        count: the field that says how many rows a row stands for (default: None, itself).
        drop_null: leave out rows with a null or NaN, in place of refusing them (default: False).
        where, join, on: which rows count, and a public table beside them, as for `Contributions`.
        relation, release, shards, output_files: as for `Histogram`.
    """

    mechanism: QuantileSearch

    def __init__(
        self,
        budget: Budget,
        q: float,
        lo: Value,
        hi: Value,
        *,
        rounds: int = 10,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        shards: int | None = None,
        output_files: int | None = None,
        user: str = "user",
        value: str = "value",
        count: str | None = None,
        drop_null: bool = False,
        where: str | None = None,
        join: Any = None,
        on: str | None = None,
    ) -> None:
        made = search_over_values(budget, q, lo, hi, rounds=rounds, relation=Relation.parse(relation))
        super().__init__(
            made.search,
            made.axis,
            release=release,
            shards=shards,
            output_files=output_files,
            user=user,
            value=value,
            count=count,
            drop_null=drop_null,
            where=where,
            join=join,
            on=on,
        )

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        release, label = self._drawn(rows)
        plan, key = self.mechanism, SampleKey(self.mechanism, release, f"{label}/Sampled")
        summed = sum_by_item(self._bounded(rows, release), item_shards(self._shards), label="SumByLeaf")
        sums = (
            summed.sums  # (leaf shard, packed sums)
            | "GroupByLeafShard" >> beam.GroupByKey()
            | "AddUp" >> beam.MapTuple(_added).with_output_types(tuple[int, bytes])
        )
        # One element at least, so that there is a result, or none, from no rows as from too few.
        nothing = every(sums, "Nothing", [(0, b"")])
        found = (
            (sums, nothing)
            | "WithNothing" >> beam.Flatten()
            | "Gather" >> beam.GroupByKey()  # (0, sums of leaves)
            | "Search"
            >> beam.ParDo(_Search(key, plan), beam.pvalue.AsList(summed.origins)).with_output_types(tuple[int, bytes])
        )
        # Nothing may be taken from the search itself, which may run again.
        shown = rows_beyond_barrier(found, "Shown", self.axis.shown)
        return shown | "Rows" >> _Rows(self.axis, self._output_files, QuantileValue, QuantileTime)


class Quantiles(_OverValues):
    """Any number of quantiles of the users' values, and of counts of users by ranges, from one sample (the paper).

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`. Each user counts with the value of one
    of its rows, chosen uniformly, on each level of a tree over branching^levels equal parts of lo .. hi; every node is sampled
    by itself, and the levels compose. `quantiles` and `ranges` are read off the nodes that are shown: any number costs no more,
    also by other transforms with the same release, budget and tree on the same collection.

    The result is `QuantileValue` rows, or `RangeCount` rows where only `ranges` are asked for (`QuantileTime`,
    `RangeTimeCount` for dates and times); asked for both, it has fields `quantiles` and `ranges`. A quantile is left out if
    nothing was shown at all. What goes in is as for `Quantile`.

    Parameters:
        budget: what all of it may cost; it needs a delta.
        quantiles: which quantiles, between 0 and 1; there may be none, if there are ranges.
        lo, hi: the public ends, as for `Quantile`.
        ranges: pairs low, high, to count users in (default: none). Their ends move to the edge of a part
            (`SampledTree.range_counts`).
        levels: of the tree (default: 10). More are finer, and sample fewer users each.
        branching: the children of a node (default: 2). More make fewer levels for as many parts, with more nodes to add up.
        sample: as for `SampledHistogram`.
        user, value, count, drop_null, where, join, on: as for `Quantile`.
        relation, release, shards, output_files: as for `Histogram`.
    """

    mechanism: Hierarchy

    def __init__(
        self,
        budget: Budget,
        quantiles: Sequence[float],
        lo: Value,
        hi: Value,
        *,
        ranges: Sequence[Range] = (),
        levels: int = 10,
        branching: int = 2,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        shards: int | None = None,
        output_files: int | None = None,
        user: str = "user",
        value: str = "value",
        count: str | None = None,
        drop_null: bool = False,
        where: str | None = None,
        join: Any = None,
        on: str | None = None,
        sample: str | None = None,
    ) -> None:
        made = tree_over_values(
            budget,
            quantiles,
            lo,
            hi,
            ranges=ranges,
            levels=levels,
            branching=branching,
            relation=Relation.parse(relation),
        )
        self._asked, self._sample = made, check_sample(sample)
        super().__init__(
            made.tree,
            made.axis,
            release=release,
            shards=shards,
            output_files=output_files,
            user=user,
            value=value,
            count=count,
            drop_null=drop_null,
            where=where,
            join=join,
            on=on,
        )

    def expand(self, rows: beam.PCollection) -> beam.PCollection | QuantilesAndRanges:
        release, _ = self._drawn(rows)
        plan = self.mechanism
        key = SampleKey(plan, release, sample_name(rows, self._sample, *filter(None, self._columns)))
        nodes = self._bounded(rows, key.choices, CHOICES) | "Sampled" >> Sampled(plan, key, self._shards, 1)
        # All from here on works on released nodes only: (0, record batch).
        made = []
        if self._asked.quantiles:
            values = nodes | "Quantiles" >> beam.Map(_quantiles, self._asked).with_output_types(pa.RecordBatch)
            made.append(values | "QuantileRows" >> _Rows(self.axis, self._output_files, QuantileValue, QuantileTime))
        if self._asked.ranges:
            counts = nodes | "Ranges" >> beam.Map(_ranges, self._asked).with_output_types(pa.RecordBatch)
            made.append(counts | "RangeRows" >> _Rows(self.axis, self._output_files, RangeCount, RangeTimeCount))
        return QuantilesAndRanges(*made) if len(made) == 2 else made[0]


class _Rows(beam.PTransform):
    """One record batch of a few released rows, as the caller wants it: rows, or all of them in the first file."""

    def __init__(self, axis: Axis, output_files: int | None, number: type, time: type) -> None:
        super().__init__()
        self._output_files, self._row = output_files, number if axis.kind == "number" else time

    def expand(self, batch: beam.PCollection) -> beam.PCollection:
        files = batch | "InFirst" >> beam.FlatMap(in_first, self._output_files or 1).with_output_types(
            tuple[int, pa.RecordBatch]
        )
        return files if self._output_files is not None else files | "ToRows" >> ToRows(self._row)


class _Search(beam.DoFn):
    """(0, sums of leaves) -> (0, Arrow stream of the found quantile)."""

    def __init__(self, key: SampleKey, plan: QuantileSearch) -> None:
        self._key, self._plan = key, plan

    def setup(self) -> None:
        self._keys = window_keys(self._key.choices)

    def process(
        self, group: tuple[int, Iterable[bytes]], origins: list[Origin], window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[tuple[int, bytes]]:
        yield 0, to_ipc(self._plan.search([chunk for chunk in group[1] if chunk], origins, self._keys(window).key))


def _added(_: int, chunks: Iterable[bytes]) -> tuple[int, bytes]:
    return 0, add_leaves(chunks)


def _quantiles(nodes: tuple[int, pa.RecordBatch], asked: TreeOverValues) -> pa.RecordBatch:
    return asked.quantile_rows(nodes[1])


def _ranges(nodes: tuple[int, pa.RecordBatch], asked: TreeOverValues) -> pa.RecordBatch:
    return asked.range_rows(nodes[1])
