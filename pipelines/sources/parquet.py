"""Parquet files as batches of events.

Strings that the file holds as codes of a dictionary are read as these, and stay so on their way to the shards: a column that
repeats itself is then never spelled out. Others are read plain. Parquet ends a dictionary where it gets too large, and to read
the rest of such a column as codes took three times as long where nearly every user of a row group is another one. What is
counted is the same either way.

Row groups that, by their statistics, have no row for which a condition holds are not read. That also changes nothing of what is
counted, and if a time or a log tells of it, it tells whoever runs the job.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from headcount.mechanisms.columns.conditions import ColumnRange
from headcount.mechanisms.columns.nested import column_at, found_type
from headcount.pipelines.sources.columns import (
    ROWS_PER_BATCH,
    Columns,
    ColumnTypes,
    check_agreement,
    event_batch,
    found_types,
)
from headcount.pipelines.sources.files import guarded, reading
from headcount.pipelines.sources.hive import folder_columns, folder_value
from headcount.pipelines.storage.stores import is_local, open_ranges

KIND = "Parquet"
ROWS_PER_TASK = 2_000_000
ROWS_HERE = 2**20  # of a batch of a whole file, whose rows may all wait in this process beside it
BYTES_PER_BATCH = 2**28  # encoded: bounds the memory where names are long
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_DICTIONARY_BYTES, _CODE_BYTES = 5 << 18, 3  # of a dictionary, which writers end at 2^20, and of a code, at most


class Groups(NamedTuple):
    """The row groups start..stop-1 of a file, and the number of their first row."""

    start: int
    stop: int
    first_row: int


def types(path: str, columns: Columns) -> ColumnTypes:
    """The types of the chosen columns, from the footer."""
    with _opened(path) as file:
        return _types(path, columns, file)


def split(path: str, columns: Columns) -> list[Groups]:
    """Ranges of row groups of about ROWS_PER_TASK rows each, from the footer."""
    ranges: list[Groups] = []
    with _opened(path) as file:
        start, rows, first_row = 0, 0, 1
        for group in range(file.metadata.num_row_groups):
            rows += file.metadata.row_group(group).num_rows
            if rows >= ROWS_PER_TASK or group == file.metadata.num_row_groups - 1:
                ranges.append(Groups(start, group + 1, first_row))
                start, rows, first_row = group + 1, 0, first_row + rows
    return ranges


def rows(path: str) -> int:
    """The number of rows of a file, by its footer."""
    with _opened(path) as file:
        return int(file.metadata.num_rows)


def read(path: str, columns: Columns, expected: ColumnTypes, groups: Groups | None) -> Iterator[pa.RecordBatch]:
    """The events of some row groups (None: of all), in the order of the file."""
    with _source(path) as source:
        file = _parquet(path, source)
        check_agreement(path, columns, _types(path, columns, file), expected)
        most = ROWS_HERE if groups is None else ROWS_PER_BATCH
        groups = groups or Groups(0, file.metadata.num_row_groups, 1)
        stored = columns.stored(path)
        coded = _coded(file, columns, stored, groups)
        file = _parquet(path, source, file, coded) if coded else file
        for run in _possible(path, file, columns, groups):
            row = run.first_row
            for batch in guarded(path, KIND, _batches(file, stored, run, most)):
                yield event_batch(path, row, columns, expected, {name: column_at(batch, name) for name in stored})
                row += batch.num_rows


def _possible(path: str, file: pq.ParquetFile, columns: Columns, groups: Groups) -> Iterator[Groups]:
    """The row groups without those that, by what the footer tells of them, have no row that is kept."""
    where = columns.prepare.where
    start, first_row, row = groups.start, groups.first_row, groups.first_row
    for index in range(groups.start, groups.stop if where is not None else groups.start):
        ends = row + file.metadata.row_group(index).num_rows
        if where is not None and not where.possible(_ranges(path, file, where.columns, index)):
            if start < index:
                yield Groups(start, index, first_row)
            start, first_row = index + 1, ends
        row = ends
    if start < groups.stop:
        yield Groups(start, groups.stop, first_row)


def _ranges(path: str, file: pq.ParquetFile, names: Sequence[str], index: int) -> dict[str, ColumnRange]:
    """What is known of columns of a row group: by statistics, and by the names of folders."""
    ranges = {}
    for name in names:
        if name in folder_columns(path):
            value = folder_value(path, name)
            ranges[name] = ColumnRange(None if value is None else pa.array([value] * 2), value is None, value is None)
            continue
        found, places = found_type(file.schema_arrow, name), _places(file.metadata, [name])
        if found is not None and len(places) == 1:
            ranges[name] = _range(file.metadata, index, places[0], found)
    return ranges


def _range(metadata: pq.FileMetaData, index: int, place: int, found: pa.DataType) -> ColumnRange:
    """The range of a column of a row group, by its statistics; nothing is known where these are missing or of no use."""
    group = metadata.row_group(index)
    known = group.column(place).statistics
    nan = pa.types.is_floating(found)  # which counts as null, and no statistics tell of it
    if known is None or metadata.schema.column(place).max_repetition_level:
        return ColumnRange(None)
    some = nan or not known.has_null_count or known.null_count > 0
    if known.has_null_count and known.null_count == group.num_rows:
        return ColumnRange(None, True, True)
    try:
        return ColumnRange(_ends(known, metadata.schema.column(place), found) if known.has_min_max else None, some)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return ColumnRange(None, some)


def _ends(known: pq.Statistics, column: pq.ColumnSchema, found: pa.DataType) -> pa.Array | None:
    """The least and the largest value, in a type that is compared as the column's is."""
    plain = found.value_type if pa.types.is_dictionary(found) else found
    if pa.types.is_timestamp(plain):  # whose values as Python has them lose their nanoseconds
        unit = _UNITS.get(json.loads(column.logical_type.to_json()).get("timeUnit"))
        raw = pa.array([known.min_raw, known.max_raw], pa.int64())
        return None if unit is None else raw.cast(pa.timestamp(unit, plain.tz))
    simple = pa.types.is_string(plain) or pa.types.is_integer(plain) or pa.types.is_boolean(plain)
    if simple or pa.types.is_date32(plain) or pa.types.is_floating(plain):
        return pa.array([known.min, known.max], plain)
    return None


def _coded(file: pq.ParquetFile, columns: Columns, names: Sequence[str], groups: Groups) -> list[str]:
    """The columns of users, keys and conditions, strings taken as they are, that the row groups hold as codes throughout.

    It is told from their sizes: a name that is spelled out takes more than a code. Where that errs, only time is lost.
    """
    plain = (key.source for key in columns.keys if not key.unit and not key.edges)
    asked = {columns.user, *plain, *columns.prepare.columns}
    known = {name for name in names if name in asked and name in file.schema_arrow.names}
    known = {name for name in known if pa.types.is_string(file.schema_arrow.field(name).type)}
    rows = [file.metadata.row_group(index) for index in range(groups.start, groups.stop)]
    places = {name: _places(file.metadata, [name]) for name in sorted(known)}
    return [
        name
        for name, [place, *more] in places.items()  # more: of fields whose path is the name
        if not more and all(_is_coded(group.column(place)) for group in rows if group.num_rows)
    ]


def _is_coded(chunk: pq.ColumnChunkMetaData) -> bool:
    most = _DICTIONARY_BYTES + _CODE_BYTES * chunk.num_values
    return bool(chunk.has_dictionary_page and chunk.total_uncompressed_size <= most)


def _batches(file: pq.ParquetFile, names: Sequence[str], groups: Groups, most: int) -> Iterator[pa.RecordBatch]:
    """The columns of these names or paths, in batches of at most so many rows; of a column with fields inside, those that are
    asked for alone."""
    for span, rows, pieces in _spans(file.metadata, names, groups, most):
        if len(span) == 1:
            yield from file.iter_batches(batch_size=-(-rows // pieces), row_groups=span, columns=list(names))
        else:
            table = file.read_row_groups(span, columns=list(names))
            yield from table.combine_chunks().to_batches()


def _spans(
    metadata: pq.FileMetaData, names: Sequence[str], groups: Groups, most: int
) -> Iterator[tuple[list[int], int, int]]:
    """Row groups to read together, their rows, and into how many batches: small ones are put together."""
    span: list[int] = []
    rows = size = 0
    for index in range(groups.start, groups.stop):
        group = metadata.row_group(index)
        more_size = _size(metadata, index, names)
        if span and (rows + group.num_rows > most or size + more_size > BYTES_PER_BATCH):
            yield span, rows, _pieces(rows, size, most)
            span, rows, size = [], 0, 0
        if group.num_rows:
            span, rows, size = [*span, index], rows + group.num_rows, size + more_size
    if span:
        yield span, rows, _pieces(rows, size, most)


def _size(metadata: pq.FileMetaData, index: int, names: Sequence[str]) -> int:
    """The encoded bytes of the chosen columns of a row group; of all its columns where those are few."""
    group = metadata.row_group(index)
    if group.total_byte_size <= BYTES_PER_BATCH:
        return group.total_byte_size  # for Arrow ends the process where it finds a damaged column's metadata
    return sum(group.column(i).total_uncompressed_size for i in _places(metadata, names))


def _places(metadata: pq.FileMetaData, names: Sequence[str]) -> list[int]:
    """The numbers of the leaves that hold the columns of these names or paths."""
    begins = tuple(f"{name}." for name in names)
    return [i for i in range(metadata.num_columns) if f"{metadata.schema.column(i).path}.".startswith(begins)]


def _pieces(rows: int, size: int, most: int) -> int:
    return max(-(-rows // most), min(rows, -(-size // BYTES_PER_BATCH)))


@contextmanager
def _opened(path: str) -> Iterator[pq.ParquetFile]:
    with _source(path) as source:
        yield _parquet(path, source)


@contextmanager
def _source(path: str) -> Iterator[pa.NativeFile]:
    with reading(path, KIND):
        source = pa.OSFile(path, "r") if is_local(path) else pa.PythonFile(open_ranges(path), mode="r")
    with source:
        yield source


def _parquet(
    path: str, source: pa.NativeFile, plain: pq.ParquetFile | None = None, coded: Sequence[str] = ()
) -> pq.ParquetFile:
    """The file; or the one that was read as `plain`, with columns of names as codes."""
    with reading(path, KIND):
        return pq.ParquetFile(
            source,
            metadata=None if plain is None else plain.metadata,
            read_dictionary=list(coded),
            pre_buffer=not is_local(path),  # few large requests instead of many small ones
            page_checksum_verification=True,  # where the writer left checksums
        )


def _types(path: str, columns: Columns, file: pq.ParquetFile) -> ColumnTypes:
    return found_types(path, columns, file.schema_arrow, _decoded(file.metadata, columns.stored(path)))


def _decoded(metadata: pq.FileMetaData, names: Sequence[str]) -> int:
    """The bytes of the columns without compression (but still encoded)."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    places = _places(metadata, names)
    return sum(group.column(k).total_uncompressed_size for group in groups for k in places)
