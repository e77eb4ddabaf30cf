"""All users of contribution batches, in shards: each user is in one of them, with all rows.

`split_by_user` cuts a batch by a hash of the user, on its way to the shards. `users_of` is for one process: few rows are one
shard, and more are cut into several, so that no step holds all rows at once and two cores work. In a pipeline,
`transforms.core.user_shards` does it.

`HotShards` holds back the chunks of shards that get far more than their share, because one user has very many rows. All rows of
a user must meet in one group, and a runner may refuse a group that is too large (docs/limits.md). Within one batch equal (user,
item) pairs are added up already; here this goes on over the batches of a worker, so that the group of a busy user grows with
its distinct items, not with its rows.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import numpy as np
import pyarrow as pa

from headcount.mechanisms.batches.distinct import Grouped, distinct, distinct_by_hash, grouped, hash_order
from headcount.mechanisms.batches.names import Names, as_names, first_hash, hash64, in_one_size, shard_of
from headcount.mechanisms.batches.packing import from_ipc, pack, to_ipc
from headcount.mechanisms.batches.shards import (
    Shard,
    checked_counts,
    coded,
    consolidate,
    gather,
    one_shard,
    only_bound,
    pack_shard,
    recoded,
    repack,
    stands_out,
    unpack_shard,
    value_names,
)
from headcount.mechanisms.batches.threads import Parts, ahead, in_threads
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

_HASHED = 1 << 18  # rows whose users are hashed at a time

_HOT = 8 << 20  # bytes of a shard below which its group is no trouble
_HELD = 64 << 20  # bytes that are held back at most, besides those of one batch


def split_by_user(batch: pa.RecordBatch, shards: int) -> Iterator[tuple[int, bytes]]:
    """Cuts a contribution batch into (shard, Arrow stream) chunks by a hash of the user.

    Where users and items repeat themselves, or come as codes, equal pairs are added up first, and travel as codes with the few
    names that the chunk needs. Else names travel as they are, since encoding them would cost more than it saves.
    """
    if batch.num_rows == 0:
        return
    user, item = batch.column("user"), batch.column("item")
    counts = checked_counts(batch)
    values = {name: np.asarray(batch.column(name)) for name in value_names(batch.schema.names)}
    encode_item = _items_repeat(item, -(-batch.num_rows // shards))
    if encode_item and not isinstance(item, pa.DictionaryArray):
        item = item.dictionary_encode()
    has_codes = isinstance(user, pa.DictionaryArray)
    hashes = hash64(user.dictionary) if has_codes else _row_hashes(user)
    encode_user = has_codes or _users_repeat(hashes)
    if encode_user and encode_item and not values:
        yield from _split_pairs(user, hashes, item, counts, shards, only_bound(batch))
        return
    if has_codes:
        hashes = hashes[np.asarray(user.indices)]
    user, item = in_one_size(user), in_one_size(item)
    together: Grouped | None = None
    if encode_user and not has_codes:
        # A name is told once, so all its rows must be neighbours.
        together = grouped(user, hashes)
        order, whose = together.order, _first_of_each(together.hashes, shards)
        cuts = together.starts[whose]
    else:  # rows need only be in one shard
        home = shard_of(hashes, shards).astype(np.uint16 if shards <= 1 << 16 else np.uint32)  # 16 bits sort by radix
        order = np.argsort(home, kind="stable")
        cuts = np.append(0, np.cumsum(np.bincount(home, minlength=shards)))

    def chunk(shard: int) -> tuple[int, bytes]:
        rows = order[cuts[shard] : cuts[shard + 1]]
        crowded = stands_out(len(rows), batch.num_rows, shards)  # by few users with very many rows, maybe the same
        if together is None:
            users = _take(user, rows, encode_user or crowded)
        else:
            first, last = whose[shard : shard + 2]
            users = coded(together.codes(first, last), together.names[first:last])
        columns = {"user": users, "item": _take(item, rows, encode_item or crowded)}
        count = None if counts is None else counts[rows]
        held = tuple(column[rows] for column in values.values())
        if crowded:
            user_code, item_code = (np.asarray(column.indices) for column in columns.values())
            *codes, count, held = consolidate(user_code, item_code, count, held)
            columns = {name: coded(code, columns[name].dictionary) for name, code in zip(columns, codes, strict=True)}
        if count is not None:
            columns["count"] = pa.array(count)
        columns |= {name: pa.array(column) for name, column in zip(values, held, strict=True)}
        return shard, pack(columns, only_bound(batch))

    yield from in_threads(chunk, np.flatnonzero(np.diff(cuts)).tolist())


def _split_pairs(
    user: pa.Array,
    hashes: np.ndarray,
    item: pa.DictionaryArray,
    count: np.ndarray | None,
    shards: int,
    bound: Mapping[bytes, bytes],
) -> Iterator[tuple[int, bytes]]:
    """The chunks of rows whose users and items repeat themselves: equal pairs are added up before anything is cut. The hashes
    are those of the users' names, one for each row or one for each name of a dictionary."""
    if isinstance(user, pa.DictionaryArray):
        codes = np.asarray(user.indices)
        used = np.zeros(len(hashes), dtype=bool)
        used[codes] = True
        found = np.flatnonzero(used)
        order, hashes = hash_order(hashes[found])
        found = found[order]
        place = np.empty(len(used), dtype=np.int32)
        place[found] = np.arange(len(found), dtype=np.int32)
        names, code = as_names(in_one_size(user.dictionary).take(pa.array(found))), place[codes]
    else:
        names, hashes, code = distinct_by_hash(user, hashes)
    user_code, item_code, count, _ = consolidate(code, np.asarray(item.indices), count)
    whose = _first_of_each(hashes, shards)
    cuts = np.searchsorted(user_code, whose)

    def chunk(shard: int) -> tuple[int, bytes]:
        rows, (first, last) = slice(cuts[shard], cuts[shard + 1]), whose[shard : shard + 2]
        columns = {"user": coded(user_code[rows] - first, names[first:last]), "item": recoded(item, item_code[rows])}
        if count is not None:
            columns["count"] = pa.array(count[rows])
        return shard, pack(columns, bound)

    yield from in_threads(chunk, np.flatnonzero(np.diff(cuts)).tolist())


def _first_of_each(hashes: np.ndarray, shards: int) -> np.ndarray:
    """The place of the first of ascending hashes that each shard has, and their number at the end."""
    firsts = np.array([first_hash(shard, shards) for shard in range(shards)], dtype=np.uint64)
    return np.append(np.searchsorted(hashes, firsts), len(hashes))


def _row_hashes(user: Names) -> np.ndarray:
    """The hash of each row's user."""
    parts = [user[start : start + _HASHED] for start in range(0, len(user), _HASHED)]
    return np.concatenate(in_threads(hash64, parts))


def _users_repeat(hashes: np.ndarray) -> bool:
    """Whether users have four rows or more, on average: told from a sixteenth of all users."""
    sample = np.sort(hashes[hashes < np.uint64(1 << 60)])
    return bool(4 * np.count_nonzero(np.diff(sample)) <= len(sample))


def _items_repeat(item: pa.Array, rows: int) -> bool:
    """Whether items occur twice or more, on average, in as many rows as a chunk holds."""
    sample = item[:rows]
    return isinstance(item, pa.DictionaryArray) or 2 * len(sample.unique()) <= len(sample)


def _take(column: pa.Array, rows: np.ndarray, encode: bool) -> pa.Array:
    """Some rows of a column, dictionary-encoded or not, with no more names than they use; `in_one_size` may have made it."""
    if not isinstance(column, pa.DictionaryArray):
        plain = as_names(column.take(pa.array(rows)))
        if not encode:
            return plain
        names, codes = distinct(plain)
        return coded(codes, names)
    codes = np.asarray(column.indices)[rows]  # cut before they are widened: there are as many cuts as shards
    return recoded(column, codes)


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

    def __reduce__(self) -> tuple[Callable[..., Gathered], tuple[list[pa.RecordBatch]]]:
        return Gathered.of, (list(self),)  # another process brings them together by itself


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
