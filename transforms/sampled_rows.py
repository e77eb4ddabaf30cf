"""The rows that sample and threshold releases. (No postponed annotations here: Beam derives the schema from the types.)"""

from typing import NamedTuple

import apache_beam as beam


class SampledCount(NamedTuple):
    """An item named by a string: the estimate of its users, the estimate's standard deviation, and its sampled users."""

    item: str
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    stddev: float
    sampled: int


class SampledIntCount(NamedTuple):
    """An item that is an integer: the estimate of its users, the estimate's standard deviation, and its sampled users."""

    item: int
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    stddev: float
    sampled: int


class QuantileValue(NamedTuple):
    """A quantile of numbers; `rank_stddev` is the standard deviation of the rank of the value, as a share of all users."""

    quantile: float
    value: float
    rank_stddev: float


class QuantileTime(NamedTuple):
    """A quantile of dates or times, as ISO 8601 text in UTC; `rank_stddev` as for `QuantileValue`."""

    quantile: float
    value: str
    rank_stddev: float


class RangeCount(NamedTuple):
    """The estimated number of users with a value in low <= x < high, and its standard deviation."""

    low: float
    high: float
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    stddev: float


class RangeTimeCount(NamedTuple):
    """The same for dates or times, as ISO 8601 text in UTC."""

    low: str
    high: str
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    stddev: float


for _row in (SampledCount, SampledIntCount, QuantileValue, QuantileTime, RangeCount, RangeTimeCount):
    beam.coders.registry.register_coder(_row, beam.coders.RowCoder)
