"""The columns that a job takes from its input files: their names, their types, and the batches they become."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.contributions import IDS, Place
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.sampled.axis import Axis, is_value_type, leaf_column
from headcount.mechanisms.sampled.leaves import Leaves
from headcount.pipelines.suggestions import did_you_mean, nearest

ROWS_PER_BATCH = 2**21
MOST_INT64 = 2**63 - 1
LEAST_INT64 = -(2**63)

OBJECT = "an object"
_MOST_NAMES = 50  # that a message lists
_KINDS = {str: "string", int: "int64"}


class ValueColumn(str):
    """The name of an item column that holds values, numbers or times, which are read as the leaves of a public grid."""

    axis: Axis
    leaves: Leaves
    drop_null: bool

    def __new__(cls, name: str, axis: Axis, leaves: Leaves, drop_null: bool) -> ValueColumn:
        """A name with what its values become; NaN is refused, or null with `drop_null`."""
        column = super().__new__(cls, name)
        column.axis, column.leaves, column.drop_null = axis, leaves, drop_null
        return column

    def __reduce__(self) -> tuple[type[ValueColumn], tuple[str, Axis, Leaves, bool]]:
        return ValueColumn, (str(self), self.axis, self.leaves, self.drop_null)

    def leaf(self, path: str, first_row: int, array: pa.Array) -> pa.Array:
        """The leaf of each value of a batch."""
        return leaf_column(array, self.axis, self.leaves, str(self), self.drop_null, Place(path, first_row))


@dataclasses.dataclass(frozen=True)
class Columns:
    """Which columns of the files hold the users, the items and, if any, the counts."""

    user: str
    item: str
    count: str | None = None

    def __post_init__(self) -> None:
        for name in self.names:
            if not isinstance(name, str) or not name:
                raise ParameterError(f"a column must be named by a string that is not empty, got {name!r}")
        if len(set(self.names)) < len(self.names):
            raise ParameterError(f"user, item and count must be different columns, got {', '.join(self.names)}")

    @property
    def ids(self) -> tuple[str, str]:
        return self.user, self.item

    @property
    def values(self) -> ValueColumn | None:
        """The item column, if it holds values."""
        return self.item if isinstance(self.item, ValueColumn) else None

    def kind(self, name: str, found: pa.DataType) -> type | None:
        """str or int for a type that a column may have, None for any other; values become integers."""
        if name == self.values:
            return int if is_value_type(found) else None
        return id_kind(found)

    @property
    def names(self) -> tuple[str, ...]:
        return self.ids if self.count is None else (*self.ids, self.count)


@dataclasses.dataclass(frozen=True)
class ItemColumns(Columns):
    """The columns of events without a user: the item stands in for it, and is read once."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.item,) if self.count is None else (self.item, self.count)


def columns_of(user: str | None, item: str, count: str | None = None) -> Columns:
    """The columns of events; without a `user`, those of items alone."""
    return ItemColumns(item, item, count) if user is None else Columns(user, item, count)


@dataclasses.dataclass(frozen=True)
class ColumnTypes:
    """What the ids of all files must be: each column str or int, as it was found in `file`.

    `decoded` is how many bytes the columns of that file are without compression, where its footer says so, else 0.
    """

    user: type
    item: type
    file: str
    decoded: int = 0

    @property
    def ids(self) -> tuple[type, type]:
        return self.user, self.item


def arrow_type(kind: type) -> pa.DataType:
    """The Arrow type of ids that are str or int, and of values that are float."""
    return {str: pa.string(), int: pa.int64(), float: pa.float64()}[kind]


def id_kind(found: pa.DataType) -> type | None:
    """str or int for a type that ids may have, None for any other. Unsigned 64-bit integers are checked later."""
    if pa.types.is_dictionary(found):
        found = found.value_type
        if pa.types.is_uint64(found):
            return None
    if pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found):
        return str
    return int if pa.types.is_integer(found) else None


def object_words(name: str, fields: Sequence[str] = ()) -> str:
    """What a column of objects is, in words that name the fields of a schema and say how to ask for one."""
    more = f" and {len(fields) - _MOST_NAMES} more" if len(fields) > _MOST_NAMES else ""
    known = f" with the fields {', '.join(map(repr, fields[:_MOST_NAMES]))}{more}" if fields else ""
    return f"{OBJECT}{known}: name one of its fields by its path, for instance {name}.{[*fields, 'id'][0]}"


def found_types(path: str, columns: Columns, kinds: Mapping[str, type | None], words: Mapping[str, str]) -> ColumnTypes:
    """Checks the columns of a file with a schema, given as the kind of each column and a word for its type."""
    for name in columns.ids:
        if kinds[name] is None:
            if words[name].startswith(OBJECT):
                raise InputError(f"{path}: column {name!r} is {words[name]}")
            needed = "values must be numbers, dates, times or texts of these"
            if name != columns.values:
                needed = IDS
            raise InputError(f"{path}: column {name!r} is {words[name]}; {needed}")
    if columns.count is not None and kinds[columns.count] is not int:
        raise InputError(f"{path}: column {columns.count!r} is {words[columns.count]}; counts must be integers")
    user, item = (kinds[name] for name in columns.ids)
    assert user is not None and item is not None
    return ColumnTypes(user, item, path)


def check_agreement(path: str, columns: Columns, found: ColumnTypes, expected: ColumnTypes) -> None:
    """Refuses a file whose ids have other types than those of the file that was looked at first."""
    for name, here, there in zip(columns.ids, found.ids, expected.ids, strict=True):
        if here is not there:
            raise InputError(
                f"{path}: column {name!r} is {_KINDS[here]}, but {_KINDS[there]} in {expected.file}; "
                "all files must have the same types"
            )


def check_names(path: str, columns: Columns, available: Iterable[str], is_schema: bool = True) -> None:
    """Refuses a file that lacks a column, or has it twice; says which columns it has.

    Without a schema (`is_schema` false) the names may be data, such as the first row of a CSV file that has no
    header: then they are told only if one of the wanted columns is among them.
    """
    names = list(available)
    for name in columns.names:
        if names.count(name) > 1:
            raise InputError(f"{path}: column {name!r} occurs {names.count(name)} times")
    missing = [name for name in columns.names if name not in names]
    if not missing:
        return
    if is_schema or len(missing) < len(columns.names):
        shown = ", ".join(repr(name) for name in names[:_MOST_NAMES])
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        near = did_you_mean(map(repr, nearest(missing[0], [name for name in names if name not in columns.names])))
        raise InputError(
            f"{path}: no column {missing[0]!r}{near and f', {near}' or ';'} it has {shown or 'none'}{more}"
        )
    raise InputError(
        f"{path}: no column {missing[0]!r} among its {len(names)} columns, nor any other that was asked for; "
        "is its first row a header?"
    )


def event_batch(path: str, first_row: int, columns: Columns, arrays: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """One batch of events: user, item[, count], with the file and the number of its first row as metadata."""
    chosen = {"user": arrays[columns.user], "item": arrays[columns.item]}
    if columns.values is not None:
        chosen["item"] = columns.values.leaf(path, first_row, chosen["item"])
    if columns.count is not None:
        chosen["count"] = arrays[columns.count]
    for role, array in chosen.items():
        if pa.types.is_uint64(array.type):
            chosen[role] = _signed(path, first_row, str(getattr(columns, role)), array)
        elif pa.types.is_string_view(array.type):
            chosen[role] = array.cast(pa.string())
        elif role == "count":
            chosen[role] = array.cast(pa.int64())
    metadata: dict[bytes | str, bytes | str] = {
        b"headcount.file": path.encode("utf-8", "surrogateescape"),
        b"headcount.first_row": str(first_row).encode(),
    }
    fields = [pa.field(role, array.type) for role, array in chosen.items()]
    return pa.RecordBatch.from_arrays(list(chosen.values()), schema=pa.schema(fields, metadata))


def _signed(path: str, first_row: int, name: str, array: pa.Array) -> pa.Array:
    """Unsigned integers as int64, unless one is too large; its row is told, not its value."""
    large = pc.index(pc.greater(array, pa.scalar(MOST_INT64, pa.uint64())), True).as_py()
    if large >= 0:
        raise InputError(f"{path}, row {first_row + large}: column {name!r} holds an integer above 2^63 - 1")
    return array.cast(pa.int64())
