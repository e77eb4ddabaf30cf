"""The rows in which items are named. (No postponed annotations here: Beam derives the schema from the types.)"""

from collections.abc import Iterator
from typing import NamedTuple

import apache_beam as beam
import pyarrow as pa


class NamedItem(NamedTuple):
    """An item, a string, that may be named."""

    item: str


class NamedIntItem(NamedTuple):
    """An item, an integer, that may be named."""

    item: int


beam.coders.registry.register_coder(NamedItem, beam.coders.RowCoder)
beam.coders.registry.register_coder(NamedIntItem, beam.coders.RowCoder)


class ToNames(beam.PTransform):
    """(partition, record batch of item) -> rows of `item_type`."""

    def __init__(self, item_type: type) -> None:
        super().__init__()
        self._row = NamedIntItem if item_type is int else NamedItem

    def expand(self, names: beam.PCollection) -> beam.PCollection:
        return names | "Split" >> beam.FlatMap(_rows, self._row).with_output_types(self._row)


def _rows(partition: tuple[int, pa.RecordBatch], row: type) -> Iterator[NamedTuple]:
    return map(row, partition[1].column("item").to_pylist())
