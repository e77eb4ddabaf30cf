"""One more user with an odd value changes no name, type, bin or day of the others: it is counted by itself, or refused.

What is published of a row must be a function of this row and of declared parameters. If it also depended on which other values
a column holds, one user would move all others with probability 1, and no noise hides that. So for every kind of Python value
and every way in, the others are compared, exactly, with and without the odd user, who comes first or last. A refusal is
allowed, since a job that fails publishes nothing; it must then come in both orders. Typed columns: `test_typed_columns.py`.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import itertools
import uuid
import zoneinfo
from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp

from headcount.mechanisms.batches import python_values
from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.batches.frames import frame_reader, table_of
from headcount.mechanisms.columns import fields
from headcount.mechanisms.columns.row_schema import RowSchema, asked
from headcount.mechanisms.columns.value_ranges import AutoRange, ValueRange
from headcount.mechanisms.errors import InputError
from headcount.mechanisms.sampled.axis import Axis, leaf_column
from headcount.mechanisms.sampled.leaves import Leaves
from headcount.transforms.core.contributions import _ToBatches

D = decimal.Decimal
TOKYO, LIMA = zoneinfo.ZoneInfo("Asia/Tokyo"), zoneinfo.ZoneInfo("America/Lima")
NOON = datetime.datetime(2026, 3, 1, 12)
LATE = datetime.datetime(2026, 2, 28, 23, 30)  # in Tokyo, already the next day and month

# What the others hold, by kind.
OTHERS: dict[str, list[Any]] = {
    "str": ["a", "1.5", "2026-03-01", ""],
    "numbers in texts": ["0.1", "0.5", "7"],
    "days in texts": ["2026-03-01", "2026-02-28T23:30:00Z"],
    "bool": [True, False],
    "int": [0, 1, 2**53 + 3, -7],
    "small int": [0, 1, 5],
    "numpy int": [np.int16(0), np.int16(5)],
    "float": [0.1, 0.5, -0.0, 1e300],
    "Decimal": [D("0.1"), D("1.50"), D("1.5"), D("0.3"), D("-7"), D("1E+3"), D("0")],
    "date": [NOON.date(), LATE.date()],
    "datetime": [NOON, LATE],
    "datetime with a zone": [LATE.replace(tzinfo=datetime.UTC), NOON.replace(tzinfo=TOKYO)],
    "pandas times": [pd.Timestamp(LATE), pd.Timestamp(NOON)],
    "Beam's times": [Timestamp.from_utc_datetime(each.replace(tzinfo=datetime.UTC)) for each in (LATE, NOON)],
    "time": [datetime.time(1, 2, 3)],
    "timedelta": [datetime.timedelta(seconds=5)],
    "UUID": [uuid.UUID(int=k) for k in (1, 2)],
    "list": [["a", "b"], ["b"]],
}
ODD: list[Any] = [
    *(value for values in OTHERS.values() for value in values[:2]),
    *map(D, ("0.123456", "1E-20", "1E-38", "1E-39", "1E+37", "1E+60", "NaN", "Infinity", "12345678901234567890.5")),
    *(2**53, -(2**53) - 1, 2**62, 2**63, 2**64 - 1, 2**70, np.uint64(2**63), np.float32(0.1), np.int64(3)),
    *(0.30000000000000004, float("nan"), float("inf"), -1e308, np.float64(2.5), np.longdouble(1) / 3),
    *(
        None,
        pd.NaT,
        pd.NA,
        np.datetime64("NaT"),
        object(),
        1j,
        b"x",
        "",
        "odd",
        {"a": 1},
        [1],
        [],
        [None],
        (D("0.25"),),
    ),
    *(NOON.replace(tzinfo=LIMA), NOON.replace(tzinfo=datetime.UTC), datetime.datetime.min, datetime.date.max),
    *(datetime.datetime.min.replace(tzinfo=TOKYO), datetime.datetime.max.replace(tzinfo=LIMA)),
    *(
        pd.Timestamp("2026-03-01T12:00:00.000000001"),
        pd.Timestamp(0, tz="Asia/Tokyo"),
        np.datetime64("2026-03-01", "D"),
    ),
    *(np.datetime64("2026-03-01T12", "ns"), datetime.time(1, tzinfo=TOKYO), np.timedelta64(1, "ns"), np.str_("x")),
]
SOME_ODD = [
    *(values[0] for values in OTHERS.values()),
    *(
        D("0.123456"),
        D("1E+60"),
        2**63,
        2**53,
        float("nan"),
        None,
        pd.NaT,
        object(),
        {"a": 1},
        NOON.replace(tzinfo=LIMA),
    ),
]
MADE = ["x", "x:0,0.1,0.3,1.5", "x:0,9007199254740996", "x:int", "x:hour", "x:day", "x:month"]
SPECS = [*MADE, "exploded", "window"]

Rows = list[tuple[str, Any]]
WayIn = Callable[[Rows, RowSchema], tuple[Any, Iterable[pa.RecordBatch]]]


def _of_table(table: pa.RecordBatchReader, row_schema: RowSchema) -> tuple[Any, Iterable[pa.RecordBatch]]:
    row_schema = row_schema.of_schema(table.schema)
    return row_schema.shown.schema, [row_schema.batch(batch, Place()) for batch in table]


def _columns(rows: Rows) -> dict[str, list[Any]]:
    """With an item of its own, which every window has."""
    return {"user": [user for user, _ in rows], "x": [value for _, value in rows], "item": ["i"] * len(rows)}


def _frame(rows: Rows) -> pd.DataFrame:
    held = _columns(rows)
    objects = np.empty(len(rows), object)
    objects[:] = held["x"]
    return pd.DataFrame(held | {"x": pd.Series(objects, dtype=object)})


def _beam(elements: list[Any], row_schema: RowSchema) -> tuple[Any, Iterable[pa.RecordBatch]]:
    """Rows or frames of which no type is known, in one bundle."""
    row_schema = row_schema.of_types({})
    dofn = _ToBatches(row_schema)
    dofn.start_bundle()
    batches = [batch for element in elements for batch in dofn.process(element, GlobalWindow())]
    return row_schema.shown.schema, batches + [windowed.value for windowed in dofn.finish_bundle()]


def _dicts(rows: Rows) -> list[dict[str, Any]]:
    return [dict(zip(("user", "x", "item"), row, strict=True)) for row in zip(*_columns(rows).values(), strict=True)]


WAYS_IN: dict[str, WayIn] = {
    "a dict of lists": lambda rows, row_schema: _of_table(
        table_of(_columns(rows), row_schema.columns).to_reader(), row_schema
    ),
    "pandas": lambda rows, row_schema: _of_table(frame_reader(_frame(rows), row_schema.columns), row_schema),
    "Beam: dicts": lambda rows, row_schema: _beam(_dicts(rows), row_schema),
    "Beam: rows": lambda rows, row_schema: _beam([beam.Row(**row) for row in _dicts(rows)], row_schema),
    "Beam: one pandas frame": lambda rows, row_schema: _beam([_frame(rows)], row_schema),
    "Beam: pandas frames": lambda rows, row_schema: _beam(
        [_frame(list(group)) for _, group in itertools.groupby(rows, lambda row: row[0] == "odd")], row_schema
    ),
}


@functools.cache
def _row_schema(spec: str) -> RowSchema:
    if spec == "window":
        return asked("user", "item", drop_null=True, time_zone="Asia/Tokyo", protect="user-day", time="x")
    explode = "x" if spec == "exploded" else None
    return asked("user", "x" if explode else spec, drop_null=True, time_zone="Asia/Tokyo", explode=explode)


def published(rows: Rows, way: str, spec: str) -> Any:
    """All that is published of the others: the schema, and the names of units and items, by rows; None if it is refused."""
    try:
        schema, batches = WAYS_IN[way](rows, _row_schema(spec))
    except InputError as error:
        assert "\n" not in str(error)
        return None
    pairs = [(row["user"], row["item"]) for batch in batches for row in batch.to_pylist()]
    return schema, sorted(pair for pair in pairs if not str(pair[0]).startswith("odd"))


def audit(way: str, kind: str, odd_values: Iterable[Any] = ODD) -> dict[str, int]:
    """How many odd users were taken, by what is asked for; an AssertionError where one changes the others."""
    others = [(f"u{k}", value) for k, value in enumerate(OTHERS[kind] * 2)]
    taken: dict[str, int] = {}
    for spec in SPECS:
        without = published(others, way, spec)
        if without is None:
            continue
        taken[spec] = 0
        for odd in odd_values:
            first = published([("odd", odd), *others], way, spec)
            last = published([*others, ("odd", odd)], way, spec)
            words = f"{way}, {kind}, {spec}: one more user with a {type(odd).__name__}"
            assert (first is None) == (last is None), f"{words} is refused in one order alone"
            assert first is None or first == last == without, f"{words} changes the others"
            taken[spec] += first is not None
    return taken


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("way", WAYS_IN)
def test_one_more_user_changes_nothing_of_the_others(way, kind):
    taken = audit(way, kind, ODD if way == "a dict of lists" else [*OTHERS[kind], *SOME_ODD])
    # A call counts every kind somehow, also beside users without a value or with one of this kind. In Beam, a key of which
    # nothing is known is a text or an integer.
    assert taken or (way.startswith("Beam") and kind in ("bool", "Decimal", "time", "timedelta"))
    assert all(many > 2 for many in taken.values())


def guessed(values: list[Any], name: str, place: Place) -> pa.Array:
    """The known bug: Arrow looks at all values, and at the first ones most of all."""
    try:
        return pa.array([None if value is pd.NA else value for value in values], from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise InputError("holds values of several types") from None


def test_the_audit_sees_types_that_are_guessed_from_rows(monkeypatch):
    monkeypatch.setattr(python_values, "_of_python", guessed)
    seen = "changes the others|is refused in one order alone"
    for way in WAYS_IN:
        if way != "Beam: pandas frames":  # the odd one has a frame of its own
            with pytest.raises(AssertionError, match=seen):
                audit(way, "datetime", [NOON.date()])
    for way in ("a dict of lists", "pandas"):
        with pytest.raises(AssertionError, match=seen):
            audit(way, "datetime with a zone", [NOON.replace(tzinfo=LIMA)])
        audit(way, "Decimal", [D("0.123456")])  # since no name depends on the type of decimals; but if one did:
        with monkeypatch.context() as patch, pytest.raises(AssertionError, match=seen):
            patch.setattr(fields, "decimal_names", lambda array: array.cast(pa.string()))
            audit(way, "Decimal", [D("0.123456")])


def test_the_audit_sees_integers_that_floats_round(monkeypatch):
    monkeypatch.setattr(python_values, "_check_small", lambda *_: None)
    with pytest.raises(AssertionError, match="9007199254740996: one more user with a float changes the others"):
        audit("a dict of lists", "int", [0.5])


AXES = {
    "number": (Axis("number"), Leaves(0, 10, 1000)),
    "time": (Axis("time"), Leaves(1.77e15, 1.78e15, 1000)),
    "date": (Axis("date"), Leaves(1.77e15, 1.78e15, 1000)),
}
VALUES: dict[str, Callable[[pa.Array], pa.Array]] = {
    **{
        f"leaves of a {kind}": lambda column, axis=axis, leaves=leaves: leaf_column(
            column, axis, leaves, "x", drop_null=True
        )
        for kind, (axis, leaves) in AXES.items()
    },
    "a range": ValueRange("x", 0, 3).fixed_point,
    "a range that is chosen": AutoRange("x").fixed_point,
}


def audit_values(kind: str, odd_values: Iterable[Any] = ODD) -> int:
    """The same for columns of values: the others' leaves, and numbers in the range."""
    taken = 0
    for name, made in VALUES.items():

        def found(values: list[Any], made: Callable[[pa.Array], pa.Array] = made) -> list[Any] | None:
            try:
                return made(python_values.column_of(values, "x", Place())).to_pylist()
            except InputError:
                return None

        without = found(OTHERS[kind])
        for odd in odd_values if without is not None else ():
            first, last = found([odd, *OTHERS[kind]]), found([*OTHERS[kind], odd])
            assert (first is None) == (last is None), f"{name}: {type(odd).__name__} is refused in one order alone"
            assert first is None or first[1:] == last[:-1] == without, (
                f"{name}: {type(odd).__name__} changes the others"
            )
            taken += first is not None
    return taken


@pytest.mark.parametrize("kind", OTHERS)
def test_one_more_value_changes_no_leaf_and_no_number_of_the_others(kind):
    no_values = ("str", "bool", "time", "timedelta", "UUID", "list")
    assert (audit_values(kind) > 10) == (kind not in no_values)


def test_the_audit_sees_values_that_are_guessed_from_rows(monkeypatch):
    monkeypatch.setattr(python_values, "_of_python", guessed)
    monkeypatch.setattr(
        "headcount.mechanisms.columns.value_ranges.decimal_floats", lambda array: array.cast(pa.float64())
    )
    for kind, odd in (("Decimal", D("0.123456")), ("date", NOON), ("datetime", NOON.date())):
        with pytest.raises(AssertionError, match="changes the others|is refused in one order alone"):
            audit_values(kind, [odd])
