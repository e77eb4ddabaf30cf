"""Audits of the private choice of the items per user: what one user moves, and what the choice costs with the sample.

No sampling: all chances are computed. Each audit is shown to catch the bug that it is for.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.packing import pack, unpack
from headcount.mechanisms.batches.shards import gather
from headcount.mechanisms.batches.user_shards import split_by_user
from headcount.mechanisms.bound_choice.candidates import Candidate
from headcount.mechanisms.bound_choice.expected_sums import FRACTION_BITS
from headcount.mechanisms.choice.exponential import gem_exponents, probabilities
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.sampled import auto, items_choice
from headcount.mechanisms.sampled.auto import heavy_hitters, sampled_histogram
from headcount.mechanisms.sampled.items_choice import ItemsChoice

BUDGET = Budget(1, 1e-8)
ONE = 1 << FRACTION_BITS


def choice_for(relation=Relation.ADD_REMOVE):
    return sampled_histogram(BUDGET, relation=relation).choice


def table(choice, *crowd):
    """The table of (times, items of each user): entries add up, so that equal users are one user's entries so many times."""
    chunks = []
    for times, *users in crowd:
        pairs = [(f"u{u}", item) for u, items in enumerate(users) for item in items]
        batch = pa.RecordBatch.from_pydict({"user": [u for u, _ in pairs], "item": [i for _, i in pairs]})
        for _, chunk in choice.item_chunks(gather(c for _, c in split_by_user(batch, 1)), 1):
            columns = unpack(chunk)[0]
            for name in ("level", "slope"):
                columns[name] = pa.array(np.asarray(columns[name]) * times)
            chunks.append(pack(columns))
    return choice.item_table(chunks)


def names(prefix, number):
    return [f"{prefix}{n}" for n in range(number)]


CROWD = ((2000, ["key"]), (500, names("x", 3)), (45, names("y", 40)), (3000, names("z", 2000)))
STRANGERS = {
    "nobody": [],
    "one item": ["key"],
    "one item of its own": ["own"],
    "many rows on one item": ["key"] * 5000,
    "some at the edge": names("y", 40),
    "thousands": [*names("z", 2000), *names("x", 3)],
    "as many as the most": names("z", tuning.ITEMS_OF_SAMPLE[-1]),
}


def test_the_table_is_the_expected_users_above_half_of_what_is_needed_and_rows_do_not_matter():
    choice = choice_for()
    found = table(choice, *CROWD)
    for items, users, score in zip(tuning.ITEMS_OF_SAMPLE, choice.w50.values(), found, strict=True):
        wanted = 0.0
        for times, held in CROWD:
            h = times * min(1, items / len(held))
            wanted += len(held) * max(0, h - math.ceil(users / 2))
        assert score / ONE == pytest.approx(wanted, abs=1e-3 * len(CROWD) * 2000)
    twice = tuple((times, [*held, *held]) for times, held in CROWD)
    assert table(choice, *twice) == found


def test_one_user_lowers_every_loss_by_its_items_at_most_and_raises_none():
    choice = choice_for()
    before = table(choice, *CROWD)
    for stranger in STRANGERS.values():
        after = table(choice, *CROWD, (1, stranger)) if stranger else before
        moved = [Fraction(b - a, ONE) for a, b in zip(before, after, strict=True)]
        assert all(
            0 <= more <= min(items, len(set(stranger)))
            for items, more in zip(tuning.ITEMS_OF_SAMPLE, moved, strict=True)
        )
    assert moved[-1] > tuning.ITEMS_OF_SAMPLE[-1] * 0.999  # the last one uses all of it


def spent(choice, before, after):
    """The largest log-ratio of two neighbours, in units of the choice's epsilon."""
    one, other = (np.log(probabilities(choice.exponents(scores))) for scores in (before, after))
    return float(np.abs(one - other).max()) / choice.budget.epsilon


@pytest.mark.parametrize("relation", list(Relation))
def test_no_stranger_costs_more_than_epsilon(relation):
    choice = choice_for(relation)
    tables = [table(choice, *CROWD, *([(1, stranger)] if stranger else [])) for stranger in STRANGERS.values()]
    others = tables if relation is Relation.REPLACE else tables[:1]
    assert max(spent(choice, one, two) for one in others for two in tables) <= 1 + 1e-9


# The worst case. One user more, or one in place of another, moves three kinds of candidates: A needs 1000 users, and has them
# on the items x at 100 items per user. B, at 1000 items per user, and many copies of C, at 50, need 600, as y have: of x, C has
# 500.

COPIES = 500
X, Y = names("x", 1000), names("y", 1000)


def worst(relation):
    """The choice, and its tables without a last user, with one who has 100 of x, and with one who has all of y."""
    choice = choice_for(relation)
    kinds = [Candidate(100, None, "", 1000, 0), Candidate(1000, None, "", 600, 0), Candidate(50, None, "", 600, 0)]
    choice.__dict__["candidates"] = (*kinds[:2], *[kinds[2]] * COPIES)
    crowd = ((10_000, X), (700, *([y] for y in Y)))
    nobody = table(choice, *crowd)
    # What other items, in other shards, add to the table: it brings the losses near to each other, C above A above B.
    levels = [10**9, 10**9 + 1, *[10**9 - 1000] * COPIES]
    shift = [level * ONE - entry for level, entry in zip(levels, nobody, strict=True)]
    with_x, with_y = (table(choice, *crowd, (1, held)) for held in (X[:100], Y))
    return choice, *([a + b for a, b in zip(shift, entries, strict=True)] for entries in (nobody, with_x, with_y))


def sharp(losses, sensitivities, epsilon, one_sided, tau=None):
    """Without tau, which only blunts the worst cases."""
    return gem_exponents(losses, sensitivities, epsilon, one_sided, 0)


def test_an_added_user_costs_epsilon_at_most_and_half_of_the_sensitivity_is_too_little(monkeypatch):
    """0.75 of epsilon; 1.5 times epsilon if one user is taken to move a loss by half of what it does."""
    monkeypatch.setattr(items_choice, "gem_exponents", sharp)
    choice, nobody, _, with_y = worst(Relation.ADD_REMOVE)
    assert 0.7 < spent(choice, nobody, with_y) <= 1
    halved = lambda losses, sensitivities, *rest: sharp(losses, [Fraction(d, 2) for d in sensitivities], *rest)  # noqa: E731
    monkeypatch.setattr(items_choice, "gem_exponents", halved)
    assert spent(choice, nobody, with_y) > 1.4


def test_a_replaced_user_costs_epsilon_at_most_and_the_form_for_added_users_is_caught(monkeypatch):
    """0.95 of epsilon where a user of x becomes one of y; 1.2 times epsilon by the form for added and removed users, whoever is
    to blame: the choice that always takes it, or a factory that asks for it."""
    monkeypatch.setattr(items_choice, "gem_exponents", sharp)
    choice, _, with_x, with_y = worst(Relation.REPLACE)
    assert 0.9 < spent(choice, with_x, with_y) <= 1
    always = lambda losses, sensitivities, epsilon, one_sided, tau: sharp(losses, sensitivities, epsilon, True)  # noqa: E731
    with monkeypatch.context() as context:
        context.setattr(items_choice, "gem_exponents", always)
        assert spent(choice, with_x, with_y) > 1.15
    added = lambda costs, rest, relation, objective: ItemsChoice(costs, rest, Relation.ADD_REMOVE, objective)  # noqa: E731
    monkeypatch.setattr(auto, "ItemsChoice", added)
    wrong = choice_for(Relation.REPLACE)
    wrong.__dict__["candidates"] = choice.candidates
    assert spent(wrong, with_x, with_y) > 1.15


# Choice, number of users and sample together.


@pytest.mark.parametrize("relation", list(Relation))
def test_choice_users_and_sample_cost_the_budget_and_more_is_refused(relation):
    users = {"users": 1000} if relation is Relation.REPLACE else {}
    for made in (sampled_histogram(BUDGET, relation=relation), heavy_hitters(BUDGET, 0.1, relation=relation, **users)):
        assert made.choice.relation is made.guarantee().relation is relation
        decided = made.decided(made.choice.ends()[0])
        for guarantee in (made.guarantee(), decided.guarantee):
            assert (guarantee.epsilon, guarantee.delta) == (1, 1e-8)
            assert sum(step.epsilon for step in guarantee.mechanisms) == pytest.approx(1, rel=1e-12)
            assert sum(step.delta for step in guarantee.mechanisms) == 1e-8
        assert decided.sample.plan.relation is relation
        assert decided.sample.plan.epsilon == made.choice.release_budget.epsilon
        for change in (
            {"budget": Budget(0.99, 1e-8)},
            {"budget": Budget(1, 0.9e-8)},
            {"choice": dataclasses.replace(made.choice, budget=Budget(0.11))},
            {"choice": dataclasses.replace(made.choice, release_budget=Budget(0.95, 1e-8))},
        ):
            with pytest.raises(ParameterError, match="cost more than the whole budget"):
                dataclasses.replace(made, **change)
