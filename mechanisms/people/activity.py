"""How many users did it how often: a user's events fall into one of a list of public bins."""

from __future__ import annotations

import dataclasses

import numpy as np

from headcount.mechanisms.batches.run_sums import run_sums
from headcount.mechanisms.batches.value_rows import ValueShard
from headcount.mechanisms.people.records import Records, UserRows, most_frequent, records_of


@dataclasses.dataclass(frozen=True)
class ActivityRecords:
    """The bin of each user's events: from one of the `edges` to below the next. Who has fewer than the first is in none.

    `by` is the value that most of the user's events have; of equal ones the first in the order of names.
    """

    edges: tuple[int, ...]

    def __call__(self, shard: ValueShard) -> Records:
        """One cell for each user that has as many events as the first edge says."""
        pairs, rows = shard.pairs, UserRows.of(shard)
        totals = run_sums(pairs.count, pairs.offsets[:-1])
        cell = np.searchsorted(np.array(self.edges, dtype=np.int64), totals, side="right") - 1
        user, item = most_frequent(rows.user, rows.item, rows.count)
        counted = cell[user] >= 0
        user, item = user[counted], item[counted]
        return records_of(shard.users, rows.items, user, item, cell[user], np.ones(len(user), dtype=np.int64))
