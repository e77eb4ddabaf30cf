"""Which rows of files are kept, whatever format they have; and row groups of Parquet that need not be read."""

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.columns.conditions import parse_condition
from headcount.mechanisms.columns.preparation import preparation
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.sources import parquet as source
from tests.pipelines.sources.event_files import avro, batches, json_lines, parquet, put, refusal, rows, types_of

RECORDS = [
    {"user": "u1", "item": "a", "country": "de", "age": 30, "paid": True},
    {"user": None, "item": None, "country": "fr", "age": 17, "paid": False},
    {"user": "u3", "item": "c", "country": "fr", "age": 40, "paid": True},
    {"user": "u4", "item": "d", "country": None, "age": None, "paid": None},
]
COLUMNS = {name: [record[name] for record in RECORDS] for name in RECORDS[0]}
TYPES = {"user": "string", "item": "string", "country": "string", "age": "long", "paid": "boolean"}
CSV = "user,item,country,age,paid\nu1,a,de,30,true\n,,fr,17,false\nu3,c,fr,40,true\nu4,d,,,\n"
FILES = {
    "e.parquet": parquet(COLUMNS, row_group_size=2),
    "e.avro": avro([(name, ["null", kind]) for name, kind in TYPES.items()], RECORDS),
    "e.csv": CSV.encode(),
    "e.jsonl": json_lines(RECORDS),
}
CONDITIONS = {
    "age >= 18": ["u1", "u3"],
    "country = fr and paid = true": ["u3"],
    "not (age < 18) or age is null": ["u1", "u3", "u4"],
    "country in (de, fr) and item != c and item is not null": ["u1"],
    "country is null": ["u4"],
    "age > 1000": [],
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("where", CONDITIONS)
def test_the_same_rows_of_every_format(tmp_path, name, where):
    path = put(tmp_path, name, FILES[name])
    found = rows(path, prepare=preparation(where))
    assert [row["user"] for row in found] == CONDITIONS[where]
    assert all(row.keys() == {"user", "item"} for row in found)


@pytest.mark.parametrize("name", FILES)
def test_a_public_table_beside_rows_of_every_format(tmp_path, name):
    path = put(tmp_path, name, FILES[name])
    prepare = preparation("region = west", {"country": ["fr", "it"], "region": ["west", "south"]}, "country")
    assert rows(path, item="region", prepare=prepare) == [{"user": u, "region": "west"} for u in (None, "u3")]
    assert types_of(path, item="region", prepare=prepare).keys is not None


def test_keys_of_a_table_have_the_type_of_the_rows(tmp_path):
    table = {"age": [30, 17], "group": ["old", "young"]}
    for name in FILES:
        path, prepare = put(tmp_path, name, FILES[name]), preparation("group = old", table, "age")
        if name == "e.csv":
            assert "column 'age' is string, and int64 in the table of join" in refusal(path, prepare=prepare)
        else:
            assert [row["user"] for row in rows(path, prepare=prepare)] == ["u1"]


@pytest.mark.parametrize("name", FILES)
def test_a_column_that_is_not_there(tmp_path, name):
    path = put(tmp_path, name, FILES[name])
    message = refusal(path, prepare=preparation("contry = de"))
    assert "no column 'contry', did you mean 'country'?" in message and "'age'" in message
    twice = preparation(join={"country": ["de"], "item": ["x"]}, on="country")
    if "json" not in name:  # of which no schema tells the columns: what one row has beside must not decide it
        assert "column 'item' is in the rows and in the table of join" in refusal(path, prepare=twice)


def test_values_are_refused_before_any_row_is_read(tmp_path, monkeypatch):
    path = put(tmp_path, "e.parquet", FILES["e.parquet"])
    monkeypatch.setattr(source, "read", None)
    message = refusal(path, ParameterError, prepare=preparation("age > 17.5"))
    assert (
        message
        == "where 'age > 17.5': column 'age' is int64: '17.5' is no whole number, and the column holds whole numbers"
    )


def test_json_has_the_types_that_are_asked_for(tmp_path):
    path = put(tmp_path, "e.jsonl", json_lines([{"user": "u", "item": "i", "p": 0.5}]))
    assert len(rows(path, prepare=preparation("p < 1"))) == 1
    assert "column 'p' is not a string, as it is compared with" in refusal(path, prepare=preparation("p = 0.5"))


def test_files_must_agree_on_what_is_compared(tmp_path):
    put(tmp_path, "1.parquet", parquet({"user": ["u"], "item": ["i"], "n": pa.array([5], pa.int16())}))
    put(tmp_path, "2.parquet", parquet({"user": ["v"], "item": ["i"], "n": pa.array([7], pa.int64())}))
    assert [row["user"] for row in rows(f"{tmp_path}/*.parquet", prepare=preparation("n > 6"))] == ["v"]
    put(tmp_path, "3.parquet", parquet({"user": ["w"], "item": ["i"], "n": ["9"]}))
    assert "column 'n' is string, but int64 in" in refusal(f"{tmp_path}/*.parquet", prepare=preparation("n > 6"))


def test_rows_have_their_numbers_unless_some_are_left_out(tmp_path):
    path = put(tmp_path, "e.parquet", parquet({"user": ["a", "b"] * 4, "item": list("xy") * 4}, row_group_size=4))
    for where, first in (("user != z", b"1"), ("user = a", None)):
        found = list(batches(path, prepare=preparation(where)))
        assert [batch.schema.metadata.get(b"headcount.first_row") for batch in found] == [first]


def groups_read(monkeypatch, path, where, **more):
    """The row groups that are read, and the rows that are kept."""
    seen, read = [], source._batches

    def watched(file, names, groups, most):
        seen.extend(range(groups.start, groups.stop))
        return read(file, names, groups, most)

    monkeypatch.setattr(source, "_batches", watched)
    found = rows(path, prepare=preparation(where), **more)
    monkeypatch.setattr(source, "_batches", read)
    return seen, found


NOON = datetime.datetime(2026, 11, 1, 12)


def sorted_log() -> dict[str, pa.Array]:
    """Forty rows in row groups of ten, with columns that grow from one to the next."""
    each = range(40)
    return {
        "user": pa.array([f"u{k}" for k in each]),
        "item": pa.array(["i"] * 40),
        "n": pa.array(each, pa.int32()),
        "text": pa.array([f"t{k:02d}" for k in each]),
        "real": pa.array([float("nan") if k == 35 else k / 2 for k in each]),
        "at": pa.array(
            [NOON + datetime.timedelta(days=k // 10, microseconds=k) for k in each], pa.timestamp("ns", "UTC")
        ),
        "day": pa.array([(NOON + datetime.timedelta(days=k // 10)).date() for k in each]),
        "flag": pa.array([k >= 30 for k in each]),
        "maybe": pa.array([None if k < 30 else "x" for k in each]),
        "inner": pa.array([{"n": k} for k in each]),
    }


@pytest.mark.parametrize(
    ("where", "read"),
    [
        ("n < 15", [0, 1]),
        ("n in (5, 35)", [0, 3]),
        ("not (n < 15) and n <= 29", [1, 2]),
        ("text >= 't30'", [3]),
        ("text = t05 or text = t39", [0, 3]),
        ("real > 17", [3]),
        ("real is null", [0, 1, 2, 3]),
        ("at = 2026-11-02", [1]),
        ("at > 2026-11-03T12:00:00.000020Z", [2, 3]),
        ("day != 2026-11-01 and day < 2026-11-03", [1]),
        ("flag = true", [3]),
        ("maybe is not null", [3]),
        ("maybe = x", [3]),
        ("inner.n >= 25", [2, 3]),
        ("n > 100", []),
        ("n < 5 or country = de", None),
    ],
)
@pytest.mark.parametrize("statistics", [True, False])
def test_row_groups_that_hold_no_such_row_are_not_read(tmp_path, monkeypatch, where, read, statistics):
    log = sorted_log() | {"country": pa.array(["at", "de"] * 20)}
    content = parquet(log, row_group_size=10, write_statistics=statistics)
    seen, found = groups_read(monkeypatch, put(tmp_path, "e.parquet", content), where)
    assert seen == ([0, 1, 2, 3] if read is None or not statistics else read)
    mask = parse_condition(where).mask(log | {"inner.n": log["n"]}, Place())
    assert [row["user"] for row in found] == log["user"].filter(mask).to_pylist()


@pytest.mark.parametrize("seed", range(8))
def test_the_same_rows_with_and_without_statistics(tmp_path, monkeypatch, seed):
    rng = np.random.default_rng(seed)
    log = sorted_log()
    order = pa.array(np.concatenate([rng.permutation(20), 20 + rng.permutation(20)]))
    log = {name: each.take(order) for name, each in log.items()}
    paths = [
        put(tmp_path, f"{told}.parquet", parquet(log, row_group_size=4, write_statistics=told))
        for told in (True, False)
    ]
    skipped = 0
    for _ in range(10):
        a, b = rng.integers(0, 40, 2)
        one = rng.choice([f"n >= {a}", f"n != {a}", f"text < 't{a:02d}'", f"real <= {a / 2}", "flag = false"])
        two = rng.choice(
            [f"n < {b}", f"text in (t{b:02d}, t01)", "maybe is null", "at <= 2026-11-02", "not day = 2026-11-01"]
        )
        where = f"{one} {rng.choice(['and', 'or', 'and not'])} ({two})"
        (seen, with_), (every, without) = (groups_read(monkeypatch, path, where) for path in paths)
        assert with_ == without and len(every) == 10
        skipped += 10 - len(seen)
    assert skipped


def test_folders_are_skipped_by_their_names(tmp_path, monkeypatch):
    for day in ("2026-11-01", "2026-11-02", "__HIVE_DEFAULT_PARTITION__"):
        folder = tmp_path / f"day={day}"
        folder.mkdir()
        pq.write_table(pa.table({"user": [f"u{day}"], "item": ["i"]}), folder / "e.parquet")
    seen, found = groups_read(monkeypatch, str(tmp_path), "day = 2026-11-02")
    assert [row["user"] for row in found] == ["u2026-11-02"] and seen == [0]
    _, found = groups_read(monkeypatch, str(tmp_path), "day >= 2026-11-02")
    assert [row["user"] for row in found] == ["u2026-11-02"]
    seen, found = groups_read(monkeypatch, str(tmp_path), "day is null")
    assert len(found) == len(seen) == 1
