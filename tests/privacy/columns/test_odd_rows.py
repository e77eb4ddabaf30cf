"""One more user with a row of another shape changes nothing of the others, by whatever door rows come and whatever names the
column: where a path leads follows from each row alone.

What reaches the mechanism of the others is compared, byte by byte, with and without the odd row, which comes first or last. A
refusal is allowed, since a job that fails publishes nothing; it is an InputError then, and shows no value.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import duckdb
import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
from apache_beam.transforms.window import GlobalWindow

from headcount.mechanisms.batches import python_values
from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.columns.person_rows import PersonRows, asked_of_people
from headcount.mechanisms.columns.preparation import preparation
from headcount.mechanisms.columns.row_schema import RowSchema, asked
from headcount.mechanisms.errors import InputError
from headcount.pipelines.in_memory import frames
from headcount.pipelines.sources import json as source_json
from headcount.pipelines.sources.columns import Columns
from headcount.pipelines.sources.events import column_types, expand_inputs, read_batches, split_file
from headcount.transforms.core.contributions import _ToBatches
from tests.pipelines.sources.event_files import json_lines, put

CANARY = "canary"
Row = dict[str, Any]

# What names a column, of rows with all that may be asked for: flat, and inside an object.
TABLE = pa.table({"page.name": ["home", "cart"], "kind": ["a", "b"]})
ASKED: dict[str, RowSchema] = {
    "user": asked("page.name", "flat", drop_null=True),
    "item": asked("user", "page.name", drop_null=True),
    "items": asked("user", ["flat", "page.name"], drop_null=True),
    "a bin": asked("user", "page.size:0,5,10", drop_null=True),
    "a day": asked("user", "page.at:day", drop_null=True),
    "integers": asked("user", "page.size:int", drop_null=True),
    "time": asked("user", "flat", drop_null=True, protect="user-day", time="page.at"),
    "count": asked("user", "flat", "page.size", drop_null=True),
    "value": asked("user", "flat", drop_null=True, values=["page.size:0:10"]),
    "where": asked("user", "flat", drop_null=True, prepare=preparation("page.name = home or page.size > 5")),
    "a null": asked("user", "flat", drop_null=True, prepare=preparation("page.name is null")),
    "join": asked("user", "kind", drop_null=True, prepare=preparation(None, TABLE, "page.name")),
    "explode": asked("user", "page.tags", drop_null=True, explode="page.tags"),
    "by": asked_of_people("user", "page.name", drop_null=True),
    "times of people": asked_of_people("user", time="page.at", unit="day", drop_null=True),
    "steps": asked_of_people("user", time="page.at", steps=["page.name = home", "page.size = 7"], drop_null=True),
}


def others() -> list[Row]:
    pages = [
        {"name": "home", "size": 3, "at": "2026-11-02", "tags": ["a", "b"]},
        {"name": "cart", "size": 7, "at": "2026-11-03T23:30:00Z", "tags": ["b"]},
    ]
    return [{"user": f"u{k}", "flat": "f", "page": pages[k % 2]} for k in range(6)]


HOME = others()[0]["page"]
ODD: dict[str, Row] = {
    "of the same shape": {"page": HOME},
    "without the object": {},
    "null": {"page": None},
    "an empty object": {"page": {}},
    "null fields": {"page": dict.fromkeys(HOME)},
    **{f"the name {name!r}": {f"page.{name}": value} for name, value in HOME.items()},
    **{f"both, {name!r}": {"page": HOME, f"page.{name}": value} for name, value in HOME.items()},
    **{f"the name {name!r}, null": {"page": HOME, f"page.{name}": None} for name in HOME},
    "all names": {f"page.{name}": value for name, value in HOME.items()},
    "a text for the object": {"page": CANARY},
    "a number for the object": {"page": 5},
    "a list for the object": {"page": [HOME]},
    "an object in the object": {"page": {name: {name: value} for name, value in HOME.items()}},
    "a field of the join": {"page": HOME, "kind": CANARY},
    "another name": {"page": HOME, CANARY: CANARY},
    "a field more": {"page": {**HOME, CANARY: CANARY, "name.size": CANARY}},
    **{f"a text for {name!r}": {"page": {**HOME, name: CANARY}} for name in HOME},
    **{f"a number for {name!r}": {"page": {**HOME, name: 5.5}} for name in HOME},
}
Door = Callable[[list[Row], RowSchema], tuple[Any, Iterable[pa.RecordBatch]]]


def _call(data: Any, row_schema: RowSchema) -> tuple[Any, Iterable[pa.RecordBatch]]:
    reader, rows = frames._typed(data, row_schema)
    return rows.shown.schema, [rows.batch(batch, place) for batch, place in frames._placed(reader)]


def _beam(elements: list[Any], row_schema: RowSchema) -> tuple[Any, Iterable[pa.RecordBatch]]:
    dofn = _ToBatches(row_schema.of_types({}))
    dofn.start_bundle()
    batches = [batch for element in elements for batch in dofn.process(element, GlobalWindow())]
    return None, batches + [windowed.value for windowed in dofn.finish_bundle()]


PAGE = pa.struct({"name": pa.string(), "size": pa.int64(), "at": pa.string(), "tags": pa.list_(pa.string())})
SCHEMA = pa.schema({"user": pa.string(), "flat": pa.string(), "page": PAGE})
Event = NamedTuple("Event", [(name, Any) for name in SCHEMA.names])


def _columns(rows: list[Row]) -> dict[str, list[Any]]:
    """Of rows that fit into these columns, whose names are the same with and without the odd one."""
    if any(row.keys() - set(SCHEMA.names) for row in rows):
        raise InputError("no column has this name")
    return {name: [row.get(name) for row in rows] for name in SCHEMA.names}


def _pandas(rows: list[Row]) -> pd.DataFrame:
    made = {name: pd.Series(dtype=object, data=np.empty(len(rows), object)) for name in SCHEMA.names}
    for name, values in _columns(rows).items():
        made[name][:] = values
    return pd.DataFrame(made)


def _arrow(rows: list[Row]) -> pa.Table:
    try:
        return pa.Table.from_pydict(_columns(rows), SCHEMA)
    except (pa.ArrowException, TypeError):
        raise InputError("the frame cannot hold the row") from None


def _json(rows: list[Row], row_schema: RowSchema) -> tuple[Any, Iterable[pa.RecordBatch]]:
    """As a job reads a file of them, in blocks of a few rows."""
    asked = Columns(row_schema.user, row_schema.items, row_schema.count, row_schema.explode, prepare=row_schema.prepare)
    if isinstance(row_schema, PersonRows):
        asked = dataclasses.replace(asked, time=row_schema.at, conditions=row_schema.steps)
    else:
        asked = dataclasses.replace(asked, window=row_schema.window, carried=row_schema.values)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_json, "BLOCK_BYTES", 400)
        inputs = expand_inputs([put(Path(folder), "events.jsonl", json_lines(rows))])
        types = column_types(inputs, asked)
        batches = [batch for file in inputs.files for task in split_file(file, inputs.format, asked)
                   for batch in read_batches(task, asked, types)]  # fmt: skip
    if not isinstance(row_schema, PersonRows):
        return types.keys(asked).schema, batches
    known = row_schema.of_schema(types.schema)
    return known.shown.schema, [known.batch(batch, Place()) for batch in batches]


DOORS: dict[str, Door] = {
    "a list of dicts": _call,
    "a dict of lists": lambda rows, row_schema: _call(_columns(rows), row_schema),
    "pandas": lambda rows, row_schema: _call(_pandas(rows), row_schema),
    "Arrow": lambda rows, row_schema: _call(_arrow(rows), row_schema),
    "Polars": lambda rows, row_schema: _call(polars.from_arrow(_arrow(rows)), row_schema),
    "DuckDB": lambda rows, row_schema: _call(duckdb.from_arrow(_arrow(rows)), row_schema),
    "JSON lines": _json,
    "Beam: dicts": _beam,
    "Beam: rows": lambda rows, row_schema: _beam([beam.Row(**row) for row in rows], row_schema),
    "Beam: named tuples": lambda rows, row_schema: _beam(
        [Event(*row) for row in zip(*_columns(rows).values(), strict=True)], row_schema
    ),
    "Beam: pandas": lambda rows, row_schema: _beam([_pandas(rows)], row_schema),
}


DOORS_OF_COLUMNS = {"a dict of lists", "pandas", "Arrow", "Polars", "DuckDB", "Beam: named tuples", "Beam: pandas"}


def reached(door: str, rows: list[Row], row_schema: RowSchema) -> Any:
    """What reaches the mechanism of the others, and the types of the result; None where the job is refused."""
    try:
        schema, batches = DOORS[door](rows, row_schema)
    except InputError as error:
        assert CANARY not in str(error), f"{door}: a refusal shows a value, or a name that one row alone has"
        return None
    tables = [pa.Table.from_batches([batch]).to_pylist() for batch in batches]
    held = [tuple(row.items()) for table in tables for row in table]
    return str(schema), sorted(repr(row) for row in held if "odd" not in repr(row))


def audit(door: str, parameter: str) -> int:
    """How many odd rows were taken; an AssertionError where one changes the others."""
    row_schema, taken = ASKED[parameter], 0
    without = reached(door, others(), row_schema)
    for name, odd in ODD.items() if without is not None else ():
        row = {"user": "odd", "flat": "odd", **odd}
        first, last = reached(door, [row, *others()], row_schema), reached(door, [*others(), row], row_schema)
        words = f"{door}, {parameter}: one more row, {name},"
        assert (first is None) == (last is None), f"{words} is refused in one order alone"
        assert first is None or first == last == without, f"{words} changes the others"
        taken += first is not None
    return taken


@pytest.mark.parametrize("parameter", ASKED)
@pytest.mark.parametrize("door", DOORS)
def test_one_more_row_changes_nothing_of_the_others(door, parameter):
    # Frames have the columns that they have: no row brings one. Most others are read by themselves.
    assert audit(door, parameter) >= (9 if door in DOORS_OF_COLUMNS else len(ODD) // 2)


def _by_columns(rows: Any, path: str, name: str, place: Place) -> list[Any] | None:
    """The known bug: a name that one row has is the column of all."""
    return [row.get(path) for row in rows] if any(path in row for row in rows) else _fields_of(rows, path, name, place)


_fields_of = python_values.fields_of


def test_the_audit_sees_a_way_that_is_told_by_all_rows(monkeypatch):
    monkeypatch.setattr(frames, "fields_of", _by_columns)
    for parameter in ASKED:
        with pytest.raises(AssertionError, match="one more row, the name .* changes the others"):
            audit("a list of dicts", parameter)
