"""Barriers: what is drawn may be drawn again, since a runner may repeat a step, so all readers stand beyond a GroupByKey.

A runner keeps what goes into a shuffle. So whatever reads a draw beyond one reads the same, however often the step before
it runs. Nothing may be taken from a draw itself. These are functions, and no transforms, so that labels stay as they are.
"""

from __future__ import annotations

import collections
import inspect
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow

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


def with_beside(rows: beam.PCollection, label: str, step: Any, parts: int = 1) -> Any:
    """A step that has side inputs. In a stream these come in one group with its rows, or in so many of them, by row.

    Flink's runner cannot write side inputs of a stream into a checkpoint, and holds a window back until the end where one of
    them is empty. Prism may hand them out before they are there. A GroupByKey has none of these.
    """
    inner = getattr(step, "_do_transform", step)
    beside, _ = inner.raw_side_inputs
    sides = [each for each in beside if isinstance(each, beam.pvalue.AsSideInput)]
    if rows.is_bounded or not sides:
        return rows | label >> step
    kind = tuple[int, tuple[int, Any]]
    every = [rows | f"{label}Rows" >> beam.Map(_in_part, parts).with_output_types(kind)]
    for number, side in enumerate(sides, 1):
        every.append(
            side.pvalue | f"{label}Beside{number}" >> beam.FlatMap(_in_all, number, parts).with_output_types(kind)
        )
    grouped = every | f"{label}Together" >> beam.Flatten() | f"{label}Group" >> beam.GroupByKey()
    order = [_Beside.of(each, sides) for each in beside]
    made = beam.ParDo(_Grouped(inner.fn, order)).with_output_types(inner.get_type_hints().simple_output_type(label))
    if inner is not step:
        made = made.with_outputs(*step._tags, main=step._main_tag)
    return grouped | label >> made


class _Beside(NamedTuple):
    """An argument of a step: a value, or what is there under a number, one or a list."""

    value: Any
    number: int
    is_one: bool

    @classmethod
    def of(cls, argument: Any, sides: list[Any]) -> _Beside:
        if not isinstance(argument, beam.pvalue.AsSideInput):
            return cls(argument, 0, False)
        return cls(None, sides.index(argument) + 1, isinstance(argument, beam.pvalue.AsSingleton))

    def found(self, beside: dict[int, list[Any]]) -> Any:
        if not self.number:
            return self.value
        values = beside.get(self.number, [])
        if not self.is_one:
            return values
        (one,) = values
        return one


class _Grouped(beam.DoFn):
    """(part, rows and what is beside them) -> what a step makes of each of these rows."""

    def __init__(self, step: beam.DoFn, order: list[_Beside]) -> None:
        self._step, self._order = step, order
        self._in_window = "window" in inspect.signature(step.process).parameters

    def setup(self) -> None:
        self._step.setup()

    def start_bundle(self) -> None:
        self._step.start_bundle()

    def process(self, group: tuple[int, Any], window: BoundedWindow = beam.DoFn.WindowParam) -> Iterator[Any]:
        beside: dict[int, list[Any]] = collections.defaultdict(list)
        for number, value in group[1]:
            beside[number].append(value)
        rows = beside[0]
        if not rows:
            return
        arguments = [each.found(beside) for each in self._order]
        more = {"window": window} if self._in_window else {}
        for row in rows:
            yield from self._step.process(row, *arguments, **more) or ()

    def finish_bundle(self) -> Iterator[Any]:
        yield from self._step.finish_bundle() or ()


def _in_part(row: Any, parts: int) -> tuple[int, tuple[int, Any]]:
    """A row with the part that it goes to: by its own number, or by its bytes."""
    if type(row) is tuple and not isinstance(row[1], bytes | pa.RecordBatch):
        row = row[0], list(row[1])  # what a GroupByKey gave
    if parts == 1:
        return 0, (0, row)
    return (zlib.crc32(row) if isinstance(row, bytes) else row[0]) % parts, (0, row)


def _in_all(value: Any, number: int, parts: int) -> Iterator[tuple[int, tuple[int, Any]]]:
    return ((part, (number, value)) for part in range(parts))


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
