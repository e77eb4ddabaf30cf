"""Columns of values, numbers or times, as the leaves of a public grid: what quantiles and range counts are made of.

A time is its number of microseconds since 1970 (UTC, or without a zone), rounded down, which a date begins with. What is wrong
with a column is told with the file, column and row number, where known, and never with a value.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.batches.decimals import decimal_floats
from headcount.mechanisms.checks import is_real
from headcount.mechanisms.columns.value_ranges import is_text, text_numbers, valid_text
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.sampled.leaves import Leaves

Number = int | float
Value = int | float | datetime.date  # a datetime is a date too
Kind = Literal["number", "date", "time"]

_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_PER_UNIT = {"s": 10**6, "ms": 10**3, "us": 1}
_DAY = 86_400 * 10**6
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?Z?)?$"


@dataclasses.dataclass(frozen=True)
class Axis:
    """What the values are: numbers, dates, or times, as the ends of their range are given."""

    kind: Kind

    @classmethod
    def of(cls, lo: Value, hi: Value) -> Axis:
        """The axis of a range."""
        kinds = {_kind(name, value) for name, value in (("lo", lo), ("hi", hi))}
        if len(kinds) > 1:
            raise ParameterError(f"lo and hi must both be numbers, dates or times, got lo = {lo!r} and hi = {hi!r}")
        return cls(kinds.pop())

    def number(self, name: str, value: Value) -> Number:
        """The number that a parameter of this axis stands for."""
        if self.kind == "number":
            if not is_real(value):
                raise ParameterError(f"{name} must be a number, as lo and hi are, got {value!r}", name)
            return value
        if not isinstance(value, datetime.date) or (self.kind == "date" and isinstance(value, datetime.datetime)):
            raise ParameterError(f"{name} must be a {self.kind}, as lo and hi are, got {value!r}", name)
        return _microseconds(value)

    def text(self, number: float) -> str:
        """The date or time of a released number; a date is the nearest day: those of the data are first moments of days."""
        if self.kind == "date":
            return (_EPOCH + round(number / _DAY) * datetime.timedelta(days=1)).date().isoformat()
        return (_EPOCH + math.floor(number) * _MICROSECOND).isoformat(timespec="microseconds")

    def shown(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Released rows as they go out: without what nothing is known of (NaN), times as text."""
        if "value" in rows.schema.names:
            rows = rows.filter(pc.invert(pc.is_nan(rows.column("value"))))
        if self.kind == "number":
            return rows
        columns = {name: rows.column(name) for name in rows.schema.names}
        for name in {"value", "low", "high"} & columns.keys():
            columns[name] = pa.array([self.text(each) for each in columns[name].to_pylist()], pa.string())
        return pa.RecordBatch.from_pydict(columns)


def is_value_type(kind: pa.DataType) -> bool:
    """Whether a column of this type can hold values; text is looked at later."""
    if pa.types.is_dictionary(kind):
        return is_value_type(kind.value_type)
    return _is_number(kind) or _is_time(kind) or is_text(kind)


def leaf_column(
    column: pa.Array, axis: Axis, leaves: Leaves, name: str, drop_null: bool = False, place: Place | None = None
) -> pa.Array:
    """The leaf of each value, null where the value is; what is no number (NaN) is refused, or null with `drop_null`."""
    place = place or Place()
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if pa.types.is_null(column.type):
        return column.cast(pa.int64())
    if is_text(column.type):
        column = _from_text(column, axis, name, place)
    values = _numbers(column, name, place) if axis.kind == "number" else _times(column, axis, name, place)
    absent = np.asarray(column.is_null())
    if values.dtype.kind == "f":
        unclear = np.isnan(values) & ~absent
        if unclear.any() and not drop_null:
            row = int(np.flatnonzero(unclear)[0])
            raise place.error(name, "is not a number (NaN); drop such rows with drop_null (--drop-null)", row)
        absent = absent | unclear
        values = np.where(absent, 0.0, values)
    return pa.array(leaves.index(values), mask=absent)


def _kind(name: str, value: Value) -> Kind:
    if isinstance(value, datetime.datetime):
        return "time"
    if isinstance(value, datetime.date):
        return "date"
    if not is_real(value):
        raise ParameterError(f"{name} must be a number, a date or a time, got {value!r}", name)
    return "number"


def _microseconds(value: datetime.date) -> int:
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    if value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return (value - _EPOCH) // _MICROSECOND


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _is_time(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)


def _numbers(column: pa.Array, name: str, place: Place) -> np.ndarray:
    if not _is_number(column.type):
        hint = "; give lo and hi (--lo, --hi) as dates or times" if _is_time(column.type) else ""
        raise place.error(name, f"is of type {column.type}; values must be numbers, as lo and hi are{hint}")
    if pa.types.is_floating(column.type):
        column = column.cast(pa.float64())
    elif pa.types.is_decimal(column.type):
        column = decimal_floats(column)
    return np.asarray(column.fill_null(0))


def _times(column: pa.Array, axis: Axis, name: str, place: Place) -> np.ndarray:
    """Microseconds; what is beyond int64 becomes its ends, which no range reaches."""
    if not _is_time(column.type):
        raise place.error(name, f"is of type {column.type}; values must be dates or times, as lo and hi are")
    kind = column.type
    if pa.types.is_date32(kind):
        whole, factor = np.asarray(column.cast(pa.int32()).fill_null(0)).astype(np.int64), _DAY
    else:
        whole = np.asarray(column.cast(pa.int64()).fill_null(0))
        if pa.types.is_timestamp(kind) and kind.unit == "ns":
            return whole // 1000
        factor = _PER_UNIT[kind.unit] if pa.types.is_timestamp(kind) else _PER_UNIT["ms"]
    limit = (2**63 - 1) // factor
    return np.clip(whole, -limit, limit) * factor


def _from_text(column: pa.Array, axis: Axis, name: str, place: Place) -> pa.Array:
    """Text as float64, correctly rounded, or as microseconds."""
    if axis.kind == "number":
        return text_numbers(column, name, place)
    problem = "is not a date or time such as 2030-01-31 or 2030-01-31T23:59:59, in UTC"
    column = valid_text(column, name, place)
    wrong = pc.index(pc.match_substring_regex(column, _TIME), False).as_py()
    if wrong >= 0:
        raise place.error(name, problem, wrong)
    plain = pc.replace_substring(column, "Z", "")
    try:
        return plain.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        wrong_rows = (i for i, text in enumerate(plain.to_pylist()) if text is not None and not _is_day_and_time(text))
        raise place.error(name, problem, next(wrong_rows, None)) from None


def _is_day_and_time(text: str) -> bool:
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
