"""From record batches to rows, for every type of row that is released."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa


class ToRows(beam.PTransform):
    """(partition, record batch) -> rows of this type, whose fields are columns of the batch."""

    def __init__(self, row: Any) -> None:
        super().__init__()
        self._row = row

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        return batches | "Split" >> beam.FlatMap(_rows, self._row).with_output_types(self._row)


def _rows(partition: tuple[int, pa.RecordBatch], row: Any) -> Iterator[NamedTuple]:
    _, batch = partition
    return map(row, *(batch.column(name).to_pylist() for name in row._fields))
