"""A public grid over numbers: which of many equal intervals a value lies in, exactly, and where an interval is."""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
from fractions import Fraction

import numpy as np

from headcount.mechanisms.checks import is_real, is_whole, wrong
from headcount.mechanisms.errors import InputError, ParameterError

MOST_LEAVES = 1 << 20
_LARGEST = 2**62


@dataclasses.dataclass(frozen=True)
class Leaves:
    """`count` equal intervals that cover lo .. hi: leaf i has the values x with edge(i) <= x < edge(i + 1), where edge(i) is
    lo + i (hi - lo) / count, and values outside belong to the first and the last.

    An edge need not be a float (or an integer), but which values reach it is a matter of the exact number. So each edge is
    rounded up to the next value of the column's type, so that no value is put on the wrong side.
    """

    lo: int | float
    hi: int | float
    count: int

    def __post_init__(self) -> None:
        for name in ("lo", "hi"):
            value = getattr(self, name)
            if not is_real(value):
                raise ParameterError(f"{name} must be a number, got {value!r}", name)
            number = int(value) if isinstance(value, numbers.Integral) else float(value)
            if not -_LARGEST <= number <= _LARGEST:
                raise ParameterError(f"{name} must be a number of at most 2^62 in size, got {value!r}", name)
            object.__setattr__(self, name, number)
        if not self.lo < self.hi:
            raise ParameterError(f"lo must be below hi, got lo = {self.lo!r} and hi = {self.hi!r}", "lo")
        if not is_whole(self.count, 2, MOST_LEAVES):
            raise wrong("the number of leaves", f"must be from 2 to {MOST_LEAVES}", self.count)

    def to_json(self) -> list[Fraction | int]:
        """What defines the grid, for subkeys: 0, 0.0 and 0e0 are one end."""
        return [Fraction(self.lo), Fraction(self.hi), self.count]

    def edge(self, leaf: int | Fraction) -> Fraction:
        """Where a leaf begins, exactly; also between two leaves."""
        return Fraction(self.lo) + (Fraction(self.hi) - Fraction(self.lo)) * leaf / self.count

    def nearest_edge(self, value: int | float) -> int:
        """The number of the edge that the end of a range moves to: the nearest, or of a whole number where its leaf begins.

        So whole numbers are on the right side of it, if leaves are no wider than 1 (and dates, which are counted in
        microseconds, if no wider than a day). To the nearest, all users with just this value might change sides.
        """
        if not is_real(value) or math.isnan(value):
            raise ParameterError(f"the ends of a range must be numbers, got {value!r}")
        inside = Fraction(self.lo if value <= self.lo else self.hi if value >= self.hi else value)
        place = (inside - Fraction(self.lo)) / (Fraction(self.hi) - Fraction(self.lo)) * self.count
        return math.floor(place) if inside.denominator == 1 else round(place)

    def index(self, values: np.ndarray) -> np.ndarray:
        """The leaf of each value, of an integer or float type."""
        if values.dtype.kind == "u" and values.dtype.itemsize == 8:
            values = np.minimum(values, np.uint64(_LARGEST))  # beyond hi, whatever it is
        if values.dtype.kind in "iu":
            return np.searchsorted(_edges(self, True), values.astype(np.int64), side="right").astype(np.int64)
        if values.dtype.kind != "f":
            raise InputError(f"values must be of an integer or float type, got {values.dtype}")
        values = values.astype(np.float64)
        if np.isnan(values).any():
            raise InputError("a value is not a number (NaN); drop or replace such rows first")
        return np.searchsorted(_edges(self, False), values, side="right").astype(np.int64)


@functools.lru_cache(maxsize=8)
def _edges(leaves: Leaves, whole: bool) -> np.ndarray:
    """The least integer, or the least float64, that reaches each edge but the first."""
    lo, width = Fraction(leaves.lo), (Fraction(leaves.hi) - Fraction(leaves.lo)) / leaves.count
    unit = math.lcm(lo.denominator, width.denominator)
    start, step = int(lo * unit), int(width * unit)  # edge i is (start + i step) / unit
    numerators = range(start + step, start + step * leaves.count, step)
    if whole:
        return np.fromiter((-(-n // unit) for n in numerators), np.int64, leaves.count - 1)
    edges = np.fromiter((n / unit for n in numerators), np.float64, leaves.count - 1)  # each correctly rounded
    for i, (n, edge) in enumerate(zip(numerators, edges.tolist(), strict=True)):
        above, below = edge.as_integer_ratio()
        if above * unit < n * below:
            edges[i] = math.nextafter(edge, math.inf)
    return edges
