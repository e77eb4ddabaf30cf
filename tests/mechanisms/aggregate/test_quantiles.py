"""Quantiles by key: exact without noise, in order, with intervals that hold them as often as they say."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate.metrics import Metric, Metrics, parse_metrics
from headcount.mechanisms.aggregate.quantiles import KeyQuantiles, _inner, _Nodes, _outer, key_quantiles
from headcount.mechanisms.aggregate.release import aggregate
from headcount.mechanisms.aggregate.trees import BRANCHING, LEAVES, Trees, leaf_of
from headcount.mechanisms.columns.value_ranges import ValueRange
from headcount.mechanisms.errors import ParameterError
from tests.mechanisms.aggregate.test_release import KEYS, batches_of, column, log

Law = Callable[[np.random.Generator, int], np.ndarray]
LAWS: dict[str, Law] = {
    "even": lambda rng, n: rng.random(n),
    "narrow": lambda rng, n: np.minimum(rng.gamma(2, 0.01, n), 0.999),
    "long tail": lambda rng, n: np.minimum(rng.lognormal(-4, 1.5, n), 0.999),
    "two heaps": lambda rng, n: np.where(rng.random(n) < 0.7, 0.1, 0.6) + rng.random(n) * 0.01,
    "four values": lambda rng, n: rng.choice([0.05, 0.1, 0.2, 0.35], n),
    "one value": lambda rng, n: np.full(n, 0.3),
    "both ends": lambda rng, n: rng.choice([0.0, 0.99999], n),
}
SHARES = [Fraction(1, 20), Fraction(1, 2), Fraction(9, 10), Fraction(99, 100)]


class FakeTrees:
    """One tree for many keys, each with noise of its own: many releases at once."""

    def __init__(self, values: np.ndarray, keys: int, stddev: float, seed: int) -> None:
        leaf = np.minimum((values * LEAVES).astype(np.int64), LEAVES - 1)
        self._tree = Trees.of(1, [(np.zeros_like(leaf), leaf, np.ones_like(leaf))])
        self._stddev, self._rng = stddev, np.random.default_rng(seed)
        self.ids = np.zeros((keys, 2))

    def children(self, level: int, key: np.ndarray, node: np.ndarray) -> np.ndarray:
        exact = self._tree.children(level, np.zeros_like(key), node)
        return exact + self._stddev * self._rng.normal(size=exact.shape)


def found_of(values: np.ndarray, stddev: float, runs: int, rows_stddev: float | None = None) -> KeyQuantiles:
    rows_stddev = stddev if rows_stddev is None else rows_stddev
    rows = len(values) + rows_stddev * np.random.default_rng(9).normal(size=runs)
    trees: Any = FakeTrees(values, runs, stddev, 5)
    return key_quantiles(trees, stddev, SHARES, (rows, rows_stddev))


def quantile(values: np.ndarray, share: Fraction) -> float:
    """The least value that this share of them does not exceed."""
    return float(np.sort(values)[math.ceil(share * len(values)) - 1])


@pytest.mark.parametrize("law", LAWS)
def test_without_noise_quantiles_are_exact_to_a_leaf(law):
    values = LAWS[law](np.random.default_rng(1), 1999)
    found = found_of(values, 1e-6, 3)
    for place, share in enumerate(SHARES):
        truth = quantile(values, share)
        for ends in (found.value, found.low, found.high):
            assert np.abs(ends[:, place] - truth).max() <= 1 / LEAVES + 1e-12
        assert (found.low[:, place] <= truth).all() and (truth <= found.high[:, place]).all()
    assert found.rank_stddev.max() < 1e-6


@pytest.mark.slow("accuracy")
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("rows, stddev", [(3, 20.0), (999, 40.0), (20001, 40.0)])
def test_intervals_hold_the_quantile_and_all_is_in_order(law, rows, stddev):
    """Of 3,000 for each quantile 95 % or more: at least 93 %, which is five standard deviations below it."""
    values = LAWS[law](np.random.default_rng(2), rows)
    found = found_of(values, stddev, 3000)
    for place, share in enumerate(SHARES):
        truth = quantile(values, share)
        inside = (found.low[:, place] <= truth) & (truth <= found.high[:, place])
        assert inside.mean() > 0.93, (share, inside.mean())
    for each in (found.value, found.low, found.high):
        assert (np.diff(each, axis=1) >= 0).all() and each.min() >= 0 and each.max() <= 1
    assert (found.low <= found.value).all() and (found.value <= found.high).all()


@pytest.mark.seconds
@pytest.mark.parametrize("law", ["even", "narrow", "long tail"])
@pytest.mark.parametrize("rows, stddev", [(999, 10.0), (20001, 40.0)])
def test_the_stated_noise_of_ranks_is_about_true(law, rows, stddev):
    """Of smooth laws, by 2,000 releases: between nine tenths and twice of what ranks are off by."""
    values = LAWS[law](np.random.default_rng(3), rows)
    found = found_of(values, stddev, 2000)
    for place, share in enumerate(SHARES[:3]):
        ranks = np.searchsorted(np.sort(values), found.value[:, place]) / rows
        off = float(np.sqrt(np.mean((ranks - float(share)) ** 2)))
        assert 0.9 * off < float(np.median(found.rank_stddev[:, place])) < 2 * off, (share, off)


def test_a_key_without_rows_tells_nothing():
    """All is the whole range, but for intervals whose ends the noise of nobody moves: 5 % of them."""
    found = found_of(np.zeros(0), 30.0, 2000)
    assert ((found.low < 0.01) & (found.high > 0.99)).mean() > 0.8
    assert (found.rank_stddev > 0.4).mean() > 0.9


def test_values_stand_where_rows_are():
    """Far behind the last of 20,000 rows nothing is released, though noise alone does not tell it: 95 of 100 at least."""
    values = LAWS["narrow"](np.random.default_rng(4), 20000)
    found = found_of(values, 40.0, 2000)
    assert (found.value[:, 3] <= 1.5 * values.max()).mean() > 0.95


def test_estimates_are_those_of_least_squares():
    """The closed forms on two levels against a solved system: unknown rows of 8 + 7 parts, and 1 + 8 + 8 noisy numbers."""
    rng = np.random.default_rng(6)
    v, s, q, child = 4.0, 9.0, 0.3, 2
    first, second, n = rng.normal(50, 9, BRANCHING), rng.normal(6, 3, BRANCHING), 410.0
    share, rows = np.array([[q]]), np.array([[n]])
    edges, covariance = _outer(first[None], v, share, rows, s)
    node = np.array([[child]])
    inner, inner_covariance = _inner(second[None], v, _Nodes.of(edges, covariance, node, node + 1))
    # Unknown: the parts of the first level but `child`, and the parts of that one.
    design = np.zeros((1 + 2 * BRANCHING, 2 * BRANCHING - 1))
    others = [k for k in range(BRANCHING) if k != child]
    design[0] = 1
    for place, k in enumerate(others):
        design[1 + k, place] = 1
    design[1 + child, BRANCHING - 1 :] = 1
    design[1 + BRANCHING :, BRANCHING - 1 :] = np.eye(BRANCHING)
    weight = np.diag(1 / np.array([s, *[v] * (2 * BRANCHING)]))
    inverse = np.linalg.inv(design.T @ weight @ design)
    best = inverse @ design.T @ weight @ np.array([n, *first, *second])
    reading = np.full((BRANCHING + 1, 2 * BRANCHING - 1), -q)
    for edge in range(BRANCHING + 1):
        reading[edge, [place for place, k in enumerate(others) if k < child]] += 1
        reading[edge, BRANCHING - 1 : BRANCHING - 1 + edge] += 1
    assert inner[0] == pytest.approx(reading @ best)
    exact = reading @ inverse @ reading.T
    every = np.arange(BRANCHING + 1)
    made = np.array([[inner_covariance(np.array([[i]]), np.array([[k]])).item() for k in every] for i in every])
    assert made == pytest.approx(exact)


@pytest.mark.parametrize("low, high", [(0, 100), (-3.5, 1e6)])
def test_values_at_the_ends_are_in_the_first_and_last_leaf(low, high):
    of = ValueRange("x", low, high)
    step = (high - low) / LEAVES
    column = np.array(
        [low - 1, low, low + 0.4 * step, low + 1.6 * step, high - 1.5 * step, high - 0.3 * step, high, high + 9]
    )
    leaf = leaf_of(np.asarray(of.fixed_point(pa.array(column))))
    assert leaf.tolist() == [0, 0, 0, 1, LEAVES - 2, LEAVES - 1, LEAVES - 1, LEAVES - 1]


def test_quantiles_are_written_as_shares_column_and_range():
    found = parse_metrics("quantile", "0.5,0.999:order:price:-1:1e3")
    assert [metric.name for metric in found] == ["p50_order_price", "p99_9_order_price"]
    assert found[0] == Metric("quantile", ValueRange("order:price", -1.0, 1000.0), Fraction(1, 2))
    assert Metrics.of(["users", "quantile:0.25,0.5:x:0:1"]).texts()[1:] == [
        "quantile:1/4:x:0.0:1.0",
        "quantile:1/2:x:0.0:1.0",
    ]
    for text, words in (
        ("price:0:1", "such as 0.5,0.9:price:0:100"),
        ("0.5:price", "needs a column and"),
        ("1:price:0:1", "between 0 and 1"),
        ("0.5,nan:price:0:1", "between 0 and 1"),
        ("", "such as"),
    ):
        with pytest.raises(ParameterError, match=words) as caught:
            parse_metrics("quantile", text)
        assert caught.value.parameter == "quantile"
    with pytest.raises(ParameterError, match="more than once"):
        Metrics.of(["quantile:0.5,0.50:x:0:1"])
    with pytest.raises(ParameterError, match="needs a share"):
        Metric("quantile", ValueRange("x", 0, 1))
    with pytest.raises(ParameterError, match="has no share"):
        Metric("mean", ValueRange("x", 0, 1), Fraction(1, 2))


@pytest.mark.parametrize("relation", Relation)
def test_with_a_huge_epsilon_a_release_has_the_exact_quantiles_of_all_keys(relation, make_release):
    rows, asked = log(), [Metric("events"), *parse_metrics("quantile", "0.1,0.5,0.9:price:0:100")]
    budget = Budget(1e9, 1e-3)
    made = aggregate(budget, asked, domain=KEYS, max_items=6, max_per_item=20, calibrate="none", relation=relation)
    found = made.run(batches_of(rows, asked), make_release())
    assert found.schema.names[5:9] == ["p10_price", "p10_price_rank_stddev", "p10_price_low", "p10_price_high"]
    assert made.columns == found.schema.names[1:]
    for name, share in (("p10_price", Fraction(1, 10)), ("p50_price", Fraction(1, 2)), ("p90_price", Fraction(9, 10))):
        for key, value in zip(KEYS, column(found, name), strict=True):
            prices = np.sort([price for _, item, price in rows if item == key])
            at = share * len(prices)
            # Where q n is whole, any number between two values is a quantile.
            low, high = prices[math.ceil(at) - 1], prices[math.floor(at)]
            assert low - 100 / LEAVES <= value <= high + 100 / LEAVES


@pytest.mark.seconds
@pytest.mark.parametrize("text", ["price:auto", "price:-auto:auto"])
def test_a_range_that_is_chosen_for_quantiles_alone_cuts_as_little_as_can_be(text, make_release):
    """Of 2,000 users at epsilon 20, with prices up to 100: the end is among the two that cut nothing, or only the tail."""
    rows, asked = log(2000), parse_metrics("quantile", f"0.5,0.9:{text}")
    made, decision = aggregate(Budget(20, 1e-4), asked, domain=KEYS).run_decided(
        batches_of(rows, asked), make_release("ranges")
    )
    assert decision is not None and decision.plan.ranges[0].high in (50, 100)
    for name, share in (("p50_price", Fraction(1, 2)), ("p90_price", Fraction(9, 10))):
        truth = [quantile(np.array([p for _, key, p in rows if key == each]), share) for each in KEYS]
        assert column(made, name) == pytest.approx(np.array(truth), rel=0.25)
        assert (column(made, f"{name}_low") <= truth).all() and (truth <= column(made, f"{name}_high")).all()


def test_other_metrics_keep_their_noise_but_for_the_share_of_the_tree():
    mean = ["events", "mean:price:0:100", "variance:price:0:100"]
    plans = [
        aggregate(Budget(1, 1e-6), asked, domain=KEYS, max_items=2, max_per_item=1, calibrate="none").stages.plan(
            None, None
        )
        for asked in (mean, [*mean, "quantile:0.5:price:0:100"], [*mean, "quantile:0.5,0.9:price:0:100"])
    ]
    alone, one, two = (plan.measures.stddev("sum0") for plan in plans)
    assert alone < one < two < 2 * alone
    assert "rows in each part of the range of price" in plans[1].guarantee.description()
