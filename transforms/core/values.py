"""`Values`: the way in for numbers, dates and times. Rows of many kinds become batches of (user, leaf of a public grid)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.utils.timestamp import Timestamp

from headcount.mechanisms.batches.contributions import MAX_ITEM_BYTES, Place, column_of
from headcount.mechanisms.batches.shards import CONTRIBUTIONS
from headcount.mechanisms.errors import InputError
from headcount.mechanisms.sampled.axis import Axis, leaf_column, value_column
from headcount.mechanisms.sampled.leaves import Leaves
from headcount.transforms.core.contributions import ContributionBatch, _Columns, _ToBatches, check_whole


class Values(beam.PTransform):
    """Turns rows with a user and a value into contributions whose items are the numbers of leaves.

    Rows are those of `Contributions`, with values in place of items: numbers, or dates or times as the axis says, or texts of
    these; a `count` says how many rows a row stands for. Values outside the grid count as its ends. Null users, null values and
    NaN are refused unless `drop_null`.
    """

    def __init__(
        self, axis: Axis, leaves: Leaves, user: str, value: str, count: str | None, drop_null: bool = False
    ) -> None:
        super().__init__()
        self._axis, self._leaves = axis, leaves
        self._columns = _Columns(user, value, count, drop_null, MAX_ITEM_BYTES)

    def expand(self, rows: beam.PCollection) -> beam.PCollection[ContributionBatch]:
        check_whole(rows)
        columns = self._columns
        if rows.element_type is ContributionBatch:  # whose columns have other names by now
            columns = dataclasses.replace(columns, user="user", item="item", count=None)
        return rows | "ToLeaves" >> beam.ParDo(_ToLeaves(columns, self._axis, self._leaves)).with_output_types(
            ContributionBatch
        )


class _ToLeaves(_ToBatches):
    """Does what `Contributions` does, with each value's leaf as the item."""

    def __init__(self, columns: _Columns, axis: Axis, leaves: Leaves) -> None:
        super().__init__(columns)
        self._axis, self._leaves = axis, leaves

    def _append(self, row: Any, kind: str) -> None:
        try:
            super()._append(row, kind)
        except InputError:
            c = self._columns
            wanted = ", ".join(repr(name) for name in (c.user, c.item, c.count) if name is not None)
            raise InputError(
                f"a row has not the fields {wanted}; "
                "name them by user=, value= and count=, or give (user, value) or (user, value, count) tuples"
            ) from None

    def _flush(self) -> pa.RecordBatch:
        place = self._place({})
        user = column_of(self._users, place.user, place)
        if any(isinstance(each, Timestamp) for each in self._items):  # as Beam's schemas hold times
            self._items = [each.to_utc_datetime() if isinstance(each, Timestamp) else each for each in self._items]
        value = value_column(self._items, place.item, place)
        count = column_of(self._counts, place.count, place, counts=True) if self._counts else None
        self._users, self._items, self._counts = [], [], []
        return self._batch(user, value, count, place)

    def _from_arrow(self, data: pa.RecordBatch | pa.Table) -> Iterator[pa.RecordBatch]:
        metadata = data.schema.metadata or {}
        if CONTRIBUTIONS not in metadata:
            yield from super()._from_arrow(data)
            return
        # Checked already, but its items are values. Its counts are where they belong, unless all are 1.
        c = self._columns
        count = data.column("count") if "count" in data.schema.names else None
        yield self._batch(data.column(c.user), data.column(c.item), count, self._place(metadata))

    def _batch(self, user: pa.Array, item: pa.Array, count: pa.Array | None, place: Place) -> pa.RecordBatch:
        c = self._columns
        leaf = leaf_column(item, self._axis, self._leaves, c.item, c.drop_null, place)
        return super()._batch(user, leaf, count, place)
