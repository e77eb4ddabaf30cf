"""Record batches as the bytes of one output file, and its rows again: Parquet, Avro, CSV or JSON lines.

The same rows give the same bytes. Each format's library is imported with the first file of it.
"""

from __future__ import annotations

import csv
import datetime
import decimal
import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc

T = TypeVar("T", pa.RecordBatch, pa.Table)

_AVRO_UNITS = {"ms": "millis", "us": "micros", "ns": "nanos"}
# fastavro draws a random one by default; the same rows must give the same bytes.
_AVRO_SYNC_MARKER = hashlib.blake2b(b"headcount", digest_size=16).digest()

# A spreadsheet takes a text of CSV that begins with one of the first for a formula, and runs it. So an apostrophe is put before
# those, and before a text that has one, so that all come back by taking it off.
_RUN = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"  # the last ones are wide forms of the first
_MARK = "'"


def encode(batch: pa.RecordBatch, format: str) -> bytes:
    """The bytes of one file: a function of the rows and their types alone; without rows, the schema."""
    table = pa.Table.from_batches([batch]).replace_schema_metadata(None)
    return _ENCODERS[format](table)


def _parquet(table: pa.Table) -> bytes:
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def _avro(table: pa.Table) -> bytes:
    import fastavro

    names = plain_names(table.column_names, "[^A-Za-z0-9_]")
    fields, columns = [], []
    for name, field, column in zip(names, table.schema, table.columns, strict=True):
        kind, values = _avro_column(column.combine_chunks())
        kind = ["null", kind] if column.null_count else kind  # an end that nothing is known of
        fields.append({"name": name, "type": kind} | ({} if name == field.name else {"doc": field.name}))
        columns.append(values)
    schema = {"type": "record", "name": "Row", "namespace": "headcount", "fields": fields}
    rows = pa.table(dict(zip(names, columns, strict=True))).to_pylist()
    file = io.BytesIO()
    fastavro.writer(file, schema, rows, codec="deflate", sync_marker=_AVRO_SYNC_MARKER)
    return file.getvalue()


def _avro_column(column: pa.Array) -> tuple[Any, pa.Array]:
    """The Avro type of a column, and its values as Avro stores them."""
    found = column.type
    if pa.types.is_uint64(found):
        return {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0}, column.cast(pa.decimal128(20))
    if pa.types.is_date(found):
        return {"type": "int", "logicalType": "date"}, column.cast(pa.date32()).view(pa.int32())
    if pa.types.is_timestamp(found):
        unit = "ms" if found.unit == "s" else found.unit
        local = "local-" if found.tz is None else ""
        whole = column.cast(pa.timestamp(unit, found.tz)).view(pa.int64())
        return {"type": "long", "logicalType": f"{local}timestamp-{_AVRO_UNITS[unit]}"}, whole
    if pa.types.is_time32(found):
        return {"type": "int", "logicalType": "time-millis"}, column.cast(pa.time32("ms")).view(pa.int32())
    if pa.types.is_time64(found) and found.unit == "us":
        return {"type": "long", "logicalType": "time-micros"}, column.view(pa.int64())
    if pa.types.is_duration(found):
        return "long", column.view(pa.int64())
    if pa.types.is_temporal(found):
        return "string", as_text(column)
    if pa.types.is_integer(found):
        return "long", column
    return {pa.string(): "string", pa.float64(): "double", pa.bool_(): "boolean"}[found], column


def plain_names(names: Sequence[str], odd: str) -> list[str]:
    """Names with an underscore for each letter that matches `odd`, and none at the start that is a digit; no two alike."""
    plain: list[str] = []
    for name in names:
        made = re.sub(odd, "_", name)
        made = f"_{made}" if re.match("[0-9]", made) else made
        while made in plain or (made != name and made in names):
            made += "_"
        plain.append(made)
    return plain


def _csv(table: pa.Table) -> bytes:
    import pyarrow.csv

    file = io.BytesIO()
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(table.column_names)
    file.write(header.getvalue().encode())
    for at, field in enumerate(table.schema):
        if field.type == pa.string():
            texts = [text if text is None else not_run(text) for text in table.column(at).to_pylist()]
            table = table.set_column(at, field.name, pa.array(texts, pa.string()))
    pyarrow.csv.write_csv(_whole_as_int(times_as_text(table)), file, pyarrow.csv.WriteOptions(include_header=False))
    return file.getvalue()


def not_run(text: str) -> str:
    """A text for a cell of CSV that no spreadsheet takes for a formula; `decode` gives it as it was."""
    return _MARK + text if text.startswith((*_RUN, _MARK)) else text


def _jsonl(table: pa.Table) -> bytes:
    rows = _whole_as_int(times_as_text(table)).to_pylist()
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def times_as_text(rows: T) -> T:
    """Rows whose dates and times are texts in ISO 8601."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_temporal(field.type):
            rows = rows.set_column(at, field.name, as_text(rows.column(at)))
    return rows


def as_text(column: pa.Array) -> pa.Array:
    """A column of dates or times as texts: 2026-11-01, or 2026-11-01T13:00:00Z; lengths of time as whole numbers."""
    found = column.type
    if pa.types.is_duration(found):
        return column.cast(pa.int64())
    text = column.cast(pa.string())
    if not pa.types.is_timestamp(found):
        return text
    text = pc.replace_substring(text, " ", "T", max_replacements=1)
    return pc.replace_substring_regex(text, r"([+-]\d\d)(\d\d)$", r"\1:\2") if found.tz is not None else text


def _whole_as_int(table: pa.Table) -> pa.Table:
    """Columns of numbers that are all whole, as integers: text shows 5 and not 5.0."""
    for at, field in enumerate(table.schema):
        column = table.column(at)
        if field.type == pa.float64() and pc.all(pc.equal(column, pc.trunc(column)), min_count=0).as_py():
            if column.null_count == len(column) or pc.max(pc.abs(column)).as_py() < 2**53:
                table = table.set_column(at, field.name, column.cast(pa.int64()))
    return table


def decode(content: bytes, format: str) -> Iterator[Mapping[str, Any]]:
    """The rows of one file by the names of their columns, with texts for dates and times; all values of CSV are texts."""
    if format == "parquet":
        yield from decode_parquet(content).to_pylist()
    elif format == "avro":
        import fastavro

        rows = fastavro.reader(io.BytesIO(content))
        fields = cast(dict[str, Any], rows.writer_schema)["fields"]
        names = {field["name"]: field.get("doc", field["name"]) for field in fields}
        yield from ({names[name]: _plain(value) for name, value in cast(dict[str, Any], row).items()} for row in rows)
    elif format == "csv":
        for row in csv.DictReader(io.StringIO(content.decode(), newline="")):
            yield {name: text.removeprefix(_MARK) for name, text in row.items()}
    else:
        yield from (json.loads(line) for line in content.decode().split("\n") if line)


def typed(rows: Iterable[Mapping[str, Any]], shown: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows whose texts are what the report shows in their columns: in CSV all values are texts."""
    kinds = {name: type(value) for row in shown for name, value in row.items() if value is not None}
    for row in rows:
        yield {name: _typed(value, kinds.get(name, str)) for name, value in row.items()}


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, str) or kind is str:
        return value
    if kind is bool:
        return value == "true"
    return kind(value) if value else None


def decode_parquet(content: bytes) -> pa.Table:
    """The rows of one file of Parquet, with texts for dates and times."""
    import pyarrow.parquet as pq

    return times_as_text(_seconds(pq.ParquetFile(pa.BufferReader(content)).read()))


def _seconds(table: pa.Table) -> pa.Table:
    """Columns of whole seconds as such: Parquet has no seconds, and holds them as milliseconds."""
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ms":
            with suppress(pa.ArrowInvalid):  # there are parts of seconds
                table = table.set_column(at, field.name, table.column(at).cast(pa.timestamp("s", field.type.tz)))
    return table


def _plain(value: Any) -> Any:
    """A value of Avro's logical types as a text or a whole number."""
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat().replace("+00:00", "Z")
    return int(value) if isinstance(value, decimal.Decimal) else value


_ENCODERS = {"parquet": _parquet, "avro": _avro, "csv": _csv, "jsonl": _jsonl}
