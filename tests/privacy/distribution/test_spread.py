"""How much users differ is asked privately: one user moves the pairs of all groups by no more than the noise is made for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.distribution import spread
from headcount.mechanisms.distribution.plan import plan_distribution
from headcount.mechanisms.distribution.spread import groups_of, pairs, spread_noise
from headcount.mechanisms.distribution.tables import ValueCounts

SYMBOLS, SAMPLES = 12, 6
DRAWN = np.array([40.0, 30, 20, 10, 8, 5, 3, 2, 1, 0, -2, -4])  # what was released of the symbols before


def table_of(users: list[np.ndarray]) -> ValueCounts:
    """The tables of users with so many samples of each symbol."""
    counts = np.array(users, dtype=np.int64).reshape(-1, SYMBOLS)
    found = [np.unique(column[column > 0], return_counts=True) for column in counts.T]
    offsets = np.append(0, np.cumsum([len(value) for value, _ in found]))
    value, number = (np.concatenate([pair[i] for pair in found]).astype(np.int64) for i in (0, 1))
    return ValueCounts(pa.array([f"s{symbol:02d}" for symbol in range(SYMBOLS)]), offsets, value, number)


def loss(relation: Relation) -> float:
    """The largest privacy loss over neighbours: what all groups move by together, over the scale of their noise."""
    random = np.random.default_rng(5)
    one = [np.eye(SYMBOLS, dtype=int)[symbol] * SAMPLES for symbol in (0, 3, 11)]  # all samples of one symbol
    users = [
        *one,
        *random.multinomial(SAMPLES, np.full(SYMBOLS, 1 / SYMBOLS), 20),
        *random.multinomial(SAMPLES, DRAWN.clip(0) / 119, 20),
    ]
    base = users[10:20]
    scale = float(spread.spread_noise(Budget(1), SAMPLES, relation).scale)

    def sums(extra: list[np.ndarray]) -> np.ndarray:
        return spread.pairs(table_of([*base, *extra]), groups_of(DRAWN))

    others = [sums([user]) for user in users] if relation is Relation.REPLACE else [sums([])]
    return max(float(np.abs(sums([user]) - other).sum()) / scale for user in users for other in others)


@pytest.mark.parametrize("relation", list(Relation))
def test_one_user_moves_all_groups_by_no_more_than_the_noise_is_for(relation):
    assert loss(relation) == pytest.approx(1), "and just that, where all of its samples are one symbol"


def test_pairs_with_oneself_are_caught(monkeypatch):
    """n^2 in place of n (n - 1) moves by m^2."""

    def squares(table: ValueCounts, groups: np.ndarray) -> np.ndarray:
        totals = np.bincount(groups, weights=table.totals(), minlength=spread.GROUPS).astype(np.int64)
        return real(table, groups) + totals

    real = pairs
    monkeypatch.setattr(spread, "pairs", squares)
    assert loss(Relation.ADD_REMOVE) > 1.15


def test_noise_for_the_samples_alone_is_caught(monkeypatch):
    monkeypatch.setattr(spread, "spread_noise", lambda budget, samples, relation: spread_noise(budget, 3, relation))
    assert loss(Relation.ADD_REMOVE) > 4


def test_groups_follow_from_what_was_released_and_hold_every_symbol():
    groups = groups_of(DRAWN)
    assert groups[0] == 0 and (np.diff(groups) >= 0).all() and groups[-1] == spread.GROUPS - 1
    assert set(groups_of(np.zeros(5)).tolist()) == {0}


@pytest.mark.parametrize("method", ["laplace", "gaussian"])
@pytest.mark.parametrize("relation", list(Relation))
def test_the_parts_cost_the_budget_and_no_more(method, relation):
    plan = plan_distribution(Budget(1, 1e-6), 10, 20, relation, None, method)
    assert plan.spread is not None and plan.noise is not None
    assert plan.spread.epsilon + plan.noise.epsilon == pytest.approx(1) and plan.spread.relation is relation
    assert plan.spread.delta == 0
