"""Uneven data: a job's memory stays bounded by what it must hold at once, and nobody is lost.

Each job is a process of its own that tells its peak (VmHWM: that of a process's own memory, while ru_maxrss never falls
below its parent's). The limits leave room for other machines, and each fails if the rows were held as they come.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

MAIN = """
import sys
from headcount.pipelines.main import main
from headcount.pipelines.sources import parquet
parquet.BYTES_PER_BATCH, parquet.ROWS_PER_BATCH, parquet.ROWS_HERE = 1 << 25, 1 << 18, 1 << 17  # an eighth: the logs are small
status = main(sys.argv[1:])
print(open('/proc/self/status').read())
sys.exit(status)
"""
MB = 1 << 20

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from Linux's /proc")


def _job(path: Path, output: Path, *flags: str) -> tuple[dict[str, int], int]:
    """The released counts, and the peak memory in bytes. The noise is small: every item with three users is there."""
    words = [
        "histogram",
        "--of",
        "events",
        "--input",
        path,
        "--user",
        "user",
        "--item",
        "item",
        "--format",
        "csv",
        "--output",
        output,
    ]
    words += ["--epsilon", "20", "--delta", "1e-2", "--shards", "4", *flags]  # a pipeline, though the logs are small
    done = subprocess.run([sys.executable, "-c", MAIN, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (counts,) = output.glob("counts-*.csv")
    table = pyarrow.csv.read_csv(counts)
    peak = re.search(r"VmHWM:\s+(\d+) kB", done.stdout)
    return dict(zip(table["item"].to_pylist(), table["bounded_count"].to_pylist(), strict=True)), int(peak[1]) * 1024


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> int:
    """The peak of a job with next to nothing to do."""
    directory = tmp_path_factory.mktemp("base")
    _write(directory / "log.parquet", np.arange(9), np.zeros(9, np.int64), pa.array(["item"]))
    return _job(directory / "log.parquet", directory / "out", "--bound", "1")[1]


def _write(path: Path, user: np.ndarray, item: np.ndarray, names: pa.Array, **options: object) -> None:
    columns = {"user": pa.array([f"user{k}" for k in user]), "item": names.take(pa.array(item))}
    pq.write_table(pa.table(columns), path, **options)


def _ordinary() -> tuple[np.ndarray, np.ndarray]:
    """Ten users for each of a thousand items."""
    return np.arange(1, 10_001), np.arange(10_000) % 1000


@pytest.mark.slow("sizes")
def test_a_busy_user_costs_by_its_items_and_not_by_its_rows(tmp_path, base):
    """2,500,000 rows of one user on 100,000 items beside 10,000 of others: 45 MB of rows in one shard, 3 MB of pairs."""
    generator = np.random.default_rng(5)
    names = pa.array([f"the item {k:06d}" for k in range(100_000)])
    user, item = _ordinary()
    hot = generator.integers(0, 100_000, 2_500_000)
    users = pa.DictionaryArray.from_arrays(
        pa.array(np.concatenate([np.zeros(len(hot), np.int32), user.astype(np.int32)])),
        pa.array([f"user{k}" for k in range(10_001)]),
    )
    items = names.take(pa.array(np.concatenate([hot, item])))
    table = pa.table({"user": users.dictionary_decode(), "item": items})
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=500_000)
    counts, peak = _job(tmp_path / "log.parquet", tmp_path / "out", "--bound", "1")
    assert len(counts) >= 1000 and all(abs(counts[f"the item {k:06d}"] - 10) <= 3 for k in range(1000))
    assert peak - base < 300 * MB


@pytest.mark.slow("sizes")
def test_an_item_that_everybody_holds(tmp_path, base):
    user, item = _ordinary()
    users = np.concatenate([np.arange(300_000), user])
    items = np.concatenate([np.full(300_000, 1000), item])
    names = pa.array([f"the item {k:06d}" for k in range(1001)])
    _write(tmp_path / "log.parquet", users, items, names)
    counts, peak = _job(tmp_path / "log.parquet", tmp_path / "out", "--bound", "2")
    assert len(counts) == 1001 and abs(counts["the item 001000"] - 300_000) <= 5
    assert peak - base < 200 * MB


@pytest.mark.slow("sizes")
def test_very_long_names_are_dropped_row_by_row(tmp_path, base):
    """400 names of 1 MB each, read 32 MB at a time: never all of them are held."""
    user, item = _ordinary()
    short = pa.array([f"the item {k:06d}" for k in range(1000)])
    path = tmp_path / "log.parquet"
    schema = pa.schema({"user": pa.string(), "item": pa.string()})
    with pq.ParquetWriter(path, schema, use_dictionary=False) as writer:
        for part in range(20):
            rows = slice(500 * part, 500 * (part + 1))
            long = pa.array([f"{part:02d}{k:02d}" + "x" * MB for k in range(20)])
            items = pa.concat_arrays([short.take(pa.array(item[rows])), long])
            users = pa.array([f"user{k}" for k in user[rows]] + ["user1"] * len(long))
            writer.write_table(pa.table({"user": users, "item": items}))
    counts, peak = _job(path, tmp_path / "out", "--bound", "1")
    assert sorted(counts) == short.to_pylist() and all(abs(count - 10) <= 3 for count in counts.values())
    assert peak - base < 200 * MB
