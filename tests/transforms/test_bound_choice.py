"""A bound that is chosen at run time: the pipeline equals the pure function, whatever the method and however it is cut."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.bound_choice.by_name.methods import choose_public_domain, choose_unknown_domain
from headcount.mechanisms.choice.protocol import ChosenBound
from headcount.mechanisms.choice.run import choice_subkey, choose_bound
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.auto import auto_bounded_histogram, auto_unbounded_histogram
from headcount.transforms import (
    Budget,
    ChooseBound,
    DebiasedCount,
    Histogram,
    Relation,
    SelectPartitions,
    Zcdp,
)

BUDGET = Budget(1, 1e-6)
DOMAIN = [f"i{n}" for n in range(40)]
UNKNOWN = [
    {},
    {"objective": "items", "relation": Relation.REPLACE},
    {"max_per_item": 2, "noise": "laplace"},
    {"bound_method": "em", "bound_share": 0.3},
    {"bound_method": "gem"},
]
PUBLIC = [
    {},
    {"noise": "gaussian"},
    {"max_per_item": 1},
    {"max_per_item": 2, "noise": "gaussian"},
    *[{"bound_method": name} for name in ("quantile-rank", "quantile-gem")],
    *[
        {"bound_method": name, "noise": "gaussian", "relation": Relation.REPLACE}
        for name in ("em", "gem", "dp-gd", "output-perturbation", "m-quantile")
    ],
]


def _rows(n: int = 5_000) -> list[tuple[str, str]]:
    random = np.random.default_rng(3)
    users, items = random.zipf(1.4, n) % 1500, (random.pareto(1, n) * 3).astype(int) % 300
    return [(f"u{u}", f"i{i}") for u, i in zip(users, items, strict=True)]


def _batch(rows: list[tuple[str, str]]) -> pa.RecordBatch:
    users, items = zip(*rows, strict=True)
    return contribution_batch(pa.array(users), pa.array(items))


def _pure(parameters: dict) -> dict:
    names = {"bound_method": "method", "bound_share": "share"}
    return {names.get(name, name): value for name, value in parameters.items()}


@pytest.mark.slow("jobs")
def test_the_histograms_equal_the_pure_function_for_every_method(collect, make_release):
    rows, release = _rows(), make_release()
    expected = {}
    for n, parameters in enumerate(UNKNOWN):
        expected[f"U{n}"] = auto_unbounded_histogram(BUDGET, **_pure(parameters)).run([_batch(rows)], release, f"U{n}")
    for n, parameters in enumerate(PUBLIC):
        histogram = auto_bounded_histogram(BUDGET, DOMAIN, **_pure(parameters))
        expected[f"P{n}"] = histogram.run([_batch(rows)], release, f"P{n}")

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        source = pipeline | beam.Create(rows)
        common = {"release": release, "output_files": 1, "shards": 5}
        results = [
            *[
                (f"U{n}", Histogram(BUDGET, of="events", method="one-stage", **p, **common))
                for n, p in enumerate(UNKNOWN)
            ],
            *[
                (f"P{n}", Histogram(BUDGET, of="events", method="one-stage", domain=DOMAIN, **p, **common))
                for n, p in enumerate(PUBLIC)
            ],
        ]
        named = [source | name >> t | f"Name{name}" >> beam.Map(_named, name) for name, t in results]
        return named | beam.Flatten()

    found = dict(collect(build))
    assert {name: counts.to_pylist() for name, counts in expected.items()} == found
    assert sum(bool(rows) for rows in found.values()) > len(PUBLIC)


def _named(partition: tuple[int, pa.RecordBatch], name: str) -> tuple[str, list]:
    return name, partition[1].to_pylist()


def test_the_decision_tells_what_was_chosen_and_what_it_cost(collect, make_release):
    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        auto = Histogram(BUDGET, of="events", method="one-stage", release=make_release()).with_decision()
        return (pipeline | beam.Create(_rows()) | auto).decision

    (decided,) = collect(build)
    choice, bounding, noise = decided.guarantee.mechanisms
    assert (decided.guarantee.epsilon, decided.guarantee.delta) == (1, 1e-6)
    assert (choice.epsilon, choice.delta, noise.epsilon, noise.delta) == (0.1, 0, 0.9, 1e-6)
    assert decided.plan.bound.l1 == decided.chosen.bound
    assert str(decided.chosen.bound) in str(bounding.details)


def test_choosing_alone_equals_the_pure_function(collect, make_release):
    rows, release = _rows(), make_release()
    cost, later = Budget(0.1), Budget(0.9, 1e-6)
    joint = choose_unknown_domain(cost, later, Relation.ADD_REMOVE)
    norm = choose_public_domain(cost, later, Relation.ADD_REMOVE, 2)
    users = choose_public_domain(cost, later, Relation.ADD_REMOVE, 2, max_per_item=1)
    held = [row for row in rows if row[1] in ("i1", "i2")]
    expected = {
        choose_bound([_batch(rows)], joint, release, "Joint"),
        choose_bound([_batch(held)], norm, release, "Norm"),
        choose_bound([_batch(held)], users, release, "Users"),
    }
    assert {chosen.max_per_item for chosen in expected} >= {0, 1}

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        source = pipeline | beam.Create(rows)
        one = source | "Joint" >> ChooseBound(cost, later, release=release, shards=3)
        two = source | "Norm" >> ChooseBound(cost, later, domain=["i1", "i2"], release=release, shards=3)
        three = source | "Users" >> ChooseBound(
            cost, later, domain=["i1", "i2"], max_per_item=1, release=release, shards=3
        )
        return (one, two, three) | beam.Flatten()

    assert set(collect(build)) == expected


def test_another_table_draws_other_bits(make_release):
    """At an epsilon of 1e-9 the choice is uniform over 24 bounds. Shared bits would give 38 tables one and the same; that
    38 independent draws see five bounds or fewer has a probability below C(24, 5) (5/24)^38 < 1e-20."""
    choice = choose_unknown_domain(Budget(1e-9), Budget(1, 1e-6), Relation.ADD_REMOVE, "em")
    release = make_release()
    tables = [_batch([(f"u{u}", "i") for u in range(40 * n)]) for n in range(1, 39)]
    assert len({choose_bound([table], choice, release, "C") for table in tables}) > 5
    assert len({choose_bound([tables[0]], choice, release, "C") for _ in range(10)}) == 1


def test_choices_for_different_releases_share_no_bits():
    """Thresholds at epsilon 1 of adding are those at epsilon 2 of replacing: the rest of the parameters must tell."""
    subkeys = {
        choice_subkey(bytes(32), "id", "label", make(Budget(0.1), Budget(epsilon, 1e-6), each))
        for make in (
            lambda *budgets: choose_unknown_domain(*budgets, noise="laplace"),
            lambda *budgets: choose_public_domain(*budgets, domain_size=100, method="quantile-gem"),
            lambda *budgets: choose_public_domain(*budgets, domain_size=100, method="quantile-gem", max_per_item=1),
            lambda *budgets: choose_public_domain(*budgets, domain_size=100, noise="gaussian", method="gem"),
            lambda *budgets: choose_public_domain(
                *budgets, domain_size=100, noise="gaussian", method="gem", max_per_item=1
            ),
        )
        for epsilon, each in ((1, Relation.ADD_REMOVE), (2, Relation.REPLACE), (1, Relation.REPLACE))
    }
    assert len(subkeys) == 15


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_bound_for_users_of_public_items_is_chosen_on_users(collect, make_release, noise):
    """2,000 users with 300 events each on one or two of ten items: the right bound is near 300, and near 2 for users."""
    rows = [(f"u{u}", item, 300 // (1 + u % 2)) for u in range(2000) for item in {f"i{u % 10}", f"i{u * (u % 2) % 7}"}]
    domain = [f"i{n}" for n in range(10)]
    true = {item: float(sum(other == item for _, other, _ in rows)) for item in domain}

    def build(pipeline: beam.Pipeline, cap: int | None) -> beam.PCollection:
        histogram = Histogram(
            Budget(4, 1e-6),
            of="events",
            method="one-stage",
            domain=domain,
            noise=noise,
            release=make_release(),
            max_per_item=cap,
        )
        counts, decision = pipeline | beam.Create(rows) | histogram.with_decision()
        return (counts, decision | beam.Map(lambda decided: decided.chosen)) | beam.Flatten()

    found = {}
    for cap in (None, 1):
        result = collect(lambda pipeline, cap=cap: build(pipeline, cap))
        (found[cap],) = [row for row in result if isinstance(row, ChosenBound)]
    assert found[None].bound > 100 and found[None].max_per_item == 0
    assert found[1].bound <= 5 and found[1].max_per_item == 1
    released = {row.item: row.bounded_count for row in result if not isinstance(row, ChosenBound)}
    assert released == pytest.approx(true, abs=40)


def test_users_of_two_types_are_refused(collect, make_release):
    """Each type in a shard of its own, where nothing else would notice: one person could count as two."""
    batches = [contribution_batch(pa.array(users), pa.array(["i"])) for users in ([5], ["5"])]

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        choose = ChooseBound(Budget(0.1), Budget(0.9, 1e-6), release=make_release(), shards=64)
        return pipeline | beam.Create(batches) | choose

    with pytest.raises(Exception, match="users are strings in some rows"):
        collect(build)


def test_the_guarantee_gives_shares_and_candidates_before_anything_runs():
    guarantee = Histogram(Budget(2, 1e-8), of="events", method="one-stage", objective="items").guarantee()
    choice, noise = guarantee.mechanisms
    assert (guarantee.epsilon, guarantee.delta) == (2, 1e-8)
    assert (choice.epsilon, choice.delta, noise.epsilon, noise.delta) == (0.1, 0, 1.9, 1e-8)
    assert choice.details["bounds"] == "1 to 10000"
    assert choice.details["candidates"] == 270


def test_only_the_descent_takes_a_part_of_delta():
    guarantee = Histogram(
        Budget(1, 1e-6), of="events", method="one-stage", domain=DOMAIN, noise="gaussian", bound_method="dp-gd"
    ).guarantee()
    assert [step.delta for step in guarantee.mechanisms] == [1e-7, 9e-7]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Histogram(BUDGET, method="one-stage", bound=5, objective="items"), "is for bound='auto'"),
        (lambda: Histogram(BUDGET, method="one-stage", bound=5, bound_share=0.5), "is for bound='auto'"),
        (
            lambda: Histogram(BUDGET, method="one-stage", domain=DOMAIN, bound=5, bound_method="em"),
            "is for bound='auto'",
        ),
        (lambda: Histogram(BUDGET, method="one-stage", bound_share=1.0), "between 0 and 1, got 1.0"),
        (lambda: Histogram(BUDGET, method="one-stage", objective="fun"), "'error' or 'items', got 'fun'"),
        (lambda: Histogram(BUDGET, method="one-stage", bound_method="quantile-rank"), "got 'quantile-rank'"),
        (lambda: Histogram(BUDGET, method="one-stage", bound_method="em", noise="gaussian"), "take the method 'joint'"),
        (lambda: Histogram(Budget(1)), "delta must be positive"),
        (lambda: Histogram(BUDGET, method="one-stage", domain=DOMAIN, bound_method="gem"), "got 'gem'"),
        (lambda: Histogram(Budget(1), method="one-stage", domain=DOMAIN, noise="gaussian"), "needs a delta"),
        (
            lambda: Histogram(BUDGET, method="one-stage", domain=DOMAIN, bound=5).with_decision(),
            "leave out with_decision",
        ),
        (lambda: Histogram(BUDGET, method="one-stage", bound="many"), "got 'many'"),
        (
            lambda: Histogram(BUDGET, method="one-stage", domain=DOMAIN, bound=5, max_per_item=0),
            "^max_per_item must be an integer from 1",
        ),
        (
            lambda: Histogram(BUDGET, method="one-stage", domain=DOMAIN, max_per_item=2.5),
            "^max_per_item must be .* got 2.5",
        ),
        (lambda: ChooseBound(Budget(0.1), BUDGET, domain=DOMAIN, max_per_item=0), "^max_per_item must be .* got 0"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(make, message):
    with pytest.raises(ParameterError, match=message):
        make()


@pytest.mark.parametrize("budget", [1.0, Zcdp(0.5, 1e-6), None])
@pytest.mark.parametrize(
    "make",
    [
        Histogram,
        lambda budget: Histogram(budget, method="one-stage", bound=3),
        lambda budget: Histogram(budget, method="one-stage", domain=DOMAIN),
        lambda budget: ChooseBound(budget, BUDGET),
        lambda budget: ChooseBound(BUDGET, budget),
        lambda budget: ChooseBound(BUDGET, budget, domain=DOMAIN),
        SelectPartitions,
        lambda budget: SelectPartitions(budget, strategy="laplace", max_items=3),
        lambda budget: DebiasedCount(budget, ["a"], max_per_item=2),
    ],
)
def test_what_is_no_budget_is_refused_in_the_same_words(make, budget):
    with pytest.raises(ParameterError, match=r"^the budget( of the release)? must be a Budget\(epsilon, delta\), got"):
        make(budget)


def test_a_delta_of_zero_is_refused_with_what_to_do():
    with pytest.raises(ParameterError, match=r"delta must be positive .* Budget\(epsilon, delta\).* domain, got 0.0$"):
        Histogram(Budget(1))


def test_a_choice_logs_no_warning(caplog):
    pipeline = beam.Pipeline()
    pipeline | beam.Create([("u", "i")]) | Histogram(BUDGET)
    assert "not declared" not in caplog.text
