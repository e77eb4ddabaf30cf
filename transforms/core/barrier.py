"""Barriers: what is drawn may be drawn again, since a runner may repeat a step, so all readers stand beyond a GroupByKey.

A runner keeps what goes into a shuffle. So whatever reads a draw beyond one reads the same, however often the step before
it runs. Nothing may be taken from a draw itself. These are functions, and no transforms, so that labels stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.batches.packing import from_ipc, to_ipc
from headcount.mechanisms.counting.released import sorted_counts
from headcount.transforms.core.windows import every


def beyond_barrier(drawn: beam.PCollection, empty: pa.RecordBatch, output_files: int) -> beam.PCollection:
    """(file, Arrow streams), drawn -> the same beyond a barrier, for every file: one without rows has the `empty` ones."""
    every_file = every(drawn, "EveryPartition", [(file, to_ipc(empty)) for file in range(output_files)])
    return barrier((drawn, every_file) | "WithEveryPartition" >> beam.Flatten())


def barrier(drawn: beam.PCollection) -> beam.PCollection:
    """(file, Arrow streams), drawn -> the same beyond a barrier: where all files are drawn, or none of them is missed."""
    return drawn | "Barrier" >> beam.GroupByKey()


def sorted_by_item(streams: beam.PCollection) -> beam.PCollection:
    """(file, Arrow streams) -> (file, record batch), sorted: in this order nothing shows how rows were sharded."""
    return streams | "SortByItem" >> beam.MapTuple(_sorted_file).with_output_types(tuple[int, pa.RecordBatch])


def one_beyond_barrier(drawn: beam.PCollection, result: type, barrier: str, label: str) -> beam.PCollection:
    """(0, the one result) -> the result, beyond a barrier; `barrier` and `label` name its two steps."""
    return drawn | barrier >> beam.GroupByKey() | label >> beam.MapTuple(_only).with_output_types(result)


def rows_beyond_barrier(
    drawn: beam.PCollection, label: str, shown: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
) -> beam.PCollection:
    """(0, the one Arrow stream) -> its record batch, as it is `shown`, beyond a barrier; `label` names the step behind it."""
    return (
        drawn
        | "Barrier" >> beam.GroupByKey()
        | label >> beam.MapTuple(_only_rows, shown).with_output_types(pa.RecordBatch)
    )


def beside(values: beam.PCollection, label: str) -> beam.PCollection:
    """The same for side inputs alone: Beam's local runner may lose them where a collection is a step's main input as well."""
    return values | label >> beam.Map(_same).with_output_types(values.element_type)


def _same(value: Any) -> Any:
    return value


def _sorted_file(file: int, chunks: Iterable[bytes]) -> tuple[int, pa.RecordBatch]:
    return file, sorted_counts(chunks)


def _only(_: int, results: Iterable[Any]) -> Any:
    return next(iter(results))


def _only_rows(
    _: int, streams: Iterable[bytes], shown: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
) -> pa.RecordBatch:
    rows = from_ipc(next(iter(streams)))
    return rows if shown is None else shown(rows)
