"""Reading: every format gives the same rows, and bad input gives one line that holds nothing of the data."""

import bz2
import datetime
import decimal
import gzip
import importlib.util
import io
import json
import lzma
import os
import traceback
import zlib

import apache_beam as beam
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from apache_beam.io.filesystem import FileMetadata, FileSystem
from apache_beam.testing.util import assert_that, equal_to

from headcount.mechanisms.batches.contributions import Place, contribution_batch
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.pipelines.sources import avro as source_avro
from headcount.pipelines.sources import csv
from headcount.pipelines.sources import events as sources
from headcount.pipelines.sources import json as source_json
from headcount.pipelines.sources import parquet as source_parquet
from headcount.pipelines.sources.events import Columns, ReadEvents, column_types, expand_inputs, read_batches

CANARY = "CANARY-7f3a"
ROWS = [
    {"user": "u1", "item": "ä, b", "count": 3},
    {"user": "007", "item": "7", "count": 1},
    {"user": "7", "item": 'say "hi"\nthere', "count": 2**62},
    {"user": None, "item": "", "count": 0},
    {"user": "NA", "item": None, "count": -4},
    {"user": "null", "item": " x ", "count": None},
]
CSV = (
    b'ts,user,count,item\n1,u1,3,"\xc3\xa4, b"\n2,007,1,7\n3,7,4611686018427387904,"say ""hi""\nthere"\n'
    b'4,,0,""\n5,NA,-4,\n6,null,, x \n'
)


def parquet(columns, **options):
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, **options)
    return out.getvalue()


def avro(fields, records, **options):
    out = io.BytesIO()
    schema = {"type": "record", "name": "some.Event", "fields": [{"name": n, "type": t} for n, t in fields]}
    fastavro.writer(out, schema, records, **options)
    return out.getvalue()


def json_lines(records):
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def column(name):
    return [row[name] for row in ROWS]


OPTIONAL = ["null", "string"]
PARQUET = parquet({"x": [1.5] * 6, "item": column("item"), "count": column("count"), "user": column("user")})
AVRO = avro(
    [("user", OPTIONAL), ("x", "double"), ("item", OPTIONAL), ("count", ["null", "long"])],
    [{**row, "x": 0.5} for row in ROWS],
)
JSON = json_lines([{**row, "more": {"user": [1]}} for row in ROWS])
FILES = {
    "e.parquet": PARQUET,
    "e.avro": AVRO,
    "e.csv": CSV,
    "e.jsonl": JSON,
    "e.ndjson": JSON,
    "E.JSON": JSON,
    "e.csv.gz": gzip.compress(CSV[:30]) + gzip.compress(CSV[30:]),
    "e.jsonl.gz": gzip.compress(JSON),
    "e.csv.bz2": bz2.compress(CSV),
    "e.csv.xz": lzma.compress(CSV),
    "e.csv.zst": zstandard.ZstdCompressor().compress(CSV),
    "e.csv.deflate": zlib.compress(CSV),
}


def put(directory, name, content):
    path = directory / name
    path.write_bytes(content)
    return str(path)


def batches(patterns, user="user", item="item", count=None, item_type=None):
    """All that a job would read, without Beam."""
    inputs = expand_inputs([patterns] if isinstance(patterns, str) else patterns)
    types = column_types(inputs, user, item, count, item_type)
    columns = Columns(user, item, count)
    for file in inputs.files:
        for task in sources.split_file(file, inputs.format, columns):
            yield from read_batches(task, columns, types)


def rows(patterns, **columns):
    return [row for batch in batches(patterns, **columns) for row in batch.to_pylist()]


def refusal(patterns, kind=InputError, **columns):
    """The message that a job gives, after checking that it is one line without data."""
    with pytest.raises(kind) as caught:
        rows(patterns, **columns)
    message = str(caught.value)
    assert "\n" not in message
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    return message


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_rows(tmp_path, name):
    path = put(tmp_path, name, FILES[name])
    assert rows(path, count="count") == ROWS
    assert rows(path) == [{"user": row["user"], "item": row["item"]} for row in ROWS]
    assert column_types(expand_inputs([path]), "user", "item").ids == (str, str)


@pytest.mark.parametrize("name", FILES)
def test_batches_know_their_file_and_first_row(tmp_path, name, monkeypatch):
    monkeypatch.setattr(csv, "BLOCK_BYTES", 60)
    monkeypatch.setattr(source_json, "BLOCK_BYTES", 100)
    monkeypatch.setattr(source_avro, "ROWS_PER_BATCH", 1)
    monkeypatch.setattr(source_parquet, "ROWS_PER_BATCH", 2)
    path = put(tmp_path, name, FILES[name])
    seen = 0
    number = 0
    for batch in batches(path, count="count"):
        assert batch.schema.names == ["user", "item", "count"]
        assert batch.schema.metadata[b"headcount.file"].decode() == path
        assert batch.schema.metadata[b"headcount.first_row"] == str(seen + 1).encode()
        assert batch.to_pylist() == ROWS[seen : seen + batch.num_rows]
        seen += batch.num_rows
        number += 1
    assert seen == len(ROWS)
    assert number > 1 or name == "e.avro"  # one block


def test_columns_may_have_other_names(tmp_path):
    content = {"a.b": ["x"], "item": ["wrong"], "user": ["y"], "a": [{"b": "nested"}]}
    path = put(tmp_path, "e.parquet", parquet(content))
    assert rows(path, user="user", item="a.b") == [{"user": "y", "item": "x"}]


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array(["a", None, "b"], pa.large_string()), str),
        (pa.array(["a", None, "b"], pa.string_view()), str),
        (pa.array(["a", None, "b"]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())), str),
        *((pa.array([1, None, 100], type), int) for type in (pa.int8(), pa.int64(), pa.uint8(), pa.uint32())),
        (pa.array([1, None, 2**63 - 1], pa.uint64()), int),
        (pa.array([-(2**63), None, 2**63 - 1], pa.int64()), int),
    ],
)
def test_parquet_types_of_ids(tmp_path, array, kind):
    path = put(tmp_path, "e.parquet", parquet({"user": array, "item": array}))
    assert [row["item"] for row in rows(path)] == array.to_pylist()
    assert column_types(expand_inputs([path]), "user", "item").ids == (kind, kind)


def test_small_row_groups_become_one_batch(tmp_path):
    table = {"user": [f"u{i % 7}" for i in range(1000)], "item": [f"i{i}" for i in range(1000)], "count": range(1000)}
    path = put(tmp_path, "e.parquet", parquet({k: list(v) for k, v in table.items()}, row_group_size=90))
    (batch,) = batches(path, count="count")
    assert batch.to_pydict() == {k: list(v) for k, v in table.items()}


def test_large_row_groups_are_cut_evenly_by_rows_and_by_bytes(tmp_path, monkeypatch):
    names = [f"{i:04d}" * 10 for i in range(1000)]
    path = put(tmp_path, "e.parquet", parquet({"user": names, "item": names}))
    monkeypatch.setattr(source_parquet, "ROWS_PER_BATCH", 600)
    assert [batch.num_rows for batch in batches(path)] == [500, 500]
    monkeypatch.setattr(source_parquet, "BYTES_PER_BATCH", 25_000)
    assert [batch.num_rows for batch in batches(path)] == [250, 250, 250, 250]


def test_row_groups_are_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "SPLIT_BYTES", 0)
    monkeypatch.setattr(source_parquet, "ROWS_PER_TASK", 200)
    users = [f"u{i}" for i in range(1000)]
    path = put(tmp_path, "e.parquet", parquet({"user": users, "item": users}, row_group_size=90))
    (file,) = expand_inputs([path]).files
    tasks = sources.split_file(file, "parquet", Columns("user", "item"))
    assert [tuple(task.groups) for task in tasks] == [(0, 3, 1), (3, 6, 271), (6, 9, 541), (9, 12, 811)]
    assert [row["user"] for row in rows(path)] == users


EMPTY = {
    "e.parquet": parquet({"user": pa.array([], pa.string()), "item": pa.array([], pa.int64())}),
    "e.avro": avro([("user", "string"), ("item", "long")], []),
    "e.csv": b"user,item",
    "e.csv.gz": gzip.compress(b"\xef\xbb\xbfuser,item\r\n\r\n"),
    "e.jsonl": b"",
    "e.json": b"\n \n",
}


@pytest.mark.parametrize("name", EMPTY)
def test_no_rows_is_valid(tmp_path, name):
    path = put(tmp_path, name, EMPTY[name])
    assert rows(path) == []
    item = int if name in ("e.parquet", "e.avro") else str
    assert column_types(expand_inputs([path]), "user", "item").item is item


def test_csv_details(tmp_path):
    content = b"\xef\xbb\xbf\r\nitem,user\r\nb,a\r\n\r\n,1e3\r\n"
    path = put(tmp_path, "e.csv", content)
    assert rows(path) == [{"user": "a", "item": "b"}, {"user": "1e3", "item": None}]
    path = put(tmp_path, "old.csv", b"user,item\ra,b\rc,d")
    assert rows(path) == [{"user": "a", "item": "b"}, {"user": "c", "item": "d"}]
    long = put(tmp_path, "wide.csv", b"user,item\n" + b"u" * 100_000 + b",i\n")
    assert len(rows(long)[0]["user"]) == 100_000


def test_json_details(tmp_path):
    lines = (
        b'\xef\xbb\xbf{"user": 5, "item": null}\r\n\r\n  {"item": "\\ud83d\\ude00"}\n{"user": -0, "item": "2020-01-01"}'
    )
    assert rows(put(tmp_path, "e.json", lines)) == [
        {"user": 5, "item": None},
        {"user": None, "item": "\U0001f600"},
        {"user": 0, "item": "2020-01-01"},
    ]


def test_json_parsers_agree(tmp_path, monkeypatch):
    """What Arrow's parser accepts, Python's reads alike."""
    records = [{"user": u, "item": i, "n": [1, {}]} for u, i in ((1, "a"), (2**63 - 1, "é\u0000"), (None, None))]
    path = put(tmp_path, "e.jsonl", json_lines([*records, {}]))
    fast = rows(path)
    monkeypatch.setattr(source_json, "_parse_block", lambda block, kinds: None)
    assert rows(path) == fast == [*({k: r[k] for k in ("user", "item")} for r in records), {"user": None, "item": None}]


def test_avro_details(tmp_path):
    kind = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
    fields = [
        ("k", kind),
        ("u", {"type": "string", "logicalType": "uuid"}),
        ("k2", ["some.Kind", "null"]),
        ("n", "int"),
    ]
    name = "01234567-89ab-cdef-0123-456789abcdef"
    records = [{"k": "A", "u": name, "k2": "B", "n": 1}, {"k": "B", "u": name, "k2": None, "n": 2}]
    path = put(tmp_path, "e.avro", avro(fields, records, codec="deflate"))
    assert rows(path, user="k", item="k2", count="n") == [
        {"user": "A", "item": "B", "count": 1},
        {"user": "B", "item": None, "count": 2},
    ]
    assert rows(path, user="u", item="k")[0] == {"user": name, "item": "A"}
    assert rows(path, user="n", item="k2")[1] == {"user": 2, "item": None}


# What is wrong with a file, and what its refusal must say beside its name.
TWO = [CANARY, CANARY]
BAD_PARQUET_TYPES = {
    "list": pa.array([[CANARY]] * 2),
    "double": pa.array([1.5, 2.5]),
    "bool": pa.array([True, False]),
    "binary": pa.array([CANARY.encode()] * 2),
    "timestamp": pa.array([datetime.datetime(2020, 1, 1)] * 2),
    "date32": pa.array([datetime.date(2020, 1, 1)] * 2),
    "decimal": pa.array([decimal.Decimal("1.0")] * 2),
    "null": pa.nulls(2),
}


@pytest.mark.parametrize("word", BAD_PARQUET_TYPES)
def test_parquet_columns_that_are_no_ids(tmp_path, word):
    path = put(tmp_path, "e.parquet", parquet({"user": TWO, "item": BAD_PARQUET_TYPES[word]}))
    message = refusal(path)
    assert path in message and "'item'" in message and word in message
    assert "strings or integers; convert it first, for instance to text" in message
    message = refusal(path, user="item", item="user")
    assert "'item'" in message and word in message


@pytest.mark.parametrize("array", [["1", "2"], [1.0, 2.0], [True, False]])
def test_counts_must_be_an_integer_column(tmp_path, array):
    path = put(tmp_path, "e.parquet", parquet({"user": TWO, "item": TWO, "n": array}))
    assert "'n'" in refusal(path, count="n") and "counts must be integers" in refusal(path, count="n")
    avro_type = {str: "string", float: "double", bool: "boolean"}[type(array[0])]
    records = [{"user": CANARY, "item": CANARY, "n": value} for value in array]
    path = put(tmp_path, "e.avro", avro([("user", "string"), ("item", "string"), ("n", avro_type)], records))
    assert avro_type in refusal(path, count="n") and "counts must be integers" in refusal(path, count="n")


@pytest.mark.parametrize("column", ["item", "n"])
def test_unsigned_integers_beyond_int64(tmp_path, column):
    large = pa.array([1, 2**63], pa.uint64())
    path = put(tmp_path, "e.parquet", parquet({"user": TWO, "item": [1, 2], "n": [1, 2], column: large}))
    message = refusal(path, count="n")
    assert f"{path}, row 2: column '{column}'" in message and str(2**63) not in message


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("double", "double"),
        ("bytes", "bytes"),
        ("boolean", "boolean"),
        ({"type": "array", "items": "string"}, "array"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp-millis"),
        (["null", "string", "long"], "union"),
    ],
)
def test_avro_columns_that_are_no_ids(tmp_path, kind, word):
    path = put(tmp_path, "e.avro", avro([("user", "string"), ("item", kind)], []))
    message = refusal(path)
    assert path in message and "'item'" in message and word in message


def ragged(line):
    return b"user,item\na,b\n\nc,d\n" + line + b"\n"


BAD_CSV = {
    "short row": (ragged(CANARY.encode()), ", row 3: 1 fields"),
    "long row": (ragged(f"{CANARY},a,b".encode()), ", row 3: 3 fields"),
    "long row that is not UTF-8": (ragged(f"{CANARY},a,".encode() + b"\xff"), ", row 3: 3 fields"),
    "not UTF-8": (ragged(f"{CANARY},".encode() + b"\xff"), ", row 3: column 'item'"),
    "open quote": (ragged(f'x,"{CANARY}'.encode()), "quote"),
    "open quote at the start": (ragged(f'"{CANARY},x'.encode()), "quote"),
    "open quote in the header": (f'user,"item\n{CANARY},b\n'.encode(), "not a CSV file"),
    "no header": (f"{CANARY},b\nc,d\n".encode(), "is its first row a header?"),
    "no bytes": (b"", "header"),
    "blank lines": (b"\n\n", "header"),
    "twice the same column": (f"user,item,item\n{CANARY},b,c\n".encode(), "'item' occurs 2 times"),
    "binary": (b"\x00\x01\x02" + CANARY.encode() + b"\n\xfe", "not a CSV file"),
    "UTF-16": (f"user,item\n{CANARY},b\n".encode("utf-16"), "not a CSV file"),
}


@pytest.mark.parametrize("case", BAD_CSV)
def test_bad_csv(tmp_path, case):
    content, words = BAD_CSV[case]
    path = put(tmp_path, "e.csv", content)
    message = refusal(path)
    assert path in message and words in message


def test_open_quote_over_many_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(csv, "BLOCK_BYTES", 64)
    path = put(tmp_path, "e.csv", b'user,item\na,"' + f"{CANARY}\nc,d\n".encode() * 50)
    assert "quote" in refusal(path)


@pytest.mark.parametrize("count", ["1.0", "1e3", " 1", "+1", "0x1", "", CANARY, "9223372036854775808", "1" * 5000, "٣"])
def test_csv_counts_are_strict(tmp_path, count):
    text = f'user,item,n\na,b,-9223372036854775808\nc,d,\ne,{CANARY},"{count}"\n'
    message = refusal(put(tmp_path, "e.csv", text.encode()), count="n")
    assert ", row 3: column 'n'" in message and "decimal integer" in message
    good = put(tmp_path, "good.csv", text.replace(count, "0042").encode() if count else b"user,item,n\na,b,1\n")
    assert rows(good, count="n")[-1]["count"] in (42, 1)


BAD_JSON = {
    "number for a string": (f'{{"user": "{CANARY}", "item": 3}}', ", row 4: column 'item' is not a string"),
    "boolean": (f'{{"user": "{CANARY}", "item": true}}', ", row 4: column 'item' is not a string"),
    "array": (f'{{"user": "a", "item": ["{CANARY}"]}}', ", row 4: column 'item' is not a string"),
    "object": (f'{{"user": {{"user": "{CANARY}"}}, "item": "b"}}', ", row 4: column 'user' is not a string"),
    "half a pair": (f'{{"user": "{CANARY}\\ud800", "item": "b"}}', ", row 4: column 'user' is not a string"),
    "broken": (f'{{"user": "{CANARY}", "item": ', ", row 4: not a JSON object"),
    "two on a line": (f'{{"user": "{CANARY}", "item": "b"}} {{}}', ", row 4: not a JSON object"),
    "null after it": (f'{{"user": "{CANARY}", "item": "b"}} null', ", row 4: not a JSON object"),
    "over two lines": (f'{{"user": "{CANARY}",\n "item": "b"}}', ", row 4: not a JSON object"),
    "not an object": (f'["{CANARY}"]', ", row 4: not a JSON object"),
    "null": ("null", ", row 4: not a JSON object"),
    "nested too deep": ('{"user": ' + "[" * 100_000 + f'"{CANARY}"', ", row 4: not a JSON object"),
}


@pytest.mark.parametrize("case", BAD_JSON)
def test_bad_json(tmp_path, case):
    line, words = BAD_JSON[case]
    good = '{"user": "a", "item": "b"}\n'
    path = put(tmp_path, "e.jsonl", f"{good}{good}\n{good}{line}\n{good}".encode())
    message = refusal(path)
    assert path + words in message


@pytest.mark.parametrize("line", ["null", f'"{CANARY}"', "[]", "[{", "3", f"{CANARY}", '{"user": "\\'])
def test_bad_first_row_of_json(tmp_path, line):
    assert ", row 1: not a JSON object" in refusal(put(tmp_path, "e.jsonl", line.encode()))
    table = put(tmp_path, "two.jsonl", b'{"user": "a", "item": "b"}\n')
    assert "e.jsonl, row 1: not a JSON object" in refusal([table, put(tmp_path, "e.jsonl", line.encode())])


@pytest.mark.parametrize("value", ["2.0", "1e3", "9223372036854775808", '"7"', "true", "NaN"])
def test_json_integers_are_strict(tmp_path, value):
    content = f'{{"user": "{CANARY}", "item": 5, "n": 5}}\n{{"item": {value}, "n": {value}}}\n'
    path = put(tmp_path, "e.jsonl", content.encode())
    assert ", row 2: column 'item' is not an integer, as in its first rows" in refusal(path, item_type=int)
    path = put(tmp_path, "n.jsonl", content.replace(f'"item": {value}', '"item": 1').encode())
    assert ", row 2: column 'n' is not an integer, as counts are" in refusal(path, count="n", item_type=int)


def test_the_type_of_items_is_never_taken_from_rows(tmp_path):
    """The output shows it: with one user's rows gone, an inferred type would change, and tell that they were there."""
    numbers = put(tmp_path, "e.jsonl", b'{"user": "a", "item": 5}\n')
    assert f"{numbers}: column 'item' holds integers, not strings: give --item-type int" == refusal(numbers)
    empty = expand_inputs([put(tmp_path, "empty.jsonl", b"")])
    assert column_types(empty, "user", "item").item is str
    assert column_types(empty, "user", "item", item_type=int).item is int
    table = put(tmp_path, "e.parquet", parquet({"user": TWO, "item": TWO}))
    assert "holds strings, not integers: give --item-type str" in refusal(table, item_type=int)


def test_json_not_utf8(tmp_path):
    path = put(
        tmp_path, "e.jsonl", b'{"user": "a", "item": "b"}\n{"user": "' + CANARY.encode() + b'\xff", "item": "b"}\n'
    )
    assert ", row 2: not a JSON object; give one object per line, as UTF-8 text" in refusal(path)


@pytest.mark.parametrize("value", ["1.5", "false", "[]", "9223372036854775808"])
def test_json_ids_of_the_first_row(tmp_path, value):
    path = put(tmp_path, "e.jsonl", f'{{"user": {value}, "item": "{CANARY}"}}\n'.encode())
    assert ", row 1: column 'user' is not an integer, users and items must be" in refusal(path)


def test_long_json_line(tmp_path, monkeypatch):
    monkeypatch.setattr(source_json, "BLOCK_BYTES", 16)
    monkeypatch.setattr(source_json, "LONGEST_LINE", 64)
    path = put(tmp_path, "e.jsonl", b'{"user": "' + CANARY.encode() * 20 + b'", "item": "b"}\n')
    assert "one JSON object per line" in refusal(path)


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
        Columns("a", "a")
    with pytest.raises(ParameterError, match="different columns, got a, b, b"):
        Columns("a", "b", "b")
    with pytest.raises(ParameterError, match="not empty, got ''"):
        Columns("", "b")


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
    expected = f"{second}, row 1: column 'item' is not an integer, as in {first}"
    assert refusal([first, second], item_type=int) == expected


def test_files_that_agree_in_kind(tmp_path):
    put(tmp_path, "1.parquet", parquet({"user": ["a"], "item": pa.array([1], pa.int32())}))
    put(
        tmp_path, "2.parquet", parquet({"user": pa.array(["b"], pa.large_string()), "item": pa.array([2], pa.uint64())})
    )
    assert rows(f"{tmp_path}/*.parquet") == [{"user": "a", "item": 1}, {"user": "b", "item": 2}]


LONG = [{"user": f"u{i}", "item": f"{CANARY}{i}"} for i in range(3000)]
LONG_FILES = {
    "e.parquet": parquet({k: [row[k] for row in LONG] for k in ("user", "item")}),
    "e.avro": avro([("user", "string"), ("item", "string")], LONG),
    "e.csv.gz": gzip.compress(b"user,item\n" + "".join(f"{r['user']},{r['item']}\n" for r in LONG).encode()),
    "e.jsonl.gz": gzip.compress(json_lines(LONG)),
    "e.jsonl.bz2": bz2.compress(json_lines(LONG)),
    "e.jsonl.xz": lzma.compress(json_lines(LONG)),
    "e.jsonl.zst": zstandard.ZstdCompressor().compress(json_lines(LONG)),
    "e.jsonl.deflate": zlib.compress(json_lines(LONG)),
}


@pytest.mark.parametrize("name", LONG_FILES)
@pytest.mark.parametrize("part", [0.0001, 0.5, 0.9, 0.9999])
def test_truncated_files(tmp_path, name, part):
    path = put(tmp_path, name, LONG_FILES[name][: int(len(LONG_FILES[name]) * part)])
    if part == 0.0001 and ".jsonl." in name:
        return  # no byte is left of these: an empty file
    assert path in refusal(path)


@pytest.mark.parametrize("name", LONG_FILES)
def test_damaged_files(tmp_path, name):
    content = bytearray(LONG_FILES[name])
    middle = len(content) // 2
    content[middle : middle + 400] = bytes(400)
    for damaged in (bytes(content), CANARY.encode() * 100):
        path = put(tmp_path, name, damaged)
        assert path in refusal(path)


def test_truncated_avro_at_any_byte(tmp_path):
    """Only a cut between two blocks cannot be told from a shorter file."""
    content = avro([("user", "string"), ("item", "string")], LONG[:40], sync_interval=300)
    whole = 0
    for size in range(len(content)):
        try:
            rows(put(tmp_path, "e.avro", content[:size]))
            whole += 1
        except InputError as error:
            assert CANARY not in "".join(traceback.format_exception(error))
    assert whole == content.count(content[-16:]) - 1


@pytest.mark.skipif(importlib.util.find_spec("cramjam") is not None, reason="snappy can be read here")
def test_avro_codec_without_its_package(tmp_path):
    content = avro([("user", "string"), ("item", "string")], LONG[:10])
    path = put(tmp_path, "e.avro", content.replace(b"\x14avro.codec\x08null", b"\x14avro.codec\x0csnappy"))
    assert "compressed with snappy" in refusal(path) and "fastavro[codecs]" in refusal(path)


def test_parquet_text_that_is_not_utf8(tmp_path):
    """Found where batches become contributions, which is the door of every source."""
    offsets = pa.py_buffer(b"".join(i.to_bytes(4, "little") for i in (0, 1, 2)))
    bad = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a\xff")])
    path = put(tmp_path, "e.parquet", parquet({"user": TWO, "item": bad}))
    (batch,) = batches(path)
    with pytest.raises(InputError, match="column 'item': is damaged, or holds text that is no valid UTF-8"):
        contribution_batch(batch.column("user"), batch.column("item"), place=Place(file=path, first_row=1))


def test_patterns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("b.csv", "a.csv", "sub/c.csv", "odd[1].csv", ".hidden.csv"):
        put(tmp_path, name, b"user,item\n" + name.encode() + b",x\n")
    inputs = expand_inputs(["*.csv", "./a.csv", f"{tmp_path}/b.csv", "sub/?.csv", "odd[1].csv"])
    assert [file.path for file in inputs.files] == ["a.csv", "b.csv", "odd[1].csv", "sub/c.csv"]
    assert inputs.format == "csv"
    assert inputs.bytes == sum(os.path.getsize(file.path) for file in inputs.files)
    assert [file.path for file in expand_inputs(["**/*.csv"]).files] == ["a.csv", "b.csv", "odd[1].csv", "sub/c.csv"]


def test_patterns_without_files(tmp_path, monkeypatch):
    good = put(tmp_path, "a.csv", b"user,item\n")
    for patterns, words in (
        ([good, f"{tmp_path}/*.parquet"], "no file matches"),
        ([good, f"{tmp_path}/b.csv"], "no such file"),
        ([good, put(tmp_path, "a.txt", b"")], "unknown kind of file"),
        ([put(tmp_path, "a.parquet.gz", b"")], "unknown kind of file"),
        ([good, put(tmp_path, "a.jsonl", b"")], f"is json, but {good} is csv; all files must be of one format"),
    ):
        with pytest.raises(InputError, match=words):
            expand_inputs(patterns)
    with pytest.raises(ParameterError, match="no input"):
        expand_inputs([])


def test_files_that_vanish_or_are_closed_to_us(tmp_path, monkeypatch):
    columns, types = Columns("user", "item"), sources.ColumnTypes(str, str, "first")
    for name in ("e.parquet", "e.avro", "e.csv", "e.jsonl.gz"):
        task = sources.Task(str(tmp_path / name), name.split(".")[1].replace("jsonl", "json"))
        with pytest.raises(InputError, match="no such file"):
            list(read_batches(task, columns, types))
    path = put(tmp_path, "e.csv", CSV)
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: False)
        assert f"{path}: no permission to read it" == refusal(path)

    def closed(path):
        raise PermissionError(CANARY)

    monkeypatch.setattr(csv, "open_text", closed)
    assert f"{path}: no permission to read it" == refusal(path)


@pytest.mark.parametrize(("url", "extra"), [("gs://b/x.csv", "gcp"), ("s3://b/x.csv", "aws"), ("hdfs://b/x", "hadoop")])
def test_missing_extras(url, extra, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ParameterError, match=rf"{url}.* needs the extra headcount\[{extra}\]"):
        expand_inputs([url])


def test_unknown_scheme():
    with pytest.raises(ParameterError, match="no filesystem is known for abc://, got 'abc://x.csv'"):
        expand_inputs(["abc://x.csv"])


class StoreFileSystem(FileSystem):
    """Files in memory under store://, as seen through Beam."""

    files: dict[str, bytes] = {}

    @classmethod
    def scheme(cls):
        return "store"

    def has_dirs(self):
        return False

    def _list(self, prefix):
        return [FileMetadata(path, len(content)) for path, content in self.files.items() if path.startswith(prefix)]

    def exists(self, path):
        return path in self.files

    def metadata(self, path):
        return FileMetadata(path, len(self.files[path]))

    def open(self, path, mime_type=None, compression_type=None):
        return io.BytesIO(self.files[path])

    def join(self, *parts):
        return "/".join(parts)

    copy = create = checksum = delete = last_updated = mkdirs = rename = size = split = join


@pytest.mark.parametrize("name", ["e.parquet", "e.avro", "e.csv", "e.csv.gz", "e.jsonl"])
def test_other_filesystems(name):
    StoreFileSystem.files = {f"store://b/{name}": FILES[name], "store://b/unrelated": b""}
    assert rows("store://b/e*", count="count") == ROWS
    assert "no file matches" in refusal("store://b/x*")


def test_pipeline_reads_all_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "SPLIT_BYTES", 0)
    monkeypatch.setattr(source_parquet, "ROWS_PER_TASK", 10)
    read = []
    monkeypatch.setattr(sources.progress, "advance", read.append)
    expected = []
    for i in range(3):
        names = [f"{i}-{j}" for j in range(35)]
        put(tmp_path, f"{i}.parquet", parquet({"user": names, "item": names, "n": list(range(35))}, row_group_size=5))
        expected += [{"user": name, "item": name, "count": n} for n, name in enumerate(names)]
    inputs = expand_inputs([f"{tmp_path}/*.parquet"])
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        events = pipeline | ReadEvents(inputs, "user", "item", "n", column_types(inputs, "user", "item", "n"))
        assert_that(events | beam.FlatMap(lambda batch: batch.to_pylist()), equal_to(expected))
    assert sorted(read) == [5] * 3 + [10] * 9
