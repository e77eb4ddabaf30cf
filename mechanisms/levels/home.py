"""Each user in one place: the leaf where it has the most rows."""

from __future__ import annotations

import numpy as np

from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bounding.clipping import limit_items, limit_per_item
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.randomness.subkeys import subkey


def home_subkey(release: Release, label: str) -> bytes:
    """The subkey of the lots of users who have the most rows in several places."""
    return subkey(release.key_source.fetch(), release.id, label, {"home": "most rows"})


def at_home(shard: Shard, subkey: bytes) -> Shard:
    """Each user with one row, counted once: of the item on which it has the most, and of several such, one of them by lot.

    A user's home depends on that user's rows alone; the lot is drawn from the user's lane.
    """
    rows = shard.rows_per_user()
    most = np.zeros(len(rows), dtype=np.int64)
    most[rows > 0] = np.maximum.reduceat(shard.count, shard.offsets[:-1][rows > 0]) if len(shard.count) else 0
    largest = np.flatnonzero(shard.count == np.repeat(most, rows))
    return limit_per_item(limit_items(shard.keep(largest, shard.count[largest]), 1, subkey), 1)
