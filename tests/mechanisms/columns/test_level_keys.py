"""The key columns of rows in levels: what each row has, and the order in which they stand."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.columns.fields import field_of
from headcount.mechanisms.columns.key_column import parse_columns, split_columns
from headcount.mechanisms.columns.keys import JOINT, Keys
from headcount.mechanisms.columns.level_keys import LevelKeys
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.levels.tree import Tree


def keys_of(specs: list[str], types: list[pa.DataType]) -> tuple[Keys, LevelKeys]:
    fields = tuple(field_of(column, found, "") for column, found in zip(parse_columns(specs), types, strict=True))
    return Keys(fields), LevelKeys(fields)


def test_rows_of_every_type_come_back_below_their_nodes():
    plain, levels = keys_of(
        ["country", "age:0,18,65", "seen:day", "n"], [pa.string(), pa.int64(), pa.timestamp("s"), pa.int32()]
    )
    rows = {
        "country": pa.array(["b", "a:\x1f+", "a:\x1f+"]),
        "age": pa.array([70, 5, 20]),
        "seen": pa.array([0, 86_400, 3 * 86_400], pa.timestamp("s")),
        "n": pa.array([3, -7, 8], pa.int32()),
    }
    names = plain.encode(rows).to_pylist()
    tree = Tree.of_named([f"4:{name}" for name in names], 4)
    batch = pa.RecordBatch.from_pydict({"item": tree.cells, "count": np.arange(len(tree.cells), dtype=float)})
    found = levels.restore(batch)
    assert found.schema.names == ["level", "country", "age", "seen_day", "n", "other", "count"]
    assert found.schema.field("seen_day").type == pa.date32() and found.schema.field("n").type == pa.int32()
    shown = [tuple(row.values())[:-1] for row in found.to_pylist()]
    first, second, day = "a:\x1f+", "b", datetime.date(1970, 1, 2)
    assert shown[:7] == [
        ("all", None, None, None, None, False),
        ("country", first, None, None, None, False),
        ("age", first, "[0, 18)", None, None, False),
        ("seen_day", first, "[0, 18)", day, None, False),
        ("n", first, "[0, 18)", day, -7, False),
        ("n", first, "[0, 18)", day, None, True),
        ("seen_day", first, "[0, 18)", None, None, True),
    ]
    assert shown[7][:3] == ("age", first, "[18, 65)") and shown[-1] == ("country", None, None, None, None, True)
    assert [row for row in shown if row[1] == second][0] == ("country", second, None, None, None, False)


def test_a_key_column_that_is_called_like_one_beside_it_is_refused():
    for name in ("level", "other"):
        with pytest.raises(ParameterError, match=f"the key column '{name}' has the name of another column"):
            keys_of([name, "city"], [pa.string()] * 2)


def test_columns_with_commas_between_them():
    assert split_columns("country,region,city") == ["country", "region", "city"]
    assert split_columns("age:0,18,65,at:day") == ["age:0,18,65", "at:day"]
    assert split_columns(f"one{JOINT}") == [f"one{JOINT}"]
