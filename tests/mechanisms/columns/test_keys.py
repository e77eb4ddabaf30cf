"""Keys: names that never collide, and key columns that come back as they were."""

from __future__ import annotations

import datetime
import decimal
import uuid

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.columns import nested
from headcount.mechanisms.columns.key_column import KeyColumn, parse_column, parse_columns
from headcount.mechanisms.columns.keys import Keys, resolve
from headcount.mechanisms.columns.row_schema import asked
from headcount.mechanisms.errors import InputError, ParameterError

DAY = datetime.date(2026, 11, 1)
MOMENT = datetime.datetime(2026, 11, 1, 13, 45, 7, 123456)
MARKS = [
    "",
    "a",
    "\x1f",
    "\x1b",
    "\x1b1",
    "\x1b2",
    "\x1f\x1f",
    "a\x1fb",
    "1",
    "-",
    "ä",
    "€",
    "😀",
    "a\x00",
    "\x1b\x1f1",
    "2\x1b",
]
TYPES = {
    "string": pa.array(MARKS),
    "large_string": pa.array(MARKS, pa.large_string()),
    "string_view": pa.array(MARKS, pa.string_view()),
    "dictionary": pa.array(MARKS).dictionary_encode(),
    **{f"int{bits}": pa.array([0, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1], f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": pa.array([0, 1, 2**bits - 1], f"uint{bits}") for bits in (8, 16, 32, 64)},
    "bool": pa.array([False, True]),
    "date32": pa.array([DAY, datetime.date(1, 1, 1), datetime.date(1969, 12, 31)], pa.date32()),
    "date64": pa.array([DAY, datetime.date(1969, 12, 31)], pa.date64()),
    **{f"timestamp_{unit}": pa.array([0, -1, 1_793_540_707], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")},
    "timestamp_utc": pa.array([0, -1, 1_793_540_707], pa.timestamp("ms", "UTC")),
    "time32": pa.array([0, 86_399], pa.time32("s")),
    "time64": pa.array([0, 86_399_999_999], pa.time64("us")),
    "decimal": pa.array(list(map(decimal.Decimal, ("0.0000001", "-1", "12345.6789"))), pa.decimal128(30, 10)),
    "decimal256": pa.array(list(map(decimal.Decimal, ("0.1", "-1"))), pa.decimal256(50, 2)),
    "uuid": pa.array([uuid.UUID(int=k).bytes for k in (0, 1, 2**127 + 5)], pa.uuid()),
}
AS_TEXT = {"large_string", "string_view", "dictionary", "decimal", "decimal256", "uuid"}  # in the output


def keys_of(columns: dict[str, pa.Array], specs: list[str] | None = None, zone: str = "UTC") -> Keys:
    chosen = parse_columns(specs or list(columns))
    return resolve(chosen, {name: column.type for name, column in columns.items()}, zone=zone)


def through(columns: dict[str, pa.Array], specs: list[str] | None = None, zone: str = "UTC") -> list[pa.Array]:
    keys = keys_of(columns, specs, zone)
    names = keys.encode(columns)
    return keys.decode(names.dictionary_decode() if isinstance(names, pa.DictionaryArray) else names)


@pytest.mark.parametrize("kind", TYPES)
def test_one_column_comes_back_as_it_was(kind):
    (back,) = through({"x": TYPES[kind]})
    if kind in AS_TEXT:
        assert back.type == pa.string()
        back = back if kind != "uuid" else pa.array([uuid.UUID(text).bytes for text in back.to_pylist()], pa.uuid())
        expected = {"decimal": ["0.0000001", "-1", "12345.6789"], "decimal256": ["0.1", "-1"]}
        assert back.to_pylist() == expected.get(kind, TYPES[kind].to_pylist())
    else:
        assert back.equals(TYPES[kind])


@pytest.mark.parametrize("seed", range(20))
def test_two_keys_never_collide_and_all_come_back(seed):
    rng = np.random.default_rng(seed)
    chosen = list(rng.choice(list(TYPES), 3))
    columns = {
        f"c{k}_{kind}": pa.concat_arrays([TYPES[kind].slice(i, 1) for i in rng.integers(0, len(TYPES[kind]), 500)])
        for k, kind in enumerate(chosen)
    }
    keys = keys_of(columns)
    names = keys.encode(columns)
    rows = list(zip(*(column.to_pylist() for column in columns.values()), strict=True))
    assert names.null_count == 0 and len(set(zip(names.to_pylist(), rows, strict=True))) == len(set(rows))
    assert len(set(names.to_pylist())) == len(set(rows))
    for column, back, field in zip(columns.values(), keys.decode(names), keys.fields, strict=True):
        if back.type == column.type:
            assert back.equals(column)
        assert back.type == field.shown


def test_every_pair_of_odd_texts_has_a_name_of_its_own():
    pairs = [(a, b) for a in MARKS for b in MARKS]
    columns = {"a": pa.array([a for a, _ in pairs]), "b": pa.array([b for _, b in pairs])}
    keys = keys_of(columns)
    names = keys.encode(columns)
    assert len(set(names.to_pylist())) == len(pairs)
    assert list(zip(*(column.to_pylist() for column in keys.decode(names)), strict=True)) == pairs


def test_without_escapes_keys_would_collide(monkeypatch):
    monkeypatch.setattr("headcount.mechanisms.columns.keys._escaped", lambda values: values)
    names = keys_of(TYPES | {"a": pa.array([""])}, ["a", "string"]).encode(
        {"a": pa.array(["x\x1fy", "x"]), "string": pa.array(["z", "y\x1fz"])}
    )
    assert len(set(names.to_pylist())) == 1


def test_a_null_in_one_column_is_a_null_key():
    columns = {"a": pa.array(["x", None, "x"]), "b": pa.array([1, 2, None])}
    assert keys_of(columns).encode(columns).to_pylist() == ["x\x1f1", None, None]
    assert keys_of(columns, ["b"]).encode(columns).to_pylist() == [1, 2, None]
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["x", None]))
    assert keys_of({"a": coded}).encode({"a": coded}).to_pylist() == ["x", None, None]


def test_a_slice_has_the_names_of_its_rows():
    columns = {"a": pa.array(MARKS), "u": pa.array([uuid.UUID(int=k).bytes for k in range(len(MARKS))], pa.uuid())}
    keys = keys_of(columns)
    cut = {name: column.slice(3, 5) for name, column in columns.items()}
    assert keys.encode(cut).to_pylist() == keys.encode(columns).to_pylist()[3:8]


def test_one_plain_column_is_its_own_name():
    texts, numbers = pa.array(["a\x1fb", "\x1b"]), pa.array([3, -1], pa.int32())
    assert keys_of({"x": texts}).encode({"x": texts}) is texts
    assert keys_of({"x": numbers}).encode({"x": numbers}).equals(pa.array([3, -1], pa.int64()))
    assert keys_of({"x": texts}).item_type is str and keys_of({"x": numbers}).item_type is int


def test_units_of_time():
    moments = pa.array(
        [MOMENT, datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime.datetime(2024, 2, 29)],
        pa.timestamp("us"),
    )
    units = {unit: through({"t": moments}, [f"t:{unit}"])[0].to_pylist() for unit in ("day", "week", "month", "year")}
    assert units["day"] == [DAY, datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)]
    assert units["week"] == [datetime.date(2026, 10, 26), datetime.date(1969, 12, 29), datetime.date(2024, 2, 26)]
    assert units["month"] == [DAY, datetime.date(1969, 12, 1), datetime.date(2024, 2, 1)]
    assert units["year"] == [2026, 1969, 2024]
    (hours,) = through({"t": moments}, ["t:hour"])
    assert hours.type == pa.timestamp("s", "UTC")
    assert [each.replace(tzinfo=None) for each in hours.to_pylist()][:2] == [
        datetime.datetime(2026, 11, 1, 13),
        datetime.datetime(1969, 12, 31, 23),
    ]


def test_units_in_a_time_zone():
    late = pa.array([datetime.datetime(2026, 10, 31, 23, 30)])  # in Berlin it is tomorrow
    assert through({"t": late}, ["t:day"], "Europe/Berlin")[0].to_pylist() == [DAY]
    assert through({"t": late}, ["t:day"])[0].to_pylist() == [datetime.date(2026, 10, 31)]
    # Clocks go back at 1:00 UTC: two hours that a clock in Berlin calls 2, and four rows in them.
    back = pa.array([datetime.datetime(2026, 10, 25, hour, minute) for hour in (0, 1) for minute in (5, 55)])
    hours = through({"t": back}, ["t:hour"], "Europe/Berlin")[0]
    assert [each.timestamp() % 86_400 for each in hours.to_pylist()] == [0, 0, 3600, 3600]
    half = through({"t": pa.array([datetime.datetime(2026, 1, 1, 0, 45)])}, ["t:hour"], "Asia/Kolkata")[0]  # 6:15 there
    assert half.cast(pa.int64()).to_pylist() == [1_767_225_600 + 30 * 60]


def test_dates_are_the_same_in_every_zone():
    dates = [DAY, datetime.date(2026, 1, 1)]
    texts = pa.array([*map(str, dates), "2026-11-01T03:00:00Z"])
    for zone in ("America/Los_Angeles", "Pacific/Auckland"):
        assert through({"t": pa.array(dates)}, ["t:day"], zone)[0].to_pylist() == dates
        assert through({"t": pa.array(dates)}, ["t:year"], zone)[0].to_pylist() == [2026, 2026]
        assert through({"t": texts}, ["t:day"], zone)[0].to_pylist()[:2] == dates
    assert through({"t": texts}, ["t:day"], "America/Los_Angeles")[0].to_pylist()[2] == datetime.date(2026, 10, 31)


def test_units_of_texts_are_those_of_their_times():
    texts = [
        "2026-11-01",
        "2026-11-01T13:45:07.5Z",
        "2026-11-01 13:45",
        "2026-11-01T00:30:00+02:00",
        "2026-11-01T23:30-0100",
    ]
    days = through({"t": pa.array([*texts, None])}, ["t:day"])[0].to_pylist()
    assert days == [DAY, DAY, DAY, datetime.date(2026, 10, 31), datetime.date(2026, 11, 2), None]
    for wrong in ("yesterday", "2026-13-01", "2026-11-01T25:00", ""):
        with pytest.raises(InputError, match="no date or time like") as caught:
            through({"t": pa.array([texts[0], wrong])}, ["t:day"])
        assert wrong == "" or wrong not in str(caught.value)


def test_bins():
    edges = "0,18,30.5,65"
    numbers = [-1, 0, 17, 18, 30, 31, 65, 2**62]
    labels = ["< 0", "[0, 18)", "[0, 18)", "[18, 30.5)", "[18, 30.5)", "[30.5, 65)", ">= 65", ">= 65"]
    for column in (pa.array(numbers), pa.array(list(map(float, numbers))), pa.array(list(map(str, numbers)))):
        assert through({"age": column}, [f"age:{edges}"])[0].to_pylist() == labels
    assert keys_of({"age": pa.array([1])}, [f"age:{edges}"]).encode(
        {"age": pa.array([float("nan"), None, 1.0])}
    ).to_pylist() == [
        None,
        None,
        1,
    ]
    small = pa.array([0, 255], pa.uint8())
    assert through({"x": small}, ["x:-5,255,1000"])[0].to_pylist() == ["[-5, 255)", "[255, 1000)"]
    large = pa.array([2**53 + 1, 2**53 + 2])
    assert through({"x": large}, [f"x:{2**53 + 2}"])[0].to_pylist() == [f"< {2**53 + 2}", f">= {2**53 + 2}"]
    money = pa.array([decimal.Decimal("17.99"), decimal.Decimal("18.00")])
    assert through({"x": money}, ["x:18"])[0].to_pylist() == ["< 18", ">= 18"]
    with pytest.raises(InputError, match="no number"):
        through({"x": pa.array(["1", "many"])}, ["x:18"])


def test_texts_as_integers():
    assert through({"x": pa.array(["0", "-7", None])}, ["x:int"])[0].to_pylist() == [0, -7, None]
    for wrong in ("007", "+1", "1.0", "", str(2**63)):
        with pytest.raises(InputError, match="leave out :int"):
            through({"x": pa.array(["1", wrong])}, ["x:int"])


def test_rows_are_sorted_by_their_keys():
    columns = {"country": pa.array(["b", "a", "b", "a"]), "age": pa.array([70, 5, 20, 40])}
    keys = keys_of(columns, ["country", "age:0,18,30,65"])
    released = pa.RecordBatch.from_pydict({"item": keys.encode(columns), "count": pa.array([1.0, 2.0, 3.0, 4.0])})
    assert keys.restore(released).to_pydict() == {
        "country": ["a", "a", "b", "b"],
        "age": ["[0, 18)", "[30, 65)", "[18, 30)", ">= 65"],
        "count": [2.0, 4.0, 3.0, 1.0],
    }
    ranked = pa.RecordBatch.from_pydict({"rank": [1, 2], "item": keys.encode(columns).slice(0, 2)})
    assert keys.restore(ranked).to_pydict() == {"rank": [1, 2], "country": ["b", "a"], "age": [">= 65", "[0, 18)"]}
    large = pa.RecordBatch.from_pydict({"item": pa.array([-1, 5]), "count": pa.array([1.0, 2.0])})
    unsigned = keys_of({"n": pa.array([1], pa.uint64())})
    assert unsigned.restore(large).to_pydict() == {"n": [5, 2**64 - 1], "count": [2.0, 1.0]}
    assert unsigned.restore(large.slice(0, 0)).schema.names == ["n", "count"]


def test_what_people_type():
    assert parse_column("page") == KeyColumn("page")
    assert parse_column("viewed_at:day") == KeyColumn("viewed_at", "day")
    assert parse_column("age:0,18,30.5") == KeyColumn("age", edges=(0, 18, 30.5))
    assert parse_column("ns\\:page:week") == KeyColumn("ns:page", "week")
    assert parse_column("viewed_at:day").name == "viewed_at_day"
    for spec in ("page", "viewed_at:day", "age:0,18,30.5", "ns\\:page:week", "id:int"):
        assert parse_column(spec).spec == spec
    for wrong in ("ns:page", "a:b:day", "age:18,", "age:18,x", ":day", ""):
        with pytest.raises(ParameterError, match="column"):
            parse_column(wrong)
    with pytest.raises(ParameterError, match="ascending"):
        parse_column("age:18,0")
    for large in ("1e400", "1" + 400 * "0"):
        with pytest.raises(ParameterError, match="must begin at numbers of 64 bits"):
            parse_column(f"age:18,{large}")
    with pytest.raises(ParameterError, match="2 times"):
        parse_columns(["page", "page"])
    assert parse_columns(["t:day", "t:hour"])[1].name == "t_hour"


@pytest.mark.parametrize(
    ("column", "spec", "told"),
    [
        (pa.array([1.5]), "x", "into bins, by their edges: x:0,18,30,65"),
        (pa.array([["a"]]), "x", "--explode x"),
        (pa.array([{"id": 1}]), "x", r"for instance x\.id"),
        (pa.array([b"a"]), "x", "convert it first"),
        (pa.array(["a"]).cast(pa.binary()), "x", "convert it first"),
        (pa.array([1]), "x:day", "is for dates and times"),
        (pa.array([True]), "x:0,1", "bins are for numbers"),
        (pa.array([1.5]), "x:int", "whole numbers"),
    ],
)
def test_what_cannot_be_a_key_is_refused_with_the_way_out(column, spec, told):
    with pytest.raises(InputError, match=told):
        keys_of({"x": column}, [spec])


def test_fields_of_objects_and_elements_of_lists():
    batch = pa.RecordBatch.from_pylist(
        [{"user": {"id": 1}, "tags": ["a", "b"]}, {"user": None, "tags": []}, {"user": {"id": 3}, "tags": ["c"]}]
    )
    assert nested.found_type(batch.schema, "user.id") == pa.int64()
    assert nested.found_type(batch.schema, "user.name") is None and nested.found_type(batch.schema, "who") is None
    ids = nested.column_at(batch, "user.id")
    assert ids.to_pylist() == [1, None, 3]
    rows = nested.exploded({"id": ids, "tags": batch.column("tags")}, "tags")
    assert {name: column.to_pylist() for name, column in rows.items()} == {"id": [1, 1, 3], "tags": ["a", "b", "c"]}
    dotted = pa.RecordBatch.from_pydict({"user.id": ["whole"], "user": [{"id": 1}]})
    assert nested.column_at(dotted, "user.id").to_pylist() == ["whole"]
    cut = nested.exploded({"tags": batch.column("tags").slice(2, 1)}, "tags")
    assert cut["tags"].to_pylist() == ["c"]


def test_what_released_rows_say_beside_themselves_stays():
    rows = pa.RecordBatch.from_pydict({"item": ["b", "a"], "count": [1.0, 2.0]}, metadata={"left": "out"})
    restored = keys_of({"x": pa.array(["a"])}).restore(rows)
    assert restored.schema.metadata == {b"left": b"out"} and restored.to_pydict() == {
        "x": ["a", "b"],
        "count": [2.0, 1.0],
    }


def test_times_that_nothing_can_show_are_refused_by_their_row_and_never_shown():
    beyond = 2**62
    cases = [
        *((pa.timestamp(unit, zone), beyond) for unit in ("s", "ms", "us") for zone in (None, "UTC", "Europe/Berlin")),
        (pa.date64(), beyond // 86_400_000 * 86_400_000),
        (pa.date32(), 2**30),
    ]
    units = ("", ":day", ":week", ":month", ":year")
    for kind, value in cases:
        for number in (value, -value):
            held = pa.array([0, None, number], pa.int32() if kind == pa.date32() else pa.int64()).view(kind)
            for unit in units if pa.types.is_date(kind) else (*units, ":hour"):
                for zone in ("UTC", "Asia/Tokyo"):
                    with pytest.raises(InputError) as refused:
                        row_schema = asked("u", f"at{unit}", time_zone=zone).of_schema(
                            pa.schema([("u", pa.string()), ("at", kind)])
                        )
                        row_schema.batch(pa.record_batch({"u": ["a", "b", "c"], "at": held}), Place("f", 1))
                    assert str(refused.value) == "f: column 'at', row 3: holds a time outside of the years 1 to 9999"
    clock = pa.array([0, 86_399_999_999, 86_400_000_000]).view(pa.time64("us"))
    row_schema = asked("u", "at").of_schema(pa.schema([("u", pa.string()), ("at", clock.type)]))
    with pytest.raises(InputError, match="row 3: holds a time of day beyond 24 hours"):
        row_schema.batch(pa.record_batch({"u": ["a", "b", "c"], "at": clock}), Place("f", 1))


def test_the_first_and_the_last_day_are_known_and_a_zone_goes_no_further():
    days = pa.record_batch({"u": ["a", "b"], "at": ["0001-01-01", "9999-12-31"]})
    row_schema = asked("u", "at:day", time_zone="Asia/Tokyo").of_schema(days.schema)
    assert row_schema.batch(days, Place("f", 1)).num_rows == 2
    late = pa.record_batch({"u": ["a"], "at": ["9999-12-31T23:00:00Z"]})
    with pytest.raises(InputError, match="outside of the years 1 to 9999"):
        asked("u", "at:hour", time_zone="Asia/Tokyo").of_schema(late.schema).batch(late, Place("f", 1))
