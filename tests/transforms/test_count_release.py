"""`PrivateCountRelease` and `TopItems` as transforms: equal to the pure function, and replay-stable."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.count_release.release import Released, count_release
from headcount.mechanisms.count_release.top_names import top_items
from headcount.mechanisms.errors import ParameterError
from headcount.transforms import Budget, Contributions, NoisyCount, RandClip, Zcdp
from headcount.transforms import count_release as module
from headcount.transforms.core.rows import RankedItem
from headcount.transforms.count_release import PrivateCountRelease, TopItems

ZCDP = Zcdp(2, 1e-4)
WAYS = {
    "users": (ZCDP, {}),
    "events, noise reduced": (ZCDP, {"max_per_item": 3, "noise_reduction": True}),
    "replaced, a small frame": (Budget(5, 1e-4), {"relation": "replace", "k_bar": 20}),
    "strict": (ZCDP, {"relative_error": 0.05, "strict_target": True, "start_epsilon": 0.01}),
}


def _table(rows: int = 20_000) -> pa.Table:
    random = np.random.default_rng(3)
    users, items = random.integers(0, 2000, rows), (random.pareto(1, rows) * 3).astype(int) % 300
    return pa.table({"user": [f"u{u}" for u in users], "item": [f"i{i}" for i in items], "number": items})


def _batch(table: pa.Table, item: str = "item") -> pa.RecordBatch:
    return contribution_batch(table["user"].combine_chunks(), table[item].combine_chunks())


def _run(collect, table: pa.Table, transform: beam.PTransform, rows_per_batch: int = 6000, *options: str) -> list:
    item = "number" if transform.mechanism.item_type is int else "item"

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        batches = table.to_batches(max_chunksize=rows_per_batch)
        return pipeline | beam.Create(batches) | Contributions(item=item) | "Mine" >> transform

    return collect(build, *options)


@pytest.mark.parametrize("way", WAYS)
def test_a_release_equals_the_pure_function(collect, make_release, way):
    budget, given = WAYS[way]
    table, release = _table(), make_release()
    expected = count_release(budget, **given).run([_batch(table)], release, "Mine")
    assert expected.num_rows > 5
    found = _run(collect, table, PrivateCountRelease(budget, **given, release=release, shards=5))
    assert all(isinstance(row, NoisyCount) for row in found)
    assert sorted(map(tuple, found)) == [tuple(row.values()) for row in expected.to_pylist()]


@pytest.mark.slow("cuts")
def test_the_same_rows_for_any_order_batches_shards_and_repeats(collect, make_release):
    """Also with so many item shards that their tops are put together in two steps."""
    table, release = _table(), make_release()
    expected = count_release(ZCDP).run([_batch(table)], release, "Mine").to_pylist()
    shuffled = table.take(np.random.default_rng(1).permutation(table.num_rows))
    make = lambda shards: PrivateCountRelease(ZCDP, release=release, shards=shards, output_files=1)  # noqa: E731
    for shards, size, options in ((1, 20_000, ()), (7, 777, ("--direct_runner_bundle_repeat=2",)), (80, 9000, ())):
        ((_, counts),) = _run(collect, shuffled, make(shards), size, *options)
        assert counts.to_pylist() == expected


def test_a_frame_that_is_cut_is_the_same_for_any_shards(collect, make_release):
    """Many items have as many users as that of the last rank: which of them are looked at must not depend on the shards."""
    table, release = _table(), make_release()
    expected = count_release(ZCDP, k_bar=15).run([_batch(table)], release, "Mine").to_pylist()
    assert 5 < len(expected) <= 15
    for shards in (1, 3):
        transform = PrivateCountRelease(ZCDP, k_bar=15, release=release, shards=shards, output_files=1)
        ((_, counts),) = _run(collect, table, transform)
        assert counts.to_pylist() == expected


def test_integers_partitions_and_the_decision(collect, make_release):
    table, release = _table(), make_release().of_rows("any")  # which no other way to read rows changes
    expected = count_release(ZCDP, item_type=int).run_decided([_batch(table, "number")], release, "Mine")
    make = lambda **given: PrivateCountRelease(ZCDP, item_type=int, release=release, shards=4, **given)  # noqa: E731
    found = _run(collect, table, make())
    assert all(type(row).__name__ == "NoisyIntCount" and row._fields[0] == "number" for row in found)
    assert sorted(map(tuple, found)) == [tuple(row.values()) for row in expected.counts.to_pylist()]

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        rows = pipeline | beam.Create(table.to_batches()) | Contributions(item="number")
        both = rows | "Mine" >> make(output_files=40).with_decision()
        assert both.decision.element_type is Released
        return (both.counts, both.decision) | beam.Flatten()

    *partitions, decision = sorted(collect(build), key=lambda found: isinstance(found, Released))
    assert decision == expected.released
    assert sorted(k for k, _ in partitions) == list(range(40))
    assert min(counts.num_rows for _, counts in partitions) == 0
    rows = [row for _, counts in partitions for row in counts.to_pylist()]
    shown = [{"number": row.pop("item"), **row} for row in expected.counts.to_pylist()]
    assert sorted(rows, key=lambda row: row["number"]) == shown
    for _, counts in partitions:
        assert counts.column("number").to_pylist() == sorted(counts.column("number").to_pylist())


def test_empty_input_runs_all_rounds(collect, make_release):
    """When the rounds end is published: with no data they end where they do with data that nothing is found in."""
    empty = pa.table({"user": pa.array([], pa.string()), "item": pa.array([], pa.string())})
    one = pa.table({"user": ["u"], "item": ["i"]})
    spent = []
    for table in (empty, one):

        def build(pipeline: beam.Pipeline, table: pa.Table = table) -> beam.PCollection:
            rows = pipeline | beam.Create(table.to_batches()) | Contributions()
            both = (
                rows
                | "Mine" >> PrivateCountRelease(Zcdp(0.5, 1e-6), release=make_release(), output_files=1).with_decision()
            )
            return (both.counts, both.decision) | beam.Flatten()

        found = collect(build)
        spent += [element for element in found if isinstance(element, Released)]
        assert [element[1].num_rows for element in found if not isinstance(element, Released)] == [0]
    assert spent[0] == spent[1] and sum(level.rounds for level in spent[0].levels) > 15


def test_the_top_equals_the_pure_function(collect, make_release):
    table, release, budget = _table(), make_release(), Budget(2, 1e-4)
    expected = top_items(budget, 8).run([_batch(table)], release, "Mine").to_pylist()
    assert [row["rank"] for row in expected] == list(range(1, 9))
    assert {"i0", "i1", "i2"} < {row["item"] for row in expected}
    found = _run(collect, table, TopItems(budget, 8, release=release, shards=5))
    assert all(isinstance(row, RankedItem) for row in found)
    assert [row._asdict() for row in sorted(found)] == expected
    partitions = dict(_run(collect, table, TopItems(budget, 8, release=release, shards=9, output_files=3), 777))
    assert sorted(partitions) == [0, 1, 2]
    rows = [row for items in partitions.values() for row in items.to_pylist()]
    assert sorted(rows, key=lambda row: row["rank"]) == expected
    assert all(items["rank"].to_pylist() == sorted(items["rank"].to_pylist()) for items in partitions.values())
    numbers = _run(collect, table, TopItems(budget, 8, item_type=int, release=release))
    assert len(numbers) == 8 and all(row._fields == ("rank", "number") for row in numbers)


def test_what_was_bounded_before_is_taken(collect, make_release):
    release = make_release()

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        rows = pipeline | beam.Create([(f"u{k}", f"i{k % 3}") for k in range(3000)] * 2)
        return rows | RandClip(3, release=release) | PrivateCountRelease(ZCDP, release=release)

    found = collect(build)
    assert sorted(row.item for row in found) == ["i0", "i1", "i2"]
    for row in found:  # repeated rows count once
        assert row.bounded_count == pytest.approx(1000, rel=0.2)


@pytest.mark.parametrize("mutation", ["bounded by nothing", "bounded by more"])
def test_a_wrong_bound_is_refused(collect, make_release, monkeypatch, mutation):
    """The check of what bounds the batches: it must see steps that do not keep each user to one on an item."""
    from headcount.mechanisms.bounding.steps import LimitItemsStep, LimitPerItemStep
    from headcount.mechanisms.count_release.release import CountRelease

    steps = (LimitItemsStep(3),) if mutation == "bounded by nothing" else (LimitPerItemStep(2),)
    monkeypatch.setattr(CountRelease, "steps", steps)
    with pytest.raises(Exception, match="calibrated for contributions bounded by linf <= 1"):
        _run(collect, _table(100), PrivateCountRelease(ZCDP, release=make_release()))


def test_tops_of_very_many_shards_do_not_meet_at_once():
    assert {module._top((shard, []), 3, str)[0] for shard in range(100)} == {0, 1, 2, 3}


def test_the_guarantee_and_what_is_refused():
    transform = PrivateCountRelease(ZCDP, relation="replace")
    assert (
        transform.guarantee() == transform.mechanism.guarantee() == count_release(ZCDP, relation="replace").guarantee()
    )
    assert TopItems(Budget(1, 1e-6), 3).guarantee().epsilon == 1
    with pytest.raises(ParameterError, match="output_files must be an integer from 1 to 10000, got 0"):
        PrivateCountRelease(ZCDP, output_files=0)
    with pytest.raises(ParameterError, match="shards must be"):
        TopItems(Budget(1, 1e-6), 3, shards=0)
    with pytest.raises(ParameterError, match="needs a delta above 0 and below 1/2, got 0.0"):
        PrivateCountRelease(Zcdp(1))
    with pytest.raises(ParameterError, match="--key-env or --key-file"):
        from apache_beam.options.pipeline_options import PipelineOptions

        remote = beam.Pipeline(options=PipelineOptions(["--runner=FlinkRunner"]))
        remote | beam.Create([("u", "i")]) | PrivateCountRelease(ZCDP)
