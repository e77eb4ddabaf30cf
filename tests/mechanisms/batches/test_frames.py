"""Tables of any library become Arrow batches, and nothing is imported for it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from headcount.mechanisms.batches import frames
from headcount.mechanisms.batches.frames import BATCH_ROWS, frame_reader, is_frame
from headcount.mechanisms.errors import InputError


class Foreign:
    """A frame of another library, known by Arrow's C stream alone."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested=None):
        return self._table.__arrow_c_stream__(requested)


TABLE = pa.table({"user": ["a", "b"], "page": [1, 2]})


@pytest.mark.parametrize(
    "frame",
    [
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_reader(),
        Foreign(TABLE),
        TABLE.to_pandas(),
        TABLE.to_pandas().set_index("page"),
    ],
)
def test_every_kind_of_frame_gives_its_columns(frame):
    assert is_frame(frame)
    assert frame_reader(frame).read_all().select(["user", "page"]).equals(TABLE)


def test_the_named_levels_of_an_index_are_columns():
    index = pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["user", None])
    frame = pd.DataFrame({"page": [1, 2]}, index=index)
    assert frame_reader(frame, ["user", "page"]).read_all().sort_by("page").select(["user", "page"]).equals(TABLE)
    assert frame_reader(frame.reset_index(drop=True)).schema.names == ["page"]


def test_columns_that_are_not_asked_for_may_hold_anything():
    frame = TABLE.to_pandas().assign(mixed=[1, "x"])
    assert frame_reader(frame, ["user", "page"]).read_all().equals(TABLE)
    with pytest.raises(InputError, match="column 'mixed', row 1: holds values of several kinds, int and str"):
        frame_reader(frame)


def test_a_nested_column_comes_in_the_object_that_holds_it():
    nested = pa.table({"user": [{"id": 1}], "user.name": ["x"], "other": [2]})
    assert frame_reader(nested, ["user.id"]).schema.names == ["user"]
    assert frame_reader(nested, ["user.name"]).schema.names == ["user", "user.name"]


def test_large_batches_are_cut_and_small_ones_put_together(monkeypatch):
    large = pa.table({"user": np.arange(BATCH_ROWS + 5)})
    assert [batch.num_rows for batch in frame_reader(large)] == [BATCH_ROWS, 5]
    words = [pa.table({"page": pa.array(word).dictionary_encode()}) for word in (["a", "b"], ["c", "a"], ["b"])]
    small = pa.concat_tables(words)
    (batch,) = frame_reader(small)
    assert batch.column("page").to_pylist() == ["a", "b", "c", "a", "b"]
    monkeypatch.setattr(frames, "_BATCH_BYTES", words[0].nbytes)
    assert [each.num_rows for each in frame_reader(small)] == [2, 2, 1]


def test_what_is_no_table_is_refused():
    assert not is_frame({"user": "a"}) and not is_frame(("a", "b"))
    with pytest.raises(InputError, match=r"int is no table; give an Arrow table"):
        frame_reader(3)
    with pytest.raises(InputError, match=r"Foreign has no columns"):
        frame_reader(Foreign(pa.chunked_array([[1]])))
    lazy = type("LazyFrame", (), {"collect": None})()
    with pytest.raises(InputError, match=r"LazyFrame is no table; give what its \.collect\(\) returns$"):
        frame_reader(lazy)
