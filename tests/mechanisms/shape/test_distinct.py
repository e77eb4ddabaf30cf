"""The number of distinct items where users have several: what it is of, its limits, and how far off they are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import one_shard
from headcount.mechanisms.choice.run import decide
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.partitions.expected_weights import FRACTION_BITS
from headcount.mechanisms.shape.distinct import DistinctItemsMechanism, distinct_items

ONE = 1 << FRACTION_BITS


def held(sizes: np.ndarray, items: int, random: np.random.Generator, own: float = 0.0) -> list[tuple[int, int]]:
    """Users with so many rows each, of items by a law of 1 / rank; some of them, so often, of items of their own."""
    user = np.repeat(np.arange(len(sizes)), sizes)
    weights = np.cumsum(1 / np.arange(1, items + 1))
    item = np.searchsorted(weights / weights[-1], random.random(len(user)))
    item = np.where(random.random(len(user)) < own, items + np.arange(len(user)), item)
    return sorted(set(zip(user.tolist(), item.tolist(), strict=True)))


def table_of(made: DistinctItemsMechanism, pairs: list[tuple[int, int]]) -> list[int]:
    user, item = (pa.array(column) for column in zip(*pairs, strict=True))
    shard = one_shard([contribution_batch(user, item)])
    assert shard is not None
    by_item = made.item_table([chunk for _, chunk in made.item_chunks(shard, 1)])
    return [a + b for a, b in zip(made.user_table(shard), by_item, strict=True)]


def by_hand(pairs: list[tuple[int, int]], bound: int) -> tuple[int, int]:
    """N(K) and F(K), one user and item at a time."""
    users = [user for user, _ in pairs]
    sizes = {user: users.count(user) for user in set(users)}
    sums: dict[int, int] = {}
    for user, item in pairs:
        weight = ONE if sizes[user] <= bound else bound * (ONE // sizes[user])
        sums[item] = min(ONE, sums.get(item, 0) + weight)
    return sum(size > bound for size in sizes.values()), sum(sums.values())


def test_table_is_what_the_definition_says():
    random = np.random.default_rng(1)
    made = distinct_items(Budget(1))
    pairs = held(random.integers(1, 40, 60), 80, random, own=0.1)
    table = table_of(made, pairs)
    expected = [by_hand(pairs, bound) for bound in tuning.ITEMS_OF_DISTINCT]
    assert table == [above for above, _ in expected] + [found for _, found in expected]


def test_every_bound_counts_no_more_than_there_is_and_a_large_one_all():
    random = np.random.default_rng(2)
    pairs = held(random.integers(1, 30, 200), 300, random, own=0.3)
    distinct = len({item for _, item in pairs}) * ONE
    found = table_of(distinct_items(Budget(1)), pairs)[len(tuning.ITEMS_OF_DISTINCT) :]
    assert found == sorted(found)
    assert found[0] < distinct == found[5] == found[-1]


LAWS = {
    "few items each": (lambda random: random.geometric(1 / 4, 4000), 6000, 0.0),
    "texts": (lambda random: random.geometric(1 / 30, 4000), 50_000, 0.0),
    "items of their own": (lambda random: random.geometric(1 / 5, 4000), 10, 1.0),
    "heavy users": (lambda random: np.minimum(2 + random.pareto(1.2, 4000) * 2, 3000).astype(int), 20_000, 0.5),
    "one item each": (lambda random: np.ones(4000, dtype=int), 2000, 0.0),
    "all have nearly all": (lambda random: np.full(1000, 250), 200, 0.0),
}


@pytest.mark.seconds
@pytest.mark.parametrize("law", LAWS)
def test_lower_limit_holds_and_the_count_is_near_where_no_user_is_heavy(law):
    """With each of 50 keys the limit fails with probability 0.025 at most: 11 or more failures, of one law or another, have
    probability 2e-7. A count with noise for one item in place of K has a limit far too close, and fails in every other run."""
    random = np.random.default_rng(3)
    sizes, items, own = LAWS[law]
    pairs = held(sizes(random), items, random, own)
    distinct = len({item for _, item in pairs})
    made = distinct_items(Budget(1))
    table = table_of(made, pairs)
    rows = [made.rows(decide(made, table, bytes([key] * 32))).to_pylist()[0] for key in range(50)]
    assert sum(row["low"] > distinct for row in rows) <= 10
    assert all(row["high"] is None and 0 <= row["low"] <= row["count"] for row in rows)
    middle = float(np.median([row["count"] for row in rows]))
    assert middle == pytest.approx(distinct, rel=0.35 if law == "heavy users" else 0.1)


def test_limits_hold_on_both_sides_where_no_user_has_more():
    """95 of 100 intervals hold: 20 misses or more of 100 have probability 4e-8."""
    random = np.random.default_rng(4)
    pairs = held(random.integers(1, 20, 500), 3000, random)
    made = distinct_items(Budget(1), max_items=20)
    table, distinct = table_of(made, pairs), len({item for _, item in pairs})
    rows = [made.rows(decide(made, table, bytes([key] * 32))).to_pylist()[0] for key in range(100)]
    missed = sum(not row["low"] <= distinct <= row["high"] for row in rows)
    assert missed < 20
    spread = np.sqrt(np.mean([(row["count"] - distinct) ** 2 for row in rows]))
    assert spread == pytest.approx(rows[0]["noise_stddev"], rel=0.6)  # 100 draws of Laplace noise


def test_budget_is_spent_once():
    made = distinct_items(Budget(1, 1e-6), relation=Relation.REPLACE)
    promise = made.guarantee()
    assert (promise.epsilon, promise.delta, promise.relation) == (1, 0, Relation.REPLACE)
    assert sum(step.epsilon for step in promise.mechanisms) == pytest.approx(1)
    given = distinct_items(Budget(1), max_items=7).guarantee()
    assert [step.epsilon for step in given.mechanisms] == [0, 1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"budget": Budget(1), "max_items": 0}, "max_items must be an integer from 1"),
        ({"budget": Budget(1e-9)}, "epsilon"),
    ],
)
def test_what_cannot_be_is_refused(given, message):
    with pytest.raises(ParameterError, match=message):
        distinct_items(given.pop("budget"), **given)
