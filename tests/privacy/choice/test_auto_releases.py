"""Automatic releases as their factories make them: one relation for choice and release, parts that fit, and exact audits.

No sampling: the audits compute the chances of all candidates on both neighbours, through the `choice` that the automatic
release itself holds, under REPLACE. A choice of the form for added users is caught there: it costs 1.5 times its epsilon.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget, Zcdp, check_parts
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.packing import pack, unpack
from headcount.mechanisms.batches.shards import gather
from headcount.mechanisms.batches.user_shards import split_by_user
from headcount.mechanisms.bound_choice import joint
from headcount.mechanisms.bound_choice.candidates import Candidate
from headcount.mechanisms.bound_choice.expected_sums import CandidateGrid
from headcount.mechanisms.choice.exponential import gem_exponents
from headcount.mechanisms.choice.protocol import Choice
from headcount.mechanisms.count_release.papers import plume
from headcount.mechanisms.distribution import learn
from headcount.mechanisms.distribution.learn import learn_distribution
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram import auto as auto_histogram
from headcount.mechanisms.histogram.auto import AutoHistogramMechanism, auto_bounded_histogram, auto_unbounded_histogram
from headcount.mechanisms.partitions.auto import AutoSelection, auto_partitions

BUDGET = Budget(1, 1e-8)
DOMAIN = ["a", "b", "c"]
AUTOMATIC: dict[str, Callable[[Relation], Any]] = {
    "joint, error": lambda r: auto_unbounded_histogram(BUDGET, relation=r),
    "joint, items": lambda r: auto_unbounded_histogram(BUDGET, objective="items", relation=r),
    "joint, given cap": lambda r: auto_unbounded_histogram(BUDGET, objective="items", max_per_item=1, relation=r),
    "Algorithm 4 by em": lambda r: auto_unbounded_histogram(BUDGET, method="em", relation=r),
    "Algorithm 4 by gem": lambda r: auto_unbounded_histogram(BUDGET, method="gem", relation=r),
    **{
        name: lambda r, name=name: auto_bounded_histogram(BUDGET, DOMAIN, method=name, relation=r)
        for name in ("auto", "quantile-rank", "quantile-gem")
    },
    **{
        f"gaussian, {name}": lambda r, name=name: auto_bounded_histogram(
            BUDGET, DOMAIN, method=name, noise="gaussian", relation=r
        )
        for name in ("auto", "em", "gem", "dp-gd", "output-perturbation", "m-quantile")
    },
    "partitions": lambda r: auto_partitions(BUDGET, relation=r),
    "plume": lambda r: plume.plume(BUDGET, relation=r),
    "plume by sips": lambda r: plume.plume(Zcdp(0.1, 1e-6), selection="sips", relation=r),
    "distribution": lambda r: learn_distribution(BUDGET, DOMAIN, relation=r),
    "distribution, median": lambda r: learn_distribution(BUDGET, DOMAIN, samples_per_user="median", relation=r),
}


def choice_of(release: Any) -> Choice:
    return release.auto.choice if isinstance(release, AutoHistogramMechanism) else release.choice


def plans_of(release: Any) -> list[Any]:
    """All that is calibrated, for the least and the most that can be chosen."""
    ends = [end._replace(noise="laplace") if end[-1] == "auto" else end for end in choice_of(release).ends()]
    if isinstance(release, AutoHistogramMechanism):
        return [release.auto.decided(end).plan for end in ends]
    if isinstance(release, plume.PlumeRelease):
        return [
            noise for end in ends for noise in (release.plan(end).plan, *(r.plan for r in release.plan(end).rounds))
        ]
    if isinstance(release, AutoSelection):
        return [each.plan for end in ends for each in release.decided(end).rounds]
    return [plan for end in ends for plan in release.plans(end)]


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("name", AUTOMATIC)
def test_choice_release_and_guarantee_are_for_the_relation_that_was_asked_for(name, relation):
    release = AUTOMATIC[name](relation)
    assert choice_of(release).relation is release.guarantee().relation is relation
    assert {plan.relation for plan in plans_of(release)} == {relation}


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("name", [name for name in AUTOMATIC if name != "partitions" and "plume" not in name])
def test_what_choice_and_release_cost_is_the_budget(name, relation):
    release = AUTOMATIC[name](relation)
    choice, rest = choice_of(release).budget, choice_of(release).release_budget
    whole = release.auto.budget if isinstance(release, AutoHistogramMechanism) else release.budget
    check_parts(whole, choice, rest)
    assert choice.epsilon + rest.epsilon == pytest.approx(1, rel=1e-12)
    for plan in plans_of(release):
        inner = plan.users.epsilon if getattr(plan, "users", None) is not None else 0.0
        spent = plan.budget if hasattr(plan, "budget") else plan
        assert spent.epsilon + inner <= rest.epsilon * (1 + 1e-12) and spent.delta <= rest.delta


# Parts that do not belong together are refused.


def test_a_choice_for_another_relation_is_refused():
    for make in (AUTOMATIC["joint, error"], AUTOMATIC["quantile-gem"]):
        replaced, added = (make(relation).auto for relation in (Relation.REPLACE, Relation.ADD_REMOVE))
        with pytest.raises(
            ParameterError, match="a choice under the relation 'add-remove' .* a release under 'replace'"
        ):
            dataclasses.replace(replaced, choice=added.choice)
        with pytest.raises(
            ParameterError, match="a choice under the relation 'replace' .* a release under 'add-remove'"
        ):
            dataclasses.replace(replaced, relation=Relation.ADD_REMOVE)


def test_parts_that_cost_more_than_the_whole_are_refused():
    auto = AUTOMATIC["joint, error"](Relation.REPLACE).auto
    for change in (
        {"budget": Budget(0.999, 1e-8)},
        {"budget": Budget(1, 0.9e-8)},
        {"release_budget": Budget(0.9000000001, 1e-8)},
        {"choice": dataclasses.replace(auto.choice, budget=Budget(0.2))},
    ):
        with pytest.raises(ParameterError, match="cost more than the whole budget"):
            dataclasses.replace(auto, **change)
    descent = AUTOMATIC["gaussian, dp-gd"](Relation.REPLACE).auto
    assert descent.choice.budget.delta > 0
    with pytest.raises(ParameterError, match="parts with delta = .* cost more"):
        dataclasses.replace(descent, release_budget=Budget(descent.release_budget.epsilon, 1e-8))
    named = AUTOMATIC["partitions"](Relation.REPLACE)
    with pytest.raises(ParameterError, match="does not go with"):
        dataclasses.replace(named, choice=dataclasses.replace(named.choice, limit=Budget(0.06)))
    counted = AUTOMATIC["plume"](Relation.REPLACE)
    with pytest.raises(ParameterError, match="does not promise"):
        dataclasses.replace(counted, promise=Budget(0.99, 1e-8))
    with pytest.raises(ParameterError, match="does not promise"):
        dataclasses.replace(counted, zcdp=Zcdp(counted.zcdp.rho * 1.01, counted.zcdp.delta))


def test_parts_of_another_kind_are_refused():
    with pytest.raises(ParameterError, match="must be of its kind"):
        check_parts(Budget(1, 1e-6), Zcdp(0.1))
    check_parts(Zcdp(0.3), Zcdp(0.1), Zcdp(0.2))  # as floats, these would exceed it
    with pytest.raises(ParameterError, match="rho"):
        check_parts(Zcdp(0.3), Zcdp(0.1), Zcdp(0.2), Zcdp(1e-300))


def test_noise_without_a_threshold_is_refused_where_items_come_from_the_data():
    public, unknown = (AUTOMATIC[name](Relation.REPLACE) for name in ("quantile-gem", "joint, error"))
    with pytest.raises(ParameterError, match="public = True without a domain"):
        dataclasses.replace(public, domain=None)
    with pytest.raises(ParameterError, match="public = False with a domain"):
        dataclasses.replace(unknown, domain=public.domain)


def to_added(make: Callable[..., Any], place: int) -> Callable[..., Any]:
    """A mutation: what `make` makes is always for added and removed users."""

    def mutated(*given: Any, **more: Any) -> Any:
        return make(*given[:place], Relation.ADD_REMOVE, *given[place + 1 :], **more)

    return mutated


MUTATIONS = {
    "joint, error": (auto_histogram, "choose_unknown_domain"),
    "joint, items": (auto_histogram, "choose_unknown_domain"),
    "Algorithm 4 by gem": (auto_histogram, "choose_unknown_domain"),
    "quantile-gem": (auto_histogram, "choose_public_domain"),
    "gaussian, gem": (auto_histogram, "choose_public_domain"),
    "plume": (plume, "JointChoice"),
    "distribution, median": (learn, "SamplesChoice"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_choice_that_is_always_for_added_users_is_refused_by_the_release_itself(name, monkeypatch):
    module, attribute = MUTATIONS[name]
    monkeypatch.setattr(module, attribute, to_added(getattr(module, attribute), 2))
    assert AUTOMATIC[name](Relation.ADD_REMOVE)
    with pytest.raises(ParameterError, match="the relation 'add-remove' .* under 'replace'"):
        AUTOMATIC[name](Relation.REPLACE)


# The audit: a user who helps two candidates is replaced by one who helps the third.

COPIES = 100
NUMBERS = ((100, 10_000), (1000, 10_000), (10, 1000))  # items per user and threshold of each candidate


def among_three(choice: Any) -> Any:
    """The choice that a release holds, among three candidates whose sensitivities are 1 : 10 : 1, the last in many copies."""
    choice.__dict__["candidate_grid"] = CandidateGrid((10, 100, 1000), (1,))
    made = [Candidate(items, 1, "gaussian", threshold, 1) for items, threshold in NUMBERS]
    choice.__dict__["candidates"] = (*made[:-1], *[made[-1]] * COPIES)
    return choice


def names(prefix: str, number: int) -> list[str]:
    return [f"{prefix}{n}" for n in range(number)]


def summed(choice: Any, *kinds: Any) -> list[int]:
    """The table of data in which each kind, some users by their items, occurs a number of times. Entries add up: a thousand
    equal users are one user's entries a thousandfold."""
    chunks = []
    for times, *users in kinds:
        pairs = [(f"u{u}", item) for u, items in enumerate(users) for item in items]
        batch = pa.RecordBatch.from_pydict({"user": [u for u, _ in pairs], "item": [i for _, i in pairs]})
        for _, chunk in choice.item_chunks(gather(c for _, c in split_by_user(batch, 1)), 1):
            columns = unpack(chunk)[0]
            for name in {"level", "slope", "users"} & columns.keys():
                columns[name] = pa.array(np.asarray(columns[name]) * times)
            chunks.append(pack(columns))
    return choice.item_table(chunks)


def table(choice: Any, last: list[str]) -> list[int]:
    """The table of a crowd and of a last user.

    Items x are just below the upper end of the first two candidates' ramps, y at the lower end of the third's; z and v bring
    the three losses together.
    """
    crowd = [(14_999, *([x] for x in names("x", 1000))), (500, *([y] for y in names("y", 10)))]
    crowd += [(10_000, *([z] for z in names("z", 2))), (5013, names("v", 1000)), (1, last)]
    return summed(choice, *crowd)


def spent(choice: Any, before: list[int], after: list[int]) -> float:
    """The largest log-ratio of two neighbours, in units of the choice's epsilon."""

    def logs(scores: list[int]) -> np.ndarray:
        x = np.array([float(exponent) for exponent in choice.exponents(scores)])
        return -x - np.log(np.exp(x.min() - x).sum()) + x.min()

    return float(np.abs(logs(before) - logs(after)).max()) / choice.budget.epsilon


def replaced(name: str) -> tuple[Any, list[int], list[int]]:
    choice = among_three(choice_of(AUTOMATIC[name](Relation.REPLACE)))
    return choice, table(choice, names("x", 1000)), table(choice, names("y", 10))


def sharp(losses: Any, sensitivities: Any, epsilon: Any, one_sided: bool, tau: Any = None) -> list[Fraction]:
    """Without tau, which only blunts the worst cases."""
    return gem_exponents(losses, sensitivities, epsilon, one_sided, 0)


CROSSWISE = {"joint, given cap": joint, "plume": joint}


@pytest.mark.parametrize("name", CROSSWISE)
def test_the_choice_of_an_automatic_release_keeps_epsilon_where_a_user_is_replaced(name, monkeypatch):
    """0.99 of epsilon; and 1.54 times epsilon with the form for added users, whoever is to blame: the choice that always takes
    it, or a factory that asks for it (with what the release checks by itself taken out)."""
    module = CROSSWISE[name]
    monkeypatch.setattr(module, "gem_exponents", sharp)
    choice, before, after = replaced(name)
    assert 0.98 < spent(choice, before, after) <= 1 + 1e-9
    always = lambda losses, sensitivities, epsilon, one_sided: sharp(losses, sensitivities, epsilon, True)  # noqa: E731
    with monkeypatch.context() as context:
        context.setattr(module, "gem_exponents", always)
        assert spent(choice, before, after) > 1.4
    for where in (auto_histogram, plume):
        monkeypatch.setattr(where, "check_relation", lambda choice, relation: None)
    monkeypatch.setattr(auto_histogram, "choose_unknown_domain", to_added(auto_histogram.choose_unknown_domain, 2))
    monkeypatch.setattr(plume, "JointChoice", to_added(plume.JointChoice, 2))
    wrong = choice_of(AUTOMATIC[name](Relation.REPLACE))
    assert wrong.relation is Relation.ADD_REMOVE
    wrong.__dict__.update({key: choice.__dict__[key] for key in ("candidates", "ladder") if key in choice.__dict__})
    assert spent(wrong, before, after) > 1.4


def test_a_choice_of_names_for_another_relation_is_refused():
    """What both draws of it cost is audited in `partitions/test_limited`."""
    release = AUTOMATIC["partitions"](Relation.REPLACE)
    wrong = dataclasses.replace(release.choice.scored, relation=Relation.ADD_REMOVE)
    with pytest.raises(ParameterError, match="does not go with"):
        dataclasses.replace(release, choice=dataclasses.replace(release.choice, scored=wrong))


def test_the_choice_of_samples_keeps_epsilon_where_a_user_is_replaced(monkeypatch):
    """Users with 1, 100 and 9000 samples, of whom one of the last becomes one of the first: the loss falls by 2 where most
    users are above, and rises by 2 where most are below. All of epsilon, or twice that by the range for added users."""

    def found(choice: Any) -> float:
        tables = []
        for users in ((200, 400, 400), (201, 400, 399)):
            held = [0] * choice.entries
            for number, samples in zip(users, (1, 100, 9000), strict=True):
                held[int(np.searchsorted(choice.grid, samples, side="right"))] = number
            tables.append(held)
        return spent(choice, *tables)

    def median() -> Any:
        return learn_distribution(BUDGET, DOMAIN, samples_per_user="median", relation=Relation.REPLACE).choice

    assert 0.98 < found(median()) <= 1 + 1e-9
    monkeypatch.setattr(learn, "check_relation", lambda choice, relation: None)
    monkeypatch.setattr(learn, "SamplesChoice", to_added(learn.SamplesChoice, 2))
    assert found(median()) > 1.9
