"""Public windows of time, each of which is a release of its own: `Windows`.

Proof: docs/proofs/windows.md.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator

from headcount.mechanisms.checks import check_whole, is_whole, wrong
from headcount.mechanisms.errors import ParameterError

SUFFIX = 17  # characters that the end of a window adds to a release id
_MOST = 10**6
_FIRST, _LAST = (int(datetime.datetime(year, 1, 1, tzinfo=datetime.UTC).timestamp()) for year in (1900, 9999))


@dataclasses.dataclass(frozen=True, init=False)
class Windows:
    """`number` windows of `size` seconds, one after another, the first of which begins at `start`: a date or a time, of UTC
    unless it says otherwise, or seconds since 1970.

    They are public: known without a look at the data. Each gives a release, also one without users, since what is missing would
    tell that nobody was there.
    """

    start: int
    size: int
    number: int

    def __init__(
        self, start: str | datetime.date | datetime.datetime | int, size: int | datetime.timedelta, number: int
    ) -> None:
        seconds: object = size
        if isinstance(size, datetime.timedelta):
            seconds = int(size.total_seconds()) if size.microseconds == 0 else size
        object.__setattr__(self, "start", _seconds(start))
        object.__setattr__(self, "size", check_whole("size of windows, in seconds,", seconds, 1, _LAST - _FIRST))
        object.__setattr__(self, "number", check_whole("number of windows", number, 1, _MOST))
        if not (_FIRST <= self.start and self.last <= _LAST):
            raise ParameterError(f"windows lie between the years 1900 and 9999, got {self}")

    @property
    def last(self) -> int:
        """The end of the last window."""
        return self.start + self.number * self.size

    def starts(self) -> Iterator[int]:
        """When each window begins."""
        return iter(range(self.start, self.last, self.size))

    def has(self, start: float, end: float) -> bool:
        """Whether this is one of them."""
        return self.start <= start < self.last and (start - self.start) % self.size == 0 and end - start == self.size


def window_id(release_id: str, end: int) -> str:
    """The id of the release of the window that ends then: "weekly.20261101T000000Z"."""
    return f"{release_id}.{datetime.datetime.fromtimestamp(end, datetime.UTC):%Y%m%dT%H%M%SZ}"


def _seconds(start: object) -> int:
    if is_whole(start, _FIRST, _LAST):
        return int(start)
    try:
        at = datetime.datetime.fromisoformat(start) if isinstance(start, str) else start
    except ValueError:
        at = None
    if isinstance(at, datetime.date) and not isinstance(at, datetime.datetime):
        at = datetime.datetime(at.year, at.month, at.day)
    if not isinstance(at, datetime.datetime) or at.microsecond:
        raise wrong("start of windows", "must be a date or time of whole seconds, or seconds since 1970", start)
    return int((at if at.tzinfo else at.replace(tzinfo=datetime.UTC)).timestamp())
