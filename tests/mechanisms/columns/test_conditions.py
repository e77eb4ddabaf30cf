"""Conditions: the same rows as SQL's WHERE, values by the types of columns, and mistakes shown where they are."""

from __future__ import annotations

import datetime
import decimal
import pickle
import uuid

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.columns.conditions import ColumnRange, Condition, parse_condition
from headcount.mechanisms.errors import InputError, ParameterError

ROWS = 60
WORDS = ["", "a", "b", "de", "DE", "it's", "two words", "10", "9", "ä", "and", "null", "x)y", "a,b", 'say "no"']
MOMENT = datetime.datetime(2026, 11, 1)


def kept(text: str, **columns) -> list[bool]:
    arrays = {name: each if isinstance(each, pa.Array) else pa.array(each) for name, each in columns.items()}
    return parse_condition(text).mask(arrays, Place()).to_pylist()


# Columns of random values, of every type: how one is drawn, how it is written in a condition, and in SQL.
KINDS = {
    "text": (pa.string(), lambda rng: str(rng.choice(WORDS))),
    "small": (pa.int8(), lambda rng: int(rng.integers(-4, 4))),
    "large": (pa.int64(), lambda rng: 2**53 + int(rng.integers(-2, 3))),
    "unsigned": (pa.uint64(), lambda rng: 2**64 - 1 - int(rng.integers(0, 3))),
    "real": (pa.float64(), lambda rng: float(rng.choice([-1.5, -0.0, 0.0, 0.1, 0.25, 1e300]))),
    "single": (pa.float32(), lambda rng: float(np.float32(rng.choice([0.1, 0.2, 3.0])))),
    "exact": (pa.decimal128(30, 2), lambda rng: decimal.Decimal(int(rng.integers(-300, 300))) / 100),
    "flag": (pa.bool_(), lambda rng: bool(rng.integers(2))),
    "day": (pa.date32(), lambda rng: MOMENT.date() + datetime.timedelta(days=int(rng.integers(-2, 3)))),
    "moment": (pa.timestamp("us"), lambda rng: MOMENT + datetime.timedelta(seconds=int(rng.integers(-3, 4)) / 2)),
}


def drawn_table(rng: np.random.Generator) -> pa.Table:
    columns = {
        name: pa.array([None if rng.random() < 0.2 else draw(rng) for _ in range(ROWS)], found)
        for name, (found, draw) in KINDS.items()
    }
    columns["text"] = columns["text"].dictionary_encode() if rng.random() < 0.5 else columns["text"]
    return pa.table(columns)


def drawn_value(rng: np.random.Generator, name: str, ordered: bool) -> tuple[str, str]:
    """A value as a condition has it, and as SQL has it."""
    value = KINDS[name][1](rng)
    if name == "text":
        quoted = "'" + value.replace("'", "''") + "'"
        bare = value.isalnum() and value not in ("and", "null") and not ordered
        other = '"' + value.replace('"', '""') + '"'
        return (value if bare and rng.random() < 0.5 else str(rng.choice([quoted, other]))), quoted
    if name in ("day", "moment"):
        told = value.isoformat()
        return told, f"{'DATE' if name == 'day' else 'TIMESTAMP'} '{told}'"
    if name == "flag":
        return str(value).lower(), str(value).lower()
    if name == "exact" and rng.random() < 0.5:
        value = value + decimal.Decimal("0.005")  # between two values of the column
    if name == "small" and rng.random() < 0.2:
        value = int(rng.choice([-1000, 1000]))  # beyond the type of the column
    told = str(value)
    return told, f"CAST({told} AS FLOAT)" if name == "single" else f"CAST({told} AS DOUBLE)" if name == "real" else told


def drawn_condition(rng: np.random.Generator, depth: int) -> tuple[str, str]:
    kind = int(rng.integers(6)) if depth else 5
    if kind < 3:
        (a, x), (b, y) = drawn_condition(rng, depth - 1), drawn_condition(rng, depth - 1)
        by = ("and", "or", "OR")[kind]
        if rng.random() < 0.5:
            return f"{a} {by} {b}", f"{x} {by} {y}"
        return f"({a}) {by} ({b})", f"({x}) {by} ({y})"
    if kind == 3:
        a, x = drawn_condition(rng, depth - 1)
        return f"not ({a})", f"NOT ({x})"
    name = str(rng.choice(list(KINDS)))
    if rng.random() < 0.15:
        by = str(rng.choice(["is null", "is not null", "IS NOT NULL"]))
        return f"{name} {by}", f"{name} {by}"
    if rng.random() < 0.3:
        by = str(rng.choice(["in", "not in"]))
        values = [drawn_value(rng, name, False) for _ in range(int(rng.integers(1, 4)))]
        return tuple(f"{name} {by} ({', '.join(each)})" for each in zip(*values, strict=True))
    orders = [] if name == "flag" else ["<", "<=", ">", ">="]
    by = str(rng.choice(["=", "==", "!=", "<>", *orders]))
    here, there = drawn_value(rng, name, by in orders)
    gap = str(rng.choice(["", " "]))
    return f"{name}{gap}{by}{gap}{here}", f"{name} {by} {there}"


@pytest.mark.parametrize("seed", range(60))
def test_the_same_rows_as_sql(seed):
    rng = np.random.default_rng(seed)
    rows = drawn_table(rng)
    arrays = {name: rows.column(name).combine_chunks() for name in rows.column_names}
    numbered = rows.append_column("row", pa.array(range(ROWS)))
    with duckdb.connect() as connection:
        connection.register("rows", numbered)
        for _ in range(8):
            text, sql = drawn_condition(rng, 3)
            condition = parse_condition(text)
            again = pickle.loads(pickle.dumps(parse_condition(condition.text)))
            assert again.text == condition.text
            expected = {row for (row,) in connection.execute(f"SELECT row FROM rows WHERE {sql}").fetchall()}
            for each in (condition, again):
                mask = each.mask(arrays, Place())
                assert mask.null_count == 0
                assert set(np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist()) == expected, (text, sql)


@pytest.mark.parametrize("seed", range(60))
def test_what_is_impossible_by_the_ends_of_columns_holds_for_no_row(seed):
    rng = np.random.default_rng(seed)
    ruled_out = 0
    for _ in range(40):
        rows = drawn_table(rng).slice(0, 3)
        arrays = {name: rows.column(name).combine_chunks() for name in rows.column_names}
        ranges = {name: range_of(array) for name, array in arrays.items() if rng.random() < 0.9}
        condition = parse_condition(drawn_condition(rng, 2)[0])
        if not condition.possible(ranges):
            ruled_out += 1
            assert not any(condition.mask(arrays, Place()).to_pylist()), condition.text
    assert ruled_out


def range_of(array: pa.Array) -> ColumnRange:
    values = array.dictionary_decode() if isinstance(array, pa.DictionaryArray) else array
    known = sorted(values.drop_null().to_pylist())
    ends = pa.array([known[0], known[-1]], values.type) if known else None
    return ColumnRange(ends, values.null_count > 0 or pa.types.is_floating(values.type), not known)


def test_columns_and_text():
    condition = parse_condition("user.id=7 and (page==/cart?a=1 OR `odd name` <> \"it's\") and not page in ('/', b)")
    assert condition.columns == ("user.id", "page", "odd name")
    assert condition.text == "user.id = 7 and (page = /cart?a=1 or `odd name` != 'it''s') and not (page in (/, b))"
    assert isinstance(condition, Condition) and hash(condition) == hash(parse_condition(condition.text))


def test_words_need_no_quotes():
    pages = ["/cart", "/", None]
    assert kept("page=/cart", page=pages) == [True, False, False]
    assert kept("page!=/cart", page=pages) == [False, True, False]
    assert kept("page not in (/cart)", page=pages) == [False, True, False]
    assert kept("not page=/cart", page=pages) == [False, True, False]


def test_texts_are_compared_as_they_are_written():
    assert kept("zip = 007", zip=["007", "7"]) == [True, False]
    assert kept("zip = 7.0", zip=["7.0", "7"]) == [True, False]


def test_texts_have_the_order_of_what_they_are_compared_with():
    assert kept("age >= 10", age=["9", "10", "1e3", None]) == [False, True, True, False]
    assert kept("age >= '10'", age=["9", "10", "1e3", None]) == [True, True, True, False]
    at = ["2026-11-01", "2026-10-31T23:59:59.999999999Z", "2026-11-02 00:30+01:00", "2026-11-02"]
    assert kept("at >= 2026-11-01", at=at) == [True, False, True, True]
    assert kept("at <= 2026-11-01", at=at) == [True, True, True, False]
    assert kept("at > 2026-10-31T23:59:59.999999998Z", at=at) == [True, True, True, True]
    assert kept("at > 2026-10-31T23:59:59.999999999Z", at=at) == [True, False, True, True]


def test_texts_that_are_no_numbers_are_refused_by_their_row_alone():
    for text in ("age > 5", "age < 2026-11-01"):
        with pytest.raises(InputError, match=r"f\.csv: column 'age', row 12: .*") as raised:
            parse_condition(text).mask(
                {"age": pa.array(["2026-11-01" if "-" in text else "7", "secret"])}, Place("f.csv", 11)
            )
        assert "secret" not in str(raised.value)
    unused = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(["7", "secret"]))
    assert kept("age > 5", age=unused) == [True]


def test_whole_numbers_are_exact():
    large = pa.array([2**53, 2**53 + 1, 2**63 - 1])
    assert kept(f"n = {2**53 + 1}", n=large) == [False, True, False]
    assert kept(f"n > {2**53}", n=large) == [False, True, True]
    assert kept(f"n < {2**63}", n=large) == [True, True, True]
    assert kept(f"n in ({10**30}, {2**53})", n=large) == [True, False, False]
    with pytest.raises(
        ParameterError, match=r"^where 'n > 0.5': 'n > 0.5', where column 'n' is int64: '0.5' is no whole"
    ):
        parse_condition("n > 0.5").check({"n": pa.int64()})


def test_what_is_no_number_counts_as_null():
    prices = pa.array([float("nan"), None, 1.0])
    assert kept("p > 0", p=prices) == [False, False, True]
    assert kept("not p > 0", p=prices) == [False, False, False]
    assert kept("p != 5", p=prices) == [False, False, True]
    assert kept("p is null", p=prices) == [True, True, False]
    assert kept("p in (1, 2) or p is null", p=prices) == [True, True, True]


def test_floats_are_compared_in_their_size():
    assert kept("p = 0.1", p=pa.array([0.1, 0.2], pa.float32())) == [True, False]
    assert kept("p >= 0.1", p=pa.array([np.float16(0.1), np.float16(0.05)], pa.float16())) == [True, False]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_a_date_is_the_whole_day_of_a_column_of_times(unit, zone):
    seconds = [0, 86_399, 86_400, -1]
    base = 1_793_491_200  # 2026-11-01
    at = pa.array([(base + each) * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit] for each in seconds])
    at = at.cast(pa.timestamp(unit, zone))
    assert kept("at = 2026-11-01", at=at) == [True, True, False, False]
    assert kept("at != 2026-11-01", at=at) == [False, False, True, True]
    assert kept("at <= 2026-11-01", at=at) == [True, True, False, True]
    assert kept("at > 2026-11-01", at=at) == [False, False, True, False]
    assert kept("at in (2026-11-01, 2026-11-02T00:00)", at=at) == [True, True, True, False]
    assert kept("at = 2026-11-01T23:59:59Z", at=at) == [False, True, False, False]
    assert kept("at < 2026-11-01T00:00:00.000000001", at=at) == [True, False, False, True]
    assert kept("at = '2026-11-01 01:00+01:00'", at=at) == [True, False, False, False]


def test_times_that_tell_no_zone_are_those_of_the_job():
    at = pa.array([1_793_491_200 - 3600, 1_793_491_200 - 3601], pa.timestamp("s"))  # midnight in Berlin, and before
    berlin = parse_condition("at >= 2026-11-01", zone="Europe/Berlin")
    assert berlin.mask({"at": at}, Place()).to_pylist() == [True, False]
    twice = parse_condition("at >= 2026-10-25T02:30", zone="Europe/Berlin")
    with pytest.raises(ParameterError, match="show twice, or never: add its offset"):
        twice.check({"at": at.type})
    with pytest.raises(ParameterError, match="time_zone 'Mars' is not known"):
        parse_condition("a = 1", zone="Mars")


def test_other_types():
    known = uuid.UUID(int=7)
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([known.bytes, None], pa.binary(16)))
    assert kept(f"id = {known}", id=ids) == [True, False]
    clock = pa.array([datetime.time(13, 45), datetime.time(9)], pa.time64("us"))
    assert kept("clock > 13:44:59.9999999", clock=clock) == [True, False]
    assert kept("day >= 2026-11-01", day=pa.array([MOMENT.date()], pa.date64())) == [True]
    assert kept("tags is null", tags=pa.array([["a"], None])) == [False, True]
    assert kept("x = 3 or x is null", x=pa.nulls(2)) == [True, True]


MISTAKES = {
    "": (1, "at its end: the name of a column"),
    "a": (1, "at its end: after the column 'a' a comparison"),
    "a = ": (1, "at its end: a value is needed"),
    "a > and b = 1": (5, "a value is needed"),
    "a = null": (5, "write 'is null'"),
    "a = two words": (9, "needs quotes"),
    "a = 'open": (5, "never closed"),
    "(a = 1": (1, "at its end: a parenthesis"),
    "a = 1)": (6, "no parenthesis is open"),
    "a in b": (6, "a list in parentheses"),
    "a in (b c)": (9, "',' or '\\)' is needed"),
    "a in ()": (7, "a value is needed"),
    "a is 3": (6, "'null' is needed"),
    "a => 3": (4, "a value is needed"),
    "a not like b": (7, "a comparison is needed"),
    "a = 1 b = 2": (7, "'and' or 'or' is needed"),
    "= 3": (1, "the name of a column"),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_shown_where_it_is(text):
    at, words = MISTAKES[text]
    place = "" if "at its end" in words else f"at character {at}, .*"
    with pytest.raises(ParameterError, match=f"^step .*{place}.*{words}") as raised:
        parse_condition(text, parameter="step")
    assert raised.value.parameter == "step"


@pytest.mark.parametrize(
    ("text", "found", "words"),
    [
        ("a = x", pa.int32(), "no whole number"),
        ("a = 1.0", pa.int32(), "no whole number"),
        ("a > x", pa.string(), "in quotes"),
        ("a > 2026-13-01", pa.string(), "no day of the calendar"),
        ("a = 2026-13-01", pa.date32(), "no day of the calendar"),
        ("a = 2026-11-01T10:00", pa.date32(), "the column holds dates"),
        ("a = 25:00", pa.time32("s"), "no time of a day"),
        ("a = yes", pa.bool_(), "neither true nor false"),
        ("a < true", pa.bool_(), "has no order"),
        ("a = nan", pa.float64(), "no number"),
        ("a < 1e999", pa.float64(), "beyond what the column can hold"),
        ("a = x", pa.list_(pa.string()), "by 'is null'"),
        ("a = x", pa.binary(), "by 'is null'"),
        ("a = 1", pa.decimal128(5, 2), None),
        ("a in (true, FALSE)", pa.bool_(), None),
        ("a > 5 and a < 2026-11-01", pa.string(), None),
        ("a = x", pa.null(), None),
    ],
)
def test_values_are_checked_by_the_types_of_columns(text, found, words):
    condition = parse_condition(text)
    if words is None:
        condition.check({"a": found})
        return
    with pytest.raises(ParameterError, match=f"^where .*column 'a' is .*{words}"):
        condition.check({"a": found})


def test_limits_of_a_text():
    with pytest.raises(ParameterError, match="where has 10,001 characters"):
        parse_condition("a" * 10_001)
    with pytest.raises(ParameterError, match="more than 50 parentheses"):
        parse_condition("(" * 100 + "a = 1")
    with pytest.raises(ParameterError, match="got a int"):
        parse_condition(5)  # type: ignore[arg-type]
