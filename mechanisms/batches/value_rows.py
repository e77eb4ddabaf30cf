"""Shards of users whose rows carry numbers: what sums and means are made of.

A contribution batch may have columns of int64 numbers beside user, item and count (`contribution_batch(values=...)`). It goes
the way that every batch goes, through the same shuffle: only where rows are added up does it matter, as rows with other numbers
are other rows. So a `ValueShard` is a `Shard` of (user, item) pairs, which naming, choices and samples of items work with as
they are, and beside it the rows of each pair. Packed, it is a packed `Shard` with more columns: `unpack_shard` reads the pairs
alone. (A batch type of its own would have needed another shuffle, another way in and another way to hold back hot users.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.packing import unpack
from headcount.mechanisms.batches.run_sums import begins_run, run_sums
from headcount.mechanisms.batches.shards import (
    MISSING,
    MOST_COUNT,
    Rows,
    Shard,
    bound_in,
    columns_of,
    consolidate,
    pack_shard,
    shard_of_columns,
    united,
    value_name,
    value_names,
)


@dataclasses.dataclass(frozen=True)
class ValueShard:
    """All rows of some users: `pairs`, and of pair p the distinct rows starts[p] .. starts[p + 1] - 1.

    The rows of a pair ascend in their values, so that they have one order, whatever order they came in.
    """

    pairs: Shard
    starts: np.ndarray  # int64, one more than pairs
    count: np.ndarray  # int64, how often each row is there
    values: tuple[np.ndarray, ...]  # int64, each with one number per row

    @property
    def users(self) -> Names:
        """Whose rows these are."""
        return self.pairs.users

    def rows_per_pair(self) -> np.ndarray:
        """The number of distinct rows of each pair."""
        return np.diff(self.starts)

    def keep(self, pairs: np.ndarray) -> ValueShard:
        """The same users with only these pairs (ascending), and their rows."""
        if len(pairs) == len(self.pairs.item):
            return self
        each = self.rows_per_pair()
        kept = np.zeros(len(each), dtype=bool)
        kept[pairs] = True
        return self.with_rows(
            self.pairs.keep(pairs, self.pairs.count[pairs]), np.flatnonzero(np.repeat(kept, each)), each[pairs]
        )

    def with_rows(self, pairs: Shard, rows: np.ndarray, each: np.ndarray) -> ValueShard:
        """Other pairs with some of these rows, with the number of rows of each pair."""
        values = tuple(column[rows] for column in self.values)
        return ValueShard(pairs, np.append(0, np.cumsum(each)), self.count[rows], values)

    def with_items(self, names: Names) -> ValueShard:
        """The same users with their rows of these items only."""
        items = self.pairs.items
        named = np.asarray(pc.is_in(items, value_set=names.cast(items.type)))
        return self.keep(np.flatnonzero(named[self.pairs.item]))

    def with_some_value(self) -> ValueShard:
        """The same users with only the rows that have one of the values or more."""
        there = np.any([column != MISSING for column in self.values], axis=0)
        if there.all():
            return self
        each = run_sums(there.astype(np.int64), self.starts[:-1])
        pairs = np.flatnonzero(each)
        count = self._counts_of(there)[pairs]
        return self.with_rows(self.pairs.keep(pairs, count), np.flatnonzero(there), each[pairs]).compact()

    def valued_pairs(self, place: int) -> Shard:
        """The pairs with the number of their rows that have the value of this place, which may be none."""
        return dataclasses.replace(self.pairs, count=self._counts_of(self.values[place] != MISSING))

    def _counts_of(self, rows: np.ndarray) -> np.ndarray:
        """How often each pair has these rows."""
        return np.minimum(run_sums(np.where(rows, self.count, 0), self.starts[:-1]), MOST_COUNT)

    def compact(self) -> ValueShard:
        """The same rows, without users and items that have none."""
        return dataclasses.replace(self, pairs=self.pairs.compact())


def gather_values(chunks: Iterable[bytes]) -> ValueShard:
    """Unites the chunks of one shard, as `gather` does, with the numbers that rows carry."""
    return value_shard(united(map(unpack, chunks)))


def one_value_shard(batches: Iterable[pa.RecordBatch]) -> ValueShard | None:
    """All users of contribution batches as one shard; None without a row."""
    parts = columns_of(batches)
    return value_shard(united(parts)) if parts else None


def value_shard(rows: Rows) -> ValueShard:
    """The shard of rows, whose names are distinct."""
    user, item, count, values = consolidate(rows.user, rows.item, rows.count, rows.values)
    count = np.ones(len(user), dtype=np.int64) if count is None else count
    starts = np.flatnonzero(begins_run(user, item))
    pairs = Shard(
        users=rows.users,
        items=rows.items,
        offsets=np.searchsorted(user[starts], np.arange(len(rows.users) + 1)).astype(np.int64),
        item=item[starts],
        count=np.minimum(run_sums(count, starts), MOST_COUNT),
        bound=bound_in(rows.bound),
    )
    return ValueShard(pairs, np.append(starts, len(user)), count, values)


def pack_values(shard: ValueShard) -> bytes:
    """The whole shard in few bytes, for a step that comes later: `unpack_shard` reads its pairs."""
    columns = {"each": pa.array(shard.rows_per_pair()), "often": pa.array(shard.count)}
    columns |= {value_name(number): pa.array(column) for number, column in enumerate(shard.values)}
    return pack_shard(shard.pairs, columns)


def unpack_values(data: bytes) -> ValueShard:
    """Inverse of `pack_values`."""
    columns, metadata = unpack(data)
    starts = np.append(0, np.cumsum(np.asarray(columns["each"])))
    values = tuple(np.asarray(columns[name]) for name in value_names(columns))
    return ValueShard(shard_of_columns(columns, metadata), starts, np.asarray(columns["often"]), values)
