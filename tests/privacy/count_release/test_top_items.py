"""Audits of the private top: the exact probability of every result, on neighbours.

Each audit is then run on the mechanism with a known mistake, and must see it. What is sampled has fixed keys; over the choice
of the key, each such test fails with probability 1e-9, and the mutation is caught with a probability above 0.999.
"""

import itertools
import math
from fractions import Fraction

import pytest
from scipy import stats

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.count_release import top_items as top_items_module
from headcount.mechanisms.count_release.frames import (
    threshold,
)
from headcount.mechanisms.count_release.top_names import top_items
from tests.privacy.count_release.frames import BOT, NAMES, frame, law, neighbours


def sequences(data, k, epsilon, far):
    """The probability of each result of up to k items."""
    names = data.items.to_pylist()
    found = {}
    for size in range(min(k, len(names)) + 1):
        for drawn in itertools.permutations(names, size):
            log, left = 0.0, set(names)
            for item in drawn:
                log += law(data, epsilon, far, left)[item]
                left.remove(item)
            if size < k:
                log += law(data, epsilon, far, left)[BOT]
            found[drawn] = math.exp(log)
    assert sum(found.values()) == pytest.approx(1)
    return found


def excess_delta(before, after, k_bar, k, epsilon, draw_epsilon, far):
    """The delta that two neighbours need at epsilon: the larger of both ways. Exact."""
    one, two = (sequences(frame(users, k_bar), k, draw_epsilon, far) for users in (before, after))
    return max(
        sum(max(0.0, x.get(drawn, 0.0) - math.exp(epsilon) * y.get(drawn, 0.0)) for drawn in x)
        for x, y in ((one, two), (two, one))
    )


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_top_is_private(relation, k):
    plan = top_items(Budget(1, 1e-2), k, k_bar=4, relation=relation)
    numbers = (4, k, 1.0, plan.epsilon, plan.threshold)
    worst = max(excess_delta(*pair, *numbers) for pair in neighbours(relation, 4, pairs=60))
    assert worst <= 1e-2
    if relation is Relation.ADD_REMOVE:
        alone = {}, {f"x{n}": 1 for n in range(4)}  # tight: these are told by the threshold's share of delta alone
        share = 1e-2 if plan.accounting == "pure" else 5e-3
        assert 0.98 * share < excess_delta(*alone, *numbers) <= share
        assert excess_delta(*alone, 4, k, 1.0, plan.epsilon, plan.threshold - 1) > 1.4 * share


def test_mistakes_of_the_top_are_caught():
    """Each draw with all of epsilon; numbers for users that are added where one is replaced; the threshold without its 2."""
    plan, replaced = (top_items(Budget(1, 1e-6), 3, k_bar=12, relation=relation) for relation in Relation)
    assert plan.accounting == replaced.accounting == "pure"
    alike = dict.fromkeys("abcd", 200)
    pair = alike, alike | {"a": 201}
    assert excess_delta(*pair, 4, 3, 1.0, plan.epsilon, plan.threshold) <= 1e-6
    assert excess_delta(*pair, 4, 3, 1.0, 3 * plan.epsilon, plan.threshold) > 1e-2
    few, rest = dict.fromkeys("abc", 200), dict.fromkeys("defghijk", 200)
    pair = {item: 201 for item in few} | rest, few | {item: 201 for item in rest}
    assert excess_delta(*pair, 12, 3, 1.0, replaced.epsilon, replaced.threshold) <= 1e-6
    assert excess_delta(*pair, 12, 3, 1.0, plan.epsilon, replaced.threshold) > 1e-3
    new, old = NAMES[:4], NAMES[-4:]
    pair = dict.fromkeys(old, 2), dict.fromkeys(old, 1) | dict.fromkeys(new, 1)
    far = threshold(replaced.epsilon, 4, Fraction("1e-6"), Relation.REPLACE)
    assert 0.98e-6 < excess_delta(*pair, 4, 3, 1.0, replaced.epsilon, far) <= 1e-6
    assert excess_delta(*pair, 4, 3, 1.0, replaced.epsilon, far - 1) > 1.1e-6


@pytest.mark.parametrize(
    ("users", "base"), [({"a": 40, "b": 38, "c": 30}, 0), ({"a": 70, "b": 54, "c": 50, "d": 30}, 30)]
)
def test_the_draws_of_the_top_have_that_law(monkeypatch, users, base):
    """Chi-square of 800 results of up to two items, each with a key of its own: fails with probability 1e-9.

    A base that is taken anew from what is left after a draw (0 here) must be seen, with a p-value below 1e-20.
    """
    data = frame(users, 3)
    assert data.base == base
    plan = top_items(Budget(0.5, 1e-2), 2, k_bar=3)
    expected = sequences(data, 2, plan.epsilon, plan.threshold)
    often = [drawn for drawn, p in expected.items() if 800 * p > 5]
    assert len(often) >= 3

    def fit():
        seen = dict.fromkeys(expected, 0)
        for key in range(800):
            seen[tuple(plan.release(data, key.to_bytes(32, "little"))["item"].to_pylist())] += 1
        observed, mean = [seen[drawn] for drawn in often], [800 * expected[drawn] for drawn in often]
        return stats.chisquare([*observed, 800 - sum(observed)], [*mean, 800 - sum(mean)]).pvalue

    assert fit() > 1e-9
    if base:
        honest = top_items_module.draw_excess
        monkeypatch.setattr(
            top_items_module,
            "draw_excess",
            lambda left, base, *rest: honest(left, base if len(left) == 3 else 0, *rest),
        )
        assert fit() < 1e-20
