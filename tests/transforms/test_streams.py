"""Unbounded collections: which are taken, and that nothing of them stays in this process.

What a stream gives is what its windows give, shown on runners that have streams: tests/runners/test_streams.py.
"""

from __future__ import annotations

import apache_beam as beam
import pytest
from apache_beam.transforms.window import FixedWindows, GlobalWindows

from headcount.mechanisms.batches.chunk_store import Keeper
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms import Budget, Histogram, ShuffledReports, TopItems, Windows
from headcount.transforms.core.user_shards import keeper_of

BUDGET = Budget(2, 1e-4)


@pytest.fixture
def release(make_release) -> Release:
    plain = make_release()
    return Release(plain.key_source, plain.id, windows=Windows(0, 60, 4))


def stream(windows: beam.transforms.window.WindowFn) -> beam.PCollection:
    """Rows of which Beam believes that more may come."""
    rows = beam.Pipeline(runner="FnApiRunner") | beam.Create([("u", "i")]) | beam.WindowInto(windows)
    rows.is_bounded = False
    return rows


def test_a_stream_has_fixed_windows():
    with pytest.raises(
        ParameterError, match=r"its one window never ends: .*FixedWindows.*Windows\(start, size, number\)"
    ):
        stream(GlobalWindows()) | Histogram(BUDGET, method="one-stage", bound=3)
    with pytest.raises(ParameterError, match="over the whole collection"):
        stream(FixedWindows(60)) | ShuffledReports(BUDGET, users=1000, buckets=10)


def test_transforms_that_may_wait_for_the_end_refuse_streams(release):
    with pytest.raises(ParameterError, match=r"not known to close windows before a stream ends; Histogram.* do, or"):
        stream(FixedWindows(60)) | TopItems(BUDGET, k=2, release=release)


def test_nothing_of_a_stream_is_kept_in_this_process(release):
    """What is kept goes when a run ends, which a stream does not."""
    rows = stream(FixedWindows(60))
    rows.pipeline.runner.store = "here"
    counts = rows | Histogram(BUDGET, method="one-stage", bound=3, release=release)
    assert not counts.is_bounded and keeper_of(counts) == Keeper()
