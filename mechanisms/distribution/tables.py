"""How many users have each count of each symbol: all that learning a distribution looks at.

Each user counts with exactly m samples: those who have fewer are left out, and of more a uniform sample without replacement
is drawn, which again is m draws of the same distribution. (Nothing is filled up, drawn twice, or taken together from several
users: that would be another distribution.) Per symbol, the table tells for every value v = 1 .. m how many users have the
symbol v times. Proof: docs/proofs/distribution.md.

Users who do not have a symbol are *not* in its table. A column of zeros would follow the number of users, and then one user
more would move the tables of all symbols, not of those m at most that it has. A later step takes the number of users as a
constant instead, which is public, or counted once with noise.

Tables of shards of users add up, and are cut by symbol: how the data are sharded changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.cut import cut_by_item
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.packing import pack, unpack
from headcount.mechanisms.batches.run_sums import begins_run, run_sums
from headcount.mechanisms.batches.shards import Shard, unite
from headcount.mechanisms.bounding.clipping import rand_clip
from headcount.mechanisms.bounding.steps import RandClipStep
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.checks import check_whole
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.randomness.lane_ids import user_lane_ids
from headcount.mechanisms.randomness.subkeys import lane_key

#: More samples of one user are not looked at: by then the error hardly falls, and the distributions of counts become long.
MOST_SAMPLES = 10_000

_VALUE_BITS = MOST_SAMPLES.bit_length()


def check_samples(name: str, value: object) -> int:
    """A number of samples per user as a plain integer, or an error that names it."""
    return check_whole(name, value, 1, MOST_SAMPLES)


@dataclasses.dataclass(frozen=True)
class ExactSamplesStep:
    """A bounding step: every user with `samples` events or more keeps exactly `samples`, and every other one none.

    With `below`, users with that many events or more are left out as well: they belong to another bucket.
    """

    samples: int
    below: int | None = None
    name = "ExactSamples"

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", check_samples("samples", self.samples))
        if self.below is not None and self.below <= self.samples:
            raise ParameterError(f"below must exceed samples = {self.samples}, got {self.below!r}", "below")

    def apply(self, shard: Shard, subkey: bytes) -> Shard:
        totals = shard.totals()
        kept = totals >= self.samples
        if self.below is not None:
            kept &= totals < self.below
        rows = np.flatnonzero(np.repeat(kept, shard.rows_per_user()))
        return rand_clip(shard.keep(rows, shard.count[rows]), self.samples, subkey)

    def promise(self, before: Bound) -> Bound:
        return RandClipStep(self.samples).promise(before)


@dataclasses.dataclass(frozen=True)
class ValueCounts:
    """The tables of some symbols: symbol i has the rows offsets[i] .. offsets[i + 1] - 1, with ascending values.

    `users[r]` users have the symbol `value[r]` >= 1 times; a symbol that nobody has is left without rows.
    """

    symbols: Names
    offsets: np.ndarray  # int64, one more than symbols
    value: np.ndarray  # int64, one per row
    users: np.ndarray  # int64, one per row

    def row(self, symbol: int) -> tuple[np.ndarray, np.ndarray]:
        """Values and users of one symbol."""
        rows = slice(self.offsets[symbol], self.offsets[symbol + 1])
        return self.value[rows], self.users[rows]

    def holders(self) -> np.ndarray:
        """How many users have each symbol at all."""
        return run_sums(self.users, self.offsets[:-1])

    def totals(self) -> np.ndarray:
        """How many samples of each symbol there are: at most MOST_SAMPLES of each user, which 2**49 users fit."""
        return run_sums(self.value * self.users, self.offsets[:-1])

    def take(self, symbols: np.ndarray) -> ValueCounts:
        """The tables of these symbols, in this order."""
        return self._gathered(self.symbols.take(pa.array(symbols)), symbols)

    def over(self, domain: Names) -> ValueCounts:
        """The tables of all symbols of a domain, in its order: also of those that nobody has."""
        found = pc.index_in(domain, value_set=self.symbols)
        return self._gathered(domain, np.asarray(found.fill_null(len(self.symbols))).astype(np.int64))

    def _gathered(self, symbols: Names, place: np.ndarray) -> ValueCounts:
        """The tables at these places; the place after the last is that of an empty one."""
        start = np.append(self.offsets[:-1], 0)[place]
        sizes = np.append(np.diff(self.offsets), 0)[place]
        offsets = np.append(0, np.cumsum(sizes))
        rows = np.repeat(start - offsets[:-1], sizes) + np.arange(offsets[-1])
        return ValueCounts(symbols, offsets, self.value[rows], self.users[rows])

    def lane_ids(self, subkey: bytes) -> np.ndarray:
        """The lane of each symbol together with its whole table, as an (n, 2) array."""
        return user_lane_ids(lane_key(subkey), self.symbols, self.offsets, pa.array(self.value), self.users)


def no_values(symbols: Names) -> ValueCounts:
    """The tables of symbols that nobody has."""
    nothing = np.zeros(0, dtype=np.int64)
    return ValueCounts(symbols, np.zeros(len(symbols) + 1, dtype=np.int64), nothing, nothing)


def split_values(batch: pa.RecordBatch, shards: int) -> Iterator[tuple[int, bytes]]:
    """Counts the users of a bounded batch by symbol and value, and cuts this by a hash of the symbol: (shard, bytes).

    A batch holds all rows of its users, and each (user, symbol) pair once, as bounding steps leave it.
    """
    item = batch.column("item")
    if not isinstance(item, pa.DictionaryArray):
        item = item.dictionary_encode()
    cut = cut_by_item(item.dictionary, shards)
    count = np.asarray(batch.column("count"))
    if len(count) and int(count.max()) > MOST_SAMPLES:
        raise InputError(f"a count exceeds {MOST_SAMPLES}, which no bounding step for distributions leaves")
    bits = int(count.max()).bit_length() if len(count) else 0
    key, users = _counted(cut.places()[np.asarray(item.indices)] << bits | count, None)
    return cut.rows(key >> bits, {"value": key & ((1 << bits) - 1), "users": users})


def merge_values(chunks: Iterable[bytes], domain: Names) -> ValueCounts:
    """Adds up the chunks of one shard of symbols: the tables of all symbols of `domain`, its part of the public domain."""
    parts = [unpack(chunk)[0] for chunk in chunks]
    if not parts:
        return no_values(domain)
    symbols, code = unite([part["item"] for part in parts])
    if symbols.type != domain.type:
        raise InputError(f"items are of type {symbols.type}, not {domain.type}; set item_type to match")
    value, users = (np.concatenate([np.asarray(part[name]) for part in parts]) for name in ("value", "users"))
    key, users = _counted(code << _VALUE_BITS | value, users)
    offsets = np.searchsorted(key >> _VALUE_BITS, np.arange(len(symbols) + 1)).astype(np.int64)
    return ValueCounts(symbols, offsets, key & ((1 << _VALUE_BITS) - 1), users).over(domain)


def _counted(key: np.ndarray, users: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Each key once, ascending, with the number of its rows, or the sum of their users."""
    if users is None:
        if len(key) and int(key.max()) <= 2 * len(key):  # few keys: counting needs no sorting
            sums = np.bincount(key)
            found = np.flatnonzero(sums)
            return found, sums[found]
        users = np.ones(len(key), dtype=np.int64)
    order = np.argsort(key, kind="stable")
    key = key[order]
    starts = np.flatnonzero(begins_run(key))
    return key[starts], run_sums(users[order], starts)


def pack_values(table: ValueCounts) -> bytes:
    """Tables as bytes, for steps that read them again."""
    sizes = pa.array(np.diff(table.offsets))
    return pack({"item": table.symbols, "sizes": sizes, "value": pa.array(table.value), "users": pa.array(table.users)})


def unpack_values(data: bytes) -> ValueCounts:
    """Inverse of `pack_values`."""
    columns, _ = unpack(data)
    sizes, value, users = (np.asarray(columns[name]) for name in ("sizes", "value", "users"))
    return ValueCounts(columns["item"], np.append(0, np.cumsum(sizes)).astype(np.int64), value, users)
