"""Times as the hour, day, week, month or year that they lie in, in one time zone.

A time without a zone is taken as UTC, and a date has none. Nothing here looks at the clock: what a row becomes depends on the
row alone.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.errors import ParameterError

UTC = "UTC"
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY = 86_400
_FIRST = -62_135_596_800  # 0001-01-01T00:00:00, in seconds since 1970
_LAST = 253_402_300_799  # 9999-12-31T23:59:59
_TEXT = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?$"
)
_ZONED = r"[T ].*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"


def check_zone(zone: str) -> str:
    """Refuses a time zone that this machine does not know."""
    try:
        pc.local_timestamp(pa.array([0], pa.timestamp("s", zone)))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError):
        raise ParameterError(
            f"time_zone {zone!r} is not known here: give a name like Europe/Berlin, or UTC (a machine without a time zone "
            "database needs the package tzdata)",
            "time_zone",
        ) from None
    return zone


def is_time(found: pa.DataType) -> bool:
    """Whether a column of this type holds times or dates."""
    return pa.types.is_timestamp(found) or pa.types.is_date(found)


def shown_type(unit: str, zone: str) -> pa.DataType:
    """The type of a column of such times in the output: a date is the first day of its week or month."""
    return {"hour": pa.timestamp("s", zone), "year": pa.int64()}.get(unit, pa.date32())


def floored(column: pa.Array, unit: str, zone: str, name: str, place: Place) -> pa.Array:
    """The hour (in seconds since 1970, UTC), the first day (since 1970) of the day, week or month, or the year; int64."""
    seconds = seconds_of(column, unit, name, place)
    absent = np.asarray(seconds.is_null())
    utc = _known(np.asarray(seconds.fill_null(0)), name, place)
    local = utc if zone == UTC else _known(np.where(_are_dates(column), utc, _local(utc, zone)), name, place)
    return pa.array(_unit(utc, local, unit), pa.int64(), mask=absent if absent.any() else None)


def microseconds(column: pa.Array, name: str, place: Place) -> pa.Array:
    """Microseconds since 1970 (UTC), rounded down, null where the column is; of a date, those of its midnight in UTC."""
    whole = seconds_of(column, "day", name, place)
    _known(np.asarray(whole.fill_null(0)), name, place)
    found = column.type
    if pa.types.is_string(found):
        digits = pc.struct_field(pc.extract_regex(column, "[.,](?P<digits>[0-9]+)"), "digits")
        parts = pc.utf8_slice_codeunits(pc.utf8_rpad(digits, 6, "0"), 0, 6).cast(pa.int64())
        return pc.add(pc.multiply(whole, 10**6), pc.if_else(whole.is_valid(), pc.fill_null(parts, 0), None))
    if pa.types.is_date(found):
        return pc.multiply(whole, 10**6)
    per_second = _PER_SECOND[found.unit]
    if per_second >= 10**6:
        return _divided(column.cast(pa.int64()), per_second // 10**6)
    return pc.multiply(column.cast(pa.int64()), 10**6 // per_second)


def checked(column: pa.Array, name: str, place: Place) -> pa.Array:
    """The column of any type as it is, or an InputError if it holds a time that nothing that reads a result can show: outside
    of the years 1 to 9999, or a time of day beyond 24 hours."""
    found = column.type
    if is_time(found):
        utc = _known(np.asarray(seconds_of(column, "day", name, place).fill_null(0)), name, place)
        if pa.types.is_timestamp(found) and found.tz is not None:
            _known(_local(utc, found.tz), name, place)
    elif pa.types.is_time(found):
        whole = column.view(pa.int32() if pa.types.is_time32(found) else pa.int64()).fill_null(0)
        last = _DAY * _PER_SECOND[found.unit] - 1
        _within(np.asarray(whole), 0, last, "holds a time of day beyond 24 hours", name, place)
    return column


def _known(seconds: np.ndarray, name: str, place: Place) -> np.ndarray:
    return _within(seconds, _FIRST, _LAST, "holds a time outside of the years 1 to 9999", name, place)


def _within(values: np.ndarray, least: int, most: int, problem: str, name: str, place: Place) -> np.ndarray:
    if len(values) and not (least <= values.min() and values.max() <= most):
        raise place.error(name, problem, int(np.argmax((values < least) | (values > most))))
    return values


def _unit(utc: np.ndarray, local: np.ndarray, unit: str) -> np.ndarray:
    if unit == "hour":
        return utc - local % 3600  # so the two hours that a clock shows twice stay two
    day = local // _DAY
    if unit == "day":
        return day
    if unit == "week":
        return day - (day + 3) % 7  # 1970-01-01 was a Thursday
    months = day.astype("datetime64[D]").astype("datetime64[M]")
    if unit == "month":
        return months.astype("datetime64[D]").astype(np.int64)
    return months.astype("datetime64[Y]").astype(np.int64) + 1970


def _are_dates(column: pa.Array) -> bool | np.ndarray:
    """Which values are dates, which are the same in every zone."""
    if pa.types.is_string(column.type):
        return np.asarray(pc.equal(pc.binary_length(column), 10).fill_null(False))
    return bool(pa.types.is_date(column.type))


def _local(utc: np.ndarray, zone: str) -> np.ndarray:
    return np.asarray(pc.local_timestamp(pa.array(utc, pa.timestamp("s", zone))).cast(pa.int64()))


def seconds_of(column: pa.Array, unit: str, name: str, place: Place) -> pa.Array:
    """Seconds since 1970 (UTC), rounded down, null where the column is."""
    found = column.type
    if pa.types.is_string(found):
        column = _from_text(column, name, place)
        found = column.type
    if pa.types.is_date(found):
        if unit == "hour":
            raise place.error(name, "holds dates, which have no hour; give day, week, month or year")
        if pa.types.is_date32(found):
            return pc.multiply(column.view(pa.int32()).cast(pa.int64()), _DAY)
        return pc.multiply(_divided(column.view(pa.int64()), _DAY * 1000), _DAY)
    return _divided(column.cast(pa.int64()), _PER_SECOND[found.unit])


def _divided(whole: pa.Array, by: int) -> pa.Array:
    """Integers by another, rounded down: Arrow divides towards zero, and times before 1970 are below it."""
    if by == 1:
        return whole
    absent = np.asarray(whole.is_null())
    return pa.array(np.asarray(whole.fill_null(0)) // by, mask=absent if absent.any() else None)


def _from_text(column: pa.Array, name: str, place: Place) -> pa.Array:
    """Times of texts in ISO 8601; those without a zone are in UTC."""
    row = pc.index(pc.match_substring_regex(column, _TEXT), False).as_py()
    if row < 0:
        # A date gets its midnight and what has no zone UTC's, so that all are read alike; parts of seconds are rounded down.
        text = pc.replace_substring_regex(column, "[.,][0-9]+", "")
        is_date = pc.equal(pc.binary_length(text), 10)
        text = pc.if_else(is_date, pc.binary_join_element_wise(text, "00:00", " "), text)
        is_zoned = pc.match_substring_regex(text, _ZONED)
        text = pc.if_else(is_zoned, text, pc.binary_join_element_wise(text, "Z", ""))
        try:
            return text.cast(pa.timestamp("s", UTC))
        except pa.ArrowInvalid:
            row = next(k for k in range(len(text)) if not _reads(text.slice(k, 1)))
    raise place.error(name, "holds a text that is no date or time like 2026-11-01 or 2026-11-01T13:45:00Z", row)


def _reads(text: pa.Array) -> bool:
    try:
        text.cast(pa.timestamp("s", UTC))
    except pa.ArrowInvalid:
        return False
    return True
