"""What the parts of an estimated histogram cost: never more than the budget, hardly less, and what is drawn is what counts.

Exact, without sampling.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.composition import Parts, composed_delta
from headcount.mechanisms.accounting.gaussian import gaussian_sigma
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.accounting.thresholds import TOTAL_SHARE
from headcount.mechanisms.bound_choice.clip_choice import ClipBound, totals_share
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.account import Account, make_account, zcdp_account
from headcount.mechanisms.histogram.stages import Stages
from headcount.mechanisms.partitions.select import ChosenStrategy
from headcount.mechanisms.partitions.weights import _table, _worst_rate

WAYS = [(True, True), (True, False), (False, True)]
BUDGETS = [Budget(1, 1e-8), Budget(0.1, 1e-6), Budget(20, 1e-4)]


@pytest.mark.seconds
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize(("gaussian", "pure"), WAYS)
def test_every_account_costs_its_budget_and_no_more(budget, gaussian, pure):
    for named, chosen, calibrated in itertools.product((False, True), repeat=3):
        made = make_account(budget, named=named, chosen=chosen, calibrated=calibrated, gaussian=gaussian, pure=pure)
        assert made.delta() <= budget.delta
        assert (made.gaussian, made.pure) == (gaussian, pure)
        assert (len(made.naming_choices) == 2, made.counts_choice is not None) == (named, chosen)
        assert (made.totals_choice is not None) == calibrated
        assert (made.totals_mu > 0, made.pure_totals > 0) == (calibrated and gaussian, calibrated and pure)
        assert (made.law is not None, made.hiding > 0) == (named and gaussian,) * 2 and made.names_mu == 0
        if gaussian:
            assert made.delta() > 0.999 * budget.delta
        if pure:  # all parts of this way added up are epsilon, but for the lattice
            first = made.naming_choices if named else (made.counts_choice,)
            parts = [part.epsilon for part in (*first, made.totals_choice) if part is not None]
            assert 0.99 < (sum(parts) + made.pure_counts + made.pure_totals) / budget.epsilon <= 1


def test_the_parts_of_the_gaussian_way_by_an_independent_sum(monkeypatch):
    """Choices by the law that they have alone, and all Gaussian parts as one."""
    monkeypatch.setattr(tuning, "LEAST_PART_OF_SELECTION", math.inf)
    made = make_account(Budget(1, 1e-8), named=True, chosen=True, calibrated=True, pure=False)
    mu = math.hypot(made.names_mu, made.counts_mu, made.totals_mu)
    whole = composed_delta(1.0, (), Parts((0.015, 0.07, 0.05, 0.07), mu)) + made.hiding
    assert whole == pytest.approx(TOTAL_SHARE * 1e-8, rel=1e-4)
    assert made.hiding == pytest.approx(1e-9)
    assert [m**2 / mu**2 for m in (made.names_mu, made.counts_mu, made.totals_mu)] == pytest.approx([0.75, 0.2, 0.05])
    # The noise of all stages together is 5 % above that of a single release which chooses nothing.
    assert 1.03 < 1 / mu / gaussian_sigma(1, 1e-8) < 1.07


def test_laplace_noise_alone_has_no_delta_and_both_ways_cost_less_than_two():
    pure = make_account(Budget(1), named=False, chosen=True, calibrated=True)
    assert pure.delta() == 0 and not pure.gaussian and pure.budget.delta == 0
    kinds = dict(named=True, chosen=True, calibrated=True)
    both, one = (make_account(Budget(1, 1e-8), **kinds, pure=pure) for pure in (True, False))
    assert both.counts_mu == one.counts_mu  # and names by law pay for the other way, by a hundredth or two
    assert 0.98 < both.law.cost / one.law.cost < 1


def test_what_is_not_asked_for_goes_to_the_others():
    kinds = dict(named=True, chosen=True, pure=False)
    with_totals, without = (make_account(Budget(1, 1e-8), **kinds, calibrated=asked) for asked in (True, False))
    assert without.counts_mu > 1.1 * with_totals.counts_mu and without.law.cost > with_totals.law.cost


MORE = {
    "names_limit": Budget(0.02),
    "names_choice": Budget(0.075),
    "counts_choice": Budget(0.06),
    "totals_choice": Budget(0.08),
    "names_mu": 1.01,
    "law": 1.001,
    "counts_mu": 1.02,
    "totals_mu": 1.1,
    "hiding": 1.1,
    "pure_counts": 1.01,
    "pure_totals": 1.2,
    "pure_hiding": 2.0,
    "budget": Budget(1, 0.99e-8),
}


# Names by law have no mu, and names by noise no law.
PAID = [
    (field, laws)
    for field in MORE
    for laws in (True, False)
    if (field, laws) not in (("names_mu", True), ("law", False))
]


@pytest.mark.seconds
@pytest.mark.parametrize(("field", "laws"), PAID)
def test_an_account_of_parts_that_cost_more_is_refused(field, laws, monkeypatch):
    if not laws:
        monkeypatch.setattr(tuning, "LEAST_PART_OF_SELECTION", math.inf)
    made = make_account(Budget(1, 1e-8), named=True, chosen=True, calibrated=True)
    value = MORE[field]
    if field == "law":
        value = made.law._replace(cost=value * made.law.cost)
    elif isinstance(value, float):
        value *= getattr(made, field)
    with pytest.raises(ParameterError, match="cost a delta of .* more than Budget"):
        dataclasses.replace(made, **{field: value})


def test_users_beside_events_have_a_choice_of_their_own_that_is_paid_for():
    kinds = dict(named=True, chosen=True, calibrated=True, pure=False)
    one, two = (make_account(Budget(1, 1e-8), **kinds, users_too=both) for both in (False, True))
    assert one.users_choice is None and two.users_choice == two.totals_choice == Budget(0.07 / 2**0.5)
    assert two.counts_mu == pytest.approx(one.counts_mu, rel=5e-3)  # two draws at a root of two cost what one did
    assert two.delta() <= 1e-8
    for forgotten in ({"users_choice": one.totals_choice}, {"totals_choice": Budget(0.08)}):
        with pytest.raises(ParameterError, match="more than"):
            dataclasses.replace(two, **forgotten)
    with pytest.raises(ParameterError, match="Gaussian plan alone"):
        make_account(Budget(1, 1e-8), named=True, chosen=True, calibrated=True, users_too=True)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.7, 0.99])
def test_counts_and_totals_have_the_same_mu_together_however_it_is_split(share):
    made = make_account(Budget(1, 1e-8), named=True, chosen=True, calibrated=True)
    counts, totals = made.split(share)
    both = math.hypot(made.counts_mu, made.totals_mu)
    assert (1 - 1e-11) * both < math.hypot(counts, totals) <= both
    assert totals**2 / both**2 == pytest.approx(share)
    assert made.totals_share == pytest.approx(0.2)
    for wrong in (-0.1, 1.0, math.nan):
        with pytest.raises(ParameterError, match="share of totals"):
            made.split(wrong)


@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf])
def test_parts_that_are_no_size_are_refused_by_name(value):
    """A negative delta of the thresholds would pay for more of the rest, and a cost that is no number is not above any."""
    made = make_account(Budget(1, 1e-8), named=True, chosen=True, calibrated=True)
    for field in dataclasses.fields(Account):
        if field.type == "float":
            with pytest.raises(ParameterError, match=field.name):
                dataclasses.replace(made, **{field.name: value})


def test_an_account_that_cannot_be_made_is_refused():
    made = make_account(Budget(1, 1e-8), named=True, chosen=True, calibrated=True)
    with pytest.raises(ParameterError, match="two draws of one choice"):  # else one of them would not be paid for
        dataclasses.replace(made, names_limit=None)
    with pytest.raises(ParameterError, match="nothing to count with"):
        Account(Budget(1), None, None, None, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    with pytest.raises(ParameterError, match="needs a delta above 0"):
        make_account(Budget(1), named=True, chosen=True, calibrated=True)
    with pytest.raises(ParameterError, match="must be a Budget"):
        make_account(1, named=True, chosen=True, calibrated=True)  # type: ignore[arg-type]


def test_draws_of_counts_that_stand_alone_are_refused_where_they_would_not_be_paid_for():
    alone = make_account(Budget(1, 1e-8), named=False, chosen=True, calibrated=True, alone=True)
    draws = {"alone_choice": alone.alone_choice}
    assert None not in draws.values() and alone.pure_alone > 0
    named = make_account(Budget(1, 1e-8), named=True, chosen=True, calibrated=True)
    for made, changed in ((alone, {"counts_choice": None}), (alone, {"alone_choice": None}), (named, draws)):
        with pytest.raises(ParameterError, match="stand alone"):
            dataclasses.replace(made, **changed)


@pytest.mark.parametrize("zcdp", [Zcdp(0.1, 1e-8), Zcdp(1e-4, 1e-6), Zcdp(1e5, 1e-4)])
def test_an_account_of_zcdp_adds_up_to_it(zcdp):
    """Draws of range c are c^2/8, and Gaussian parts mu^2/2: all of rho, and no more. A part that is larger is refused."""
    for named, chosen, calibrated in itertools.product((False, True), repeat=3):
        made = zcdp_account(zcdp, named=named, chosen=chosen, calibrated=calibrated, ranges=2)
        draws = [*made.naming_choices, made.counts_choice, made.totals_choice, *made.ranges_choices]
        rho = sum(each.epsilon**2 / 8 for each in draws if each is not None)
        assert rho <= 0.21 * zcdp.rho
        rho += (made.names_mu**2 + made.counts_mu**2 + made.totals_mu**2) / 2
        assert 0.999999 * zcdp.rho < rho <= zcdp.rho
        assert made.hiding == pytest.approx(zcdp.delta if named else 0.0, rel=1e-6) and made.hiding <= zcdp.delta
        assert made.budget == (zcdp if named else Zcdp(zcdp.rho)).to_budget(zcdp.delta)
        for more in ({"counts_mu": 1.001 * made.counts_mu}, {"hiding": 1.001 * zcdp.delta}, {"pure_counts": 1e-9}):
            with pytest.raises(ParameterError, match="cost a rho of .* more than Zcdp"):
                dataclasses.replace(made, **more)
        with pytest.raises(ParameterError, match="cost a rho of"):
            dataclasses.replace(made, ranges_choices=(*made.ranges_choices, made.ranges_choices[0]))
    with pytest.raises(ParameterError, match="needs a delta above 0"):
        zcdp_account(Zcdp(1), named=True, chosen=True, calibrated=True)


# What is drawn is what was counted.


def precision(plan: NoisePlan, distance: float) -> float:
    """(l2 distance of neighbours / sigma)^2 of one Gaussian part."""
    assert plan.kind == "gaussian"
    return (distance * 2**plan.grid / float(plan.scale)) ** 2


@pytest.mark.seconds
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("strategy", ["sips", "weighted-gaussian"])
@pytest.mark.parametrize("promise", [Budget(0.01, 0.1), Zcdp(0.01, 1e-8), Zcdp(5, 1e-4)])
def test_the_precision_of_all_gaussian_stages_is_that_of_the_account(relation, strategy, promise):
    """Where items are named by noise: for promises of zCDP, and for such a delta."""
    make = zcdp_account if isinstance(promise, Zcdp) else make_account
    account = make(promise, named=True, chosen=True, calibrated=True)
    stages = Stages(account, relation, None, None, False)
    root = math.sqrt(relation.users)
    for items, kept in ((3, ClipBound(1, 1, "gaussian", 1)), (300, ClipBound(12_288, 1000, "gaussian", 10**7))):
        names = stages.names_plan(ChosenStrategy(strategy, items))
        plan, rounds = stages.plan(names, kept), names.rounds
        found = [sum(precision(each.plan, root) for each in rounds)]
        found += [precision(plan.counts, root * kept.bound), precision(plan.totals, root * kept.totals_bound)]
        for spent, mu in zip(found, (account.names_mu, account.counts_mu, account.totals_mu), strict=True):
            assert 0.995 * mu**2 < spent <= mu**2
        # With the number of items known, totals have more of it or as much, and counts what is left.
        split = stages.plan(names, kept._replace(items=3))
        counts, totals = precision(split.counts, root * kept.bound), precision(split.totals, root * kept.totals_bound)
        assert 0.99 * (account.counts_mu**2 + account.totals_mu**2) < counts + totals
        assert counts + totals <= account.counts_mu**2 + account.totals_mu**2
        assert totals / (counts + totals) == pytest.approx(
            totals_share(3, kept.bound, kept.totals_bound, 0.2), abs=0.01
        )
        # And own items of any user show with a probability of `hiding` at most, in all rounds together.
        rate = 0.0
        for each in rounds:
            sigma = float(each.plan.scale) / 2**each.plan.grid
            rate += _worst_rate(
                *_table(items, "l2"), sigma, float(each.plan.threshold_in_counts) - 0.5 / 2**each.plan.grid
            )
        assert 0.98 * account.hiding < -math.expm1(-rate) <= account.hiding


@pytest.mark.parametrize("relation", list(Relation))
def test_the_epsilons_of_all_laplace_stages_are_those_of_the_account(relation):
    account = make_account(Budget(1, 1e-8), named=True, chosen=True, calibrated=True)
    stages = Stages(account, relation, None, None, False)
    names, kept = stages.names_plan(ChosenStrategy("laplace", 1)), ClipBound(0, 0, "", 1000)
    plan, (once,) = stages.plan(names, kept), names.rounds
    assert plan.counts is None
    for made, l1, epsilon in ((once.plan, 1, account.pure_counts), (plan.totals, 1000, account.pure_totals)):
        assert made.kind == "laplace"
        spent = relation.users * l1 * 2**made.grid / float(made.scale)
        assert 0.999 * epsilon < spent <= epsilon * (1 + 1e-12)
    assert once.plan.delta == account.pure_hiding
    public = Stages(make_account(Budget(1), named=False, chosen=True, calibrated=True), relation, None, None, False)
    chosen = public.plan(None, ClipBound(6, 3, "laplace", 100))
    assert chosen.counts.kind == chosen.totals.kind == "laplace" and chosen.guarantee.delta == 0
    assert relation.users * 6 / (float(chosen.counts.scale) / 2**chosen.counts.grid) <= public.account.pure_counts


def test_noise_for_added_users_is_caught_where_users_are_replaced():
    """The mutation: a stage that forgets the relation has twice the precision."""
    account = make_account(Budget(1, 1e-8), named=True, chosen=True, calibrated=True)
    plan = Stages(account, Relation.ADD_REMOVE, None, None, False).plan(None, ClipBound(6, 3, "gaussian", 100))
    assert precision(plan.counts, math.hypot(6, 6)) > 1.9 * account.counts_mu**2


def test_ranges_are_refused_on_a_way_that_does_not_pay_for_them():
    with pytest.raises(ParameterError, match="pure=False"):
        make_account(Budget(1, 1e-8), named=True, chosen=True, calibrated=True, ranges=1)
