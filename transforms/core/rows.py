"""The rows that transforms give. (No postponed annotations here: Beam derives the schemas from the types.)"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.batches.packing import from_ipc, to_ipc
from headcount.mechanisms.columns.keys import Keys
from headcount.mechanisms.counting.largest import Largest
from headcount.mechanisms.counting.quality import Quality


class ToRows(beam.PTransform):
    """(file, record batch) -> rows of this type, whose fields are columns of the batch."""

    def __init__(self, row: Any) -> None:
        super().__init__()
        self._row = row

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        return batches | "Split" >> beam.FlatMap(_rows, self._row).with_output_types(self._row)


def _rows(file: tuple[int, pa.RecordBatch], row: Any) -> Iterator[NamedTuple]:
    _, batch = file
    # Beam's --runtime_type_check uses up an iterator that is no generator, and hands on none of it.
    yield from map(row, *(batch.column(name).to_pylist() for name in row._fields))


class KeepGood(beam.PTransform):
    """(file, released rows with a count) -> those that are good enough; all, where no limit is given."""

    def __init__(self, quality: Quality) -> None:
        super().__init__()
        self._quality = quality

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        if not self._quality.limits:
            return batches
        return batches | "Keep" >> beam.Map(_kept, self._quality).with_output_types(tuple[int, pa.RecordBatch])


def _kept(file: tuple[int, pa.RecordBatch], quality: Quality) -> tuple[int, pa.RecordBatch]:
    number, batch = file
    return number, quality.keep(batch)


class KeepLargest(beam.PTransform):
    """(file, released rows with an item and a count) -> the largest of all files together, each in its own; all, where no
    number is given."""

    def __init__(self, largest: Largest, keys: Keys) -> None:
        super().__init__()
        self._largest, self._keys = largest, keys

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        if self._largest.top is None:
            return batches
        return (
            batches
            | "Together" >> beam.MapTuple(_together).with_output_types(tuple[int, tuple[int, bytes]])
            | "AllFiles" >> beam.GroupByKey()
            | "Keep"
            >> beam.FlatMap(_kept_largest, self._largest, self._keys).with_output_types(tuple[int, pa.RecordBatch])
        )


def _together(number: int, batch: pa.RecordBatch) -> tuple[int, tuple[int, bytes]]:
    return 0, (number, to_ipc(batch))


def _kept_largest(
    files: tuple[int, Iterable[tuple[int, bytes]]], largest: Largest, keys: Keys
) -> Iterator[tuple[int, pa.RecordBatch]]:
    numbers, streams = zip(*sorted(files[1]), strict=True)
    yield from zip(numbers, largest.keep([from_ipc(stream) for stream in streams], keys), strict=True)


class NoisyCount(NamedTuple):
    """A noisy count, of an item named by a string, of what was left after bounding: the true number may be far above it.

    `noise_stddev` is the noise's standard deviation, and `low` to `high` hold 95 % of the noise.
    """

    item: str
    bounded_count: float
    noise_stddev: float
    low: float
    high: float


class NoisyIntCount(NamedTuple):
    """The same for an item that is an integer."""

    item: int
    bounded_count: float
    noise_stddev: float
    low: float
    high: float


class Estimate(NamedTuple):
    """An estimate of the true number of an item named by a string, made of a noisy `bounded_count`.

    `noise_stddev` is the standard deviation of the noise in the estimate, and `low` to `high` hold 95 % of that noise. They do
    not speak of what the estimate assumes.
    """

    item: str
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    noise_stddev: float
    low: float
    high: float
    bounded_count: float


class IntEstimate(NamedTuple):
    """The same for an item that is an integer."""

    item: int
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    noise_stddev: float
    low: float
    high: float
    bounded_count: float


beam.coders.registry.register_coder(NoisyCount, beam.coders.RowCoder)
beam.coders.registry.register_coder(NoisyIntCount, beam.coders.RowCoder)
beam.coders.registry.register_coder(Estimate, beam.coders.RowCoder)
beam.coders.registry.register_coder(IntEstimate, beam.coders.RowCoder)


def count_row(item_type: type) -> type:
    """The type of a noisy count's row."""
    return NoisyIntCount if item_type is int else NoisyCount


class TotalCount(NamedTuple):
    """A noisy number of users or events (`of`), each user with `bound` of them at most; low .. high holds 95 % of the noise."""

    of: str
    bound: int
    bounded_count: float
    noise_stddev: float
    low: float
    high: float


beam.coders.registry.register_coder(TotalCount, beam.coders.RowCoder)


def estimate_row(item_type: type) -> type:
    """The type of an estimate's row."""
    return IntEstimate if item_type is int else Estimate


class NamedItem(NamedTuple):
    """An item, a string, that may be named."""

    item: str


class NamedIntItem(NamedTuple):
    """An item, an integer, that may be named."""

    item: int


beam.coders.registry.register_coder(NamedItem, beam.coders.RowCoder)
beam.coders.registry.register_coder(NamedIntItem, beam.coders.RowCoder)


class ItemProbability(NamedTuple):
    """The probability of an item named by a string; `error` is how far off it is to be expected, on average."""

    item: str
    probability: float
    error: float


class IntItemProbability(NamedTuple):
    """The probability of an item that is an integer; `error` is how far off it is to be expected, on average."""

    item: int
    probability: float
    error: float


beam.coders.registry.register_coder(ItemProbability, beam.coders.RowCoder)
beam.coders.registry.register_coder(IntItemProbability, beam.coders.RowCoder)


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


class SampledCount(NamedTuple):
    """An item named by a string, and the estimate of its users, from the number of `sampled` ones.

    `low` to `high` has the number of users for whom the item counts in 95 % of cases or more, and `noise_stddev` is a standard
    deviation; both are of the sampling alone.
    """

    item: str
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    noise_stddev: float
    low: float
    high: float
    sampled: int


class SampledIntCount(NamedTuple):
    """The same for an item that is an integer."""

    item: int
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    noise_stddev: float
    low: float
    high: float
    sampled: int


class QuantileValue(NamedTuple):
    """A quantile of numbers, between `low` and `high` with a chance of 95 %; `rank_stddev` is the error of the value's rank, as
    a share of all users, also where many of them have one value."""

    quantile: float
    value: float
    low: float
    high: float
    rank_stddev: float


class QuantileTime(NamedTuple):
    """A quantile of dates or times, as ISO 8601 text in UTC; `rank_stddev` as for `QuantileValue`."""

    quantile: float
    value: str
    low: str
    high: str
    rank_stddev: float


class RangeCount(NamedTuple):
    """The estimated number of users with a value in low <= x < high, and its standard deviation."""

    low: float
    high: float
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    noise_stddev: float


class RangeTimeCount(NamedTuple):
    """The same for dates or times, as ISO 8601 text in UTC."""

    low: str
    high: str
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    noise_stddev: float


for _row in (SampledCount, SampledIntCount, QuantileValue, QuantileTime, RangeCount, RangeTimeCount):
    beam.coders.registry.register_coder(_row, beam.coders.RowCoder)


class ItemsWithCount(NamedTuple):
    """How many items have this count; `error` is about how far these counts are from the truth, added up."""

    count: int  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    items: int
    error: float


class ShapeProperty(NamedTuple):
    """A number that says something of a whole shape; `noise_stddev` is that of the noise alone."""

    property: str
    value: float
    noise_stddev: float


class DistinctCount(NamedTuple):
    """The number of distinct items: `low` and `high` are its limits at 95 %, and `noise_stddev` is that of the noise. A user of
    more than `max_items` gave each a part of its weight; `high` is None where some may have more."""

    count: int  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    noise_stddev: float
    low: int
    high: int | None
    max_items: int


beam.coders.registry.register_coder(DistinctCount, beam.coders.RowCoder)
beam.coders.registry.register_coder(ItemsWithCount, beam.coders.RowCoder)
beam.coders.registry.register_coder(ShapeProperty, beam.coders.RowCoder)


class ToShapeRows(beam.PTransform):
    """Record batch -> `row`s of it; with `output_files` (k, record batch) for each k, with all rows in the first."""

    def __init__(self, row: type, output_files: int | None = None) -> None:
        super().__init__()
        self._row, self._output_files = row, output_files

    def expand(self, batch: beam.PCollection) -> beam.PCollection:
        every = batch | "InFirst" >> beam.FlatMap(in_first, self._output_files or 1).with_output_types(
            tuple[int, pa.RecordBatch]
        )
        return every if self._output_files is not None else every | ToRows(self._row)


def in_first(batch: pa.RecordBatch, output_files: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """(file, rows) for every file, with all rows in the first: where they are too few to be cut."""
    yield 0, batch
    for file in range(1, output_files):
        yield file, batch.slice(0, 0)
