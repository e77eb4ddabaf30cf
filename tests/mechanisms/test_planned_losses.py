"""What a mechanism says of its losses before it sees data holds for whatever it then decides, and for its own promise.

Every mechanism that decides something is here, by what its module has: a new one must join.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headcount.mechanisms
from headcount.mechanisms import (
    Budget,
    EntropyQuestion,
    Guarantee,
    Release,
    Zcdp,
    actives,
    activity,
    auto_partitions,
    central_property,
    contribution_batch,
    debiased_count,
    distinct_items,
    ephemeral_key,
    funnel,
    heavy_hitters,
    learn_distribution,
    pan_private_counts,
    plume,
    private_aggregate,
    private_count_release,
    private_histogram,
    quantile_hierarchy,
    quantile_search,
    retention,
    sampled_histogram,
    select_partitions,
    shape_histogram,
    shuffled,
    top_items,
    total,
)
from headcount.mechanisms.accounting.pld_sums import losses_delta, losses_epsilon
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.bound_choice.by_name.standalone import standalone_choice
from headcount.mechanisms.columns.keys import JOINT
from headcount.mechanisms.columns.value_ranges import ValueRange, value_columns
from headcount.mechanisms.levels.release import in_levels
from headcount.mechanisms.partitions.rounds import STRATEGIES
from headcount.mechanisms.shape.answered import AnsweredShape
from headcount.mechanisms.shape.properties import ShapeProperties

BUDGET, SMALL = Budget(1, 1e-6), Budget(0.5, 1e-7)
ITEMS = [f"i{k}" for k in range(20)]
ONE_STAGE: dict[str, Any] = {"of": "events", "method": "one-stage"}


def deciding(relation: Relation) -> dict[str, Any]:
    return {
        "estimates": private_histogram(BUDGET, of="events", relation=relation),
        "estimates of users": private_histogram(BUDGET, of="users", relation=relation),
        "estimates, gaussian": private_histogram(BUDGET, of="events", noise="gaussian", relation=relation),
        "estimates, laplace": private_histogram(BUDGET, of="events", noise="laplace", relation=relation),
        "estimates of a domain": private_histogram(BUDGET, of="events", domain=ITEMS, relation=relation),
        "estimates of users of a domain": private_histogram(
            BUDGET, domain=ITEMS, of="users", noise="gaussian", relation=relation
        ),
        "estimates of a domain, pure": private_histogram(Budget(1), of="events", domain=ITEMS, relation=relation),
        "estimates, bounded": private_histogram(BUDGET, of="events", bound=4, calibrate="none", relation=relation),
        "one stage": private_histogram(BUDGET, relation=relation, **ONE_STAGE),
        "one stage, gaussian": private_histogram(BUDGET, noise="gaussian", relation=relation, **ONE_STAGE),
        "one stage, many items": private_histogram(BUDGET, objective="items", relation=relation, **ONE_STAGE),
        "one stage of a domain": private_histogram(Budget(1), domain=ITEMS, relation=relation, **ONE_STAGE),
        **{
            f"one stage of a domain by {method}": private_histogram(
                BUDGET, domain=ITEMS, noise="gaussian", bound_method=method, relation=relation, **ONE_STAGE
            )
            for method in ("gem", "dp-gd", "output-perturbation")
        },
        "one stage, users of a domain": private_histogram(
            BUDGET, domain=ITEMS, noise="gaussian", relation=relation, **ONE_STAGE | {"of": "users"}
        ),
        "levels of users": in_levels(BUDGET, depth=3, relation=relation),
        "levels of events": in_levels(BUDGET, depth=2, of="events", relation=relation),
        "levels at home": in_levels(BUDGET, depth=2, home=True, relation=relation),
        "total": total(Budget(1), relation=relation),
        "aggregate": private_aggregate(BUDGET, ["users", "events"], relation=relation),
        "aggregate in ranges": private_aggregate(BUDGET, ["sum:price:auto"], relation=relation),
        "aggregate, zCDP": private_aggregate(Zcdp(0.5, 1e-6), ["mean:price:auto"], relation=relation),
        "aggregate of a domain, zCDP": private_aggregate(
            Zcdp(0.5, 1e-6), ["mean:price:auto"], domain=ITEMS, max_items=3, max_per_item=1, relation=relation
        ),
        "partitions": auto_partitions(BUDGET, relation=relation),
        "partitions, one round": auto_partitions(BUDGET, rounds=1, relation=relation),
        "count release": private_count_release(Zcdp(0.5, 1e-6), k_bar=50, relation=relation),
        "plume": plume(Zcdp(0.5, 1e-6), relation=relation),
        "top by names": top_items(BUDGET, 20, relation=relation),
        "sampled": sampled_histogram(BUDGET, relation=relation),
        "heavy hitters": heavy_hitters(BUDGET, 0.1, users=500, relation=relation),
        "distribution": learn_distribution(BUDGET, ITEMS, samples_per_user="auto", relation=relation),
        "distinct items": distinct_items(Budget(1), relation=relation),
        "choice alone": standalone_choice(Budget(0.1), BUDGET, relation=relation),
        "answered shape": AnsweredShape(shape_histogram(Budget(1), domain_size=30, relation=relation), ()),
        "shape properties": ShapeProperties(shape_histogram(Budget(1), domain_size=30, relation=relation), ()),
        "central property": central_property(Budget(1), EntropyQuestion(), samples=4000, relation=relation),
    }


def others(relation: Relation) -> dict[str, Any]:
    return {
        "one stage": private_histogram(BUDGET, bound=5, relation=relation, **ONE_STAGE),
        "one stage, gaussian": private_histogram(BUDGET, bound=5, noise="gaussian", relation=relation, **ONE_STAGE),
        "one stage of a domain": private_histogram(BUDGET, domain=ITEMS, bound=5, relation=relation, **ONE_STAGE),
        "one stage of a domain, gaussian": private_histogram(
            BUDGET, domain=ITEMS, bound=5, noise="gaussian", relation=relation, **ONE_STAGE
        ),
        "total": total(Budget(1), bound=9, relation=relation),
        "debiased": debiased_count(BUDGET, ITEMS, max_per_item=3, users=100, relation=relation),
        **{name: select_partitions(BUDGET, strategy=name, max_items=3, relation=relation) for name in STRATEGIES},
        "funnel": funnel(Budget(1), ["a=b", "c=d"], relation=relation),
        "funnel, gaussian": funnel(BUDGET, ["a=b", "c=d"], noise="gaussian", relation=relation),
        "activity by named values": activity(BUDGET, [1, 2], by=True, relation=relation),
        **{
            f"retention, {noise}": retention(BUDGET, "day", "2026-11-01", "2026-11-05", noise=noise, relation=relation)
            for noise in ("laplace", "gaussian")
        },
        "actives by a domain": actives(BUDGET, "2026-11-01", "2026-11-05", by=True, domain=ITEMS, relation=relation),
        "top": top_items(BUDGET, 3, relation=relation),
        "plume": plume(BUDGET, max_items=3, relation=relation),
        "sampled": sampled_histogram(SMALL, max_items=2, relation=relation),
        "quantile": quantile_search(SMALL, 0.5, 0, 1, rounds=3, relation=relation),
        "quantiles": quantile_hierarchy(SMALL, 0, 1, levels=3, relation=relation),
        **{
            f"distribution, {method}": learn_distribution(
                BUDGET, ITEMS, samples_per_user=3, method=method, relation=relation
            )
            for method in ("dense", "sparse", "gaussian", "laplace")
        },
        "distribution in buckets": learn_distribution(BUDGET, ITEMS, samples_per_user="buckets", relation=relation),
        "shape": shape_histogram(Budget(1), buckets=100, mode="l2", relation=relation),
        "distinct items": distinct_items(Budget(1), max_items=4, relation=relation),
        "counters": pan_private_counts(Budget(1), buckets=10, relation=relation),
        **({"shuffled": shuffled(BUDGET, users=1000, buckets=10)} if relation is Relation.REPLACE else {}),
        **(
            {"debiased, users": debiased_count(BUDGET, "a", max_per_item=3)} if relation is not Relation.REPLACE else {}
        ),
    }


def rows(values: tuple[ValueRange, ...] = (), depth: int = 1) -> list[pa.RecordBatch]:
    """The same rows for all, with keys of so many columns."""
    random = np.random.default_rng(4)
    item = (random.pareto(1, 4000) * 2).astype(int) % 40
    users = [f"u{u}" for u in random.integers(0, 400, 4000)]
    price = value_columns(values, {"price": pa.array(random.gamma(2, 10, 4000))})
    return [
        contribution_batch(
            pa.array(users), pa.array([JOINT.join(["in"] * (depth - 1) + [f"i{i}"]) for i in item]), values=price
        )
    ]


def check_losses(guarantee: Guarantee) -> None:
    """Losses say about what the promise does: up to the lattice, and to the price of telling thresholds and noise apart."""
    assert losses_delta(guarantee.losses, 1.1 * guarantee.epsilon) <= 2.1 * guarantee.delta + 1e-12
    assert Guarantee.from_dict(json.loads(json.dumps(guarantee.as_dict()))) == guarantee


@pytest.mark.slow("ranges")
@pytest.mark.parametrize("relation", list(Relation))
def test_what_is_planned_covers_what_is_decided(relation):
    for name, made in deciding(relation).items():
        planned, batches = (
            made.guarantee(),
            rows(made.metrics.values if hasattr(made, "metrics") else (), getattr(made, "depth", 1)),
        )
        for seed in range(2):
            _, decision = made.run_decided(batches, Release(ephemeral_key(), str(seed)))
            decided = planned if decision is None else getattr(decision, "guarantee", planned)
            assert (decided.epsilon, decided.delta) == (planned.epsilon, planned.delta), name
            assert decided.losses == planned.losses, name
            assert decided.zcdp.rho <= planned.zcdp.rho * (1 + 1e-9), name
            assert decided.zcdp.delta <= max(planned.zcdp.delta, planned.delta) * (1 + 1e-9), name
        check_losses(planned)


@pytest.mark.seconds
@pytest.mark.parametrize("relation", list(Relation))
def test_what_is_fixed_keeps_its_promise(relation):
    for made in others(relation).values():
        check_losses(made.guarantee())


@pytest.mark.seconds
def test_every_mechanism_that_decides_is_here():
    found = set()
    for module in pkgutil.walk_packages(headcount.mechanisms.__path__, "headcount.mechanisms."):
        for name, each in vars(importlib.import_module(module.name)).items():
            if inspect.isclass(each) and hasattr(each, "run_decided") and not getattr(each, "_is_protocol", False):
                found.add(name)
    assert found == {type(made).__name__ for made in deciding(Relation.ADD_REMOVE).values()}


def test_losses_are_worth_stating():
    """What a year costs by the losses that are stated, beside what it costs if only the promise is known."""
    for made, share in (
        (others(Relation.ADD_REMOVE)["one stage of a domain, gaussian"], 0.25),
        (total(Budget(1)), 0.9),
    ):
        own = made.guarantee()
        parts = [own.losses] * 52
        known = Guarantee(own.epsilon, own.delta, own.relation, ()).losses
        assert losses_epsilon(type(known).together(parts), 1e-3) < share * losses_epsilon(
            type(known).together([known] * 52), 1e-3
        )
