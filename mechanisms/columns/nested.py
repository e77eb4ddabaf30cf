"""Columns inside others: fields of objects by their path, and lists whose elements each make a row."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.errors import InputError


def found_type(schema: pa.Schema, path: str) -> pa.DataType | None:
    """The type of a column, or of a field `user.id` inside one; None without one. A column of the whole name goes first."""
    if path in schema.names:
        return schema.field(path).type
    top, *steps = path.split(".")
    if not steps or top not in schema.names:
        return None
    found = schema.field(top).type
    for step in steps:
        if not pa.types.is_struct(found) or found.get_field_index(step) < 0:
            return None
        found = found.field(step).type
    return found


def column_at(batch: pa.RecordBatch | pa.Table, path: str) -> pa.Array:
    """The values of a column, or of a field inside one: null where an object on the way is. It must be there."""
    if path in batch.schema.names:
        column = batch.column(path)
    else:
        top, *steps = path.split(".")
        column = pc.struct_field(batch.column(top), steps)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def element_type(found: pa.DataType, name: str) -> pa.DataType:
    """The type of the elements of a column of lists."""
    if not is_list(found):
        raise InputError(f"column {name!r} is {found}, no list: leave it out of --explode (explode=)")
    return found.value_type


def is_list(found: pa.DataType) -> bool:
    """Whether a column holds lists."""
    return any(test(found) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def exploded(columns: Mapping[str, pa.Array], name: str) -> dict[str, pa.Array]:
    """One row for each element of the lists of a column, with the other columns as they are; an empty list, or a null, makes
    none."""
    lists = columns[name]
    rows = pc.list_parent_indices(lists)
    return {
        other: pc.list_flatten(lists) if other == name else _taken(column, rows) for other, column in columns.items()
    }


def _taken(column: pa.Array, rows: pa.Array) -> pa.Array:
    return (column.cast(pa.string()) if pa.types.is_string_view(column.type) else column).take(rows)
