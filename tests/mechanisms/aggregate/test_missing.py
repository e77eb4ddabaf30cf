"""Rows without a value take none of the room that a column's metrics have.

Where all that is asked is of values, a release of rows of which most lack one is the release of the others, bit for bit. Beside
users and events, sums see a sample of the rows that have a value. Keys are fixed.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate.bounding import bounded_rows, measured
from headcount.mechanisms.aggregate.measures import make_plan
from headcount.mechanisms.aggregate.metrics import Metrics
from headcount.mechanisms.aggregate.ranges import RangeChoice
from headcount.mechanisms.aggregate.release import aggregate
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import MISSING
from headcount.mechanisms.batches.user_shards import value_users_of
from headcount.mechanisms.batches.value_rows import ValueShard
from headcount.mechanisms.bounding.steps import step_subkeys
from headcount.mechanisms.columns.value_ranges import AutoRange, value_columns

KEYS = [f"k{n}" for n in range(4)]
Row = tuple[str, str, float | None, float | None]  # user, key, price, weight


def log(users: int = 2000, lacking: float = 0.9, seed: int = 1) -> list[Row]:
    rng = np.random.default_rng(seed)

    def value() -> float | None:
        return None if rng.random() < lacking else float(rng.uniform(0, 100))

    return [
        (f"u{u}", KEYS[rng.integers(4)], value(), value()) for u in range(users) for _ in range(rng.integers(1, 20))
    ]


def batches_of(rows: list[Row], asked: list[str]) -> list[pa.RecordBatch]:
    user, key, price, weight = (list(column) for column in zip(*rows, strict=True))
    columns = {"price": pa.array(price, pa.float64()), "weight": pa.array(weight, pa.float64())}
    return [contribution_batch(pa.array(user), pa.array(key), values=value_columns(Metrics.of(asked).values, columns))]


def shard_of(rows: list[Row], asked: list[str]) -> ValueShard:
    shard = value_users_of(batches_of(rows, asked))[0]
    assert shard is not None
    return shard


@pytest.mark.seconds
@pytest.mark.parametrize(
    "asked", [["sum:price:0:100"], ["mean:price:0:100", "quantile:0.5:price:0:100"], ["sum:price:auto"]]
)
@pytest.mark.parametrize("domain", [None, KEYS])
def test_metrics_of_one_column_are_those_of_its_rows_with_a_value(asked, domain, make_release):
    rows, made = log(), aggregate(Budget(2, 1e-6), asked, domain=domain)
    valued = [row for row in rows if row[2] is not None]
    found, only = (made.run(batches_of(each, asked), make_release()) for each in (rows, valued))
    assert found.num_rows == 4 and found.equals(only)


def test_rows_with_any_of_the_values_stay():
    """Of two columns a row without one of them has the other: it is left out only where it lacks both."""
    asked = ["sum:price:0:100", "sum:weight:0:100"]
    rows: list[Row] = [("a", "k", 1.0, None), ("a", "k", None, None), ("b", "k", None, None), ("c", "l", None, 3.0)]
    assert Metrics.of(asked).only_values and not Metrics.of([*asked, "events"]).only_values
    left = shard_of(rows, asked).with_some_value()
    assert sorted(left.users.to_pylist()) == ["a", "c"] and sorted(left.pairs.items.to_pylist()) == ["k", "l"]
    assert left.pairs.count.tolist() == left.count.tolist() == [1, 1]
    assert [int((column == MISSING).sum()) for column in left.values] == [1, 1]


def test_sums_see_the_rows_with_a_value_before_others():
    """Two rows of ten users count, of 60 of which one or three have a price: all room is for these, and what they leave for
    rows without one."""
    asked = ["users", "events", "sum:price:0:100", "quantile:0.5:weight:0:100"]
    rows: list[Row] = [
        (f"u{n}", "k", 100.0 if k < (1 if n < 5 else 3) else None, None) for n in range(10) for k in range(60)
    ]
    plan = make_plan(Metrics.of(asked), 1, 2, 1.0, Relation.ADD_REMOVE)
    sample = bounded_rows(shard_of(rows, asked), plan, step_subkeys(bytes(32), "id", "label", plan.steps))
    added = measured(sample, plan.measures)
    bits = {measure.name: measure.bits for measure in plan.measures}
    assert added["rows"].tolist() == [2] * 10
    both = zip(*(added[name] >> bits[name] for name in ("sum0", "missing0")), strict=True)
    assert sorted(both) == [(1, 1)] * 5 + [(2, 0)] * 5
    assert len(added["tree1"]) == 0 and (added["missing1"] >> bits["missing1"]).tolist() == [2] * 10


def test_a_range_is_chosen_by_rows_with_a_value():
    """A user of one price and 99 rows without one is worth as much as a user of the price alone."""
    asked = ["sum:price:auto"]
    choice = RangeChoice((Budget(1),), Budget(1), Relation.ADD_REMOVE, {0: AutoRange("price")})
    one: list[Row] = [("u", "k", 7.0, None)]
    assert choice.user_table(shard_of(one + 99 * [("u", "k", None, None)], asked)) == choice.user_table(
        shard_of(one, asked)
    )
    assert not any(choice.user_table(shard_of([("u", "k", None, None)], asked)))


@pytest.mark.seconds
def test_sums_beside_users_and_events_have_totals_of_rows_with_a_value(make_release):
    """Nine rows in ten lack a price, and two of up to nineteen are seen on a key: those with a price are left out less, and
    scaled up by that. Within 25 % at this epsilon; by the events' scale sums were twice as much or more."""
    asked = ["users", "events", "sum:price:0:100"]
    rows = log(4000)
    made = aggregate(Budget(20, 1e-4), asked, domain=KEYS, max_items=1)
    assert made.metrics.totals == ("users", "events", "valued0")
    found = made.run(batches_of(rows, asked), make_release())
    for key, told in zip(KEYS, found.column("sum_price").to_pylist(), strict=True):
        truth = sum(price for _, name, price, _ in rows if name == key and price is not None)
        assert told == pytest.approx(truth, rel=0.25)
