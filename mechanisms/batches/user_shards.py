"""All users of contribution batches, in shards: each user is in one of them, with all rows.

`users_of` is for one process: few rows are one shard, and more are cut into several, so that no step holds all rows at once and
two cores work. In a pipeline, `transforms.core.user_shards` does it.

`HotShards` holds back the chunks of shards that get far more than their share, because one user has very many rows. All rows of
a user must meet in one group, and a runner may refuse a group that is too large (docs/limits.md). Within one batch equal (user,
item) pairs are added up already; here this goes on over the batches of a worker, so that the group of a busy user grows with
its distinct items, not with its rows.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import pyarrow as pa

from headcount.mechanisms.batches.packing import from_ipc, to_ipc
from headcount.mechanisms.batches.shards import (
    Shard,
    gather,
    one_shard,
    pack_shard,
    repack,
    split_by_user,
    stands_out,
    unpack_shard,
)
from headcount.mechanisms.batches.threads import Parts, ahead
from headcount.mechanisms.batches.value_rows import (
    ValueShard,
    gather_values,
    one_value_shard,
    pack_values,
    unpack_values,
)

S = TypeVar("S", Shard, ValueShard)

_ONE = 1 << 21  # rows that are one shard
_SHARDS = 8  # of more rows: each has its own list of items, so that many shards take more time and memory

_HOT = 8 << 20  # bytes of a shard below which its group is no trouble
_HELD = 64 << 20  # bytes that are held back at most, besides those of one batch


class HotShards:
    """Passes chunks on, but holds back those of hot shards and repacks them. Nothing is lost, and memory is bounded."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._seen = [0] * shards
        self._held: dict[int, list[bytes]] = {}

    def add(self, chunks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        """What can go on when the chunks of one batch come."""
        chunks = list(chunks)  # all are counted before any is judged
        for shard, chunk in chunks:
            self._seen[shard] += len(chunk)
        total = sum(self._seen)
        for shard, chunk in chunks:
            if self._seen[shard] < _HOT or not stands_out(self._seen[shard], total, self._shards):
                yield shard, chunk
            else:
                self._held.setdefault(shard, []).append(chunk)
        if self._bytes() > _HELD:
            self._repack()
            if self._bytes() > _HELD // 2:  # mostly distinct pairs: to hold them longer would gain little
                yield from self._release()

    def rest(self) -> Iterator[tuple[int, bytes]]:
        """What was held back, at the end."""
        self._repack()
        yield from self._release()

    def _repack(self) -> None:
        self._held = {shard: [repack(chunks)] for shard, chunks in self._held.items()}

    def _release(self) -> Iterator[tuple[int, bytes]]:
        held, self._held = self._held, {}
        for shard, chunks in held.items():
            for chunk in chunks:
                yield shard, to_ipc(from_ipc(chunk), compress=True)

    def _bytes(self) -> int:
        return sum(len(chunk) for chunks in self._held.values() for chunk in chunks)


class Gathered(tuple[pa.RecordBatch, ...]):
    """Contribution batches whose users were brought together once, for all releases that are made of them."""

    users: Parts[Shard]

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch]) -> Gathered:
        """These batches, with their users."""
        made = cls(batches)
        made.users = users_of(iter(made))
        return made


def users_of(batches: Iterable[pa.RecordBatch]) -> Parts[Shard]:
    """All users of contribution batches; no shard without a row."""
    if isinstance(batches, Gathered):
        return batches.users
    return _users_of(batches, one_shard, gather, pack_shard, unpack_shard)


def value_users_of(batches: Iterable[pa.RecordBatch]) -> Parts[ValueShard]:
    """The same with the numbers that rows carry."""
    return _users_of(batches, one_value_shard, gather_values, pack_values, unpack_values)


def _users_of(
    batches: Iterable[pa.RecordBatch],
    as_one: Callable[[Iterable[pa.RecordBatch]], S | None],
    gathered: Callable[[Iterable[bytes]], S],
    pack: Callable[[S], bytes],
    unpack: Callable[[bytes], S],
) -> Parts[S]:
    coming = iter(batches)
    first, rows = [], 0
    for batch in coming:
        first.append(batch)
        rows += batch.num_rows
        if rows > _ONE:
            return _chunks(itertools.chain(_used_up(first), coming)).map(gathered).held(pack, unpack)
    one = as_one(first)
    return Parts.of() if one is None else Parts.of(one)


def _chunks(batches: Iterable[pa.RecordBatch]) -> Parts[list[bytes]]:
    """The chunks of each shard, which are let go of when they are looked at."""
    found: dict[int, list[bytes]] = {}
    for chunks in ahead(lambda batch: list(split_by_user(batch, _SHARDS)), batches):
        for shard, chunk in chunks:
            found.setdefault(shard, []).append(chunk)
    return Parts([functools.partial(found.pop, shard) for shard in sorted(found)])


def _used_up(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    while batches:
        yield batches.pop(0)
