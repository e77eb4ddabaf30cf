"""Chunks that stay in the process: the same bytes as where they travel, however often and wherever steps run."""

import errno
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.batches import chunk_store as kept
from tests.fixed_key import write_fixed_key

REPEATED = ("--direct_runner_bundle_repeat=1",)
THREADS = ("--direct_running_mode=multi_threading", "--direct_num_workers=2")
PROCESSES = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A job on 30,000 rows, whose chunks are large enough to be kept."""
    place, random = tmp_path_factory.mktemp("kept"), np.random.default_rng(5)
    columns = {"user": random.integers(0, 6000, 30_000), "item": random.geometric(0.1, 30_000)}
    table = {name: pa.array(values).cast(pa.string()) for name, values in columns.items()}
    pq.write_table(pa.table(table), place / "events.parquet", row_group_size=7000)
    write_fixed_key(str(place / "key"))
    words = ["--input", place / "events.parquet", "--user", "user", "--item", "item", "--epsilon", "1"]
    words += ["--delta", "1e-6", "--key-file", place / "key", "--release-id", "r", "--format", "csv"]
    words += ["--shards", "4"]  # which asks for Beam
    return ["histogram", *words]


@pytest.mark.slow("cuts")
@pytest.mark.parametrize("method", ["one-stage", "estimates"])
def test_the_same_bytes_whether_chunks_stay_or_travel(run, words, tmp_path, monkeypatch, method):
    looked_up = []
    look_up = kept.found
    monkeypatch.setattr(
        "headcount.mechanisms.batches.packing.found", lambda chunk: looked_up.append(chunk) or look_up(chunk)
    )

    def released(name, *flags):
        looked_up.clear()
        status, *_ = run(*words, "--method", method, "--output", tmp_path / name, *flags)
        assert status == 0
        assert not kept._stores, "nothing is left of a run"
        return (tmp_path / name / "counts-00000-of-00001.csv").read_bytes(), sum(
            chunk.startswith(kept._MARK) for chunk in looked_up
        )

    expected, references = released("here")
    assert references > 4
    again, more = released("again", *REPEATED)
    assert again == expected and more > references
    assert released("threads", *THREADS) == (expected, 0)
    if method == "estimates":
        assert released("processes", *PROCESSES)[0] == expected
    monkeypatch.setattr(kept.Keeper, "__call__", lambda self, chunk: chunk)
    assert released("travels") == (expected, 0)


@pytest.mark.slow("cuts")
@pytest.mark.parametrize("method", ["one-stage", "estimates"])
def test_the_same_bytes_where_rows_wait_on_disk(run, words, tmp_path, monkeypatch, method):
    """With a limit of nothing all of them do; also where bundles are repeated."""
    forget, kinds, left = kept._Store.forget, [], []

    def watched(self, all_but):
        kinds.extend(type(place) for place in self._chunks.values())
        left.append(len(self._chunks))
        forget(self, all_but)

    monkeypatch.setattr(kept._Store, "forget", watched)

    def released(name, *flags):
        kinds.clear()
        status, *_ = run(*words, "--method", method, "--output", tmp_path / name, *flags)
        assert status == 0
        return (tmp_path / name / "counts-00000-of-00001.csv").read_bytes()

    expected = released("memory")
    assert set(kinds) == {bytes}
    for name, flags in (("disk", ()), ("repeated", REPEATED)):
        assert released(name, "--memory-limit", "0M", *flags) == expected
        assert set(kinds) == {kept._OnDisk}
        assert left[-1] == 0, "all have been dropped on the way"


def test_a_full_disk_ends_the_job_without_output(run, words, tmp_path, monkeypatch):
    def full(**_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    status, _, said = run(*words, "--method", "one-stage", "--output", tmp_path / "out", "--memory-limit", "0M")
    assert status != 0
    assert "No space left on device" in said[-1] and "--memory-limit" in said[-1]
    assert not (tmp_path / "out").exists()
    assert not kept._stores


def test_nothing_is_left_of_a_job_that_fails(run, words, tmp_path, monkeypatch):
    def fails(*_):
        raise ValueError("on purpose")

    monkeypatch.setattr("headcount.transforms.bounding.bound_shard", fails)
    status, *_ = run(*words, "--method", "one-stage", "--bound", "3", "--output", tmp_path / "out")
    assert status != 0
    assert not kept._stores
