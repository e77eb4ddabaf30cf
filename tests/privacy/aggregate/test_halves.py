"""Audits of means with Laplace noise: how far apart neighbours are in l1, the choice of bounds, and all stages on neighbours.
Exact, no false alarms.

Users are those of `test_sensitivity`, at both ends of the range, between, far beyond, and without a value. Their largest l1
distance must be within epsilon scales of the noise, and is within a hundredth of it. Each of the known bugs breaks it:

    halves that are not halved                        a row adds 2
    rows without a value that have halves too         the same
    a gap, or users, left out of the distance         a user adds more
    noise for added users where they are replaced     two users are twice as far apart
    more than c rows, or more than m keys             a user adds more
    a score of rows that is not discounted            one user moves the choice by more than its part
    a bound of users that nobody pays for             the way of Laplace noise costs more than its part
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate import bounding, measures
from headcount.mechanisms.aggregate.choice import KeysCandidate, KeysChoice
from headcount.mechanisms.aggregate.measures import HALVES, HalvesPlan, has_halves, make_halves
from headcount.mechanisms.aggregate.metrics import Metric, Metrics
from headcount.mechanisms.aggregate.release import AggregateMechanism, aggregate
from headcount.mechanisms.batches.threads import Parts
from headcount.mechanisms.bound_choice.clip_choice import PARTS
from headcount.mechanisms.histogram.account import make_account
from tests.privacy.aggregate.test_sensitivity import of, take_all_for_valued, users_of, vectors
from tests.privacy.aggregate.test_stages import AggregateCourse, audited
from tests.privacy.histogram.courses import BUDGET, DOMAIN, TARGETS, crowd, fits
from tests.privacy.independence import Words

EPSILON = 0.7
ASKED = {
    "mean": [of("mean")],
    "all": [Metric("users"), Metric("events"), of("sum"), of("mean")],
    "two ranges": [Metric("users"), of("mean"), of("sum", "price:-100:100")],
}


def audit(asked: str, m: int, c: int, relation: Relation, made_for: Relation | None = None) -> float:
    """The largest l1 distance of neighbours, in scales of the noise, as a share of epsilon: private up to 1."""
    metrics = Metrics.of(ASKED[asked])
    plan = make_halves(metrics, m, c, EPSILON, made_for or relation)
    assert plan is not None
    found = vectors(users_of(m, c), metrics, plan) * np.sqrt(2)  # from standard deviations to scales
    if relation is Relation.REPLACE:
        return float(max(np.abs(found - each).sum(axis=1).max() for each in found)) / EPSILON
    return float(np.abs(found).sum(axis=1).max()) / EPSILON


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("m, c", [(1, 1), (1, 3), (2, 1), (2, 2)])
@pytest.mark.parametrize("relation", Relation)
def test_neighbours_are_as_far_apart_as_the_noise_is_made_for(asked, m, c, relation):
    share = audit(asked, m, c, relation)
    assert (0.97 if asked == "two ranges" else 0.99) < share <= 1, share  # no price is the middle of two ranges


@pytest.mark.parametrize("asked", ASKED)
def test_the_loss_is_exact_and_close_to_epsilon(asked):
    for m, c, relation in itertools.product((1, 7, 4096), (1, 10, 1000), Relation):
        plan = make_halves(Metrics.of(ASKED[asked]), m, c, EPSILON, relation)
        assert plan is not None and 0.9999 * EPSILON < plan.loss() <= Fraction(EPSILON)


def test_halves_of_a_row_add_up_to_one_and_no_more():
    x = np.arange(-(2**20), 2**20 + 1)
    upper, lower = (bounding._OF_ROW[kind](x) for kind in HALVES[:2])
    assert min(upper.min(), lower.min()) >= 0
    assert np.all(upper + lower <= 2**20) and np.all(upper + lower >= 2**20 - 1)
    assert np.all(np.abs(upper - lower - x) <= 1)


def test_other_metrics_and_promises_have_gaussian_noise():
    assert has_halves(Metrics.of(["mean:x:0:1"])) and not has_halves(Metrics.of(["users", "sum:x:0:1"]))
    assert not has_halves(Metrics.of(["mean:x:0:1", "variance:x:0:1"]))
    assert aggregate(BUDGET, ["mean:x:0:1"], domain=["a"]).stages.account.pure
    assert not aggregate(BUDGET, ["mean:x:0:1"]).stages.account.pure
    assert not aggregate(BUDGET, ["sum:x:0:1"], domain=["a"]).stages.account.pure


# Mutations: each of them alone, and the audit must see it. What the mechanism's own checks refuse is let through first.


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    monkeypatch.setattr(bounding, "check_kept", lambda *_: None)
    monkeypatch.setattr(HalvesPlan, "loss", lambda self: Fraction(0))
    yield monkeypatch


def test_halves_that_are_not_halved_are_caught_and_refused(unchecked, monkeypatch):
    for kind, made in (("upper", lambda x: 2**20 + x), ("lower", lambda x: 2**20 - x)):
        unchecked.setitem(bounding._OF_ROW, kind, made)
    assert audit("mean", 1, 1, Relation.ADD_REMOVE) > 1.8


def test_the_steps_refuse_halves_beyond_the_rows(monkeypatch):
    monkeypatch.setitem(bounding._OF_ROW, "upper", lambda x: np.full_like(x, 2**20))
    with pytest.raises(RuntimeError, match="did not keep"):
        audit("mean", 1, 1, Relation.ADD_REMOVE)


def test_rows_without_a_value_that_have_halves_too_are_caught(unchecked):
    take_all_for_valued(unchecked)
    assert audit("mean", 1, 1, Relation.ADD_REMOVE) > 1.8


def test_a_gap_that_is_left_out_of_the_distance_is_caught_and_refused(unchecked, monkeypatch):
    """Noise that is made for a gap of next to nothing, and a gap that adds a sixteenth."""
    real = measures.HalfMeasure

    def louder(kind: str, value: int, bits: int, grid: int, sigma: int) -> Any:
        more = tuning.GAP_STEPS if kind == "gap" else 0
        return real(kind, value, bits + more, grid + more, sigma)

    unchecked.setattr(measures, "HalfMeasure", louder)
    assert audit("mean", 1, 1, Relation.ADD_REMOVE) > 1.5
    unchecked.undo()
    monkeypatch.setattr(measures, "HalfMeasure", louder)
    with pytest.raises(RuntimeError, match="not what the budget"):
        audit("mean", 1, 1, Relation.ADD_REMOVE)


def test_users_that_are_left_out_of_the_distance_are_refused():
    plan = make_halves(Metrics.of(ASKED["all"]), 1, 3, EPSILON, Relation.ADD_REMOVE)
    alone = make_halves(Metrics.of(ASKED["mean"]), 1, 3, EPSILON, Relation.ADD_REMOVE)
    assert plan is not None and alone is not None
    beside = dataclasses.replace(alone.measures[0], kind="users", value=-1)
    assert dataclasses.replace(alone, measures=(beside, *alone.measures)).loss() > Fraction(EPSILON) >= plan.loss()


def test_noise_for_added_users_is_too_little_for_replaced_ones():
    assert audit("all", 2, 2, Relation.REPLACE, made_for=Relation.ADD_REMOVE) > 1.9


def test_rows_and_keys_beyond_the_bound_are_caught(unchecked):
    with unchecked.context() as context:
        context.setattr(bounding, "limit_rows", lambda shard, rows, subkey: shard)
        assert audit("mean", 1, 1, Relation.ADD_REMOVE) > 1.9
    unchecked.setattr(bounding, "sampled_items", lambda shard, items, subkey: np.arange(len(shard.item)))
    assert audit("mean", 1, 1, Relation.ADD_REMOVE) > 1.7


# The choice of bounds.


def choice_of(*candidates: KeysCandidate) -> KeysChoice:
    return KeysChoice(Budget(1), None, Budget(1), Relation.ADD_REMOVE, candidates, (), of_means=True)


def moved_by(choice: KeysChoice, candidate: KeysCandidate, items: int, users: int) -> Fraction:
    """The most that one user more moves the loss, by what it may by its sensitivity, over many numbers of users before."""
    most = choice.most(candidate, items) * PARTS
    before = [most * number // 7 for number in range(users)]
    losses = [(choice.loss(candidate, each, items), choice.loss(candidate, each + most, items)) for each in before]
    assert all(one >= other for one, other in losses), "one more never raises it"
    return max(one - other for one, other in losses) / choice.sensitivity(candidate, items)


@pytest.mark.parametrize("items", [1, 25, 10_000])
@pytest.mark.parametrize("m, r", [(1, 1), (8, 3), (4096, 1000)])
def test_one_user_moves_the_loss_of_bounds_by_its_sensitivity(items, m, r):
    for cost in (Fraction(1, 1024), Fraction(5, 2), Fraction(10**6)):
        candidate = KeysCandidate(m, r, "laplace", cost)
        assert 0 < moved_by(choice_of(candidate), candidate, items, 200) <= 1


def test_a_score_without_its_root_is_caught(monkeypatch):
    """With the rows' square in place of the root of it, a user is worth more the more users there are."""
    candidate = KeysCandidate(1, 1, "laplace", Fraction(5, 2))
    choice = choice_of(candidate)
    assert Fraction(9, 10) < moved_by(choice, candidate, 25, 200) <= 1, "sharp where there are few users"
    monkeypatch.setattr(
        KeysChoice,
        "loss",
        lambda self, each, worth, items: -(Fraction(worth, PARTS) ** 2) / (items * each.cost),
    )
    assert moved_by(choice, candidate, 25, 200) > 2


# All stages.


MECHANISMS: dict[str, dict[str, Any]] = {
    "chosen": {"metrics": ASKED["all"]},
    "mean alone": {"metrics": ASKED["mean"]},
    "given": {"metrics": ASKED["all"], "max_items": 1, "max_per_item": 3},
    "without totals": {"metrics": ASKED["all"], "calibrate": "none", "max_items": 1, "max_per_item": 1},
}


@functools.cache
def mechanism_of(name: str, relation: Relation = Relation.ADD_REMOVE) -> AggregateMechanism:
    given = dict(MECHANISMS[name])
    return aggregate(BUDGET, given.pop("metrics"), domain=DOMAIN, relation=relation, **given)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MECHANISMS)
def test_one_user_more_or_less_costs_what_the_account_says(name, target, make_release, monkeypatch):
    mechanism, without = mechanism_of(name), crowd()
    with_target = [*without, TARGETS[target]]
    for prices, (one, other) in (("far beyond", (without, with_target)), ("high end", (with_target, without))):
        spent = audited(mechanism, one, other, make_release(f"{target}-1"), monkeypatch, (prices, prices))
        assert fits(spent, mechanism), (prices, spent)


@pytest.mark.parametrize("name", ["chosen", "given"])
def test_a_replaced_user_costs_what_the_account_says(name, make_release, monkeypatch):
    mechanism = mechanism_of(name, Relation.REPLACE)
    for one, other in itertools.combinations_with_replacement(("group", "unnamed", "all", "once"), 2):
        neighbours = ([*crowd(), TARGETS[one]], [*crowd(), TARGETS[other]])
        prices = ("low end", "high end")
        spent = audited(mechanism, *neighbours, make_release(f"{one}-{other}"), monkeypatch, prices)
        assert fits(spent, mechanism), (one, other, spent)


def test_the_audit_of_all_stages_is_sharp(make_release, monkeypatch):
    """The user who has everything uses up the parts of sums, but for the gap, which is 0 at an end, and of totals."""
    mechanism = mechanism_of("given")
    spent = audited(mechanism, crowd(), [*crowd(), TARGETS["all"]], make_release(), monkeypatch)
    account = mechanism.stages.account
    assert 0.94 * account.pure_counts < spent.laplace["Sums"] <= account.pure_counts
    assert 0.98 * account.pure_totals < spent.laplace["Totals"] <= account.pure_totals * (1 + 1e-9)
    swapped = ([*crowd(), TARGETS["all"]], [*crowd(), TARGETS["once"]])
    assert not fits(audited(mechanism, *swapped, make_release(), monkeypatch, ("low end", "high end")), mechanism)


def test_a_choice_that_the_way_of_laplace_noise_does_not_pay_for_is_caught():
    """The bound of users' totals, and ranges, are drawn on this way too: without them all parts together are above delta."""
    parts: dict[str, Any] = {"named": False, "chosen": True, "calibrated": True, "capped": True}
    account = make_account(Budget(1, 1e-8), **parts, ranges=1, users_too=True)
    assert account.delta() <= 1e-8
    cheaper = make_account(Budget(1, 1e-8), **parts)
    with pytest.raises(ValueError, match="the parts cost"):
        dataclasses.replace(account, pure_counts=cheaper.pure_counts, pure_totals=cheaper.pure_totals)


def test_every_key_has_noise_on_every_half(make_release):
    """4,000 keys of a domain that nobody has: their noisy sums are the noise itself. Kolmogorov and Smirnov's test of each
    measure at a false-alarm rate of 1e-8; noise of half the size has p-values below 1e-60."""
    keys = [f"k{n:04}" for n in range(4000)]
    made = aggregate(Budget(1, 1e-6), ASKED["all"], domain=keys, max_items=1, max_per_item=3, calibrate="none")
    plan = made.stages.plan(None, None)
    noisy = made._sums(Parts(()), plan, pa.array(keys), make_release(), "label")
    assert {each.kind for each in plan.measures.measures} == {"users", *HALVES, "gap"}
    columns = [np.asarray(noisy.column(each.name)) for each in plan.measures.measures]
    for measure, drawn in zip(plan.measures.measures, columns, strict=True):
        scale = float(measure.exact_stddev)
        assert stats.kstest(drawn, stats.laplace(0, scale).cdf).pvalue > 1e-8, measure
        assert stats.kstest(drawn, stats.laplace(0, scale / 2).cdf).pvalue < 1e-8, measure
    for one, other in itertools.combinations(columns, 2):
        # The correlation of 4,000 independent pairs is normal with a standard deviation of 1/63: beyond six of them, 2e-9.
        assert abs(np.corrcoef(one, other)[0, 1]) < 6 / 63


@pytest.mark.parametrize("name", MECHANISMS)
def test_no_two_stages_share_a_word(name, make_release, monkeypatch):
    words = Words(monkeypatch)
    course = AggregateCourse.__new__(AggregateCourse)
    course.prices = [100.0]
    mechanism_of(name).run(course.batches(crowd()), make_release())
    assert words.all > 0 and words.twice == 0
