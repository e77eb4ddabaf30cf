"""Audits of metrics in levels: all stages of an aggregate on neighbours, whose rows lie in cells of every level. Exact."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate.release import AggregateMechanism, aggregate
from tests.privacy.aggregate.test_stages import ASKED, PRICES, AggregateCourse
from tests.privacy.histogram.courses import BUDGET, Spent, User, compared, fits
from tests.privacy.levels.test_levels import TARGETS, crowd


@functools.cache
def mechanism_of(relation: Relation = Relation.ADD_REMOVE) -> AggregateMechanism:
    return aggregate(BUDGET, ASKED, levels=3, relation=relation)


def audited(one: list[User], other: list[User], release: Any, monkeypatch: Any, relation: Relation) -> Spent:
    with monkeypatch.context() as context:
        course = AggregateCourse(context, PRICES["high end"])
        first = course.run(mechanism_of(relation), one, release)
        return compared(first, course.run(mechanism_of(relation), other, release))


@pytest.mark.parametrize("target", TARGETS)
def test_one_user_more_or_less_costs_what_the_account_says(target, make_release, monkeypatch):
    without, with_target = crowd(), [*crowd(), TARGETS[target]]
    for number, (one, other) in enumerate(((without, with_target), (with_target, without))):
        spent = audited(one, other, make_release(f"{target}-{number}"), monkeypatch, Relation.ADD_REMOVE)
        assert fits(spent, mechanism_of()), spent


def test_a_replaced_user_costs_what_the_account_says(make_release, monkeypatch):
    neighbours = ([*crowd(), TARGETS["everything"]], [*crowd(), TARGETS["own"]])
    spent = audited(*neighbours, make_release("replaced"), monkeypatch, Relation.REPLACE)
    assert fits(spent, mechanism_of(Relation.REPLACE)), spent
