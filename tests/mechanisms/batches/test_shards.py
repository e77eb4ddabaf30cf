"""Sharding is lossless: whatever the batches, shards and encodings, the same (user, item) sums arrive."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.mechanisms.batches.names import hash64, shard_of
from headcount.mechanisms.batches.run_sums import run_sums, sum_by_code
from headcount.mechanisms.batches.shards import Shard, gather, one_shard, repack
from headcount.mechanisms.batches.user_shards import split_by_user
from headcount.mechanisms.errors import InputError

rows = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9), st.integers(1, 5)), min_size=1, max_size=60)


def _column(values: list[int], kind: str) -> pa.Array:
    if kind == "int":
        return pa.array(values, pa.int64())
    names = pa.array([f"name{value}" for value in values])
    return names.dictionary_encode() if kind == "dictionary" else names


def _batch(rows: list[tuple[int, int, int]], users: str, items: str, counted: bool) -> pa.RecordBatch:
    user, item, count = (list(column) for column in zip(*rows, strict=True))
    columns = {"user": _column(user, users), "item": _column(item, items)}
    if counted:
        columns["count"] = pa.array(count, pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def contents(shard: Shard) -> Counter[tuple[str, str]]:
    """The shard as {(user, item): count}, by its own indexes."""
    found: Counter[tuple[str, str]] = Counter()
    for user in range(len(shard.users)):
        ranks = shard.item[shard.offsets[user] : shard.offsets[user + 1]]
        assert (np.diff(ranks) > 0).all(), "rows of a user ascend and are distinct"
        for row in range(int(shard.offsets[user]), int(shard.offsets[user + 1])):
            found[shard.users[user].as_py(), shard.items[int(shard.item[row])].as_py()] += int(shard.count[row])
    return found


@pytest.mark.seconds
@given(
    rows,
    st.integers(1, 5),
    st.integers(1, 20),
    st.sampled_from(["plain", "dictionary", "int"]),
    st.booleans(),
    st.data(),
)
@settings(deadline=None, max_examples=150)
def test_all_rows_of_a_user_meet_in_one_shard_and_add_up(rows, shards, batch, users, counted, data):
    items = "int" if users == "int" else data.draw(st.sampled_from(["plain", "dictionary"]))
    groups: dict[int, list[bytes]] = {}
    for start in range(0, len(rows), batch):
        for shard, chunk in split_by_user(_batch(rows[start : start + batch], users, items, counted), shards):
            assert 0 <= shard < shards
            groups.setdefault(shard, []).append(chunk)
    name = (lambda value: value) if users == "int" else (lambda value: f"name{value}")
    expected: Counter = Counter()
    for user, item, count in rows:
        expected[name(user), name(item)] += count if counted else 1
    gathered = [gather(chunks) for chunks in groups.values()]
    found: Counter = Counter()
    for shard in gathered:
        found.update(contents(shard))
    assert found == expected
    homes = [set(shard.users.to_pylist()) for shard in gathered]
    assert sum(map(len, homes)) == len(set().union(*homes)), "no user is in two shards"


def _half_unused(column: pa.Array) -> pa.Array:
    """The column as codes of a dictionary that has each name twice, and names that no row has."""
    codes = column.dictionary_encode()
    names, more = codes.dictionary, pa.array(["name of nobody", "nobody's name"])
    twice = pa.concat_arrays([more, names, names])
    second = np.arange(len(column)) % 2 * len(names)
    return pa.DictionaryArray.from_arrays(pa.array(np.asarray(codes.indices) + 2 + second), twice)


@given(rows, st.integers(1, 5), st.integers(1, 20), st.booleans(), st.data())
@settings(deadline=None, max_examples=60)
def test_one_shard_of_batches_is_what_their_chunks_become_whatever_their_dictionaries_hold(
    rows, shards, batch, counted, data
):
    kinds = [data.draw(st.sampled_from(["plain", "half unused"])) for _ in range(2)]
    batches = []
    for start in range(0, len(rows), batch):
        made = _batch(rows[start : start + batch], "plain", "plain", counted)
        columns = {name: made.column(name) for name in made.schema.names}
        for name, kind in zip(("user", "item"), kinds, strict=True):
            columns[name] = columns[name] if kind == "plain" else _half_unused(columns[name])
        batches.append(pa.RecordBatch.from_pydict(columns))
    one = one_shard(batches)
    whole = gather(chunk for made in batches for _, chunk in split_by_user(made, 1))
    assert one.users.equals(whole.users) and one.items.equals(whole.items)
    for name in ("offsets", "item", "count"):
        assert (getattr(one, name) == getattr(whole, name)).all()
    assert (one.rows_per_user() > 0).all() and set(one.item.tolist()) == set(range(len(one.items)))
    cut: dict[int, list[bytes]] = {}
    for made in batches:
        for shard, chunk in split_by_user(made, shards):
            cut.setdefault(shard, []).append(chunk)
    apart: Counter = Counter()
    for shard, chunks in cut.items():
        found = gather(chunks)
        assert (found.rows_per_user() > 0).all()
        assert (shard_of(hash64(found.users), shards) == shard).all()
        apart.update(contents(found))
    assert apart == contents(one)


def test_long_names_are_united_without_a_copy_for_each_row(monkeypatch):
    united = []
    concat = pa.concat_arrays
    monkeypatch.setattr(
        pa, "concat_arrays", lambda arrays: united.append(sum(a.nbytes for a in arrays)) or concat(arrays)
    )
    names = [f"{k}" * 2000 for k in range(10)]
    batch = pa.RecordBatch.from_pydict({"user": pa.array(range(5000)), "item": pa.array(names * 500)})
    one = one_shard([batch, batch])
    assert united and max(united) < 200_000  # and not 20 million
    assert len(one.items) == 10 and one.count.tolist() == [2] * 5000


def test_no_rows_are_no_shard_and_a_count_of_zero_is_refused():
    empty = _batch([(0, 0, 1)], "plain", "plain", True).slice(1)
    assert one_shard([]) is None and one_shard([empty]) is None
    with pytest.raises(InputError, match="a count below 1"):
        one_shard([_batch([(0, 0, 0)], "plain", "plain", True)])


def test_a_slice_travels_without_its_parent():
    names = pa.array([f"a rather long name {k}" for k in range(200_000)])
    parent = pa.RecordBatch.from_pydict({"user": names.dictionary_encode(), "item": names.dictionary_encode()})
    size = sum(len(chunk) for _, chunk in split_by_user(parent[1000:1010], 4))
    assert size < 10_000


def test_a_hot_user_who_repeats_itself_travels_as_few_rows():
    """Among users with one row each, where nothing is worth adding up, one user has half of all rows on ten items."""
    users = [f"u{k}" for k in range(20_000)] + ["bot"] * 20_000
    items = [f"i{k}" for k in range(20_000)] + [f"j{k % 10}" for k in range(20_000)]
    batch = pa.RecordBatch.from_pydict({"user": pa.array(users), "item": pa.array(items)})
    chunks = dict(split_by_user(batch, 16))
    sizes = sorted(len(chunk) for chunk in chunks.values())
    assert sizes[-1] < 2 * sizes[0]
    assert sum(contents(gather([chunk])).total() for chunk in chunks.values()) == 40_000


def test_sums_neither_fail_nor_wrap():
    assert sum_by_code(np.array([0, 1, 0]), np.array([2**60, 5, 2**60]), 2).tolist() == [2**61, 5]
    assert sum_by_code(np.array([0, 1, 0]), np.array([2**62, 5, 2**62]), 2).tolist() == [2**63 - 1, 5]
    assert run_sums(np.array([2**60, 2**60]), np.array([0, 2, 2])).tolist() == [2**61, 0, 0]
    # All together they leave 64 bits, and no run does: differences of running sums are right also where those wrap.
    assert run_sums(np.full(24, 2**60), np.array([0, 3, 3, 9, 16, 20])).tolist() == [
        k * 2**60 for k in (3, 0, 6, 7, 4, 4)
    ]
    with pytest.raises(TypeError, match="whole numbers"):
        run_sums(np.ones(3), np.array([0]))


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([1, 2**52, 2**61, 2**62, 2**63 - 1])), max_size=12),
    st.integers(0, 12),
)
def test_sums_of_sums_that_were_cut_are_those_of_all(values, cut):
    def sums(rows):
        codes, held = (np.array([row[k] for row in rows], dtype=np.int64) for k in (0, 1))
        return sum_by_code(codes, held, 3)

    parts = [row for part in (values[:cut], values[cut:]) for row in enumerate(sums(part).tolist())]
    expected = [min(sum(n for code, n in values if code == k), 2**63 - 1) for k in range(3)]
    assert sums(parts).tolist() == sums(values).tolist() == expected


CEILING = 10**9


@pytest.mark.seconds
@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 2),
            st.sampled_from([1, 5, CEILING // 2, CEILING - 1, CEILING, CEILING + 1, 2**62, 2**63 - 1]),
        ),
        min_size=1,
        max_size=25,
    ),
    st.integers(1, 5),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_a_user_counts_up_to_the_ceiling_on_an_item_however_rows_come(rows, batches, again, random):
    """Any order, batches, shards, and any repacking on the way: min(sum, 10^9) for each pair."""
    expected = Counter()
    for user, item, count in rows:
        pair = f"name{user}", f"name{item}"
        expected[pair] = min(CEILING, expected[pair] + count)
    random.shuffle(rows)
    for shards in (1, 3):
        held = {}
        for start in range(min(batches, len(rows))):
            for shard, chunk in split_by_user(_batch(rows[start::batches], "plain", "plain", True), shards):
                held.setdefault(shard, []).append(chunk)
        found = Counter()
        for chunks in held.values():
            found |= contents(gather([repack(chunks)] if again else chunks))
        assert found == expected


def test_strings_and_integers_cannot_be_one_column():
    one = _batch([(1, 1, 1)], "plain", "plain", False)
    other = _batch([(1, 1, 1)], "int", "plain", False)
    chunks = [chunk for table in (one, other) for _, chunk in split_by_user(table, 1)]
    with pytest.raises(InputError, match="one type"):
        gather(chunks)
