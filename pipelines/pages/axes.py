"""Axes of a chart: where a value lies on one, which numbers stand along it, and how they are written."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

_MOST_TICKS = 7
_STEPS = (1, 2, 5)
_LARGE = ((1e12, "T"), (1e9, "B"), (1e6, "M"))


@dataclasses.dataclass(frozen=True)
class Axis:
    """What is along one side of a chart. A logarithmic one has no place for 0, and what is not above it is left out.

    `percent` writes shares as percent. `ticks` are the numbers to write, where those that are chosen by size say less: the
    epsilons that were tried. `least` and `most` are values that the axis has in any case.
    """

    label: str
    log: bool = False
    percent: bool = False
    ticks: tuple[float, ...] = ()
    least: float | None = None
    most: float | None = None

    def scale(self, values: Iterable[float]) -> Scale:
        """The axis for these values. A logarithmic one reaches from a power of ten to another, unless its numbers are given; a
        straight one has 0."""
        given = [*values, *(end for end in (self.least, self.most, *self.ticks) if end is not None)]
        found = [value for value in given if self.has(value)]
        low, high = (min(found), max(found)) if found else (1.0, 1.0)
        if self.log and self.ticks and low < high:
            return Scale(self, math.log10(low), math.log10(high), self.ticks)
        if self.log:
            first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
            last = max(last, first + 1)
            return Scale(self, first, last, tuple(self.ticks or _powers(first, last)))
        low, high = min(0.0, low), max(0.0, high)
        high = high if high > low else low + 1
        ticks = self.ticks or _round_numbers(low, high)
        return Scale(self, min(low, *ticks), max(high, *ticks), tuple(ticks))

    def has(self, value: float) -> bool:
        """Whether there is a place for a value."""
        return math.isfinite(value) and (value > 0 or not self.log)

    def text(self, value: float) -> str:
        """A number as it stands along the axis."""
        if self.percent:
            return f"{_plain(100 * value)} %"
        size, letter = next(((size, letter) for size, letter in _LARGE if abs(value) >= size), (1.0, ""))
        return f"{_plain(value / size)}{letter}"


@dataclasses.dataclass(frozen=True)
class Scale:
    """An axis with its ends, in logarithms where it is logarithmic."""

    axis: Axis
    low: float
    high: float
    ticks: tuple[float, ...]

    def share(self, value: float) -> float:
        """Where a value lies: 0 at the low end, 1 at the high one."""
        return ((math.log10(value) if self.axis.log else value) - self.low) / (self.high - self.low)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _powers(low: int, high: int) -> Sequence[float]:
    """Powers of ten; 2 and 5 times them too, where there are few."""
    every = -(-(high - low) // _MOST_TICKS)
    if high - low > 1:
        return [10.0**power for power in range(low, high + 1, every)]
    return [step * 10.0**power for power in (low,) for step in _STEPS] + [10.0**high]


def _round_numbers(low: float, high: float) -> Sequence[float]:
    """Multiples of 1, 2 or 5 times a power of ten, from one at or below `low` to one at or above `high`."""
    power = math.floor(math.log10((high - low) / _MOST_TICKS))
    step = next(
        float(f"{times}e{at}")
        for at in range(power, power + 3)
        for times in _STEPS
        if (high - low) / float(f"{times}e{at}") <= _MOST_TICKS - 1
    )
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(step * k, 12) for k in range(first, last + 1)]
