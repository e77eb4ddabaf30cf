"""JSON lines as batches of events: one object per line, UTF-8.

An id is a string or an integer, whichever the first rows have; a key that a row lacks is null there, like one
that is null. Row numbers count the objects from 1.

Arrow parses a block at a time. It is not strict about lines (several objects on one, or one over several) and crashes on a
first row of `null`. So a block goes to Arrow only if each line starts an object, and its answer is used only if it has one row
per line. In every other case Python's own parser goes through the block line by line, and it names the row that is wrong.
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from headcount.mechanisms.batches.contributions import IDS
from headcount.mechanisms.errors import InputError
from headcount.pipelines.sources.columns import (
    LEAST_INT64,
    MOST_INT64,
    Columns,
    ColumnTypes,
    arrow_type,
    check_names,
    event_batch,
    object_words,
)
from headcount.pipelines.sources.files import guarded, open_text

KIND = "JSON lines"
BLOCK_BYTES = 1 << 23
LONGEST_LINE = 1 << 26
ROWS_FOR_TYPES = 1000

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WORDS = {str: "a string", int: "an integer", float: "a number"}


def types(paths: Iterable[str], columns: Columns, item_type: type) -> ColumnTypes:
    """The types of the ids by the first rows of the files; where there is none, or nulls alone, str and `item_type`."""
    kinds: dict[str, type] = {}
    names: dict[str, None] = {}
    file = ""
    for path, row, record in itertools.islice(_first_rows(paths), ROWS_FOR_TYPES):
        file = file or path
        names.update(dict.fromkeys(record))
        for name in columns.ids:
            value = record.get(name)
            if value is None:
                continue
            if name == columns.values:
                kinds[name] = int  # once they are leaves; `read` looks at them
                continue
            if isinstance(value, dict):  # whose names may be data, as no schema has them
                raise InputError(f"{path}, row {row}: column {name!r} is {object_words(name)}")
            kind = str if isinstance(value, str) else int
            _check_value(path, row, name, value, kind, IDS)
            kinds.setdefault(name, kind)
        if len(kinds) == len(columns.ids) and all(name in names for name in columns.names):
            break
    if file:
        check_names(file, columns, names, is_schema=False)
    return ColumnTypes(kinds.get(columns.user, str), kinds.get(columns.item, item_type), file)


def read(path: str, columns: Columns, expected: ColumnTypes) -> Iterator[pa.RecordBatch]:
    """The events of a file, in its order."""
    kinds: dict[str, type] = dict(zip(columns.ids, expected.ids, strict=True))
    if columns.count is not None:
        kinds[columns.count] = int
    if columns.values is not None:
        kinds[columns.item] = float if columns.values.axis.kind == "number" else str
    row = 1
    for block in guarded(path, KIND, _blocks(path)):
        arrays = _parse_block(block, kinds)
        if arrays is None:
            arrays = _parse_lines(path, row, block, kinds, columns.count, expected)
        rows = len(arrays[columns.user])
        if rows:
            yield event_batch(path, row, columns, arrays)
        row += rows


def _blocks(path: str) -> Iterator[bytes]:
    """The file in pieces of whole lines."""
    with open_text(path) as file:
        rest = b""
        start = True
        while chunk := file.read(BLOCK_BYTES):
            if start:
                chunk, start = chunk.removeprefix(_BYTE_ORDER_MARK), False
            cut = chunk.rfind(b"\n") + 1
            if cut:
                yield rest + chunk[:cut]
                rest = chunk[cut:]
            else:
                rest += chunk
            if len(rest) > LONGEST_LINE:
                raise InputError(f"{path}: a line of more than {LONGEST_LINE >> 20} MiB; give one JSON object per line")
        if rest:
            yield rest


def _parse_block(block: bytes, kinds: dict[str, type]) -> dict[str, pa.Array] | None:
    """The columns of a block by Arrow's parser, or None if there is anything about it that needs a closer look."""
    content = np.frombuffer(block, np.uint8)
    starts = np.concatenate(([0], np.flatnonzero(content == ord("\n")) + 1))
    starts = starts[starts < len(content)]
    if not np.all(content[starts] == ord("{")):
        return None
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in kinds.items()])
    try:
        table = pa.json.read_json(
            io.BytesIO(block),
            pa.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
        table.validate(full=True)  # its strings may be anything but UTF-8
    except pa.ArrowException:
        return None
    if table.num_rows != len(starts):
        return None
    return {name: table.column(name).combine_chunks() for name in kinds}


def _parse_lines(
    path: str, first_row: int, block: bytes, kinds: dict[str, type], count: str | None, expected: ColumnTypes
) -> dict[str, pa.Array]:
    """The same columns by Python's parser, or an InputError that names the first row that is wrong."""
    values: dict[str, list[Any]] = {name: [] for name in kinds}
    like = "as in its first rows" if path == expected.file else f"as in {expected.file}"
    for row, record in _records(path, first_row, block):
        for name, kind in kinds.items():
            value = record.get(name)
            if value is not None:
                _check_value(path, row, name, value, kind, "as counts are" if name == count else like)
            values[name].append(float(value) if kind is float and value is not None else value)
    return {name: pa.array(values[name], arrow_type(kind)) for name, kind in kinds.items()}


def _first_rows(paths: Iterable[str]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    for path in paths:
        rows = 0
        for block in guarded(path, KIND, _blocks(path)):
            for row, record in _records(path, rows + 1, block):
                yield path, row, record
                rows = row


def _records(path: str, first_row: int, block: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a block with their row numbers; blank lines are no rows."""
    lines = (line for line in block.split(b"\n") if line.strip())
    for row, line in enumerate(lines, first_row):
        try:
            record = json.loads(line.decode())
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise InputError(f"{path}, row {row}: not a JSON object; give one object per line, as UTF-8 text")
        yield row, record


def _check_value(path: str, row: int, name: str, value: Any, kind: type, reason: str) -> None:
    if kind is str:
        right = isinstance(value, str) and (value.isascii() or not _has_surrogate(value))
    elif kind is float:
        right = type(value) is float or (type(value) is int and abs(value) < 2**1000)
    else:
        right = type(value) is int and LEAST_INT64 <= value <= MOST_INT64
    if not right:
        raise InputError(f"{path}, row {row}: column {name!r} is not {_WORDS[kind]}, {reason}")


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
