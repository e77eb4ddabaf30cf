"""How far users come on a path of steps: a user's depth is the longest prefix of the steps that it did in order.

Rows are put in the order of their times. Rows of equal time come in the order of the steps: by the first step that they meet,
then by the steps that they meet as a binary number, of which the first step is the last digit. A user has reached step j
from a row of step 1, its start, if rows of the steps 2 .. j follow it one after another in this order, the last of them no
later than `within` after the start. So a row is used for one step at most. Each row of step 1 may be the start, and the depth
is the deepest of all starts. `by` is that of the row at the start: of the first one that comes as deep.

Of a start, the earliest next row of every step is the best, since whatever follows a later one follows it, too. Without
`within` the first start is, for the same reason. So all of it is a search in sorted places, step by step, for all starts.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from headcount.mechanisms.batches.value_rows import ValueShard
from headcount.mechanisms.people.records import Records, UserRows, first_of_runs, records_of

#: Steps of one funnel at most.
MOST_STEPS = 20


@dataclasses.dataclass(frozen=True)
class FunnelRecords:
    """The records of a funnel of this number of steps, `within` microseconds. Rows carry their time and a code of steps."""

    steps: int
    within: int | None = None

    def __call__(self, shard: ValueShard) -> Records:
        """The depth of each user that did the first step, as a cell: 0 for depth 1, and so on."""
        rows = UserRows.of(shard)
        time, code = rows.values
        order = np.lexsort((rows.item, code, time, rows.user))
        # A row that is there several times can be used as often, and no path needs it more often than it has steps.
        order = np.repeat(order, np.minimum(rows.count[order], self.steps))
        user, item, time = rows.user[order], rows.item[order], time[order]
        places = [np.flatnonzero((code[order] >> step) & 1) for step in range(self.steps)]
        start = places[0]
        if self.within is None:
            start = start[first_of_runs(user[start])]
        depth = self._depths(places, start, user, time)
        owner = user[start]
        best = np.lexsort((start, -depth, owner))
        best = best[first_of_runs(owner[best])]
        chosen = start[best]
        ones = np.ones(len(chosen), dtype=np.int64)
        return records_of(shard.users, rows.items, user[chosen], item[chosen], depth[best] - 1, ones)

    def _depths(self, places: list[np.ndarray], start: np.ndarray, user: np.ndarray, time: np.ndarray) -> np.ndarray:
        """How deep each start comes."""
        depth = np.ones(len(start), dtype=np.int64)
        alive, at = np.arange(len(start)), start
        for step in range(1, self.steps):
            found = np.searchsorted(places[step], at, side="right")
            alive, found = alive[found < len(places[step])], found[found < len(places[step])]
            at = places[step][found]
            begin = start[alive]
            kept = user[at] == user[begin]
            if self.within is not None:
                kept &= time[at] - time[begin] <= self.within
            alive, at = alive[kept], at[kept]
            depth[alive] += 1
        return depth
