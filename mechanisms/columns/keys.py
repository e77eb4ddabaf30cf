"""`Keys`: one or several key columns as one canonical, injective name, and back.

One column is its value inside: a text, or an int64. Several are joined to one text by U+001F, which is escaped where a text
holds it. The number of columns and their types are public and the same for all rows, so two keys that differ have names that
differ. Everything between reading and the released rows sees names alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.batches.distinct import distinct
from headcount.mechanisms.batches.names import Names, string_buffers
from headcount.mechanisms.columns.fields import Field, field_of
from headcount.mechanisms.columns.key_column import KeyColumn, check_distinct
from headcount.mechanisms.columns.times import UTC
from headcount.mechanisms.errors import InputError, ParameterError

ITEM = "item"  # what the key is called where no column names it

#: Between the columns of a name of several.
JOINT, _ESCAPE = "\x1f", "\x1b"


def taken(column: str, parameter: str) -> ParameterError:
    """A refusal of a key column: the result has another one of its name."""
    return ParameterError(
        f"the key column {column!r} has the name of another column of the result: rename it before", parameter
    )


@dataclasses.dataclass(frozen=True)
class Keys:
    """The key columns of a job, in their order."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        check_distinct([field.column for field in self.fields])

    @classmethod
    def plain(cls, item_type: type, name: str = ITEM) -> Keys:
        """One column of strings or integers."""
        return cls((Field(KeyColumn(name), {str: pa.string(), int: pa.int64()}[item_type]),))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns in the output."""
        return tuple(field.name for field in self.fields)

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns of the input that hold the keys, each once."""
        return tuple(dict.fromkeys(field.column.source for field in self.fields))

    @property
    def optional(self) -> bool:
        """Whether a key column of the output may be empty."""
        return False

    @property
    def item_type(self) -> type:
        """What names are inside: str or int."""
        return self.fields[0].kind if len(self.fields) == 1 else str

    @cached_property
    def schema(self) -> pa.Schema:
        """The key columns of the output."""
        return pa.schema([pa.field(field.name, field.shown) for field in self.fields])

    def encode(self, columns: Mapping[str, pa.Array], place: Place | None = None) -> pa.Array:
        """The name of each row's key, plain or as a dictionary; null where one of its columns is."""
        place = place or Place()
        values = [field.values(columns[field.column.source], place) for field in self.fields]
        return self.name_values(values)

    def name_values(self, values: Sequence[pa.Array]) -> pa.Array:
        """The name of each row's values inside, one array for each field."""
        return values[0] if len(values) == 1 else joined(values)

    def decode(self, names: Names) -> list[pa.Array]:
        """The key columns of names, with their types in the output."""
        return [field.shown_values(values) for field, values in zip(self.fields, self._values(names), strict=True)]

    @property
    def days(self) -> int:
        """How many windows each row is in: 0 where no column is one of windows that overlap."""
        return max(field.column.days for field in self.fields)

    def in_windows(self, names: Names) -> tuple[Names, np.ndarray]:
        """The names of all windows that rows with these names are in, each once, and for each of the given names the places of
        its own among them (names x days). A name has the first of its windows, which ends with the day of the row itself."""
        values, each = self._values(names), np.repeat(np.arange(len(names)), self.days)
        later = np.tile(np.arange(self.days), len(names))
        moved = [
            pa.array(np.asarray(value)[each] + later) if field.column.days else value.take(pa.array(each))
            for field, value in zip(self.fields, values, strict=True)
        ]
        made, place = distinct(self.name_values(moved))
        return made, place.reshape(len(names), self.days)

    def restore(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Released rows with the key columns in place of the names. Rows that begin with the key are sorted by it."""
        place = rows.schema.get_field_index(ITEM)
        for name in self.names:
            if name != ITEM and name in rows.schema.names:
                raise taken(name, "item")
        values = self._values(rows.column(place))
        keys = [field.shown_values(each) for field, each in zip(self.fields, values, strict=True)]
        columns = [*zip(rows.schema.names, rows.columns, strict=True)]
        columns[place : place + 1] = zip(self.names, keys, strict=True)
        fields = [pa.field(name, each.type) for name, each in columns]
        schema = pa.schema(fields, rows.schema.metadata)  # which says what was left out
        restored = pa.RecordBatch.from_arrays([each for _, each in columns], schema=schema)
        if place > 0:
            return restored
        by = {str(k): each for k, each in enumerate(values)}  # as values: bins have an order that their labels have not
        for k, field in enumerate(self.fields):
            if pa.types.is_uint64(field.shown):
                by[str(k)] = keys[k]
        return restored.take(pc.sort_indices(pa.table(by), [(name, "ascending") for name in by]))

    def _values(self, names: Names) -> list[pa.Array]:
        if len(self.fields) == 1:
            return [names]
        parts = pc.split_pattern(names, JOINT).flatten()
        chosen = np.arange(len(names)) * len(self.fields)
        columns = [parts.take(pa.array(chosen + k)) for k in range(len(self.fields))]
        return [of_text(field, column) for field, column in zip(self.fields, columns, strict=True)]


def resolve(columns: Sequence[KeyColumn], found: Mapping[str, pa.DataType], where: str = "", zone: str = UTC) -> Keys:
    """The keys of columns whose types are known, by their sources; an InputError if one cannot be a key."""
    return Keys(tuple(field_of(column, found[column.source], where, zone) for column in columns))


def first_columns(names: Names, number: int, of: int) -> Names:
    """The names of the first columns of keys that have so many."""
    if number == of:
        return names
    parts = pc.split_pattern(names, JOINT).flatten()
    if len(parts) != len(names) * of:
        raise InputError(
            f"keys in levels have {of} columns, but some items are other names: make them with Contributions"
        )
    columns = [parts.take(pa.array(np.arange(len(names)) * of + place)) for place in range(number)]
    return columns[0] if number == 1 else pc.binary_join_element_wise(*columns, JOINT)


def joined(values: Sequence[pa.Array]) -> pa.Array:
    """One text of several values, one to one; null where one of them is."""
    return pc.binary_join_element_wise(*map(_escaped, values), JOINT)


def _escaped(values: pa.Array) -> pa.Array:
    """Values as texts without a joint: an escape becomes two characters, and so does a joint."""
    if isinstance(values, pa.DictionaryArray):
        return _escaped(values.dictionary).take(values.indices)
    if pa.types.is_integer(values.type):
        return values.cast(pa.string())
    ends, data = string_buffers(values)
    data = data[ends[0] : ends[-1]]  # in UTF-8, bytes below 128 are these characters and no part of another
    if not ((data == ord(JOINT)) | (data == ord(_ESCAPE))).any():
        return values
    return pc.replace_substring(pc.replace_substring(values, _ESCAPE, f"{_ESCAPE}1"), JOINT, f"{_ESCAPE}2")


def of_text(field: Field, texts: pa.Array) -> pa.Array:
    """The values inside of a key column, of their texts in a name of several."""
    if field.kind is int:
        return texts.cast(pa.int64())
    return pc.replace_substring(pc.replace_substring(texts, f"{_ESCAPE}2", JOINT), f"{_ESCAPE}1", _ESCAPE)
