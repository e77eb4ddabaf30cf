"""Frames of every kind give the same rows; what is no frame, or has not the columns, is refused without a value of it."""

from __future__ import annotations

import datetime
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import headcount

SECRET = "hunter2"


def table() -> pa.Table:
    generator = np.random.default_rng(5)
    number = generator.geometric(0.2, 3000)
    day = [datetime.date(2030, 1, 1 + k) for k in generator.integers(0, 3, 3000)]
    columns = {"user": [f"u{k}" for k in generator.integers(0, 400, 3000)], "item": [f"i{k}" for k in number]}
    return pa.table(columns | {"number": number, "day": day, "times": generator.integers(1, 4, 3000)})


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    path = tmp_path_factory.mktemp("frames") / "key"
    path.write_text("6b" * 32 + "\n")
    path.chmod(0o600)
    return path


class Stream:
    """Somebody else's table: all that is known of it is the interface."""

    def __init__(self, held: pa.Table) -> None:
        self._held = held

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._held.__arrow_c_stream__(requested_schema)


FRAMES = {
    "Arrow batch": lambda t: t.combine_chunks().to_batches()[0],
    "Arrow reader": lambda t: t.to_reader(max_chunksize=700),
    "pandas": lambda t: t.to_pandas(),
    "pandas, with an index": lambda t: t.to_pandas().set_index(["user", "item"]),
    "pandas, categories": lambda t: t.to_pandas().astype({"item": "category"}),
    "Polars": pl.from_arrow,
    "DuckDB": lambda t: duckdb.sql("select * from t"),
    "a stream": Stream,
    "a dict of lists": lambda t: t.to_pydict(),
    "a list of dicts": lambda t: t.to_pylist(),
}


def counts(frame: Any, key: Any, item: str | list[str] = "item", **more: Any) -> pa.Table:
    shared = {
        "user": "user",
        "item": item,
        "of": "events",
        "epsilon": 5,
        "delta": 1e-4,
        "key_file": key,
        "release_id": "r",
    }
    return headcount.histogram(frame, **shared, **more).table


@pytest.mark.seconds
@pytest.mark.parametrize("kind", FRAMES)
def test_every_frame_gives_the_same_rows(kind, key):
    expected = counts(table(), key, count="times")
    assert expected.num_rows > 5
    assert counts(FRAMES[kind](table()), key, count="times") == expected


@pytest.mark.seconds
def test_totals_and_quantiles_of_frames(key):
    shared = {"user": "user", "epsilon": 5, "key_file": key, "release_id": "r"}
    frames = [table(), table().to_pandas().set_index("user"), pl.from_arrow(table())]
    users = [headcount.total(frame, **shared).table for frame in frames]
    values = {"value": "number", "lo": 0, "hi": 64, "quantile": [0.5], "levels": 6, "delta": 1e-4}
    medians = [headcount.quantiles(frame, **values, **shared).table for frame in frames]
    assert users[0].num_rows == 2 and users[0] == users[1] == users[2]
    assert medians[0].num_rows == 1 and medians[0] == medians[1] == medians[2]
    days = {"value": "day", "lo": datetime.date(2030, 1, 1), "hi": "2030-01-05", "delta": 1e-4, "levels": 2}
    asked = {"range": (datetime.date(2030, 1, 1), datetime.date(2030, 1, 3))}
    assert headcount.quantiles(table(), **days, **asked, **shared).table.num_rows == 1


def test_keys_are_columns_as_they_were(key):
    """Integers need no word of their type, and several columns, days and bins come out as they are asked for."""
    numbers = counts(table(), key, "number")
    assert numbers.schema.field("number").type == pa.int64() and numbers.column_names[0] == "number"
    several = counts(table(), key, ["day", "number:0,3,10"])
    assert several.column_names[:2] == ["day", "number"] and several.schema.field("day").type == pa.date32()
    assert set(several["number"].to_pylist()) <= {"[0, 3)", "[3, 10)", ">= 10"}
    assert several["day"].to_pylist() == sorted(several["day"].to_pylist())


def test_a_true_count_at_a_huge_epsilon(key):
    held = table()
    expected = duckdb.sql("select day, item, count(distinct user) as users from held group by day, item").arrow()
    expected = expected.read_all() if isinstance(expected, pa.RecordBatchReader) else expected
    true = {(row["day"], row["item"]): row["users"] for row in expected.to_pylist()}
    with pytest.warns(UserWarning, match="promises little") as caught:
        shared = {"user": "user", "item": ["day", "item"], "epsilon": 1e4, "delta": 1e-4, "key_file": key}
        result = headcount.histogram(held, of="users", method="one-stage", bound=100, noise="laplace", **shared)
    found = {(row["day"], row["item"]): round(row["bounded_count"]) for row in result.table.to_pylist()}
    assert len(found) > 20 and found.items() <= true.items()
    assert [warning.filename for warning in caught] == [__file__], "told where the call stands"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("events.parquet", "a path is no frame: read the file first"),
        (7, "int is no frame; give an Arrow table"),
        ([], "list is no frame"),
        ([("u", "i")], "list is no frame"),
        ({"user": ["u"], "item": ["i", SECRET]}, "different lengths"),
        ({"user": ["u", 1], "item": ["i", "j"]}, "column 'user', row 1: holds values of several kinds, int and str"),
        ({"usr": ["u"], "item": ["i"]}, "no column 'user'; did you mean 'usr'\\? the columns are 'usr', 'item'"),
        ({"user": ["u", None], "item": [SECRET, "i"]}, "column 'user', row 1: is null; .* with drop_null$"),
        ({"user": ["u"], "item": [0.5]}, "column 'item'"),
        (pl.LazyFrame({"user": ["u"], "item": ["i"]}), "LazyFrame is no frame; give what its .collect\\(\\) returns$"),
    ],
)
def test_what_is_no_frame_of_events(data, message, key):
    with pytest.raises(headcount.InputError, match=message) as refused:
        counts(data, key)
    assert SECRET not in str(refused.value) and "--" not in str(refused.value)


def test_several_columns_are_a_list(key):
    with pytest.raises(
        headcount.InputError, match=r"^no column 'item,day'; give a list, \['item', 'day'\]; the columns"
    ):
        counts(table(), key, item="item,day")


def test_a_column_that_was_not_asked_for_may_hold_anything(key):
    frame = table().to_pandas()
    frame["notes"] = [object()] * len(frame)
    assert counts(frame, key) == counts(table(), key)
