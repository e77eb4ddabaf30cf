"""Who is active: on each day the users of that day, of the last 7 days and of the last 28.

The days that are counted are public. A row on an earlier day counts for the windows that reach back to it. Every user is in at
most three cells a day, so that the bound is known, and no user is cut. To choose a smaller bound privately would gain nothing:
a user who comes once is in 28 windows of 28 days already, and a draw that all cells share halves the noise.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from headcount.mechanisms.batches.value_rows import ValueShard
from headcount.mechanisms.people.records import Records, UserRows, first_of_runs, most_frequent, records_of

#: Days that windows have, each with the day that it is counted for.
WINDOWS = (1, 7, 28)


@dataclasses.dataclass(frozen=True)
class ActivesRecords:
    """The cells (window, day) in which each user is active, of days from `first` to `last`, since 1970. Rows carry their day.

    `by` is the value that most of the user's rows have that count; of equal ones the first in the order of names.
    """

    first: int
    last: int

    def __call__(self, shard: ValueShard) -> Records:
        """The cells of each user with a row that counts, window by window."""
        rows = UserRows.of(shard)
        day = rows.values[0]
        inside = np.flatnonzero((day > self.first - max(WINDOWS)) & (day <= self.last))
        owner, by = most_frequent(rows.user[inside], rows.item[inside], rows.count[inside])
        order = inside[np.lexsort((day[inside], rows.user[inside]))]
        user, day = rows.user[order], day[order]
        there = first_of_runs(user, day)
        user, day = user[there], day[there]
        following = np.append(day[1:], 0)
        following[np.append(user[1:] != user[:-1], [True] * (len(user) > 0))] = np.iinfo(np.int64).max
        whose, cells = [], []
        for place, window in enumerate(WINDOWS):
            # Up to the next day with a row of the user, which has a stretch of its own: no cell is there twice.
            begin = np.maximum(day, self.first)
            each = np.maximum(np.minimum(np.minimum(day + window, following), self.last + 1) - begin, 0)
            ends = np.cumsum(each)
            days = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - each, each) + np.repeat(begin, each)
            whose.append(np.repeat(user, each))
            cells.append(place * (self.last - self.first + 1) + days - self.first)
        found, made = np.concatenate(whose), np.concatenate(cells)
        order = np.argsort(found, kind="stable")  # each user's windows one after another
        number = np.bincount(found, minlength=len(shard.users))[owner]
        # Every row that counts lies in the longest window of some day, so that each owner has a cell.
        return records_of(shard.users, rows.items, owner, by, made[order], number)
