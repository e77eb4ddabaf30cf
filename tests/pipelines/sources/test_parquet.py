"""Parquet: row groups become even batches and tasks, and only columns of strings or integers are ids."""

import pyarrow as pa
import pytest

from headcount.mechanisms.batches.contributions import Place, contribution_batch
from headcount.mechanisms.errors import InputError
from headcount.pipelines.sources import events as sources
from headcount.pipelines.sources import parquet as source_parquet
from headcount.pipelines.sources.columns import columns_of
from headcount.pipelines.sources.events import expand_inputs
from tests.pipelines.sources.event_files import CANARY, TWO, batches, parquet, put, refusal, rows


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a", None, "b"], pa.large_string()),
        pa.array(["a", None, "b"], pa.string_view()),
        pa.array(["a", None, "b"]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
        *(pa.array([1, None, 100], type) for type in (pa.int8(), pa.int64(), pa.uint8(), pa.uint32())),
        pa.array([1, None, 2**64 - 1], pa.uint64()),
        pa.array([-(2**63), None, 2**63 - 1], pa.int64()),
        pa.array([True, None, False]),
    ],
)
def test_parquet_types_of_ids(tmp_path, array):
    path = put(tmp_path, "e.parquet", parquet({"user": array, "item": array}))
    assert [row["item"] for row in rows(path)] == array.to_pylist()


def test_small_row_groups_become_one_batch(tmp_path):
    table = {"user": [f"u{i % 7}" for i in range(1000)], "item": [f"i{i}" for i in range(1000)], "count": range(1000)}
    path = put(tmp_path, "e.parquet", parquet({k: list(v) for k, v in table.items()}, row_group_size=90))
    (batch,) = batches(path, count="count")
    assert batch.to_pydict() == {k: list(v) for k, v in table.items()}


def test_large_row_groups_are_cut_evenly_by_rows_and_by_bytes(tmp_path, monkeypatch):
    names = [f"{i:04d}" * 10 for i in range(1000)]
    path = put(tmp_path, "e.parquet", parquet({"user": names, "item": names}))
    monkeypatch.setattr(source_parquet, "ROWS_HERE", 600)
    assert [batch.num_rows for batch in batches(path)] == [500, 500]
    monkeypatch.setattr(source_parquet, "BYTES_PER_BATCH", 25_000)
    assert [batch.num_rows for batch in batches(path)] == [250, 250, 250, 250]


def test_row_groups_are_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "SPLIT_BYTES", 0)
    monkeypatch.setattr(source_parquet, "ROWS_PER_TASK", 200)
    users = [f"u{i}" for i in range(1000)]
    path = put(tmp_path, "e.parquet", parquet({"user": users, "item": users}, row_group_size=90))
    (file,) = expand_inputs([path]).files
    tasks = sources.split_file(file, "parquet", columns_of("user", "item"))
    assert [tuple(task.groups) for task in tasks] == [(0, 3, 1), (3, 6, 271), (6, 9, 541), (9, 12, 811)]
    assert [row["user"] for row in rows(path)] == users


BAD_PARQUET_TYPES = {
    "list": (pa.array([[CANARY]] * 2), "give --explode item"),
    "double": (pa.array([1.5, 2.5]), "put it into bins, by their edges: item:0,18,30,65"),
    "binary": (pa.array([CANARY.encode()] * 2), "convert it first, for instance to text"),
    "object": (
        pa.array([{"a": CANARY}] * 2),
        "with the fields 'a': name one of its fields by its path, for instance item.a",
    ),
    "map": (pa.array([[("a", 1)]] * 2, pa.map_(pa.string(), pa.int64())), "convert it first"),
    "null": (pa.nulls(2), "by its type no row has a value"),
}


@pytest.mark.parametrize("word", BAD_PARQUET_TYPES)
def test_parquet_columns_that_are_no_ids(tmp_path, word):
    array, advice = BAD_PARQUET_TYPES[word]
    path = put(tmp_path, "e.parquet", parquet({"user": TWO, "item": array}))
    message = refusal(path)
    assert path in message and "'item'" in message and word in message and advice in message
    message = refusal(path, user="item", item="user")
    assert "'item'" in message and word in message


def test_counts_beyond_int64(tmp_path):
    large = pa.array([1, 2**63], pa.uint64())
    path = put(tmp_path, "e.parquet", parquet({"user": TWO, "item": [1, 2], "n": large}))
    message = refusal(path, count="n")
    assert f"{path}: column 'n', row 2: " in message and str(2**63) not in message


def test_parquet_text_that_is_not_utf8(tmp_path):
    """Found where batches become contributions, through which every source goes."""
    offsets = pa.py_buffer(b"".join(i.to_bytes(4, "little") for i in (0, 1, 2)))
    bad = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a\xff")])
    path = put(tmp_path, "e.parquet", parquet({"user": TWO, "item": bad}))
    (batch,) = batches(path)
    with pytest.raises(InputError, match="column 'item': is damaged, or holds text that is no valid UTF-8"):
        contribution_batch(batch.column("user"), batch.column("item"), place=Place(file=path, first_row=1))
