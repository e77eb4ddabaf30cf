"""Event logs in every format, and what a job reads of them without Beam: shared by the tests of the sources."""

import bz2
import gzip
import io
import json
import lzma
import traceback
import zlib

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from headcount.mechanisms.errors import InputError
from headcount.pipelines.sources import events as sources
from headcount.pipelines.sources.columns import columns_of
from headcount.pipelines.sources.events import column_types, expand_inputs, read_batches

CANARY = "CANARY-7f3a"
TWO = [CANARY, CANARY]
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


def types_of(patterns, user="user", item="item", count=None, **more):
    """The types that a job would find."""
    inputs = expand_inputs([patterns] if isinstance(patterns, str) else patterns)
    return column_types(inputs, columns_of(user, item, count, **more))


def batches(patterns, user="user", item="item", count=None, **more):
    """All that a job would read, without Beam."""
    inputs = expand_inputs([patterns] if isinstance(patterns, str) else patterns)
    columns = columns_of(user, item, count, **more)
    types = column_types(inputs, columns)
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


LONG = [{"user": f"u{i}", "item": f"{CANARY}{i}"} for i in range(3000)]
