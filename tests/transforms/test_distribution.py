"""`LearnDistribution` as a transform: equal to the pure function, replay-stable, and the key nowhere in its graph."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.domain import only_domain
from headcount.mechanisms.counting.evidence import Evidence
from headcount.mechanisms.counting.noisy import bounded_batches
from headcount.mechanisms.distribution.learn import large_symbols, learn_distribution
from headcount.mechanisms.distribution.tables import merge_values, split_values
from headcount.mechanisms.errors import ParameterError
from headcount.transforms import Contributions, Relation
from headcount.transforms.core.rows import IntItemProbability, ItemProbability
from headcount.transforms.distribution import LearnDistribution

BUDGET = Budget(1, 1e-6)
ITEMS = [f"i{number}" for number in range(70)]
DOMAIN = [*ITEMS[1:], "that nobody has"]  # a row of i0 is outside, and must not use up a user's samples
WAYS = {
    "dense": {"samples_per_user": 12, "method": "dense"},
    "sparse": {"samples_per_user": 30, "method": "sparse"},
    "sparse, public users": {"samples_per_user": 12, "method": "sparse", "users": 800, "relation": Relation.REPLACE},
    "laplace": {"samples_per_user": 12, "method": "laplace"},
    "chosen": {},
    "chosen, then sparse": {"samples_per_user": "median", "method": "sparse"},
    "buckets": {"samples_per_user": "buckets", "method": "sparse", "relation": Relation.REPLACE},
}
REPEATED = ("--direct_runner_bundle_repeat=2",)
CUTS = {"one shard": (1, 40_000, ()), "few shards": (3, 9000, ()), "all twice": (7, 2777, REPEATED)}
CASES = [(way, "few shards" if way == "buckets" else "all twice") for way in WAYS] + [("sparse", "one shard")]


def _table(users: int = 900) -> pa.Table:
    """Users with 1 to 60 samples of 70 items: some of them are large, in the words of "sparse", and most are not."""
    rng = np.random.default_rng(3)
    p = 1 / np.arange(1, 71)
    user = np.repeat(np.arange(users), rng.integers(1, 61, users))
    item = rng.choice(70, len(user), p=p / p.sum())
    return pa.table({"user": [f"u{u}" for u in user], "item": [ITEMS[i] for i in item]})


def _batch(table: pa.Table) -> pa.RecordBatch:
    return contribution_batch(table["user"].combine_chunks(), table["item"].combine_chunks())


def _run(collect, table: pa.Table, transform: LearnDistribution, rows_per_batch: int, *options: str) -> list:
    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        batches = table.to_batches(max_chunksize=rows_per_batch)
        return pipeline | beam.Create(batches) | Contributions() | "Mine" >> transform

    return collect(build, *options)


@pytest.mark.slow("cuts")
@pytest.mark.parametrize(("way", "cut"), CASES)
def test_it_equals_the_pure_function_however_it_is_cut(collect, make_release, way, cut):
    table, release = _table(), make_release()
    expected = learn_distribution(BUDGET, DOMAIN, **WAYS[way]).run([_batch(table)], release, "Mine").to_pylist()
    assert [row["item"] for row in expected] == sorted(DOMAIN)
    shuffled = table.take(np.random.default_rng(1).permutation(table.num_rows))
    shards, size, options = CUTS[cut]
    transform = LearnDistribution(BUDGET, DOMAIN, **WAYS[way], release=release, shards=shards, output_files=1)
    ((_, rows),) = _run(collect, shuffled, transform, size, *options)
    assert rows.to_pylist() == expected


def test_both_stages_of_sparse_have_something_to_do(make_release):
    """Else the cases above would not show that its second stage is right."""
    made, release = learn_distribution(BUDGET, DOMAIN, **WAYS["sparse"]), make_release()
    steps, key = made.steps(made.plans()[0], release, "Mine"), release.key_source.fetch()
    held = [only_domain(_batch(_table()), made.symbols)]
    (bounded,) = bounded_batches(held, steps.plan.steps, release, "Mine/Bounded")
    table = merge_values([chunk for _, chunk in split_values(bounded, 1)], made.symbols.names)
    evidence = Evidence.of([steps.digest(table, key)], [])
    users = steps.users(int(table.totals().sum()), evidence, key)
    large = large_symbols(steps.drawn(table, users, evidence, key), users, steps.plan)
    assert 1 < len(large) < 40


def test_rows_are_typed_and_partitions_hold_each_symbol_once(collect, make_release):
    def rows(pipeline: beam.Pipeline) -> beam.PCollection:
        made = pipeline | beam.Create([(f"u{u}", u % 3 + 5) for u in range(600) for _ in range(4)])
        return made | "Mine" >> LearnDistribution(
            BUDGET, [5, 6, 7], samples_per_user=4, release=make_release(), item_type=int, shards=2
        )

    found = collect(rows)
    assert all(isinstance(row, IntItemProbability) for row in found)
    assert {row.item for row in found} == {5, 6, 7}
    assert sum(row.probability for row in found) == pytest.approx(1)

    table, release = _table(300), make_release()
    transform = LearnDistribution(BUDGET, DOMAIN, samples_per_user=5, release=release, shards=3, output_files=3)
    parts = dict(_run(collect, table, transform, 9000))
    assert sorted(parts) == [0, 1, 2]
    items = [item for k in parts for item in parts[k].column("item").to_pylist()]
    assert sorted(items) == sorted(DOMAIN) and all(part.num_rows for part in parts.values())
    for part in parts.values():
        assert part.column("item").to_pylist() == sorted(part.column("item").to_pylist())
    (first, *_) = _run(collect, table, LearnDistribution(BUDGET, DOMAIN, samples_per_user=5, release=release), 9000)
    assert isinstance(first, ItemProbability)


def test_the_decision_tells_what_was_chosen(collect, make_release):
    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        rows = pipeline | beam.Create(_table().to_batches())
        return (rows | "Mine" >> LearnDistribution(BUDGET, DOMAIN, release=make_release()).with_decision()).decision

    (decided,) = collect(build)
    assert decided.report_fields()["chosen"]["samples_per_user"] == decided.plans[0].samples
    assert f"{decided.plans[0].samples} samples" in decided.guarantee.description()
    assert decided.guarantee.epsilon == 1


def test_nothing_is_decided_where_the_samples_are_given():
    with pytest.raises(ParameterError, match="nothing is decided"):
        LearnDistribution(BUDGET, DOMAIN, samples_per_user=5).with_decision()
    with pytest.raises(ParameterError, match="output_files must be an integer from 1 to 10000, got 0"):
        LearnDistribution(BUDGET, DOMAIN, samples_per_user=5, output_files=0)


def test_the_guarantee_is_stated_before_anything_runs():
    assert (
        "20 samples"
        in LearnDistribution(BUDGET, DOMAIN, samples_per_user=20, relation="replace").guarantee().description()
    )


def test_users_of_two_types_are_refused(collect, make_release):
    """One person may be two of them; they lie in two shards here, so that only the draw can see both."""

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        rows = [pa.table({"user": user, "item": ["i1"] * 3}).to_batches()[0] for user in (["u1"] * 3, [7] * 3)]
        return (
            pipeline
            | beam.Create(rows)
            | beam.Map(lambda batch: batch)  # whose type is not known before
            | LearnDistribution(BUDGET, DOMAIN, samples_per_user=3, release=make_release())
        )

    with pytest.raises(Exception, match="users are strings in some rows and integers in others") as caught:
        collect(build)
    assert "/Draw'" in str(caught.value)
