"""Tables of BigQuery as batches of events, by its Storage Read API: Arrow over gRPC, the chosen columns alone.

The driver opens one read session, which is a snapshot of the table; its streams are what workers read, and a stream
that is read again gives the same rows. A session can be read for six hours.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from headcount.mechanisms.columns.nested import column_at
from headcount.mechanisms.errors import InputError
from headcount.pipelines.sources.columns import (
    ROWS_PER_BATCH,
    Columns,
    ColumnTypes,
    check_agreement,
    event_batch,
    found_types,
)
from headcount.pipelines.storage import bigquery
from headcount.pipelines.storage.stores import reason

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

BYTES_PER_STREAM = 1 << 26  # of the table; the service may open fewer streams
MOST_STREAMS = 1000
BYTES_PER_BATCH = 1 << 26

# As the service sends them. Of other types (BYTES, GEOGRAPHY, JSON, RANGE and the like) nothing can be a key.
_TYPES = {
    "STRING": pa.string(),
    "INTEGER": pa.int64(),
    "INT64": pa.int64(),
    "FLOAT": pa.float64(),
    "FLOAT64": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "BOOL": pa.bool_(),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "DATETIME": pa.timestamp("us"),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "NUMERIC": pa.decimal128(38, 9),
    "BIGNUMERIC": pa.decimal256(76, 38),
}
_READABLE = ("TABLE", "SNAPSHOT")


class Stream(NamedTuple):
    """One stream of a read session: its resource name, its number among them, and the schema of its batches."""

    name: str
    number: int
    schema: bytes


def size(path: str) -> int:
    """The bytes of a table, all columns."""
    return int(_table(path).num_bytes or 0)


def types(path: str, columns: Columns) -> ColumnTypes:
    """The types of the chosen columns, from the table's schema."""
    return found_types(path, columns, pa.schema(list(map(_field, _table(path).schema))))


def _field(field: Any) -> pa.Field:
    if field.field_type in ("RECORD", "STRUCT"):
        kind = pa.struct(list(map(_field, field.fields)))
    else:
        kind = _TYPES.get(field.field_type, pa.binary())
    return pa.field(field.name, pa.list_(kind) if field.mode == "REPEATED" else kind)


def split(
    path: str, table_bytes: int, columns: Columns, expected: ColumnTypes, options: PipelineOptions
) -> list[Stream]:
    """Opens a read session on the table as it is now: its streams."""
    from google.cloud.bigquery_storage_v1 import types as messages

    table = bigquery.parse(path)
    check_agreement(path, columns, types(path, columns), expected)
    compression = messages.ArrowSerializationOptions(
        buffer_compression=messages.ArrowSerializationOptions.CompressionCodec.LZ4_FRAME
    )
    wanted = messages.ReadSession(
        table=f"projects/{table.project}/datasets/{table.dataset}/tables/{table.table}",
        data_format=messages.DataFormat.ARROW,
        read_options=messages.ReadSession.TableReadOptions(
            selected_fields=list(columns.read), arrow_serialization_options=compression
        ),
    )
    with _reading(path):
        session = bigquery.read_client().create_read_session(
            parent=f"projects/{bigquery.billed_project(options, table)}",
            read_session=wanted,
            max_stream_count=min(1 + table_bytes // BYTES_PER_STREAM, MOST_STREAMS),
        )
    schema = session.arrow_schema.serialized_schema
    return [Stream(stream.name, number, schema) for number, stream in enumerate(session.streams)]


def read(path: str, columns: Columns, expected: ColumnTypes, stream: Stream) -> Iterator[pa.RecordBatch]:
    """The events of one stream, in its order. A row number is one of the stream."""
    place = f"{path}, stream {stream.number}"
    row = 1
    for batch in _batches(path, stream):
        yield event_batch(place, row, columns, expected, {name: column_at(batch, name) for name in columns.read})
        row += batch.num_rows


def _batches(path: str, stream: Stream) -> Iterator[pa.RecordBatch]:
    """What the service sends, a few thousand rows at a time, put together."""
    schema = pa.ipc.read_schema(pa.py_buffer(stream.schema))
    waiting: list[pa.RecordBatch] = []
    rows = held = 0
    for message in _messages(path, stream):
        batch = pa.ipc.read_record_batch(pa.py_buffer(message.arrow_record_batch.serialized_record_batch), schema)
        waiting.append(batch)
        rows, held = rows + batch.num_rows, held + batch.nbytes
        if rows >= ROWS_PER_BATCH or held >= BYTES_PER_BATCH:
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
            waiting, rows, held = [], 0, 0
    if rows:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()


def _messages(path: str, stream: Stream) -> Iterator[Any]:
    with _reading(path):
        yield from bigquery.read_client().read_rows(stream.name)  # goes on by itself where a connection broke


def _table(path: str) -> Any:
    table = bigquery.parse(path)
    with _reading(path):
        found = bigquery.client(table.project).get_table(str(table))
    if found.table_type not in _READABLE:
        raise InputError(f"{path} is a {found.table_type}; write the rows of a view or query to a table first")
    return found


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turns what Google's clients raise into an InputError of one line."""
    from google.api_core.exceptions import GoogleAPICallError, NotFound
    from google.auth.exceptions import GoogleAuthError

    try:
        yield
    except NotFound:
        raise InputError(f"{path}: no such table, or none that these credentials may see") from None
    except (GoogleAPICallError, GoogleAuthError) as error:
        raise InputError(f"{path} cannot be read: {reason(error)}") from None
