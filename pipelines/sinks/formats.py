"""Record batches as the bytes of one output file, and its rows again: Parquet, Avro, CSV or JSON lines.

The same rows give the same bytes. Each format's library is imported with the first file of it.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# fastavro draws a random one by default; the same rows must give the same bytes.
_AVRO_SYNC_MARKER = hashlib.blake2b(b"headcount", digest_size=16).digest()


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

    types = {pa.string(): "string", pa.int64(): "long", pa.float64(): "double"}
    schema = {
        "type": "record",
        "name": "Row",
        "namespace": "headcount",
        "fields": [{"name": field.name, "type": types[field.type]} for field in table.schema],
    }
    file = io.BytesIO()
    fastavro.writer(file, schema, table.to_pylist(), codec="deflate", sync_marker=_AVRO_SYNC_MARKER)
    return file.getvalue()


def _csv(table: pa.Table) -> bytes:
    import pyarrow.csv

    file = io.BytesIO()
    file.write((",".join(table.column_names) + "\n").encode())
    pyarrow.csv.write_csv(_whole_as_int(table), file, pyarrow.csv.WriteOptions(include_header=False))
    return file.getvalue()


def _jsonl(table: pa.Table) -> bytes:
    rows = _whole_as_int(table).to_pylist()
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _whole_as_int(table: pa.Table) -> pa.Table:
    """Columns of numbers that are all whole, as integers: text shows 5 and not 5.0."""
    for at, field in enumerate(table.schema):
        column = table.column(at)
        if field.type == pa.float64() and pc.all(pc.equal(column, pc.trunc(column)), min_count=0).as_py():
            if len(column) == 0 or pc.max(pc.abs(column)).as_py() < 2**53:
                table = table.set_column(at, field.name, column.cast(pa.int64()))
    return table


def decode(content: bytes, format: str) -> Iterator[Mapping[str, Any]]:
    """The rows of one file; all values of CSV are texts."""
    if format == "parquet":
        import pyarrow.parquet as pq

        yield from pq.read_table(pa.BufferReader(content)).to_pylist()
    elif format == "avro":
        import fastavro

        yield from fastavro.reader(io.BytesIO(content))
    elif format == "csv":
        yield from csv.DictReader(io.StringIO(content.decode(), newline=""))
    else:
        yield from (json.loads(line) for line in content.decode().split("\n") if line)


_ENCODERS = {"parquet": _parquet, "avro": _avro, "csv": _csv, "jsonl": _jsonl}
