"""Ranges of key values, such as `2026-11-01..2026-11-30` or `1..12`: all days, weeks, months, hours or whole numbers in them.

A range is public: it is known without a look at the data. Which unit of time it is of follows from the name of its column
in the output, which is `viewed_at_week` for `viewed_at:week`, so that its size is known before any file is looked at.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headcount.mechanisms.columns.fields import Field
from headcount.mechanisms.domains.domain import MOST_KEYS
from headcount.mechanisms.errors import ParameterError

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?")
_TEXT = re.compile(r"([^/]*?)\.\.([^/]*)")
_HOUR = 3600
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_MONTHS = 12

# What each unit is called, with an example of a range.
_UNITS = {
    "int": ("whole numbers", "1..12"),
    "hour": ("hours", "2026-11-01T00:00Z..2026-11-30T23:00Z"),
    "day": ("days", "2026-11-01..2026-11-30"),
    "week": ("weeks", "2026-11-01..2026-11-30"),
    "month": ("months", "2026-01-01..2026-12-31"),
}


@dataclasses.dataclass(frozen=True)
class KeyRange:
    """All values from the first to the last, both of which are in it: whole numbers, hours, or the days, weeks or months that
    the days from one to the other lie in."""

    first: str
    last: str

    def __post_init__(self) -> None:
        kinds = [_kind(end) for end in (self.first, self.last)]
        if kinds[0] is None or kinds[0] != kinds[1]:
            examples = ", ".join(dict.fromkeys(example for _, example in _UNITS.values()))
            raise ParameterError(
                f"the domain {self.text!r} is no range: give one like {examples}, or the values as a list or a file",
                "domain",
            )
        low, high = (self._number(end, "day") for end in (self.first, self.last))
        if max(-low, high + 1) > 1 << 63:
            raise ParameterError(f"the domain {self.text!r} has numbers beyond 64 bits: give others", "domain")
        if low > high:
            raise ParameterError(f"the domain {self.text!r} ends before it begins: give FIRST..LAST", "domain")

    @property
    def text(self) -> str:
        """The range as people write it."""
        return f"{self.first}..{self.last}"

    def size(self, column: str) -> int:
        """How many values it has for the key column of this name in the output."""
        low, high = self._ends(column)
        size = (high - low) // _STEPS.get(self._unit(column), 1) + 1
        if size > MOST_KEYS:
            raise ParameterError(
                f"the domain {self.text!r} has {size:,} values: give a range of {MOST_KEYS:,} at most", "domain"
            )
        return size

    def values(self, field: Field) -> pa.Array:
        """All of them, for a key column that holds such values; refused for one that does not."""
        unit, wanted = self._unit(field.name), _unit_of(field)
        if wanted is None:
            raise ParameterError(
                f"the domain {self.text!r} is a range, but column {field.name!r} holds {field.shown}: ranges are of whole "
                "numbers, dates, and times by hour, day, week or month; give the values as a list or a file",
                "domain",
            )
        if unit != wanted:
            found, (words, example) = _UNITS[unit][0], _UNITS[wanted]
            raise ParameterError(
                f"the domain {self.text!r} is a range of {found}, but column {field.name!r} holds {words}: give a range like "
                f"{example}, or its values as a list",
                "domain",
            )
        low = self._ends(field.name)[0]
        numbers = low + np.arange(self.size(field.name), dtype=np.int64) * _STEPS.get(unit, 1)
        if unit == "int":
            return pa.array(numbers)
        if unit == "hour":
            return pa.array(numbers, pa.timestamp("s", "UTC"))
        days = numbers if unit != "month" else numbers.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        return pa.array(days.astype(np.int32)).view(pa.date32())

    def _unit(self, column: str) -> str:
        kind = _kind(self.first) or ""
        named = next((unit for unit in ("week", "month") if column.endswith(f"_{unit}")), "day")
        return {"date": named, "time": "hour"}.get(kind, kind)

    def _ends(self, column: str) -> tuple[int, int]:
        unit = self._unit(column)
        return self._number(self.first, unit), self._number(self.last, unit)

    def _number(self, end: str, unit: str) -> int:
        """The number of an end: itself, seconds or days since 1970, of a week those of its Monday, or months since 1970."""
        kind = _kind(end)
        if kind == "int":
            return int(end)
        try:
            if kind == "time":
                moment = datetime.datetime.fromisoformat(end)
                moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
                return int(moment.timestamp())
            date = datetime.date.fromisoformat(end)
        except ValueError:
            raise ParameterError(f"the domain {self.text!r}: {end} is no date or time", "domain") from None
        day = date.toordinal() - _EPOCH
        if unit == "week":
            return day - date.weekday()
        return _MONTHS * (date.year - 1970) + date.month - 1 if unit == "month" else day


_STEPS = {"hour": _HOUR, "week": 7}  # from one value to the next


def parse_range(text: str) -> KeyRange | None:
    """The range that a text like `1..12` stands for; None if it is none, but the path of a file."""
    found = _TEXT.fullmatch(text)
    if found is None or not any(map(_kind, found.groups())):
        return None
    return KeyRange(*found.groups())


def range_of(ends: Sequence[Any]) -> KeyRange:
    """The range of two ends as Python has them: texts, whole numbers, dates or times."""
    plain = (str, int, datetime.date)
    if len(ends) != 2 or not all(isinstance(end, plain) and not isinstance(end, bool) for end in ends):
        raise ParameterError(
            "the domain has a tuple that is no range: give (first, last), two dates, times or whole numbers, or a list of "
            "all values",
            "domain",
        )
    return KeyRange(*(end.isoformat() if isinstance(end, datetime.date) else str(end) for end in ends))


def _kind(end: str) -> str | None:
    kinds = {"int": _WHOLE, "date": _DATE, "time": _TIME}
    return next((kind for kind, form in kinds.items() if form.fullmatch(end)), None)


def _unit_of(field: Field) -> str | None:
    """What a range of a key column is of; None if there is none."""
    if field.column.edges:
        return None
    if field.column.unit in ("hour", "day", "week", "month"):
        return field.column.unit
    return "day" if pa.types.is_date32(field.shown) else "int" if pa.types.is_integer(field.shown) else None
