"""The schema of rows: columns of a table, of any types that keys may have, become contribution batches of (user, item, count).

Types are settled before the first row, from a schema. What is not known by then is a string, or where the key is one column
that is taken as it is, a string or an integer as it comes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Self

import numpy as np
import pyarrow as pa

from headcount.mechanisms.accounting.windows import USER, window_of
from headcount.mechanisms.batches.contributions import MAX_ITEM_BYTES, Place, contribution_batch
from headcount.mechanisms.batches.shards import CONTRIBUTIONS
from headcount.mechanisms.columns.fields import CONVERT, Field, field_of
from headcount.mechanisms.columns.flags import parse_carried
from headcount.mechanisms.columns.key_column import KeyColumn, parse_columns
from headcount.mechanisms.columns.keys import Keys
from headcount.mechanisms.columns.nested import column_at, element_type, exploded, found_type, is_list
from headcount.mechanisms.columns.preparation import Preparation
from headcount.mechanisms.columns.reading import reading
from headcount.mechanisms.columns.times import UTC, check_zone
from headcount.mechanisms.columns.value_ranges import (
    ValueRange,
    is_text,
    value_columns,
)
from headcount.mechanisms.errors import InputError, ParameterError

_STRING = pa.string()
_MOST_IN_WINDOWS = 1 << 21  # contributions that are made of rows at a time


@dataclasses.dataclass(frozen=True)
class RowSchema:
    """Which columns hold users, keys and counts, what is made of them, and, once they are known, of what types they are.

    With a `window`, the unit of time of a column, who is protected is a user in one window. Its name is that of both, and it is
    a user of its own for all that follows.

    `values` are the columns of numbers that rows carry, with their ranges, for what is made of these by key.

    `prepare` is what is done to rows before all else, of which the columns named here are the result.

    `users` and `keys` are None where types are not known: such columns must hold strings or integers.
    """

    user: str
    items: tuple[KeyColumn, ...]
    count: str | None = None
    drop_null: bool = False
    max_item_bytes: int = MAX_ITEM_BYTES
    explode: str | None = None
    time_zone: str = UTC
    window: KeyColumn | None = None
    values: tuple[ValueRange, ...] = ()
    prepare: Preparation = Preparation()
    users: Keys | None = None
    keys: Keys | None = None

    def __post_init__(self) -> None:
        self.prepare.check_user(self.user)
        named = [name for name in (self.user, *self.sources, self.count) if name is not None]
        if len(set(named)) < len(named):
            raise ParameterError(f"user, item and count must be different columns, got {', '.join(map(repr, named))}")
        if self.window is not None and self.window.source in (self.user, self.count):
            raise ParameterError("time must be another column than those of the users and the counts", "time")
        for column in self.items:
            if column.days and self.window is not None:
                raise ParameterError(
                    f"{column.spec} counts a user once in {column.days} days, but with protect = 'user-{self.window.unit}' a "
                    f"user is another one in each {self.window.unit}, and would count once for each: leave protect out, or "
                    f"count by {column.source}:{self.window.unit}",
                    "protect",
                )
        if isinstance(self.max_item_bytes, bool) or not isinstance(self.max_item_bytes, int) or self.max_item_bytes < 1:
            raise ParameterError(
                f"max_item_bytes must be a positive integer, got {self.max_item_bytes!r}", "max_item_bytes"
            )
        if self.explode is not None and self.explode not in self.sources:
            raise ParameterError(
                f"explode = {self.explode!r} is none of the key columns: name it by item too", "explode"
            )

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns that hold the keys, each once."""
        return tuple(dict.fromkeys(column.source for column in self.items))

    @property
    def named(self) -> tuple[str, ...]:
        """All columns that something is made of, each once."""
        named = (self.user, *self.sources, self.count, self.time, *self.carried)
        return tuple(dict.fromkeys(name for name in named if name is not None))

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that rows must have, each once."""
        return self.prepare.read(self.named)

    @property
    def time(self) -> str | None:
        """The column of windows, where that is a column of its own."""
        return None if self.window is None or self.window.source in self.sources else self.window.source

    @property
    def carried(self) -> tuple[str, ...]:
        """The columns of what rows carry."""
        return tuple(name for of in self.values for name in of.sources)

    @property
    def beside(self) -> tuple[str, ...]:
        """The columns besides those of user, key and count, which are all that a tuple has."""
        return tuple(name for name in self.columns if name not in (self.user, *self.sources, self.count))

    @property
    def reading(self) -> str:
        """How rows are read, for the key of their release. (Values have names and ranges in what is made of them.)"""
        return reading(
            user=self.user,
            item=[column.spec for column in self.items],
            count=self.count,
            drop_null=self.drop_null,
            max_item_bytes=self.max_item_bytes,
            explode=self.explode,
            time_zone=self.time_zone,
            window=None if self.window is None else self.window.spec,
            **self.prepare.said,
        )

    @property
    def is_plain(self) -> bool:
        """Whether the key is one column that is taken as it is."""
        return len(self.items) == 1 and not self.items[0].unit and not self.items[0].edges

    @property
    def shown(self) -> Keys:
        """The key columns of the output; those whose types are not known are taken for strings."""
        return self.keys or Keys(tuple(Field(column, _STRING, self.time_zone) for column in self.items))

    def of_schema(self, schema: pa.Schema, where: str = "") -> Self:
        """The same for columns of these types, or an InputError, which begins with `where`; a null type is one not known."""
        self.prepare.refuse_twice(schema.names, self.named, where)
        found = {path: _found(schema, path) for path in self.columns}
        for path, type_ in found.items():
            if type_ is None:
                known = ", ".join(map(repr, schema.names))
                raise InputError(f"{where}no column {path!r}; the columns are {known}")
        return self.of_types({path: type_ for path, type_ in found.items() if type_ is not None}, where)

    def of_types(self, found: Mapping[str, pa.DataType], where: str = "") -> Self:
        """The same for types by the path of a column, some of which may be missing."""
        prepare, types = self.prepare.of_types(found, where)
        if self.count in types and not pa.types.is_integer(types[self.count]):
            raise InputError(f"{where}column {self.count!r} is {types[self.count]}; counts are whole numbers")
        for of in self.values:
            of.check_types(types, where)
        users = user_keys(self.user, self.window, types, self.time_zone, where)
        if self.explode in types:
            types[self.explode] = element_type(types[self.explode], self.explode)
        known = not self.is_plain or self.sources[0] in types
        fields = (field_of(column, types.get(column.source, _STRING), where, self.time_zone) for column in self.items)
        keys = Keys(tuple(fields)) if known else None
        return dataclasses.replace(self, prepare=prepare, users=users, keys=keys)

    def batch(self, data: pa.RecordBatch, place: Place) -> pa.RecordBatch:
        """The contributions of a batch, or an InputError; `place` says where it comes from."""
        return self.contributions(self.columns_of(data, place), place)

    def columns_of(self, data: pa.RecordBatch, place: Place) -> dict[str, pa.Array]:
        """The columns that are read, by their paths."""
        for path in self.columns:
            if found_type(data.schema, path) is None:
                # Of a frame, only the columns that are asked for have come here.
                asked_for = {each.split(".")[0] for each in self.columns}.issuperset(data.schema.names)
                words = "of those asked for there are" if asked_for else "the columns are"
                raise place.error(path, f"is missing; {words} {', '.join(map(repr, data.schema.names)) or 'none'}")
        return {path: column_at(data, path) for path in self.columns}

    def contributions(self, columns: Mapping[str, pa.Array], place: Place) -> pa.RecordBatch:
        """The contributions of columns, by their paths; they are all there."""
        columns, place = self.prepare.prepared(columns, self.named, place)
        if self.explode is not None:
            if pa.types.is_null(columns[self.explode].type):  # no row has a list
                columns = {**columns, self.explode: pa.nulls(len(columns[self.explode]), pa.list_(pa.null()))}
            if not is_list(columns[self.explode].type):
                raise place.error(self.explode, f"is {columns[self.explode].type}, no list: leave out explode")
            columns = exploded(columns, self.explode)
            place = dataclasses.replace(place, first_row=None)  # rows have other numbers now
        absent = [source for source in self.sources if columns[source].null_count]
        place = dataclasses.replace(
            place, user=self.user, item=(absent or [", ".join(self.sources)])[0], count=self.count or "count"
        )
        if self.window is not None and not columns[self.user].null_count:
            place = dataclasses.replace(place, user=self.window.source)  # a row without a unit has a user, but no time
        user = names_of(self.users, (self.user,), columns, place)
        item = names_of(self.keys, self.sources, columns, place)
        count = None if self.count is None else columns[self.count]
        made = contribution_batch(
            user,
            item,
            count,
            values=value_columns(self.values, columns, place),
            drop_null=self.drop_null,
            max_item_bytes=self.max_item_bytes,
            place=place,
        )
        return made if self.keys is None or not self.keys.days else in_windows(made, self.keys)

    def parts(self, data: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows of a batch in parts, of which each makes a batch of contributions that memory holds."""
        days = 0 if self.keys is None else self.keys.days
        most = _MOST_IN_WINDOWS // days if days else max(1, data.num_rows)
        return (data.slice(start, most) for start in range(0, max(1, data.num_rows), most))


def in_windows(batch: pa.RecordBatch, keys: Keys) -> pa.RecordBatch:
    """The contributions of each row to all windows that it is in: one for each, all of them the user's own.

    Guarantee: a user's rows make that user's contributions alone, so that neighbours stay neighbours for every relation, and
    whatever bounds a user later sees all of them. (Were rows put into windows once they are bounded, a user would count up to
    `keys.days` times as much as the noise is made for.)
    """
    user, item = (_encoded(batch.column(name)) for name in ("user", "item"))
    names, place = keys.in_windows(item.dictionary)
    each = np.repeat(np.arange(batch.num_rows), keys.days)
    columns = {
        name: batch.column(name).take(pa.array(each)) for name in batch.schema.names if name not in ("user", "item")
    }
    columns["user"] = pa.DictionaryArray.from_arrays(user.indices.take(pa.array(each)), user.dictionary)
    codes = place[np.asarray(item.indices)].ravel()
    columns["item"] = pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), names)
    made = {name: columns[name] for name in batch.schema.names}
    return pa.RecordBatch.from_pydict(made, metadata={CONTRIBUTIONS: b"1"})  # without a bound, if there was one


def _encoded(column: pa.Array) -> pa.DictionaryArray:
    return column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()


def _found(schema: pa.Schema, path: str) -> pa.DataType | None:
    """The type of a column; a null type also inside an object that nothing is known of, and None without a column."""
    found, top = found_type(schema, path), path
    while found is None and "." in top:
        top = top.rpartition(".")[0]
        outer = found_type(schema, top)
        found = outer if outer is not None and pa.types.is_null(outer) else None
    return found


def asked(
    user: str,
    item: str | Iterable[str],
    count: str | None = None,
    *,
    drop_null: bool = False,
    max_item_bytes: int = MAX_ITEM_BYTES,
    explode: str | None = None,
    time_zone: str = UTC,
    protect: str = USER,
    time: str | None = None,
    values: Iterable[str | ValueRange] = (),
    prepare: Preparation | None = None,
) -> RowSchema:
    """The schema of rows that these words ask for, with no types known yet."""
    window = window_column(protect, time)
    zone = check_zone(time_zone)
    ranges = tuple(parse_carried("values", of, zone) if isinstance(of, str) else of for of in values)
    return RowSchema(
        user,
        parse_columns(item),
        count,
        drop_null,
        max_item_bytes,
        explode,
        zone,
        window,
        ranges,
        prepare or Preparation(),
    )


def window_column(protect: str, time: str | None) -> KeyColumn | None:
    """The column that tells the window of a row, and its unit; None where a user's whole data is protected."""
    unit = window_of(protect)
    if unit is None:
        if time is not None:
            raise ParameterError(
                f"time says when a row was, for a protect such as 'user-day'; with {protect!r} leave it out", "time"
            )
        return None
    if time is None:
        raise ParameterError(f"time must name the column that says when a row was, as protect is {protect!r}", "time")
    return KeyColumn(time, unit)


def user_keys(
    user: str, window: KeyColumn | None, types: Mapping[str, pa.DataType], zone: str = UTC, where: str = ""
) -> Keys | None:
    """Who is protected, as the name of a user, or of a user and a window; None for a user of whom no type is known."""
    if window is None:
        return Keys((_user_field(user, types[user], where),)) if user in types else None
    found = _user_field(user, types.get(user, _STRING), where)
    return Keys((found, field_of(window, types.get(window.source, _STRING), where, zone)))


def _user_field(user: str, found: pa.DataType, where: str) -> Field:
    column = KeyColumn(user)
    try:
        return field_of(column, found, where)
    except InputError:
        if pa.types.is_struct(found):
            raise
        raise InputError(f"{where}column {user!r} is {found}, which no user is known by; {CONVERT}") from None


def names_of(keys: Keys | None, sources: tuple[str, ...], columns: Mapping[str, pa.Array], place: Place) -> pa.Array:
    """One column of names, of columns of the types that are known, or of those that need none."""
    if keys is None:
        (source,) = sources
        if not _is_name(columns[source].type):
            raise _unknown(source, columns[source].type, place)
        return columns[source]
    as_known = dict(columns)
    for field in keys.fields:
        source = field.column.source
        as_known[source] = _as_known(columns[source], field, place)
    return keys.encode(as_known, place)


def _is_name(found: pa.DataType) -> bool:
    plain = found.value_type if pa.types.is_dictionary(found) else found
    return is_text(plain) or pa.types.is_integer(plain) or pa.types.is_null(plain)


def _as_known(array: pa.Array, field: Field, place: Place) -> pa.Array:
    """A column with the type that is known, or an InputError: files, and batches of a stream, may differ."""
    found = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    known, source = field.found, field.column.source
    if found == known or pa.types.is_null(found) or (is_text(found) and is_text(known)):
        return array
    if field.column.unit or field.column.edges:  # what is made of such columns does not depend on their type
        field_of(field.column, found, f"{place.file}: " if place.file else "", field.zone)
        return array
    if pa.types.is_decimal(found) and pa.types.is_decimal(known):  # whose names are the same, whatever digits they keep
        return array
    if isinstance(found, pa.BaseExtensionType) and found.storage_type == known:
        return array.storage
    families = (pa.types.is_integer, pa.types.is_date, pa.types.is_time)
    alike = found.id == known.id or any(of(found) and of(known) for of in families)
    try:
        if alike:
            return array.cast(known)
    except pa.ArrowInvalid:
        raise place.error(source, f"is {found} and holds a value that {known} cannot") from None
    raise _unknown(source, found, place, known)


def _unknown(source: str, found: pa.DataType, place: Place, known: pa.DataType = _STRING) -> InputError:
    return place.error(
        source,
        f"is {found}, and was taken for {known} where the job was put together: give its type by "
        f"schema=pa.schema([({source!r}, TYPE)])",
    )
