"""Names of items: the pipeline equals the pure function for every strategy, however the work is cut."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.user_shards import users_of
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.partitions.auto import auto_partitions
from headcount.mechanisms.partitions.rounds import STRATEGIES
from headcount.mechanisms.partitions.select import named_in_rounds, select_partitions, zcdp_rounds
from headcount.transforms import Budget, Relation
from headcount.transforms.core.rows import NamedIntItem, NamedItem
from headcount.transforms.core.user_shards import UserShards
from headcount.transforms.partitions import NamedItems, PackShards, SelectPartitions

BUDGET = Budget(1, 1e-5)
# Budgets at which the choice falls on several rounds, and on one.
AUTO = {"Many": (Budget(24, 1e-4), Relation.ADD_REMOVE), "One": (Budget(1.2, 1e-3), Relation.REPLACE)}


def _rows(n: int = 8_000) -> list[tuple[str, str]]:
    random = np.random.default_rng(3)
    users, items = random.zipf(1.3, n) % 1500, (random.pareto(1, n) * 3).astype(int) % 300
    return [(f"u{u}", f"i{i}") for u, i in zip(users, items, strict=True)]


def _batch(rows: list[tuple[str, str]]) -> pa.RecordBatch:
    users, items = zip(*rows, strict=True)
    return contribution_batch(pa.array(users), pa.array(items))


def _tagged(partition: tuple[int, pa.RecordBatch], name: str) -> tuple[str, list]:
    return name, partition[1].to_pydict()["item"]


def test_every_strategy_equals_the_pure_function_and_tells_what_was_decided(collect, make_release):
    """The choice falls on one round here, so that later ones do nothing, and on several there."""
    rows, release = _rows(), make_release("both")
    expected = {
        name: select_partitions(BUDGET, strategy=name, max_items=4).run([_batch(rows)], release, name)
        for name in STRATEGIES
    }
    for name, (budget, relation) in AUTO.items():
        expected[name] = auto_partitions(budget, relation=relation).run([_batch(rows)], release, name)

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        source = pipeline | beam.Create(rows)
        common = {"release": release, "output_files": 1, "shards": 3}
        named = {
            name: source | name >> SelectPartitions(BUDGET, strategy=name, max_items=4, **common) for name in STRATEGIES
        }
        decisions = []
        for name, (budget, relation) in AUTO.items():
            select = SelectPartitions(budget, relation=relation, **common).with_decision()
            named[name], decision = source | name >> select
            decisions.append(decision | f"Decision{name}" >> beam.Map(lambda decided: ("decided", decided)))
        return [*decisions, *(names | f"Tag{name}" >> beam.Map(_tagged, name) for name, names in named.items())] | (
            beam.Flatten()
        )

    found = collect(build)
    decided = {len(value.rounds): value for name, value in found if name == "decided"}
    names = {name: value for name, value in found if name != "decided"}
    assert names == {name: named.column("item").to_pylist() for name, named in expected.items()}
    assert all(names.values())
    assert decided.keys() == {1, 3}
    several = decided[3]
    whole, choice, bounding, noise = several.guarantee.mechanisms
    assert several.chosen.rounds == 3 and "3 rounds" in bounding.description()
    assert (whole.epsilon, whole.delta, choice.epsilon, choice.delta) == (24, 1e-4, 1.56, 0)
    assert 23 < noise.epsilon < 24 and 0.7e-4 < noise.delta < 1e-4
    assert (
        several.description() == f"chosen: law in 3 rounds with at most {several.chosen.max_items} items of each user"
    )
    assert several.report_fields() == {"chosen": several.chosen._asdict()}


@pytest.mark.slow("cuts")
def test_order_batches_shards_files_and_repeats_change_nothing(collect, make_release):
    rows, release = _rows(), make_release()
    expected = (
        select_partitions(BUDGET, strategy="sips", max_items=3)
        .run([_batch(rows)], release, "S")
        .column("item")
        .to_pylist()
    )
    shuffled = [rows[n] for n in np.random.default_rng(1).permutation(len(rows))]
    for shards, output_files, options in [(1, 1, ()), (7, 3, ("--direct_runner_bundle_repeat=2",))]:

        def build(pipeline: beam.Pipeline, shards: int = shards, output_files: int = output_files) -> beam.PCollection:
            select = SelectPartitions(
                BUDGET, strategy="sips", max_items=3, release=release, shards=shards, output_files=output_files
            )
            return pipeline | beam.Create(shuffled) | "S" >> select

        found = dict(collect(build, *options))
        assert found.keys() == set(range(output_files))
        names = [batch.column("item").to_pylist() for _, batch in sorted(found.items())]
        assert all(part == sorted(part) for part in names)
        assert sorted(sum(names, [])) == expected


def test_anything_else_names_other_items(make_release):
    """Rare items, each named with a chance near one half: two draws of the noise agree on all of 60 with probability below
    1e-15."""
    rows = [(f"u{u}", f"i{u % 60}") for u in range(60 * 10)]
    plan = select_partitions(Budget(2, 1e-4), strategy="truncated-geometric", max_items=1)
    assert plan.rounds[0].plan.threshold < 10

    def names(label: str = "A", **release: object) -> list[str]:
        half = select_partitions(Budget(1, 1e-4), strategy="truncated-geometric", max_items=1)
        return half.run([_batch(rows)], make_release(**release), label).column("item").to_pylist()

    base = names()
    assert 10 < len(base) < 50
    assert names() == base
    assert names("B") != base and names(key=8) != base and names(id="other") != base


@pytest.mark.parametrize(("item_type", "row"), [(str, NamedItem), (int, NamedIntItem)])
def test_rows_have_a_schema_for_both_types_of_items(collect, make_release, item_type, row):
    rows = [(u, item_type(u % 4)) for u in range(400)]

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        select = SelectPartitions(
            BUDGET, strategy="laplace", max_items=1, release=make_release(), item_type=item_type, shards=2
        )
        named = pipeline | beam.Create(rows) | select
        assert named.element_type is row
        assert isinstance(beam.coders.registry.get_coder(row), beam.coders.RowCoder)
        return named

    assert sorted(found.item for found in collect(build)) == [item_type(n) for n in range(4)]


@pytest.mark.parametrize("strategy", ["auto", "sips"])
def test_without_rows_every_partition_is_there_and_empty(collect, make_release, strategy):
    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        nothing = pipeline | beam.Create([("u", "i")]) | beam.Filter(lambda row: False)
        items = None if strategy == "auto" else 5
        return nothing | SelectPartitions(
            BUDGET, strategy=strategy, max_items=items, release=make_release(), shards=2, output_files=3
        )

    found = dict(collect(build))
    assert {k: batch.to_pydict() for k, batch in found.items()} == {k: {"item": []} for k in range(3)}


@pytest.mark.parametrize("strategy", ["auto", "sips"])
def test_users_of_two_types_are_refused(collect, make_release, strategy):
    """Each type in a shard of its own, where nothing else would notice: one person could count as two."""
    batches = [contribution_batch(pa.array(users), pa.array(["i"])) for users in ([5], ["5"])]

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        items = None if strategy == "auto" else 5
        select = SelectPartitions(BUDGET, strategy=strategy, max_items=items, release=make_release(), shards=16)
        return pipeline | beam.Create(batches) | select

    with pytest.raises(Exception, match="users are strings in some rows"):
        collect(build)


def test_rounds_by_zcdp_on_packed_shards_equal_the_pure_function(collect, make_release):
    rows, release = _rows(), make_release()
    rounds = zcdp_rounds(0.2, 1e-4, 5, Relation.ADD_REMOVE, "sips")
    expected = named_in_rounds(users_of([_batch(rows)]), rounds, release, "N").to_pylist()

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        packed = pipeline | beam.Create([_batch(rows)]) | UserShards(3) | PackShards()
        return packed | "N" >> NamedItems(rounds, release, 3, output_files=1)

    ((partition, names),) = collect(build)
    assert partition == 0 and names.to_pydict() == {"item": expected} and len(expected) > 5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SelectPartitions(BUDGET, strategy="laplace"), "the strategy 'laplace' needs max_items"),
        (lambda: SelectPartitions(BUDGET, strategy="best", max_items=5), "strategy must be one of"),
        (lambda: SelectPartitions(Budget(1), strategy="sips", max_items=5), "needs a delta above 0"),
        (lambda: SelectPartitions(BUDGET, strategy="sips", max_items=5, relation="other"), "relation must be"),
        (lambda: SelectPartitions(BUDGET, strategy="sips", max_items=5, shards=0), "shards must be"),
        (lambda: SelectPartitions(BUDGET, strategy="sips", max_items=5).with_decision(), "leave out with_decision"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(make, message):
    with pytest.raises(ParameterError, match=message):
        make()
