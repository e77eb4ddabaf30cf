"""The rows that histograms release. (No postponed annotations here: Beam derives the schema from the types.)"""

from typing import NamedTuple

import apache_beam as beam


class NoisyCount(NamedTuple):
    """A released count of an item named by a string; `stddev` is that of the noise alone."""

    item: str
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    stddev: float


class NoisyIntCount(NamedTuple):
    """A released count of an item that is an integer; `stddev` is that of the noise alone."""

    item: int
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    stddev: float


beam.coders.registry.register_coder(NoisyCount, beam.coders.RowCoder)
beam.coders.registry.register_coder(NoisyIntCount, beam.coders.RowCoder)


def count_row(item_type: type) -> type:
    """The type of a count's row."""
    return NoisyIntCount if item_type is int else NoisyCount
