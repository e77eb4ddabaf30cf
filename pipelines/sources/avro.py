"""Avro files as batches of events, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import expand_schema

from headcount.mechanisms.errors import InputError
from headcount.pipelines.sources.columns import (
    Columns,
    ColumnTypes,
    arrow_type,
    check_agreement,
    check_names,
    event_batch,
    found_types,
    object_words,
)
from headcount.pipelines.sources.files import guarded, open_bytes, reading

KIND = "Avro"
ROWS_PER_BATCH = 2**18  # each row is a Python dict on its way
BYTES_PER_BATCH = 2**26  # of blocks: bounds the memory where names are long

_VALUES = {"string", "enum", "int", "long", "float", "double"}
_TIMES = {"date"} | {f"{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros")}
_ID_KINDS: dict[str, type] = {"string": str, "enum": str, "int": int, "long": int}


def types(path: str, columns: Columns) -> ColumnTypes:
    """The types of the chosen columns, from the schema in the file's header."""
    fields = {field["name"]: field["type"] for field in _schema(path)["fields"]}
    check_names(path, columns, fields)
    kinds = {name: _kind(fields[name]) for name in columns.names}
    if columns.values is not None:
        kinds[columns.item] = int if _holds_values(fields[columns.item]) else None
    return found_types(path, columns, kinds, {name: _word(name, fields[name]) for name in columns.names})


def read(path: str, columns: Columns, expected: ColumnTypes) -> Iterator[pa.RecordBatch]:
    """The events of a file, in its order."""
    check_agreement(path, columns, types(path, columns), expected)
    kinds: dict[str, type] = dict(zip(columns.ids, expected.ids, strict=True))
    if columns.count is not None:
        kinds[columns.count] = int
    row = 1
    for values in guarded(path, KIND, _values(path, columns)):
        with reading(path, KIND):
            arrays = {
                name: pa.array(map(_plain, column) if kinds[name] is str else column, arrow_type(kinds[name]))
                for name, column in zip(columns.names, values, strict=True)
                if name != columns.values
            }
            if columns.values is not None:
                arrays[columns.item] = pa.array(values[1])  # numbers, dates or times, as the file declares them
        yield event_batch(path, row, columns, arrays)
        row += len(values[0])


def _values(path: str, columns: Columns) -> Iterator[list[list[Any]]]:
    """Lists of values, one per chosen column.

    Records are decoded whole: with a reader's schema of the chosen columns alone fastavro takes longer, unless
    there are some twenty columns to skip.
    """
    with open_bytes(path) as file:
        values: list[list[Any]] = [[] for _ in columns.names]
        size = 0
        for block in fastavro.block_reader(file):
            size += block.bytes_.getbuffer().nbytes
            records = list(block)
            for name, column in zip(columns.names, values, strict=True):
                column += [record[name] for record in records]
            if len(values[0]) >= ROWS_PER_BATCH or size >= BYTES_PER_BATCH:
                yield values
                values, size = [[] for _ in columns.names], 0
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


def _kind(avro_type: Any) -> type | None:
    """str or int for a type that ids may have, also as a union with null."""
    option = _option(avro_type)
    if isinstance(option, dict):
        if option.get("logicalType") not in (None, "uuid"):
            return None
        option = option["type"]
    return _ID_KINDS.get(option) if isinstance(option, str) else None


def _holds_values(avro_type: Any) -> bool:
    option = _option(avro_type)
    if isinstance(option, dict):
        return option["logicalType"] in _TIMES if "logicalType" in option else option["type"] in _VALUES
    return isinstance(option, str) and option in _VALUES


def _option(avro_type: Any) -> Any:
    """The one type of a union with null; any other type as it is."""
    if isinstance(avro_type, list):
        options = [option for option in avro_type if option != "null"]
        return options[0] if len(options) == 1 else avro_type
    return avro_type


def _word(name: str, avro_type: Any) -> str:
    option = _option(avro_type)
    if isinstance(option, dict) and option["type"] == "record":
        return object_words(name, [field["name"] for field in option["fields"]])
    if isinstance(option, list):
        return "a union of several types"
    return str(option.get("logicalType", option["type"]) if isinstance(option, dict) else option)


def _plain(value: Any) -> str | None:
    """Text as it is; fastavro makes an object of a string that is declared a UUID."""
    return value if value is None or isinstance(value, str) else str(value)
