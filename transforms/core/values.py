"""`Values`: the way in for numbers, dates and times. Rows of many kinds become batches of (user, leaf of a public grid)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.columns.key_column import KeyColumn
from headcount.mechanisms.columns.preparation import Preparation
from headcount.mechanisms.columns.row_schema import RowSchema
from headcount.mechanisms.sampled.axis import Axis, leaf_column
from headcount.mechanisms.sampled.leaves import Leaves
from headcount.transforms.core.contributions import (
    ContributionBatch,
    _ToBatches,
    is_contributions,
    prepared_before,
)
from headcount.transforms.core.windows import check_windowing
from headcount.transforms.keyed.elements import prepared_for


class Values(beam.PTransform):
    """Turns rows with a user and a value into contributions whose items are the numbers of leaves.

    Rows are those of `Contributions`, with values in place of items: numbers, or dates or times as the axis says, or texts of
    these; a `count` says how many rows a row stands for. Values outside the grid count as its ends. Null users, null values and
    NaN are refused unless `drop_null`. Rows are prepared before all else.
    """

    def __init__(self, axis: Axis, leaves: Leaves, row_schema: RowSchema) -> None:
        super().__init__()
        self._axis, self._leaves, self._row_schema = axis, leaves, row_schema

    def expand(self, rows: beam.PCollection) -> beam.PCollection[ContributionBatch]:
        check_windowing(rows)
        row_schema = self._row_schema
        if is_contributions(rows):  # whose columns have other names by now
            if row_schema.prepare:
                raise prepared_before()
            row_schema = dataclasses.replace(row_schema, user="user", items=(KeyColumn("item"),), count=None)
        row_schema = prepared_for(row_schema, rows)
        return rows | "ToLeaves" >> beam.ParDo(_ToLeaves(row_schema, self._axis, self._leaves)).with_output_types(
            ContributionBatch
        )


class _ToLeaves(_ToBatches):
    """Does what `Contributions` does, with each value's leaf as the item."""

    def __init__(self, row_schema: RowSchema, axis: Axis, leaves: Leaves) -> None:
        super().__init__(row_schema)
        self._axis, self._leaves = axis, leaves

    def _wanted(self) -> str:
        return (
            f"a row lacks one of the fields {', '.join(map(repr, self._row_schema.columns))}; "
            "name them by user=, value= and count=, or give (user, value) or (user, value, count) tuples"
        )

    def _again(self, checked: pa.RecordBatch | pa.Table) -> Iterator[pa.RecordBatch]:
        # Checked already, but its items are values. Its counts are where they belong, unless all are 1.
        columns = {name: checked.column(name) for name in checked.schema.names}
        row_schema = dataclasses.replace(self._row_schema, count="count" if "count" in columns else None)
        yield self._batch(columns, self._place({}), row_schema)

    def _batch(self, columns: Mapping[str, pa.Array], place: Place, row_schema: RowSchema) -> pa.RecordBatch:
        (value,) = row_schema.sources
        columns, place = row_schema.prepare.prepared(columns, row_schema.named, place)
        row_schema = dataclasses.replace(row_schema, prepare=Preparation())
        leaf = leaf_column(columns[value], self._axis, self._leaves, value, row_schema.drop_null, place)
        return super()._batch({**columns, value: leaf}, place, row_schema)
