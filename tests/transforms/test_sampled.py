"""Sample and threshold as transforms: equal to the pure functions, replay-stable, and what goes in and is refused."""

from __future__ import annotations

import datetime
from fractions import Fraction

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.sampled.auto import heavy_hitters, sampled_histogram
from headcount.mechanisms.sampled.axis import Axis
from headcount.mechanisms.sampled.quantiles import quantile_hierarchy
from headcount.transforms import Budget, Contributions, LimitItems
from headcount.transforms.sampled.quantiles import Quantile, Quantiles
from headcount.transforms.sampled.release import HeavyHitters, SampledHistogram
from tests.transforms.sampled_rows import BUDGET, N, of_values, rows_table

pytestmark = pytest.mark.usefixtures("soon_planned")


def _items(table: pa.Table, item: str = "item") -> pa.RecordBatch:
    return contribution_batch(table["user"].combine_chunks(), table[item].combine_chunks())


def _of_items(collect, table: pa.Table, transform: beam.PTransform, size: int = 6000, *options: str) -> list:
    item = "number" if transform.mechanism.item_type is int else "item"

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        return pipeline | beam.Create(table.to_batches(size)) | Contributions(item=item) | "Mine" >> transform

    return collect(build, *options)


WAYS = {
    "one item": (
        lambda **g: SampledHistogram(BUDGET, **g),
        lambda **g: sampled_histogram(BUDGET, **g),
        {"max_items": 1},
    ),
    "three items, replaced": (
        lambda **g: SampledHistogram(BUDGET, **g),
        lambda **g: sampled_histogram(BUDGET, **g),
        {"max_items": 3, "relation": "replace", "objective": "w50"},
    ),
    "integers": (
        lambda **g: SampledHistogram(BUDGET, **g),
        lambda **g: sampled_histogram(BUDGET, **g),
        {"item_type": int, "max_items": 1},
    ),
    "heavy hitters": (
        lambda **g: HeavyHitters(BUDGET, 0.05, users=2000, **g),
        lambda **g: heavy_hitters(BUDGET, 0.05, users=2000, **g),
        {"max_items": 1},
    ),
    "heavy hitters, users counted": (
        lambda **g: HeavyHitters(BUDGET, 0.05, **g),
        lambda **g: heavy_hitters(BUDGET, 0.05, **g),
        {"users_share": 0.02, "max_items": 1},
    ),
    "items chosen": (lambda **g: SampledHistogram(BUDGET, **g), lambda **g: sampled_histogram(BUDGET, **g), {}),
    "items chosen, replaced": (
        lambda **g: HeavyHitters(BUDGET, 0.05, users=2000, **g),
        lambda **g: heavy_hitters(BUDGET, 0.05, users=2000, **g),
        {"relation": "replace"},
    ),
    "items chosen, users counted": (
        lambda **g: HeavyHitters(BUDGET, 0.05, **g),
        lambda **g: heavy_hitters(BUDGET, 0.05, **g),
        {"users_share": 0.02},
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_items_equal_the_pure_function(collect, make_release, way):
    make, pure, given = WAYS[way]
    table, release = rows_table(), make_release().of_rows("any")  # which no other way to read rows changes
    item = "number" if given.get("item_type") is int else "item"
    expected = pure(**given).run([_items(table, item)], release, "Mine").to_pylist()
    assert len(expected) > 3
    found = _of_items(collect, table, make(**given, release=release, shards=5, sample="Mine"))
    assert {type(row).__name__ for row in found} == {"SampledIntCount" if item == "number" else "SampledCount"}
    named = [{item if name == "item" else name: value for name, value in row.items()} for row in expected]
    assert [row._asdict() for row in sorted(found)] == named


@pytest.mark.slow("cuts")
def test_the_same_rows_for_any_order_batches_shards_and_repeats(collect, make_release):
    table, release = rows_table(), make_release()
    expected = sampled_histogram(BUDGET, max_items=2).run([_items(table)], release, "Mine").to_pylist()
    shuffled = table.take(np.random.default_rng(1).permutation(table.num_rows))
    for shards, size, options in ((1, N, ()), (7, 777, ("--direct_runner_bundle_repeat=2",))):
        transform = SampledHistogram(BUDGET, max_items=2, release=release, shards=shards, output_files=1, sample="Mine")
        ((_, counts),) = _of_items(collect, shuffled, transform, size, *options)
        assert counts.to_pylist() == expected
    forty = SampledHistogram(BUDGET, max_items=2, release=release, shards=3, output_files=40, sample="Mine")
    partitions = dict(_of_items(collect, table, forty))
    assert sorted(partitions) == list(range(40)) and min(counts.num_rows for counts in partitions.values()) == 0
    rows = [row for counts in partitions.values() for row in counts.to_pylist()]
    assert sorted(rows, key=lambda row: row["item"]) == expected


def test_steps_on_one_collection_read_one_sample_and_those_on_others_do_not(collect, make_release):
    """Whatever they are called and show; a second collection of the same rows has a sample of its own, or else equal results
    would tell that two collections are equal. Two samples agree on an item with probability 0.15 at most, and on half of more
    than 40 with one below 1e-6."""
    table, release = rows_table(), make_release()

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        events = pipeline | beam.Create(table.to_batches())
        rows, again = (events | name >> Contributions() for name in ("Rows", "Again"))
        given = {"release": release, "max_items": 5}
        shown = {
            "all": rows | "All" >> SampledHistogram(BUDGET, shards=3, **given),
            "phi": rows | "Phi" >> HeavyHitters(BUDGET, 0.02, users=2000, **given),
            "higher": rows | "Higher" >> HeavyHitters(BUDGET, 0.05, users=2000, **given),
            "again": again | "OfAgain" >> SampledHistogram(BUDGET, **given),
            "named": rows | "Named" >> SampledHistogram(BUDGET, sample="x", **given),
            "named again": again | "NamedAgain" >> SampledHistogram(BUDGET, sample="x", **given),
        }
        tagged = [each | f"Tag{name}" >> beam.Map(lambda row, n=name: (n, row)) for name, each in shown.items()]
        return tuple(tagged) | beam.Flatten()

    found: dict[str, dict[str, int]] = {}
    for name, row in collect(build):
        found.setdefault(name, {})[row.item] = row.sampled
    base = found["all"]
    assert 5 < len(found["higher"]) < len(found["phi"]) < len(base) and len(base) > 40
    assert found["phi"].items() <= base.items() and found["higher"].items() <= found["phi"].items()
    for name in ("again", "named"):
        other = found[name]
        assert sum(base[item] == other.get(item) for item in base) < len(base) / 2, name
    assert found["named again"] == found["named"]


@pytest.mark.slow("cuts")
def test_a_choice_is_the_same_for_any_shards_and_repeats_and_is_given_beside(collect, make_release):
    """Two steps on one collection, the one with repeated bundles: one choice, and one sample."""
    table, release = rows_table(), make_release()
    expected = sampled_histogram(BUDGET).run([_items(table)], release, "Mine").to_pylist()

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        rows = pipeline | beam.Create(table.to_batches(1777)) | Contributions()
        given = {"release": release, "sample": "Mine"}
        both = rows | "Mine" >> SampledHistogram(BUDGET, shards=7, **given).with_decision()
        hitters = rows | "Other" >> HeavyHitters(BUDGET, 0.01, users=2000, shards=2, **given)
        tagged = {"all": both.counts, "decision": both.decision, "hitters": hitters}
        return (
            tuple(each | f"Tag{name}" >> beam.Map(lambda row, n=name: (n, row)) for name, each in tagged.items())
            | beam.Flatten()
        )

    found: dict[str, list] = {}
    for name, row in collect(build, "--direct_runner_bundle_repeat=1"):
        found.setdefault(name, []).append(row)
    assert [row._asdict() for row in sorted(found["all"])] == expected
    (decided,) = found["decision"]
    assert decided.sample.max_items == 10 and decided.guarantee.epsilon == 2  # users have 8 items on average
    sampled = {row.item: row.sampled for row in found["all"]}
    assert 5 < len(found["hitters"]) and all(sampled[row.item] == row.sampled for row in found["hitters"])


def test_nothing_comes_of_nothing(collect, make_release):
    empty = rows_table(10).slice(0, 0)
    found = sorted(_of_items(collect, empty, SampledHistogram(BUDGET, output_files=2)), key=lambda element: element[0])
    assert [(k, rows.num_rows) for k, rows in found] == [(0, 0), (1, 0)]
    for rows in ([], [("u", 0.5)]):
        for make in (Quantile(BUDGET, 0.5, 0, 1, output_files=2), Quantiles(BUDGET, [0.5], 0, 1, output_files=2)):
            found = sorted(of_values(collect, rows, make), key=lambda element: element[0])
            assert [(k, rows.num_rows) for k, rows in found] == [(0, 0), (1, 0)]


def test_a_collection_that_was_bounded_before_is_taken(collect, make_release):
    release = make_release()

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        rows = pipeline | beam.Create([(f"u{k}", f"i{k % 3}") for k in range(3000)] * 2)
        return rows | LimitItems(3, release=release) | SampledHistogram(BUDGET, max_items=1, release=release)

    found = collect(build)
    assert sorted(row.item for row in found) == ["i0", "i1", "i2"]
    for row in found:  # repeated rows count once
        assert abs(row.count - 1000) < 6 * row.noise_stddev


def test_guarantees_and_what_is_refused():
    transform = Quantiles(BUDGET, [0.5], 0, 1, levels=5, relation="replace")
    assert (
        transform.guarantee()
        == quantile_hierarchy(BUDGET, 0, 1, levels=5, relation=transform.mechanism.plan.relation).guarantee()
    )
    assert "levels of a user, each with its own coin 5" in transform.guarantee().description()
    assert (
        SampledHistogram(BUDGET, max_items=3).guarantee().epsilon == SampledHistogram(BUDGET).guarantee().epsilon == 2
    )
    assert HeavyHitters(BUDGET, Fraction(1, 10), users=10**6, max_items=1).mechanism.least > 10**4
    date = datetime.date(2024, 1, 1)
    for make, said in (
        (lambda: SampledHistogram(BUDGET, output_files=0), "output_files must be an integer from 1 to 10000, got 0"),
        (lambda: SampledHistogram(BUDGET, shards=0), "shards must be"),
        (lambda: SampledHistogram(BUDGET, max_items="all"), "max_items must be"),
        (lambda: SampledHistogram(BUDGET, max_items=2).with_decision(), "the number of items per user is given"),
        (lambda: SampledHistogram(BUDGET, sample=""), "sample must be a name, as a text that is not empty, got ''"),
        (lambda: SampledHistogram(Budget(1)), "needs a delta"),
        (lambda: Quantile(BUDGET, 0.5, 0, date), "lo and hi must both be numbers, dates or times"),
        (lambda: Quantile(BUDGET, 0.5, "0", 1), "lo must be a number, a date or a time, got '0'"),
        (lambda: Quantiles(BUDGET, [], 0, 1), "give at least one quantile or one range"),
        (lambda: Quantiles(BUDGET, [1.5], 0, 1), "a quantile must be a number between 0 and 1, got 1.5"),
        (lambda: Quantiles(BUDGET, [], 0, 1, ranges=[(0.5, 0.5)]), r"must begin below its end, got \(0.5, 0.5\)"),
        (lambda: Quantiles(BUDGET, [], 0, 9, ranges=[(9, 10)]), r"must overlap with lo .. hi, .* got \(9, 10\)"),
        (
            lambda: Quantiles(BUDGET, [], 0, 9, ranges=[(0.1, 0.2)], levels=4),
            r"smaller than one of the 16 parts .* got \(0.1, 0.2\)",
        ),
        (lambda: Quantiles(BUDGET, [], 0, 1, ranges=[(date, 1)]), "a range must be a number, as lo and hi are"),
        (lambda: Quantiles(BUDGET, [], date, date, ranges=[(0, 1)]), "a range must be a date, as lo and hi are, got 0"),
    ):
        with pytest.raises(ParameterError, match=said):
            make()
    assert Axis.of(0, 1.5).kind == "number"
    with pytest.raises(ParameterError, match="--key-env or --key-file"):
        from apache_beam.options.pipeline_options import PipelineOptions

        remote = beam.Pipeline(options=PipelineOptions(["--runner=FlinkRunner"]))
        remote | beam.Create([("u", "i")]) | SampledHistogram(BUDGET)


@pytest.mark.parametrize("mutation", ["bounded by nothing", "bounded by more"])
def test_a_wrong_bound_is_refused(collect, make_release, monkeypatch, mutation):
    """The check of what bounds the batches sees steps that do not keep each user to one of one item."""
    from headcount.mechanisms.bounding.steps import LimitItemsStep, LimitPerItemStep
    from headcount.mechanisms.sampled import histogram as module

    steps = (LimitItemsStep(1),) if mutation == "bounded by nothing" else (LimitItemsStep(1), LimitPerItemStep(2))
    transform = SampledHistogram(BUDGET, max_items=1, release=make_release())
    bound = transform.mechanism.bound
    monkeypatch.setattr(module.SampledHistogramMechanism, "steps", steps)
    monkeypatch.setattr(module.SampledHistogramMechanism, "bound", bound)
    with pytest.raises(Exception, match="calibrated for contributions bounded by"):
        _of_items(collect, rows_table(100), transform)
