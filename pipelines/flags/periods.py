"""What stands for the period in a report: `{period}`, and the first and last day of it."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping

from headcount.pipelines.suggestions import did_you_mean, nearest

PERIOD = "period"
DAYS = ("first_day", "last_day")
PLACEHOLDERS = (PERIOD, *DAYS)
KINDS = "a day (2026-11-16), a week (2026-W46), a month (2026-11), a quarter (2026-Q4) or a year (2026)"
_BRACES = re.compile(r"\{\{|\}\}|\{([A-Za-z_-]+)\}")


def placeholders(text: str) -> list[str]:
    """The names that stand in braces in a text, known or not."""
    return [found[1] for found in _BRACES.finditer(text) if found[1] is not None]


def wrong_placeholder(text: str) -> str | None:
    """What is wrong with the first placeholder of a text that there is not."""
    for name in placeholders(text):
        if name not in PLACEHOLDERS:
            near = did_you_mean(f"{{{each}}}" for each in nearest(name, PLACEHOLDERS))
            every = " and ".join(", ".join(f"{{{each}}}" for each in PLACEHOLDERS).rsplit(", ", 1))
            return f"has the unknown placeholder {{{name}}}; {near or f'there are {every}'} (a brace itself is written {{{{)"
    return None


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with values for its placeholders; doubled braces become single ones."""

    def put(found: re.Match[str]) -> str:
        return found[0][0] if found[1] is None else values[found[1]]

    return _BRACES.sub(put, text)


def values_of(period: str) -> dict[str, str]:
    """What the placeholders stand for in a period; the days only if it is one whose days are known."""
    days = _days(period)
    return {PERIOD: period} | ({} if days is None else dict(zip(DAYS, map(str, days), strict=True)))


def _days(period: str) -> tuple[datetime.date, datetime.date] | None:
    for pattern, first in _FIRST.items():
        found = re.fullmatch(pattern, period)
        if found is not None:
            try:
                return first(*map(int, found.groups()))
            except ValueError:  # no such day, week or month
                return None
    return None


def _months(year: int, month: int, number: int) -> tuple[datetime.date, datetime.date]:
    following = divmod(year * 12 + month - 1 + number, 12)
    return datetime.date(year, month, 1), datetime.date(following[0], following[1] + 1, 1) - datetime.timedelta(1)


def _quarter(year: int, quarter: int) -> tuple[datetime.date, datetime.date]:
    return _months(year, 3 * quarter - 2, 3)


def _week(year: int, week: int) -> tuple[datetime.date, datetime.date]:
    return datetime.date.fromisocalendar(year, week, 1), datetime.date.fromisocalendar(year, week, 7)


def _day(year: int, month: int, day: int) -> tuple[datetime.date, datetime.date]:
    return (datetime.date(year, month, day),) * 2


_FIRST: dict[str, Callable[..., tuple[datetime.date, datetime.date]]] = {
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})": _day,
    r"([0-9]{4})-W([0-9]{2})": _week,
    r"([0-9]{4})-([0-9]{2})": lambda year, month: _months(year, month, 1),
    r"([0-9]{4})-Q([1-4])": _quarter,
    r"([0-9]{4})": lambda year: _months(year, 1, 12),
}
