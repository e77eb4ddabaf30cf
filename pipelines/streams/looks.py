"""When a stream looks for files, and how far its clock is then: a function of public numbers, never of rows.

A look finds every file that was there when it began. Only then does the clock (Beam's watermark) go on, to the time of the look
less what it waits for stragglers. So all rows of a window count whose file was there when the window had ended and the wait was
over, and no row can hold the clock or push it: which windows close, and when, says nothing of anybody.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from headcount.mechanisms.randomness.windows import Windows
from headcount.pipelines.sources import matching

_PAUSE = (
    0.2  # seconds between windows that are over at once: Prism may else close them before what stands beside their rows
)


@dataclasses.dataclass(frozen=True)
class Looks:
    """Looks for files, `every` so many seconds from `first` (seconds since 1970) on, until the last window is over."""

    windows: Windows
    first: int
    every: int
    wait: int

    @property
    def number(self) -> int:
        """How many there are: the last is the first one at which all windows have ended and the wait is over."""
        return 1 + max(0, -(-(self.windows.last + self.wait - self.first) // self.every))

    @property
    def steps(self) -> int:
        """No more steps of the clock than these: it goes on at a look, and stands still at the end of each window."""
        return self.number + self.windows.number + 2

    def at(self, look: int) -> int:
        """When a look is due."""
        return self.first + look * self.every

    def due(self, now: float) -> int:
        """The newest look that is due now; below 0 if none is."""
        return min(self.number - 1, int((now - self.first) // self.every))

    def target(self, now: float) -> int:
        """How far the clock may be after the newest look that is due."""
        return max(self.windows.start, self.at(self.due(now)) - self.wait)

    def next(self, clock: int, now: float) -> int:
        """How far the clock goes next: to where it may be, but by one window's end at a time."""
        end = self.windows.start + ((clock - self.windows.start) // self.windows.size + 1) * self.windows.size
        return min(self.target(now), end)

    def resumes(self, clock: int, now: float) -> float:
        """When to go on with a clock that is so far."""
        return now + _PAUSE if clock < self.target(now) or clock >= self.windows.last else self.at(self.due(now) + 1)


class Coming(OffsetRange):
    """The steps that are still to come, with the digests of the paths that were `seen` before: both go on together, or, after a
    failure, come back together."""

    def __init__(self, start: int, stop: int, seen: set[bytes]) -> None:
        super().__init__(start, stop)
        self.seen = seen

    def split_at(self, split_pos: int) -> tuple[Coming, Coming]:
        return Coming(self.start, split_pos, self.seen), Coming(split_pos, self.stop, self.seen)

    def new(self, paths: Iterable[str]) -> dict[bytes, str]:
        """Those of the paths that were not seen, by their digests."""
        found = {hashlib.blake2b(os.fsencode(path), digest_size=16).digest(): path for path in paths}
        return {digest: path for digest, path in found.items() if digest not in self.seen}


class OneClock(OffsetRestrictionTracker):
    """Claims a step together with the paths that it has seen. A runner may stop it between steps, and never divide what is to
    come: there would be two clocks, and files would be read twice."""

    def try_claim(self, position: tuple[int, Iterable[bytes]]) -> bool:
        claimed: bool = super().try_claim(position[0])
        if claimed:
            self._range.seen.update(position[1])
        return claimed

    def try_split(self, fraction_of_remainder: float) -> Any:
        return super().try_split(0) if fraction_of_remainder == 0 else None


class _Provider(RestrictionProvider):
    """The steps that are still to come."""

    def initial_restriction(self, element: Looks) -> Coming:
        return Coming(0, element.steps, set())

    def create_tracker(self, restriction: Coming) -> OneClock:
        return OneClock(restriction)

    def restriction_size(self, element: Looks, restriction: Coming) -> int:
        return 1

    def split(self, element: Looks, restriction: Coming) -> Iterator[Coming]:
        yield restriction  # the clock is one


@beam.typehints.with_input_types(Looks)
@beam.typehints.with_output_types(str)
class LookForFiles(beam.DoFn):
    """The path of each file that matches, once: stamped with the clock before the look, so that none is late by looking."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = list(patterns)

    @beam.DoFn.unbounded_per_element()
    def process(
        self,
        looks: Looks,
        tracker: object = beam.DoFn.RestrictionParam(_Provider()),
        estimator: object = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider()),
    ) -> Iterator[TimestampedValue]:
        now = time.time()
        if looks.due(now) < 0:
            tracker.defer_remainder(Timestamp(looks.first))  # type: ignore[attr-defined]
            return
        before = estimator.current_watermark()  # type: ignore[attr-defined]
        clock = looks.windows.start if before is None else int(before)
        if before is not None and looks.target(now) <= clock < looks.windows.last:  # a runner may come back too early
            tracker.defer_remainder(Timestamp(looks.resumes(clock, now)))  # type: ignore[attr-defined]
            return
        coming = tracker.current_restriction()  # type: ignore[attr-defined]
        new = coming.new(file.path for file in matching.files_of(self._patterns))
        if not tracker.try_claim((coming.start, new)):  # type: ignore[attr-defined]
            return
        if clock >= looks.windows.last:  # all windows are over, and had a while to close
            tracker.try_claim((looks.steps, ()))  # type: ignore[attr-defined]
            return
        for path in new.values():
            yield TimestampedValue(path, Timestamp(clock))
        clock = looks.next(clock, now)
        estimator.set_watermark(Timestamp(clock))  # type: ignore[attr-defined]
        tracker.defer_remainder(Timestamp(looks.resumes(clock, now)))  # type: ignore[attr-defined]
