"""Parquet read as codes: whatever a file's encodings, row groups and nulls, the same contributions as spelled out."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.batches.contributions import Place, contribution_batch
from headcount.mechanisms.batches.shards import gather
from headcount.mechanisms.batches.user_shards import split_by_user
from headcount.mechanisms.columns.row_schema import asked
from headcount.pipelines.sources import parquet as source_parquet
from tests.pipelines.sources.event_files import batches, parquet, put

LAYOUTS = {
    "codes": {},
    "plain": {"use_dictionary": False},
    "codes of items alone": {"use_dictionary": ["item", "country"]},
    "codes that end midway": {"dictionary_pagesize_limit": 200, "data_page_size": 100, "write_batch_size": 20},
}


def _log(seed, rows=400):
    """A log whose row groups have other names each, and that has nulls."""
    random = np.random.default_rng(seed)
    user, item = random.integers(0, 40, rows) + np.arange(rows) // 50, random.geometric(0.1, rows)
    absent = random.random((3, rows)) < 0.1
    columns = {"user": user, "item": item, "country": user % 3}
    return {
        name: [None if gone else f"{name}-{value}" for value, gone in zip(values, where, strict=True)]
        for (name, values), where in zip(columns.items(), absent, strict=True)
    }


def _sums(read, keys, shards):
    """All (user, item) sums after reading and the shuffle."""
    row_schema = asked("user", keys, drop_null=True).of_schema(
        pa.schema([(name, pa.string()) for name in ("user", *keys)])
    )
    groups: dict[int, list[bytes]] = {}
    for batch in read:
        for shard, chunk in split_by_user(row_schema.batch(batch, Place()), shards):
            groups.setdefault(shard, []).append(chunk)
    sums: Counter = Counter()
    for shard in map(gather, groups.values()):
        user = np.repeat(np.arange(len(shard.users)), shard.rows_per_user())
        for who, what, count in zip(user, shard.item, shard.count, strict=True):
            sums[shard.users[int(who)].as_py(), shard.items[int(what)].as_py()] += int(count)
    return sums


@pytest.mark.seconds
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("keys", [("item",), ("item", "country")])
@pytest.mark.parametrize("seed", range(6))
def test_codes_are_the_names_that_they_stand_for(tmp_path, monkeypatch, layout, keys, seed):
    log = _log(seed)
    path = put(tmp_path, "e.parquet", parquet(log, row_group_size=[50, 170, 400][seed % 3], **LAYOUTS[layout]))
    monkeypatch.setattr(source_parquet, "ROWS_HERE", [60, 150, 1000][seed // 2])
    coded = [*batches(path, item=list(keys))]
    kinds = {column.type for batch in coded for column in batch.columns}
    assert kinds == ({pa.string()} if layout == "plain" else kinds | {pa.dictionary(pa.int32(), pa.string())})
    names = [row for batch in coded for row in batch.to_pylist()]
    monkeypatch.setattr(source_parquet, "_is_coded", lambda chunk: False)
    spelled = [*batches(path, item=list(keys))]
    assert {column.type for batch in spelled for column in batch.columns} == {pa.string()}
    assert names == [row for batch in spelled for row in batch.to_pylist()]
    expected: Counter = Counter()
    for user, *key in zip(log["user"], *(log[name] for name in keys), strict=True):
        if None not in (user, *key):
            expected[user, "\x1f".join(key) if len(keys) > 1 else key[0]] += 1
    one, other = _sums(coded, keys, 1 + seed), _sums(spelled, keys, 1)
    assert one == other
    assert sorted(one.values()) == sorted(expected.values())


def test_a_column_that_is_mostly_spelled_out_is_read_so(tmp_path):
    """Ten thousand names of 60 bytes, and a limit that only a few of them keep: codes would be made anew."""
    long = [f"{i:060d}" for i in range(40_000)]
    path = put(tmp_path, "e.parquet", parquet({"user": long, "item": ["a"] * len(long)}))
    (batch,) = batches(path)
    assert batch.schema.types == [pa.string(), pa.dictionary(pa.int32(), pa.string())]


def test_a_dictionary_that_holds_a_name_twice_adds_up():
    user = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0], pa.int32()), pa.array(["u", "u", "v"]))
    item = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1, 0], pa.int32()), pa.array(["i", "i"]))
    chunks = [chunk for _, chunk in split_by_user(contribution_batch(user, item), 1)]
    shard = gather(chunks)
    assert dict(zip(shard.users.to_pylist(), shard.count.tolist(), strict=True)) == {"u": 3, "v": 1}
