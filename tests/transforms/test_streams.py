"""Unbounded collections: which are taken, and that nothing of them stays in this process.

What a stream gives is what its windows give, shown on runners that have streams: tests/runners/test_streams.py.
"""

from __future__ import annotations

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms.window import FixedWindows, GlobalWindows

from headcount.mechanisms.batches.chunk_store import Keeper
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms import Aggregate, Budget, Contributions, Histogram, ShuffledReports, TopItems, Windows
from headcount.transforms.core.user_shards import keeper_of
from tests.transforms.contract_lines import TABLE
from tests.transforms.test_windows import WINDOWS, expected, windowed

BUDGET = Budget(2, 1e-4)
CLOSING = [name for name in TABLE if name.partition(",")[0] in ("Histogram", "SelectPartitions", "Total", "Aggregate")]
WAYS = ["Histogram", "Histogram, public domain", "Total, bound chosen"]  # the others are slow


@pytest.fixture
def release(make_release) -> Release:
    plain = make_release()
    return Release(plain.key_source, plain.id, windows=Windows(0, 60, 4))


@pytest.fixture
def windowed_release(make_release) -> Release:
    plain = make_release()
    return Release(plain.key_source, plain.id, windows=WINDOWS).of_rows("any")


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


@pytest.mark.seconds
def test_rows_of_a_window_are_those_of_a_job_of_its_own_as_a_stream_is_wired(collect, windowed_release, soon_planned):
    """Without side inputs. Beam's local runner does so as well, once all rows are there."""
    check(collect, windowed_release, WAYS)


@pytest.mark.slow("jobs")
def test_rows_of_a_window_are_those_of_a_job_of_its_own_for_all_others(collect, windowed_release, soon_planned):
    check(collect, windowed_release, [name for name in CLOSING if name not in WAYS])


@pytest.mark.slow("jobs")
@pytest.mark.parametrize("is_bounded", [True, False])
@pytest.mark.parametrize("option", ["--runtime_type_check", "--performance_runtime_type_check"])
def test_the_same_where_beam_checks_the_types_of_elements(option, is_bounded, collect, windowed_release, soon_planned):
    check(lambda build: collect(build, option), windowed_release, WAYS, is_bounded)


def check(collect, release: Release, names: list[str], is_bounded: bool = False) -> None:
    found = windowed(collect, release, names, is_bounded)
    assert [name for name in names if found[name] != expected(release, name)] == []


@pytest.mark.seconds
def test_no_step_of_a_stream_has_a_side_input(release):
    """Flink's runner cannot write it into a checkpoint."""
    rows = stream(FixedWindows(60))
    rows | Histogram(BUDGET, release=release)
    schema = pa.schema({"user": pa.string(), "item": pa.string(), "price": pa.float64()})
    priced = rows | Contributions(values=["price:0:10"], schema=schema)
    priced | Aggregate(BUDGET, ["users", "sum:price:0:10"], release=release)
    steps = beam_runner_api_pb2.ParDoPayload()
    for transform in rows.pipeline.to_runner_api().components.transforms.values():
        if transform.spec.urn == common_urns.primitives.PAR_DO.urn:
            steps.ParseFromString(transform.spec.payload)
            assert not steps.side_inputs, transform.unique_name


def test_nothing_of_a_stream_is_kept_in_this_process(release):
    """What is kept goes when a run ends, which a stream does not."""
    rows = stream(FixedWindows(60))
    rows.pipeline.runner.store = "here"
    counts = rows | Histogram(BUDGET, method="one-stage", bound=3, release=release)
    assert not counts.is_bounded and keeper_of(counts) == Keeper()
