"""Columns of Python values as Arrow columns, by the kind of the values and by nothing else that rows hold.

Arrow, left alone, takes the type of a column from its rows: the digits of the longest decimal, the zone of the first time, a
date where a date comes first. One user's value would then change what is published of everybody. Here each kind of value has
one type in all columns, what a value becomes depends on that value alone, and a column of several kinds is refused, in whatever
order they come.

| kind | type |
|---|---|
| str, UUID | string |
| bool | bool |
| int, of 64 bits | int64 |
| float | float64; integers below 2^53 may stand among floats, and are such floats then |
| Decimal | decimal256(76, 38): 38 digits before the point, and 38 behind it |
| date | date32 |
| datetime without a zone | timestamp of microseconds |
| datetime with a zone, Beam's Timestamp | timestamp of microseconds in UTC |
| time of day, timedelta | time64 and duration of microseconds |
| bytes | binary |
| list, tuple, array | list of the kind of its values |

Scalars of NumPy and pandas are of the kind that they stand for. None, NaN, NaT and NA are missing values of every kind.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headcount.mechanisms.batches.contributions import Place

DECIMAL = pa.decimal256(76, 38)
TIME = pa.timestamp("us", "UTC")

_DIGITS = 38  # of a decimal, on each side of its point
_FLOATS_TELL = 2**53  # integers below it are floats, each its own
_ONE_KIND = "convert it to one kind first, for instance to text"
_REFUSED = (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError, decimal.DecimalException)

_MISSING, _LIST, _OBJECT, _ZONED = "missing", "list", "dict", "datetime with a zone"
_TYPES = {
    "str": pa.string(),
    "UUID": pa.string(),
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "Decimal": DECIMAL,
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    _ZONED: TIME,
    "time": pa.time64("us"),
    "timedelta": pa.duration("us"),
    "bytes": pa.binary(),
}
# In this order: a bool is an int, a datetime is a date, and NumPy takes its timedelta64 for an integer.
_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (type(None), _MISSING),
    (str, "str"),
    ((bool, np.bool_), "bool"),
    (np.timedelta64, "timedelta64"),
    (np.datetime64, "datetime64"),
    ((int, np.integer), "int"),
    ((float, np.floating), "float"),
    (decimal.Decimal, "Decimal"),
    (datetime.datetime, "datetime"),
    (datetime.date, "date"),
    (datetime.time, "time"),
    (datetime.timedelta, "timedelta"),
    (uuid.UUID, "UUID"),
    (bytes, "bytes"),
    ((list, tuple, np.ndarray), _LIST),
    (Mapping, _OBJECT),
)
_HAVE_NO_FIELDS = {kind for _, kind in _KINDS} - {_OBJECT}


def column_of(values: Any, name: str, place: Place) -> pa.Array | pa.ChunkedArray:
    """The column of values: of the type that it declares (arrays of Arrow, NumPy, pandas or Polars), or of Python values by
    their kind. An InputError names the column, the kinds and a row, and no value."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if _is_pandas(values) and hasattr(values.dtype, "categories"):
        held = getattr(values, "array", values)
        absent = held.codes < 0
        codes = pa.array(held.codes, mask=absent if absent.any() else None)
        return pa.DictionaryArray.from_arrays(codes, column_of(held.categories, name, Place(place.file)))
    try:
        declared = _declared(values)
    except _REFUSED:
        raise place.error(name, f"is of a type that Arrow has none for; {_ONE_KIND}") from None
    if declared is not None:
        return declared
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise place.error(name, "is no list of values")
    return _of_python(values.tolist() if hasattr(values, "tolist") else list(values), name, place)


def is_python(values: Any) -> bool:
    """Whether values declare no type, so that only each tells its own kind."""
    dtype = getattr(values, "dtype", None)
    return isinstance(values, list | tuple) or (dtype is not None and dtype == np.dtype(object))


def field_at(row: Any, path: str) -> Any:
    """The value of a field of a row, or of one inside it by its path; None where an object on the way is missing.

    The row alone tells where it lies, and no other row: in each object on the way, a field of the whole rest of the path goes
    first. A KeyError or an AttributeError says that there is none.
    """
    try:
        return row[path] if isinstance(row, Mapping) else getattr(row, path)
    except (KeyError, AttributeError):
        top, _, rest = path.partition(".")
        if not rest:
            raise
    inner = field_at(row, top)
    if _is_missing(inner):
        return None
    if _kind_of(type(inner)) in _HAVE_NO_FIELDS and not hasattr(inner, "_fields"):  # as named tuples have
        raise AttributeError
    return field_at(inner, rest)


def fields_of(objects: Iterable[Any], path: str, name: str, place: Place) -> list[Any] | None:
    """What dicts hold at a path of fields, None where they lack it; None in all if there are some, and each does."""
    found: list[Any] = []
    lacking = 0
    for row, each in enumerate(objects):
        try:
            found.append(each[path] if type(each) is dict and path in each else _of_object(each, path))
        except KeyError:
            found.append(None)
            lacking += 1
        except AttributeError:
            raise place.error(name, "is no object with fields", row) from None
    return None if lacking and lacking == len(found) - sum(map(_is_missing, objects)) else found


def _of_object(value: Any, path: str) -> Any:
    if _is_missing(value):
        return None
    if not isinstance(value, Mapping):
        raise AttributeError
    return field_at(value, path)


def _is_pandas(values: Any) -> bool:
    return any(base.__module__.split(".")[0] == "pandas" for base in type(values).__mro__)


def _declared(values: Any) -> pa.Array | pa.ChunkedArray | None:
    """A column that declares its type; None of others."""
    dtype = getattr(values, "dtype", None)
    if dtype == np.dtype(object):
        return None
    if _is_pandas(values):
        # What is no dtype of NumPy and tells Arrow nothing would be guessed from its objects.
        declares = hasattr(getattr(values, "array", values), "__arrow_array__")
        known = declares or isinstance(dtype, np.dtype) or hasattr(dtype, "tz")
        return pa.array(values, from_pandas=True) if known else None
    if isinstance(values, np.ndarray):
        return pa.array(values)
    if hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values)
    return pa.array(values) if hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_array__") else None


def _of_python(values: list[Any], name: str, place: Place) -> pa.Array:
    types = set(map(type, values)) - {type(None)}
    plain = {each: _PLAIN[kind] for each in types if (kind := _kind_of(each)) in _PLAIN}
    if plain:
        values = [plain[type(value)](value) if type(value) in plain else value for value in values]
        types = set(map(type, values))
    kinds = {_kind_of(each) for each in types} - {_MISSING}
    if kinds in ({"datetime"}, {"time"}) and any([value is not None and value.tzinfo is not None for value in values]):
        kinds = set(map(_kind, values)) - {_MISSING}
    if kinds == {"int", "float"}:
        _check_small(values, name, place)
        kinds = {"float"}
    if len(kinds) > 1:
        found = list(map(_kind, values))
        first, *others = dict.fromkeys(kind for kind in found if kind != _MISSING)
        words = " and ".join(sorted((first, *others)))
        raise place.error(name, f"holds values of several kinds, {words}; {_ONE_KIND}", found.index(others[0]))
    if not kinds:
        return pa.nulls(len(values))
    (kind,) = kinds
    if kind == _LIST:
        return _lists(values, name, place)
    if kind == _OBJECT:
        raise place.error(name, f"holds objects: name one of their fields, for instance {name}.id")
    if kind not in _TYPES:
        raise place.error(name, f"holds values of type {kind}, which no column has; {_ONE_KIND}")
    return _of_kind(values, kind, name, place)


def _of_kind(values: list[Any], kind: str, name: str, place: Place) -> pa.Array:
    """The column of values of one kind, or missing; which of them Arrow refuses is known by each alone."""
    if kind == "UUID":
        values = [None if value is None else str(value) for value in values]
    try:
        return pa.array(values, _TYPES[kind])
    except _REFUSED:
        pass
    if kind == "Decimal":
        values = [None if value is None else _shortest(value) for value in values]
    elif kind == "float":
        values = [None if value is None else float(value) for value in values]
    for row, value in enumerate(values):
        try:
            pa.array([value], _TYPES[kind])
        except _REFUSED:
            raise place.error(name, f"holds {_LIMITS.get(kind, f'a {kind} that is out of range')}", row) from None
    return pa.array(values, _TYPES[kind])


_LIMITS = {
    "str": "text that is no valid Unicode",
    "int": "an integer beyond 64 bits; convert it to text",
    "Decimal": f"a decimal with more than {_DIGITS} digits before or behind its point, or an infinite one",
}


def _lists(values: list[Any], name: str, place: Place) -> pa.Array:
    held = [None if value is None else list(value) for value in values]
    flat = [each for value in held if value is not None for each in value]
    ends = np.cumsum([0, *(0 if value is None else len(value) for value in held)], dtype=np.int32)
    inner = _of_python(flat, name, Place(place.file))  # whose elements have no row of their own
    absent = pa.array([value is None for value in held], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(ends), inner, mask=absent if None in held else None)


def _is_missing(value: Any) -> bool:
    kind = _kind_of(type(value))
    return kind == _MISSING or (kind == "float" and value != value)


def _kind_of_type(found: type) -> str:
    """The kind of values of a type; the name of a type that has none."""
    for types, kind in _KINDS:
        if issubclass(found, types):
            return _MISSING if found.__name__ == "NaTType" else kind
    if found.__module__.split(".")[0] == "pandas" and found.__name__ == "NAType":
        return _MISSING
    return "Timestamp" if hasattr(found, "to_utc_datetime") else found.__name__  # as Beam's has it


_kind_of: Callable[[type], str] = functools.cache(_kind_of_type)


def _kind(value: Any) -> str:
    """The kind of a value; whether a time has a zone is known by itself."""
    kind = _kind_of(type(value))
    if kind == "datetime" and value.tzinfo is not None:
        return _ZONED
    return "time with a zone" if kind == "time" and value.tzinfo is not None else kind


def _number(value: Any) -> Any:
    return None if value != value else value


def _decimal(value: decimal.Decimal) -> decimal.Decimal | None:
    return None if value.is_nan() else value


def _numpy_time(value: Any) -> Any:
    """A time or a span of NumPy as Python's, rounded down to microseconds; what these have no place for stays as it is."""
    if np.isnat(value):
        return None
    unit, _ = np.datetime_data(value.dtype)
    made = value.astype(f"{value.dtype.kind}8[us]").item() if unit in ("ns", "ps", "fs", "as") else value.item()
    return value if isinstance(made, int) else made


def _beam_time(value: Any) -> Any:
    try:
        return value.to_utc_datetime(has_tz=True)
    except OverflowError:  # before the year 1, or after 9999
        return value


# What has missing values of its own, or stands for another kind.
_PLAIN: dict[str, Callable[[Any], Any]] = {
    _MISSING: lambda value: None,
    "float": _number,
    "Decimal": _decimal,
    "datetime64": _numpy_time,
    "timedelta64": _numpy_time,
    "Timestamp": _beam_time,
}


def _shortest(value: decimal.Decimal) -> decimal.Decimal:
    """The same number without zeros at its end, in whatever context decimals are counted."""
    exact = decimal.Context(prec=max(1, len(value.as_tuple().digits)), Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
    return value.normalize(exact) if value else decimal.Decimal(0)


def _check_small(values: Iterable[Any], name: str, place: Place) -> None:
    """Refuses an integer among floats that is no float: as one, it might become another number."""
    for row, value in enumerate(values):
        if value is not None and _kind_of(type(value)) == "int" and not -_FLOATS_TELL < value < _FLOATS_TELL:
            raise place.error(name, "holds floats, and an integer of 2^53 or more, which is none of them", row)
