"""The rows of anonymized histograms. (No postponed annotations here: Beam derives the schema from the types.)"""

from collections.abc import Iterator
from typing import NamedTuple

import apache_beam as beam
import pyarrow as pa

from headcount.transforms.rows import ToRows


class ItemsWithCount(NamedTuple):
    """So many items have this count; `error` is by how much the counts of these items are off in sum, about."""

    count: int  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    items: int
    error: float


class ShapeProperty(NamedTuple):
    """A number that says something of a whole shape; `stddev` is that of the noise alone."""

    property: str
    value: float
    stddev: float


beam.coders.registry.register_coder(ItemsWithCount, beam.coders.RowCoder)
beam.coders.registry.register_coder(ShapeProperty, beam.coders.RowCoder)


class ToShapeRows(beam.PTransform):
    """Record batch -> `row`s of it; with `partitions` (k, record batch) for each k, with all rows in the first."""

    def __init__(self, row: type, partitions: int | None = None) -> None:
        super().__init__()
        self._row, self._partitions = row, partitions

    def expand(self, batch: beam.PCollection) -> beam.PCollection:
        every = batch | "InFirst" >> beam.FlatMap(_in_first, self._partitions or 1).with_output_types(
            tuple[int, pa.RecordBatch]
        )
        return every if self._partitions is not None else every | ToRows(self._row)


def _in_first(batch: pa.RecordBatch, partitions: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    yield 0, batch
    for partition in range(1, partitions):
        yield partition, batch.slice(0, 0)
