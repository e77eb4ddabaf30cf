"""What each user becomes: the value of `by` that it counts for, and the cells of a public table that it is in.

A record is made inside the shard of its user, from that user's rows alone. Cells are numbered from 0, and lie in rows of the
table, one after another. A user is in cells of one row of the table, for one value of `by`.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.packing import unpack
from headcount.mechanisms.batches.run_sums import begins_run
from headcount.mechanisms.batches.shards import Shard, pack_shard, unpack_shard
from headcount.mechanisms.batches.value_rows import ValueShard
from headcount.mechanisms.calibration.bound import Bound


@dataclasses.dataclass(frozen=True)
class Records:
    """The records of some users: `by` has one item of each user, and user u has the cells starts[u] .. starts[u + 1] - 1."""

    by: Shard
    starts: np.ndarray  # int64, one more than users
    cells: np.ndarray  # int64, ascending for each user

    def pack(self) -> bytes:
        """All of it in few bytes, for a step that comes later: `unpack_shard` reads the items of `by`."""
        return pack_shard(self.by, {"each": pa.array(np.diff(self.starts)), "cells": pa.array(self.cells)})

    @classmethod
    def unpack(cls, data: bytes) -> Records:
        """Inverse of `pack`."""
        columns, _ = unpack(data)
        starts = np.append(0, np.cumsum(np.asarray(columns["each"])))
        return cls(unpack_shard(data), starts.astype(np.int64), np.asarray(columns["cells"]))

    def counted(self, public: Names, cells: int) -> Shard:
        """The users with the numbers of their cells as items, for a public list of the values of `by`, each of which has this
        number of `cells`. Users whose value is not among them have none."""
        place = pc.index_in(self.by.items, value_set=public.cast(self.by.items.type))
        known = np.asarray(place.is_valid())[self.by.item]
        first = np.asarray(place.fill_null(0)).astype(np.int64)[self.by.item] * cells
        each = np.diff(self.starts)
        codes = (self.cells + np.repeat(first, each))[np.repeat(known, each)]
        items, item = np.unique(codes, return_inverse=True)
        offsets = np.append(0, np.cumsum(np.where(known, each, 0))).astype(np.int64)
        ones = np.ones(len(codes), dtype=np.int64)
        return Shard(self.by.users, pa.array(items, pa.int64()), offsets, item.astype(np.int64).reshape(-1), ones)


def records_of(
    users: Names, items: Names, user: np.ndarray, by: np.ndarray, cells: np.ndarray, each: np.ndarray
) -> Records:
    """The records of these of the users, ascending: each with the place of its value among the items, and `each` cells."""
    ones = np.ones(len(user), dtype=np.int64)
    offsets = np.arange(len(user) + 1, dtype=np.int64)
    shard = Shard(users.take(pa.array(user)), items, offsets, by.astype(np.int64), ones, Bound())
    return Records(shard, np.append(0, np.cumsum(each)).astype(np.int64), cells.astype(np.int64))


@dataclasses.dataclass(frozen=True)
class UserRows:
    """The rows of a shard one by one: whose each is, the place of its item in the order of names, how often it is there, and
    the numbers that it carries."""

    user: np.ndarray
    item: np.ndarray  # places in `items`
    count: np.ndarray
    values: tuple[np.ndarray, ...]
    items: Names  # sorted

    @classmethod
    def of(cls, shard: ValueShard) -> UserRows:
        """Those of a shard."""
        pairs = shard.pairs
        order = pc.sort_indices(pairs.items)
        place = np.empty(len(order), dtype=np.int64)
        place[np.asarray(order)] = np.arange(len(order))
        owner = np.repeat(np.arange(len(pairs.users)), pairs.rows_per_user())
        each = shard.rows_per_pair()
        return cls(
            np.repeat(owner, each),
            np.repeat(place[pairs.item], each),
            shard.count,
            shard.values,
            pairs.items.take(order),
        )


def first_of_runs(*columns: np.ndarray) -> np.ndarray:
    """The places at which sorted rows begin to differ from the one before in any of the columns."""
    return np.flatnonzero(begins_run(*columns)) if len(columns[0]) else np.zeros(0, dtype=np.int64)


def most_frequent(user: np.ndarray, item: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The users of rows, ascending, and of each the item with the largest count; of equal ones the first in the order of
    names."""
    order = np.lexsort((item, user))
    user, item, count = user[order], item[order], count[order]
    starts = first_of_runs(user, item)
    pair_user, pair_item = user[starts], item[starts]
    sums = np.add.reduceat(count, starts) if len(starts) else count
    best = np.lexsort((pair_item, -sums, pair_user))
    chosen = best[first_of_runs(pair_user[best])]
    return pair_user[chosen], pair_item[chosen]
