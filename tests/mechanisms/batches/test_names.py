"""Hash, shard and order of names: functions of the name alone."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.mechanisms.batches.names import as_names, canonical_order, hash64, in_one_size, shard_of

texts = st.lists(st.one_of(st.text(max_size=40), st.text(alphabet="aé", min_size=200, max_size=300)), max_size=30)


@pytest.mark.seconds
@given(texts, st.integers(0, 10))
@settings(deadline=None)
def test_a_hash_depends_on_the_name_alone(names, start):
    together = hash64(pa.array(names, pa.string()))
    alone = [int(hash64(pa.array([name]))[0]) for name in names]
    assert together.tolist() == alone
    sliced = pa.array(["before", *names, "after"])[1 + start : 1 + len(names)]
    assert hash64(sliced).tolist() == alone[start:]


def test_hashes_do_not_move_between_versions():
    """A changed hash would change shards and canonical order, and so every release that is repeated."""
    names = pa.array(["", "a", "12345678", "123456789", "é" * 20, "x" * 300])
    digest = hashlib.sha256(hash64(names).tobytes() + hash64(pa.array([0, -1, 2**62])).tobytes()).hexdigest()
    assert digest == "b8b825e2da1b7fbe9534b805763f82aeb3514985fc80c7888264e406d0eec59a"


def test_similar_names_spread_evenly():
    names = pa.array([f"user{k:07d}" for k in range(200_000)])
    hashes = hash64(names)
    assert len(np.unique(hashes)) == len(names)
    for shards in (7, 64):
        counts = np.bincount(shard_of(hashes, shards).astype(int), minlength=shards)
        expected = len(names) / shards
        assert len(counts) == shards and np.abs(counts - expected).max() < 6 * np.sqrt(expected)


def test_names_that_share_a_hash_are_ordered_by_name():
    names = pa.array(["c", "a", "z", "b"])
    hashes = np.array([5, 5, 1, 5], dtype=np.uint64)
    assert names.take(pa.array(canonical_order(names, hashes))).to_pylist() == ["z", "a", "b", "c"]
    numbers = pa.array([30, 4])
    assert numbers.take(pa.array(canonical_order(numbers, hashes[:2]))).to_pylist() == [4, 30]


@pytest.mark.parametrize(
    "names", [["ab", "cd", "ef", "gh"], ["a", "bc", "", "d"], ["", "", "", ""], ["é", "ab", "cd", "ef"]]
)
@pytest.mark.parametrize("start", [0, 2, 4])
def test_names_of_one_size_are_the_same_names_as_one_block(names, start):
    column = pa.array(names, pa.string())[start:]
    held = in_one_size(column)
    sizes = {len(name.encode()) for name in names[start:]}
    assert pa.types.is_fixed_size_binary(held.type) == (len(sizes) == 1 and sizes != {0})
    assert as_names(held).equals(column)
    rows = pa.array(range(len(column) - 1, -1, -1), pa.int64())
    assert as_names(held.take(rows)).to_pylist() == names[start:][::-1]
    numbers = pa.array([3, 4])
    assert as_names(in_one_size(numbers)) is numbers


@pytest.mark.parametrize("last", [b"", b"\xff" * 16], ids=["the end", "other bytes"])
def test_a_hash_does_not_see_the_bytes_behind_a_name(last):
    text = b"abcdefghijk"
    column = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 11], np.int32)), pa.py_buffer(text + last))
    assert hash64(column).tolist() == hash64(pa.array(["abcdefghijk"])).tolist()
