"""Whole calls and pipelines: 400 users are published as they are, whatever one more user holds in the column."""

from __future__ import annotations

import datetime
import decimal
import zoneinfo
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import headcount
from headcount.transforms import Budget, Contributions, Histogram

pytestmark = pytest.mark.filterwarnings("ignore:.*promises little")

D = decimal.Decimal
USERS = 400
LATE = datetime.datetime(2026, 2, 28, 23, 30)  # in Tokyo, the first of March
UTC, TOKYO, LIMA = (zoneinfo.ZoneInfo(name) for name in ("UTC", "Asia/Tokyo", "America/Lima"))
EXACT = {
    "of": "events",
    "method": "one-stage",
    "bound": 1,
    "noise": "laplace",
}  # with noise of 1 in 10,000, which nobody sees
WINDOWS = {"protect": "user-day", "time": "x"}

# What is asked for, what all others hold (of each user, one or two), what one more holds, and what is published of the others.
CASES: dict[str, tuple[dict[str, Any], list[Any], list[Any], dict[Any, int]]] = {
    "bins of decimals": ({"item": "x:0,0.1,0.5"}, [D("0.1")], [D("0.123456"), D("1E-30")], {"[0.1, 0.5)": USERS}),
    "decimals": ({"item": "x"}, [D("1.5")], [D("0.123456"), D("7")], {"1.5": USERS}),
    "days": ({"item": "x:day", "time_zone": "Asia/Tokyo"}, [LATE], [LATE.date(), LATE.replace(tzinfo=LIMA)],
             {datetime.date(2026, 3, 1): USERS}),
    "times": ({"item": "x"}, [LATE.replace(tzinfo=UTC)], [LATE.replace(tzinfo=TOKYO)], {LATE.replace(tzinfo=UTC): USERS}),
    "user-days": ({"item": "item", "time_zone": "Asia/Tokyo", **WINDOWS}, [LATE, LATE + datetime.timedelta(minutes=-30 * 20)],
                  [LATE.date(), datetime.date(2026, 1, 1)], {"i": 2 * USERS}),
    "integers": ({"item": "x"}, [5], [2.5, 2**63, True, "5", None], {5: USERS}),
}  # fmt: skip


def columns(values: list[Any], first: list[Any], last: list[Any]) -> dict[str, list[Any]]:
    held = [("odd", each) for each in first]
    held += [(f"u{k}", each) for k in range(USERS) for each in values] + [("odd", each) for each in last]
    return {"user": [user for user, _ in held], "x": [each for _, each in held], "item": ["i"] * len(held)}


def in_a_call(data: Any, item: str, **given: Any) -> tuple[pa.DataType, dict[Any, int]] | None:
    shared = {"user": "user", "item": item, "epsilon": 1e4, "delta": 1e-4, "drop_null": True, **EXACT, **given}
    try:
        table = headcount.histogram(data, **shared).table
    except headcount.InputError:
        return None
    return table.schema.types[0], dict(zip(*(table[name].to_pylist() for name in table.column_names[:2]), strict=True))


def of_pandas(held: dict[str, list[Any]]) -> pd.DataFrame:
    objects = np.empty(len(held["x"]), object)
    objects[:] = held["x"]
    return pd.DataFrame(held | {"x": pd.Series(objects, dtype=object)})  # or pandas would guess from the rows


DATA = {
    "a dict of lists": lambda held: held,
    "a list of dicts": lambda held: [dict(zip(held, row, strict=True)) for row in zip(*held.values(), strict=True)],
    "pandas": of_pandas,
    "pandas, in the index": lambda held: of_pandas(held)[["user", "item"]].set_axis(
        pd.Index(of_pandas(held)["x"].to_numpy(), dtype=object, name="x")
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", DATA)
def test_a_call_publishes_the_others_as_they_are(case, kind):
    asked, values, odd, expected = CASES[case]
    without = in_a_call(DATA[kind](columns(values, [], [])), **asked)
    assert without is not None and without[1] == pytest.approx(expected, abs=1)
    for each in odd:
        first, last = (in_a_call(DATA[kind](columns(values, *ends)), **asked) for ends in (([each], []), ([], [each])))
        for found in (first, last):
            if found is not None:
                assert found[0] == without[0] and {key: found[1][key] for key in expected} == pytest.approx(
                    expected, abs=2
                )
        assert (first is None) == (last is None)


def _itself(element: Any) -> Any:
    return element


def in_a_pipeline(elements: list[Any], collect: Any, **asked: Any) -> dict[Any, int]:
    """Of elements of which nothing is known but what each of them holds."""

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        unknown = pipeline | beam.Create(elements) | beam.Map(_itself).with_output_types(Any)
        return unknown | Contributions(**asked) | Histogram(Budget(1e4, 1e-4), **EXACT)

    return {row[0]: row.bounded_count for row in collect(build)}


@pytest.mark.parametrize("case", ["bins of decimals", "days", "user-days"])
def test_a_pipeline_publishes_the_others_as_they_are(case, collect):
    """Frames come one by one, each of its own kind; rows of one bundle have one kind, or are refused."""
    asked, values, odd, expected = CASES[case]
    parts = [*(columns([], [each], []) for each in odd), columns(values, [], [])]
    found = in_a_pipeline(list(map(of_pandas, parts)), collect, **asked)
    assert {key: found[key] for key in expected} == pytest.approx(expected, abs=2)
    rows = [row for part in parts for row in DATA["a list of dicts"](part)]
    if case != "bins of decimals":
        with pytest.raises(Exception, match="several kinds, date and datetime"):
            in_a_pipeline(rows, collect, **asked)
        return
    found = in_a_pipeline(rows, collect, **asked)
    assert {key: found[key] for key in expected} == pytest.approx(expected, abs=2)


def test_a_column_that_tells_no_type_is_refused_where_the_result_would_show_it():
    """Were it a text until somebody has an integer, the type of the result would tell that one user is there."""
    nobody: dict[str, list[Any]] = {"user": ["a"], "x": [None], "tags": [[]], "item": ["i"]}
    for data in (nobody, of_pandas(nobody), {"user": [], "x": [], "tags": []}):
        assert in_a_call(data, "x") is None
        assert in_a_call(data, "tags", explode="tags") is None
    for item, shown in (("x:0,1", pa.string()), ("x:day", pa.date32()), ("x:int", pa.int64())):
        assert in_a_call(nobody, item) == (shown, {})
    assert in_a_call(pa.table({"user": pa.array([], "string"), "x": pa.array([], "int8")}), "x") == (pa.int8(), {})


DAYS = {"time": "at", "from_": "2026-11-02", "to": "2026-11-08"}
PEOPLE: dict[str, dict[str, Any]] = {
    "activity": {},
    "actives": DAYS,
    "funnel": {"time": "at", "step": ["item=i", "item=j"]},
    "retention": DAYS,
}


@pytest.mark.parametrize("where", [None, "item = i"])
@pytest.mark.parametrize("name", PEOPLE)
def test_a_value_of_by_that_one_user_alone_has_tells_no_type(name, where):
    """Else the result's column would be a text without that user, and with it a number, a date or a truth."""
    ask = {"user": "user", "by": "x", "epsilon": 1e4, "delta": 1e-4, "drop_null": True, "where": where, **PEOPLE[name]}
    others = [{"user": f"u{k}", "item": "i", "at": datetime.date(2026, 11, 2), "x": None} for k in range(USERS)]
    with pytest.raises(headcount.InputError, match="'x' holds no value that tells its type"):
        getattr(headcount, name)(others, **ask)
