"""The contract: every mechanism has a name and a guarantee, and runs by the same three parameters."""

from __future__ import annotations

import dataclasses
import inspect
import pickle

import pytest

from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.aggregate.metrics import Metric, parse_metric
from headcount.mechanisms.aggregate.release import aggregate
from headcount.mechanisms.count_release.plume import plume
from headcount.mechanisms.count_release.release import count_release
from headcount.mechanisms.count_release.top_names import top_items
from headcount.mechanisms.distribution.learn import learn_distribution
from headcount.mechanisms.histogram.auto import auto_bounded_histogram, auto_unbounded_histogram
from headcount.mechanisms.histogram.debiased import debiased_count
from headcount.mechanisms.histogram.factory import estimates
from headcount.mechanisms.histogram.fixed import bounded_histogram, unbounded_histogram
from headcount.mechanisms.histogram.total import total
from headcount.mechanisms.mechanism import Mechanism, Promise
from headcount.mechanisms.partitions.auto import auto_partitions
from headcount.mechanisms.partitions.select import select_partitions
from headcount.mechanisms.sampled.auto import heavy_hitters, sampled_histogram
from headcount.mechanisms.sampled.quantiles import quantile_hierarchy, quantile_search
from headcount.mechanisms.shape.auto import shape_histogram
from headcount.mechanisms.shape.estimators import EntropyQuestion
from headcount.mechanisms.shape.pan_private import pan_private_counts
from headcount.mechanisms.shape.properties import ShapeProperties, central_property
from headcount.mechanisms.shape.shuffled import shuffled

BUDGET, PURE = Budget(1, 1e-6), Budget(1)

MADE: dict[str, Mechanism] = {
    "unbounded": unbounded_histogram(BUDGET, bound=3),
    "bounded": bounded_histogram(PURE, ["a"], bound=3),
    "unbounded, auto": auto_unbounded_histogram(BUDGET),
    "bounded, auto": auto_bounded_histogram(PURE, ["a"]),
    "estimates": estimates(BUDGET),
    "estimates, domain": estimates(PURE, domain=["a"]),
    "debiased": debiased_count(PURE, "a", max_per_item=2),
    "total": total(PURE, domain=["a", "b"]),
    "partitions": select_partitions(BUDGET, strategy="laplace", max_items=2),
    "partitions, auto": auto_partitions(BUDGET),
    "count release": count_release(BUDGET),
    "top items": top_items(BUDGET, 3),
    "top items by names": top_items(BUDGET, 3, method="names"),
    "plume": plume(Zcdp(0.5, 1e-6), max_items=5),
    "sampled": sampled_histogram(BUDGET, max_items=1),
    "sampled, auto": sampled_histogram(BUDGET),
    "heavy hitters": heavy_hitters(BUDGET, 0.1, users=100, max_items=1),
    "heavy hitters, counted": heavy_hitters(BUDGET, 0.1, max_items=1),
    "heavy hitters, auto": heavy_hitters(BUDGET, 0.1),
    "quantile": quantile_search(BUDGET, 0.5, 0, 1),
    "quantiles": quantile_hierarchy(BUDGET, 0, 1),
    "shape": shape_histogram(PURE, domain_size=100),
    "shape of buckets": shape_histogram(PURE, buckets=100),
    "property": central_property(PURE, EntropyQuestion()),
    "properties": ShapeProperties(shape_histogram(PURE, domain_size=100), (EntropyQuestion(),)),
    "aggregate": aggregate(BUDGET, [Metric("users"), parse_metric("mean", "price:0:100")]),
    "aggregate, domain": aggregate(BUDGET, [parse_metric("sum", "price:0:100")], domain=["a"]),
    "distribution": learn_distribution(PURE, ["a", "b"]),
}

# Their noise is the users', or lies in a state: there is a guarantee, but no function of the data alone.
PROMISED: dict[str, Promise] = {
    "shuffled": shuffled(BUDGET, users=1000, buckets=100),
    "pan-private": pan_private_counts(PURE, buckets=100),
}


@pytest.mark.parametrize("name", MADE)
def test_a_mechanism_keeps_the_contract(name):
    made = MADE[name]
    assert isinstance(made, Mechanism)
    wanted, found = inspect.signature(Mechanism.run), inspect.signature(type(made).run)
    assert list(found.parameters) == list(wanted.parameters)
    assert found.parameters["label"].default is None


@pytest.mark.parametrize("name", [*MADE, *PROMISED])
def test_it_is_a_value_that_says_what_it_promises(name):
    made = {**MADE, **PROMISED}[name]
    assert isinstance(made, Promise)
    assert isinstance(made.name, str) and isinstance(made.guarantee(), Guarantee)
    assert dataclasses.is_dataclass(made) and made.__dataclass_params__.frozen
    assert pickle.loads(pickle.dumps(made)) == made
