"""The rows in which items are ranked. (No postponed annotations here: Beam derives the schema from the types.)"""

from collections.abc import Iterator
from typing import NamedTuple

import apache_beam as beam
import pyarrow as pa


class RankedItem(NamedTuple):
    """An item named by a string, and its rank by the number of its users; ranks begin at 1."""

    rank: int
    item: str


class RankedIntItem(NamedTuple):
    """An item that is an integer, and its rank by the number of its users; ranks begin at 1."""

    rank: int
    item: int


beam.coders.registry.register_coder(RankedItem, beam.coders.RowCoder)
beam.coders.registry.register_coder(RankedIntItem, beam.coders.RowCoder)


class ToRanks(beam.PTransform):
    """(partition, record batch of rank and item) -> rows of `item_type`."""

    def __init__(self, item_type: type) -> None:
        super().__init__()
        self._row = RankedIntItem if item_type is int else RankedItem

    def expand(self, ranks: beam.PCollection) -> beam.PCollection:
        return ranks | "Split" >> beam.FlatMap(_rows, self._row).with_output_types(self._row)


def _rows(partition: tuple[int, pa.RecordBatch], row: type) -> Iterator[NamedTuple]:
    return map(row, *(partition[1].column(name).to_pylist() for name in ("rank", "item")))
