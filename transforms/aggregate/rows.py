"""The rows of an aggregate: the key columns, and the numbers of all metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Optional

import apache_beam as beam
import pyarrow as pa
from apache_beam.typehints.row_type import RowTypeConstraint

from headcount.mechanisms.columns.keys import ITEM, Keys
from headcount.transforms.keyed.rows import field_types, field_values, is_named_by_columns

_NULLABLE = Optional[float]  # noqa: UP045 - `float | None` is no number to Beam's schemas


class ToMetricRows(beam.PTransform):
    """(file, record batch with the key columns) -> rows with the key columns and the numbers of all metrics."""

    def __init__(self, keys: Keys, numbers: Sequence[str], nullable: frozenset[str] = frozenset()) -> None:
        super().__init__()
        named, fields = [ITEM], [(ITEM, keys.item_type)]
        if is_named_by_columns(keys):
            named, fields = list(keys.schema.names), field_types(keys, numbers)
        self._columns = [*named, *numbers]
        self._fields = [*fields, *((name, _NULLABLE if name in nullable else float) for name in numbers)]

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        names = [name for name, _ in self._fields]
        row = RowTypeConstraint.from_fields(self._fields)
        return batches | "Split" >> beam.FlatMap(_rows, self._columns, names).with_output_types(row)


def _rows(file: tuple[int, pa.RecordBatch], columns: list[str], names: list[str]) -> Iterator[Any]:
    _, batch = file
    for values in zip(*(field_values(batch.column(column)) for column in columns), strict=True):
        yield beam.Row(**dict(zip(names, values, strict=True)))
