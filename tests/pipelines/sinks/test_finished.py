"""The end of a report: all that it says of the rows follows from the rows, file by file."""

from __future__ import annotations

import hashlib
import json
import math
from typing import get_type_hints

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.counting.quality import Quality
from headcount.mechanisms.counting.released import normal_counts_batch
from headcount.pipelines.sinks.finished import SHOWN, finished, summary
from headcount.pipelines.sinks.meanings import meanings
from headcount.transforms.core import rows as row_types

REPORT = json.dumps({"headcount": "1", "details": {"parameters": {}}}).encode()


def counts(first, last, step=1):
    numbers = np.arange(first, last, step, dtype=float)
    return normal_counts_batch(pa.array([f"i{int(n):03}" for n in numbers]), numbers, np.ones(len(numbers)))


def report(*batches):
    names = [f"f{k}" for k in range(len(batches))]
    digests = [hashlib.sha256(name.encode()).digest() for name in names]
    return json.loads(finished(REPORT, names, digests, [summary(batch) for batch in batches]))


def test_the_largest_of_all_files_are_shown_and_details_stay_last():
    found = report(counts(0, 40, 2), counts(1, 41, 2))
    assert list(found) == ["headcount", "rows", "columns", "shown", "files", "details"]
    assert found["rows"] == 40 and [row["bounded_count"] for row in found["shown"]] == [*range(39, 39 - SHOWN, -1)]
    assert [(file["name"], file["rows"]) for file in found["files"]] == [("f0", 20), ("f1", 20)]
    assert found["files"][1]["sha256"] == hashlib.sha256(b"f1").hexdigest()


def test_ties_are_in_the_order_of_items_whatever_the_files():
    rows = normal_counts_batch(pa.array([f"i{k:02}" for k in range(30)]), np.ones(30), np.ones(30))
    shown = report(rows.take(pa.array(range(29, -1, -1))))["shown"]
    assert [row["item"] for row in shown] == [f"i{k:02}" for k in range(SHOWN)]
    assert report(rows.slice(15), rows.slice(0, 15))["shown"] == shown


def test_ranks_ascend_and_rows_without_an_item_keep_their_order():
    top = pa.RecordBatch.from_pydict({"rank": [2, 1], "item": ["b", "a"]})
    assert [row["item"] for row in report(top)["shown"]] == ["a", "b"]
    quantiles = pa.RecordBatch.from_pydict(
        {"quantile": [0.9, 0.5], "value": [math.nan, 2.0], "rank_stddev": [0.1, 0.1]}
    )
    assert [row["value"] for row in report(quantiles)["shown"]] == [None, 2.0]


def test_long_items_are_cut():
    rows = normal_counts_batch(pa.array(["x" * 5000]), np.ones(1), np.ones(1))
    assert len(report(rows)["shown"][0]["item"]) == 60


def test_what_was_left_out_is_added_up_also_if_that_is_nothing():
    good = Quality(suppress_below=10)
    found = report(good.keep(counts(0, 20)), good.keep(counts(20, 30)))
    assert found["left_out"] == [{"rows": 10, "because": "their count is below 10"}] and found["rows"] == 20
    assert report(good.keep(counts(20, 30)))["left_out"][0]["rows"] == 0
    assert "left_out" not in report(counts(0, 20))


ROWS = [found for found in vars(row_types).values() if hasattr(found, "_fields")]


@pytest.mark.parametrize("row", ROWS)
def test_every_column_of_every_row_has_a_meaning(row):
    assert list(meanings(list(get_type_hints(row)))) == list(row._fields)


def test_one_word_for_two_things_is_told_apart():
    assert meanings(["item", "count"])["count"] != meanings(["count", "items", "error"])["count"]
    assert meanings(["item", "low"])["low"] != meanings(["low", "high", "count", "noise_stddev"])["low"]
