"""What is asked of every key: users, events, and the sum, mean or variance of a column of numbers within a public range."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from headcount.mechanisms.checks import check_number, check_one_of
from headcount.mechanisms.errors import ParameterError

#: A value is a whole number of half ranges / 2**VALUE_BITS, counted from the middle of its range.
VALUE_BITS = 20

COUNTS = ("users", "events")
OF_VALUES = ("sum", "mean", "variance")

_LARGEST = 1e15  # ends of ranges: middles and squares of halves keep their digits


@dataclasses.dataclass(frozen=True)
class ValueRange:
    """A column of numbers, and the public range that its values are cut to."""

    column: str
    low: float
    high: float

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, check_number(name, getattr(self, name)))
        if not self.low < self.high or max(abs(self.low), abs(self.high)) > _LARGEST:
            raise ParameterError(
                f"the range of {self.column!r} must have a low end below its high end, both within {_LARGEST:g}, got "
                f"{self.low:g} to {self.high:g}"
            )

    @property
    def middle(self) -> float:
        """The middle of the range."""
        return (self.low + self.high) / 2

    @property
    def half(self) -> float:
        """Half the width of the range."""
        return (self.high - self.low) / 2

    @property
    def largest(self) -> float:
        """The largest size of a value."""
        return max(abs(self.low), abs(self.high))

    def fixed_point(self, column: pa.Array) -> pa.Array:
        """Numbers, cut to the range, as int64 from -2**VALUE_BITS at its low end to 2**VALUE_BITS at its high one.

        What is no number (NaN) is null, as what is missing is.
        """
        real = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)
        missing = np.isnan(real)
        inside = np.clip(np.where(missing, self.middle, real), self.low, self.high)
        steps = np.rint((inside - self.middle) / self.half * 2**VALUE_BITS).astype(np.int64)
        # Rounding may lead out of the range, and then by one step at most.
        return pa.array(np.clip(steps, -(2**VALUE_BITS), 2**VALUE_BITS), mask=missing)

    def text(self) -> str:
        """The range in one form only, as a part of randomness."""
        return f"{self.column}:{self.low!r}:{self.high!r}"


@dataclasses.dataclass(frozen=True)
class Metric:
    """One number for each key: `kind` is what it is, of the values of a range where it is about values."""

    kind: str
    of: ValueRange | None = None

    def __post_init__(self) -> None:
        check_one_of("metric", self.kind, (*COUNTS, *OF_VALUES))
        if (self.of is None) == (self.kind in OF_VALUES):
            what = "needs a column and its range" if self.of is None else "has no column"
            raise ParameterError(f"the metric {self.kind!r} {what}")

    @property
    def name(self) -> str:
        """What its column is called."""
        return self.kind if self.of is None else f"{self.kind}_{self.of.column}"

    @property
    def is_total(self) -> bool:
        """Whether it is a total of numbers that are not negative, of which a bound leaves out a part."""
        return self.kind in COUNTS or (self.kind == "sum" and self.of is not None and self.of.low >= 0)


def parse_metric(kind: str, text: str) -> Metric:
    """The metric of a kind for a text like `price:0:100`."""
    column, *ends = text.rsplit(":", 2)
    try:
        low, high = map(float, ends)
    except ValueError:
        raise ParameterError(
            f"{kind} needs a column and the range of its values, such as {kind}='price:0:100', got {text!r}: values are cut to "
            "the range and noise is made for it, as one value could else be of any size; take it from what you know of the "
            "column, and not from the data",
            kind,
        ) from None
    if not column or not all(map(math.isfinite, (low, high))):
        raise ParameterError(f"{kind} needs a column and two finite ends of its range, got {text!r}", kind)
    return Metric(kind, ValueRange(column, low, high))


@dataclasses.dataclass(frozen=True)
class Metrics:
    """All metrics of a release, in the order of their columns."""

    each: tuple[Metric, ...]

    def __post_init__(self) -> None:
        names = [metric.name for metric in self.each]
        if not names:
            raise ParameterError("there is nothing to compute: ask for users, events, sum, mean or variance", "metrics")
        for name in names:
            if names.count(name) > 1:
                raise ParameterError(f"the metric {name!r} is asked for more than once: leave one out", "metrics")

    @classmethod
    def of(cls, metrics: Iterable[Metric]) -> Metrics:
        """The metrics, if these are such."""
        found = tuple(metrics)
        for metric in found:
            if not isinstance(metric, Metric):
                raise ParameterError(f"metrics must be Metric values, got a {type(metric).__name__}", "metrics")
        return cls(found)

    @property
    def values(self) -> tuple[ValueRange, ...]:
        """The ranges of values that rows carry, each once: their places are those of the value columns of a batch."""
        return tuple(dict.fromkeys(metric.of for metric in self.each if metric.of is not None))

    @property
    def totals(self) -> tuple[str, ...]:
        """Which of users and events there must be totals of, so that metrics can be calibrated by them."""
        asked = {metric.kind for metric in self.each if metric.is_total}
        return tuple(kind for kind, by in (("users", {"users"}), ("events", {"events", "sum"})) if asked & by)

    @property
    def users_alone(self) -> bool:
        """Whether nothing but users is asked for, so that one row of a user on a key says all."""
        return all(metric.kind == "users" for metric in self.each)

    def fixed_point(self, columns: Sequence[pa.Array]) -> dict[str, pa.Array]:
        """The value columns of a contribution batch, of one column of numbers for each of `values`, by what messages say."""
        return {of.text(): of.fixed_point(column) for of, column in zip(self.values, columns, strict=True)}

    def texts(self) -> list[str]:
        """The metrics in one form only, as a part of randomness."""
        return [metric.kind if metric.of is None else f"{metric.kind}:{metric.of.text()}" for metric in self.each]
