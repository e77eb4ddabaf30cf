"""A decision's lanes hold its whole table: another table, other words. Exact, without a false alarm.

With lanes that do not know the table, one key and id on two inputs would draw the same number for both. Whoever sees both
decisions then learns more than they cost, as they are not independent. So every kind of decision is made on two inputs that
differ in one user and in nothing that is public, and no lane may be that of both.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headcount.mechanisms
from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate.metrics import parse_metric
from headcount.mechanisms.aggregate.release import aggregate
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.choice import run as choice_run
from headcount.mechanisms.columns.value_ranges import value_columns
from headcount.mechanisms.count_release import frames, rounds
from headcount.mechanisms.count_release.papers.plume import plume
from headcount.mechanisms.count_release.release import count_release
from headcount.mechanisms.count_release.top_items import draws_of_top
from headcount.mechanisms.distribution.learn import learn_distribution
from headcount.mechanisms.histogram.auto import auto_bounded_histogram, auto_unbounded_histogram
from headcount.mechanisms.histogram.factory import estimates
from headcount.mechanisms.histogram.total import total
from headcount.mechanisms.partitions.auto import auto_partitions
from headcount.mechanisms.randomness.lane_ids import decision_lane_ids
from headcount.mechanisms.sampled import quantiles
from headcount.mechanisms.sampled.leaves import Leaves
from headcount.mechanisms.sampled.plan import SamplePlan
from headcount.mechanisms.sampled.quantiles import QuantileSearch
from headcount.mechanisms.shape import properties
from headcount.mechanisms.shape.distinct import distinct_items
from headcount.mechanisms.shape.estimators import EntropyQuestion
from headcount.mechanisms.shape.properties import central_property

BUDGET = Budget(20, 1e-2)
DOMAIN = [f"i{number:02}" for number in range(20)]
PRICE = parse_metric("sum", "price:auto")
SAMPLE = SamplePlan(Fraction(1, 3), 2, 1.0, 1e-3, Relation.ADD_REMOVE, 5)

# Who makes lanes of decisions; the last test finds a new one.
MODULES = {
    "choice.run": choice_run,
    "frames": frames,
    "rounds": rounds,
    "quantiles": quantiles,
    "properties": properties,
}

# Others: a draw that all items share is in the key of their noise (`histogram/test_shared_noise`), and who is asked is drawn
# without any data.
OTHERS = {
    "headcount.mechanisms.counting.noisy",
    "headcount.mechanisms.people.table",
    "headcount.mechanisms.sampled.papers.cohorts",
}

# (module whose lanes are looked at, mechanism)
DECIDING: dict[str, tuple[str, Callable[[], Any]]] = {
    "estimates": ("choice.run", lambda: estimates(BUDGET, of="events")),
    "estimates, domain": ("choice.run", lambda: estimates(BUDGET, of="events", domain=DOMAIN)),
    "aggregate in ranges": ("choice.run", lambda: aggregate(BUDGET, [PRICE])),
    "bound for unknown items": ("choice.run", lambda: auto_unbounded_histogram(BUDGET)),
    "bound by volume": ("choice.run", lambda: auto_unbounded_histogram(BUDGET, method="gem")),
    **{
        f"bound of a domain by {method}": (
            "choice.run",
            lambda method=method: auto_bounded_histogram(BUDGET, DOMAIN, method=method, noise="gaussian"),
        )
        for method in ("em", "gem", "dp-gd", "output-perturbation", "m-quantile")
    },
    "bound of a domain by quantile": ("choice.run", lambda: auto_bounded_histogram(BUDGET, DOMAIN)),
    "total": ("choice.run", lambda: total(Budget(5))),
    "partitions": ("choice.run", lambda: auto_partitions(BUDGET)),
    "plume": ("choice.run", lambda: plume(Zcdp(5, 1e-2))),
    "samples per user": ("choice.run", lambda: learn_distribution(BUDGET, DOMAIN, method="dense")),
    "distinct items": ("choice.run", lambda: distinct_items(Budget(5))),
    "top": ("frames", lambda: draws_of_top(BUDGET, 5, k_bar=100)),
    "counts": ("rounds", lambda: count_release(Zcdp(5, 1e-2))),
    "search": ("quantiles", lambda: QuantileSearch(SAMPLE, Leaves(0, 32, 32), Fraction(1, 2))),
    "entropy": ("properties", lambda: central_property(Budget(5), EntropyQuestion())),
}


@functools.cache
def made(name: str) -> Any:
    return DECIDING[name][1]()


def rows(name: str, users: int) -> list[pa.RecordBatch]:
    """Users with six of twenty items each. The last user, whom neighbours differ in, has no item that is not known."""
    user, place = np.repeat(np.arange(users), 6), np.tile(np.arange(6), users)
    item = (user + place) % len(DOMAIN)
    items = pa.array(item) if name == "search" else pa.array([DOMAIN[i] for i in item])
    values = value_columns((PRICE.of,) if "ranges" in name else (), {"price": pa.array(1.0 + place)})
    return [contribution_batch(pa.array([f"u{u:04}" for u in user]), items, values=values)]


def read_twice(name: str, release: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many lanes of decisions are the same in two runs under one key and id, with a user more in the second."""
    module, seen = MODULES[DECIDING[name][0]], []
    real = module.decision_lane_ids

    def recorded(key: bytes, table: bytes, draws: int) -> np.ndarray:
        ids = real(key, table, draws)
        seen[-1].update((key, *each) for each in ids.tolist())
        return ids

    with monkeypatch.context() as context:
        context.setattr(module, "decision_lane_ids", recorded)
        for users in (400, 401):
            seen.append(set())
            made(name).run(rows(name, users), release)
    assert all(seen), "nothing was decided"
    return len(seen[0] & seen[1])


@pytest.mark.parametrize("name", DECIDING)
def test_a_decision_on_another_table_reads_other_words_and_lanes_without_the_table_are_caught(
    name, make_release, monkeypatch
):
    assert read_twice(name, make_release(), monkeypatch) == 0
    module = MODULES[DECIDING[name][0]]
    monkeypatch.setattr(module, "decision_lane_ids", lambda key, table, draws: decision_lane_ids(key, b"", draws))
    assert read_twice(name, make_release(), monkeypatch) > 0


def test_every_decision_lane_is_here():
    found = {
        module.name
        for module in pkgutil.walk_packages(headcount.mechanisms.__path__, "headcount.mechanisms.")
        if hasattr(import_module(module.name), "decision_lane_ids") and not module.name.endswith("lane_ids")
    }
    assert found == {module.__name__ for module in MODULES.values()} | OTHERS
