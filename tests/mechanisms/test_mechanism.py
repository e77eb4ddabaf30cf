"""The contract: every mechanism has a name and a guarantee, and runs by the same three parameters."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import pickle
from collections.abc import Callable

import pytest

from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.aggregate.metrics import Metric, parse_metric
from headcount.mechanisms.aggregate.release import aggregate
from headcount.mechanisms.count_release.papers.plume import plume
from headcount.mechanisms.count_release.release import count_release
from headcount.mechanisms.count_release.top_names import top_items
from headcount.mechanisms.distribution.learn import learn_distribution
from headcount.mechanisms.histogram.auto import auto_bounded_histogram, auto_unbounded_histogram
from headcount.mechanisms.histogram.factory import estimates
from headcount.mechanisms.histogram.fixed import bounded_histogram, unbounded_histogram
from headcount.mechanisms.histogram.papers.debiased import debiased_count
from headcount.mechanisms.histogram.total import total
from headcount.mechanisms.mechanism import Mechanism, Promise
from headcount.mechanisms.partitions.auto import auto_partitions
from headcount.mechanisms.partitions.select import select_partitions
from headcount.mechanisms.people.ask import actives, activity, funnel, retention
from headcount.mechanisms.sampled.auto import heavy_hitters, sampled_histogram
from headcount.mechanisms.sampled.quantiles import quantile_hierarchy, quantile_search
from headcount.mechanisms.shape.auto import shape_histogram
from headcount.mechanisms.shape.estimators import EntropyQuestion
from headcount.mechanisms.shape.papers.pan_private import pan_private_counts
from headcount.mechanisms.shape.papers.shuffled import shuffled
from headcount.mechanisms.shape.properties import ShapeProperties, central_property

BUDGET, PURE = Budget(1, 1e-6), Budget(1)

MADE: dict[str, Callable[[], Mechanism]] = {
    "unbounded": lambda: unbounded_histogram(BUDGET, bound=3),
    "bounded": lambda: bounded_histogram(PURE, ["a"], bound=3),
    "unbounded, auto": lambda: auto_unbounded_histogram(BUDGET),
    "bounded, auto": lambda: auto_bounded_histogram(PURE, ["a"]),
    "estimates": lambda: estimates(BUDGET, of="events"),
    "estimates, domain": lambda: estimates(PURE, of="events", domain=["a"]),
    "debiased": lambda: debiased_count(PURE, "a", max_per_item=2),
    "total": lambda: total(PURE, domain=["a", "b"]),
    "funnel": lambda: funnel(PURE, ["a=b", "c=d"], within="7d"),
    "activity": lambda: activity(BUDGET, [1, 2], by=True),
    "retention": lambda: retention(BUDGET, "week", "2026-10-05", "2026-11-15"),
    "actives": lambda: actives(BUDGET, "2026-11-01", "2026-11-05", by=True, domain=["a"]),
    "partitions": lambda: select_partitions(BUDGET, strategy="laplace", max_items=2),
    "partitions, auto": lambda: auto_partitions(BUDGET),
    "count release": lambda: count_release(BUDGET),
    "top items": lambda: top_items(BUDGET, 3),
    "top items by names": lambda: top_items(BUDGET, 3, method="names"),
    "plume": lambda: plume(Zcdp(0.5, 1e-6), max_items=5),
    "sampled": lambda: sampled_histogram(BUDGET, max_items=1),
    "sampled, auto": lambda: sampled_histogram(BUDGET),
    "heavy hitters": lambda: heavy_hitters(BUDGET, 0.1, users=100, max_items=1),
    "heavy hitters, counted": lambda: heavy_hitters(BUDGET, 0.1, max_items=1),
    "heavy hitters, auto": lambda: heavy_hitters(BUDGET, 0.1),
    "quantile": lambda: quantile_search(BUDGET, 0.5, 0, 1),
    "quantiles": lambda: quantile_hierarchy(BUDGET, 0, 1),
    "shape": lambda: shape_histogram(PURE, domain_size=100),
    "shape of buckets": lambda: shape_histogram(PURE, buckets=100),
    "property": lambda: central_property(PURE, EntropyQuestion()),
    "properties": lambda: ShapeProperties(shape_histogram(PURE, domain_size=100), (EntropyQuestion(),)),
    "aggregate": lambda: aggregate(BUDGET, [Metric("users"), parse_metric("mean", "price:0:100")]),
    "aggregate, domain": lambda: aggregate(BUDGET, [parse_metric("sum", "price:0:100")], domain=["a"]),
    "distribution": lambda: learn_distribution(PURE, ["a", "b"]),
}

# Their noise is the users', or lies in a state: there is a guarantee, but no function of the data alone.
PROMISED: dict[str, Callable[[], Promise]] = {
    "shuffled": lambda: shuffled(BUDGET, users=1000, buckets=100),
    "pan-private": lambda: pan_private_counts(PURE, buckets=100),
}


@functools.cache
def made_of(name: str) -> Promise:
    """Made when a test asks: all of them take seconds, and each worker of the tests reads this file."""
    return {**MADE, **PROMISED}[name]()


@pytest.mark.seconds
@pytest.mark.parametrize("name", MADE)
def test_a_mechanism_keeps_the_contract(name):
    made = made_of(name)
    assert isinstance(made, Mechanism)
    wanted, found = inspect.signature(Mechanism.run), inspect.signature(type(made).run)
    assert list(found.parameters) == list(wanted.parameters)
    assert found.parameters["label"].default is None


@pytest.mark.parametrize("name", [*MADE, *PROMISED])
def test_it_is_a_value_that_says_what_it_promises(name):
    made = made_of(name)
    assert isinstance(made, Promise)
    assert isinstance(made.name, str) and isinstance(made.guarantee(), Guarantee)
    assert dataclasses.is_dataclass(made) and made.__dataclass_params__.frozen
    assert pickle.loads(pickle.dumps(made)) == made
