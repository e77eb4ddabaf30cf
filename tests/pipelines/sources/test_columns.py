"""Columns: which are read, what they must hold, and files that disagree about them."""

import pyarrow as pa
import pytest

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.sources.columns import columns_of
from tests.pipelines.sources.event_files import (
    CANARY,
    TWO,
    avro,
    batches,
    json_lines,
    parquet,
    put,
    refusal,
    rows,
    types_of,
)


def test_columns_may_have_other_names(tmp_path):
    content = {"a.b": ["x"], "item": ["wrong"], "user": ["y"], "a": [{"b": "nested"}]}
    path = put(tmp_path, "e.parquet", parquet(content))
    assert rows(path, user="user", item="a.b") == [{"user": "y", "a.b": "x"}]


@pytest.mark.parametrize("array", [["1", "2"], [1.0, 2.0], [True, False]])
def test_counts_must_be_an_integer_column(tmp_path, array):
    path = put(tmp_path, "e.parquet", parquet({"user": TWO, "item": TWO, "n": array}))
    assert "'n'" in refusal(path, count="n") and "counts must be integers" in refusal(path, count="n")
    avro_type, word = {str: ("string",) * 2, float: ("double",) * 2, bool: ("boolean", "bool")}[type(array[0])]
    records = [{"user": CANARY, "item": CANARY, "n": value} for value in array]
    path = put(tmp_path, "e.avro", avro([("user", "string"), ("item", "string"), ("n", avro_type)], records))
    assert word in refusal(path, count="n") and "counts must be integers" in refusal(path, count="n")


@pytest.mark.parametrize("asked", ["country,page", "country, page"])
def test_columns_between_commas_are_given_one_by_one(tmp_path, asked):
    path = put(tmp_path, "e.csv", b"user,country,page\na,b,c\n")
    assert refusal(path, item=asked).endswith("; give its columns one by one: --item country --item page")
    assert refusal(path, item="country,page:day").endswith(": --item country --item page:day")
    assert "it has 'user', 'country', 'page'" in refusal(path, item="country,pages")
    path = put(tmp_path, "e.parquet", parquet({"user": TWO, "country": TWO, "page": TWO, "country,page": TWO}))
    assert rows(path, item="country,page") == [{"user": CANARY, "country,page": CANARY}] * 2


def test_the_type_of_items_is_never_taken_from_rows(tmp_path):
    """The output shows it: with one user's rows gone, an inferred type would change, and tell that they were there."""
    for held in (b"5", b"true", b'"x"'):
        path = put(tmp_path, "e.jsonl", b'{"user": "a", "item": %s}\n' % held)
        assert types_of(path).schema.field("item").type == pa.string()
    fraction = put(tmp_path, "f.jsonl", b'{"user": "a", "item": 5.5}\n')
    assert (
        f"{fraction}, row 1: column 'item' is not a string: ask for texts and whole numbers as item, for numbers in bins as"
        in refusal(fraction)
    )
    empty = put(tmp_path, "empty.jsonl", b"")
    assert types_of(empty).schema.field("item").type == pa.string()
    assert types_of(empty, item="item:int").schema.field("item").type == pa.int64()
    assert types_of(empty, item="item:0,18").schema.field("item").type == pa.float64()


def test_missing_columns(tmp_path):
    named = [{"who": CANARY, "item": CANARY}]
    files = [
        put(tmp_path, "e.parquet", parquet({"who": TWO, "item": TWO})),
        put(tmp_path, "e.avro", avro([("who", "string"), ("item", "string")], named)),
        put(tmp_path, "e.csv", f"who,item\n{CANARY},b\n".encode()),
        put(tmp_path, "e.jsonl", json_lines(named)),
    ]
    for path in files:
        assert f"{path}: no column 'user'; it has 'who', 'item'" == refusal(path)
        assert f"{path}: no column 'n'; it has 'who', 'item'" == refusal(path, user="who", count="n")
    # Names that may be data are not told.
    message = refusal(put(tmp_path, "keys.jsonl", json_lines([{CANARY: 3}])))
    assert "no column 'user' among its 1 columns" in message


def test_columns_are_checked_in_every_file(tmp_path):
    first = put(tmp_path, "a.csv", b"user,item\na,b\n")
    other = put(tmp_path, "b.csv", f"user,other\na,{CANARY}\n".encode())
    assert f"{other}: no column 'item'" in refusal([first, other])


def test_the_same_column_twice():
    with pytest.raises(ParameterError, match="different columns, got a, a"):
        columns_of("a", "a")
    with pytest.raises(ParameterError, match="different columns, got a, c, b, b"):
        columns_of("a", ["c", "b"], "b")
    with pytest.raises(ParameterError, match="not empty, got ''"):
        columns_of("", "b")


def test_files_that_disagree(tmp_path):
    texts = {"user": TWO, "item": TWO}
    first = put(tmp_path, "1.parquet", parquet(texts))
    second = put(tmp_path, "2.parquet", parquet({**texts, "item": pa.array([1, 2], pa.int32())}))
    expected = f"{second}: column 'item' is int64, but string in {first}; all files must have the same types"
    assert refusal([second, first]) == expected
    first = put(tmp_path, "1.avro", avro([("user", "string"), ("item", "long")], []))
    second = put(tmp_path, "2.avro", avro([("user", "string"), ("item", "string")], []))
    assert f"{second}: column 'item' is string, but int64 in {first}" in refusal([first, second])
    first = put(tmp_path, "1.jsonl", b'{"user": 1, "item": 1}\n')
    second = put(tmp_path, "2.jsonl", json_lines([{"user": 1, "item": CANARY}]))
    assert f"{second}, row 1: column 'item' is not an integer: ask for texts and whole numbers as item" in refusal(
        [first, second], item="item:int"
    )
    second = put(tmp_path, "2.jsonl", json_lines([{"user": CANARY, "item": 1}]))
    assert (
        refusal([first, second], item="item:int") == f"{second}, row 1: column 'user' is not an integer, as in {first}"
    )


def test_files_that_agree_in_kind(tmp_path):
    put(tmp_path, "1.parquet", parquet({"user": ["a"], "item": [1]}))
    put(
        tmp_path, "2.parquet", parquet({"user": pa.array(["b"], pa.large_string()), "item": pa.array([2], pa.uint32())})
    )
    assert rows(f"{tmp_path}/*.parquet") == [{"user": "a", "item": 1}, {"user": "b", "item": 2}]
    assert {batch.schema.field("item").type for batch in batches(f"{tmp_path}/*.parquet")} == {pa.int64()}
    wide = put(tmp_path, "3.parquet", parquet({"user": ["c"], "item": pa.array([3], pa.uint64())}))
    assert f"{wide}: column 'item' is uint64, but int64 in" in refusal(f"{tmp_path}/*.parquet")
    assert rows(f"{tmp_path}/*.parquet", item="item:0,3")[2]["item"] == 3  # in bins all numbers are alike
