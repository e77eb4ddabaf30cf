"""The choice whether counts of a public list stand alone: exact ranges of its draw on neighbours, and the course that follows.

No sampling: what one user moves is compared over all norms, caps and users that could move it most.
"""

from __future__ import annotations

import dataclasses
import math

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
    "one often": {"k00": 10**6},
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


def largest_range(choice: AloneChoice) -> float:
    """The largest range of the draw over neighbours and caps, in units of its epsilon."""
    tables = {name: table_of(choice, [*CROWD, *([user] if user else [])]) for name, user in USERS.items()}
    pairs = [("nobody", name) for name in USERS]
    if choice.relation is Relation.REPLACE:
        pairs = [(one, other) for one in USERS for other in USERS]
    found = 0.0
    for place in range(len(choice.caps)):
        logs = {name: np.array([-float(x) for x in choice.alone_exponents(t, place)]) for name, t in tables.items()}
        found = max(found, *(float(np.ptp(logs[a] - logs[b])) for a, b in pairs))
    return found / choice.alone_budget.epsilon


def choice_of(of: str, relation: Relation) -> AloneChoice:
    choice = mechanism_of(of, relation).stages.clip_choice
    assert isinstance(choice, AloneChoice)
    return choice


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("of", ["users", "events"])
def test_the_draw_keeps_its_range_and_uses_it_up(of, relation):
    """But for users who are replaced and count once: norms of both kinds rise together there, and half of it is spare."""
    spare = (of, relation) == ("users", Relation.REPLACE)
    assert 0.99 < largest_range(choice_of(of, relation)) * (2 if spare else 1) <= 1 + 1e-9


def test_replaced_users_who_cost_what_added_ones_do_are_caught(monkeypatch):
    """A norm is above R of one kind and below R of the other: losses fall there and rise here."""
    monkeypatch.setattr(Relation, "users", 1)
    assert largest_range(choice_of("events", Relation.REPLACE)) > 1.9


def test_users_above_a_norm_that_count_by_their_items_are_caught(monkeypatch):
    """The number of users above with a wrong sensitivity: one user moves it by all of its keys."""

    def by_items(self: AloneChoice, shard: Shard) -> list[int]:
        *table, items = super(AloneChoice, self).user_table(shard)
        rows = shard.rows_per_user()
        for norms in self.alone:
            table += [int(np.maximum(rows - each.bound**2, 0).sum()) for each in norms] + [0]
        return [*table, items]

    monkeypatch.setattr(AloneChoice, "user_table", by_items)
    assert largest_range(choice_of("users", Relation.ADD_REMOVE)) > 10


def test_events_that_are_not_taken_by_item_are_caught():
    choice = choice_of("users", Relation.ADD_REMOVE)
    tables = [table_of(choice, [*CROWD, *more]) for more in ([], [USERS["all"]])]
    one, other = (np.array([-float(x) for x in choice.alone_exponents([*t[:-1], 1])]) for t in tables)
    assert np.ptp(one - other) > 30 * choice.alone_budget.epsilon


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
    keys = [f"k{number:03}" for number in range(100)]
    mechanism = estimates(Budget(4, 1e-4), domain=keys, noise="gaussian")
    few = [{keys[(3 * u + k) % 100]: 1 for k in range(3)} for u in range(2000)]
    neighbours = ([*few, dict.fromkeys(keys[:50], 1)], few)
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
    """What it is for: users of a third of the keys each. Of a longer list it is not even asked."""
    everybody = [{KEYS[(u + k) % 40]: 1 for k in range(13)} for u in range(600)]
    rows = [(f"u{number}", item) for number, user in enumerate(everybody) for item in user]
    user, item = (pa.array(list(column)) for column in zip(*rows, strict=True))
    batch = contribution_batch(user, item)
    released, decided = mechanism_of("users", epsilon=1).run_decided([batch], make_release())
    assert decided.plan.totals is None and decided.alone
    assert max(abs(count - 195) for count in released.column("count").to_pylist()) < 100
    many = estimates(Budget(1, 1e-8), domain=[*KEYS, *(f"other{number}" for number in range(61))])
    assert many.stages.account.alone_choice is None
    assert many.run_decided([batch], make_release("many"))[1].plan.totals is not None
