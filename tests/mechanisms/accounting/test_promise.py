"""One promise for many runs: budgets against a search by brute force, and against what a ledger accepts.

No sampling, so there are no false alarms.
"""

from __future__ import annotations

import itertools

import pytest

from headcount.mechanisms import Budget, private_histogram
from headcount.mechanisms.accounting.gaussian import gaussian_sigma
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.losses import Laplace, Losses
from headcount.mechanisms.accounting.promise import budgets, repeated
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.accounting.totals import Spent
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.ledger.records import guarantee_of, guarantee_text, make_dataset
from headcount.pipelines.ledger.spending import Room

KINDS = ("promise", "gaussian", "laplace", "named")


def cost(name: str, budget: Budget, relation: Relation = Relation.ADD_REMOVE) -> Guarantee:
    """What a release of each kind states of its losses."""
    epsilon, delta = budget.epsilon, budget.delta
    kinds = {
        "promise": lambda: Losses.of_promise(epsilon, delta),
        "gaussian": lambda: Losses(mu=1 / gaussian_sigma(epsilon, delta)),
        "laplace": lambda: Losses.of(Laplace(epsilon, 64)),
        "named": lambda: Losses(rho=epsilon**2 / 20, hiding=delta / 2),
    }
    return Guarantee(epsilon, delta, relation, (), losses=kinds[name.split()[0]]())


def cost_at(name: str, epsilon: float, delta: float) -> list[Guarantee]:
    return [cost(name, Budget(epsilon, delta))]


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize(
    ("names", "runs"),
    [(["promise"], 3), (["gaussian"], 12), (["laplace", "named"], 2), ([*KINDS], 4), (["gaussian", "gaussian 2"], 52)],
)
def test_budgets_are_the_largest_that_keep_the_promise(names, runs, adaptive):
    """By brute force: they keep it, as the ledger adds it up, and half a percent more does not; weights are kept."""
    weights = {name: 1 + 0.5 * k for k, name in enumerate(names)}
    found = budgets(cost_at, weights, 2, 1e-6, runs, adaptive)
    assert [*found] == names
    spent = Spent(repeated((cost(name, budget) for name, budget in found.items()), runs), adaptive)
    assert spent.delta(2) <= 1e-6 and 0.99 * 2 <= spent.epsilon(1e-6) <= 2
    for one, other in itertools.combinations(names, 2):
        assert found[one].epsilon / found[other].epsilon == pytest.approx(weights[one] / weights[other], rel=1e-3)
        assert found[one].delta == found[other].delta
    for budget in found.values():
        assert budget.epsilon == float(f"{budget.epsilon:.4g}") and budget.delta == float(f"{budget.delta:.3g}")
    more = [cost(name, Budget(1.005 * budget.epsilon, budget.delta)) for name, budget in found.items()]
    assert Spent(repeated(more, runs), adaptive).delta(2) > 1e-6


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("relation", [*Relation])
def test_a_ledger_takes_all_runs_of_a_year_and_no_more(adaptive, relation):
    """The entries are read back from their texts, and come in the order of the runs, not of the releases."""
    names, runs = ["promise", "gaussian", "laplace", "named"], 52
    found = budgets(
        lambda name, *budget: [cost(name, Budget(*budget), relation)],
        dict.fromkeys(names, 1.0),
        2,
        1e-6,
        runs,
        adaptive,
    )
    dataset = make_dataset("d", "user", relation.value, 2, 1e-6, "year", adaptive)
    run = [guarantee_of(guarantee_text(cost(name, budget, relation))) for name, budget in found.items()]
    assert Room(dataset, run * (runs - 1)).fits(*run)
    year = Room(dataset, run * runs)
    assert 0.99 * 2 <= year.total.epsilon <= 2 and not year.fits(*run)


def test_a_promise_for_one_release_that_runs_once_is_its_budget():
    assert budgets(cost_at, {"laplace": 3}, 2, 1e-6, 1) == {"laplace": Budget(2.0, 1e-6)}
    assert budgets(cost_at, {"laplace": 3}, 2, 1e-6, 1, pure=["laplace"]) == {"laplace": Budget(2.0, 0.0)}


def test_without_a_delta_epsilons_add_up():
    found = budgets(cost_at, {"laplace": 1, "laplace 2": 3}, 2, 0, 10)
    spent = 10 * sum(budget.epsilon for budget in found.values())
    assert 0.99 * 2 <= spent <= 2
    with pytest.raises(ParameterError, match="no budget was found"):
        budgets(cost_at, {"laplace": 1}, 2, 0, 10, adaptive=True)


def test_what_needs_no_delta_leaves_it_to_the_others():
    found = budgets(cost_at, {"laplace": 1, "named": 1}, 2, 1e-6, 10, pure=["laplace"])
    assert found["laplace"].delta == 0 and found["named"].delta == 5e-8


def test_a_real_year_of_named_items_costs_far_less_than_adding_up():
    """Gaussian noise on items that are named: 12 runs, each with three times the epsilon of a twelfth."""

    def histogram(_: str, *budget: float) -> list[Guarantee]:
        return [private_histogram(Budget(*budget), noise="gaussian").guarantee()]

    found = budgets(histogram, {"pages": 1}, 2, 1e-6, 12)["pages"]
    year = Spent(repeated(histogram("", found.epsilon, found.delta), 12))
    assert 0.99 * 2 <= year.epsilon(1e-6) <= 2 and found.epsilon > 3 * 2 / 12


@pytest.mark.parametrize(
    ("weights", "runs", "words"),
    [
        ({}, 1, "one release"),
        ({"promise": 0}, 1, "weight of promise"),
        ({"promise": 1}, 0, "runs"),
        ({"promise": 1}, 1.5, "runs"),
    ],
)
def test_what_is_no_promise_is_refused(weights, runs, words):
    with pytest.raises(ParameterError, match=words):
        budgets(cost_at, weights, 2, 1e-6, runs)


def test_mutation_a_half_percent_more_for_each_is_found():
    """What the ledger's test must catch: budgets that are rounded up to two digits no longer fit."""
    found = budgets(cost_at, dict.fromkeys(KINDS, 1.0), 2, 1e-6, 52)
    up = [cost(name, Budget(float(f"{budget.epsilon * 1.05:.2g}"), budget.delta)) for name, budget in found.items()]
    assert not Room(make_dataset("d", "user", "add-remove", 2, 1e-6, None), up * 51).fits(*up)
