"""Public domains by key columns: what a caller gives, in the columns of the output, as the names that stand for the keys.

A domain is public: its rows may be told, and are by their numbers. Every key is there once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.batches.domain import Domain, sorted_distinct
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.python_values import column_of
from headcount.mechanisms.columns.fields import Field, as_int64, as_texts, is_string, is_uuid
from headcount.mechanisms.columns.key_column import INT
from headcount.mechanisms.columns.keys import Keys
from headcount.mechanisms.columns.public_files import Given
from headcount.mechanisms.columns.times import UTC, floored, is_time, seconds_of
from headcount.mechanisms.errors import InputError, ParameterError

MOST_KEYS = 10_000_000

_DAY = 86_400
_WHOLE = r"^(0|-?[1-9][0-9]{0,19})$"  # one spelling for each number
_UUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"


@dataclasses.dataclass(frozen=True)
class KeyList:
    """Key columns by their names in the output, of one file, frame or list."""

    columns: Mapping[str, pa.Array]
    given: Given = Given()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def of_list(keys_given: KeyList, keys: Keys) -> Domain:
    """The domain of key columns."""
    return Domain(in_order(names_of(keys_given, keys), keys_given.given))


def names_of(keys_given: KeyList, keys: Keys, max_item_bytes: int | None = None) -> Names:
    """The names of keys, in their order."""
    given = keys_given.given
    missing = [name for name in keys.names if name not in keys_given.columns]
    if missing:
        raise given.error(f"has no column {missing[0]!r}: it must have the key columns, {_columns(keys.names)}")
    if not len(keys_given):
        raise given.error("is empty: give at least one key")
    values = [inside(field, keys_given.columns[field.name], given, len(keys.fields) > 1) for field in keys.fields]
    return _named(keys, values, given, max_item_bytes)


def array_of(name: str, values: Sequence[Any]) -> pa.Array:
    """A key column of Python values."""
    if all(type(value) is int for value in values) and max(values) >= 1 << 63:
        values = list(map(str, values))  # of a column without a sign
    try:
        return column_of(values, name, Place())
    except InputError as error:
        raise ParameterError(f"the domain: {error}", "domain") from None


def names_of_product(lists: Mapping[str, KeyList], keys: Keys, max_item_bytes: int | None = None) -> Names:
    """The names of all combinations of a list for each key column."""
    return _named(keys, values_of_product(lists, keys), Given(), max_item_bytes)


def values_of_product(lists: Mapping[str, KeyList], keys: Keys) -> list[pa.Array]:
    """The values inside of all combinations of a list for each key column."""
    size = math.prod(map(len, lists.values()))
    if size > MOST_KEYS:
        sizes = " x ".join(f"{len(each):,}" for each in lists.values())
        raise Given().error(f"has {sizes} = {size:,} keys: give {MOST_KEYS:,} at most")
    values, later = [], size
    for field in keys.fields:
        each = lists[field.name]
        column = inside(field, each.columns[field.name], each.given, False)
        in_order(column, each.given)  # refuses what is there twice
        later //= len(column)
        place = np.tile(np.repeat(np.arange(len(column)), later), size // (later * len(column)))
        values.append(column.take(pa.array(place)))
    return values


def in_order(names: Names, given: Given) -> Names:
    """The names, sorted; refuses one that is there twice."""
    made, equal = sorted_distinct(names)
    if equal is not None:
        first, again = equal
        raise given.error(f"repeats {given.row} {first + 1}", again)
    return made


def inside(field: Field, column: pa.Array, given: Given, told: bool) -> pa.Array:
    """The values inside of a key column as it is shown (or as texts of such values); none may be missing.

    `told` says that messages must name the column.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    which = f"in column {field.name!r} " if told else ""
    if column.null_count:
        raise given.error(f"{which}is empty", pc.index(column.is_null(), True).as_py())
    make, words = _maker(field, column.type, given)
    try:
        return make(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, InputError):
        raise given.error(f"{which}is not {words}, as the key column holds", _first_wrong(column, make)) from None


def _maker(field: Field, found: pa.DataType, given: Given) -> tuple[Callable[[pa.Array], pa.Array], str]:
    """What makes values inside of a column of this type, and what such a value is, in words."""
    text, unit = is_string(found), field.column.time_unit or field.column.unit
    if field.column.edges:
        if text:
            return lambda column: _bins(column, field.column.bins), f"a bin like {field.column.bins[1]!r}"
    elif field.kind is str:
        known = field.found
        if text and is_string(known):
            return lambda column: column, "a text"
        if is_uuid(known) and (text or is_uuid(found)):
            return lambda column: _uuids(as_texts(column)), "a UUID"
        if pa.types.is_decimal(known) and (text or pa.types.is_decimal(found) or pa.types.is_integer(found)):
            return lambda column: as_texts(column.cast(known)), f"a number of {known}"
    elif unit == "hour" or pa.types.is_date32(field.shown):
        if text or is_time(found):
            words = "an hour like 2026-11-01T13:00:00Z" if unit == "hour" else "a date like 2026-11-01"
            first = f", the first day of a {unit}" if unit in ("week", "month") else ""
            return lambda column: _firsts(column, unit or "day", field.zone), words + first
    elif pa.types.is_integer(field.shown) and (text or pa.types.is_integer(found)):
        bits = "a whole number of 64 bits" if unit in (INT, "year") or field.shown.bit_width == 64 else str(field.shown)
        return lambda column: as_int64(_whole(column).cast(field.shown)), bits
    elif found.id == field.shown.id or (text and not pa.types.is_time(field.shown)):
        words = "true or false" if pa.types.is_boolean(field.shown) else str(field.shown)
        return lambda column: as_int64(column.cast(field.shown)), words
    raise given.error(
        f"has {found} in column {field.name!r}, which holds {'bins' if field.column.edges else field.shown}"
    )


def _bins(column: pa.Array, labels: list[str]) -> pa.Array:
    place = pc.index_in(column, value_set=pa.array(labels))
    if place.null_count:
        raise pa.ArrowInvalid("no bin")
    return place.cast(pa.int64())


def _uuids(texts: pa.Array) -> pa.Array:
    texts = pc.utf8_lower(texts)
    if not pc.all(pc.match_substring_regex(texts, _UUID), min_count=0).as_py():
        raise pa.ArrowInvalid("no UUID")
    return texts


def _firsts(column: pa.Array, unit: str, zone: str) -> pa.Array:
    """Times that begin their unit: any other would be a key that no row can have."""
    made = floored(column, unit, zone if unit == "hour" else UTC, "", Place())  # a day is that of its zone already
    seconds = made if unit == "hour" else pc.multiply(made, _DAY)
    if not seconds.equals(seconds_of(column, unit, "", Place())):
        raise pa.ArrowInvalid("inside a unit")
    return made


def _whole(column: pa.Array) -> pa.Array:
    if is_string(column.type) and not pc.all(pc.match_substring_regex(column, _WHOLE), min_count=0).as_py():
        raise pa.ArrowInvalid("no whole number")
    return column


def _first_wrong(column: pa.Array, make: Callable[[pa.Array], pa.Array]) -> int:
    """The place of the first value that `make` refuses, where it refuses all together."""
    good, bad = 0, len(column)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            make(column.slice(good, middle - good))
            good = middle
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, InputError):
            bad = middle
    return good


def _named(keys: Keys, values: Sequence[pa.Array], given: Given, max_item_bytes: int | None) -> Names:
    if len(values[0]) > MOST_KEYS:
        raise given.error(f"has {len(values[0]):,} keys: give {MOST_KEYS:,} at most")
    try:
        names = keys.name_values(values)
    except (pa.ArrowInvalid, pa.ArrowCapacityError):
        raise given.error("has more than 2 GB of keys: shorten them") from None
    if max_item_bytes is not None and pa.types.is_string(names.type):
        longest = pc.index(pc.greater(pc.binary_length(names), max_item_bytes), True).as_py()
        if longest >= 0:
            raise given.error(f"is longer than {max_item_bytes} bytes", longest)
    return names


def _columns(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
