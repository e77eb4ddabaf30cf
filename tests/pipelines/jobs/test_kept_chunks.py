"""Chunks that stay in the process: the same bytes as where they travel, however often and wherever steps run."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.batches import kept
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
    return ["histogram", *words]


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


def test_nothing_is_left_of_a_job_that_fails(run, words, tmp_path, monkeypatch):
    def fails(*_):
        raise ValueError("on purpose")

    monkeypatch.setattr("headcount.transforms.bounding.bound_shard", fails)
    status, *_ = run(*words, "--method", "one-stage", "--bound", "3", "--output", tmp_path / "out")
    assert status != 0
    assert not kept._stores
