"""Data of a study in memory: its contributions, read and consolidated once, and the truth of each item.

Public or made-up data only: what is here is exact.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.domain import arrow_type
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.run_sums import sum_by_code
from headcount.mechanisms.batches.shards import Shard, one_shard
from headcount.mechanisms.batches.user_shards import Gathered


@dataclasses.dataclass(frozen=True)
class Data:
    """Contributions, each (user, item) pair once, and for each of the distinct `items` its true `events` and `users`.

    `pairs` are the distinct items of each user. Releases of the consolidated batch are those of the rows that it came from, and
    its users are brought together once for all of them.
    """

    batches: Gathered
    item_type: type
    items: Names
    events: np.ndarray
    users: np.ndarray
    pairs: np.ndarray

    def truth(self, of: str, cap: int = 0) -> np.ndarray:
        """How often each item occurs, or how many users have it: `of` is "events" or "users". With a cap, at most this many
        events of one user on one item count."""
        if of == "users" or cap == 1:
            return self.users
        if cap == 0:
            return self.events
        code = np.concatenate([self.places(batch.column("item").cast(self.items.type)) for batch in self.batches])
        count = np.concatenate([np.asarray(batch.column("count")) for batch in self.batches])
        return sum_by_code(code, np.minimum(count, cap), len(self.items))

    def places(self, shown: pa.Array) -> np.ndarray:
        """Where among the items each of those shown is; -1 for one that nobody has."""
        found = pc.index_in(shown, value_set=self.items.cast(shown.type))
        return np.asarray(found.fill_null(-1), dtype=np.int64)

    def items_per_user(self, share: float) -> int:
        """The number of distinct items that this share of the users has, or fewer; at least 1."""
        if len(self.pairs) == 0:
            return 1
        return int(np.quantile(self.pairs, share, method="inverted_cdf"))

    def description(self) -> str:
        """How large it is, in one line; exact."""
        numbers = (int(self.events.sum()), "events"), (len(self.pairs), "users"), (len(self.items), "items")
        return ", ".join(f"{number:,} {what}" for number, what in numbers)


def in_memory(batches: Iterable[pa.RecordBatch], item_type: type = str) -> Data:
    """The data of contribution batches (`mechanisms.batches.contributions.contribution_batch`)."""
    return of_shard(one_shard(batches), item_type)


def of_shard(shard: Shard | None, item_type: type = str) -> Data:
    """The data of one shard with all users (None: there are none)."""
    if shard is None:
        nothing = np.zeros(0, dtype=np.int64)
        return Data(Gathered.of(()), item_type, pa.array([], arrow_type(item_type)), nothing, nothing, nothing)
    users = np.bincount(shard.item, minlength=len(shard.items))
    events = sum_by_code(shard.item, shard.count, len(shard.items))
    batches = Gathered.of([shard.to_batch()])
    return Data(batches, item_type, shard.items, events, users, shard.rows_per_user())
