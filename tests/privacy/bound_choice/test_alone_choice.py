"""The choice whether counts of a public list stand alone: exact ranges of its draws on neighbours, and the course that follows.

No sampling: what one user moves is compared over all norms, caps and users that could move it most.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import Shard, one_shard
from headcount.mechanisms.bound_choice.alone_choice import AloneChoice
from headcount.mechanisms.bounding.steps import ClipNormStep
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.histogram.estimates import EstimatesMechanism
from headcount.mechanisms.histogram.factory import estimates
from headcount.mechanisms.histogram.stages import Stages
from tests.privacy.histogram.courses import audited, fits

KEYS = [f"k{number:02}" for number in range(40)]
USERS = {
    "nobody": {},
    "one": {"k00": 1},
    "half": dict.fromkeys(KEYS[:20], 1),
    "all": dict.fromkeys(KEYS, 1),
    "often": dict.fromkeys(KEYS, 10**6),
}
CROWD = [{KEYS[(3 * u + k) % 40]: 1 + (u + k) % 3 for k in range(1 + u % 30)} for u in range(120)]


def mechanism_of(
    of: str = "events", relation: Relation = Relation.ADD_REMOVE, epsilon: float = 4
) -> EstimatesMechanism:
    return estimates(Budget(epsilon, 1e-4), domain=KEYS, of=of, relation=relation)


def table_of(choice: AloneChoice, users: list[dict[str, int]]) -> list[int]:
    rows = [(f"u{number}", item, count) for number, user in enumerate(users) for item, count in user.items()]
    user, item, count = (pa.array(list(column)) for column in zip(*rows, strict=True))
    shard = one_shard([contribution_batch(user, item, count)]).with_items(pa.array(KEYS))
    return [a + b for a, b in zip(choice.user_table(shard), choice.items_table(len(KEYS)), strict=True)]


def ranges(choice: AloneChoice) -> tuple[float, float]:
    """The largest ranges of both draws over neighbours, in units of the epsilon of each."""
    tables = {name: table_of(choice, [*CROWD, *([user] if user else [])]) for name, user in USERS.items()}
    pairs = [("nobody", name) for name in USERS]
    if choice.relation is Relation.REPLACE:
        pairs = [(one, other) for one in USERS for other in USERS]

    def largest(exponents: Callable[[list[int]], list[Fraction]], budget: Budget) -> float:
        logs = {name: np.array([-float(x) for x in exponents(table)]) for name, table in tables.items()}
        return max(float(np.ptp(logs[a] - logs[b])) for a, b in pairs) / budget.epsilon

    first, second = 0.0, 0.0
    for place, norms in enumerate(choice.alone):
        first = max(first, largest(lambda t, place=place: choice.alone_norm_exponents(t, place), choice.norm_budget))
        for norm in norms:
            second = max(second, largest(lambda t, norm=norm: choice.alone_exponents(t, norm), choice.alone_budget))
    return first, second


def choice_of(of: str, relation: Relation) -> AloneChoice:
    choice = mechanism_of(of, relation).stages.clip_choice
    assert isinstance(choice, AloneChoice)
    return choice


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("of", ["users", "events"])
def test_each_draw_keeps_its_range_and_uses_it_up(of, relation):
    first, second = ranges(choice_of(of, relation))
    assert 0.99 < first <= 1 + 1e-9 and 0.9 < second <= 1 + 1e-9


def test_users_above_a_norm_that_count_by_their_items_are_caught(monkeypatch):
    """The quantile with a wrong sensitivity: one user moves it by all of its keys."""

    def by_items(self: AloneChoice, shard: Shard) -> list[int]:
        *table, items = super(AloneChoice, self).user_table(shard)
        rows = shard.rows_per_user()
        return [*table, *(int(np.maximum(rows - each.bound**2, 0).sum()) for n in self.alone for each in n), items]

    monkeypatch.setattr(AloneChoice, "user_table", by_items)
    assert ranges(choice_of("users", Relation.ADD_REMOVE))[0] > 10


def test_a_worth_of_one_for_a_user_of_many_keys_is_caught(monkeypatch):
    monkeypatch.setattr(AloneChoice, "most", lambda self, candidate, items: candidate.bound)
    assert ranges(choice_of("users", Relation.ADD_REMOVE))[1] > 2


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("target", ["one", "all", "often"])
def test_counts_that_stand_alone_cost_what_the_account_says(target, relation, make_release, monkeypatch):
    mechanism = mechanism_of(relation=relation, epsilon=16)
    other = [*CROWD, {"k39": 10**6}] if relation is Relation.REPLACE else CROWD
    spent = audited(mechanism, [*CROWD, USERS[target]], other, make_release(target), monkeypatch)
    assert "Totals" not in spent.gaussian | spent.laplace  # they stand alone
    assert fits(spent, mechanism), spent


def test_a_norm_that_is_not_kept_is_caught(make_release, monkeypatch):
    """Users who have twice R, which is refused before any noise; and noise that is for less than R."""
    keys = [f"k{number:03}" for number in range(400)]
    mechanism = estimates(Budget(4, 1e-4), domain=keys)
    few = [{keys[(3 * u + k) % 400]: 1 for k in range(3)} for u in range(2000)]
    neighbours = ([*few, dict.fromkeys(keys[:200], 1)], few)
    assert fits(audited(mechanism, *neighbours, make_release(), monkeypatch), mechanism)
    real = ClipNormStep.apply

    def to_twice(self: ClipNormStep, shard: Shard, subkey: bytes) -> Shard:
        kept = real(self, shard, subkey)
        return dataclasses.replace(kept, count=2 * kept.count)

    with monkeypatch.context() as context, pytest.raises(InputError):
        context.setattr(ClipNormStep, "apply", to_twice)
        audited(mechanism, *neighbours, make_release("twice"), monkeypatch)
    account = mechanism.stages.account
    monkeypatch.setattr(Stages, "split", lambda *_: (1.5 * math.hypot(account.counts_mu, account.totals_mu), 0.0))
    assert not fits(audited(mechanism, *neighbours, make_release("mutated"), monkeypatch), mechanism)


def test_an_account_whose_laplace_noise_costs_too_much_is_refused():
    account = mechanism_of("users").stages.account
    assert math.fsum([account.pure_alone, *(part.epsilon for part in account.alone_choices)]) <= 4
    with pytest.raises(ParameterError, match="stand alone"):
        dataclasses.replace(account, pure_alone=account.pure_alone * 1.1)


def test_few_keys_stand_alone_and_many_do_not(make_release):
    """What it is for: users of a third of the keys each, and users of a few of very many."""
    everybody = [{KEYS[(u + k) % 40]: 1 for k in range(13)} for u in range(600)]
    rows = [(f"u{number}", item) for number, user in enumerate(everybody) for item in user]
    user, item = (pa.array(list(column)) for column in zip(*rows, strict=True))
    batch = contribution_batch(user, item)
    released, decided = mechanism_of("users", epsilon=1).run_decided([batch], make_release())
    assert decided.plan.totals is None and decided.alone
    assert max(abs(count - 195) for count in released.column("count").to_pylist()) < 100
    many = estimates(Budget(1, 1e-8), domain=[*KEYS, *(f"other{n}" for n in range(900))])
    assert many.run_decided([batch.slice(0, 100)], make_release("many"))[1].plan.totals is not None
