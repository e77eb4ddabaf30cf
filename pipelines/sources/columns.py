"""The columns that a job takes from its input files: their names, their types, and the batches they become."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.columns import nested
from headcount.mechanisms.columns.conditions import Condition
from headcount.mechanisms.columns.fields import field_of
from headcount.mechanisms.columns.key_column import KeyColumn, parse_columns
from headcount.mechanisms.columns.keys import Keys, resolve
from headcount.mechanisms.columns.preparation import Preparation
from headcount.mechanisms.columns.times import UTC, check_zone, is_time
from headcount.mechanisms.columns.value_ranges import ValueRange
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.sampled.axis import Axis, is_value_type, leaf_column
from headcount.mechanisms.sampled.leaves import Leaves
from headcount.pipelines import progress
from headcount.pipelines.sources.hive import folder_columns, folder_value
from headcount.pipelines.suggestions import did_you_mean, each_of, nearest

ROWS_PER_BATCH = 2**21
MOST_INT64 = 2**63 - 1
LEAST_INT64 = -(2**63)

_MOST_NAMES = 50  # that a message lists


@dataclasses.dataclass(frozen=True)
class ValueColumn:
    """A column of values, numbers or times, which are read as the leaves of a public grid."""

    name: str
    axis: Axis
    leaves: Leaves
    drop_null: bool  # NaN is null; otherwise it is refused

    def leaf(self, place: Place, array: pa.Array) -> pa.Array:
        """The leaf of each value of a batch."""
        return leaf_column(array, self.axis, self.leaves, self.name, self.drop_null, place)


@dataclasses.dataclass(frozen=True)
class Columns:
    """Which columns of the files hold what: by their names, or by the paths of fields inside them.

    A job that needs no users, no keys or no counts leaves them out; `values` are in place of keys. A row counts for each
    element of the list in its column `explode`, which must be one of the keys'. `zone` is the time zone of the keys' units.
    `window` is the column of the times by which users are protected, if they are by windows. `carried` are values that rows
    carry to what is made of them by key: columns of numbers, and those of conditions. All of these are columns of rows as
    `prepare` makes them. `time` is the column that says when a row was, and rows are told apart by `conditions`.
    """

    user: str | None
    keys: tuple[KeyColumn, ...] = ()
    count: str | None = None
    explode: str | None = None
    zone: str = UTC
    values: ValueColumn | None = None
    window: KeyColumn | None = None
    carried: tuple[ValueRange, ...] = ()
    prepare: Preparation = Preparation()
    time: str | None = None
    conditions: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        self.prepare.check_user(self.user)
        for name in self.names:
            if not isinstance(name, str) or not name:
                raise ParameterError(f"a column must be named by a string that is not empty, got {name!r}")
        given = [self.user, *self.held, self.count]
        named = [name for name in given if name is not None]
        if len(set(named)) < len(named):
            raise ParameterError(f"user, item and count must be different columns, got {', '.join(named)}")
        if self.window is not None and self.values is not None and self.window.source == self.values.name:
            raise ParameterError("--time must be another column than that of the values", "time")
        if self.explode is not None and self.explode not in self.held:
            raise ParameterError(f"--explode {self.explode} must be one of the columns of --item", "explode")
        check_zone(self.zone)

    @property
    def held(self) -> tuple[str, ...]:
        """The columns of the keys, or of the values, and of windows, each once."""
        values = () if self.values is None else (self.values.name,)
        return tuple(dict.fromkeys((*values, *(key.source for key in self.made))))

    @property
    def made(self) -> tuple[KeyColumn, ...]:
        """What is made of columns: the keys, and windows."""
        return self.keys if self.window is None else (*self.keys, self.window)

    @property
    def names(self) -> tuple[str, ...]:
        """All columns, each once."""
        carried = (name for of in self.carried for name in of.sources)
        named = (self.user, *self.held, self.count, *carried, self.time, *self.compared)
        return tuple(dict.fromkeys(name for name in named if name is not None))

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns of numbers that are carried, and those that conditions compare with numbers."""
        return tuple(dict.fromkeys(name for of in self.carried for name in of.number_sources))

    @property
    def read(self) -> tuple[str, ...]:
        """Those that the files have: a table that is joined has others, and a condition may need more."""
        return self.prepare.read(self.names)

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns that conditions look at."""
        return tuple(dict.fromkeys(name for condition in self.conditions for name in condition.columns))

    def stored(self, path: str) -> tuple[str, ...]:
        """Those of them that a file itself holds: the others are in the names of its folders."""
        folders = folder_columns(path)
        return tuple(name for name in self.read if name not in folders)


def columns_of(
    user: str | None,
    item: str | Sequence[str] | None,
    count: str | None = None,
    explode: str | None = None,
    zone: str = UTC,
    window: KeyColumn | None = None,
    carried: Iterable[ValueRange] = (),
    prepare: Preparation | None = None,
) -> Columns:
    """The columns that texts ask for, as in `mechanisms.columns.key_column`."""
    keys, prepare = () if item is None else parse_columns(item), prepare or Preparation()
    return Columns(user, keys, count, explode, zone, window=window, carried=tuple(carried), prepare=prepare)


@dataclasses.dataclass(frozen=True)
class ColumnTypes:
    """The types of the columns in all files, as they were found in `file`; those of text files as they are asked for.

    `decoded` is how many bytes the columns of the largest file are without compression, where its footer says so, else 0.
    """

    schema: pa.Schema
    file: str
    decoded: int = 0

    def keys(self, columns: Columns) -> Keys:
        """What the keys become."""
        return _keys(self.file, columns, {name: self.schema.field(name).type for name in columns.held})


def object_description(name: str, fields: Sequence[str] = ()) -> str:
    """What a column of objects is, in words that name the fields of a schema and say how to ask for one."""
    more = f" and {len(fields) - _MOST_NAMES} more" if len(fields) > _MOST_NAMES else ""
    known = f" with the fields {', '.join(map(repr, fields[:_MOST_NAMES]))}{more}" if fields else ""
    return f"an object{known}: name one of its fields by its path, for instance {name}.{[*fields, 'id'][0]}"


def found_types(path: str, columns: Columns, schema: pa.Schema, decoded: int = 0) -> ColumnTypes:
    """The types of the columns of a file whose own columns are these; refuses what cannot be a user, a key or a count."""
    check_names(path, columns, schema)
    stored = columns.stored(path)
    types = {name: nested.found_type(schema, name) if name in stored else pa.string() for name in columns.read}
    types |= {name: found for name, found in columns.prepare.tabled.items() if name in columns.names}
    columns.prepare.of_types(types, f"{path}: ")
    empty = [name for name in (columns.user, *columns.held) if name is not None and pa.types.is_null(types[name])]
    if empty:
        raise InputError(f"{path}: column {empty[0]!r} is null: by its type no row has a value")
    for name, found in types.items():
        if found is not None and pa.types.is_struct(found):
            raise InputError(f"{path}: column {name!r} is {object_description(name, found.names)}")
    if columns.user is not None:
        types[columns.user] = _user_type(path, columns.user, types[columns.user])
    for name in (*columns.held, *columns.prepare.columns):
        if name in types:
            types[name] = _widened(types[name])
    if columns.values is not None:
        if not is_value_type(types[columns.values.name]):
            needed = "values must be numbers, dates, times or texts of these"
            raise InputError(f"{path}: column {columns.values.name!r} is {_word(types[columns.values.name])}; {needed}")
        types[columns.values.name] = pa.int64()  # once they are leaves
    elif columns.keys:
        _keys(path, columns, types)
    for of in columns.carried:
        of.check_types({name: types[name] for name in of.sources}, f"{path}: ")
    if columns.time is not None:
        field_of(KeyColumn(columns.time, "day"), types[columns.time], f"{path}: ", columns.zone)
    for condition in columns.conditions:
        condition.check({name: types[name] for name in condition.columns})
    if columns.window is not None:
        field_of(columns.window, types[columns.window.source], f"{path}: ", columns.zone)
    if columns.count is not None and not pa.types.is_integer(types[columns.count]):
        raise InputError(f"{path}: column {columns.count!r} is {_word(types[columns.count])}; counts must be integers")
    return ColumnTypes(pa.schema(list(types.items())), path, decoded)


def _keys(path: str, columns: Columns, types: Mapping[str, pa.DataType]) -> Keys:
    where = f"{path}: " if path else ""
    types = dict(types)
    if columns.explode is not None:
        try:
            types[columns.explode] = nested.element_type(types[columns.explode], columns.explode)
        except InputError as error:
            raise InputError(f"{where}{error}") from None
    return resolve(columns.keys, types, where, columns.zone)


def _user_type(path: str, name: str, found: pa.DataType) -> pa.DataType:
    """The type that a column of users is read as: no output shows it, so integers of any size are the same."""
    try:
        plain = field_of(KeyColumn(name), found, f"{path}: ").found
    except InputError:
        raise InputError(
            f"{path}: column {name!r} is {_word(found)}, which tells no users apart: give a column of strings or integers"
        ) from None
    return _widened(plain) if pa.types.is_integer(plain) else found


def _widened(found: pa.DataType) -> pa.DataType:
    """Integers as int64, so that files of other widths have the same keys, whichever comes first; but for uint64."""
    return pa.int64() if pa.types.is_integer(found) and not pa.types.is_uint64(found) else found


def check_agreement(path: str, columns: Columns, found: ColumnTypes, expected: ColumnTypes) -> None:
    """Refuses a file whose columns have other types than those of the file that was looked at first."""
    for name in found.schema.names:
        here, there = (each.schema.field(name).type for each in (found, expected))
        asked = [key for key in columns.made if key.source == name]
        made = (bool(asked) or name in (*columns.numbers, columns.time)) and all(key.unit or key.edges for key in asked)
        made = made and name not in columns.compared
        if not _agree(_plain(here), _plain(there), exact=not made):
            raise InputError(
                f"{path}: column {name!r} is {_word(here)}, but {_word(there)} in {expected.file}; "
                "all files must have the same types"
            )


def _agree(here: pa.DataType, there: pa.DataType, exact: bool) -> bool:
    """Whether a value of one type is the same key as one of the other: equal types, and smaller integers.

    Where values are put into units or bins (not `exact`), it is enough that both are times, or numbers.
    """
    if here.equals(there):
        return True
    if nested.is_list(here) and nested.is_list(there):
        return _agree(_plain(here.value_type), _plain(there.value_type), exact)
    if pa.types.is_integer(here) and pa.types.is_integer(there):
        (low, high), (least, most) = map(_limits, (here, there))
        return not exact or least <= low and high <= most
    return not exact and ((is_time(here) and is_time(there)) or (_is_number(here) and _is_number(there)))


def _limits(found: pa.DataType) -> tuple[int, int]:
    """The least and the largest integer of a type."""
    if pa.types.is_unsigned_integer(found):
        return 0, (1 << found.bit_width) - 1
    return -1 << found.bit_width - 1, (1 << found.bit_width - 1) - 1


def _plain(found: pa.DataType) -> pa.DataType:
    """The type without what makes no other key: dictionaries, and how strings lie in memory."""
    found = found.value_type if pa.types.is_dictionary(found) else found
    return pa.string() if pa.types.is_large_string(found) or pa.types.is_string_view(found) else found


def _is_number(found: pa.DataType) -> bool:
    return pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_decimal(found)


def check_names(path: str, columns: Columns, available: pa.Schema | Iterable[str], is_schema: bool = True) -> None:
    """Refuses a file that lacks a column, or has it twice; says which columns it has.

    Without a schema (`is_schema` false) the names may be data, such as the first row of a CSV file that has no
    header: then they are told only if one of the wanted columns is among them.
    """
    schema = available if isinstance(available, pa.Schema) else None
    names = list(schema.names if schema is not None else available)
    stored = columns.stored(path)
    if not stored:
        raise InputError(f"{path}: all columns are in the names of its folders: name one that the file itself holds")
    columns.prepare.refuse_twice(names, columns.names, f"{path}: ")
    for name in columns.read:
        if names.count(name) > 1:
            raise InputError(f"{path}: column {name!r} occurs {names.count(name)} times")
        if name not in stored and name in names:
            raise InputError(
                f"{path}: column {name!r} is in the file and in the name of a folder ({name}=...), and they may differ: "
                "rename one of them"
            )
    missing = [
        name for name in stored if name not in names and (schema is None or nested.found_type(schema, name) is None)
    ]
    if not missing:
        return
    for key in columns.keys:
        if key.source == missing[0] and (parts := each_of(key.source, names)):
            each = [*parts[:-1], dataclasses.replace(key, source=parts[-1]).spec]
            told = " ".join(f"--item {name}" for name in each)
            raise InputError(f"{path}: no column {key.source!r}; give its columns one by one: {told}")
    top = missing[0].split(".")[0]
    if schema is not None and top in names and pa.types.is_struct(schema.field(top).type):
        fields = schema.field(top).type.names
        raise InputError(f"{path}: no column {missing[0]!r}; {top!r} is {object_description(top, fields)}")
    if is_schema or len(missing) < len(stored):
        shown = ", ".join(repr(name) for name in names[:_MOST_NAMES])
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        near = did_you_mean(map(repr, nearest(missing[0], [name for name in names if name not in columns.read])))
        raise InputError(
            f"{path}: no column {missing[0]!r}{near and f', {near}' or ';'} it has {shown or 'none'}{more}"
        )
    raise InputError(
        f"{path}: no column {missing[0]!r} among its {len(names)} columns, nor any other that was asked for; "
        "is its first row a header?"
    )


def event_batch(
    path: str, first_row: int, columns: Columns, expected: ColumnTypes, arrays: Mapping[str, pa.Array]
) -> pa.RecordBatch:
    """One batch of events: the columns by their names, with the file and the number of its first row as metadata.

    Columns in the names of folders are added. Then rows are prepared; without some of them, no row has a number.
    """
    chosen: dict[str, pa.Array] = {}
    rows = len(next(iter(arrays.values()))) if arrays else 0
    progress.advance(rows)
    given = {
        name: arrays[name] if name in arrays else _constant(folder_value(path, name), rows) for name in columns.read
    }
    made, place = columns.prepare.prepared(given, columns.names, Place(path, first_row))
    for name in columns.names:
        array = made[name]
        if columns.values is not None and name == columns.values.name:
            array = columns.values.leaf(place, array)
        elif name == columns.count:
            array = _signed(place, name, array)
        elif pa.types.is_string_view(array.type):
            array = array.cast(pa.string())
        elif pa.types.is_integer(array.type):
            there = _plain(expected.schema.field(name).type)
            array = array.cast(there) if pa.types.is_integer(there) and _agree(array.type, there, True) else array
        chosen[name] = array
    metadata: dict[bytes | str, bytes | str] = {
        b"headcount.file": path.encode("utf-8", "surrogateescape"),
    }
    if place.first_row is not None:
        metadata[b"headcount.first_row"] = str(place.first_row).encode()
    fields = [pa.field(name, array.type) for name, array in chosen.items()]
    return pa.RecordBatch.from_arrays(list(chosen.values()), schema=pa.schema(fields, metadata))


def place_of(batch: pa.RecordBatch, user: str = "user", item: str = "item", count: str = "count") -> Place:
    """Where a batch of events comes from, and what its columns are called, for messages."""
    found = batch.schema.metadata
    first = found.get(b"headcount.first_row")
    path = found[b"headcount.file"].decode(errors="replace")
    return Place(path, None if first is None else int(first), user, item, count)


def _constant(value: str | None, rows: int) -> pa.Array:
    """The same text in every row."""
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), pa.array([value], pa.string()))


def _signed(place: Place, name: str, array: pa.Array) -> pa.Array:
    """Counts as int64, unless one is too large; its row is told, not its value."""
    if pa.types.is_uint64(array.type):
        large = pc.index(pc.greater(array, pa.scalar(MOST_INT64, pa.uint64())), True).as_py()
        if large >= 0:
            raise place.error(name, "holds an integer above 2^63 - 1", large)
    return array.cast(pa.int64())


def _word(found: pa.DataType) -> str:
    text = str(found)
    return text if len(text) <= 60 else text[:57] + "..."
