"""The way in: files of events, or tables of BigQuery, as Arrow batches. Only `read` needs Beam.

Which kind a file is follows from its name, unless it is said: .parquet, .avro, .csv, and .jsonl, .ndjson or .json for JSON
lines; the text formats also compressed, as in .csv.gz. A folder stands for the files in it, at any depth. A table is
bigquery://project.dataset.table. All files of a job are of one kind and agree on their columns.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa

from headcount.mechanisms.errors import InputError, ParameterError
from headcount.pipelines.sources import avro, csv, json, matching, parquet
from headcount.pipelines.sources import bigquery as source_bigquery
from headcount.pipelines.sources.columns import Columns, ColumnTypes
from headcount.pipelines.sources.files import open_text
from headcount.pipelines.sources.hive import check_folders
from headcount.pipelines.sources.matching import InputFile
from headcount.pipelines.storage.stores import is_local

__all__ = [
    "ColumnTypes",
    "Columns",
    "Inputs",
    "Task",
    "column_types",
    "expand_inputs",
    "read_batches",
]

SPLIT_BYTES = 1 << 25  # a smaller file is one task, whose footer nobody needs to read beforehand

_SAMPLE_BYTES = 1 << 18  # of text, by which the number of rows is estimated
_TEXT_GROWTH = 6  # what compressed text usually is without


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The files of a job, sorted by path, all of one format."""

    files: tuple[InputFile, ...]
    format: str
    delimiter: str = csv.DELIMITER

    def tasks(self) -> list[Task]:
        """The tasks of reading each file whole."""
        return [Task(file.path, self.format, delimiter=self.delimiter) for file in self.files]

    @property
    def bytes(self) -> int:
        """The size of all files together, as they lie there."""
        return sum(file.size for file in self.files)

    @property
    def largest(self) -> InputFile:
        """The file that tells how large all are, and how many rows they have: the first ones may have none."""
        return max(self.files, key=lambda file: file.size)

    def decoded(self, types: ColumnTypes) -> int:
        """About the size of all files without compression: as the largest one tells, or is usual for text."""
        largest = self.largest
        if types.decoded and largest.size:
            return round(self.bytes * types.decoded / largest.size)
        return self.bytes * (_TEXT_GROWTH if matching.is_compressed(largest.path) else 1)

    def absolute(self) -> Inputs:
        """The same files by paths that also hold for workers, which have another working directory."""
        paths = [os.path.abspath(file.path) if is_local(file.path) else file.path for file in self.files]
        files = [dataclasses.replace(file, path=path) for file, path in zip(self.files, paths, strict=True)]
        return dataclasses.replace(self, files=tuple(files))


@dataclasses.dataclass(frozen=True)
class Task:
    """What one worker reads at a time: a file, some row groups of a Parquet file, or a stream of a table."""

    path: str
    format: str
    groups: parquet.Groups | None = None
    stream: source_bigquery.Stream | None = None
    delimiter: str = csv.DELIMITER


def expand_inputs(patterns: Sequence[str], format: str | None = None, delimiter: str | None = None) -> Inputs:
    """The files that the patterns name, each once; refuses a pattern without files, or files of several formats.

    The `format` (parquet, avro, csv or jsonl) is that of all files, whatever their names say.
    """
    if not patterns:
        raise ParameterError("no input files were given")
    files = matching.files_of(patterns)
    kind = matching.format_of(patterns, [file.path for file in files], format)
    if delimiter is not None and kind != "csv":
        raise ParameterError(f"--delimiter is for CSV files, but {files[0].path} is {kind}: leave it out")
    return Inputs(tuple(files), kind, delimiter or csv.DELIMITER)


def column_types(inputs: Inputs, columns: Columns) -> ColumnTypes:
    """The types of the columns by the first file; refuses it if they cannot be users, keys or counts.

    The output shows the types of the keys, so they must not come from rows: tables, Parquet and Avro have them in the schema,
    while text files hold what is asked for.
    """
    path = inputs.files[0].path
    if is_local(path) and os.path.exists(path) and not os.path.isfile(path):
        raise InputError(
            f"{path} is a pipe or a device, and the first file is looked at before it is read: give a file"
        )
    check_folders((file.path for file in inputs.files), columns.read)
    if inputs.format == "parquet":
        types, largest = parquet.types(path, columns), inputs.largest.path
        with suppress(InputError):  # of a file that cannot be read whoever reads it tells
            if path != largest:
                types = dataclasses.replace(types, decoded=parquet.types(largest, columns).decoded)
        return types
    if inputs.format == "avro":
        return avro.types(path, columns)
    if inputs.format == "bigquery":
        return source_bigquery.types(path, columns)
    if inputs.format == "csv":
        return csv.types(path, columns, inputs.delimiter)
    return json.types([file.path for file in inputs.files], columns)


def expected_rows(inputs: Inputs) -> int | None:
    """About how many rows all files have, if they are like the largest one: by its footer, or by its first lines.

    It is exact for one Parquet file. None where nothing of it can be told at little cost, or the file cannot be read: that is
    for whoever reads it to say.
    """
    largest = inputs.largest
    with suppress(Exception):
        if inputs.format == "parquet":
            return round(parquet.rows(largest.path) * inputs.bytes / largest.size)
        if inputs.format in matching.TEXT_FORMATS:
            with open_text(largest.path) as file:
                start = file.read(_SAMPLE_BYTES)
            grown = _TEXT_GROWTH if matching.is_compressed(largest.path) else 1
            about = start.count(b"\n") * inputs.bytes * grown / len(start)
            return round(float(f"{about:.2g}")) or None  # no more digits than can be right
    return None


def split_file(file: InputFile, format: str, columns: Columns, delimiter: str = csv.DELIMITER) -> list[Task]:
    """The tasks of reading one file. A large Parquet file is several; the other formats cannot be entered midway."""
    if format == "parquet" and file.size >= SPLIT_BYTES:
        return [Task(file.path, format, groups) for groups in parquet.split(file.path, columns)]
    return [Task(file.path, format, delimiter=delimiter)]


def read_batches(task: Task, columns: Columns, types: ColumnTypes) -> Iterator[pa.RecordBatch]:
    """The events of one task: batches of the columns that know their file and the number of their first row.

    Columns are named as they were asked for, and are of the types that `types` says, nulls left in place; counts are int64, and
    values the numbers of their leaves. Rows are prepared as the columns say, and a batch without any is left out. Anything
    else in a file is an InputError.
    """
    return (batch for batch in _batches(task, columns, types) if batch.num_rows)


def _batches(task: Task, columns: Columns, types: ColumnTypes) -> Iterator[pa.RecordBatch]:
    if task.format == "parquet":
        return parquet.read(task.path, columns, types, task.groups)
    if task.format == "avro":
        return avro.read(task.path, columns, types)
    if task.stream is not None:
        return source_bigquery.read(task.path, columns, types, task.stream)
    if task.format == "csv":
        return csv.read(task.path, columns, types, task.delimiter)
    return json.read(task.path, columns, types)
