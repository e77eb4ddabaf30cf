"""Columns into batches: what is widened, drops and refuses, and that no message holds a value."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.batches.contributions import Place, contribution_batch
from headcount.mechanisms.errors import InputError

CANARY = "CANARY-7f3a"
PLACE = Place(file="log.parquet", first_row=101, user="who", item="what", count="times")


def _rows(batch: pa.RecordBatch) -> list[tuple]:
    return [tuple(row.values()) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("user", "kind"),
    [
        (pa.array(["a", "b"]), pa.string()),
        (pa.array(["a", "b"], pa.large_string()), pa.string()),
        (pa.array(["a", "b"], pa.string_view()), pa.string()),
        (pa.array([1, 2], pa.int8()), pa.int64()),
        (pa.array([1, 2], pa.uint64()), pa.int64()),
        (pa.array(["a", "b"]).dictionary_encode(), pa.dictionary(pa.int32(), pa.string())),
        (
            pa.array(["a", "b"]).cast(pa.dictionary(pa.int8(), pa.large_string())),
            pa.dictionary(pa.int32(), pa.string()),
        ),
    ],
)
def test_ids_are_widened(user, kind):
    batch = contribution_batch(user, pa.array(["x", "y"]))
    assert batch.schema.field("user").type == kind
    assert batch.column("user").to_pylist() == user.to_pylist()


def test_counts_become_int64_and_rows_that_count_nothing_go():
    batch = contribution_batch(pa.array(["a", "b", "c"]), pa.array(["x", "y", "z"]), pa.array([2, 0, 1], pa.uint8()))
    assert _rows(batch) == [("a", "x", 2), ("c", "z", 1)]
    assert batch.schema.field("count").type == pa.int64()
    assert "count" not in contribution_batch(pa.array(["a"]), pa.array(["x"]), pa.array([1])).schema.names


def test_a_count_beyond_the_ceiling_counts_as_the_ceiling():
    """No error, and so no failure that would tell; nulls stay nulls, and are dropped or refused as ever."""
    user, item = pa.array(["a", "b", "c", "d"]), pa.array(["x", "x", "y", "z"])
    cut = contribution_batch(user, item, pa.array([10**9 + 1, 2**63 - 1, 10**9 - 1, 3]))
    assert _rows(cut) == [("a", "x", 10**9), ("b", "x", 10**9), ("c", "y", 10**9 - 1), ("d", "z", 3)]
    dropped = contribution_batch(user, item, pa.array([2**62, None, 0, 1]), drop_null=True)
    assert _rows(dropped) == [("a", "x", 10**9), ("d", "z", 1)]


def test_null_rows_are_refused_or_dropped():
    user, item, count = pa.array(["a", None, "c", "d"]), pa.array(["x", "y", None, "z"]), pa.array([2, 2, 2, None])
    with pytest.raises(InputError, match=r"log.parquet: column 'who', row 102: is null.*--drop-null"):
        contribution_batch(user, item, count, place=PLACE)
    with pytest.raises(InputError, match=r"column 'times', row 104"):
        contribution_batch(pa.array(["a"] * 4), pa.array(["x"] * 4), count, place=PLACE)
    assert _rows(contribution_batch(user, item, count, drop_null=True)) == [("a", "x", 2)]
    hidden = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([None, "b"]))
    with pytest.raises(InputError, match="is null"):
        contribution_batch(hidden, pa.array(["x", "y"]))
    assert _rows(contribution_batch(pa.nulls(2), pa.array(["x", "y"]), drop_null=True)) == []


def test_long_item_names_are_dropped_one_by_one():
    item = pa.array(["x" * 5, "é" * 3, "y"])
    for column in (item, item.dictionary_encode()):
        batch = contribution_batch(pa.array(["a", "b", "c"]), column, max_item_bytes=5)
        assert [row[1] for row in _rows(batch)] == ["xxxxx", "y"]


@pytest.mark.parametrize(
    ("user", "item", "count", "words"),
    [
        (pa.array([1.5]), pa.array(["x"]), None, "column 'who': is of type double; users and items"),
        (pa.array(["a"]), pa.array([[CANARY]]), None, "column 'what': is of type list"),
        (pa.array([True]), pa.array(["x"]), None, "must be strings or integers; convert it first, for instance to text"),
        (pa.array([CANARY.encode()]), pa.array(["x"]), None, "is of type binary"),
        (pa.array([2**63], pa.uint64()), pa.array(["x"]), None, "beyond 2**63 - 1"),
        (pa.array(["a"]), pa.array(["x"]), pa.array([-3]), "column 'times', row 101: is negative"),
        (pa.array(["a"]), pa.array(["x"]), pa.array([1.0]), "it must hold integers"),
        (pa.array(["a"]), pa.array(["x"]), pa.array(["1"]), "it must hold integers"),
        (pa.array(["a"]), pa.array(["x"]), pa.array([2**64 - 1], pa.uint64()), "beyond 2**63 - 1"),
        (pa.array(["a"]), pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
        ), None, "no valid UTF-8"),
        *((pa.array(["a", "b"]), pa.Array.from_buffers(
            pa.string(), 2, [None, pa.py_buffer(np.array(ends, np.int32)), pa.py_buffer(b"xyz")]
        ), None, "is damaged") for ends in ([0, 3, 2], [0, -1, 2])),
    ],
)  # fmt: skip
def test_what_cannot_be_counted_is_refused_without_its_value(user, item, count, words):
    with pytest.raises(InputError) as error:
        contribution_batch(user, item, count, place=PLACE)
    message = str(error.value)
    assert words in message and message.startswith("log.parquet: ")
    assert CANARY not in message and "\n" not in message
