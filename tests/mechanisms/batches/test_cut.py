"""Cutting by a hash of the item: all of an item is in one shard, whatever else is cut with it, and nothing is lost."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.batches.cut import cut_by_item
from headcount.mechanisms.batches.names import hash64, shard_of
from headcount.mechanisms.batches.packing import unpack

ITEMS = [pa.array([f"item {i}" for i in range(50)]), pa.array(np.arange(50) * 7 - 20)]


@pytest.mark.parametrize("items", ITEMS, ids=["text", "numbers"])
@pytest.mark.parametrize("shards", [1, 3, 200])
def test_one_row_each(items, shards):
    chunks = dict(cut_by_item(items, shards).one_row_each({"sum": np.arange(50)}))
    found = {}
    for shard, chunk in chunks.items():
        columns, _ = unpack(chunk)
        assert (shard_of(hash64(columns["item"]), shards) == shard).all()
        found |= dict(zip(columns["item"].to_pylist(), columns["sum"].to_pylist(), strict=True))
    assert found == dict(zip(items.to_pylist(), range(50), strict=True))


@pytest.mark.parametrize("items", ITEMS, ids=["text", "numbers"])
@pytest.mark.parametrize("shards", [1, 3, 200])
def test_rows_of_some_items(items, shards):
    """Items with several rows, and with none: these are not named."""
    item = np.repeat(np.arange(0, 50, 2), np.arange(25) % 3 + 1)
    cut = cut_by_item(items, shards)
    place = cut.places()[item]
    order = np.argsort(place, kind="stable")
    found, named = [], []
    for shard, chunk in cut.rows(place[order], {"row": order}):
        columns, _ = unpack(chunk)
        assert (shard_of(hash64(columns["item"].dictionary), shards) == shard).all()
        named += columns["item"].dictionary.to_pylist()
        found += zip(columns["item"].to_pylist(), columns["row"].to_pylist(), strict=True)
    given = items.take(pa.array(item)).to_pylist()
    assert sorted(named) == sorted(set(given))
    assert sorted(found, key=lambda row: row[1]) == list(zip(given, range(len(item)), strict=True))


@pytest.mark.parametrize("items", ITEMS, ids=["text", "numbers"])
@pytest.mark.parametrize("shards", [1, 3, 200])
def test_rows_in_any_order(items, shards):
    item = np.random.default_rng(1).permutation(np.repeat(np.arange(0, 50, 2), np.arange(25) % 3 + 1))
    cut, found = cut_by_item(items, shards), []
    for shard, chunk in cut.scattered(cut.places()[item], {"row": np.arange(len(item))}):
        columns, _ = unpack(chunk)
        assert (shard_of(hash64(columns["item"].dictionary), shards) == shard).all()
        found += zip(columns["item"].to_pylist(), columns["row"].to_pylist(), strict=True)
    given = items.take(pa.array(item)).to_pylist()
    assert sorted(found, key=lambda row: row[1]) == list(zip(given, range(len(item)), strict=True))


@pytest.mark.parametrize("items", ITEMS, ids=["text", "numbers"])
def test_no_rows(items):
    none = np.zeros(0, dtype=np.int64)
    assert not list(cut_by_item(items, 3).scattered(none, {"row": none}))
    assert not list(cut_by_item(items, 3).rows(none, {"row": none}))
    assert not list(cut_by_item(items[:0], 3).one_row_each({"sum": none}))
