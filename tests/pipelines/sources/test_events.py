"""Reading: every format gives the same rows, whatever the file is called and wherever it lies."""

import gzip

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that, equal_to

from headcount.pipelines import progress
from headcount.pipelines.sources import avro as source_avro
from headcount.pipelines.sources import csv
from headcount.pipelines.sources import events as sources
from headcount.pipelines.sources import json as source_json
from headcount.pipelines.sources import parquet as source_parquet
from headcount.pipelines.sources.columns import columns_of
from headcount.pipelines.sources.events import expand_inputs
from headcount.pipelines.sources.read import ReadEvents
from tests.pipelines.sources.event_files import FILES, ROWS, avro, batches, parquet, put, rows, types_of


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_rows(tmp_path, name):
    path = put(tmp_path, name, FILES[name])
    assert rows(path, count="count") == ROWS
    assert rows(path) == [{"user": row["user"], "item": row["item"]} for row in ROWS]
    assert types_of(path).schema == pa.schema([("user", pa.string()), ("item", pa.string())])


@pytest.mark.parametrize("name", FILES)
def test_batches_know_their_file_and_first_row(tmp_path, name, monkeypatch):
    monkeypatch.setattr(csv, "BLOCK_BYTES", 60)
    monkeypatch.setattr(source_json, "BLOCK_BYTES", 100)
    monkeypatch.setattr(source_avro, "ROWS_PER_BATCH", 1)
    monkeypatch.setattr(source_parquet, "ROWS_HERE", 2)
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
    item = pa.int64() if name in ("e.parquet", "e.avro") else pa.string()
    assert types_of(path).schema.field("item").type == item


def test_pipeline_reads_all_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "SPLIT_BYTES", 0)
    monkeypatch.setattr(source_parquet, "ROWS_PER_TASK", 10)
    read = []
    monkeypatch.setattr(progress, "advance", read.append)
    expected = []
    for i in range(3):
        names = [f"{i}-{j}" for j in range(35)]
        put(tmp_path, f"{i}.parquet", parquet({"user": names, "item": names, "n": list(range(35))}, row_group_size=5))
        expected += [{"user": name, "item": name, "n": n} for n, name in enumerate(names)]
    inputs = expand_inputs([f"{tmp_path}/*.parquet"])
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        events = pipeline | ReadEvents(inputs, columns_of("user", "item", "n"))
        assert_that(events | beam.FlatMap(lambda batch: batch.to_pylist()), equal_to(expected))
    assert sorted(read) == [5] * 3 + [10] * 9
