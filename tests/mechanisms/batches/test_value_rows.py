"""Rows that carry numbers, on their way to the shard of their user: nothing is lost, and the order they come in is not seen."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import MISSING, gather, repack, unpack_shard
from headcount.mechanisms.batches.user_shards import split_by_user, value_users_of
from headcount.mechanisms.batches.value_rows import (
    ValueShard,
    gather_values,
    pack_values,
    unpack_values,
)
from headcount.mechanisms.errors import InputError

Row = tuple[str, str, int, int, int]


def made_rows(number: int = 2000, seed: int = 1) -> list[Row]:
    rng = np.random.default_rng(seed)
    return [
        (f"u{u}", f"k{k}", int(n), int(a), int(b))
        for u, k, n, a, b in zip(*(rng.integers(0, most, number) for most in (60, 9, 3, 4, 1000)), strict=True)
        if n > 0
    ]


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    user, key, count, a, b = (list(column) for column in zip(*rows, strict=True))
    values = [pa.array(a), pa.array([5 - each for each in b])]
    return contribution_batch(pa.array(user), pa.array(key), pa.array(count), values=values)


def rows_of(shard: ValueShard) -> Counter:
    pairs = shard.pairs
    user = np.repeat(np.arange(len(pairs.users)), pairs.rows_per_user())
    found: Counter = Counter()
    for pair in range(len(pairs.item)):
        names = pairs.users[int(user[pair])].as_py(), pairs.items[int(pairs.item[pair])].as_py()
        for row in range(shard.starts[pair], shard.starts[pair + 1]):
            found[(*names, *(int(column[row]) for column in shard.values))] += int(shard.count[row])
    return found


def truth(rows: list[Row]) -> Counter:
    found: Counter = Counter()
    for user, key, count, a, b in rows:
        found[user, key, a, 5 - b] += count
    return found


def equal(one: ValueShard, other: ValueShard) -> bool:
    arrays = [(s.pairs.offsets, s.pairs.item, s.pairs.count, s.starts, s.count, *s.values) for s in (one, other)]
    return (
        one.pairs.users.equals(other.pairs.users)
        and one.pairs.items.equals(other.pairs.items)
        and all(np.array_equal(mine, theirs) for mine, theirs in zip(*arrays, strict=True))
    )


def test_all_rows_are_there_and_pairs_are_those_of_a_plain_shard():
    rows = made_rows()
    shard = value_users_of([batch_of(rows)])[0]
    assert shard is not None and rows_of(shard) == truth(rows)
    chunks = [chunk for _, chunk in split_by_user(batch_of(rows), 1)]
    plain = gather(chunks)
    assert np.array_equal(plain.count, shard.pairs.count) and np.array_equal(plain.item, shard.pairs.item)


@pytest.mark.parametrize("shards", [1, 7])
def test_how_rows_are_cut_is_not_seen(shards):
    rows = made_rows()
    shuffled = [rows[k] for k in np.random.default_rng(2).permutation(len(rows))]
    parts: dict[int, list[bytes]] = {}
    again: dict[int, list[bytes]] = {}
    for shard, chunk in split_by_user(batch_of(rows), shards):
        parts.setdefault(shard, []).append(chunk)
    for start in range(0, len(shuffled), 100):
        for shard, chunk in split_by_user(batch_of(shuffled[start : start + 100]), shards):
            again.setdefault(shard, []).append(chunk)
    assert parts.keys() == again.keys()
    for shard, chunks in parts.items():
        one, held = gather_values(chunks), gather_values([repack(again[shard])])
        order = np.argsort(one.pairs.users.to_pylist())
        assert sorted(one.pairs.users.to_pylist()) == sorted(held.pairs.users.to_pylist()) and len(order)
        assert rows_of(one) == rows_of(held) == rows_of(gather_values(again[shard]))


def test_a_crowded_chunk_keeps_its_values():
    """One user with nearly all rows: its shard stands out, and equal rows are added up before the shuffle."""
    rows = [("busy", "k", 1, n % 3, n % 2) for n in range(5000)] + [(f"u{n}", "k", 1, 0, 0) for n in range(20)]
    found: Counter = Counter()
    size = 0
    for _, chunk in split_by_user(batch_of(rows), 16):
        found += rows_of(gather_values([chunk]))
        size += len(chunk)
    assert found == truth(rows) and size < 30_000


def test_packing_keeps_all_and_shows_the_pairs():
    shard = value_users_of([batch_of(made_rows())])[0]
    assert shard is not None
    assert equal(unpack_values(pack_values(shard)), shard)
    pairs = unpack_shard(pack_values(shard))
    assert np.array_equal(pairs.item, shard.pairs.item) and np.array_equal(pairs.count, shard.pairs.count)


def test_some_items_and_some_pairs():
    rows = made_rows()
    shard = value_users_of([batch_of(rows)])[0]
    assert shard is not None
    some = shard.with_items(pa.array(["k1", "k5", "unknown"])).compact()
    assert rows_of(some) == truth([row for row in rows if row[1] in ("k1", "k5")])
    assert sorted(some.pairs.items.to_pylist()) == ["k1", "k5"]
    nothing = shard.with_items(pa.array([], pa.string()))
    assert rows_of(nothing) == Counter() and len(nothing.pairs.users) == len(shard.pairs.users)
    assert shard.with_items(shard.pairs.items) is shard


def test_rows_with_other_values_are_refused():
    plain = contribution_batch(pa.array(["u"]), pa.array(["k"]))
    chunks = [chunk for batch in (plain, batch_of(made_rows(50))) for _, chunk in split_by_user(batch, 1)]
    with pytest.raises(InputError, match="other values"):
        gather_values(chunks)


def test_a_row_without_a_value_is_there_for_all_else():
    columns = pa.array(["u", "v"]), pa.array(["k", "k"])
    values = [pa.array([3, None], pa.int64()), pa.array([None, 4], pa.int64())]
    batch = contribution_batch(*columns, values=values)
    assert [batch.column(name).to_pylist() for name in ("user", "value0", "value1")] == [
        ["u", "v"],
        [3, MISSING],
        [MISSING, 4],
    ]
