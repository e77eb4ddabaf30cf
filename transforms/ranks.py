"""The rows in which items are ranked. (No postponed annotations here: Beam derives the schema from the types.)"""

from typing import NamedTuple

import apache_beam as beam


class RankedItem(NamedTuple):
    """An item named by a string, and its rank by the number of its users; ranks begin at 1."""

    rank: int
    item: str


class RankedIntItem(NamedTuple):
    """An item that is an integer, and its rank by the number of its users; ranks begin at 1."""

    rank: int
    item: int


beam.coders.registry.register_coder(RankedItem, beam.coders.RowCoder)
beam.coders.registry.register_coder(RankedIntItem, beam.coders.RowCoder)
