"""Released rows with the key columns in place of the name: as fields that Beam knows the types of."""

from __future__ import annotations

import datetime
import functools
import keyword
import re
import typing
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.utils.timestamp import Timestamp

from headcount.mechanisms.columns.keys import ITEM, Keys, taken

Fields = tuple[tuple[str, Any], ...]  # names and Python types


def is_named_by_columns(keys: Keys) -> bool:
    """Whether rows have other columns than the one that is called `item` and holds the name itself."""
    return keys not in (Keys.plain(str), Keys.plain(int))


def keyed_row(row: Any, keys: Keys) -> Any:
    """The type of a row with the key columns as fields, where `row` has the item; refused if a field is there twice.

    What a name has that no field may have is an underscore: `user.id` is `user_id`. Times are Beam's, to the microsecond.
    """
    return _row(row, tuple(field_types(keys, [name for name in row._fields if name != ITEM])))


def field_types(keys: Keys, others: Sequence[str]) -> list[tuple[str, Any]]:
    """The fields of the key columns, with their Python types; refused if a field is there twice, among the `others` too."""
    columns = keys.schema.names
    names = [_identifier(name) for name in columns]
    for column, name in zip(columns, names, strict=True):
        if column in others or (*others, *names).count(name) > 1:
            raise taken(column, "item")
    kinds = [_python_type(field.type) for field in keys.schema]
    if keys.optional:
        kinds = [kind | None if name in keys.names else kind for name, kind in zip(columns, kinds, strict=True)]
    return list(zip(names, kinds, strict=True))


class ToKeyedRows(beam.PTransform):
    """(file, restored record batch) -> rows of the type `keyed_row(row, keys)`."""

    def __init__(self, row: Any, keys: Keys) -> None:
        super().__init__()
        self._row, self._keys = row, keys

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        made = keyed_row(self._row, self._keys)
        return batches | "Split" >> beam.FlatMap(_rows, self._row, self._keys).with_output_types(made)


def _rows(file: tuple[int, pa.RecordBatch], row: Any, keys: Keys) -> Iterator[NamedTuple]:
    _, batch = file
    at = row._fields.index(ITEM)
    names = [*row._fields[:at], *keys.schema.names, *row._fields[at + 1 :]]
    # A generator, as in `core.rows`.
    yield from map(keyed_row(row, keys), *(field_values(batch.column(name)) for name in names))


def field_values(column: pa.Array) -> list[Any]:
    """The values of a column as those of a field."""
    if pa.types.is_timestamp(column.type):
        micros = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
        return [None if each is None else Timestamp(micros=each) for each in micros.to_pylist()]
    return column.to_pylist()


@functools.cache
def _row(row: Any, fields: Fields) -> Any:
    """One type for each row and its key fields in a process, so that rows can be compared, and written by what they are."""
    hints = typing.get_type_hints(row)
    every = [each for name in row._fields for each in (fields if name == ITEM else [(name, hints[name])])]
    made = typing.cast(Any, NamedTuple(row.__name__, every))
    made.__doc__ = row.__doc__
    made.__reduce__ = lambda self: (_remade, (row, fields, tuple(self)))
    beam.coders.registry.register_coder(made, beam.coders.RowCoder)
    return made


def _remade(row: Any, fields: Fields, values: tuple[Any, ...]) -> NamedTuple:
    return _row(row, fields)(*values)


def _identifier(name: str) -> str:
    plain = re.sub(r"\W", "_", name).lstrip("_")
    return plain if plain.isidentifier() and not keyword.iskeyword(plain) else f"key_{plain}"


def _python_type(shown: pa.DataType) -> Any:
    """The type of a field: one that Beam's schemas have, where there is one."""
    if pa.types.is_boolean(shown):
        return bool
    if pa.types.is_integer(shown) and not pa.types.is_uint64(shown):  # Beam's integers end at 2**63
        return int
    if pa.types.is_date(shown):
        return datetime.date
    if pa.types.is_timestamp(shown):
        return Timestamp
    return str if pa.types.is_string(shown) else Any
