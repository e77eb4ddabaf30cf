"""The types of columns as far as the elements of a collection tell them, before any is there: from type hints and schemas.

What is wrong with a collection of Python rows is said here, where the pipeline is built, and not by a worker.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import types
import typing
import uuid
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.typehints import typehints
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.utils.timestamp import Timestamp

from headcount.mechanisms.batches.python_values import DECIMAL, TIME
from headcount.mechanisms.columns.nested import found_type
from headcount.mechanisms.columns.row_schema import RowSchema
from headcount.mechanisms.errors import InputError
from headcount.transforms.keyed.created import created_schema

ROWS = "dicts, beam.Rows, named tuples, dataclasses, or (user, item) or (user, item, count) tuples"

_UNKNOWN = pa.null()
_WHERE = "the rows: "
# In this order: a datetime is a date, and a bool an int.
_PLAIN: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    str: pa.string(),
    float: pa.float64(),
    bytes: pa.binary(),
    datetime.datetime: TIME,
    Timestamp: TIME,
    datetime.date: pa.date32(),
    decimal.Decimal: DECIMAL,
    uuid.UUID: pa.string(),
}


def no_field(name: str) -> InputError:
    """The error that tuples have no field for the windows of protection, or for values."""
    return InputError(f"tuples of user and item have no {name!r}: give dicts, beam.Rows or frames with that field")


def schema_for(row_schema: RowSchema, rows: beam.PCollection) -> RowSchema:
    """The same with the types that the elements of a collection tell, or an InputError if they cannot be rows for it."""
    found = _declared(row_schema, rows)
    made = row_schema.of_schema if isinstance(found, pa.Schema) else row_schema.of_types
    return made(found, _WHERE)


def prepared_for(row_schema: RowSchema, rows: beam.PCollection) -> RowSchema:
    """The same with the types that rows are prepared by alone, for rows with values in place of keys."""
    if not row_schema.prepare:
        return row_schema
    found = _declared(row_schema, rows)
    if isinstance(found, pa.Schema):
        row_schema.prepare.refuse_twice(found.names, row_schema.named, _WHERE)
        types_of = {path: found_type(found, path) or _UNKNOWN for path in row_schema.columns}
    else:
        types_of = dict(found)
    return dataclasses.replace(row_schema, prepare=row_schema.prepare.of_types(types_of, _WHERE)[0])


def _declared(row_schema: RowSchema, rows: beam.PCollection) -> pa.Schema | dict[str, pa.DataType]:
    """The columns of a collection, or the types of those that are known."""
    hint = rows.element_type
    fields = _fields(hint)
    if fields is not None:
        return pa.schema([(name, arrow_type(found)) for name, found in fields])
    if isinstance(hint, typehints.TupleConstraint):
        for name in row_schema.beside:
            raise no_field(name)
        return _of_tuple(hint.tuple_types, row_schema)
    if isinstance(hint, typehints.DictConstraint):  # one type for all values, or none
        found = arrow_type(hint.value_type)
        return dict.fromkeys(row_schema.columns, found) if hint.key_type is str else {}
    if isinstance(hint, type) and hint in _PLAIN:
        raise InputError(f"elements of type {hint.__name__} are no rows; give Arrow batches, frames, {ROWS}")
    schema = created_schema(rows)
    return {} if schema is None else schema


def arrow_type(hint: Any) -> pa.DataType:
    """The Arrow type of a column whose values have this type; a null type where it is not known."""
    found = _fields(hint)
    if found is not None:
        return pa.struct([(name, arrow_type(type_)) for name, type_ in found])
    for plain, type_ in _PLAIN.items():
        if isinstance(hint, type) and issubclass(hint, plain):
            return type_
    if isinstance(hint, type) and issubclass(hint, np.generic):
        return pa.from_numpy_dtype(hint)
    if isinstance(hint, typehints.UnionConstraint) or typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = hint.union_types if isinstance(hint, typehints.UnionConstraint) else typing.get_args(hint)
        kinds = {arrow_type(each) for each in members if each is not type(None)}
        return kinds.pop() if len(kinds) == 1 else _UNKNOWN
    if isinstance(hint, typehints.SequenceTypeConstraint):
        return pa.list_(arrow_type(hint.inner_type))
    origin = typing.get_origin(hint)
    if isinstance(origin, type) and issubclass(origin, Sequence) and len(typing.get_args(hint)) == 1:
        return pa.list_(arrow_type(typing.get_args(hint)[0]))
    return _UNKNOWN


def _fields(hint: Any) -> list[tuple[str, Any]] | None:
    """The fields of rows with a schema: named tuples, dataclasses and beam.Rows."""
    if isinstance(hint, RowTypeConstraint):
        return list(hint._fields)
    if not isinstance(hint, type):
        return None
    if dataclasses.is_dataclass(hint):
        names = [field.name for field in dataclasses.fields(hint)]
    elif issubclass(hint, tuple) and hasattr(hint, "_fields"):
        names = list(hint._fields)
    else:
        return None
    try:
        known = typing.get_type_hints(hint)  # annotations may be texts
    except (NameError, TypeError):
        known = {}
    return [(name, known.get(name, Any)) for name in names]


def _of_tuple(parts: tuple[Any, ...], row_schema: RowSchema) -> dict[str, pa.DataType]:
    """The types of (user, key) or (user, key, count), where the key of several columns is a tuple of them."""
    if len(parts) not in (2, 3):
        raise InputError(f"rows are tuples of {len(parts)}; give (user, item) or (user, item, count)")
    user, key, *count = parts
    found = {row_schema.user: arrow_type(user)}
    for each in map(arrow_type, count):
        if not (pa.types.is_integer(each) or pa.types.is_null(each)):
            raise InputError(f"the count in (user, item, count) is {each}; counts are whole numbers")
    inner = key.tuple_types if isinstance(key, typehints.TupleConstraint) else None
    if len(row_schema.sources) == 1:
        if inner is not None:
            raise key_parts(len(inner))
        return found | {row_schema.sources[0]: arrow_type(key)}
    if inner is None:
        if arrow_type(key) != _UNKNOWN:
            raise key_parts(1, row_schema.sources)
        return found
    if len(inner) != len(row_schema.sources):
        raise key_parts(len(inner), row_schema.sources)
    return found | {name: arrow_type(each) for name, each in zip(row_schema.sources, inner, strict=True)}


def key_parts(found: int, sources: tuple[str, ...] = ()) -> InputError:
    """A tuple's key has another number of parts than there are key columns."""
    has = "no tuple" if found == 1 else f"a tuple of {found}"
    if sources:
        return InputError(
            f"the key in (user, key) is {has}, but item names {len(sources)} columns: {', '.join(map(repr, sources))}"
        )
    return InputError(f"the key in (user, key) is {has}: name its parts by Contributions(item=[...])")
