"""Files that arrive, as a collection of batches in public windows of time.

Each file is read once, by its name. A row is in the window of its time, and in no other. One beyond the public windows, or in a
window that is published already, is dropped. So is one whose file comes when its window is over: how many is a secret.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.columns.fields import field_of, is_string
from headcount.mechanisms.columns.key_column import KeyColumn
from headcount.mechanisms.columns.times import seconds_of
from headcount.mechanisms.randomness.windows import Windows
from headcount.pipelines.sources import matching
from headcount.pipelines.sources.columns import Columns, ColumnTypes, place_of
from headcount.pipelines.sources.events import Inputs, Task, read_batches
from headcount.pipelines.streams.looks import LookForFiles, Looks

FIRST_ROW = b"headcount.first_row"
_LAST = Duration(micros=1000)  # what the last moment of a window is before its end: times travel in milliseconds


@dataclasses.dataclass(frozen=True)
class Arriving:
    """What arrives: which files, when to look for them, and which windows are published already, by their ends."""

    patterns: tuple[str, ...]
    looks: Looks
    format: str | None = None
    published: frozenset[int] = frozenset()
    drop_null: bool = False


@beam.typehints.with_output_types(pa.RecordBatch)
class ReadArriving(beam.PTransform):
    """The events of all files, those that are there and those that come, as batches of one window each.

    `inputs` are the files that are there now, by which all others are read.
    """

    def __init__(self, arriving: Arriving, inputs: Inputs, columns: Columns, types: ColumnTypes) -> None:
        super().__init__()
        self._arriving, self._inputs = arriving, inputs
        self._columns, self._types = columns, types

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[pa.RecordBatch]:
        windows = self._arriving.looks.windows
        return (
            begin
            | "Looks" >> beam.Create([self._arriving.looks], reshuffle=False)
            | "Files" >> beam.ParDo(LookForFiles(self._arriving.patterns))
            # No shuffle: rows and the clock come from one step, so that no runner can have the clock ahead of them.
            | "Batches" >> beam.ParDo(_Read(self._arriving, self._inputs, self._columns, self._types))
            | "Windows" >> beam.WindowInto(FixedWindows(windows.size, windows.start % windows.size))
        )


@beam.typehints.with_input_types(str)
@beam.typehints.with_output_types(pa.RecordBatch)
class _Read(beam.DoFn):
    """Reads a file; stamps each batch with the last moment of its window, which tells nothing of its rows' times."""

    def __init__(self, arriving: Arriving, inputs: Inputs, columns: Columns, types: ColumnTypes) -> None:
        self._arriving, self._format, self._delimiter = arriving, inputs.format, inputs.delimiter
        self._columns, self._types = columns, types

    def process(self, path: str) -> Iterator[TimestampedValue]:
        matching.format_of(self._arriving.patterns, [self._types.file, path], self._arriving.format)
        windows = self._arriving.looks.windows
        for batch in read_batches(Task(path, self._format, delimiter=self._delimiter), self._columns, self._types):
            for end, rows in in_windows(batch, str(self._columns.time), windows, self._arriving.drop_null):
                if end not in self._arriving.published:
                    yield TimestampedValue(rows, Timestamp(end) - _LAST)


def in_windows(
    batch: pa.RecordBatch, time: str, windows: Windows, drop_null: bool
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each window that has some, with its end, by a column of times; others are dropped.

    A row without a time is refused, or dropped by `drop_null`.
    """
    place = place_of(batch)
    at = _seconds(batch.column(time), time, place)
    known = np.asarray(at.is_valid())
    if not known.all() and not drop_null:
        why = "holds a null, and a row without a time is in no window: --drop-null drops such rows"
        raise place.error(time, why, int(np.argmin(known)))
    number = (np.asarray(at.fill_null(windows.start - 1)) - windows.start) // windows.size
    number = np.where((number >= 0) & (number < windows.number), number, -1)
    for each in np.unique(number[number >= 0]):
        yield windows.start + (int(each) + 1) * windows.size, _some(batch, number == each)


def _seconds(column: pa.Array, name: str, place: Place) -> pa.Array:
    """Seconds since 1970, null where the column is; refuses a column that holds no times, without a value of it."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if pa.types.is_null(column.type):
        return column.cast(pa.int64())
    field_of(KeyColumn(name, "day"), column.type, f"{place.file}: ")
    return seconds_of(column.cast(pa.string()) if is_string(column.type) else column, "day", name, place)


def _some(batch: pa.RecordBatch, chosen: np.ndarray) -> pa.RecordBatch:
    """Some rows of a batch; if they are not all, they are no longer numbered."""
    if chosen.all():
        return batch
    told = {name: value for name, value in (batch.schema.metadata or {}).items() if name != FIRST_ROW}
    return batch.filter(pa.array(chosen)).replace_schema_metadata(told)
