"""Files: patterns, filesystems, and files that are cut, damaged, gone or closed to us."""

import bz2
import gzip
import importlib.util
import io
import lzma
import os
import tracemalloc
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from apache_beam.io.filesystem import FileMetadata, FileSystem

from headcount.mechanisms.errors import InputError, ParameterError
from headcount.pipelines.sources import csv, files
from headcount.pipelines.sources import events as sources
from headcount.pipelines.sources.columns import columns_of
from headcount.pipelines.sources.events import column_types, expand_inputs, expected_rows, read_batches
from tests.pipelines.sources.event_files import (
    CANARY,
    CSV,
    FILES,
    LONG,
    ROWS,
    avro,
    json_lines,
    parquet,
    put,
    refusal,
    rows,
)

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
    columns = columns_of("user", "item")
    types = sources.ColumnTypes(pa.schema([("user", pa.string()), ("item", pa.string())]), "first")
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


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zst"])
def test_what_is_much_larger_without_compression_is_read_in_pieces(tmp_path, ending):
    """A few kilobytes that become 200 MB: what is held of it at once is far less."""
    made = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.compress}[ending]
    path = put(tmp_path, f"lines.csv.{ending}", made(b"\n" * 200_000_000))
    tracemalloc.start()
    with files.open_text(path) as file:
        size = sum(map(len, iter(lambda: file.read(1 << 20), b"")))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == 200_000_000 and most < 100_000_000


def test_the_largest_file_tells_how_large_all_are(tmp_path):
    """Others write empty first files."""
    for name, number in (("part-0", 0), ("part-1", 100_000)):
        user = pa.array([f"u{n}" for n in range(number)], pa.string())
        pq.write_table(pa.table({"user": user, "item": user}), tmp_path / f"{name}.parquet", compression="zstd")
    inputs = expand_inputs([str(tmp_path)])
    assert 100_000 <= expected_rows(inputs) <= 120_000
    whole = pq.read_metadata(tmp_path / "part-1.parquet").row_group(0).total_byte_size
    assert inputs.decoded(column_types(inputs, columns_of("user", "item"))) == pytest.approx(whole, rel=0.2)


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "e.csv")
    with pytest.raises(InputError, match="is a pipe or a device, and the first file is looked at before it is read"):
        column_types(expand_inputs([str(tmp_path / "e.csv")]), columns_of("user", "item"))
