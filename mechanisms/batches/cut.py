"""Cutting rows by a hash of their item into chunks: all that is about one item meets in one shard of items.

The hash depends on the item alone, so that batches that never meet cut alike. A chunk is an Arrow stream.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headcount.mechanisms.batches.names import Names, hash64, shard_of
from headcount.mechanisms.batches.packing import pack
from headcount.mechanisms.batches.run_sums import begins_run
from headcount.mechanisms.batches.threads import Parts

_SHARDS = 4  # of items, where their users are in several shards: two cores add up what these have, two shards at a time


def item_shards_here(users: Parts[Any]) -> int:
    """Into how many shards the items of users in these shards are cut, in one process."""
    return 1 if len(users) < 2 else _SHARDS


def brought_together(chunks: Iterable[tuple[int, bytes]]) -> list[list[bytes]]:
    """The chunks of each shard of items that has any, in the order of the shards."""
    found: dict[int, list[bytes]] = {}
    for shard, chunk in chunks:
        found.setdefault(shard, []).append(chunk)
    return [found[shard] for shard in sorted(found)]


@dataclasses.dataclass(frozen=True)
class ItemCut:
    """Distinct items, ordered by their shards: shard s has those at the places cuts[s] .. cuts[s + 1] - 1."""

    items: Names
    order: np.ndarray  # which of the items, as they were given, stands at each place
    cuts: np.ndarray  # one more than shards

    def places(self) -> np.ndarray:
        """The place of each item, as they were given."""
        places = np.empty(len(self.order), dtype=np.int64)
        places[self.order] = np.arange(len(self.order))
        return places

    def one_row_each(self, columns: Mapping[str, np.ndarray]) -> Iterator[tuple[int, bytes]]:
        """(shard, chunk) of columns that have one row per item, in the order in which the items were given."""
        columns = {name: values[self.order] for name, values in columns.items()}
        for shard in np.flatnonzero(np.diff(self.cuts)):
            rows = slice(self.cuts[shard], self.cuts[shard + 1])
            yield int(shard), _chunk(self.items[rows], columns, rows)

    def rows(self, place: np.ndarray, columns: Mapping[str, np.ndarray]) -> Iterator[tuple[int, bytes]]:
        """(shard, chunk) of rows whose items stand at `place`, which ascends; an item without rows is not named."""
        ends = np.searchsorted(place, self.cuts)
        for shard in np.flatnonzero(np.diff(ends)):
            rows = slice(ends[shard], ends[shard + 1])
            first = begins_run(place[rows])
            names = self.items.take(pa.array(place[rows][first]))
            yield int(shard), _chunk(pa.DictionaryArray.from_arrays(np.cumsum(first) - 1, names), columns, rows)

    def scattered(self, place: np.ndarray, columns: Mapping[str, np.ndarray]) -> Iterator[tuple[int, bytes]]:
        """The same of rows in any order; in a shard that has rows, all its items are named."""
        shards = len(self.cuts) - 1
        kind = np.uint16 if shards <= 1 << 16 else np.uint32  # 16 bits sort by radix
        home = np.repeat(np.arange(shards, dtype=kind), np.diff(self.cuts))[place]
        order = np.argsort(home, kind="stable")
        ends = np.searchsorted(home[order], np.arange(shards + 1))
        place = place[order]
        columns = {name: values[order] for name, values in columns.items()}
        for shard in np.flatnonzero(np.diff(ends)):
            rows, first = slice(ends[shard], ends[shard + 1]), self.cuts[shard]
            names = self.items[first : self.cuts[shard + 1]]
            yield int(shard), _chunk(pa.DictionaryArray.from_arrays(place[rows] - first, names), columns, rows)


def cut_by_item(items: Names, shards: int) -> ItemCut:
    """Distinct items in the order of their shards, and within a shard in that in which they were given."""
    home = shard_of(hash64(items), shards)
    order = np.argsort(home, kind="stable")
    return ItemCut(items.take(pa.array(order)), order, np.searchsorted(home[order], np.arange(shards + 1)))


def _chunk(items: pa.Array, columns: Mapping[str, np.ndarray], rows: slice) -> bytes:
    return pack({"item": items} | {name: pa.array(values[rows]) for name, values in columns.items()})
