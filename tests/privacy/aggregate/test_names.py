"""Keys of an aggregate that are named by law: what the account says is what laws, noise and choices cost together.

Exact, without sampling: pairs of states, own keys, and the whole release on neighbours who share the states of all keys.
"""

import dataclasses
import math

import numpy as np
import pytest
from scipy import integrate, special

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.gaussian import gaussian_delta
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.accounting.totals import total_delta, total_epsilon
from headcount.mechanisms.aggregate.release import aggregate
from headcount.mechanisms.calibration.noise import curve_chance
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram import account as accounts
from headcount.mechanisms.histogram.account import LawCost, make_account
from headcount.mechanisms.histogram.stages import Stages
from headcount.mechanisms.partitions.select import ChosenStrategy
from headcount.mechanisms.partitions.selection_curve import curve_steps

BUDGETS = [Budget(1, 1e-8), Budget(0.1, 1e-6), Budget(8, 1e-4)]


def account_of(budget, calibrated=True, ranges=0):
    kinds = dict(
        named=True, chosen=True, calibrated=calibrated, pure=False, precision=tuning.AGGREGATE_PRECISION, ranges=ranges
    )
    return make_account(budget, **kinds)


def logs(plan) -> tuple[np.ndarray, np.ndarray]:
    """The logarithms of the chances of a law's states, and of their complements."""
    chances = np.array([curve_chance(plan.law, state) for state in range(len(plan.law) // 16)])
    with np.errstate(divide="ignore"):
        return np.log(chances), np.log1p(-chances)


def largest_divergence(plan, items: int, order: float) -> float:
    """The largest d D_a of two states that differ by the weight of d keys, both ways, of all that are sums of weights."""
    one, zero = logs(plan)
    steps, reached = curve_steps(items, plan.grid), np.zeros(2 * len(one), dtype=bool)
    reached[0] = True
    for state in range(len(one)):
        reached[[state + weight for weight, _ in steps if reached[state]]] = True
    states, found = np.flatnonzero(reached[1 : len(one)]) + 1, 0.0
    for weight, number in steps:
        after = np.minimum(states + weight, len(one) - 1)
        for q, p in ((after, states), (states, after)):
            power = np.logaddexp(order * one[q] + (1 - order) * one[p], order * zero[q] + (1 - order) * zero[p])
            found = max(found, number * float(power.max()) / (order - 1))
    return found


def own(plan, items: int) -> float:
    """The largest chance that one of d own keys is named."""
    return max(number * curve_chance(plan.law, weight) for weight, number in curve_steps(items, plan.grid))


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("calibrated", [False, True])
def test_the_account_costs_its_budget_and_sums_have_the_noise_that_they_have_beside_noisy_names(
    budget, calibrated, monkeypatch
):
    made = account_of(budget, calibrated, ranges=2)
    monkeypatch.setattr(tuning, "LEAST_PART_OF_SELECTION", math.inf)
    noisy = account_of(budget, calibrated, ranges=2)
    assert made.law is not None and noisy.law is None and made.names_mu == 0
    assert 0.999 * budget.delta < made.delta() <= budget.delta
    assert (made.counts_mu, made.totals_mu) == (noisy.counts_mu, noisy.totals_mu)
    # By an independent sum: divergences of one order, and what that is at epsilon (Canonne, Kamath, Steinke 2020), less what
    # the first two draws lose, whose laws have the density e^((s-c)/2) / (2 (1 - e^-c)) on [-c, c].
    a = made.law.order
    choices = [made.counts_choice, made.totals_choice, made.users_choice, *made.ranges_choices]
    rho = sum(each.epsilon**2 / 8 for each in choices if each) + (made.counts_mu**2 + made.totals_mu**2) / 2
    e = budget.epsilon + math.log1p(-made.hiding)
    shared = math.exp((a - 1) * (made.law.cost + a * rho - e)) / (a - 1) * (1 - 1 / a) ** a
    for c in (each.epsilon for each in made.naming_choices):
        mean = integrate.quad(lambda s, c=c: math.exp((a - 1) * s + (s - c) / 2), -c, c, epsabs=0)[0]
        shared *= mean / (-2 * math.expm1(-c))
    assert 0.99 * budget.delta < made.hiding + shared <= budget.delta


def test_an_account_of_parts_that_cost_more_is_refused():
    made = account_of(Budget(1, 1e-8), ranges=1)
    more = {
        "law": made.law._replace(cost=1.001 * made.law.cost),
        "hiding": 1.001 * made.hiding,
        "counts_mu": 1.001 * made.counts_mu,
        "totals_mu": 1.01 * made.totals_mu,
        "names_limit": Budget(0.016),
        "names_choice": Budget(0.071),
        "counts_choice": Budget(0.051),
        "totals_choice": Budget(0.071),
        "ranges_choices": (Budget(0.101),),
        "users_choice": Budget(0.01),
    }
    for name, value in more.items():
        with pytest.raises(ParameterError, match="more than"):
            dataclasses.replace(made, **{name: value})


@pytest.mark.parametrize("wrong", [LawCost(20, -0.1), LawCost(20, math.nan), LawCost(1, 0.1)])
def test_a_law_that_would_pay_for_the_rest_is_refused(wrong):
    with pytest.raises(ParameterError, match="cost above 0"):
        dataclasses.replace(account_of(Budget(1, 1e-8)), law=wrong)


def test_laws_go_with_nothing_that_they_do_not_compose_with():
    made = account_of(Budget(1, 1e-8))
    for other in ({"names_mu": 1e-3}, {"hiding": 1.0}):
        with pytest.raises(ParameterError, match="need no mu for names"):
            dataclasses.replace(made, **other)
    assert account_of(Budget(1, 0.1)).law is None  # which would have a third of what noise has
    assert aggregate(Zcdp(0.01, 1e-8), ["users"]).stages.account.law is None


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("items", "rounds"), [(1, 1), (3, 1), (6, 2)])
def test_laws_cost_what_the_account_has_for_them(items, rounds, relation):
    account = account_of(Budget(1, 1e-8))
    made = Stages(account, relation, None, None, False).names_plan(ChosenStrategy("law", items, rounds)).rounds
    assert len(made) == rounds
    spent = sum(largest_divergence(each.plan, items, account.law.order) for each in made)
    assert 0.99 < relation.users * spent / account.law.cost <= 1
    assert 0.5 < sum(own(each.plan, items) for each in made) / account.hiding <= 1


def test_a_law_that_forgets_the_relation_is_caught(monkeypatch):
    monkeypatch.setattr(Relation, "users", property(lambda self: 1))
    stages = Stages(account_of(Budget(1, 1e-8)), Relation.REPLACE, None, None, False)
    (made,) = stages.names_plan(ChosenStrategy("law", 3, 1)).rounds
    assert 2 * largest_divergence(made.plan, 3, stages.account.law.order) > 1.9 * stages.account.law.cost


def release_delta(account, items: int, epsilon: float) -> float:
    """The divergence of a user of so many keys, each shared and in one state, at the worst state: names by law in one round,
    sums and totals at the largest distance, and choices as one of two outcomes."""
    stages = Stages(account, Relation.ADD_REMOVE, None, None, False)
    (made,) = stages.names_plan(ChosenStrategy("law", items, 1)).rounds
    one, zero = logs(made.plan)
    weight = curve_steps(items, made.plan.grid)[0][0]
    mu = math.hypot(account.counts_mu, account.totals_mu)
    c = sum(each.epsilon for each in (*account.naming_choices, account.counts_choice))
    k, worst = np.arange(items + 1), 0.0
    ways = np.log(special.comb(items, k))
    for state in np.linspace(weight, len(one) - 1 - weight, 60).astype(int).tolist():
        for after, before in ((state + weight, state), (state, state + weight)):
            up, down = (ways + k * one[each] + (items - k) * zero[each] for each in (after, before))
            for t in (0.0, c / 2, c):
                chance = 1.0 if t == 0 else math.expm1(c - t) / (math.exp(c - t) - math.exp(-t))
                for part, loss in ((chance, t), (1 - chance, t - c)):
                    if part:
                        left = epsilon - loss - (up - down)
                        worst = max(worst, part * float(np.exp(up) @ [gaussian_delta(x, 1.0, 1 / mu) for x in left]))
    return worst


def test_names_sums_and_choices_keep_delta_together_and_a_law_that_knows_of_no_sums_does_not(monkeypatch):
    budget = Budget(1, 1e-5)
    account = account_of(budget)
    assert 0.01 * budget.delta < release_delta(account, 6, 1.0) <= budget.delta
    first = [each.epsilon for each in account.naming_choices]
    alone = accounts._law_cost(budget, first, (0.0, 0.0, 0.0), 0.0, account.hiding, ())
    monkeypatch.setattr(accounts.Account, "delta", lambda self: 0.0)
    wrong = dataclasses.replace(account, law=alone)
    assert release_delta(wrong, 6, 1.0) > 2 * budget.delta


def test_what_the_release_promises_is_what_is_said_of_its_losses():
    made = aggregate(Budget(1, 1e-8), ["users", "events"])
    guarantee = made.guarantee()
    account, losses = made.stages.account, guarantee.losses
    assert (losses.order, losses.hiding) == pytest.approx((account.law.order, account.hiding))
    assert account.law.cost / account.law.order < losses.rho < 1.35 * account.law.cost / account.law.order
    assert losses.mu == pytest.approx(math.hypot(account.counts_mu, account.totals_mu))
    assert losses.zcdp() is None and guarantee.zcdp.rho == pytest.approx(0.5)
    # One release costs no more than its promise, and 52 of them 7.48 at 1e-6 in place of 52.
    assert total_epsilon([guarantee], 1e-8) <= 1 and total_delta([guarantee], 1) <= 1e-8
    assert total_epsilon([guarantee] * 52, 1e-6) == pytest.approx(7.483, rel=1e-3)
    assert "Renyi" in guarantee.mechanisms[0].description()
    names = made.stages.shared.names_cost()
    assert 0.5 < names.epsilon < 1 and names.delta == 1e-8
