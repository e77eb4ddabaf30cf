"""The histograms as transforms: equal to the pure function, for every kind of input, and refusing what would break them."""

from __future__ import annotations

from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.transforms import trigger
from apache_beam.transforms.window import FixedWindows, GlobalWindows

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import gather
from headcount.mechanisms.batches.user_shards import split_by_user
from headcount.mechanisms.bounding.steps import RandClipStep, bound_shard, provenance
from headcount.mechanisms.counting.quality import Quality, left_out
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.fixed import bounded_histogram, unbounded_histogram
from headcount.transforms import (
    Bound,
    Budget,
    ClipNorm,
    Contributions,
    Histogram,
    LimitItems,
    LimitPerItem,
    NoisyCount,
    NoisyCounts,
    NoisyIntCount,
    RandClip,
    Relation,
)

BUDGET = Budget(1, 1e-6)


class Event(NamedTuple):
    who: str
    what: str


def _rows(n: int = 12_000) -> list[tuple[str, str]]:
    random = np.random.default_rng(3)
    users = random.integers(0, 1500, n)
    items = (random.pareto(1, n) * 3).astype(int) % 300
    return [(f"u{u}", f"i{i}") for u, i in zip(users, items, strict=True)]


def _batch(rows: list[tuple[str, str]]) -> pa.RecordBatch:
    users, items = zip(*rows, strict=True)
    return contribution_batch(pa.array(users), pa.array(items))


def _tuples(counts: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return sorted(zip(*(column.to_pylist() for column in counts.columns), strict=True))


@pytest.mark.slow("cuts")
def test_unbounded_equals_the_pure_function_for_every_kind_of_input(collect, make_release):
    rows = _rows()
    release = make_release().of_rows("any")  # which no other way to read rows changes
    transform = lambda: Histogram(BUDGET, of="events", method="one-stage", bound=10, release=release, shards=3)  # noqa: E731
    expected = _tuples(unbounded_histogram(BUDGET, bound=10).run([_batch(rows)], release))
    assert len(expected) > 10
    users, items = (list(column) for column in zip(*rows, strict=True))
    table = pa.table({"who": users, "what": items})
    by_name = Contributions(user="who", item="what")
    import pandas as pd

    kinds: dict[str, tuple[list[Any], Contributions | None]] = {
        "tuples": (rows, None),
        "dicts": ([{"who": u, "what": i, "else": 1} for u, i in rows], by_name),
        "rows": ([beam.Row(who=u, what=i) for u, i in rows], by_name),
        "named tuples": ([Event(u, i) for u, i in rows], by_name),
        "arrow": (table.to_batches(max_chunksize=3000), by_name),
        "dictionary arrow": ([pa.record_batch({"who": users, "what": pa.array(items).dictionary_encode()})], by_name),
        "frames": ([pd.DataFrame({"who": users, "what": items})], by_name),
        "counts": ([(u, i, 1) for u, i in rows], None),
    }
    for name, (elements, row_schema) in kinds.items():

        def build(pipeline: beam.Pipeline) -> beam.PCollection:
            given = pipeline | beam.Create(elements)  # noqa: B023
            return (given if row_schema is None else given | row_schema) | "Histogram" >> transform()  # noqa: B023

        assert sorted(map(tuple, collect(build))) == expected, name


@pytest.mark.parametrize(("noise", "cap"), [("laplace", None), ("gaussian", None), ("laplace", 1), ("gaussian", 20)])
def test_bounded_equals_the_pure_function_and_holds_every_item(collect, make_release, noise, cap):
    rows, release = _rows(), make_release()
    domain = [f"i{k}" for k in range(40)] + ["nobody", "no one"]
    histogram = bounded_histogram(BUDGET, domain, bound=10, noise=noise, max_per_item=cap)
    expected = histogram.run([_batch(rows)], release, "Mine")
    assert expected.column("item").to_pylist() == sorted(domain)

    asked = {"of": "events", "method": "one-stage", "max_per_item": cap}

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        return (
            pipeline
            | beam.Create(rows)
            | "Mine" >> Histogram(BUDGET, domain=domain, bound=10, noise=noise, release=release, shards=5, **asked)
        )

    assert sorted(map(tuple, collect(build))) == _tuples(expected)


def test_empty_input_gives_an_empty_result_or_the_whole_domain(collect, make_release):
    def unbounded(pipeline: beam.Pipeline) -> beam.PCollection:
        return pipeline | beam.Create([]) | Histogram(BUDGET, of="events", method="one-stage", bound=10, output_files=2)

    partitions = dict(collect(unbounded))
    assert sorted(partitions) == [0, 1] and all(part.num_rows == 0 for part in partitions.values())

    def bounded(pipeline: beam.Pipeline) -> beam.PCollection:
        return pipeline | beam.Create([]) | Histogram(BUDGET, method="one-stage", domain=["a", "b"], bound=10)

    assert sorted(row.item for row in collect(bounded)) == ["a", "b"]


def test_integer_items_and_counts_give_rows_with_a_schema(collect, make_release):
    rows = [(u, i % 3, 2) for u in range(400) for i in range(3)]

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        return (
            pipeline
            | beam.Create(rows)
            | Histogram(BUDGET, of="events", method="one-stage", bound=6, release=make_release(), item_type=int)
            | beam.Map(lambda row: (row.item, row.bounded_count, type(row).__name__))
        )

    found = collect(build)
    assert sorted(item for item, _, _ in found) == [0, 1, 2]
    assert all(abs(count - 800) < 200 for _, count, _ in found)
    for row, item in ((NoisyCount, str), (NoisyIntCount, int)):
        coder = beam.coders.registry.get_coder(row)
        assert isinstance(coder, beam.coders.RowCoder)
        value = row(item(7), 2.0, 1.5, 0.0, 5.0)
        assert coder.decode(coder.encode(value)) == value


def test_bounding_steps_in_a_row_feed_noisy_counts(collect, make_release):
    rows, release = _rows(), make_release()

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        return (
            pipeline
            | beam.Create(rows)
            | LimitItems(5, release=release)
            | LimitPerItem(2)
            | NoisyCounts(BUDGET, Bound(l0=5, l1=10, linf=2), release=release)
        )

    assert len(collect(build)) > 5


def test_noisy_counts_over_a_domain_releases_the_domain_and_nothing_else(collect, make_release):
    rows = [("u", "only this user's"), ("u", "known"), ("v", "known")]
    clip = RandClip(10, release=make_release())

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        noise = NoisyCounts(Budget(1), clip.bound, domain=["known", "absent"], release=make_release())
        return pipeline | beam.Create(rows) | clip | noise

    assert sorted(row.item for row in collect(build)) == ["absent", "known"]


def test_rows_of_poor_quality_are_left_out_of_the_same_release(collect, make_release):
    rows, release = _rows(), make_release()
    limits = {"max_relative_error": 0.05, "suppress_below": 500}

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        given = pipeline | beam.Create(rows)
        return given | "It" >> Histogram(
            BUDGET, of="events", method="one-stage", bound=10, release=release, output_files=1, **limits
        )

    ((_, found),) = collect(build)
    whole = unbounded_histogram(BUDGET, bound=10).run([_batch(rows)], release, "It")
    wanted = Quality(**limits).keep(whole)
    assert found.equals(wanted) and 0 < found.num_rows < whole.num_rows
    assert left_out(found) == left_out(wanted)


def test_two_uses_in_one_pipeline_have_their_own_noise(collect, make_release):
    rows, release = _rows(), make_release()

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        given = pipeline | beam.Create(rows)
        one = given | "One" >> Histogram(BUDGET, of="events", method="one-stage", bound=10, release=release)
        two = given | "Two" >> Histogram(BUDGET, of="events", method="one-stage", bound=10, release=release)
        return (
            one | "Tag1" >> beam.Map(lambda row: (1, *row)),
            two | "Tag2" >> beam.Map(lambda row: (2, *row)),
        ) | beam.Flatten()

    found = collect(build)
    first = {item: count for use, item, count, *_ in found if use == 1}
    second = {item: count for use, item, count, *_ in found if use == 2}
    both = first.keys() & second.keys()
    assert len(both) > 10 and sum(first[item] == second[item] for item in both) < len(both) / 2


def _renamed(batch: pa.RecordBatch) -> pa.RecordBatch:
    item = batch.column("item")
    names = pa.array([f"other {name}" for name in item.dictionary.to_pylist()])
    columns = [batch.column("user"), pa.DictionaryArray.from_arrays(item.indices, names), batch.column("count")]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _all_on_one_item(batch: pa.RecordBatch) -> pa.RecordBatch:
    item = pa.DictionaryArray.from_arrays(pa.array([0] * batch.num_rows, pa.int32()), pa.array(["one"]))
    return pa.RecordBatch.from_arrays([batch.column("user"), item, batch.column("count")], schema=batch.schema)


def _bounded_elsewhere(row: tuple[str, str], release: str) -> pa.RecordBatch:
    shard = gather([chunk for _, chunk in split_by_user(_batch([row]), 1)])
    return bound_shard(shard, [RandClipStep(10)], [bytes(32)], provenance("Clip", release, 16)).to_batch()


def _message(collect, build) -> str:
    with pytest.raises(Exception) as error:
        collect(build)
    return str(error.value)


def test_what_would_break_the_promise_is_refused(collect, make_release):
    rows, release = _rows(500), make_release()
    noise = lambda bound: NoisyCounts(BUDGET, bound, release=release)  # noqa: E731
    clipped = Bound(l0=10, l1=10, linf=10)

    def unbounded(pipeline):
        return pipeline | beam.Create(rows) | Contributions() | noise(clipped)

    assert "bounded by nothing" in _message(collect, unbounded)

    def only_items(pipeline):
        return pipeline | beam.Create(rows) | LimitItems(10, release=release) | noise(clipped)

    assert "bounded by l0 <= 10;" in _message(collect, only_items)

    def larger(pipeline):
        return pipeline | beam.Create(rows) | RandClip(11, release=release) | noise(clipped)

    assert "l1 <= 11" in _message(collect, larger)

    def clip_norm(pipeline):
        return pipeline | beam.Create(rows) | ClipNorm(10) | noise(clipped)

    assert "l2 <= 10" in _message(collect, clip_norm)

    def raw(pipeline):
        return pipeline | beam.Create(rows) | noise(clipped)

    assert "put RandClip" in _message(collect, raw)

    def halves(pipeline, users):  # bounded apart, on items that may lie in different shards
        for item, who in (("x", range(50)), ("y", users)):
            rows = pipeline | f"Rows {item}" >> beam.Create([(f"u{k}", item) for k in who])
            yield rows | f"Clip {item}" >> RandClip(10, release=release)

    def flattened(pipeline):
        return tuple(halves(pipeline, range(50))) | beam.Flatten() | noise(clipped)

    assert "may count twice" in _message(collect, flattened)

    def flattened_then_limited(pipeline):  # users who may not meet in one shard
        return tuple(halves(pipeline, range(50, 99))) | beam.Flatten() | LimitPerItem(10) | noise(clipped)

    message = _message(collect, flattened_then_limited)
    assert "may count twice" in message or "flatten first" in message

    def flattened_with_itself(pipeline):
        bounded = pipeline | beam.Create(rows) | RandClip(10, release=release)
        return (bounded, bounded) | beam.Flatten() | noise(clipped)

    assert "arrives twice" in _message(collect, flattened_with_itself)

    def flattened_with_a_renamed_copy(pipeline):  # on items that lie in other shards
        bounded = pipeline | beam.Create(rows) | RandClip(10, release=release)
        return (bounded, bounded | beam.Map(_renamed)) | beam.Flatten() | noise(clipped)

    assert "arrives twice" in _message(collect, flattened_with_a_renamed_copy)

    def labels_that_read_alike(pipeline):
        x = pipeline | "RowsX" >> beam.Create([(f"u{k}", "x") for k in range(50)])
        y = pipeline | "RowsY" >> beam.Create([(f"u{k}", "y") for k in range(50)])
        two = x | "A" >> RandClip(10, release=release) | "B" >> RandClip(10, release=release)
        one = y | 'A", "B' >> RandClip(10, release=release)
        return (two, one) | beam.Flatten() | noise(clipped)

    assert "may count twice" in _message(collect, labels_that_read_alike)

    def two_runs(pipeline):  # the same step of two releases, as if written and read again
        a = pipeline | "A" >> beam.Create([("u", "x")]) | beam.Map(_bounded_elsewhere, "r1")
        b = pipeline | "B" >> beam.Create([("u", "y")]) | "Other" >> beam.Map(_bounded_elsewhere, "r2")
        return (a, b) | beam.Flatten() | noise(clipped)

    assert "may count twice" in _message(collect, two_runs)

    def changed_between(pipeline):
        bounded = pipeline | beam.Create([("u", f"i{k}") for k in range(9)]) | LimitItems(5) | LimitPerItem(1)
        return bounded | beam.Map(_all_on_one_item) | NoisyCounts(BUDGET, Bound(l0=5, l1=5, linf=1), release=release)

    assert "are not bounded by l0 <= 5, l1 <= 5, linf <= 1" in _message(collect, changed_between)

    def flattened_with_itself_then_limited(pipeline):
        bounded = pipeline | beam.Create([("u", f"i{k}") for k in range(30)]) | RandClip(10, release=release)
        return (bounded, bounded) | beam.Flatten() | LimitPerItem(10) | noise(clipped)

    assert "are not bounded by" in _message(collect, flattened_with_itself_then_limited)

    def bounded_apart_then_limited(pipeline):  # the same users, who meet in one shard
        a = pipeline | "A" >> beam.Create([("u", "x")]) | "ClipA" >> RandClip(10, release=release)
        b = pipeline | "B" >> beam.Create([("u", "y")]) | "ClipB" >> RandClip(10, release=release)
        return (a, b) | beam.Flatten() | LimitPerItem(10) | noise(clipped)

    assert "flatten first" in _message(collect, bounded_apart_then_limited)

    def mixed_users(pipeline):
        return pipeline | beam.Create([(1, "x"), ("1", "x")]) | Histogram(BUDGET, method="one-stage", bound=10)

    assert "one kind" in _message(collect, mixed_users)

    def other_type(pipeline):
        return pipeline | beam.Create(rows) | Histogram(BUDGET, method="one-stage", bound=10, item_type=int)

    assert "item_type says int, but the key 'item' is str" in _message(collect, other_type)

    def large_clip_norm(pipeline):
        return pipeline | beam.Create(rows) | ClipNorm(2000) | noise(Bound(l1=2000))

    assert "l2 <= 2000" in _message(collect, large_clip_norm)
    with pytest.raises(ParameterError, match="ClipNorm leaves them"):
        NoisyCounts(BUDGET, Bound(l1=10, l2=10, linf=10, grid=7))
    with pytest.raises(ParameterError, match="ClipNorm leaves them"):
        NoisyCounts(BUDGET, ClipNorm(2000).bound)


def test_windowed_and_unbounded_inputs_are_refused():
    pipeline = beam.Pipeline(runner="FnApiRunner")
    windowed = pipeline | beam.Create([("u", "i")]) | beam.WindowInto(FixedWindows(60))
    with pytest.raises(ParameterError, match="windowed"):
        windowed | Histogram(BUDGET, method="one-stage", bound=10)
    rows = pipeline | "More" >> beam.Create([("u", "i")])
    early = trigger.AfterWatermark(early=trigger.AfterCount(1))
    mode = trigger.AccumulationMode.ACCUMULATING
    panes = lambda: beam.WindowInto(GlobalWindows(), trigger=early, accumulation_mode=mode)  # noqa: E731
    with pytest.raises(ParameterError, match="trigger"):
        rows | "Panes" >> panes() | "Once" >> Histogram(BUDGET, method="one-stage", bound=10)
    with pytest.raises(ParameterError, match="trigger"):
        rows | RandClip(10) | "Late" >> panes() | NoisyCounts(BUDGET, Bound(l0=10, l1=10, linf=10))
    stream = pipeline | "Other" >> beam.Create([("u", "i")])
    stream.is_bounded = False
    with pytest.raises(ParameterError, match="unbounded"):
        stream | "Again" >> Histogram(BUDGET, method="one-stage", bound=10)


def test_a_remote_runner_without_a_key_source_is_refused():
    from apache_beam.options.pipeline_options import PipelineOptions

    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FlinkRunner"]))
    with pytest.raises(ParameterError, match="--key-env or --key-file"):
        pipeline | beam.Create([("u", "i")]) | Histogram(BUDGET, method="one-stage", bound=10)


def test_guarantee_is_stated_before_anything_runs():
    transform = Histogram(BUDGET, of="events", method="one-stage", bound=10, max_per_item=2, relation="replace")
    guarantee = transform.guarantee()
    assert (guarantee.epsilon, guarantee.delta, guarantee.relation) == (1, 1e-6, Relation.REPLACE)
    assert "replacing one user" in guarantee.description() and transform.mechanism.plan.threshold is not None
    assert Histogram(BUDGET, method="one-stage", domain=["a"], bound=3).guarantee().delta == 0  # Laplace noise
    with pytest.raises(
        ParameterError, match="^max_per_item=2 is for events, and users are counted, .*: add of='events'$"
    ):
        Histogram(BUDGET, max_per_item=2)


@pytest.mark.parametrize(("noise", "norm"), [("laplace", "an l1 norm of 3"), ("gaussian", "an l2 norm of 3")])
def test_the_guarantee_of_a_public_domain_states_the_cap_and_the_noise_is_that_of_the_bound(noise, norm):
    def made(cap: int | None, relation: str = "add-remove") -> Histogram:
        asked = {"method": "one-stage", "domain": ["a", "b"], "bound": 3, "noise": noise, "max_per_item": cap}
        return Histogram(BUDGET, of="events", relation=relation, **asked)

    assert made(1).mechanism.plan.bound.linf == 1 and made(None).mechanism.plan.bound.linf == 3
    assert f"a user adds at most {norm} and 1 on one item." in made(1).guarantee().description()
    assert f"a user adds at most {norm}." in made(None).guarantee().description()
    assert len({made(cap, "replace").mechanism.plan.stddev for cap in (None, 1, 2, 50)}) == 1
    # Gaussian noise of users added or removed may share a draw where counts are capped far below the bound: that is less.
    found = [made(cap).mechanism.plan for cap in (None, 50, 2, 1)]
    assert [plan.shared is not None for plan in found] == [False, False, *[noise == "gaussian"] * 2]
    assert found[0].stddev == found[1].stddev >= found[2].stddev >= found[3].stddev
