"""`DebiasedCount` as a transform: equal to the pure function, replay-stable, and true to the parameters it is given."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.papers.debiased import debiased_count
from headcount.transforms import Budget, Contributions, Estimate, IntEstimate, RandClip
from headcount.transforms.papers.debiased_count import DebiasedCount

ITEMS = ["i1", "i2", "i7", "nobody"]
SEVERAL = {"items": ITEMS, "max_per_item": 2, "max_items": 2}
WAYS = {
    "one item, users counted": (Budget(1), {"items": "i1", "max_per_item": 2}),
    "several, Laplace, users counted": (Budget(1), SEVERAL | {"users_share": 0.3}),
    "several, Gaussian, users public": (Budget(1, 1e-6), SEVERAL | {"noise": "gaussian", "users": 1500}),
    "one item, replaced": (Budget(1), {"items": "i1", "max_per_item": 2, "users": 1500, "relation": Relation.REPLACE}),
    "several, Gaussian, replaced": (
        Budget(1, 1e-6),
        SEVERAL | {"noise": "gaussian", "users": 1500, "relation": Relation.REPLACE, "max_items": 4},
    ),
    "several, replaced": (Budget(1, 1e-6), SEVERAL | {"users": 1500, "relation": Relation.REPLACE, "largest_mean": 1}),
}


def _table(rows: int = 20_000) -> pa.Table:
    random = np.random.default_rng(3)
    users, items = random.integers(0, 1500, rows), (random.pareto(1, rows) * 3).astype(int) % 300
    return pa.table({"user": [f"u{u}" for u in users], "item": [f"i{i}" for i in items]})


def _batch(table: pa.Table) -> pa.RecordBatch:
    return contribution_batch(table["user"].combine_chunks(), table["item"].combine_chunks())


def _run(collect, table: pa.Table, transform: DebiasedCount, rows_per_batch: int = 6000, *options: str) -> list:
    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        batches = table.to_batches(max_chunksize=rows_per_batch)
        return pipeline | beam.Create(batches) | Contributions() | "Mine" >> transform

    return collect(build, *options)


@pytest.mark.parametrize("way", WAYS)
def test_it_equals_the_pure_function(collect, make_release, way):
    budget, given = WAYS[way]
    table, release = _table(), make_release()
    expected = debiased_count(budget, **given).run([_batch(table)], release, "Mine")
    assert expected.num_rows == (1 if given["items"] == "i1" else 4)
    found = _run(collect, table, DebiasedCount(budget, **given, release=release, shards=5))
    assert all(isinstance(row, Estimate) for row in found)
    assert sorted(map(tuple, found)) == [tuple(row.values()) for row in expected.to_pylist()]


def test_another_key_id_label_parameter_or_row_draws_other_noise(make_release):
    """Noise of scale 6 on 100 totals: independent draws agree on more than half of them with probability below 1e-20."""
    table, items = _table(), [f"i{k}" for k in range(100)]

    def totals(
        release=None, label: str = "Mine", users: int = 1500, epsilon: float = 50, table: pa.Table = table
    ) -> list:
        plan = debiased_count(Budget(epsilon), items, max_per_item=3, users=users, largest_mean=1e9)
        return plan.run([_batch(table)], release or make_release(), label).column("count").to_pylist()

    base = totals()
    assert totals() == base
    one_more = pa.concat_tables([table, pa.table({"user": ["newcomer"], "item": ["i3"]})])
    others = {
        "key": totals(make_release(key=8)),
        "id": totals(make_release("other")),
        "label": totals(label="Other"),
        "epsilon": totals(epsilon=50.001),
        "one row": totals(table=one_more),
    }
    for name, other in others.items():
        assert sum(a == b for a, b in zip(base, other, strict=True)) < 50, name


def test_every_partition_is_there_and_what_was_bounded_before_is_taken(collect, make_release):
    release = make_release()

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        rows = pipeline | beam.Create([(f"u{k}", f"i{k % 3}") for k in range(900)])
        counts = DebiasedCount(Budget(20), ["i0", "i1"], max_per_item=1, release=release, output_files=5)
        return rows | RandClip(3, release=release) | counts

    found = dict(collect(build))
    assert sorted(found) == list(range(5))
    rows = [row for counts in found.values() for row in counts.to_pylist()]
    assert sorted(row["item"] for row in rows) == ["i0", "i1"]
    for row in rows:  # a third of the users has each item: h(l) = 1 - exp(-l) = 1/3
        assert row["count"] == pytest.approx(900 * np.log(1.5), rel=0.1)


def test_the_guarantee_and_what_is_refused():
    transform = DebiasedCount(Budget(1, 1e-6), ["a", "b"], max_per_item=3, users=10, relation="replace")
    assert transform.guarantee() == transform.mechanism.guarantee()
    assert transform.guarantee().relation is Relation.REPLACE
    with pytest.raises(ParameterError, match="give users"):
        DebiasedCount(Budget(1), "a", max_per_item=3, relation="replace")
    with pytest.raises(ParameterError, match="output_files must be an integer from 1 to 10000, got 0"):
        DebiasedCount(Budget(1), "a", max_per_item=3, output_files=0)
    with pytest.raises(ParameterError, match="shards must be"):
        DebiasedCount(Budget(1), "a", max_per_item=3, shards=0)
    with pytest.raises(ParameterError, match="--key-env or --key-file"):
        from apache_beam.options.pipeline_options import PipelineOptions

        remote = beam.Pipeline(options=PipelineOptions(["--runner=FlinkRunner"]))
        remote | beam.Create([("u", "i")]) | DebiasedCount(Budget(1), "i", max_per_item=2)


def test_empty_input_and_integer_items(collect, make_release):
    transform = DebiasedCount(Budget(1), [3, -4], max_per_item=2, item_type=int, release=make_release())
    empty = pa.table({"user": pa.array([], pa.string()), "item": pa.array([], pa.int64())})
    found = _run(collect, empty, transform)
    assert sorted(row.item for row in found) == [-4, 3] and all(isinstance(row, IntEstimate) for row in found)
    assert all(np.isfinite([row.count, row.noise_stddev]).all() for row in found)
