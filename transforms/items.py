"""The rows in which items are named. (No postponed annotations here: Beam derives the schema from the types.)"""

from typing import NamedTuple

import apache_beam as beam


class NamedItem(NamedTuple):
    """An item, a string, that may be named."""

    item: str


class NamedIntItem(NamedTuple):
    """An item, an integer, that may be named."""

    item: int


beam.coders.registry.register_coder(NamedItem, beam.coders.RowCoder)
beam.coders.registry.register_coder(NamedIntItem, beam.coders.RowCoder)
