"""The number of distinct items is private: the exact loss on neighbours, of the choice of the bound and of the noise.

`choose` draws a bound, and then F of it with noise. For every bound that it may draw, what it gives less the noise that was
drawn is F, and the sampler tells the scale. So the loss is known exactly: how far the log-probabilities of the bounds move, and
what F moves by, over the scale.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import one_shard
from headcount.mechanisms.partitions.expected_weights import FRACTION_BITS
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.shape import distinct
from headcount.mechanisms.shape.distinct import DistinctItemsMechanism, NoisyDistinct, distinct_items
from tests.privacy.draws import Draws, laplace_loss, selection_range

Users = dict[str, list[str]]

SOME = {0, 1, 3, 9, 20}  # of the bounds: those in between are no other case


@pytest.fixture(autouse=True)
def draws(monkeypatch) -> Draws:
    return Draws(monkeypatch)


def tables(made: DistinctItemsMechanism, users: Users) -> list[int]:
    pairs = [(user, item) for user, items in users.items() for item in items]
    if not pairs:
        return [0] * made.entries
    shard = one_shard([contribution_batch(*(pa.array(column) for column in zip(*pairs, strict=True)))])
    assert shard is not None
    by_item = made.item_table([chunk for _, chunk in made.item_chunks(shard, 1)])
    return [a + b for a, b in zip(made.user_table(shard), by_item, strict=True)]


def loss(made: DistinctItemsMechanism, one: Users, other: Users, draws: Draws) -> tuple[float, float]:
    """The exact privacy loss of the choice, and the largest of the noise, over bounds that can be chosen."""
    both, chosen, moved = [tables(made, users) for users in (one, other)], 0.0, 0.0
    for step in SOME & set(range(len(made.candidate_grid))):
        bound, seen = made.candidate_grid[step], []
        for table in both:
            draws.forget([step])
            drawn = made.choose(table, Lanes(bytes(32), np.zeros((1, 2), dtype=np.uint64)))
            assert drawn.max_items == bound
            noise = list(draws.noise)
            seen.append((drawn.units - sum(int(each.drawn[0]) for each in noise), noise, draws.selected[:1]))
        (before, noise, selected), (after, _, their_selected) = seen
        moved = max(moved, laplace_loss(before, after, noise))
        chosen = max([chosen, *map(selection_range, selected, their_selected)])
    return chosen, moved


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


def worst(made: DistinctItemsMechanism, draws: Draws) -> tuple[float, float]:
    found = [loss(made, one, other, draws) for one, other in neighbours()]
    return max(chosen for chosen, _ in found), max(moved for _, moved in found)


@pytest.mark.parametrize("relation", list(Relation))
def test_loss_is_within_the_budget(relation, draws):
    """The neighbours are of both relations, which have the same noise: neither may cost more."""
    made = distinct_items(Budget(1), relation=relation)
    chosen, moved = worst(made, draws)
    assert made.choosing is not None
    assert chosen <= made.choosing.epsilon * (1 + 1e-9)
    assert 0.99 * made.release_budget.epsilon <= moved <= made.release_budget.epsilon * (1 + 1e-9), "the noise is tight"


def test_loss_of_a_given_bound_is_within_the_budget(draws):
    made = distinct_items(Budget(1), max_items=5)
    assert worst(made, draws) == (0, pytest.approx(1))


def largest_move(made: DistinctItemsMechanism) -> float:
    """By how much of K one user more moves F at most, before it is rounded."""
    nobody, most = [0] * made.entries, 0.0
    for items in range(1, 60):
        table = tables(made, {"x": [f"x{k}" for k in range(items)]})
        found = zip(
            made.candidate_grid, nobody[len(made.candidate_grid) :], table[len(made.candidate_grid) :], strict=True
        )
        most = max(most, *((after - before) / (bound << FRACTION_BITS) for bound, before, after in found))
    return most


def test_a_user_of_any_number_of_items_weighs_the_bound_at_most_and_weights_rounded_up_are_caught(monkeypatch):
    """In integers: 3 items of 2**30 / 3 to the next unit would weigh more than 1."""
    made = distinct_items(Budget(1))
    assert largest_move(made) == 1
    real = distinct.merged_weights

    def rounded_up(*given):
        for sums in real(*given):
            shares = sums.shares  # of one user: those of 1, 2, 4, ... items are exact
            yield dataclasses.replace(sums, shares=shares + (shares & (shares - 1) > 0))

    monkeypatch.setattr(distinct, "merged_weights", rounded_up)
    assert largest_move(made) > 1


def test_audit_sees_whole_weights(monkeypatch, draws):
    """A user of d items who gives each all of its weight moves F by d."""

    def whole(chunks, grid, least):
        return real(chunks, (*grid[:-1], 10**6), least)

    real = distinct.merged_weights
    monkeypatch.setattr(distinct, "merged_weights", whole)
    assert worst(distinct_items(Budget(1), max_items=5), draws)[1] > 10


def test_audit_sees_a_choice_by_the_sum_itself(monkeypatch, draws):
    """F moves by K, and not by 1 as F / K does."""

    def exponents(self, table):
        bounds = len(self.candidate_grid)
        scaled = [found * bound for found, bound in zip(table[bounds:], self.candidate_grid, strict=True)]
        return real(self, [*[10**9] * bounds, *scaled])

    real = DistinctItemsMechanism.exponents
    monkeypatch.setattr(DistinctItemsMechanism, "exponents", exponents)
    made = distinct_items(Budget(1))
    assert made.choosing is not None
    assert worst(made, draws)[0] > 2 * made.choosing.epsilon


def test_audit_sees_noise_for_one_item_wherever_it_is_drawn(monkeypatch, draws):
    """The known bug: the noise of K = 1, by the plan, or where a right plan is drawn with."""
    real, made = DistinctItemsMechanism.plan, distinct_items(Budget(1), max_items=5)

    def choose(self: DistinctItemsMechanism, table: list[int], lanes: Lanes) -> NoisyDistinct:
        noise = int(distinct.discrete_laplace(lanes, self.plan(1).scale)[0])
        return NoisyDistinct(self.candidate_grid[0], (table[len(self.candidate_grid)] >> 20) + noise)

    with monkeypatch.context() as context:
        context.setattr(DistinctItemsMechanism, "choose", choose)
        assert worst(made, draws)[1] == pytest.approx(5)
    monkeypatch.setattr(DistinctItemsMechanism, "plan", lambda self, bound: real(self, 1))
    assert worst(made, draws)[1] == pytest.approx(5)
