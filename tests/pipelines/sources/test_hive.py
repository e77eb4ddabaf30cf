"""Columns in the names of folders: texts beside those of the files, the same for all files."""

import gzip
import json

import pyarrow as pa
import pytest

from headcount.pipelines.sources.columns import columns_of
from headcount.pipelines.sources.hive import folder_columns
from tests.pipelines.sources.event_files import avro, parquet, put, refusal, rows, types_of

RECORD = {"user": "a", "item": "x", "n": 3}
CONTENT = {
    "e.parquet": parquet({name: [value] for name, value in RECORD.items()}),
    "e.avro": avro([("user", "string"), ("item", "string"), ("n", "long")], [RECORD]),
    "e.csv": b"user,item,n\na,x,3\n",
    "e.jsonl.gz": gzip.compress(json.dumps(RECORD).encode()),
}


def folder(directory, name):
    path = directory / name
    path.mkdir(parents=True)
    return path


@pytest.mark.parametrize("name", CONTENT)
def test_folders_are_columns_of_texts(tmp_path, name):
    for at in (
        "day=2026-11-01/country=de",
        "day=2026-11-02/country=a%2Fb%3D%25",
        "day=__HIVE_DEFAULT_PARTITION__/country=",
    ):
        put(folder(tmp_path, at), name, CONTENT[name])
    pattern = f"{tmp_path}/*/*/{name}"
    assert rows(pattern, item=["country", "item", "day:month"], count="n") == [
        {"user": "a", "country": country, "item": "x", "day": day, "n": 3}
        for day, country in (("2026-11-01", "de"), ("2026-11-02", "a/b=%"), (None, ""))
    ]
    columns = columns_of("user", ["day", "day:year"])
    assert types_of(pattern, item=["day", "day:year"]).keys(columns).schema.types == [pa.string(), pa.int64()]


def test_the_folder_says_it_where_rows_of_json_do_too(tmp_path):
    """What one row has beside is its own: it decides nothing for the others, and so no file is refused by it."""
    path = put(folder(tmp_path, "item=y"), "e.jsonl.gz", CONTENT["e.jsonl.gz"])
    assert {row["item"] for row in rows(path, item="item")} == {"y"}


@pytest.mark.parametrize("name", sorted(CONTENT.keys() - {"e.jsonl.gz"}))
def test_a_column_that_is_in_file_and_folder_is_refused(tmp_path, name):
    path = put(folder(tmp_path, "item=y"), name, CONTENT[name])
    assert refusal(path).startswith(f"{path}: column 'item' is in the file and in the name of a folder (item=...)")
    assert str(rows(path, item="n:int")[0]["n"]) == "3"  # of no matter where it is not asked for


def test_all_files_must_lie_in_such_a_folder(tmp_path):
    first, other = (put(folder(tmp_path, at), "e.csv", CONTENT["e.csv"]) for at in ("day=1/a", "days/b"))
    words = f"{first}: column 'day' is in the name of a folder (day=...), but {other} lies in no such folder; all files"
    assert words in refusal([first, other], item="day")
    assert len(rows([first, other])) == 2


def test_folders_that_cannot_be_columns(tmp_path):
    twice = put(folder(tmp_path, "day=1/day=2"), "e.csv", CONTENT["e.csv"])
    words = f"{twice}: two folders above each other are named day=...: rename one of them"
    assert words == refusal(twice, item="day") and len(rows(twice)) == 1  # of no matter where it is not asked for
    odd = put(folder(tmp_path, "day=%FF"), "e.csv", CONTENT["e.csv"])
    assert f"{odd}: the folder day=... has a name that is no UTF-8 text: rename it" == refusal(odd, item="day")
    alone = put(folder(tmp_path, "who=a/what=b"), "e.csv", CONTENT["e.csv"])
    assert "name one that the file itself holds" in refusal(alone, user="who", item="what")
    count = put(folder(tmp_path, "count=2"), "e.csv", CONTENT["e.csv"])
    assert f"{count}: column 'count' is string; counts must be integers" == refusal(count, count="count")


def test_names_of_folders():
    assert folder_columns("gs://bucket/a=1/b%20c=%C3%A4/file=3.csv") == {"a": ["1"], "b c": ["%C3%A4"]}
    assert folder_columns("bigquery://p.d.t") == {}
    assert folder_columns("s3://bucket/=x/plain/e.csv") == {}
