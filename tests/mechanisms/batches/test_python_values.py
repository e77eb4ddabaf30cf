"""Python values become columns by their kind: one type for each, whatever else the column holds, or a refusal."""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
import zoneinfo
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Timestamp

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.batches.python_values import DECIMAL, TIME, column_of, fields_of
from headcount.mechanisms.errors import InputError

CANARY = "hunter2"
D = decimal.Decimal
TOKYO = zoneinfo.ZoneInfo("Asia/Tokyo")
PLACE = Place("log", 100)


class Colour(enum.IntEnum):
    RED = 3


def column(values: Any) -> pa.Array:
    return column_of(values, "what", PLACE)


@pytest.mark.parametrize(
    ("values", "type_", "made"),
    [
        (["a", np.str_("b")], pa.string(), ["a", "b"]),
        ([True, np.bool_(False)], pa.bool_(), [True, False]),
        ([1, np.int8(2), np.uint64(3), Colour.RED], pa.int64(), [1, 2, 3, 3]),
        ([0.5, np.float32(0.1), np.float16(2), np.longdouble(3)], pa.float64(), [0.5, float(np.float32(0.1)), 2.0, 3.0]),
        ([1, 2.5, np.int32(3)], pa.float64(), [1.0, 2.5, 3.0]),
        ([D("0.10"), D("1E+37"), D("1E-38"), D("0E+999"), D("-0"), D("1." + 100 * "0")], DECIMAL,
         [D("0.1"), D("1E+37"), D("1E-38"), 0, 0, 1]),
        ([datetime.date(2026, 1, 2), np.datetime64("2026-01-02"), np.datetime64("2026-01")], pa.date32(),
         [datetime.date(2026, 1, 2), datetime.date(2026, 1, 2), datetime.date(2026, 1, 1)]),
        ([datetime.datetime(2026, 1, 2, 3), pd.Timestamp("2026-01-02T03:00:00.000000999"),
          np.datetime64("2026-01-02T03:00:00.000000999"), np.datetime64("2026-01-02T03")], pa.timestamp("us"),
         [datetime.datetime(2026, 1, 2, 3)] * 4),
        ([datetime.datetime(2026, 1, 2, 9, tzinfo=TOKYO), pd.Timestamp("2026-01-02", tz="UTC"), Timestamp(1767312000)],
         TIME, [datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)] * 3),
        ([datetime.time(1, 2)], pa.time64("us"), [datetime.time(1, 2)]),
        ([datetime.timedelta(1), np.timedelta64(24, "h"), pd.Timedelta(days=1)], pa.duration("us"),
         [datetime.timedelta(1)] * 3),
        ([b"x"], pa.binary(), [b"x"]),
        ([uuid.UUID(int=5)], pa.string(), ["00000000-0000-0000-0000-000000000005"]),
        ([["a"], ("b", None), np.array(["c"], object), []], pa.list_(pa.string()), [["a"], ["b", None], ["c"], []]),
    ],
)  # fmt: skip
def test_each_kind_has_one_type_and_missing_values_change_none(values, type_, made):
    assert column(values).type == type_ and column(values).to_pylist() == made
    for missing in (None, float("nan"), D("NaN"), D("sNaN"), pd.NaT, pd.NA, np.datetime64("NaT"), np.float32("nan")):
        for where in (0, len(values)):
            found = column([*values[:where], missing, *values[where:]])
            assert found.type == type_ and found.to_pylist() == [*made[:where], None, *made[where:]], repr(missing)


ONE_OF_EACH = {
    "str": CANARY,
    "bool": True,
    "int": 1,
    "float": 0.5,
    "Decimal": D("0.5"),
    "date": datetime.date(2026, 1, 2),
    "datetime": datetime.datetime(2026, 1, 2),
    "datetime with a zone": datetime.datetime(2026, 1, 2, tzinfo=TOKYO),
    "time": datetime.time(1),
    "timedelta": datetime.timedelta(1),
    "bytes": b"x",
    "UUID": uuid.UUID(int=5),
    "list": ["a"],
    "dict": {"a": 1},
}


@pytest.mark.seconds
@pytest.mark.parametrize("one", ONE_OF_EACH)
@pytest.mark.parametrize("other", ONE_OF_EACH)
def test_two_kinds_are_refused_in_every_order(one, other):
    if one == other or {one, other} == {"int", "float"}:
        return
    values = [ONE_OF_EACH[one]] * 3
    kinds = " and ".join(sorted((one, other)))
    for where in range(4):
        with pytest.raises(InputError) as refused:
            column([*values[:where], ONE_OF_EACH[other], *values[where:]])
        assert f"several kinds, {kinds}; convert it" in str(refused.value) and CANARY not in str(refused.value)
        assert f"log: column 'what', row {100 + max(where, 1)}: " in str(refused.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (2**63, "an integer beyond 64 bits"),
        (np.uint64(2**63), "an integer beyond 64 bits"),
        (D("1E+38"), "more than 38 digits"),
        (D("1E-39"), "more than 38 digits"),
        (D("-Infinity"), "more than 38 digits before or behind its point, or an infinite one"),
        (f"{CANARY}\ud800", "text that is no valid Unicode"),
    ],
)
def test_a_value_that_its_type_cannot_hold_is_refused_by_itself(value, words):
    others = [type(value)(1)] * 2 if not isinstance(value, str) else ["a"] * 2
    for values, row in (([value, *others], 100), ([*others, value], 102)):
        with pytest.raises(InputError, match=f"column 'what', row {row}: holds .*{words}") as refused:
            column(values)
        assert CANARY not in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([object()], "values of type object, which no column has"),
        ([MAX_TIMESTAMP], "values of type Timestamp, which no column has"),
        ([np.datetime64(2**60, "s")], "values of type datetime64, which no column has"),
        ([np.timedelta64(5, "M")], "values of type timedelta64, which no column has"),
        ([datetime.time(1, tzinfo=datetime.UTC)], "values of type time with a zone, which no column has"),
        ([{"a": CANARY}], "objects: name one of their fields, for instance what.id"),
        ([[1], ["a"]], "several kinds, int and str"),
        (CANARY, "is no list of values"),
        (7, "is no list of values"),
        (np.array([1j]), "of a type that Arrow has none for"),
        ([2.5, 2**53], "row 101: holds floats, and an integer of 2\\^53 or more"),
        ([-(2**53), 2.5], "row 100: holds floats, and an integer of 2\\^53 or more"),
    ],
)
def test_what_no_column_holds_is_refused_without_the_value(values, words):
    with pytest.raises(InputError, match=words) as refused:
        column(values)
    assert CANARY not in str(refused.value)


def test_no_value_is_of_no_type():
    for values in ([], [None, float("nan")], pd.Series([], dtype=object), pd.Series([pd.NaT, None], dtype=object)):
        assert column(values).type == pa.null()


def test_decimals_are_the_same_in_every_context():
    long = D("1.00000000000000000000000000000000001")
    with decimal.localcontext(prec=3):
        assert column([long, D("0E+999")]).to_pylist() == [long, 0]


def test_columns_that_declare_a_type_have_it():
    float32 = np.array([0.5], np.float32)
    assert column(pa.array([1], pa.int8())).type == pa.int8()
    assert column(float32).type == pa.float32() and column(pd.Series(float32)).type == pa.float32()
    assert column(pl.Series(["a"], dtype=pl.Categorical)).to_pylist() == ["a"]
    assert column(pd.Series([1, None], dtype="Int16")).to_pylist() == [1, None]
    assert column(pd.Series(["a", None], dtype="string")).to_pylist() == ["a", None]
    assert column(pd.date_range("2026", periods=1, tz="Asia/Tokyo")).type == pa.timestamp("ns", "Asia/Tokyo")
    assert column(pd.Series([1.5], dtype=pd.SparseDtype(float))).type == pa.float64()
    assert column(pd.Series([0.5, None])).null_count == 1, "pandas has no other way to say so"
    assert column(range(3)).type == pa.int64()


def test_objects_in_pandas_are_python_values_also_as_categories():
    for decimals in (["0.1"], ["0.1", "0.123456"]):
        held = pd.Series(list(map(D, decimals)), dtype=object)
        assert column(held).type == DECIMAL and column(held.to_numpy()).type == DECIMAL
        coded = column(pd.Series([*held, None], dtype="category"))
        assert coded.type.value_type == DECIMAL and coded.null_count == 1
    with pytest.raises(InputError, match="column 'what': holds values of several kinds, date and str"):
        column(pd.Categorical(["a", datetime.date(2026, 1, 1)]))


def test_fields_of_objects():
    objects = [{"id": {"n": 1}}, None, {"id": None}, {}, float("nan")]
    assert fields_of(objects, "id.n", "user", PLACE) == [1, None, None, None, None]
    assert fields_of(objects, "name", "user", PLACE) is None
    assert fields_of([None], "id", "user", PLACE) == [None]
    with pytest.raises(InputError, match="column 'user', row 101: is no object with fields"):
        fields_of([{"id": 1}, CANARY], "id", "user", PLACE)
