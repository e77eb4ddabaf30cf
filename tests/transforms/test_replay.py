"""Replay stability: the same key and id give the same rows, however the work is cut; anything else, independent noise."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms import private_histogram
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.run_sums import sum_by_code
from headcount.mechanisms.counting.noisy import bounded_batches
from headcount.mechanisms.histogram.fixed import unbounded_histogram
from headcount.transforms import Budget, Contributions, Histogram
from headcount.transforms.core.coders import RecordBatchCoder

BUDGET = Budget(2, 1e-4)
BOUND = 5


def _table(seed: int = 5, rows: int = 30_000) -> pa.Table:
    random = np.random.default_rng(seed)
    users, items = random.integers(0, 2000, rows), random.integers(0, 120, rows)
    return pa.table({"user": [f"u{u}" for u in users], "item": [f"i{i}" for i in items]})


def _batch(table: pa.Table) -> pa.RecordBatch:
    return contribution_batch(table["user"].combine_chunks(), table["item"].combine_chunks())


def _run(collect, release, table: pa.Table, rows_per_batch: int, shards: int, *options: str) -> list[dict]:
    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        batches = table.to_batches(max_chunksize=rows_per_batch)
        histogram = Histogram(
            BUDGET, of="events", method="one-stage", bound=BOUND, release=release, shards=shards, output_files=1
        )
        return pipeline | beam.Create(batches) | Contributions() | "Histogram" >> histogram

    ((_, counts),) = collect(build, *options)
    return counts.to_pylist()


@pytest.mark.slow("cuts")
def test_the_same_rows_for_any_order_batches_shards_workers_and_repeats(collect, make_release):
    table, release = _table(), make_release()
    expected = unbounded_histogram(BUDGET, bound=BOUND).run([_batch(table)], release).to_pylist()
    assert len(expected) > 50
    shuffled = table.take(np.random.default_rng(1).permutation(table.num_rows))
    assert _run(collect, release, table, 30_000, 1) == expected
    assert _run(collect, release, shuffled, 777, 13) == expected
    assert _run(collect, release, shuffled, 4000, 4, "--direct_runner_bundle_repeat=2") == expected
    workers = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
    assert _run(collect, release, shuffled, 4000, 4, *workers) == expected


@pytest.mark.slow("cuts")
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_estimates_are_the_same_if_every_stage_is_repeated(collect, make_release, noise):
    """Names, bounds, counts, groups and totals on both ways: each reads what is released of the last, beyond its barrier."""
    table, release = _table(), make_release()
    expected = private_histogram(BUDGET, of="events", noise=noise).run([_batch(table)], release).to_pylist()
    assert len(expected) > 50
    shuffled = table.take(np.random.default_rng(1).permutation(table.num_rows))

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        histogram = Histogram(BUDGET, of="events", noise=noise, release=release, shards=4, output_files=1)
        return pipeline | beam.Create(shuffled.to_batches(4000)) | Contributions() | "Histogram" >> histogram

    for option in ("--direct_runner_bundle_repeat=2", "--direct_num_workers=2"):
        ((_, counts),) = collect(build, option)
        assert counts.to_pylist() == expected


@pytest.mark.slow("cuts")
@pytest.mark.parametrize("method", ["one-stage", "estimates"])
def test_a_draw_that_all_items_share_is_the_same_in_every_shard_worker_and_repeat(collect, make_release, method):
    table, release, domain = _table(), make_release(), [f"i{k}" for k in range(60)]
    asked = {"domain": domain, "of": "users", "method": method, "bound": 5, "noise": "gaussian"}
    made = private_histogram(BUDGET, **asked)
    assert (made.plan if method == "one-stage" else made.stages.plan(None, made.stages.ends()[0][1]).counts).shared
    expected = made.run([_batch(table)], release).to_pylist()
    assert len(expected) == 60
    for shards, rows, option in ((1, 30_000, "--direct_num_workers=2"), (13, 777, "--direct_runner_bundle_repeat=2")):

        def build(pipeline: beam.Pipeline) -> beam.PCollection:
            histogram = Histogram(BUDGET, **asked, release=release, shards=shards, output_files=1)  # noqa: B023
            batches = table.to_batches(max_chunksize=rows)  # noqa: B023
            return pipeline | beam.Create(batches) | Contributions() | "Histogram" >> histogram

        ((_, counts),) = collect(build, option)
        assert counts.to_pylist() == expected


def _noise(table: pa.Table, release, label: str = "Histogram", bound: int = BOUND) -> dict[str, float]:
    """The noise of every item that is released: the count less the exact bounded sum."""
    histogram = unbounded_histogram(BUDGET, bound=bound)
    (bounded,) = bounded_batches([_batch(table)], histogram.steps, release, f"{label}/Bounded")
    item = bounded.column("item")
    sums = sum_by_code(np.asarray(item.indices).astype(int), np.asarray(bounded.column("count")), len(item.dictionary))
    exact = dict(zip(item.dictionary.to_pylist(), sums.tolist(), strict=True))
    counts = histogram.run([_batch(table)], release, label)
    return {row["item"]: row["bounded_count"] - exact[row["item"]] for row in counts.to_pylist()}


def test_anything_else_draws_independent_noise_on_every_item(make_release):
    """Noise of scale 2.5 on 120 items: two independent draws agree on an item with probability about 0.1, so more than
    half agreeing has a probability below 1e-20; shared bits would make all of them agree."""
    table, release = _table(), make_release()
    base = _noise(table, release)
    changed = pa.concat_tables([table.slice(0, table.num_rows - 1), pa.table({"user": ["newcomer"], "item": ["i0"]})])
    others = {
        "key": _noise(table, make_release(key=8)),
        "id": _noise(table, make_release("other")),
        "label": _noise(table, release, "Other"),
        "bound": _noise(table, release, bound=BOUND + 1),
        "one row": _noise(changed, release),
    }
    for name, noise in others.items():
        both = base.keys() & noise.keys()
        assert len(both) > 50
        agreeing = sum(base[item] == noise[item] for item in both)
        assert agreeing < len(both) / 2, name
    assert _noise(table, release) == base


def test_noise_that_depends_on_the_item_alone_would_be_caught(monkeypatch, make_release):
    """The mutation: without the digest of the whole histogram, one changed row leaves the noise of other items as it was."""
    from headcount.mechanisms.counting import noisy

    monkeypatch.setattr(noisy, "block_key", lambda subkey, digest=b"": subkey)
    table, release = _table(), make_release()
    changed = pa.concat_tables([table.slice(0, table.num_rows - 1), pa.table({"user": ["newcomer"], "item": ["i0"]})])
    base, noise = _noise(table, release), _noise(changed, release)
    both = base.keys() & noise.keys()
    assert sum(base[item] == noise[item] for item in both) > 0.9 * len(both)


@pytest.mark.slow("sizes")
def test_a_sliced_batch_with_two_consumers_and_a_side_input_stays_small(collect):
    names = pa.array([f"a rather long name {k}" for k in range(300_000)]).dictionary_encode()
    parent = pa.RecordBatch.from_pydict({"user": names, "item": names})
    assert len(RecordBatchCoder().encode(parent[5:15])) < 10_000
    assert isinstance(beam.coders.registry.get_coder(pa.RecordBatch), RecordBatchCoder)

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        slices = (
            pipeline | beam.Create([0, 1]) | beam.Map(lambda k: parent[k : k + 10]).with_output_types(pa.RecordBatch)
        )
        side = beam.pvalue.AsList(slices)
        one = slices | "One" >> beam.Map(lambda batch, side: (len(side), batch.num_rows), side)
        two = slices | "Two" >> beam.Map(lambda batch: (0, batch.get_total_buffer_size()))
        return (one, two) | beam.Flatten()

    found = collect(build)
    assert sorted(found)[-2:] == [(2, 10), (2, 10)]


@pytest.mark.parametrize("rows", [0, 1])
def test_tiny_inputs_release_nothing_of_one_user(collect, make_release, rows):
    table = pa.table({"user": pa.array(["u"] * rows, pa.string()), "item": pa.array(["i"] * rows, pa.string())})
    assert _run(collect, make_release(), table, 10, 3) == []
