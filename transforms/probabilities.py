"""The rows of a learned distribution. (No postponed annotations here: Beam derives the schema from the types.)"""

from typing import NamedTuple

import apache_beam as beam


class ItemProbability(NamedTuple):
    """The probability of an item named by a string; `error` is how far off it is to be expected, on average."""

    item: str
    probability: float
    error: float


class IntItemProbability(NamedTuple):
    """The probability of an item that is an integer; `error` is how far off it is to be expected, on average."""

    item: int
    probability: float
    error: float


beam.coders.registry.register_coder(ItemProbability, beam.coders.RowCoder)
beam.coders.registry.register_coder(IntItemProbability, beam.coders.RowCoder)
