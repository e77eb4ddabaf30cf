"""Shapes as transforms: equal to the pure functions, replay-stable, and what goes in and is refused."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.bounding.steps import LimitItemsStep, LimitPerItemStep
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.shape.anonymized import AnonymizedHistogramMechanism
from headcount.mechanisms.shape.auto import shape_histogram
from headcount.mechanisms.shape.estimators import CoverageQuestion, DistinctQuestion, EntropyQuestion, SupportQuestion
from headcount.mechanisms.shape.properties import ShapeAnswers, ShapeProperties, central_property
from headcount.transforms import Budget, Contributions, LimitItems
from headcount.transforms.core.rows import ItemsWithCount, ShapeProperty
from headcount.transforms.shape.properties import Entropy, SupportCoverage, SupportSize
from headcount.transforms.shape.release import AnonymizedHistogram

BUDGET = Budget(2)
WAYS = {
    "sorted": {"domain_size": 1000},
    "Algorithm 1": {"domain_size": 1000, "mode": "l1", "relation": "replace"},
    "l2": {"domain_size": 1000, "mode": "l2", "max_items": 3},
    "fewer cells than items": {"domain_size": 50},
    "Algorithm 2": {"buckets": 8000},
    "Algorithm 2, l2": {"buckets": 30_000, "mode": "l2", "max_items": 2},
}


def _table(rows: int = 10_000) -> pa.Table:
    random = np.random.default_rng(3)
    users, items = random.integers(0, 2000, rows), (random.pareto(1, rows) * 3).astype(int) % 300
    return pa.table({"user": [f"u{u}" for u in users], "item": [f"i{i}" for i in items], "number": items})


def _batch(table: pa.Table, item: str = "item") -> pa.RecordBatch:
    return contribution_batch(table["user"].combine_chunks(), table[item].combine_chunks())


def _run(collect, table: pa.Table, transform: beam.PTransform, size: int = 6000, *options: str, item="item") -> list:
    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        return pipeline | beam.Create(table.to_batches(size)) | Contributions(item=item) | "Mine" >> transform

    return collect(build, *options)


def _rows(expected: pa.RecordBatch) -> list[tuple]:
    return [tuple(row.values()) for row in expected.to_pylist()]


def _given(way: str) -> dict:
    return {**WAYS[way], "relation": Relation.parse(WAYS[way].get("relation", Relation.ADD_REMOVE))}


def _run_all(collect, table: pa.Table, transforms: dict[str, beam.PTransform]) -> dict[str, list]:
    """Several transforms in one pipeline, each under its name as the label: the rows of each, sorted."""

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        rows = pipeline | beam.Create(table.to_batches(6000)) | Contributions()
        named = [
            rows | name >> transform | f"Name {name}" >> beam.Map(lambda row, name=name: (name, row))
            for name, transform in transforms.items()
        ]
        return named | beam.Flatten()

    found = collect(build)
    return {name: sorted(row for own, row in found if own == name) for name in transforms}


def test_a_shape_equals_the_pure_function(collect, make_release):
    table, release = _table(), make_release()
    made = {way: AnonymizedHistogram(BUDGET, **given, release=release, shards=5) for way, given in WAYS.items()}
    for way, found in _run_all(collect, table, made).items():
        expected = shape_histogram(BUDGET, **_given(way)).run([_batch(table)], release, way)
        assert all(isinstance(row, ItemsWithCount) for row in found) and expected.num_rows > 5
        assert list(map(tuple, found)) == _rows(expected), way


@pytest.mark.slow("cuts")
@pytest.mark.parametrize("way", ["sorted", "Algorithm 2, l2"])
def test_the_same_rows_for_any_order_batches_shards_and_repeats(collect, make_release, way):
    table, release = _table(), make_release()
    expected = shape_histogram(BUDGET, **_given(way)).run([_batch(table)], release, "Mine")
    shuffled = table.take(np.random.default_rng(1).permutation(table.num_rows))
    for shards, size, options in ((1, 20_000, ()), (40, 777, ("--direct_runner_bundle_repeat=2",))):
        transform = AnonymizedHistogram(BUDGET, **WAYS[way], release=release, shards=shards, output_files=3)
        found = dict(_run(collect, shuffled, transform, size, *options))
        assert found[0].equals(expected) and sorted(found) == [0, 1, 2]
        assert found[1].num_rows == found[2].num_rows == 0 and found[1].schema == expected.schema


QUESTIONS = (
    EntropyQuestion("miller-madow"),
    DistinctQuestion(),
    CoverageQuestion(3000),
    CoverageQuestion(12_000, 0.001),
)


def test_answers_come_with_the_shape_and_one_too_far_is_left_out(collect, make_release):
    table, release = _table(), make_release()
    source = shape_histogram(BUDGET, domain_size=1000)
    expected = source.run([_batch(table)], release, "Mine")

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        rows = pipeline | beam.Create(table.to_batches()) | Contributions()
        both = rows | "Mine" >> AnonymizedHistogram(
            BUDGET, domain_size=1000, release=release, output_files=1
        ).with_answers(*QUESTIONS)
        assert both.decision.element_type is ShapeAnswers
        return (both.counts, both.decision) | beam.Flatten()

    (_, shape), answers = sorted(collect(build), key=lambda found: isinstance(found, ShapeAnswers))
    assert shape.equals(expected)
    assert answers == ShapeProperties(source, QUESTIONS).answers(expected)
    assert [row["property"] for row in answers.found] == ["entropy", "distinct items", "support coverage"]
    assert answers.guarantee.epsilon == 2 and answers.found[2]["samples"] == 3000
    assert sum(line["items"] for line in answers.report_fields()["shape"]) == sum(expected.column("items").to_pylist())
    assert answers.description().startswith(f"samples {answers.samples:,}; entropy ")


PROPERTIES = {
    "entropy": (Entropy, {}, EntropyQuestion()),
    "entropy, public samples": (Entropy, {"kind": "plug-in", "samples": 2000}, EntropyQuestion("plug-in")),
    "size": (SupportSize, {"most": 500}, SupportQuestion(500)),
    "coverage": (SupportCoverage, {"target": 4000, "max_items": 2}, CoverageQuestion(4000)),
    "coverage of twice as many": (SupportCoverage, {}, CoverageQuestion()),
}


def test_a_property_equals_the_pure_function_in_both_modes(collect, make_release):
    table, release = _table(), make_release()
    made, expected = {}, {}
    for way, (make, given, question) in PROPERTIES.items():
        items, samples = given.get("max_items", 1), given.get("samples")
        made[way] = make(BUDGET, **given, release=release, shards=3)
        expected[way] = central_property(BUDGET, question, samples=samples, max_items=items).run(
            [_batch(table)], release, way
        )
        if samples is None:
            name = f"{way}, shape"
            source = shape_histogram(BUDGET, domain_size=1000, max_items=items)
            made[name] = make(BUDGET, **given, mode="shape", domain_size=1000, release=release)
            expected[name] = ShapeProperties(source, (question,)).run([_batch(table)], release, name)
    for way, found in _run_all(collect, table, made).items():
        assert [type(row) for row in found] == [ShapeProperty] and list(map(tuple, found)) == _rows(expected[way]), way


def test_a_collection_that_was_bounded_before_is_taken(collect, make_release):
    release = make_release()

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        rows = pipeline | beam.Create([(f"u{k}", f"i{k % 3}") for k in range(3000)] * 2)
        return rows | LimitItems(3, release=release) | AnonymizedHistogram(BUDGET, domain_size=10, release=release)

    found = collect(build)  # repeated rows count once
    assert sum(row.items for row in found if row.count > 900) == 3


def test_only_tallies_reach_the_one_worker(monkeypatch, make_release, collect):
    """What the last step gets is smaller than the items by far, and holds no names."""
    from headcount.transforms.shape import release as anonymized

    seen = []
    real = anonymized.pack_tally
    monkeypatch.setattr(anonymized, "pack_tally", lambda tally: seen.append(real(tally)) or seen[-1])
    table = pa.table({"user": [f"u{k}" for k in range(20_000)], "item": [f"secret{k}" for k in range(20_000)]})
    _run(collect, table, AnonymizedHistogram(BUDGET, domain_size=30_000, release=make_release(), shards=4))
    assert len(seen) == 4 and max(map(len, seen)) < 2000 and not any(b"secret" in data for data in seen)


def test_guarantees_and_what_is_refused():
    transform = AnonymizedHistogram(BUDGET, domain_size=1000, relation="replace", max_items=3)
    assert transform.mechanism.mode == "central" and transform.mechanism.plan.scale == 3
    assert AnonymizedHistogram(BUDGET, domain_size=10**7 + 1).mechanism.mode == "l1"
    assert AnonymizedHistogram(BUDGET, buckets=400, max_items=5).mechanism.users == 20
    assert transform.guarantee().epsilon == 2 and Entropy(BUDGET).guarantee().epsilon == pytest.approx(2)
    answered = (
        AnonymizedHistogram(BUDGET, domain_size=1000).with_answers(EntropyQuestion(), DistinctQuestion()).guarantee()
    )
    assert answered.epsilon == sum(step.epsilon for step in answered.mechanisms) == 2
    for make, said in (
        (lambda: AnonymizedHistogram(BUDGET), "one of domain_size and buckets must be given.*is private"),
        (
            lambda: AnonymizedHistogram(BUDGET, domain_size=10, buckets=10),
            "one of domain_size and buckets is enough, got 10 and 10",
        ),
        (
            lambda: AnonymizedHistogram(BUDGET, domain_size=10, mode="best"),
            "mode must be 'auto', 'central', 'l1' or 'l2', got 'be",
        ),
        (lambda: AnonymizedHistogram(BUDGET, buckets=10, mode="central"), "in place of buckets = 10"),
        (lambda: AnonymizedHistogram(BUDGET, domain_size=10).with_answers(), "give at least one question"),
        (
            lambda: AnonymizedHistogram(BUDGET, domain_size=10, output_files=0),
            "output_files must be an integer from 1 to 10000, got 0",
        ),
        (lambda: AnonymizedHistogram(BUDGET, domain_size=10, shards=0), "shards must be"),
        (lambda: Entropy(BUDGET, domain_size=10), "are for mode 'shape', got mode 'central'"),
        (lambda: Entropy(BUDGET, mode="shape"), "one of domain_size and buckets must be given"),
        (lambda: Entropy(BUDGET, mode="shape", domain_size=10, samples=5), "samples = 5 is for mode 'central'"),
        (lambda: Entropy(BUDGET, mode="l1"), "mode must be 'central' or 'shape', got 'l1'"),
        (
            lambda: SupportCoverage(Budget(0.01), target=90_000, accuracy=0.01, samples=10_000),
            "too far for an accuracy",
        ),
    ):
        with pytest.raises(ParameterError, match=said):
            make()
    with pytest.raises(ParameterError, match="--key-env or --key-file"):
        from apache_beam.options.pipeline_options import PipelineOptions

        remote = beam.Pipeline(options=PipelineOptions(["--runner=FlinkRunner"]))
        remote | beam.Create([("u", "i")]) | AnonymizedHistogram(BUDGET, domain_size=10)


@pytest.mark.parametrize("mutation", ["bounded by nothing", "bounded by more"])
def test_a_wrong_bound_is_refused(collect, make_release, monkeypatch, mutation):
    """The check of what bounds the batches sees steps that do not keep each user to one of one item."""
    steps = (LimitItemsStep(1),) if mutation == "bounded by nothing" else (LimitItemsStep(1), LimitPerItemStep(2))
    monkeypatch.setattr(AnonymizedHistogramMechanism, "steps", steps)
    with pytest.raises(Exception, match="calibrated for contributions bounded by"):
        _run(collect, _table(100), AnonymizedHistogram(BUDGET, domain_size=10, release=make_release()))
