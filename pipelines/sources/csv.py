"""CSV files as batches of events: UTF-8 with a header row, separated by commas or by another character that is given.

Nothing is guessed from the values: `007` and `7` are two users, `NA` and `null` are names like any other. An
empty field is null, a quoted empty one ("") is the empty string. Row numbers count the data rows from 1,
without the header.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from headcount.mechanisms.errors import InputError
from headcount.pipelines.sources.columns import (
    LEAST_INT64,
    MOST_INT64,
    Columns,
    ColumnTypes,
    check_names,
    event_batch,
    found_types,
)
from headcount.pipelines.sources.files import guarded, open_text, reading

KIND = "CSV"
BLOCK_BYTES = 1 << 24  # read at a time; no row can be longer
HEADER_BYTES = 1 << 20

DELIMITER = ","

_END = (
    b"EndOfFile"  # letters alone, as any other character may be the delimiter; no quotes, which would close an open one
)
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_DIGITS = 19  # of the largest int64


def types(path: str, columns: Columns, delimiter: str = DELIMITER) -> ColumnTypes:
    """All columns of a CSV file are texts, but counts; this checks that its header has the chosen ones."""
    _header(path, columns, delimiter)
    kinds = dict.fromkeys(columns.read, pa.string())
    if columns.count is not None:
        kinds[columns.count] = pa.int64()
    return found_types(path, columns, pa.schema([(name, kinds[name]) for name in columns.stored(path)]))


def read(path: str, columns: Columns, expected: ColumnTypes, delimiter: str = DELIMITER) -> Iterator[pa.RecordBatch]:
    """The events of a file, in its order."""
    width, stored = len(_header(path, columns, delimiter)), columns.stored(path)
    row = 1
    for batch in _without_end(path, guarded(path, KIND, _batches(path, stored, width, delimiter))):
        arrays = {name: _strings(path, row, name, batch.column(name)) for name in stored}
        if columns.count in arrays:
            arrays[columns.count] = _integers(path, row, columns.count, arrays[columns.count])
        yield event_batch(path, row, columns, expected, arrays)
        row += batch.num_rows


def _header(path: str, columns: Columns, delimiter: str) -> list[str]:
    """The names of a file's columns, among which are the chosen ones."""
    with reading(path, KIND), open_text(path) as file:
        start = file.read(HEADER_BYTES)
    if len(start) == HEADER_BYTES:
        start = start[: max(start.rfind(b"\n"), start.rfind(b"\r")) + 1]  # not a part of a line
    try:
        header = _names(path, start, delimiter)
    except InputError:  # as of "a";"b" between commas
        _refuse_delimiter(path, start, columns, [], delimiter)
        raise
    if header is None:
        raise InputError(f"{path}: no header; the first row of a CSV file must name its columns")
    if any("\0" in name for name in header):
        raise InputError(f"{path}: binary, not a CSV file of UTF-8 text")
    if any(name not in header for name in columns.stored(path)):
        _refuse_delimiter(path, start, columns, header, delimiter)
    check_names(path, columns, header, is_schema=False)
    return header


def _names(path: str, start: bytes, delimiter: str) -> list[str] | None:
    """The first row that is not empty."""
    try:
        text = io.StringIO(start.decode("utf-8-sig", "surrogateescape"), newline="")
        header = next((row for row in csv.reader(text, strict=True, delimiter=delimiter) if row), None)
        if header is not None:
            _ = "".join(header).encode()
    except (UnicodeEncodeError, csv.Error):
        raise InputError(f"{path}: not a CSV file of UTF-8 text") from None
    return header


def _refuse_delimiter(path: str, start: bytes, columns: Columns, header: list[str], delimiter: str) -> None:
    """Refuse a file in which another character separates more of the chosen columns than the one that was given."""
    found = sum(name in header for name in columns.read)
    for other, word in _DELIMITERS.items():
        try:
            names = _names(path, start, other) or []
        except InputError:  # quotes that mean nothing to it
            continue
        if sum(name in names for name in columns.read) > found:
            flag = {",": "leave --delimiter out", "\t": "give --delimiter tab"}.get(
                other, f"give --delimiter '{other}'"
            )
            raise InputError(f"{path}: {word} separate its columns: {flag}")


def _batches(path: str, names: Sequence[str], width: int, delimiter: str) -> Iterator[pa.RecordBatch]:
    with open_text(path) as file:
        try:
            yield from pa.csv.open_csv(
                pa.PythonFile(_WithEnd(file, width, delimiter), mode="r"),
                pa.csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),  # threads would lose row numbers
                pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                pa.csv.ConvertOptions(
                    include_columns=list(names),
                    column_types=dict.fromkeys(names, pa.binary()),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            # Only these numbers of Arrow's message may be told: the row itself follows them.
            ragged = re.match(r"CSV parse error: Row #(\d+): Expected \d+ columns, got (\d+):", str(error))
            if ragged:
                row, fields = int(ragged[1]) - 1, int(ragged[2])
                raise InputError(f"{path}, row {row}: {fields} fields, but the header has {width}") from None
            if "straddling object" in str(error):
                raise InputError(
                    f"{path}: a row of more than {BLOCK_BYTES >> 20} MiB, or a quote that is never closed"
                ) from None
            raise


def _without_end(path: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Takes the added last row off again; where it is missing, an open quote has swallowed it."""
    last = None
    for batch in batches:
        if last is not None:
            yield last
        last = batch
    if last is None or any(column[-1].as_py() != _END for column in last.columns):
        raise InputError(f"{path}: ends inside a quoted field; a quote is never closed, or the file is truncated")
    if last.num_rows > 1:
        yield last.slice(0, last.num_rows - 1)


class _WithEnd(io.RawIOBase):
    """A CSV file with one more row, which says that all quotes are closed (Arrow takes an open one for closed)."""

    def __init__(self, file: io.BufferedIOBase, width: int, delimiter: str) -> None:
        self._file = file
        self._end = b"\n" + delimiter.encode().join([_END] * width) + b"\n"  # an empty line is no row

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = bytes(self._file.read(size))
        while len(data) < size and (more := self._file.read(size - len(data))):
            data += more
        # Arrow wants the whole header in its first block, so the end must not wait for a read of its own.
        missing = len(self._end) if size < 0 else size - len(data)
        end, self._end = self._end[:missing], self._end[missing:]
        return data + end


def _strings(path: str, first_row: int, name: str, values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        pass
    for i, value in enumerate(values):
        try:
            _ = (value.as_py() or b"").decode()
        except UnicodeDecodeError:
            row = first_row + i
            raise InputError(f"{path}, row {row}: column {name!r} holds bytes that are not UTF-8 text") from None
    raise AssertionError("every value is UTF-8, yet Arrow refused one")


def _integers(path: str, first_row: int, name: str, texts: pa.Array) -> pa.Array:
    """Decimal integers, strictly: digits with an optional minus sign, within int64."""
    wrong = pc.index(pc.match_substring_regex(texts, r"^-?[0-9]+$"), False).as_py()
    if wrong < 0:
        try:
            return texts.cast(pa.int64())
        except pa.ArrowInvalid:
            wrong = next(i for i, text in enumerate(texts.to_pylist()) if text is not None and _overflows(text))
    raise InputError(
        f"{path}, row {first_row + wrong}: column {name!r} does not hold a decimal integer between -2^63 and 2^63 - 1"
    )


def _overflows(text: str) -> bool:
    digits = text.lstrip("-").lstrip("0")
    return len(digits) > _DIGITS or not LEAST_INT64 <= int(text) <= MOST_INT64
