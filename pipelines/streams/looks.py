"""When a stream looks for files, and how far its clock is then: a function of public numbers, never of rows.

A look finds every file that was there when it began. Only then does the clock (Beam's watermark) go on, to the time of the look
less what it waits for stragglers. So all rows of a window count whose file was there when the window had ended and the wait was
over, and no row can hold the clock or push it: which windows close, and when, says nothing of anybody.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from headcount.mechanisms.randomness.windows import Windows
from headcount.pipelines.sources import matching


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

    def at(self, look: int) -> int:
        """When a look is due."""
        return self.first + look * self.every

    def due(self, now: float) -> int:
        """The newest look that is due now; below 0 if none is."""
        return min(self.number - 1, int((now - self.first) // self.every))

    def clock(self, look: int) -> int:
        """How far the clock is after a look; -1 is before the first."""
        return self.windows.start if look < 0 else max(self.windows.start, self.at(look) - self.wait)


class _Provider(RestrictionProvider):
    """The looks that are still to come."""

    def initial_restriction(self, element: Looks) -> OffsetRange:
        return OffsetRange(0, element.number)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: Looks, restriction: OffsetRange) -> int:
        return 1

    def split(self, element: Looks, restriction: OffsetRange) -> Iterator[OffsetRange]:
        yield restriction  # the clock is one


@beam.typehints.with_input_types(Looks)
@beam.typehints.with_output_types(tuple[str, int])
class LookForFiles(beam.DoFn):
    """(path, 0) of all files that match, at each look: stamped with the clock before it, so that none is late by looking."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = list(patterns)

    @beam.DoFn.unbounded_per_element()
    def process(
        self,
        looks: Looks,
        tracker: object = beam.DoFn.RestrictionParam(_Provider()),
        estimator: object = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider()),
    ) -> Iterator[TimestampedValue]:
        coming = tracker.current_restriction().start  # type: ignore[attr-defined]
        look = looks.due(time.time())
        if look < coming:
            tracker.defer_remainder(Timestamp(looks.at(coming)))  # type: ignore[attr-defined]
            return
        if not tracker.try_claim(look):  # type: ignore[attr-defined]
            return
        before = estimator.current_watermark() or Timestamp(looks.clock(-1))  # type: ignore[attr-defined]
        for file in matching.files_of(self._patterns):
            yield TimestampedValue((file.path, 0), before)
        estimator.set_watermark(Timestamp(looks.clock(look)))  # type: ignore[attr-defined]
        if look + 1 < looks.number:
            tracker.defer_remainder(Timestamp(looks.at(look + 1)))  # type: ignore[attr-defined]
        else:
            tracker.try_claim(looks.number)  # type: ignore[attr-defined]
