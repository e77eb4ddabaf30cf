"""Audits of chosen ranges: exact chances of all ends on neighbours, for values of any size. No false alarms.

a sensitivity that is stated too low      the range of log-ratios is above epsilon
the one-sided form for replaced users     the same
rows of a user that weigh more than one   the same
values that count beyond the end          the same
a choice that is not in the account       the account refuses its parts, and losses do not add up
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.losses import Draw
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate import ranges as module
from headcount.mechanisms.aggregate.metrics import Metrics
from headcount.mechanisms.aggregate.ranges import RangeChoice
from headcount.mechanisms.aggregate.release import aggregate
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.user_shards import value_users_of
from headcount.mechanisms.columns.value_ranges import AutoRange, value_columns
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.account import make_account
from headcount.mechanisms.histogram.courses import Courses
from tests.privacy.aggregate.test_stages import AggregateCourse
from tests.privacy.histogram.courses import BUDGET, DOMAIN, TARGETS, compared, crowd, fits
from tests.privacy.independence import Words

AUTO = ["users", "sum:price:auto", "mean:price:auto", "variance:price:-auto:auto"]
Row = tuple[str, float, int]

# What the user who is added, removed or replaced has: (key, value, times). Many rows, values at and beyond all ends.
USERS: dict[str, list[Row]] = {
    "nothing": [],
    "one": [("a", 1.0, 1)],
    "huge": [("a", 1e300, 1)],
    "infinite": [("a", math.inf, 10**9)],
    "least": [("a", 1e-9, 1)],
    "negative": [("a", -1e12, 3)],
    "thirds": [("a", 3e5, 1), ("b", 3e5 + 1, 1), ("c", 3e5 + 2, 1)],
    "many": [(key, float(end), 1) for key in "abc" for end in tuning.RANGE_ENDS],
    "often": [("a", 40.0, 10**9), ("a", 50.0, 10**9), ("b", 60.0, 7)],
}


def choice_of(relation: Relation, epsilon: float = 1.0) -> RangeChoice:
    asked = {0: AutoRange("price"), 1: AutoRange("price", -1.0)}
    return RangeChoice((Budget(epsilon),) * 2, Budget(1, 1e-6), relation, asked)


def logs(choice: RangeChoice, users: list[list[Row]], noise: float) -> list[np.ndarray]:
    """The logarithms of the chances of all ends, for each column, up to a constant."""
    rows = [(f"u{number}", *row) for number, user in enumerate(users) for row in user]
    table = choice.noise_table([noise, noise])
    if rows:
        user, key, value, times = (list(column) for column in zip(*rows, strict=True))
        columns = value_columns(choice.ranges.values(), {"price": pa.array(value, pa.float64())})
        batch = contribution_batch(pa.array(user), pa.array(key), pa.array(times, pa.int64()), values=columns)
        shard = value_users_of([batch])[0]
        table = [one + other for one, other in zip(table, choice.user_table(shard), strict=True)]
    return [np.array([-float(x) for x in column]) for column in choice.exponents(table)]


def cost(choice: RangeChoice, one: list[list[Row]], other: list[list[Row]], noise: float) -> float:
    """The largest range of log-ratios over both columns, in epsilons."""
    pairs = zip(logs(choice, one, noise), logs(choice, other, noise), strict=True)
    return max(float(np.ptp(mine - theirs)) / choice.budgets[0].epsilon for mine, theirs in pairs)


def others(size: int) -> list[list[Row]]:
    rng = np.random.default_rng(size)
    return [[("b", float(value), 1)] for value in rng.lognormal(3, 4, size)]


def costs(relation: Relation) -> list[float]:
    """Of all neighbours that are looked at."""
    choice, found = choice_of(relation), []
    for size, noise in ((0, 0.0), (0, 30.0), (3, 1.0), (200, 5.0), (2000, 0.0)):
        crowd_of, nobody = others(size), USERS["nothing"]
        for user in USERS.values():
            replaced = [nobody] if relation is Relation.ADD_REMOVE else USERS.values()
            found += [cost(choice, [*crowd_of, user], [*crowd_of, former], noise) for former in replaced]
    return found


@pytest.mark.parametrize("relation", list(Relation))
def test_one_user_moves_no_chance_by_more_than_epsilon(relation):
    found = costs(relation)
    assert max(found) <= 1 + 1e-9
    assert max(found) > 0.9, "the audit is sharp"


@pytest.mark.parametrize("relation", list(Relation))
def test_a_sensitivity_that_is_too_low_is_caught(relation, monkeypatch):
    monkeypatch.setattr(module, "_SPREAD", 1)
    assert max(costs(relation)) > 1.5


def test_rows_of_a_user_that_weigh_more_than_one_are_caught(monkeypatch):
    monkeypatch.setattr(module, "run_sums", lambda count, starts: np.ones(len(starts), dtype=np.int64))
    assert max(costs(Relation.ADD_REMOVE)) > 10


# The choice in the account, and in the course of a whole release.


def test_a_choice_that_is_not_in_the_account_is_refused():
    kinds: dict[str, Any] = {"named": True, "chosen": True, "calibrated": True, "pure": False}
    budget = Budget(1, 1e-8)
    without, one, two = (make_account(budget, **kinds, ranges=ranges) for ranges in range(3))
    assert without.counts_mu > one.counts_mu > 0.9 * without.counts_mu
    assert [part.epsilon for part in two.ranges_choices] == pytest.approx([0.1 / 2**0.5] * 2)
    assert one.delta() <= 1e-8 and two.delta() <= 1e-8
    with pytest.raises(ParameterError, match="cost a delta of"):
        dataclasses.replace(without, ranges_choices=one.ranges_choices)
    with pytest.raises(ParameterError, match="cost a delta of"):
        dataclasses.replace(one, ranges_choices=(Budget(0.2),))


@pytest.mark.parametrize("budget", [Budget(1, 1e-8), Zcdp(0.1, 1e-8)])
@pytest.mark.parametrize("domain", [None, ["a", "b"]])
def test_losses_have_a_draw_for_every_range(budget, domain):
    """By an independent sum of what is drawn; a draw that is forgotten makes it less."""
    made = aggregate(budget, AUTO, domain=domain)
    account, losses = made.stages.account, made.guarantee().losses
    draws = [*account.naming_choices, account.cap_choice, account.counts_choice, account.totals_choice]
    draws += [account.users_choice, *account.ranges_choices]
    epsilons = [each.epsilon for each in draws if each is not None]
    assert sorted(part.range for part, times in losses.parts for _ in range(times)) == sorted(epsilons)
    assert all(isinstance(part, Draw) for part, _ in losses.parts)
    mu = math.hypot(account.names_mu, account.counts_mu, account.totals_mu)
    rho = mu**2 / 2 + sum(each**2 / 8 for each in epsilons) + losses.rho
    assert (losses.rho > 0) == (losses.order < math.inf) == (account.law is not None)
    assert losses.rho_of_all() == pytest.approx(rho, rel=1e-9)
    if isinstance(budget, Zcdp):
        assert 0.999999 * budget.rho < losses.zcdp().rho <= budget.rho
        assert losses.zcdp().delta <= budget.delta


def test_a_draw_that_losses_forget_is_caught(monkeypatch):
    monkeypatch.setattr(Courses, "_way", lambda self, pure: Courses._first(self))
    with pytest.raises(AssertionError):
        test_losses_have_a_draw_for_every_range(Zcdp(0.1, 1e-8), None)


class AutoCourse(AggregateCourse):
    """The same with values whose ranges are chosen."""

    values = Metrics.of(AUTO).values


MECHANISMS: dict[str, dict[str, Any]] = {
    "auto": {},
    "zCDP": {"budget": Zcdp(10, 1e-3)},
    "domain, given": {"domain": DOMAIN, "max_items": 4, "max_per_item": 3, "calibrate": "none"},
}


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("name", MECHANISMS)
def test_all_stages_on_neighbours_cost_what_the_account_says(name, relation, make_release, monkeypatch):
    """One user more or less, or another one, with values that are larger than all others by far."""
    made = aggregate(**{"budget": BUDGET, **MECHANISMS[name]}, metrics=AUTO, relation=relation)
    for target in ("edge", "events", "unnamed", "all", "once"):
        former = [] if relation is Relation.ADD_REMOVE else [TARGETS["group"]]
        with monkeypatch.context() as context:
            course = AutoCourse(context, [-1e9, 1e9])
            first = course.run(made, [*crowd(), *former], make_release(target))
            course.prices = [1e300]
            spent = compared(first, course.run(made, [*crowd(), TARGETS[target]], make_release(target)))
        assert fits(spent, made), (target, spent)
        drawn = {part: size for part, size in spent.choices.items() if part.startswith("ranges")}
        assert len(drawn) == 2 and (target in ("unnamed", "edge") or max(drawn.values()) > 0)


def test_no_two_stages_share_a_word(make_release, monkeypatch):
    words = Words(monkeypatch)
    course = AutoCourse.__new__(AutoCourse)
    course.prices = [100.0]
    aggregate(BUDGET, AUTO).run(course.batches(crowd()), make_release())
    assert words.all > 0 and words.twice == 0
