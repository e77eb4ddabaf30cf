"""A search for a quantile, by the exact law of its rows; and the number of users of heavy hitters, by what it draws with.

The search draws binomials, and nothing else. Here each possible result of them is given to it in turn, with the probability
that its own trials and its own rate give: so the law of the rows is known, whatever the search does with what it drew.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.sampled import heavy_hitters as hitters
from headcount.mechanisms.sampled import quantiles
from headcount.mechanisms.sampled.auto import heavy_hitters
from headcount.mechanisms.sampled.heavy_hitters import CountedHitters
from headcount.mechanisms.sampled.histogram import ONE_SAMPLE, SampleKey
from headcount.mechanisms.sampled.quantiles import QuantileSearch, quantile_search
from tests.privacy.draws import Draws, laplace_loss

BUDGET = Budget(1, 1e-2)


def values(left: int, right: int) -> list[pa.RecordBatch]:
    """So many users below the middle of two leaves, and so many above."""
    users = [f"u{number}" for number in range(left + right)]
    return [contribution_batch(pa.array(users), pa.array([0] * left + [1] * right))] if users else []


def law(search: QuantileSearch, left: int, right: int, release: Any, monkeypatch: pytest.MonkeyPatch) -> Counter:
    """The probability of each row that may be released, by all results of the binomials that the search asks for."""
    found, asked = Counter(), []
    with monkeypatch.context() as context:
        for result in itertools.product(range(left + 1), range(right + 1)):

            def given(lanes: Any, trials: np.ndarray, rate: Fraction, index: Any, result: Any = result) -> np.ndarray:
                asked.append((trials.tolist(), float(rate)))
                return np.array(result)

            context.setattr(quantiles, "binomial", given)
            row = tuple(map(str, search.run(values(left, right), release).to_pylist()[0].values()))
            trials, rate = asked[-1]
            found[row] += float(stats.binom.pmf(result, trials, rate).prod())
    assert {tuple(trials) for trials, _ in asked} == {(left, right)} and math.isclose(sum(found.values()), 1)
    return found


def divergence(one: Counter, other: Counter, epsilon: float) -> float:
    return max(sum(max(0.0, p[row] - math.exp(epsilon) * q[row]) for row in p) for p, q in ((one, other), (other, one)))


def worst(search: QuantileSearch, release: Any, monkeypatch: pytest.MonkeyPatch) -> float:
    """The delta of one user more: alone, or just above the threshold, with somebody on the other side or nobody."""
    found = []
    for left, right in ((0, 0), (search.plan.threshold, 0), (search.plan.threshold, 1)):
        laws = [law(search, users, right, release, monkeypatch) for users in (left, left + 1)]
        found.append(divergence(*laws, BUDGET.epsilon))
    return max(found)


def test_a_search_keeps_delta_and_without_its_threshold_or_with_a_larger_sample_it_does_not(make_release, monkeypatch):
    """One round, whose rows tell what was shown of both sides: all of delta, and no more. Without the threshold a user who is
    alone shows with the probability of the sample."""
    search = quantile_search(BUDGET, 0.5, 0, 2, rounds=1)
    assert 0.999 * BUDGET.delta < worst(search, make_release(), monkeypatch) <= BUDGET.delta
    larger = dataclasses.replace(search.plan, rate=search.plan.rate * Fraction(3, 2))
    assert worst(dataclasses.replace(search, plan=larger), make_release(), monkeypatch) > 2 * BUDGET.delta
    monkeypatch.setattr(QuantileSearch, "_shown", lambda self, sampled: tuple(sampled.tolist()))
    assert worst(search, make_release(), monkeypatch) > 10 * BUDGET.delta


# The number of users of heavy hitters.


def everybody(number: int) -> list[pa.RecordBatch]:
    return [
        contribution_batch(pa.array([f"u{n}" for n in range(number)]), pa.array([f"i{n % 3}" for n in range(number)]))
    ]


def users_loss(made: CountedHitters, release: Any, monkeypatch: pytest.MonkeyPatch) -> float:
    """What one user more loses by the number of users that is reported by, less the noise that was drawn for it."""
    with monkeypatch.context() as context:
        draws, found = Draws(context), []
        for number in (500, 501):
            draws.forget()
            users = made.number(everybody(number), SampleKey(made, release, ONE_SAMPLE).choices)
            noise = list(draws.noise)
            found.append(users - sum(int(each.drawn[0]) for each in noise))
        return laplace_loss(*found, noise)


def test_the_number_of_users_costs_what_the_sample_leaves_and_without_noise_it_is_caught(make_release, monkeypatch):
    made = heavy_hitters(BUDGET, 0.1, max_items=1)
    assert isinstance(made, CountedHitters)
    own = users_loss(made, make_release(), monkeypatch)
    assert own + made.plan.epsilon == pytest.approx(1)
    with monkeypatch.context() as context:
        real = hitters.noisy_counts
        half = lambda batches, plan, *more: real(batches, hitters.users_noise(Budget(2 * plan.epsilon)), *more)  # noqa: E731
        context.setattr(hitters, "noisy_counts", half)
        assert users_loss(made, make_release(), monkeypatch) == pytest.approx(2 * own)
    monkeypatch.setattr(
        CountedHitters,
        "number",
        lambda self, batches, key: len({u for b in batches for u in b.column("user").to_pylist()}),
    )
    assert users_loss(made, make_release(), monkeypatch) == math.inf
