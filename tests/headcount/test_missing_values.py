"""A row without a value adds nothing to the metrics of that value, and stays in all others: as in SQL, and without a flag."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

import headcount
from tests.fixed_key import write_fixed_key

USERS, BUYERS = 17_000, 6_000


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """One row each: all visit, a third of them buys for 20 or 40, and nothing is known of the weight of half of that."""
    key = tmp_path_factory.mktemp("key") / "key"
    write_fixed_key(key)
    price = [20.0 + 20 * (k % 2) if k < BUYERS else None for k in range(USERS)]
    events = {
        "user": [f"u{k}" for k in range(USERS)],
        "shop": ["a"] * USERS,
        "price": price,
        "weight": [math.nan if value is None or k % 4 else 3.0 for k, value in enumerate(price)],
    }
    asked = {
        "users": True,
        "events": True,
        "sum": "price:0:100",
        "mean": ["price:0:100", "weight:0:10"],
        "variance": "price:0:100",
        "quantile": ["0.25,0.75:price:0:100", "0.5:weight:0:10"],
    }
    made = headcount.aggregate(
        pa.table(events),
        user="user",
        item="shop",
        domain=["a"],
        **asked,
        epsilon=5,
        delta=1e-6,
        key_file=key,
        release_id="r",
    )
    (row,) = made.table.to_pylist()
    return row


def test_users_and_events_are_all(found):
    assert found["users"] == pytest.approx(USERS, rel=0.01)
    assert found["events"] == pytest.approx(USERS, rel=0.01)


def test_metrics_are_of_the_rows_that_have_a_value(found):
    assert found["mean_price"] == pytest.approx(30, rel=0.02), "10.6 of all rows"
    assert found["sum_price"] == pytest.approx(30 * BUYERS, rel=0.03)
    assert found["variance_price"] == pytest.approx(100, rel=0.1)
    assert (found["p25_price"], found["p75_price"]) == (pytest.approx(20, abs=0.1), pytest.approx(40, abs=0.1))
    assert found["mean_weight"] == pytest.approx(3, rel=0.05) and found["p50_weight"] == pytest.approx(3, abs=0.05)


@pytest.mark.parametrize(
    "name, truth",
    [("mean_price", 30), ("sum_price", 30 * BUYERS), ("variance_price", 100), ("mean_weight", 3), ("p50_weight", 3)],
)
def test_their_intervals_hold(found, name, truth):
    assert found[f"{name}_low"] <= truth <= found[f"{name}_high"]


def test_a_range_is_chosen_by_the_values_that_are_there(tmp_path):
    write_fixed_key(tmp_path / "key")
    events = {
        "user": [f"u{k}" for k in range(4000)],
        "shop": ["a"] * 4000,
        "price": [float(k % 90) if k % 2 else None for k in range(4000)],
    }
    made = headcount.aggregate(
        events,
        user="user",
        item="shop",
        domain=["a"],
        mean="price:auto",
        epsilon=5,
        delta=1e-6,
        key_file=tmp_path / "key",
        release_id="r",
    )
    assert "price from 0 to" in str(made.report["decision"])
    assert made.table["mean_price"][0].as_py() == pytest.approx(45, rel=0.2), "odd numbers below 90"
