"""Audits of the top by names first: the exact probability of every set of names with every ranking, on neighbours.

Other users have one item each, so that an item's weight and its users are known; the user in question has one or more. Each
audit is then run on the mechanism with a known mistake, and must see it. What is sampled has fixed keys; over the choice of the
key, that test fails with probability 1e-9, and the mutation is caught with a probability above 0.999.
"""

import dataclasses
import itertools
import math

import pytest
from scipy import stats

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.count_release import top_names
from headcount.mechanisms.count_release.top_names import named_top
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.partitions.selection_curve import BITS, curve_weight
from tests.privacy.count_release.frames import frame

EPSILON, DELTA = 1.0, 1e-2
ITEMS = 2
MOST = 14  # users of an item: beyond, its name is as good as sure


def ranked(users, k, epsilon):
    """The probability of each ranking of these items (item: users)."""
    found = {}
    for drawn in itertools.permutations(users, min(k, len(users))):
        p, left = 1.0, dict(users)
        for item in drawn:
            most = max(left.values())
            weights = {each: math.exp(epsilon * (count - most)) for each, count in left.items()}
            p *= weights[item] / sum(weights.values())
            del left[item]
        found[drawn] = p
    return found


def results(weights, users, curve, k, epsilon):
    """The probability of each pair of names and their ranking, where items have these weights and users."""
    size = BITS // 8
    chances = [
        int.from_bytes(curve.chances[at : at + size], "little") / 2**BITS for at in range(0, len(curve.chances), size)
    ]
    pi = [chances[min(weight, len(chances) - 1)] for weight in weights]
    found = {}
    for named in itertools.product((False, True), repeat=len(pi)):
        p = math.prod(chance if is_named else 1 - chance for chance, is_named in zip(pi, named, strict=True))
        held = {item: users[item] for item, is_named in enumerate(named) if is_named}
        for drawn, q in ranked(held, k, epsilon).items():
            if p * q > 0:
                found[named, drawn] = p * q
    return found


def users_of(relation):
    """The items of the one user that two neighbours differ by: in the first, and in the second."""
    owned = [items for size in range(1, ITEMS + 1) for items in itertools.combinations(range(ITEMS), size)]
    yield from ((items, ()) for items in owned)
    if relation is Relation.REPLACE:
        yield from itertools.permutations(owned, 2)


def worst(curve, k, epsilon, relation):
    """The largest delta that two neighbours need at EPSILON."""
    found = 0.0
    for counts in itertools.product(range(MOST), repeat=ITEMS):
        seen = {}
        for items in itertools.chain(*users_of(relation)):
            own = curve_weight(len(items), curve.grid) if items else 0
            weights = [(n << curve.grid) + own * (item in items) for item, n in enumerate(counts)]
            seen[items] = results(weights, [n + (item in items) for item, n in enumerate(counts)], curve, k, epsilon)
        for pair in users_of(relation):
            for one, two in itertools.permutations(pair):
                x, y = seen[one], seen[two]
                found = max(found, sum(max(0.0, p - math.exp(EPSILON) * y.get(each, 0.0)) for each, p in x.items()))
    return found


def law_of(curves):
    """The curve of one round of two items."""
    return curves.curve(ITEMS, False, 1.0)


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("k", [1, 2])
def test_names_and_their_ranking_are_private_together(relation, k):
    made = named_top(Budget(EPSILON, DELTA), k, relation=relation)
    found = worst(law_of(made.selection.curves), k, float(made.epsilon), relation)
    assert 0.3 * DELTA < found <= DELTA  # a third is for own names, and a divergence of one order is above most


def test_mistakes_of_the_budget_are_caught():
    """Names and draws with all of the budget each; a draw with twice epsilon; numbers for added users where one is replaced."""
    made, replaced = (named_top(Budget(EPSILON, DELTA), 1, relation=relation) for relation in Relation)
    curves = made.selection.curves
    spent = dataclasses.replace(curves, choices=(), rho=0.0)
    assert worst(law_of(spent), 1, math.sqrt(2) * float(made.epsilon), Relation.ADD_REMOVE) > 2 * DELTA
    assert worst(law_of(curves), 1, 2 * EPSILON, Relation.ADD_REMOVE) > 10 * DELTA
    assert worst(law_of(replaced.selection.curves), 1, 2 * EPSILON, Relation.REPLACE) > 2 * DELTA
    assert worst(law_of(spent), 1, float(made.epsilon), Relation.REPLACE) > 2 * DELTA


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("budget", [Budget(0.5, 1e-8), Budget(1, 1e-6), Budget(4, 1e-3)])
def test_divergences_add_up_to_the_promise(budget, relation):
    """By the conversion of Canonne, Kamath and Steinke, written down again: choice, rounds, draws; and own names."""
    made = named_top(budget, 100, relation=relation)
    curves = made.selection.curves
    order, users = curves.order, relation.users

    def delta(rho, cost, shown):
        together = order * (sum(c**2 for c in curves.choices) / 8 + rho) + users * cost
        epsilon = budget.epsilon + math.log1p(-shown)
        log = (order - 1) * (together - epsilon) - math.log(order) + (order - 1) * math.log1p(-1 / order)
        return shown + math.exp(log)

    spent = 100 * (users * float(made.epsilon)) ** 2 / 8
    for in_rounds in (False, True):
        cost, shown = curves.cost(in_rounds)
        assert 0.99 * budget.delta < delta(spent, cost, shown) <= budget.delta
        assert delta(2 * spent, cost, shown) > 1.5 * budget.delta
        forgetful = dataclasses.replace(curves, rho=0.0)
        assert delta(spent, *forgetful.cost(in_rounds)) > 1.2 * budget.delta


def test_draws_that_names_leave_nothing_for_are_refused():
    made = named_top(Budget(1, 1e-6), 20)
    with pytest.raises(ParameterError, match="cost more than names leave"):
        dataclasses.replace(made, k=21)
    with pytest.raises(ParameterError, match="cost more than names leave"):
        dataclasses.replace(made, epsilon=2 * made.epsilon)


def test_the_draws_among_the_named_have_that_law(monkeypatch):
    """Chi-square of 800 rankings of two of three items, each with a key of its own: fails with probability 1e-9.

    Draws that begin with the largest, as a cut by true counts would, must be seen, with a p-value below 1e-20.
    """
    made = named_top(Budget(0.5, 1e-2), 2)
    users = {"a": 12, "b": 10, "c": 8}
    data, expected = frame(users, made.k_bar), ranked(users, 2, float(made.epsilon))

    def fit():
        seen = dict.fromkeys(expected, 0)
        for key in range(800):
            seen[tuple(made.release(data, key.to_bytes(32, "little"))["item"].to_pylist())] += 1
        return stats.chisquare(list(seen.values()), [800 * p for p in expected.values()]).pvalue

    assert min(800 * p for p in expected.values()) > 5
    assert fit() > 1e-9
    honest = top_names.named_excess
    monkeypatch.setattr(
        top_names, "named_excess", lambda left, epsilon: honest(left, epsilon * (100 if len(left) == 3 else 1))
    )
    assert fit() < 1e-20
