"""What the values of a condition mean: that follows from the type of the column they are compared with.

| column | a value is | compared |
|---|---|---|
| text | a text, as it is written | by `=`, `!=`, `in` as texts; by order as below |
| whole numbers | a whole number | exactly, also beyond 2^53 and beyond the column's type |
| decimals | a number | exactly |
| floats | a number | with the float of the column's size that is next to it |
| dates | a date, 2026-11-01 | exactly |
| times | a time, 2026-11-01T13:45, or a date, which stands for the whole day | exactly, to the nanosecond |
| times of day | 13:45 or 13:45:30.5 | exactly |
| true and false | true or false | by `=`, `!=`, `in` |
| UUIDs | a text of five groups | by `=`, `!=`, `in` |
| others | nothing | by `is null` and `is not null` alone |

A column of texts is ordered by what it is compared with: with a number, as numbers (64-bit floats); with a date or time, as
times; with a text in quotes, by code points. A text that is no such number or time is refused. So what text files hold is never
guessed. A time without a zone is UTC's in a column, and one of the job's time zone in a condition.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import math
import re
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.columns.fields import as_texts, is_string, is_uuid
from headcount.mechanisms.columns.times import UTC, seconds_of
from headcount.mechanisms.columns.value_ranges import text_numbers
from headcount.mechanisms.errors import ParameterError

ORDERS = ("<", "<=", ">", ">=")
IS_NULL, NOT_NULL = "is null", "is not null"

_INTEGER = re.compile(r"[+-]?[0-9]{1,100}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,100}\.?[0-9]{0,100}|\.[0-9]{1,100})(?:[eE][+-]?[0-9]{1,3})?")
_CLOCK = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?"
_TIME = re.compile(rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})(?:[T ]{_CLOCK}(Z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)?)?")
_TIME_OF_DAY = re.compile(_CLOCK)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FRACTION = r"[.,](?P<digits>[0-9]{1,9})"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NO_ORDER = "it has no order: compare by =, != or in"


@dataclasses.dataclass(frozen=True)
class Literal:
    """A value as it is written, and whether in quotes where these matter: in an order."""

    text: str
    quoted: bool = False


@dataclasses.dataclass(frozen=True)
class _Span:
    """A value among whole numbers: what is at least `low` and below `high` equals it. Empty for a value between two."""

    low: int
    high: int


def is_number(value: Literal) -> bool:
    """Whether a value is written as a number, without quotes."""
    return not value.quoted and _NUMBER.fullmatch(value.text) is not None


def check_values(found: pa.DataType, by: str, values: tuple[Literal, ...], zone: str) -> None:
    """Refuses values that a column of this type cannot be compared with; of a null type nothing is known."""
    if not pa.types.is_null(found):
        compared(pa.array([], _plain(found)), by, values, zone, "", Place())


def compared(column: pa.Array, by: str, values: tuple[Literal, ...], zone: str, name: str, place: Place) -> pa.Array:
    """Whether a comparison holds, row by row; null where the column is, but for `is null`."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.DictionaryArray):
        # Whether a row is refused must not depend on names that no row has.
        if column.dictionary.null_count or by in (*ORDERS, IS_NULL, NOT_NULL):
            column = column.dictionary_decode()
        else:
            return compared(column.dictionary, by, values, zone, name, place).take(column.indices)
    if isinstance(column, pa.ExtensionArray) and not is_uuid(column.type):
        column = column.storage
    if by in (IS_NULL, NOT_NULL):
        return column.is_null(nan_is_null=True) if by == IS_NULL else pc.invert(column.is_null(nan_is_null=True))
    if pa.types.is_null(column.type):
        return column.cast(pa.bool_())
    if by not in ORDERS:
        held = _equal(column, values, zone)
        return held if by in ("=", "in") else pc.invert(held)
    # What is above is what is not at most, so two comparisons do for all.
    held = _below(column, values[0], zone, by in ("<=", ">"), name, place)
    return held if by in ("<", "<=") else pc.invert(held)


def may_hold(ends: pa.Array, by: str, values: tuple[Literal, ...], zone: str) -> bool:
    """Whether a comparison may hold for a value between two ends of an array, in the column's order."""
    if is_string(ends.type) and by in ORDERS and not values[0].quoted:
        return True  # numbers and times have another order than their texts
    if by in ("=", "in"):
        return any(_reaches(ends, "<=", value, zone) and _reaches(ends, ">=", value, zone) for value in values)
    if by in ("!=", "not in"):
        return not pc.all(compared(ends, "in", values, zone, "", Place())).as_py() or ends[0] != ends[1]
    return _reaches(ends, by, values[0], zone)


def _reaches(ends: pa.Array, by: str, value: Literal, zone: str) -> bool:
    if pa.types.is_boolean(ends.type):
        ends, value = ends.cast(pa.int8()), Literal(str(int(_truth(value))))
    elif is_string(ends.type):
        value = Literal(value.text, True)
    elif is_uuid(ends.type):
        return True
    held = compared(ends, by, (value,), zone, "", Place())
    return bool(held[0 if by in ("<", "<=") else 1].as_py())


def _plain(found: pa.DataType) -> pa.DataType:
    plain = found.value_type if pa.types.is_dictionary(found) else found
    return plain.storage_type if isinstance(plain, pa.BaseExtensionType) and not is_uuid(plain) else plain


def _equal(column: pa.Array, values: tuple[Literal, ...], zone: str) -> pa.Array:
    """Whether each value of a column is one of these; null where the column is."""
    found = column.type
    if is_string(found) or is_uuid(found):
        texts = [value.text if is_string(found) else _uuid(value) for value in values]
        held = _text(column)
        return _one_of(held, pa.array(texts, held.type))
    if pa.types.is_boolean(found):
        return _one_of(column, pa.array([_truth(value) for value in values]))
    if pa.types.is_floating(found):
        return _one_of(_floats(column), pa.array([_nearest(value, found) for value in values], _wide(found)))
    whole = _whole(column)
    spans = [_span(value, found, zone) for value in values]
    points = [span.low for span in spans if span.high - span.low == 1 and _lowest(whole) <= span.low <= _highest(whole)]
    held = _one_of(whole, _scalars(points, whole.type))
    for span in spans:
        if span.high - span.low > 1:
            inside = pc.and_(pc.invert(_less(whole, span.low)), _less(whole, span.high))
            held = pc.or_(held, inside)
    return held


def _below(column: pa.Array, value: Literal, zone: str, or_equal: bool, name: str, place: Place) -> pa.Array:
    """Whether each value of a column is below this one, or equal to it."""
    found = column.type
    less = pc.less_equal if or_equal else pc.less
    if is_string(found):
        if value.quoted:
            return less(_text(column), pa.scalar(value.text, pa.string()))
        if is_number(value):
            return less(text_numbers(column, name, place), pa.scalar(_nearest(value, pa.float64())))
        if _TIME.fullmatch(value.text):
            return _times_below(_text(column), value, zone, or_equal, name, place)
        raise ParameterError(f"{value.text!r} is no number, date or time; write a text in quotes to compare texts")
    if pa.types.is_boolean(found) or is_uuid(found):
        raise ParameterError(_NO_ORDER)
    if pa.types.is_floating(found):
        return less(_floats(column), pa.scalar(_nearest(value, found), _wide(found)))
    span = _span(value, found, zone)
    return _less(_whole(column), span.high if or_equal else span.low)


def _times_below(column: pa.Array, value: Literal, zone: str, or_equal: bool, name: str, place: Place) -> pa.Array:
    """Whether each text of a time is below a time, to the nanosecond."""
    seconds = seconds_of(column, "second", name, place)
    span = _span(value, pa.timestamp("ns"), zone)
    whole, rest = divmod(span.high if or_equal else span.low, 10**9)
    digits = pc.struct_field(pc.extract_regex(column, _FRACTION), "digits")
    parts = pc.ascii_rpad(pc.fill_null(digits, "0"), 9, "0").cast(pa.int64())
    same = pc.and_(pc.equal(seconds, whole), pc.less(parts, rest))
    return pc.or_(pc.less(seconds, whole), same)


def _one_of(column: pa.Array, values: pa.Array) -> pa.Array:
    held = pc.is_in(column, value_set=values)
    return pc.if_else(column.is_valid(), held, pa.scalar(None, pa.bool_())) if column.null_count else held


def _text(column: pa.Array) -> pa.Array:
    return (column if is_string(column.type) else as_texts(column)).cast(pa.string())


def _floats(column: pa.Array) -> pa.Array:
    """A column of floats, in which what is no number is null, and there is one 0."""
    wide = pc.add(column.cast(_wide(column.type)), pa.scalar(0.0, _wide(column.type)))
    return pc.if_else(pc.is_nan(wide), pa.scalar(None, wide.type), wide)


def _wide(found: pa.DataType) -> pa.DataType:
    return pa.float32() if pa.types.is_float16(found) else found


def _whole(column: pa.Array) -> pa.Array:
    """Whole numbers that stand for the values of a column, in their order: integers, or decimals as they are."""
    found = column.type
    if pa.types.is_integer(found) or pa.types.is_decimal(found):
        return column
    if pa.types.is_date(found):
        return seconds_of(column, "day", "", Place())
    if pa.types.is_time32(found):
        return column.view(pa.int32())
    if pa.types.is_timestamp(found) or pa.types.is_time(found):
        return column.view(pa.int64())
    raise ParameterError("such a column can only be compared by 'is null' and 'is not null'")


def _less(whole: pa.Array, bound: int) -> pa.Array:
    """Whether each whole number is below another, which may be beyond what their type holds."""
    if _lowest(whole) < bound <= _highest(whole):
        return pc.less(whole, _scalars([bound], whole.type)[0])
    constant = pa.repeat(pa.scalar(bound > _lowest(whole)), len(whole))
    return pc.if_else(whole.is_valid(), constant, pa.scalar(None, pa.bool_())) if whole.null_count else constant


def _lowest(whole: pa.Array) -> int:
    if pa.types.is_decimal(whole.type):
        return 1 - 10**whole.type.precision
    return 0 if pa.types.is_unsigned_integer(whole.type) else -1 << whole.type.bit_width - 1


def _highest(whole: pa.Array) -> int:
    if pa.types.is_decimal(whole.type):
        return 10**whole.type.precision - 1
    return (1 << whole.type.bit_width - (not pa.types.is_unsigned_integer(whole.type))) - 1


def _scalars(numbers: list[int], found: pa.DataType) -> pa.Array:
    if not pa.types.is_decimal(found):
        return pa.array(numbers, found)
    digits = [(number < 0, tuple(map(int, str(abs(number)))), -found.scale) for number in numbers]
    return pa.array([decimal.Decimal((int(sign), each, exponent)) for sign, each, exponent in digits], found)


def _span(value: Literal, found: pa.DataType, zone: str) -> _Span:
    """A value as whole numbers of a column of this type."""
    if pa.types.is_integer(found):
        if not _INTEGER.fullmatch(value.text):
            raise ParameterError(f"{value.text!r} is no whole number, and the column holds whole numbers")
        return _Span(int(value.text), int(value.text) + 1)
    if pa.types.is_decimal(found):
        return _point(_number(value) * Fraction(10) ** found.scale)
    if pa.types.is_time(found):
        clock = _TIME_OF_DAY.fullmatch(value.text)
        if clock is None:
            raise ParameterError(f"{value.text!r} is no time of day such as 13:45")
        return _point(_clock(value, *clock.groups()) * _PER_SECOND[found.unit])
    if not (pa.types.is_date(found) or pa.types.is_timestamp(found)):
        raise ParameterError("such a column can only be compared by 'is null' and 'is not null'")
    written = _TIME.fullmatch(value.text)
    if written is None:
        raise ParameterError(f"{value.text!r} is no date or time like 2026-11-01 or 2026-11-01T13:45:00Z")
    day, *clock_parts, offset = written.groups()
    is_date = clock_parts[0] is None
    if pa.types.is_date(found):
        if not is_date:
            raise ParameterError(f"{value.text!r} is a time, and the column holds dates: give a date like 2026-11-01")
        return _point(Fraction(_midnight(value, day)))
    start = Fraction(_midnight(value, day))
    per = _PER_SECOND[found.unit]
    if is_date:
        first, end = (_instant(value, at, None, zone, True) * per for at in (start, start + 86_400))
        return _Span(math.ceil(first), math.ceil(end))
    return _point(_instant(value, start + _clock(value, *clock_parts), offset, zone) * per)


def _point(number: Fraction) -> _Span:
    return _Span(math.ceil(number), math.floor(number) + 1)


def _midnight(value: Literal, day: str) -> int:
    """Seconds from 1970 to the start of a day, on its own clock."""
    try:
        return (datetime.date.fromisoformat(day) - _EPOCH.date()).days * 86_400
    except ValueError:
        raise ParameterError(f"{value.text!r} is no day of the calendar") from None


def _clock(value: Literal, hours: str, minutes: str, seconds: str | None, parts: str | None) -> Fraction:
    told = (int(hours), int(minutes), int(seconds or 0))
    if told[0] > 23 or told[1] > 59 or told[2] > 59:
        raise ParameterError(f"{value.text!r} is no time of a day: 00:00:00 to 23:59:59")
    return told[0] * 3600 + told[1] * 60 + told[2] + Fraction(f"0.{parts or 0}")


def _instant(value: Literal, local: Fraction, offset: str | None, zone: str, is_date: bool = False) -> Fraction:
    """Seconds since 1970 (UTC) of a time on the clock of its own offset, or of the zone."""
    if offset is not None:
        digits = offset[1:].replace(":", "").ljust(4, "0")
        away = 0 if offset == "Z" else int(digits[:2]) * 3600 + int(digits[2:]) * 60
        return local + away if offset[0] == "-" else local - away
    if zone == UTC:
        return local
    seconds = math.floor(local)
    try:
        # A day begins when clocks first show it.
        how = {"ambiguous": "earliest", "nonexistent": "latest"} if is_date else {}
        at = pc.assume_timezone(pa.scalar(seconds, pa.timestamp("s")), zone, **how).cast(pa.int64()).as_py()
    except pa.ArrowInvalid:
        raise ParameterError(
            f"{value.text!r} is a time that clocks in {zone} show twice, or never: add its offset from UTC, such as +01:00"
        ) from None
    return at + local - seconds


def _number(value: Literal) -> Fraction:
    if not _NUMBER.fullmatch(value.text):
        raise ParameterError(f"{value.text!r} is no number, and the column holds numbers")
    return Fraction(value.text)


def _nearest(value: Literal, found: pa.DataType) -> float:
    """The float of a column's size that is next to a number."""
    _number(value)
    size = np.dtype(f"f{found.bit_width // 8}")
    with np.errstate(over="ignore"):
        nearest = float(size.type(value.text)) + 0.0
    if not math.isfinite(nearest):
        raise ParameterError(f"{value.text!r} is beyond what the column can hold, {found}")
    return nearest


def _truth(value: Literal) -> bool:
    if value.text.lower() not in ("true", "false"):
        raise ParameterError(f"{value.text!r} is neither true nor false, and the column holds these alone")
    return value.text.lower() == "true"


def _uuid(value: Literal) -> str:
    if not _UUID.fullmatch(value.text.lower()):
        raise ParameterError(f"{value.text!r} is no UUID, which is written in five groups of digits")
    return value.text.lower()
