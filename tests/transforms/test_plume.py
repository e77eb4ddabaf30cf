"""`Plume` as a transform: equal to the pure function, replay-stable, and the key nowhere in its graph."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Zcdp
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.count_release.papers.plume import plume
from headcount.mechanisms.errors import ParameterError
from headcount.transforms import Contributions, Relation
from headcount.transforms.papers.plume import Plume

ZCDP = Zcdp(1, 1e-6)
WAYS = {
    "given bounds": {"max_items": 5, "max_counted_items": 8},
    "sips, chosen bounds": {"selection": "sips"},
    "replaced, chosen bounds": {"selection": "weighted-gaussian", "relation": Relation.REPLACE},
}


def _table(rows: int = 20_000) -> pa.Table:
    random = np.random.default_rng(3)
    users, items = random.integers(0, 1500, rows), (random.pareto(1, rows) * 3).astype(int) % 300
    return pa.table({"user": [f"u{u}" for u in users], "item": [f"i{i}" for i in items]})


def _run(collect, table: pa.Table, transform: Plume, rows_per_batch: int = 6000, *options: str) -> list:
    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        batches = table.to_batches(max_chunksize=rows_per_batch)
        return pipeline | beam.Create(batches) | Contributions() | "Mine" >> transform

    return collect(build, *options)


@pytest.mark.slow("cuts")
@pytest.mark.parametrize("way", WAYS)
def test_it_equals_the_pure_function_however_it_is_cut(collect, make_release, way):
    table, release = _table(), make_release()
    batch = contribution_batch(table["user"].combine_chunks(), table["item"].combine_chunks())
    expected = plume(ZCDP, **WAYS[way]).run([batch], release, "Mine").to_pylist()
    assert len(expected) > 10
    shuffled = table.take(np.random.default_rng(1).permutation(table.num_rows))
    for shards, size, options in ((1, 20_000, ()), (7, 777, ("--direct_runner_bundle_repeat=2",))):
        transform = Plume(ZCDP, **WAYS[way], release=release, shards=shards, output_files=1)
        ((_, counts),) = _run(collect, shuffled, transform, size, *options)
        assert counts.to_pylist() == expected


def test_named_items_stay_also_if_no_sample_has_them(collect, make_release):
    """60 users with the same 400 items, all named; each counts for one of them, so that 340 are in no sample."""
    batch = contribution_batch(pa.array(np.repeat(np.arange(60), 400)), pa.array(np.tile(np.arange(400), 60)))

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        transform = Plume(
            Zcdp(50, 1e-6), max_items=400, max_counted_items=1, item_type=int, release=make_release(), shards=3
        )
        return pipeline | beam.Create([batch]) | "Mine" >> transform

    expected = (
        plume(Zcdp(50, 1e-6), max_items=400, max_counted_items=1, item_type=int)
        .run([batch], make_release(), "Mine")
        .to_pylist()
    )
    assert sorted(map(tuple, collect(build))) == [tuple(row.values()) for row in expected]
    assert len(expected) == 400


def test_the_decision_tells_what_was_chosen(collect, make_release):
    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        rows = pipeline | beam.Create(_table().to_batches())
        return (rows | "Mine" >> Plume(ZCDP, release=make_release()).with_decision()).decision

    (decided,) = collect(build)
    assert decided.report_fields() == {"chosen": {"max_items": decided.counted}}
    assert f"{decided.counted:,} items per user" in decided.description()
    assert f"{decided.counted} items" in decided.guarantee.description()


def test_nothing_is_decided_where_bounds_are_given():
    with pytest.raises(ParameterError, match="nothing is decided"):
        Plume(ZCDP, max_items=5).with_decision()


def test_no_rows_give_no_counts(collect, make_release):
    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        empty = pipeline | beam.Create([("u", "i")]) | beam.Filter(lambda row: False)
        return empty | Plume(ZCDP, max_items=5, release=make_release(), output_files=2, shards=2)

    assert sorted((k, counts.num_rows) for k, counts in collect(build)) == [(0, 0), (1, 0)]
