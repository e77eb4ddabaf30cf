"""The choice and what follows it, composed by hand: two outcomes of the choice, each followed by the worst for its user.

No sampling. A choice of range c is worst as one of two outcomes with losses t and t - c; behind each, a user whose share u of
items is its own meets whichever strategy costs most, by formula (1) of `thresholds` with the numbers of the real rounds.
"""

import math

import numpy as np
import pytest

from headcount.mechanisms.accounting import thresholds
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.partitions import account as accounts
from headcount.mechanisms.partitions.account import make_account

ITEMS = 10
RATES = np.arange(ITEMS + 1) / ITEMS


def audited(account):
    """The largest delta of the whole over the shares of own items, the losses of the choice and both directions."""
    c, epsilon = account.choice.epsilon, account.budget.epsilon
    ways = [account.rounds(strategy, ITEMS, 3) for strategy in ("weighted-gaussian", "sips")]

    def worst(e, share):
        found = [share * account.one_item.delta]
        for rounds in ways:
            scales = [float(each.plan.scale) / 2**each.plan.grid for each in rounds]
            own = (
                share
                * ITEMS
                * sum(
                    float(thresholds.gaussian_rate(ITEMS**-0.5, scale, float(each.plan.threshold_in_counts)))
                    for each, scale in zip(rounds, scales, strict=True)
                )
            )
            sigma = sum(scale**-2 for scale in scales) ** -0.5
            squared = 1 - share + (account.relation is Relation.REPLACE)
            for x, y in ((own, 0.0), (0.0, own)):
                found.append(float(thresholds._divergence(e, x, y, squared, sigma)))
        return max(found)

    whole = 0.0
    for share in RATES.tolist():
        for t in np.linspace(0, c, 21).tolist():
            q = (1 - math.exp(t - c)) / (math.exp(t) - math.exp(t - c))
            p = math.exp(t) * q
            whole = max(whole, p * worst(epsilon - t, share) + (1 - p) * worst(epsilon - t + c, share))
    return whole


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("epsilon", "delta"), [(1, 1e-8), (0.3, 1e-6), (3, 1e-4)])
def test_choice_and_noise_keep_delta_together_and_use_most_of_it(epsilon, delta, relation):
    account = make_account(Budget(epsilon, delta), relation)
    assert 0.6 * delta < audited(account) <= account.delta() <= delta


def test_noise_that_does_not_know_of_the_choice_is_caught(monkeypatch):
    composed, largest = accounts.composed_delta, accounts.largest_mu
    monkeypatch.setattr(accounts, "composed_delta", lambda epsilon, _, *ways: composed(epsilon, (), *ways))
    monkeypatch.setattr(accounts, "largest_mu", lambda epsilon, delta, _, *ways: largest(epsilon, delta, (), *ways))
    assert audited(make_account(Budget(1, 1e-8), Relation.ADD_REMOVE)) > 1.1e-8
