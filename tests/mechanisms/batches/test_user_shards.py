"""Every user is in one shard, with all rows; the group of a busy user grows with its distinct items and not with its rows."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headcount.mechanisms.batches import user_shards
from headcount.mechanisms.batches.shards import gather, stands_out
from headcount.mechanisms.batches.user_shards import HotShards, split_by_user, users_of

SHARDS = 16


@pytest.fixture
def small(monkeypatch):
    """Limits that fit a test."""
    monkeypatch.setattr(user_shards, "_HOT", 1000)
    monkeypatch.setattr(user_shards, "_HELD", 200_000)


def _batches(number: int, hot_items: int, counted: bool = False) -> list[pa.RecordBatch]:
    """Each with 3000 rows of one user over so many items, and 1000 rows of users with few."""
    generator = np.random.default_rng(number + hot_items)
    found = []
    for _ in range(number):
        user = np.concatenate([np.zeros(3000, np.int64), generator.integers(1, 300, 1000)])
        item = np.concatenate([generator.integers(0, hot_items, 3000), generator.integers(0, 50, 1000)])
        order = generator.permutation(len(user))
        columns = {
            "user": pa.array([f"u{k}" for k in user[order]]),
            "item": pa.array([f"item {k}" for k in item[order]]),
        }
        if counted:
            columns["count"] = pa.array(generator.integers(1, 5, len(user)))
        found.append(pa.RecordBatch.from_pydict(columns))
    return found


def _groups(batches: list[pa.RecordBatch]) -> dict[int, list[bytes]]:
    """The chunks of each shard."""
    hot, groups = HotShards(SHARDS), {}
    for batch in [*batches, None]:
        for shard, chunk in hot.rest() if batch is None else hot.add(split_by_user(batch, SHARDS)):
            groups.setdefault(shard, []).append(chunk)
    assert list(hot.rest()) == []
    return groups


def _pairs(groups: dict[int, list[bytes]]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for chunks in groups.values():
        shard = gather(chunks)
        users = np.repeat(np.arange(len(shard.users)), shard.rows_per_user())
        for user, item, count in zip(users.tolist(), shard.item.tolist(), shard.count.tolist(), strict=True):
            found[shard.users[user].as_py(), shard.items[item].as_py()] += count
    return found


@pytest.mark.slow("cuts")
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("hot_items", [10, 500, 10**9])
def test_nothing_is_lost(small, hot_items, counted):
    batches = _batches(30, hot_items, counted)
    expected: Counter[tuple[str, str]] = Counter()
    for batch in batches:
        columns = batch.to_pydict()
        for user, item, count in zip(
            columns["user"], columns["item"], columns.get("count", [1] * batch.num_rows), strict=True
        ):
            expected[user, item] += count
    assert _pairs(_groups(batches)) == expected


@pytest.mark.seconds
def test_the_group_of_a_busy_user_grows_with_its_items_and_not_with_its_rows(small):
    def size(batches: list[pa.RecordBatch]) -> int:
        (busy,) = dict(split_by_user(batches[0].filter(pc.equal(batches[0]["user"], "u0")), SHARDS))
        return sum(map(len, _groups(batches)[busy]))

    assert size(_batches(40, 2000)) < 1.5 * size(_batches(4, 2000))
    assert size(_batches(40, 10**9)) > 5 * size(_batches(4, 10**9))  # these are all distinct


@pytest.mark.seconds
def test_what_is_held_stays_bounded(small):
    """Rows that are all distinct are handed on: never is more held than the limit and one batch."""
    hot, held, most = HotShards(SHARDS), 0, 0
    for batch in _batches(40, 10**9):
        chunks = list(split_by_user(batch, SHARDS))
        passed = list(hot.add(chunks))
        held = sum(len(chunk) for _, chunk in set(chunks) - set(passed)) + held * (set(passed) <= set(chunks))
        most = max(most, held)
    assert 100_000 < most < 300_000


def test_what_is_even_goes_on_at_once(small):
    generator = np.random.default_rng(0)
    user = [f"u{k}" for k in generator.integers(0, 10_000, 50_000)]
    item = [f"item {k}" for k in generator.integers(0, 50_000, 50_000)]
    batch = pa.RecordBatch.from_pydict({"user": pa.array(user), "item": pa.array(item)})
    hot, chunks = HotShards(SHARDS), list(split_by_user(batch, SHARDS))
    assert list(hot.add(chunks)) == chunks and list(hot.rest()) == []


def test_standing_out():
    assert not stands_out(100, 100, 1)
    assert stands_out(80, 100, 2) and not stands_out(70, 100, 2)
    assert stands_out(70, 100, 4) and not stands_out(50, 100, 4)
    assert stands_out(30, 100, 16) and not stands_out(20, 100, 16)
    assert stands_out(1, 100, 1000) and not stands_out(1, 1000, 1000)


def test_all_users_are_in_one_shard_or_in_several_each_with_all_rows(monkeypatch):
    batches = _batches(5, 40, counted=True)
    whole = users_of(iter(batches))
    assert len(whole) == 1
    monkeypatch.setattr(user_shards, "_ONE", 6000)
    parts = users_of(iter(batches))
    assert len(parts) == user_shards._SHARDS
    users = [user for part in parts for user in part.users.to_pylist()]
    assert len(users) == len(set(users)) and set(users) == set(whole[0].users.to_pylist())
    assert sum(parts.each(lambda part: int(part.count.sum()))) == whole[0].count.sum()
    totals = {
        user: total for part in [*parts] for user, total in zip(part.users.to_pylist(), part.totals(), strict=True)
    }
    assert totals == dict(zip(whole[0].users.to_pylist(), whole[0].totals(), strict=True))


def test_without_rows_there_are_no_parts():
    assert len(users_of([])) == 0
    assert len(users_of(batch.slice(0, 0) for batch in _batches(1, 1))) == 0
