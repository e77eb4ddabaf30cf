"""Packing a chunk loses nothing, and takes few bytes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.mechanisms.batches.packing import from_ipc, pack, to_ipc, unpack

texts = st.lists(st.one_of(st.text(max_size=5), st.text(alphabet="é", min_size=100, max_size=200)), max_size=20)
numbers = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20)


@pytest.mark.seconds
@given(texts, numbers, st.booleans(), st.integers(0, 3))
@settings(deadline=None)
def test_columns_come_back_as_they_were(names, counts, encode, start):
    name, count = pa.array(names, pa.string())[start:], pa.array(counts, pa.int64())[start:]
    columns = {"name": name.dictionary_encode() if encode else name, "count": count}
    found, metadata = unpack(pack(columns, {b"mark": b"1"}))
    assert metadata == {b"mark": b"1"}
    assert {key: column.to_pylist() for key, column in found.items()} == {
        "name": name.to_pylist(),
        "count": count.to_pylist(),
    }
    assert found["count"].type == pa.int64() and isinstance(found["name"], pa.DictionaryArray) == encode
    for column in found.values():
        column.validate(full=True)


def test_few_bytes_are_used():
    names = pa.array([f"user{k:05d}" for k in range(10_000)])
    assert len(pack({"name": names, "count": pa.array([1] * 10_000)})) < 10_000 * (9 + 1 + 1) + 2000


def test_columns_in_one_piece_are_the_same_stream():
    user = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), pa.array(["ann", "bo"]))
    packed = pack({"user": user, "item": pa.array(["x", "", "yy"]), "count": pa.array([1, 2, 1 << 40])}, {b"a": b"b"})
    assert packed == to_ipc(from_ipc(packed))


def test_a_slice_travels_without_its_parent():
    names = pa.array([f"name {k}" for k in range(100_000)])
    batch = pa.RecordBatch.from_pydict({"name": names})
    assert len(to_ipc(batch[500:510])) < 2000 and from_ipc(to_ipc(batch[500:510])).num_rows == 10
    assert len(pack({"name": names[500:510]})) < 2000


def test_rows_that_come_name_by_name_take_a_byte_for_each_name():
    names = pa.array([f"user{k:05d}" for k in range(1000)])
    rows = pa.array([k for k in range(1000) for _ in range(50)])
    packed = pack({"name": pa.DictionaryArray.from_arrays(rows, names)})
    assert len(packed) < 1000 * (9 + 1 + 1) + 2000
    assert unpack(packed)[0]["name"].indices.to_pylist() == rows.to_pylist()
