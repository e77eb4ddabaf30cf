"""The histogram that parameters ask for: which mechanism that is, and errors that name the parameter which is wrong."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.bound_choice.clip_choice import PARTS
from headcount.mechanisms.calibration.expected_error import rarest
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.auto import AutoHistogramMechanism
from headcount.mechanisms.histogram.estimates import EstimatesMechanism
from headcount.mechanisms.histogram.factory import estimates, histogram
from headcount.mechanisms.histogram.fixed import HistogramMechanism
from headcount.mechanisms.partitions.select import ChosenStrategy

BUDGET = Budget(1, 1e-8)
DOMAIN = ["a", "b"]


@pytest.mark.parametrize("domain", [None, DOMAIN])
@pytest.mark.parametrize("of", ["events", "users"])
def test_each_method_makes_its_mechanism(domain, of):
    assert isinstance(histogram(BUDGET, domain=domain, of=of), EstimatesMechanism)
    assert isinstance(histogram(BUDGET, domain=domain, of=of, bound=5), EstimatesMechanism)
    assert isinstance(histogram(BUDGET, domain=domain, of=of, method="one-stage"), AutoHistogramMechanism)
    fixed = histogram(BUDGET, domain=domain, of=of, method="one-stage", bound=5)
    assert isinstance(fixed, HistogramMechanism)
    assert fixed.plan.bound.linf == (1 if of == "users" else 5)


def test_parameters_reach_the_stages():
    made = estimates(BUDGET, of="users", relation=Relation.REPLACE)
    assert made.stages.once and made.stages.max_per_item == 1 and made.stages.relation is Relation.REPLACE
    made = estimates(BUDGET, of="events", bound=50, max_per_item=4, calibrate="none")
    assert (made.stages.bound, made.stages.max_per_item) == (50, 4) and made.stages.clip_choice is None
    assert made.stages.given()[:3] == (50, 4, "gaussian") and not made.stages.account.pure
    assert made.guarantee().epsilon == 1 and made.guarantee().delta == 1e-8
    assert estimates(Budget(1), of="events", domain=DOMAIN, bound=5).stages.given().noise == "laplace"


def test_a_way_that_is_not_asked_for_is_not_there():
    for noise, gaussian, pure in (("auto", True, True), ("laplace", False, True), ("gaussian", True, False)):
        for domain in (None, DOMAIN):
            account = estimates(BUDGET, domain=domain, noise=noise).stages.account
            assert (account.gaussian, account.pure) == (gaussian, pure)
    named = {
        candidate.strategy
        for candidate in estimates(BUDGET, of="events", noise="laplace").stages.names_choice.candidates
    }
    assert named == {"laplace"}


def test_events_that_are_named_and_counted_at_once_must_be_asked_for():
    """One step sees one event of each user: a poor count of events."""
    assert not estimates(BUDGET, of="events").stages.account.pure
    assert estimates(BUDGET, of="events", noise="laplace").stages.account.pure
    assert estimates(BUDGET, of="events", domain=DOMAIN).stages.account.pure


@pytest.mark.parametrize("budget", [BUDGET, Budget(1, 0.1)])
def test_a_way_of_naming_that_is_given_names_by_so_many_items_of_a_user(budget):
    """By a curve, or by noise where a curve would have too little."""
    stages = estimates(budget, max_items=40).stages
    assert stages.named_by[:2] == ("law" if budget is BUDGET else "sips", 40) and not stages.account.pure
    ways = {each for each, _ in stages.ends()}
    assert {round.max_items for each in ways for round in each.rounds} == {40}
    assert stages.account.naming_choices == () and stages.chooses
    steps = [step.name for step in stages.plan(*stages.ends()[0]).guarantee.mechanisms]
    assert not [name for name in steps if "named" in name or "naming" in name]


def test_without_totals_a_norm_is_chosen_at_the_full_price_of_what_it_leaves_out():
    """No total makes up for it: a norm that leaves out an event more costs one, and with totals a half of that."""
    for calibrate, price in (("none", 1), ("totals", Fraction(1, 2))):
        choice = estimates(BUDGET, domain=DOMAIN, calibrate=calibrate).stages.clip_choice
        each = choice.candidates[0]
        assert choice.loss(each, 0, 2) - choice.loss(each, PARTS, 2) == price
        assert choice.sensitivity(each, 2) == price * choice.most(each, 2)


@pytest.mark.parametrize("max_per_item", [None, 1])
def test_one_stage_of_a_list_takes_the_noise_that_is_less(max_per_item):
    keys, kinds = [f"k{n}" for n in range(100)], set()
    for bound in (1, 3, 10, 100):
        given = dict(domain=keys, of="events", method="one-stage", bound=bound, max_per_item=max_per_item)
        plans = {noise: histogram(BUDGET, noise=noise, **given).plan for noise in ("auto", "laplace", "gaussian")}
        assert plans["auto"].stddev <= plans["laplace"].stddev
        kinds.add(plans["auto"].kind)
        if plans["auto"].kind == "gaussian":
            assert plans["auto"].stddev < plans["laplace"].stddev
    assert kinds == ({"laplace", "gaussian"} if max_per_item else {"laplace"})


def test_by_one_item_of_a_user_that_is_given_names_and_counts_come_at_once():
    """By Laplace noise alone, of all that no choice takes; else by one round of a curve, which has all that names have."""
    for more in ({}, {"noise": "laplace"}, {"of": "events", "noise": "laplace"}):
        stages = estimates(BUDGET, **{"of": "users", "max_items": 1} | more).stages
        assert stages.named_by == ("laplace", 1, 0) and not stages.account.gaussian
        assert stages.account.pure_counts > 0.8 and stages.account.naming_choices == ()
    for more in ({"noise": "gaussian"}, {"of": "events"}, {"bound": 3}):
        stages = estimates(BUDGET, **{"of": "users", "max_items": 1} | more).stages
        one, several = (stages.names_plan(ChosenStrategy("law", items, 2)).rounds for items in (1, 3))
        assert stages.named_by[:2] == ("law", 1) and len(one) == 1
        assert rarest(one[0].plan, 0.5) < rarest(several[-1].plan, 0.5)


WRONG = [
    ("method", dict(method="two-stage")),
    ("of", dict(of="rows")),
    ("calibrate", dict(calibrate="yes")),
    ("calibrate", dict(calibrate="totals", method="one-stage")),
    ("noise", dict(noise="normal")),
    ("noise", dict(noise="gaussian", domain=DOMAIN, budget=Budget(1))),
    ("bound", dict(bound=0)),
    ("bound", dict(bound=2.5)),
    ("bound", dict(bound="large")),
    ("bound", dict(bound=5, noise="laplace")),
    ("max_items", dict(max_items=0)),
    ("max_items", dict(max_items=10_001)),
    ("max_items", dict(max_items="auto")),
    ("max_items", dict(max_items=3, domain=DOMAIN)),
    ("max_items", dict(max_items=3, noise="laplace")),
    ("max_items", dict(max_items=3, method="one-stage")),
    ("max_per_item", dict(max_per_item=0)),
    ("max_per_item", dict(max_per_item=3)),
    ("max_per_item", dict(max_per_item=True)),
    ("max_per_item", dict(max_per_item=3, of="users")),
    ("max_per_item", dict(max_per_item=3, of="users", method="one-stage")),
    ("objective", dict(objective="items")),
    ("bound_method", dict(bound_method="gem")),
    ("bound_share", dict(bound_share=Fraction(1, 10))),
    ("item_type", dict(item_type=float)),
    ("the budget", dict(budget=1.0)),
]


@pytest.mark.parametrize(("parameter", "given"), WRONG, ids=[f"{name}-{n}" for n, (name, _) in enumerate(WRONG)])
def test_an_error_names_the_parameter_and_begins_with_it(parameter, given):
    """So that a command can say its flag in its place."""
    given = {"budget": BUDGET, **given}
    with pytest.raises(ParameterError) as caught:
        histogram(given.pop("budget"), **given)
    assert caught.value.parameter == parameter
    assert str(caught.value).startswith(parameter)
    assert str(caught.value.renamed("--flag")).startswith("--flag")


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("positive and below 1/2", dict(budget=Budget(1))),
        ("positive and below 1/2", dict(budget=Budget(1, 0.6))),
        ("domain is empty", dict(domain=[])),
        ("must all be of type int", dict(domain=["a"], item_type=int)),
        ("more noise than can be sampled", dict(budget=Budget(1e-6, 1e-8))),
        ("more noise than can be sampled", dict(budget=Budget(1e-6), domain=DOMAIN)),
        ("more noise than can be sampled", dict(budget=Budget(1e-6, 1e-8), noise="laplace")),
        ("more noise than can be sampled", dict(budget=Budget(1e-9, 1e-8), noise="gaussian", calibrate="none")),
        ("more noise than can be sampled", dict(budget=Budget(1e-6, 1e-9), bound=10**9, calibrate="none")),
        ("bound_share is for bound='auto'", dict(method="one-stage", bound=5, bound_share=Fraction(1, 5))),
        ("is for items that come from the data", dict(method="one-stage", domain=DOMAIN, objective="items")),
    ],
)
def test_what_cannot_be_made_is_refused_before_anything_runs(words, given):
    given = {"budget": BUDGET, **given}
    with pytest.raises(ParameterError, match=words):
        histogram(given.pop("budget"), **given)


def test_a_stage_is_made_for_what_names_its_items():
    """An account without names for items of the data, or the other way round, is refused."""
    named, public = estimates(BUDGET, of="events"), estimates(BUDGET, of="events", domain=DOMAIN)
    with pytest.raises(ParameterError, match="named=True"):
        EstimatesMechanism(public.stages, None, str)
    with pytest.raises(ParameterError, match="named=False"):
        EstimatesMechanism(named.stages, public.domain, str)


@pytest.mark.parametrize("cap", [1, 3, 10**6, 10**9])
def test_a_cap_of_any_size_leaves_something_to_choose(cap):
    for domain, noise in itertools.product((None, DOMAIN), ("auto", "gaussian")):
        choice = estimates(BUDGET, of="events", domain=domain, max_per_item=cap, noise=noise).stages.clip_choice
        assert {candidate.max_per_item for candidate in choice.candidates} == {cap}


def test_every_promise_is_the_whole_budget_with_the_choices_that_are_made():
    for domain, calibrate in itertools.product((None, DOMAIN), ("totals", "none")):
        made = estimates(BUDGET, of="events", domain=domain, calibrate=calibrate)
        names = [step.name for step in made.guarantee().mechanisms]
        assert ("choice of how items are named" in names) == (domain is None)
        assert "choice of the counts' bound" in names
        assert ("choice of the totals' bound" in names) == (calibrate == "totals")
        for named, kept in made.stages.ends():
            plan = made.stages.plan(named, kept)
            assert (plan.guarantee.epsilon, plan.guarantee.delta) == (1, 1e-8)
            assert all(step.epsilon <= 1 and step.delta <= 1e-8 for step in plan.guarantee.mechanisms)
            assert (plan.totals is not None) == (calibrate == "totals")
            assert plan.description().startswith("chosen: ") and plan.report_fields()["chosen"]


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("domain", [None, DOMAIN])
def test_all_choices_and_all_noise_are_for_the_relation_and_the_account(relation, domain):
    stages = estimates(BUDGET, of="events", domain=domain, relation=relation).stages
    account, kept = stages.account, stages.clip_choice
    assert kept.relation is relation and stages.guarantee().relation is relation
    assert (kept.counts_budget, kept.totals_budget) == (account.counts_choice, account.totals_choice)
    if domain is None:
        assert stages.names_choice.relation is relation
        assert (stages.names_choice.limit, stages.names_choice.scored.budget) == account.naming_choices
    for named, end in stages.ends():
        plan = stages.plan(named, end)
        noise = [plan.counts, plan.totals] + ([each.plan for each in named.rounds] if named else [])
        assert {each.relation for each in noise if each is not None} == {relation}
        assert plan.guarantee.relation is relation
