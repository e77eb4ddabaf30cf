"""The rows that histograms release. (No postponed annotations here: Beam derives the schema from the types.)"""

from collections.abc import Iterator
from typing import NamedTuple

import apache_beam as beam
import pyarrow as pa


class NoisyCount(NamedTuple):
    """A released count of an item named by a string; `stddev` is that of the noise alone."""

    item: str
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    stddev: float


class NoisyIntCount(NamedTuple):
    """A released count of an item that is an integer; `stddev` is that of the noise alone."""

    item: int
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    stddev: float


beam.coders.registry.register_coder(NoisyCount, beam.coders.RowCoder)
beam.coders.registry.register_coder(NoisyIntCount, beam.coders.RowCoder)


class ToRows(beam.PTransform):
    """(partition, record batch of item, count, stddev) -> rows of `item_type`."""

    def __init__(self, item_type: type) -> None:
        super().__init__()
        self._row = NoisyIntCount if item_type is int else NoisyCount

    def expand(self, counts: beam.PCollection) -> beam.PCollection:
        return counts | "Split" >> beam.FlatMap(_rows, self._row).with_output_types(self._row)


def _rows(partition: tuple[int, pa.RecordBatch], row: type) -> Iterator[NamedTuple]:
    _, counts = partition
    return map(row, *(counts.column(name).to_pylist() for name in ("item", "count", "stddev")))
