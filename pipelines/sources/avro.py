"""Avro files as batches of events, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import expand_schema

from headcount.mechanisms.columns.nested import found_type, is_list
from headcount.mechanisms.errors import InputError
from headcount.pipelines.sources.columns import (
    Columns,
    ColumnTypes,
    check_agreement,
    event_batch,
    found_types,
)
from headcount.pipelines.sources.files import guarded, open_bytes, reading

KIND = "Avro"
ROWS_PER_BATCH = 2**18  # each row is a Python dict on its way
BYTES_PER_BATCH = 2**26  # of blocks: bounds the memory where names are long

_PLAIN = {
    "null": pa.null(),
    "string": pa.string(),
    "enum": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
    "uuid": pa.string(),
}


def types(path: str, columns: Columns) -> ColumnTypes:
    """The types of the chosen columns, from the schema in the file's header."""
    return found_types(path, columns, _arrow_schema(_schema(path)))


def read(path: str, columns: Columns, expected: ColumnTypes) -> Iterator[pa.RecordBatch]:
    """The events of a file, in its order."""
    schema = _arrow_schema(_schema(path))
    check_agreement(path, columns, found_types(path, columns, schema), expected)
    stored = columns.stored(path)
    row = 1
    for values in guarded(path, KIND, _values(path, [_steps(schema, name) for name in stored])):
        with reading(path, KIND):
            arrays = {
                name: _array(column, found_type(schema, name)) for name, column in zip(stored, values, strict=True)
            }
        yield event_batch(path, row, columns, expected, arrays)
        row += len(values[0])


def _steps(schema: pa.Schema, name: str) -> list[str]:
    """The keys that lead to a column: its name, or the parts of its path."""
    return [name] if name in schema.names else name.split(".")


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind) or (is_list(kind) and pa.types.is_string(kind.value_type)):
        values = [_text(value) for value in values]
    return pa.array(values, kind)


def _values(path: str, steps: list[list[str]]) -> Iterator[list[list[Any]]]:
    """Lists of values, one per chosen column.

    Records are decoded whole: with a reader's schema of the chosen columns alone fastavro takes longer, unless
    there are some twenty columns to skip.
    """
    with open_bytes(path) as file:
        values: list[list[Any]] = [[] for _ in steps]
        size = 0
        for block in fastavro.block_reader(file):
            size += block.bytes_.getbuffer().nbytes
            records = list(block)
            for (name, *inner), column in zip(steps, values, strict=True):
                found = [record[name] for record in records]
                for step in inner:
                    found = [None if record is None else record[step] for record in found]
                column += found
            if len(values[0]) >= ROWS_PER_BATCH or size >= BYTES_PER_BATCH:
                yield values
                values, size = [[] for _ in steps], 0
        if values[0]:
            yield values


def _schema(path: str) -> dict[str, Any]:
    """The file's schema, with every named type spelled out where it is used."""
    with reading(path, KIND), open_bytes(path) as file:
        blocks = fastavro.block_reader(file)
        codec, schema = blocks.codec, expand_schema(blocks.writer_schema)
        try:
            next(blocks, None)
        except ValueError as error:
            if "need to install" in str(error):
                raise InputError(
                    f"{path}: compressed with {codec}, which needs another package: pip install 'fastavro[codecs]'"
                ) from None
            raise
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InputError(f"{path}: its rows are not Avro records")
    return schema


def _arrow_schema(schema: dict[str, Any]) -> pa.Schema:
    return pa.schema([(field["name"], _arrow_type(field["type"])) for field in schema["fields"]])


def _arrow_type(avro_type: Any) -> pa.DataType:
    """The type of the values of an Avro type, also as a union with null."""
    if isinstance(avro_type, list):
        options = [option for option in avro_type if option != "null"]
        if len(options) == 1:
            return _arrow_type(options[0])
        return pa.dense_union([pa.field("", _arrow_type(option)) for option in options])
    if isinstance(avro_type, str):
        return _PLAIN.get(avro_type, pa.binary())  # the name of a type that holds itself
    kind, logical = avro_type["type"], avro_type.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = avro_type["precision"], avro_type.get("scale", 0)
        return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind == "record":
        return pa.struct([(field["name"], _arrow_type(field["type"])) for field in avro_type["fields"]])
    if kind == "array":
        return pa.list_(_arrow_type(avro_type["items"]))
    if kind == "map":
        return pa.map_(pa.string(), _arrow_type(avro_type["values"]))
    return _arrow_type(kind)


def _text(value: Any) -> Any:
    """Text as it is; fastavro makes an object of a string that is declared a UUID."""
    if isinstance(value, list):
        return [_text(each) for each in value]
    return value if value is None or isinstance(value, str) else str(value)
