"""Avro: its types of ids, a cut file, and codecs that are not installed."""

import importlib.util
import traceback

import pytest

from headcount.mechanisms.errors import InputError
from tests.pipelines.sources.event_files import CANARY, LONG, avro, put, refusal, rows


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
    assert rows(path, user="k", item="k2", count="n") == [{"k": "A", "k2": "B", "n": 1}, {"k": "B", "k2": None, "n": 2}]
    assert rows(path, user="u", item="k")[0] == {"u": name, "k": "A"}
    assert rows(path, user="n", item="k2")[1] == {"n": 2, "k2": None}


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("double", "put it into bins, by their edges: item:0,18,30,65"),
        ("bytes", "binary"),
        ({"type": "array", "items": "string"}, "give --explode item"),
        ({"type": "map", "values": "string"}, "map"),
        (["null", "string", "long"], "union"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}, "for instance item.a"),
        ("null", "by its type no row has a value"),
    ],
)
def test_avro_columns_that_are_no_ids(tmp_path, kind, word):
    path = put(tmp_path, "e.avro", avro([("user", "string"), ("item", kind)], []))
    message = refusal(path)
    assert path in message and "'item'" in message and word in message


@pytest.mark.seconds
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
