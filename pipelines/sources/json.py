"""JSON lines as batches of events: one object per line, UTF-8.

What a column is follows from what is asked for, never from its values: COLUMN is text (7, true and false are texts too, so
that the types of an output do not tell what the first row held), COLUMN:int whole numbers, COLUMN:day and the like are texts of
times, and COLUMN:0,18,30 is numbers. A user is a string or an integer, whichever the first rows have, since no output shows it.
A key that a row lacks is null there, like one that is null.
Row numbers count the objects from 1.

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
import pyarrow.compute as pc
import pyarrow.json

from headcount.mechanisms.batches.contributions import IDS
from headcount.mechanisms.columns.key_column import INT
from headcount.mechanisms.errors import InputError
from headcount.pipelines.sources.columns import (
    LEAST_INT64,
    MOST_INT64,
    Columns,
    ColumnTypes,
    check_names,
    event_batch,
    found_types,
    object_description,
)
from headcount.pipelines.sources.files import guarded, open_text

KIND = "JSON lines"
BLOCK_BYTES = 1 << 23
LONGEST_LINE = 1 << 26
ROWS_FOR_TYPES = 1000

_LARGE = 2**1000  # an integer from here on is taken for no number
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WORDS = {pa.string(): "a string", pa.int64(): "an integer", pa.float64(): "a number"}


def types(paths: Iterable[str], columns: Columns) -> ColumnTypes:
    """The types that are asked for; that of the user by the first rows of the files, or strings where there is none."""
    names: dict[str, None] = {}
    file = ""
    user: pa.DataType | None = None
    kinds = _kinds(columns, pa.string())
    for path, row, record in itertools.islice(_first_rows(paths), ROWS_FOR_TYPES):
        file = file or path
        names.update(dict.fromkeys(record))
        stored = columns.stored(path)
        for name in stored:
            value = _at(path, row, record, name)
            if value is None:
                continue
            names[name] = None
            if name == columns.user:
                kind = pa.string() if isinstance(value, str) else pa.int64()
                _check_value(path, row, name, value, kind, f", {IDS}")
                user = user or kind
            else:
                _check_value(path, row, name, value, kinds[name], _hint(columns, name), name in _as_texts(columns))
        if all(name in names for name in stored) and (user is not None or columns.user not in stored):
            break
    if file:
        # What one row has beside, under a name of the table that is joined or of a folder, says nothing of the others.
        elsewhere = {*columns.prepare.tabled, *columns.read} - {*columns.stored(file)}
        check_names(file, columns, [name for name in names if name not in elsewhere], is_schema=False)
    kinds = _kinds(columns, user or pa.string())
    first = file or next(iter(paths), "")
    found = found_types(first, columns, pa.schema([(name, kinds[name]) for name in columns.stored(first)]))
    return ColumnTypes(found.schema, file)


def _kinds(columns: Columns, user: pa.DataType) -> dict[str, pa.DataType]:
    """The types that the columns must have."""
    kinds = {} if columns.user is None else {columns.user: user}
    for name in columns.held:
        asked = [key for key in columns.made if key.source == name]
        if columns.values is not None and name == columns.values.name:
            kind = pa.float64() if columns.values.axis.kind == "number" else pa.string()
        elif any(key.unit == INT for key in asked):
            kind = pa.int64()
        else:
            kind = pa.float64() if all(key.edges for key in asked) else pa.string()
        kinds[name] = pa.list_(kind) if name == columns.explode else kind
    if columns.count is not None:
        kinds[columns.count] = pa.int64()
    beside = dict.fromkeys(columns.names, pa.string()) | _prepared_kinds(columns)
    kinds = beside | dict.fromkeys((*columns.numbers, *_compared_numbers(columns)), pa.float64()) | kinds
    return {name: kinds[name] for name in columns.read}


def _compared_numbers(columns: Columns) -> list[str]:
    """The columns that conditions of steps compare with numbers."""
    return [name for condition in columns.conditions for name in condition.numbers]


def _prepared_kinds(columns: Columns) -> dict[str, pa.DataType]:
    """The types of what is looked at before all else: numbers where these are compared by their order, else texts; and what
    the keys of a table are."""
    where, join = columns.prepare.where, columns.prepare.join
    kinds = dict.fromkeys(columns.prepare.columns, pa.string())
    kinds |= dict.fromkeys(() if where is None else where.numbers, pa.float64())
    if join is not None:
        kinds[join.on] = pa.int64() if pa.types.is_integer(join.key_type) else pa.string()
    return kinds


def _as_texts(columns: Columns) -> frozenset[str]:
    """The columns of keys that are taken as they are, and of conditions: whole numbers, true and false are texts there."""
    made = [key.source for key in columns.made if key.unit or key.edges]
    beside = {name for of in columns.carried for name in of.sources} - {*columns.numbers, *columns.held, columns.count}
    beside |= {*columns.compared} - {*_compared_numbers(columns), columns.count}
    asked = (*(key.source for key in columns.keys), *columns.prepare.columns, *(beside - {columns.user}))
    return frozenset(name for name in asked if name not in made)


def read(path: str, columns: Columns, expected: ColumnTypes) -> Iterator[pa.RecordBatch]:
    """The events of a file, in its order."""
    user = pa.string() if columns.user is None else expected.schema.field(columns.user).type
    kinds = {name: kind for name, kind in _kinds(columns, user).items() if name in columns.stored(path)}
    row = 1
    for block in guarded(path, KIND, _blocks(path)):
        arrays = _parse_block(path, block, kinds, _as_texts(columns))
        if arrays is None:
            arrays = _parse_lines(path, row, block, kinds, columns, expected)
        rows = len(next(iter(arrays.values())))
        if rows:
            yield event_batch(path, row, columns, expected, arrays)
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


def _parse_block(
    path: str, block: bytes, kinds: dict[str, pa.DataType], as_texts: frozenset[str]
) -> dict[str, pa.Array] | None:
    """The columns of a block by Arrow's parser, or None if there is anything about it that needs a closer look."""
    content = np.frombuffer(block, np.uint8)
    starts = np.concatenate(([0], np.flatnonzero(content == ord("\n")) + 1))
    starts = starts[starts < len(content)]
    if not np.all(content[starts] == ord("{")):
        return None
    try:
        schema = _nested_schema(kinds | _held_in(path, block, kinds, as_texts))
    except InputError:
        return None
    if schema is None:
        return None
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
    arrays = {name: _column(table, name).combine_chunks().cast(kind) for name, kind in kinds.items()}
    if any(_has_large(array) for array in arrays.values()):
        return None
    return {name: _with_one_zero(array) for name, array in arrays.items()}


def _held_in(
    path: str, block: bytes, kinds: dict[str, pa.DataType], as_texts: frozenset[str]
) -> dict[str, pa.DataType]:
    """What columns of texts hold in the first row of a block, where that is integers, or true and false: Arrow parses a block
    that goes on like that, and makes the same texts of it as `_as` does."""
    _, first = next(_records(path, 1, block[: block.find(b"\n") + 1] or block))
    found = {}
    for name in as_texts & kinds.keys():
        value, kind = _at(path, 1, first, name), kinds[name]
        listed = pa.types.is_list(kind)
        if (kind.value_type if listed else kind) != pa.string():
            continue  # numbers that are compared, too: they are read as such
        inside = next(iter(value), None) if listed and isinstance(value, list) else value
        held = pa.bool_() if isinstance(inside, bool) else pa.int64() if isinstance(inside, int) else None
        if held is not None:
            found[name] = pa.list_(held) if listed else held
    return found


def _nested_schema(kinds: dict[str, pa.DataType]) -> pa.Schema | None:
    """The fields that Arrow is to look for: each column by its name, and inside the objects that its path leads through. None
    if one of the columns lies inside another."""
    tree: dict[str, Any] = {name: kind for name, kind in kinds.items()}
    for name, kind in kinds.items():
        *steps, last = name.split(".")
        inner = tree
        for step in steps:
            inner = inner.setdefault(step, {})
            if not isinstance(inner, dict):
                return None
        if steps and inner.setdefault(last, kind) is not kind:
            return None
    return pa.schema(_fields(tree))


def _fields(tree: dict[str, Any]) -> list[pa.Field]:
    return [pa.field(name, pa.struct(_fields(kind)) if isinstance(kind, dict) else kind) for name, kind in tree.items()]


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column by its name, or else by its path."""
    top, *steps = name.split(".")
    if not steps:
        return table.column(name)
    return pc.coalesce(table.column(name), pc.struct_field(table.column(top), steps))


def _has_large(array: pa.Array) -> bool:
    """Whether one of the numbers may be an integer that Python's parser refuses, where Arrow has a float of it."""
    numbers = array.values if pa.types.is_list(array.type) else array
    return pa.types.is_floating(numbers.type) and bool(pc.any(pc.greater(pc.abs(numbers), _LARGE / 2)).as_py())


def _with_one_zero(array: pa.Array) -> pa.Array:
    """The same numbers: Arrow has a float of its own for -0, and Python reads the integer 0."""
    if pa.types.is_list(array.type) and pa.types.is_floating(array.type.value_type):
        absent = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(array.offsets, _with_one_zero(array.values), mask=absent)
    return pc.add(array, 0.0) if pa.types.is_floating(array.type) else array


def _parse_lines(
    path: str,
    first_row: int,
    block: bytes,
    kinds: dict[str, pa.DataType],
    columns: Columns,
    expected: ColumnTypes,
) -> dict[str, pa.Array]:
    """The same columns by Python's parser, or an InputError that names the first row that is wrong."""
    values: dict[str, list[Any]] = {name: [] for name in kinds}
    like = ", as in its first rows" if path == expected.file else f", as in {expected.file}"
    reasons = {name: _hint(columns, name) for name in kinds}
    if columns.user is not None:
        reasons[columns.user] = like
    for row, record in _records(path, first_row, block):
        for name, kind in kinds.items():
            value = _at(path, row, record, name)
            if value is not None:
                _check_value(path, row, name, value, kind, reasons[name], name in _as_texts(columns))
            values[name].append(_as(value, kind))
    return {name: pa.array(values[name], kind) for name, kind in kinds.items()}


def _as(value: Any, kind: pa.DataType) -> Any:
    """A value that was checked, as Arrow takes it."""
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [_as(each, kind.value_type) for each in value]
    if pa.types.is_floating(kind):
        return float(value) + 0.0
    if pa.types.is_string(kind) and not isinstance(value, str):
        return ("true" if value else "false") if isinstance(value, bool) else str(value)
    return value


def _at(path: str, row: int, record: dict[str, Any], name: str) -> Any:
    """The value of a column, by its name or else by its path; None without one."""
    found = record.get(name)
    steps = name.split(".")
    if found is not None or len(steps) == 1:
        return found
    found = record
    for at, step in enumerate(steps):
        if not isinstance(found, dict):
            raise InputError(f"{path}, row {row}: column {'.'.join(steps[:at])!r} is not an object with fields")
        found = found.get(step)
        if found is None:
            return None
    return found


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


def _hint(columns: Columns, name: str) -> str:
    """Why a column of keys, values or counts must hold what it does."""
    if name == columns.count:
        return ", as counts are"
    if columns.values is not None and name == columns.values.name:
        return ", as --lo and --hi are"
    if name in columns.numbers:
        return ", as values are"
    if name not in columns.names:
        return ", as it is compared with (--where, --join)"
    return f": ask for texts and whole numbers as {name}, for numbers in bins as {name}:0,18,30,65"


def _check_value(
    path: str, row: int, name: str, value: Any, kind: pa.DataType, reason: str, as_text: bool = False
) -> None:
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            raise InputError(f"{path}, row {row}: column {name!r} is not a list, as --explode says")
        for each in value:
            if each is not None:
                _check_value(path, row, name, each, kind.value_type, reason, as_text)
        return
    if isinstance(value, dict):  # whose names may be data, as no schema has them
        raise InputError(f"{path}, row {row}: column {name!r} is {object_description(name)}")
    if isinstance(value, list):
        raise InputError(f"{path}, row {row}: column {name!r} is a list: give --explode {name}")
    if pa.types.is_string(kind):
        is_text = isinstance(value, str) and (value.isascii() or not _has_surrogate(value))
        right = is_text or (as_text and isinstance(value, int))
    elif pa.types.is_floating(kind):
        right = type(value) is float or (type(value) is int and abs(value) < _LARGE)
    else:
        right = type(value) is int and LEAST_INT64 <= value <= MOST_INT64
    if not right:
        raise InputError(f"{path}, row {row}: column {name!r} is not {_WORDS[kind]}{reason}")


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
