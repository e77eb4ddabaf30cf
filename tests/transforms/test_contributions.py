"""`Contributions`: every kind of row, and one kind per collection."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.transforms.window import GlobalWindow

from headcount.mechanisms.columns.row_schema import asked
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.transforms import Contributions
from headcount.transforms.core.contributions import _ToBatches, as_contributions


def _run(elements: list[Any], **columns: Any) -> list[tuple]:
    """The DoFn by hand, on one bundle."""
    dofn = _ToBatches(asked(**{"user": "user", "item": "item"} | columns))
    dofn.start_bundle()
    batches = [batch for element in elements for batch in dofn.process(element, GlobalWindow())]
    batches += [windowed.value for windowed in dofn.finish_bundle()]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_rows_of_each_kind():
    assert _run([("a", "x"), ("b", "y")]) == [("a", "x"), ("b", "y")]
    assert _run([("a", "x", 3), ("b", "y", 1)]) == [("a", "x", 3), ("b", "y", 1)]
    assert _run([{"user": 1, "item": 2, "n": 4}], count="n") == [(1, 2, 4)]
    assert _run([beam.Row(user="a", item=5)]) == [("a", 5)]
    table = pa.table({"user": ["a"], "item": ["x"], "other": [1.5]})
    assert _run([table]) == [("a", "x")]
    assert _run(table.to_batches()) == [("a", "x")]


def test_checked_batches_pass_as_they_are():
    (windowed,) = list(_finished([("a", "x", 3)]))
    assert _run([windowed.value]) == [("a", "x", 3)], "the counts of a checked batch stay"


def _finished(rows: list[Any]) -> Any:
    dofn = _ToBatches(asked("user", "item"))
    dofn.start_bundle()
    for row in rows:
        assert list(dofn.process(row, GlobalWindow())) == []
    return dofn.finish_bundle()


@pytest.mark.parametrize(
    ("elements", "words"),
    [
        ([("a", "x"), {"user": "b", "item": "y"}], "different kinds, tuple and dict"),
        ([("a",)], "lacks one of the fields 'user', 'item'"),
        ([{"user": "a"}], "lacks one of the fields"),
        ([beam.Row(user="a", thing="x")], "lacks one of the fields"),
        ([("a", "x"), ("b", "y", 2)], "some rows have a count"),
        ([("a", "x", 2), ("b", "y")], "some rows have a count"),
        (["secret text"], "elements of type str are no rows"),
        ([pa.table({"user": ["a"]})], "column 'item': is missing; of those asked for there are 'user'"),
        ([("a", "x"), (2, "y")], "column 'user': holds values of several kinds, int and str"),
        ([("a", "x", 1.0)], "column 'count': is of type double; it must hold integers"),
        ([("a", "x", "1")], "column 'count': is of type string; it must hold integers"),
        (
            [("a", True)],
            "column 'item': is bool, and was taken for string where the job was put together: give its type",
        ),
    ],
)
def test_what_is_no_row_is_refused(elements, words):
    with pytest.raises(InputError) as error:
        _run(elements)
    assert words in str(error.value) and "secret" not in str(error.value)


def test_parameters_are_checked():
    with pytest.raises(ParameterError, match="different columns, got 'a', 'a'"):
        Contributions(user="a", item="a")
    with pytest.raises(ParameterError, match="max_item_bytes must be a positive integer, got 0"):
        Contributions(max_item_bytes=0)


def test_contributions_are_applied_once():
    pipeline = beam.Pipeline(runner="FnApiRunner")
    rows = pipeline | beam.Create([("a", "x")])
    once = as_contributions(rows)
    assert once is not rows and as_contributions(once) is once
