"""The number of distinct items is private: the exact loss on neighbours, of the choice of the bound and of the noise.

What is drawn is a bound, by `exponents`, and F of it with discrete Laplace noise. So the loss is known exactly from the tables
of two neighbours, and no draw is needed: the largest log-ratio of a bound's probability, and what F moves by, over the scale.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import one_shard
from headcount.mechanisms.choice.exponential import probabilities
from headcount.mechanisms.partitions.expected_weights import FRACTION_BITS
from headcount.mechanisms.shape import distinct
from headcount.mechanisms.shape.distinct import DistinctItemsMechanism, distinct_items

UNITS = FRACTION_BITS - 10  # F is rounded down by so many bits before the noise

Users = dict[str, list[str]]


def tables(made: DistinctItemsMechanism, users: Users) -> list[int]:
    pairs = [(user, item) for user, items in users.items() for item in items]
    if not pairs:
        return [0] * made.entries
    shard = one_shard([contribution_batch(*(pa.array(column) for column in zip(*pairs, strict=True)))])
    assert shard is not None
    by_item = made.item_table([chunk for _, chunk in made.item_chunks(shard, 1)])
    return [a + b for a, b in zip(made.user_table(shard), by_item, strict=True)]


def loss(made: DistinctItemsMechanism, one: Users, other: Users) -> tuple[float, float]:
    """The exact privacy loss of the choice, and the largest of the noise, over all bounds that can be chosen."""
    left, right = tables(made, one), tables(made, other)
    chosen = 0.0
    if made.choosing is not None:
        chances = [np.log(probabilities(made.exponents(table))) for table in (left, right)]
        chosen = float(np.abs(chances[0] - chances[1]).max())
    number = len(made.ladder)
    moved = [
        abs((a >> UNITS) - (b >> UNITS)) / float(made.plan(bound).scale)
        for bound, a, b in zip(made.ladder, left[number:], right[number:], strict=True)
    ]
    return chosen, max(moved)


def some(random: np.random.Generator, users: int, items: int, most: int) -> Users:
    def names() -> list[str]:
        return [f"i{item}" for item in random.permutation(items)[: random.integers(1, most)]]

    return {f"u{user}": names() for user in range(users)}


def neighbours() -> list[tuple[Users, Users]]:
    """Pairs that differ in the user "x": with items of its own, with those of others, with one, with many; or replaced."""
    random = np.random.default_rng(7)
    pairs = []
    for size in (0, 1, 20, 150):
        base = some(random, size, 60, 20)
        extra = {
            "own": [f"x{k}" for k in range(500)],
            "all of others": [f"i{k}" for k in range(60)],
            "one": ["i0"],
            "both": [f"i{k}" for k in range(30)] + [f"x{k}" for k in range(7)],
        }
        pairs += [(base, base | {"x": items}) for items in extra.values()]
        pairs += [(base | {"x": extra["own"]}, base | {"x": items}) for items in extra.values()]
    return pairs


def worst(made: DistinctItemsMechanism) -> tuple[float, float]:
    found = [loss(made, one, other) for one, other in neighbours()]
    return max(chosen for chosen, _ in found), max(moved for _, moved in found)


@pytest.mark.parametrize("relation", list(Relation))
def test_loss_is_within_the_budget(relation):
    """The neighbours are of both relations, which have the same noise: neither may cost more."""
    made = distinct_items(Budget(1), relation=relation)
    chosen, moved = worst(made)
    assert made.choosing is not None
    assert chosen <= made.choosing.epsilon * (1 + 1e-9)
    assert 0.99 * made.release_budget.epsilon <= moved <= made.release_budget.epsilon * (1 + 1e-9), "the noise is tight"


def test_loss_of_a_given_bound_is_within_the_budget():
    made = distinct_items(Budget(1), max_items=5)
    assert worst(made) == (0, pytest.approx(1))


def test_audit_sees_whole_weights(monkeypatch):
    """A user of d items who gives each all of its weight moves F by d."""

    def whole(shard, ladder, shards):
        return real(shard, (*ladder[:-1], 10**6), shards)

    real = distinct.split_weights
    monkeypatch.setattr(distinct, "split_weights", whole)
    assert worst(distinct_items(Budget(1), max_items=5))[1] > 10


def test_audit_sees_a_choice_by_the_sum_itself(monkeypatch):
    """F moves by K, and not by 1 as F / K does."""

    def exponents(self, table):
        bounds = len(self.ladder)
        scaled = [found * bound for found, bound in zip(table[bounds:], self.ladder, strict=True)]
        return real(self, [*[10**9] * bounds, *scaled])

    real = DistinctItemsMechanism.exponents
    monkeypatch.setattr(DistinctItemsMechanism, "exponents", exponents)
    made = distinct_items(Budget(1))
    assert made.choosing is not None
    assert worst(made)[0] > 2 * made.choosing.epsilon


def test_audit_sees_noise_for_one_item(monkeypatch):
    real = DistinctItemsMechanism.plan
    monkeypatch.setattr(DistinctItemsMechanism, "plan", lambda self, bound: real(self, 1))
    assert worst(distinct_items(Budget(1), max_items=5))[1] > 4
