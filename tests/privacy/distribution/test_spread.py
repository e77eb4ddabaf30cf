"""How much users differ is asked privately: one user moves the pairs of all groups by no more than the noise is made for.

The steps of a distribution draw (`learn.Steps`): what they release, less the noise that was drawn, is what the noise was added
to, and the samplers tell their scales. So the loss of all of it is exact.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.gaussian import gaussian_delta
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import Domain
from headcount.mechanisms.counting.evidence import Evidence
from headcount.mechanisms.distribution import learn, spread
from headcount.mechanisms.distribution import plan as plan_module
from headcount.mechanisms.distribution.learn import Steps
from headcount.mechanisms.distribution.plan import plan_distribution
from headcount.mechanisms.distribution.spread import groups_of, pairs, spread_noise
from headcount.mechanisms.distribution.tables import ValueCounts
from tests.privacy.draws import Draws, Noise, laplace_loss

SYMBOLS, SAMPLES = 12, 6
BUDGET = Budget(1, 1e-6)
DRAWN = np.array([40.0, 30, 20, 10, 8, 5, 3, 2, 1, 0, -2, -4])  # what was released of the symbols before


def table_of(users: list[np.ndarray]) -> ValueCounts:
    """The tables of users with so many samples of each symbol."""
    counts = np.array(users, dtype=np.int64).reshape(-1, SYMBOLS)
    found = [np.unique(column[column > 0], return_counts=True) for column in counts.T]
    offsets = np.append(0, np.cumsum([len(value) for value, _ in found]))
    value, number = (np.concatenate([pair[i] for pair in found]).astype(np.int64) for i in (0, 1))
    return ValueCounts(pa.array([f"s{symbol:02d}" for symbol in range(SYMBOLS)]), offsets, value, number)


def steps_of(method: str, relation: Relation) -> Steps:
    plan = plan_distribution(BUDGET, SYMBOLS, SAMPLES, relation, None, method)
    return Steps(plan, Domain(table_of([]).symbols), "id", "label")


def released(steps: Steps, users: list[np.ndarray], draws: Draws) -> list[tuple[np.ndarray, list[Noise]]]:
    """What reaches the noise of each step, in units of its grid, and the noise: of the symbols, and of the groups' pairs."""
    table, key = table_of(users), bytes(32)
    evidence = Evidence(steps.digest(table, key), ())
    sums, found = learn.spread.pairs(table, groups_of(DRAWN)), []
    for grid, draw in (
        (steps.plan.noise.grid, lambda: steps.drawn(table, len(users), evidence, key)),
        (steps.plan.spread.grid, lambda: steps.spread(sums, evidence, key)),
    ):
        draws.forget()
        noisy = np.rint(draw() * 2.0**grid).astype(np.int64)
        found.append((noisy - sum(each.drawn for each in draws.noise), list(draws.noise)))
    return found


def loss(method: str, relation: Relation, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    """The largest loss over neighbours of the symbols' noise, Laplace's epsilon or the distance in standard deviations; and
    that of the pairs."""
    random = np.random.default_rng(5)
    one = [np.eye(SYMBOLS, dtype=int)[symbol] * SAMPLES for symbol in (0, 3, 11)]  # all samples of one symbol
    others = [random.multinomial(SAMPLES, law, 3) for law in (np.full(SYMBOLS, 1 / SYMBOLS), DRAWN.clip(0) / 119)]
    users, base = [*one, *others[0], *others[1]], list(random.multinomial(SAMPLES, np.full(SYMBOLS, 1 / SYMBOLS), 10))
    steps = steps_of(method, relation)
    with monkeypatch.context() as context:
        draws = Draws(context)
        worlds = [released(steps, [*base, user], draws) for user in users]
        former = worlds if relation is Relation.REPLACE else [released(steps, base, draws)]
    noise, pairs = 0.0, 0.0
    for (mine, (drawn,)), (of_groups, noise_of_groups) in worlds:
        for (theirs, _), (their_groups, _) in former:
            pairs = max(pairs, laplace_loss(of_groups, their_groups, noise_of_groups))
            order = 2 if drawn.kind == "discrete_gaussian" else 1
            noise = max(noise, float(np.linalg.norm((mine - theirs).astype(float), order) / drawn.scale))
    return noise, pairs


@pytest.mark.parametrize("relation", list(Relation))
def test_symbols_and_pairs_cost_the_budget_together_and_the_pairs_just_their_part(relation, monkeypatch):
    """Of Laplace noise epsilons add up to 1; of Gaussian noise delta is kept by what the pairs leave of epsilon."""
    noise, pairs = loss("laplace", relation, monkeypatch)
    assert noise + pairs == pytest.approx(1) and pairs == pytest.approx(0.05), (
        "all of it, where all samples of a user are one symbol"
    )
    noise, same = loss("gaussian", relation, monkeypatch)
    assert same == pytest.approx(pairs)
    assert 0.1 * BUDGET.delta < gaussian_delta(BUDGET.epsilon - pairs, noise, 1.0) <= BUDGET.delta


def test_pairs_with_oneself_are_caught(monkeypatch):
    """n^2 in place of n (n - 1) moves by m^2."""

    def squares(table: ValueCounts, groups: np.ndarray) -> np.ndarray:
        totals = np.bincount(groups, weights=table.totals(), minlength=tuning.SPREAD_GROUPS).astype(np.int64)
        return real(table, groups) + totals

    real, right = pairs, loss("laplace", Relation.ADD_REMOVE, monkeypatch)[1]
    monkeypatch.setattr(spread, "pairs", squares)
    assert loss("laplace", Relation.ADD_REMOVE, monkeypatch)[1] == pytest.approx(right * SAMPLES / (SAMPLES - 1))


def test_noise_for_the_samples_alone_is_caught(monkeypatch):
    right = loss("laplace", Relation.ADD_REMOVE, monkeypatch)[1]
    monkeypatch.setattr(
        plan_module, "spread_noise", lambda budget, samples, relation: spread_noise(budget, 3, relation)
    )
    assert loss("laplace", Relation.ADD_REMOVE, monkeypatch)[1] > 4 * right


def test_pairs_that_are_drawn_with_the_noise_of_the_symbols_are_caught(monkeypatch):
    """The known bug: each noise is right, and the other one is drawn."""

    def other(self: Steps, sums: np.ndarray, evidence: Evidence, key: bytes) -> np.ndarray:
        return self._noisy(spread.NAMES, sums, self.plan.noise, evidence, key, "Spread")

    monkeypatch.setattr(Steps, "spread", other)
    assert loss("laplace", Relation.ADD_REMOVE, monkeypatch)[1] > 4


def test_groups_follow_from_what_was_released_and_hold_every_symbol():
    groups = groups_of(DRAWN)
    assert groups[0] == 0 and (np.diff(groups) >= 0).all() and groups[-1] == tuning.SPREAD_GROUPS - 1
    assert set(groups_of(np.zeros(5)).tolist()) == {0}


@pytest.mark.parametrize("method", ["laplace", "gaussian"])
@pytest.mark.parametrize("relation", list(Relation))
def test_the_parts_cost_the_budget_and_no_more(method, relation):
    plan = plan_distribution(Budget(1, 1e-6), 10, 20, relation, None, method)
    assert plan.spread is not None and plan.noise is not None
    assert plan.spread.epsilon + plan.noise.epsilon == pytest.approx(1) and plan.spread.relation is relation
    assert plan.spread.delta == 0
