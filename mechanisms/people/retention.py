"""Who comes back: a user's cohort is the first period in which it is there, and it is counted in each later one that it is.

Periods are public. Rows outside of them are left out, so that a cohort is the first period *of the data that is given*.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from headcount.mechanisms.batches.value_rows import ValueShard
from headcount.mechanisms.people.records import Records, UserRows, first_of_runs, most_frequent, records_of


@dataclasses.dataclass(frozen=True)
class RetentionRecords:
    """The cells (cohort, age) of each user, in a table with a row for each of the periods that begin at these numbers. A row
    has a cell for each age from 0 to the last period. Rows of a user carry the number at which their period begins.

    `by` is the value that most of the user's rows have in its first period; of equal ones the first in the order of names.
    """

    periods: tuple[int, ...]

    def __call__(self, shard: ValueShard) -> Records:
        """One cell at least, in one row of the table, for each user with a row in one of the periods."""
        rows, starts = UserRows.of(shard), np.array(self.periods, dtype=np.int64)
        place = np.minimum(np.searchsorted(starts, rows.values[0]), len(starts) - 1)
        inside = np.flatnonzero(starts[place] == rows.values[0])
        user, item, count, place = rows.user[inside], rows.item[inside], rows.count[inside], place[inside]
        first = np.full(len(shard.users), len(starts), dtype=np.int64)
        np.minimum.at(first, user, place)
        at_first = place == first[user]
        owner, by = most_frequent(user[at_first], item[at_first], count[at_first])
        order = np.lexsort((place, user))
        user, place = user[order], place[order]
        there = first_of_runs(user, place)
        user, place = user[there], place[there]
        cohort = first[user]
        each = np.bincount(user, minlength=len(shard.users))[owner]
        return records_of(shard.users, rows.items, owner, by, self.first_cells()[cohort] + place - cohort, each)

    def first_cells(self) -> np.ndarray:
        """The number of the first cell of each cohort."""
        sizes = np.arange(len(self.periods), 0, -1, dtype=np.int64)
        return np.append(0, np.cumsum(sizes))[:-1]
