"""The choice of bounds where items are public: one user moves its draws by epsilon at most, as they are drawn.

Exact: `choose` itself is run on the tables of two neighbours, and each draw tells the exponents that it was made with. The
users are those who move the losses farthest: of more items than the limit of what a user is worth; and crosswise, where one of
many items comes in place of one with many events on few.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate.choice import KeysCandidate
from headcount.mechanisms.aggregate.metrics import Metric
from headcount.mechanisms.aggregate.release import aggregate
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import one_shard
from headcount.mechanisms.bound_choice import clip_choice as module
from headcount.mechanisms.bound_choice.clip_choice import ClipChoice
from headcount.mechanisms.choice.exponential import gem_exponents
from headcount.mechanisms.histogram.factory import estimates
from headcount.mechanisms.randomness.lanes import Lanes
from tests.privacy.draws import Draws, selection_range

BUDGET = Budget(1, 1e-6)
ITEMS = 2000
DOMAIN = [f"i{number:04}" for number in range(ITEMS)]
User = dict[int, int]

USERS: dict[str, User] = {
    "nobody": {},
    "one event": {0: 1},
    "every item once": dict.fromkeys(range(ITEMS), 1),
    "every item thrice": dict.fromkeys(range(ITEMS), 3),
    "every item often": dict.fromkeys(range(ITEMS), 10**6),
    "one item often": {0: 10**6},
    "some items": {**dict.fromkeys(range(200), 1), 0: 30},
}


def choice_of(what: str, relation: Relation) -> ClipChoice:
    """The choice that a histogram or an aggregate holds."""
    if what == "aggregate":
        metrics = [Metric("users"), Metric("events")]
        return aggregate(BUDGET, metrics, domain=DOMAIN, relation=relation).stages.choice
    noise = "laplace" if what == "laplace" else "gaussian"
    of = "users" if what == "users" else "events"
    return estimates(BUDGET, domain=DOMAIN, of=of, noise=noise, relation=relation).stages.clip_choice


@functools.cache
def crowd() -> tuple[User, ...]:
    """Users of few items and of many, so that no candidate is hopeless."""
    return tuple({(7 * u + k) % ITEMS: 1 + u % 3 for k in range(1 + u % 90)} for u in range(150))


def table_of(choice: ClipChoice, users: list[User], items: int = ITEMS) -> list[int]:
    rows = [(f"u{number}", DOMAIN[item], count) for number, user in enumerate(users) for item, count in user.items()]
    user, item, count = (pa.array(list(column)) for column in zip(*rows, strict=True))
    whole = choice.user_table(one_shard([contribution_batch(user, item, count)]))
    return [a + b for a, b in zip(whole, choice.items_table(items), strict=True)]


def worst(choice: ClipChoice, draws: Draws) -> float:
    """The largest sum of what all draws of the choice lose, over neighbours, in units of its epsilon."""
    found = {}
    for name, user in USERS.items():
        draws.forget()
        choice.choose(table_of(choice, [*crowd(), user]), Lanes(bytes(32), np.zeros((1, 2), dtype=np.uint64)))
        found[name] = list(draws.selected)
    pairs = itertools.combinations(USERS, 2)
    if choice.relation is Relation.ADD_REMOVE:
        pairs = (("nobody", name) for name in USERS)
    return max(sum(map(selection_range, found[a], found[b])) for a, b in pairs) / choice.budget.epsilon


@pytest.fixture
def sharp(monkeypatch) -> Draws:
    """Without tau, which only blunts the worst cases."""
    monkeypatch.setattr(
        module,
        "gem_exponents",
        lambda losses, sizes, epsilon, one_sided, tau: gem_exponents(losses, sizes, epsilon, one_sided, 0),
    )
    draws = Draws(monkeypatch)
    drawn = ClipChoice.cap_place

    def one_cap(self: ClipChoice, table: list[int], lanes: Lanes) -> int:
        """Whatever is drawn for the cap, the draws after it are compared under the same one."""
        place = drawn(self, table, lanes)
        return place if self.cap_budget is None else 2

    monkeypatch.setattr(ClipChoice, "cap_place", one_cap)
    return draws


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("what", ["gaussian", "laplace", "users", "aggregate"])
def test_one_user_moves_all_draws_by_epsilon_at_most(what, relation, sharp):
    found = worst(choice_of(what, relation), sharp)
    assert 0.7 < found <= 1 + 1e-9


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("items", [1, 2, 4, 9, 50])
def test_few_items_bound_what_a_user_is_worth(items, relation, sharp, monkeypatch):
    """The sensitivity is that of the root of the items, and all of it is used; at half of it the draws cost too much."""

    def worst_of_few() -> float:
        choice = estimates(BUDGET, domain=DOMAIN[:items], of="events", noise="gaussian", relation=relation)
        whole, found = choice.stages.clip_choice, {}
        few = ClipChoice(*(getattr(whole, field.name) for field in dataclasses.fields(ClipChoice)))
        users = {name: {item: count for item, count in user.items() if item < items} for name, user in USERS.items()}
        crowd = [{item: 1 + item % 3 for item in range(min(items, 1 + u % 9))} for u in range(40)]
        for name, user in users.items():
            sharp.forget()
            table = table_of(few, [*crowd, user], items)
            few.choose(table, Lanes(bytes(32), np.zeros((1, 2), dtype=np.uint64)))
            found[name] = list(sharp.selected)
        pairs = itertools.combinations(USERS, 2)
        if relation is Relation.ADD_REMOVE:
            pairs = (("nobody", name) for name in USERS)
        budgets = (few.cap_budget, few.counts_budget, few.totals_budget)
        return max(
            selection_range(one, other) / budget.epsilon
            for a, b in pairs
            for one, other, budget in zip(found[a], found[b], budgets, strict=True)
        )

    assert 0.5 < worst_of_few() <= 1 + 1e-9
    real = ClipChoice.most
    monkeypatch.setattr(ClipChoice, "most", lambda self, each, n: Fraction(real(self, each, n), 4))
    assert worst_of_few() > 1.1


def uncut(candidates: Any, totals: Any, norms: Any, spared: Any, users: Any) -> list[int]:
    """The mutation: what users are worth is all that the bounds leave of them."""
    found = []
    for each in candidates:
        kept = (
            np.minimum(totals, each.bound)
            if norms is None
            else totals * np.minimum(1.0, each.bound / np.maximum(norms, 1.0))
        )
        found.append(int((kept * spared * module.PARTS * (1 if users is None else users)).sum()))
    return found


@pytest.mark.parametrize("what", ["gaussian", "users", "aggregate"])
def test_worth_that_is_not_cut_to_its_sensitivity_is_caught(what, sharp, monkeypatch):
    monkeypatch.setattr(module, "_worth", uncut)
    assert worst(choice_of(what, Relation.ADD_REMOVE), sharp) > 1.2


def crosswise(form: Callable[[bool], bool], draws: Draws, monkeypatch: pytest.MonkeyPatch) -> float:
    """What a replaced user costs among three candidates of an aggregate, in units of epsilon. One of all keys, with a row on
    each, becomes one of a single key with 96 rows: the first is worth all that can be under 128 keys of one row, and under
    4,096 of them, and nothing under one key of 96 rows; the second just the other way round. Noise sets the losses apart.
    """
    monkeypatch.setattr(
        module,
        "gem_exponents",
        lambda losses, sizes, epsilon, one_sided, tau: gem_exponents(losses, sizes, epsilon, form(one_sided), 0),
    )
    sizes = ((128, 1, 448), (1, 96, 256), (4096, 1, 0))
    made = tuple(KeysCandidate(keys, rows, "gaussian", Fraction(noise, ITEMS)) for keys, rows, noise in sizes)
    assert [each.most for each in made] == [96, 96, 512]
    given = {"candidates": made, "caps": (100,), "cap_budget": None}  # the cap is drawn before these
    choice, drawn = dataclasses.replace(choice_of("aggregate", Relation.REPLACE), **given), []
    for user in (USERS["every item once"], {0: 96}):
        draws.forget()
        choice.choose(table_of(choice, [user]), Lanes(bytes(32), np.zeros((1, 2), dtype=np.uint64)))
        drawn.append(draws.selected[0])
    return selection_range(*drawn) / choice.counts_budget.epsilon


def test_the_form_for_added_users_is_caught_where_users_are_replaced(monkeypatch):
    draws = Draws(monkeypatch)
    assert 0.5 < crosswise(lambda one_sided: one_sided, draws, monkeypatch) <= 1 + 1e-9
    assert crosswise(lambda one_sided: True, draws, monkeypatch) > 1.5
