"""What can be asked of a key, and values as whole numbers within their range."""

from __future__ import annotations

import decimal
import math

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.aggregate.measures import shares
from headcount.mechanisms.aggregate.metrics import Metric, Metrics, parse_metric
from headcount.mechanisms.columns.value_ranges import ValueRange
from headcount.mechanisms.errors import ParameterError


def test_a_metric_is_written_as_column_and_range():
    found = parse_metric("mean", "order:price:-1.5:1e3")
    assert found == Metric("mean", ValueRange("order:price", -1.5, 1000.0))
    assert found.name == "mean_order_price" and not found.is_total
    assert parse_metric("sum", "price:0:1").is_total and not parse_metric("sum", "price:-1:1").is_total


@pytest.mark.parametrize("text", ["price", "price:0", "price:a:b", "price:0:", ":0:1", "price:0:inf", "price:nan:1"])
def test_a_range_that_is_missing_or_none_is_refused_with_what_to_give(text):
    with pytest.raises(ParameterError, match="needs a column and") as caught:
        parse_metric("sum", text)
    assert caught.value.parameter == "sum"


@pytest.mark.parametrize("low, high", [(1, 1), (2, 1), (0, 1e16)])
def test_a_range_must_be_one(low, high):
    with pytest.raises(ParameterError, match="low end below its high end"):
        ValueRange("price", low, high)


@pytest.mark.parametrize("metrics", [[], [Metric("users"), Metric("users")], [1], "users", ["median"]])
def test_metrics_are_some_and_each_once(metrics):
    assert Metrics.of(["users", "mean:x:0:1"]).each == (Metric("users"), parse_metric("mean", "x:0:1"))
    with pytest.raises(ParameterError):
        Metrics.of(metrics)
    with pytest.raises(ParameterError, match="needs a column"):
        Metric("mean")
    with pytest.raises(ParameterError, match="has no column"):
        Metric("users", ValueRange("price", 0, 1))
    with pytest.raises(ParameterError, match="metric must be"):
        Metric("median", ValueRange("price", 0, 1))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([-5, 0, 25, 50, 100, 10**12]),
        pa.array([-5.0, 0.0, 25.0, 50.0, 100.0, math.inf]),
        pa.array([decimal.Decimal(each) for each in ("-5.00", "0.00", "25.00", "50.00", "100.00", "900.00")]),
        pa.array([-5, 0, 25, 50, 100, 127], pa.int8()),
        pa.array(["-5", "0", "25", "5e1", "100.0", "1e300"]),
    ],
)
def test_values_are_cut_to_the_range_and_counted_from_its_middle(column):
    found = ValueRange("price", 0, 100).fixed_point(column).to_pylist()
    assert found == [-(2**20), -(2**20), -(2**19), 0, 2**20, 2**20]


def test_what_is_no_number_is_missing():
    found = ValueRange("price", 0, 100).fixed_point(pa.array([1.0, math.nan, None]))
    assert found.null_count == 2 and found.is_valid().to_pylist() == [True, False, False]


def test_values_keep_six_digits_of_the_range():
    rng = np.random.default_rng(1)
    for low, high in ((0.1, 0.7), (-1e9, 3e14), (1e6, 1e6 + 1)):
        of, column = ValueRange("x", low, high), rng.uniform(low, high, 1000)
        steps = np.asarray(of.fixed_point(pa.array(column)))
        assert np.abs(of.midpoint + of.half * steps / 2**20 - column).max() <= of.half * 2**-20
        assert np.abs(steps).max() <= 2**20


def test_shares_add_up_and_what_is_not_needed_has_none():
    users, events = Metric("users"), Metric("events")
    mean, total = parse_metric("mean", "price:0:100"), parse_metric("sum", "price:0:100")
    around = parse_metric("sum", "price:-5:5")
    assert shares(Metrics.of([users]), 3) == {"users": 1.0}
    assert shares(Metrics.of([users, events]), 1) == {"rows": 1.0}, "with one row on a key, users are rows"
    assert shares(Metrics.of([users, events]), 2) == {"users": 0.5, "rows": 0.5}
    assert shares(Metrics.of([around]), 2) == {"sum0": 1.0}
    assert shares(Metrics.of([total]), 2) == {"rows": 0.5, "sum0": 0.5}
    for metrics in ([users, mean], [total, mean, events], [around, mean]):
        assert sum(shares(Metrics.of(metrics), 2).values()) == pytest.approx(1)


def test_a_sum_alone_costs_what_noise_on_the_sum_itself_would():
    """middle * rows + half * sum with these shares has the noise of a sum of values up to the largest: (|middle| + half)^2."""
    for low, high in ((0, 100), (-3, 5), (50, 60), (-7, -2)):
        of = ValueRange("price", low, high)
        parts = shares(Metrics.of([Metric("sum", of)]), 4)
        variance = of.midpoint**2 / parts.get("rows", math.inf) + of.half**2 / parts["sum0"]
        assert variance == pytest.approx(of.largest**2)
