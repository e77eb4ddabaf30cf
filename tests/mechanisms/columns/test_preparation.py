"""What is done to rows before all else: a public table beside them, a condition, and how much a mistake tells."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.columns import preparation as module
from headcount.mechanisms.columns.preparation import Preparation, preparation, public_table
from headcount.mechanisms.columns.row_schema import asked
from headcount.mechanisms.errors import InputError, ParameterError

REGIONS = {"country": ["de", "at", "fr"], "region": ["middle", None, "west"], "members": [3, 2, 9]}
CSV = "country,region,members\nde,middle,3\nat,,2\nfr,west,9\n"
ROWS = {"user": pa.array(["u1", "u2", "u3", None]), "country": pa.array(["fr", "xx", "de", "fr"])}


def prepared(prepare: Preparation, rows: dict, *names: str) -> dict[str, list]:
    columns, _ = prepare.prepared(rows, names, Place())
    return {name: column.to_pylist() for name, column in columns.items()}


@pytest.mark.parametrize("coded", [False, True])
def test_a_row_finds_its_own_in_the_table(coded):
    rows = ROWS | {"country": pa.array(["fr", "xx", None, "at"])}
    if coded:
        rows["country"] = rows["country"].dictionary_encode()
    found = prepared(preparation(join=REGIONS, on="country"), rows, "user", "region", "members")
    assert found == {
        "user": ["u1", "u2", "u3", None],
        "region": ["west", None, None, None],
        "members": [9, None, None, 2],
    }


def test_a_join_comes_before_a_condition():
    prepare = preparation("region is not null and members > 5", REGIONS, "country")
    assert prepared(prepare, ROWS, "user", "region") == {"user": ["u1", None], "region": ["west", "west"]}
    assert prepare.read(["user", "region"]) == ("user", "country")


def test_dropped_rows_are_not_looked_at_again():
    """Neither their users nor their counts."""
    columns = {"user": pa.array(["a", None]), "item": pa.array(["x", None]), "n": pa.array([1, -1])}
    rows = pa.RecordBatch.from_pydict(columns)
    schema = asked("user", "item", "n", prepare=preparation("n >= 0")).of_schema(rows.schema)
    assert schema.batch(rows, Place("f", 1)).to_pydict() == {"user": ["a"], "item": ["x"]}
    with pytest.raises(InputError, match="is null"):
        asked("user", "item", "n", prepare=preparation("n < 9")).of_schema(rows.schema).batch(rows, Place("f", 1))


@pytest.mark.parametrize("left", [pa.int8(), pa.int64(), pa.uint32(), pa.uint64()])
@pytest.mark.parametrize("right", [pa.int16(), pa.uint64()])
def test_integers_of_any_size_find_each_other(left, right):
    table = pa.table({"k": pa.array([1, 7], right), "x": ["one", "seven"]})
    assert prepared(preparation(join=table, on="k"), {"k": pa.array([7, 2], left)}, "x") == {"x": ["seven", None]}


def test_texts_however_they_lie_in_memory():
    rows = {name: column.cast(pa.string_view()) for name, column in ROWS.items()}
    prepare = preparation("country != de and region = west", REGIONS, "country")
    assert prepared(prepare, rows, "user", "country") == {"user": ["u1", None], "country": ["fr", "fr"]}


def test_codes_for_few_texts_alone(monkeypatch):
    monkeypatch.setattr(module, "_FEW_TEXTS", 1)
    found = prepared(preparation(join=REGIONS, on="country"), ROWS, "region")
    assert found == {"region": ["west", None, "middle", "west"]}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"country": ["de", "de"]}, "row 2 has a key 'country' that an earlier row has"),
        ({"country": ["de", None]}, "row 2 has no key 'country'"),
        ({"land": ["de"]}, "has no column 'country', which on names; it has 'land'"),
        ({"country": [1.5]}, "keys are texts or whole numbers"),
        (5, "join must be the path of a .csv or .parquet file, or a frame, got a int"),
        ("regions.txt", "regions.txt' cannot be read"),
    ],
)
def test_a_table_needs_one_row_for_each_key(table, words):
    with pytest.raises(ParameterError, match=words) as raised:
        preparation(join=table, on="country")
    assert raised.value.parameter == "join"


def test_a_table_may_be_too_large(monkeypatch):
    monkeypatch.setattr(module, "MOST_KEYS", 2)
    with pytest.raises(ParameterError, match="has 3 rows; a table of more than 2 cannot be joined"):
        preparation(join=REGIONS, on="country")


def test_a_file_is_csv_or_parquet(tmp_path):
    path = tmp_path / "regions.txt"
    path.write_text(CSV)
    with pytest.raises(ParameterError, match=r"must be a .csv or .parquet file.*must be public, and never made of the"):
        preparation(join=path, on="country")


def test_both_or_none():
    with pytest.raises(ParameterError, match=r"^join needs a column .*: give on"):
        preparation(join=REGIONS)
    with pytest.raises(ParameterError, match=r"^on 'country' needs a table"):
        preparation(on="country")


def test_types_come_from_schemas():
    prepare = preparation("members > 5 and region = west", REGIONS, "country")
    with pytest.raises(InputError, match=r"^rows: column 'country' is int64, and string in the table of join"):
        prepare.of_types({"country": pa.int64()}, "rows: ")
    with pytest.raises(ParameterError, match=r"column 'members' is int64: '5.5' is no whole number"):
        preparation("members > 5.5", REGIONS, "country").of_types({"country": pa.string()})
    _, types = prepare.of_types({"country": pa.string(), "user": pa.null()})
    assert types == {"country": pa.string(), "region": pa.string(), "members": pa.int64()}


def test_a_column_that_both_have_is_refused_if_it_is_asked_for():
    prepare = preparation(join=REGIONS, on="country")
    with pytest.raises(InputError, match="column 'region' is in the rows and in the table of join: rename one"):
        asked("user", "region", prepare=prepare).of_schema(
            pa.schema([(n, pa.string()) for n in ("user", "country", "region")])
        )
    asked("user", "region", prepare=prepare).of_schema(
        pa.schema([(n, pa.string()) for n in ("user", "country", "members")])
    )
    with pytest.raises(ParameterError, match="users are told by rows"):
        asked("region", "members", prepare=prepare)


def test_columns_whose_type_nothing_tells_are_texts():
    prepare, _ = preparation("n in (7, true) and n > 5 or n = x").of_types({})
    assert prepared(preparation("n = 7").of_types({})[0], {"n": pa.array([7, 8])}, "n") == {"n": ["7"]}
    assert prepared(preparation("n = true").of_types({})[0], {"n": pa.array([True, None])}, "n") == {"n": ["true"]}
    assert prepared(preparation("n >= 7").of_types({})[0], {"n": pa.array(["10", "6"])}, "n") == {"n": ["10"]}
    with pytest.raises(InputError, match="is double, and nothing told its type"):
        prepare.prepared({"n": pa.array([0.5])}, ["n"], Place())
    joined, _ = preparation(join={"k": [7], "x": ["y"]}, on="k").of_types({})
    assert prepared(joined, {"k": pa.array([7, 8])}, "x") == prepared(joined, {"k": pa.array(["7", "8"])}, "x")


def test_a_digest_is_of_what_a_table_holds(tmp_path):
    (tmp_path / "a.csv").write_text(CSV)
    whole = pa.table(REGIONS | {"members": ["3", "2", "9"]})
    pq.write_table(whole, tmp_path / "b.parquet")
    shuffled = whole.take([2, 0, 1]).select(["members", "region", "country"])
    coded = whole.set_column(1, "region", whole.column("region").dictionary_encode())
    given = [tmp_path / "a.csv", tmp_path / "b.parquet", whole, shuffled, coded, whole.to_pandas()]
    assert len({public_table(each, "country").digest for each in given}) == 1
    others = [
        REGIONS,  # numbers
        REGIONS | {"members": ["3", "2", "8"]},
        REGIONS | {"members": ["3", "2", "9"], "region": ["middle", "", "west"]},
        {"country": ["de", "at", "fr"], "region": ["middle", None, "west"]},
    ]
    assert len({public_table(each, "country").digest for each in (whole, *others)}) == 5
    assert public_table(whole, "members").on != public_table(whole, "country").on
    floats = [{"k": ["a", "b"], "x": [0.0, each]} for each in (float("nan"), None, 0.0)]
    assert len({public_table(pa.table(each), "k").digest for each in floats}) == 3


def test_it_is_part_of_how_rows_are_read():
    plain = asked("user", "item")
    assert plain.reading == ""
    some = asked("user", "item", prepare=preparation("a==1 AND b='x'"))
    assert json.loads(some.reading) == {"where": "a = 1 and b = x"}
    both = asked("user", "item", prepare=preparation("a = 1", REGIONS, "country"))
    digest = public_table(REGIONS, "country").digest
    assert json.loads(both.reading) == {"where": "a = 1", "join": digest, "on": "country"}


def test_a_small_table_travels(tmp_path):
    path = tmp_path / "regions.csv"
    path.write_text(CSV)
    sent = pickle.dumps(preparation(join=path, on="country"))
    path.unlink()
    assert prepared(pickle.loads(sent), ROWS, "region") == {"region": ["west", None, "middle", "west"]}


def test_a_large_table_is_read_by_each_worker_once(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TRAVELS_BYTES", 10)
    monkeypatch.setattr(module, "_loaded", {})
    path, reads = tmp_path / "regions.csv", []
    path.write_text(CSV)

    def read(path: str) -> bytes:
        reads.append(path)
        with open(path, "rb") as file:
            return file.read()

    monkeypatch.setattr(module, "read_local", read)
    prepare = preparation(join=path, on="country", read=module.read_local)
    prepared(prepare, ROWS, "region")
    assert len(reads) == 1
    state = prepare.join.__getstate__()
    assert state["_held"] is None
    for _ in range(2):  # two steps of one worker
        there = module.PublicTable.__new__(module.PublicTable)
        vars(there).update(state)
        assert prepared(Preparation(there), ROWS, "region") == {"region": ["west", None, "middle", "west"]}
    assert len(reads) == 2 and reads[1] == str(path)
    for content, words in (
        (CSV + "it,south,1\n", "has changed since the job began"),
        (None, "cannot be read by a worker"),
    ):
        module._loaded.clear()
        path.write_text(content) if content else path.unlink()
        there = module.PublicTable.__new__(module.PublicTable)
        vars(there).update(state)
        with pytest.raises(InputError, match=words):
            there.beside(ROWS["country"], ["region"])


def test_each_row_by_itself():
    """What a row becomes depends on that row alone: rows prepared together are those prepared one by one."""
    rng = np.random.default_rng(3)
    prepare = preparation("(n > 2 or region = west) and not member = true", REGIONS, "country")
    rows = {
        "user": pa.array([f"u{k}" for k in range(200)]),
        "country": pa.array(rng.choice(["de", "at", "fr", "xx"], 200).tolist()),
        "n": pa.array(rng.integers(0, 5, 200)),
        "member": pa.array(rng.choice([True, False, None], 200).tolist(), pa.bool_()),
    }
    together = prepared(prepare, rows, "user", "region")
    parts = [
        prepared(prepare, {name: each.slice(k, 1) for name, each in rows.items()}, "user", "region") for k in range(200)
    ]
    assert together == {name: [value for part in parts for value in part[name]] for name in together}
    assert 0 < len(together["user"]) < 200
