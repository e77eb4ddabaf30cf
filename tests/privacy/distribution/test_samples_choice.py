"""Exact audits of the choice of how many samples a user has: log-ratios on neighbours, and the sensitivity that is too small.

Nothing is sampled here.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import gather
from headcount.mechanisms.batches.user_shards import split_by_user
from headcount.mechanisms.choice.exponential import gem_exponents
from headcount.mechanisms.distribution.learn import learn_distribution
from headcount.mechanisms.distribution.samples_choice import SamplesChoice
from tests.privacy.distribution.ratios import ROUNDING, log_ratio

GRID = (1, 4, 16, 64, 256)
OWN = Budget(0.1)


def samples_choice(rule: str, relation: Relation) -> SamplesChoice:
    """The choice that a distribution holds, a twentieth of its epsilon, on few points."""
    choice = learn_distribution(Budget(2, 1e-6), ["x"], samples_per_user=rule, relation=relation).choice
    assert choice is not None and choice.budget == OWN
    return dataclasses.replace(choice, grid=GRID)


def samples_table(choice: SamplesChoice, users: list[int]) -> list[int]:
    rows = [(f"u{i}", "x", n) for i, n in enumerate(users)]
    user, item, count = (pa.array(list(column)) for column in zip(*rows, strict=True))
    return choice.user_table(gather(chunk for _, chunk in split_by_user(contribution_batch(user, item, count), 1)))


def samples_neighbours(relation: Relation):
    for crowd in ([1] * 3, [256] * 40, [4] * 30 + [64] * 10, [1] * 100 + [300] * 7, [16] * 400):
        for a in GRID:
            if relation is Relation.ADD_REMOVE:
                yield crowd, [*crowd, a]
            else:
                for b in GRID:
                    if a < b:
                        yield [*crowd, a], [*crowd, b]


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("rule", ["auto", "median"])
def test_the_choice_of_samples_keeps_its_epsilon(rule, relation):
    choice = samples_choice(rule, relation)
    found = max(
        log_ratio(*(choice.exponents(samples_table(choice, users)) for users in pair))
        for pair in samples_neighbours(relation)
    )
    assert 0.3 * OWN.epsilon < found <= OWN.epsilon * ROUNDING


def test_the_sensitivity_of_added_users_under_replacement_is_caught():
    """The median's loss moves by 2 when a user is replaced; that of "auto" has another sensitivity for each candidate."""
    added = samples_choice("median", Relation.ADD_REMOVE)
    pairs = list(samples_neighbours(Relation.REPLACE))
    found = max(log_ratio(*(added.exponents(samples_table(added, users)) for users in pair)) for pair in pairs)
    assert found > 1.3 * OWN.epsilon
    one, users = samples_choice("auto", Relation.REPLACE), 16

    def flat(table: list[int]) -> list[Fraction]:
        """A sensitivity of 1 for every candidate, in place of sqrt(x)."""
        above = [sum(table) - below for below in np.cumsum(table)[:-1].tolist()]
        losses = [-count * math.isqrt(x) for count, x in zip(above, GRID, strict=True)]
        return gem_exponents(losses, [1] * len(GRID), OWN.epsilon_fraction, True)

    before, after = [256] * users, [256] * (users + 1)
    assert log_ratio(*(one.exponents(samples_table(one, each)) for each in (before, after))) <= OWN.epsilon
    found = max(
        log_ratio(*(flat(samples_table(one, each)) for each in pair))
        for pair in samples_neighbours(Relation.ADD_REMOVE)
    )
    assert found > 1.5 * OWN.epsilon
