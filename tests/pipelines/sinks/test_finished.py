"""The end of a report: all that it says of the rows follows from the rows, file by file."""

from __future__ import annotations

import datetime
import hashlib
import itertools
import json
import math
from typing import get_type_hints

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.columns.key_column import parse_columns
from headcount.mechanisms.columns.keys import resolve
from headcount.mechanisms.counting.quality import Quality
from headcount.mechanisms.counting.released import normal_counts_batch
from headcount.pipelines.reports.summary import summarize
from headcount.pipelines.sinks.finished import SHOWN, changed_note, finished, sealed, summary
from headcount.pipelines.sinks.meanings import key_meanings, meanings
from headcount.transforms.core import rows as row_types

REPORT = json.dumps({"headcount": "1", "details": {"parameters": {}}}).encode()


def counts(first, last, step=1):
    numbers = np.arange(first, last, step, dtype=float)
    return normal_counts_batch(pa.array([f"i{int(n):03}" for n in numbers]), numbers, np.ones(len(numbers)))


def report(*batches, keys=("item",)):
    names = [f"f{k}" for k in range(len(batches))]
    digests = [hashlib.sha256(name.encode()).digest() for name in names]
    return json.loads(
        finished(REPORT, names, digests, [summary(batch, keys) for batch in batches], [(key, "") for key in keys])
    )


def test_the_largest_of_all_files_are_shown_and_details_stay_last():
    found = report(counts(0, 40, 2), counts(1, 41, 2))
    assert list(found) == ["headcount", "rows", "keys", "columns", "shown", "files", "content_sha256", "details"]
    assert found["rows"] == 40 and [row["bounded_count"] for row in found["shown"]] == [*range(39, 39 - SHOWN, -1)]
    assert [(file["name"], file["rows"]) for file in found["files"]] == [("f0", 20), ("f1", 20)]
    assert found["files"][1]["sha256"] == hashlib.sha256(b"f1").hexdigest()


def test_a_report_knows_its_own_content():
    """Whatever its layout: what counts is what it says. Each part of it counts, and so does one that came or went."""
    found = report(counts(0, 40, 2))
    assert changed_note(found) is None
    assert changed_note(json.loads(json.dumps(dict(reversed(found.items())), indent=7))) is None
    assert json.loads(sealed(found)) == found
    for name in found:
        other = changed_note({key: value for key, value in found.items() if key != name})
        assert other is not None and other.startswith(
            "changed: " if name != "content_sha256" else "report.json holds no"
        )
        assert changed_note(found | {name: 0}) is not None
    assert changed_note(found | {"more": 1}) is not None and changed_note(found | {"rows": math.nan}) is not None


def test_ties_are_in_the_order_of_items_whatever_the_files():
    rows = normal_counts_batch(pa.array([f"i{k:02}" for k in range(30)]), np.ones(30), np.ones(30))
    shown = report(rows)["shown"]
    assert [row["item"] for row in shown] == [f"i{k:02}" for k in range(SHOWN)]
    assert report(rows.slice(15), rows.slice(0, 15))["shown"] == shown


def test_ranks_ascend_and_rows_without_an_item_keep_their_order():
    top = pa.RecordBatch.from_pydict({"rank": [2, 1], "item": ["b", "a"]})
    assert [row["item"] for row in report(top)["shown"]] == ["a", "b"]
    quantiles = pa.RecordBatch.from_pydict(
        {"quantile": [0.9, 0.5], "value": [math.nan, 2.0], "rank_stddev": [0.1, 0.1]}
    )
    assert [row["value"] for row in report(quantiles)["shown"]] == [None, 2.0]


def test_no_rows():
    assert report(counts(0, 0))["shown"] == []


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


def test_several_key_columns_of_any_type():
    """Keys of dates, booleans and bins are shown as texts, in the order of the keys where counts are alike."""
    columns = parse_columns(["day", "yes", "age:0,18", "seen:hour"])
    types = {"day": pa.date32(), "yes": pa.bool_(), "age": pa.int8(), "seen": pa.timestamp("us")}
    keys = resolve(columns, types, zone="Europe/Berlin")
    days, yes = [datetime.date(2026, 11, 1), datetime.date(2026, 10, 25)], [False, True]
    seen = [datetime.datetime(2026, 10, 25, 0, 30), datetime.datetime(2026, 10, 25, 1, 30)]  # both at two o'clock there
    rows = [*itertools.product(days, yes, [-1, 20], seen)]
    given = dict(zip(types, map(pa.array, zip(*rows, strict=True), types.values()), strict=True))
    names = keys.encode(given)
    batch = keys.restore(normal_counts_batch(names, np.ones(len(rows)), np.ones(len(rows))))
    meant = key_meanings(keys)
    parts = [batch.slice(8), batch.slice(0, 8)]
    content = finished(REPORT, ["a", "b"], [b"", b""], [summary(part, keys.names) for part in parts], meant)
    found = json.loads(content)
    assert found["keys"] == ["day", "yes", "age", "seen_hour"]
    shown = [{name: row[name] for name in found["keys"]} for row in found["shown"][:3]]
    first = {"day": "2026-10-25", "yes": False, "age": "< 0", "seen_hour": "2026-10-25T02:00:00+01:00"}
    assert shown == [
        first,
        first | {"seen_hour": "2026-10-25T02:00:00+02:00"},
        first | {"age": ">= 18", "seen_hour": "2026-10-25T02:00:00+01:00"},
    ]
    assert found["columns"]["day"] == "a part of the item: column 'day' of the input"
    assert found["columns"]["age"].endswith("column 'age' of the input in bins; [a, b) is from a on and below b")
    assert found["columns"]["seen_hour"].endswith(
        "column 'seen' of the input by its hour, in the time zone Europe/Berlin"
    )
    assert summarize(found).splitlines()[2].split() == [
        "day",
        "yes",
        "age",
        "seen_hour",
        "bounded_count",
        "low",
        "high",
    ]


def test_weeks_and_months_say_which_day_they_are():
    keys = resolve(parse_columns(["t:week", "t:month"]), {"t": pa.date32()})
    assert [words.split("as ")[1] for _, words in key_meanings(keys)] == [
        "the Monday of it, in the time zone UTC",
        "the first day of it, in the time zone UTC",
    ]
