"""Made-up events on public values, such as days: each by chance on one of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headcount.mechanisms.batches.shards import Shard


def on_public_values(shard: Shard, weights: np.ndarray, random: np.random.Generator) -> Shard:
    """The same users, each of their events with a public value by chance, as often as the weights say.

    The new items are whole numbers: the place of the old one times the number of values, and that of the value.
    """
    size, ends = len(weights), np.cumsum(weights)
    event = np.repeat(np.arange(len(shard.item)), shard.count)
    value = np.minimum(np.searchsorted(ends, ends[-1] * random.random(len(event)), side="right"), size - 1)
    user = np.repeat(np.arange(len(shard.users)), shard.rows_per_user())[event]
    whole = len(shard.items) * size
    pairs, count = np.unique(user * whole + shard.item[event] * size + value, return_counts=True)
    codes, item = np.unique(pairs % whole, return_inverse=True)
    offsets = np.searchsorted(pairs // whole, np.arange(len(shard.users) + 1)).astype(np.int64)
    return Shard(shard.users, pa.array(codes), offsets, item.astype(np.int64), count.astype(np.int64))
