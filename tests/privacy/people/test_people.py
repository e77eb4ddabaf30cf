"""Questions about people on neighbours: what one user changes before the noise, exactly; and that the noise covers it.

The exact audit takes logs apart user by user: without one of them, the cells of a table may differ by what that user is in, and
by nothing else. It looks at the code that makes records, before what bounds them once more (`table.steps`), so that a record
that is wrong is seen. Each audit is shown to catch the bugs that it is for.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.gaussian import gaussian_delta
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import Place, contribution_batch
from headcount.mechanisms.batches.user_shards import value_users_of
from headcount.mechanisms.bounding.steps import bound_shard
from headcount.mechanisms.columns.person_rows import asked_of_people
from headcount.mechanisms.people import funnel as funnels
from headcount.mechanisms.people import release as releases
from headcount.mechanisms.people import retention as retentions
from headcount.mechanisms.people.ask import actives, activity, funnel, retention
from headcount.mechanisms.people.records import Records, UserRows, records_of
from headcount.mechanisms.people.table import OneRowStep, make_table
from headcount.mechanisms.randomness.keys import KeyFile, Release
from tests.fixed_key import write_fixed_key
from tests.mechanisms.people.logs import cells, log
from tests.privacy.draws import Draws

COUNTRIES = ["at", "de", "fr"]
STEPS = ["page=/", "page=/cart", "page=/paid"]
PURE = Budget(1.0)
QUESTIONS = {
    "funnel": (
        funnel(PURE, STEPS, within="3m", by=True, domain=COUNTRIES),
        asked_of_people("user", "country", time="at", steps=STEPS, drop_null=True),
    ),
    "activity": (
        activity(PURE, [1, 2, 4], by=True, domain=COUNTRIES),
        asked_of_people("user", "country", drop_null=True),
    ),
    "actives": (
        actives(PURE, "2026-10-06", "2026-10-09", by=True, domain=COUNTRIES),
        asked_of_people("user", "country", time="at", unit="day", drop_null=True),
    ),
    "retention": (
        retention(PURE, "day", "2026-10-05", "2026-10-09", by=True, domain=COUNTRIES),
        asked_of_people("user", "country", time="at", unit="day", drop_null=True),
    ),
}


def differences(name, table):
    """For each user, {cell: how much it changes the number of users there}."""
    made, rows = QUESTIONS[name]
    with_all = cells(made, rows, table, COUNTRIES)
    for user in sorted(set(table["user"].to_pylist())):
        others = table.filter(pa.compute.not_equal(table["user"], user))
        without = cells(made, rows, others, COUNTRIES)
        changed = {cell: with_all.get(cell, 0) - without.get(cell, 0) for cell in {*with_all, *without}}
        yield {cell: number for cell, number in changed.items() if number}


def audit(name, logs=12):
    """Whether one user changes no more than the table is made for: a few cells of one row, by 1 each."""
    made, _ = QUESTIONS[name]
    ends = np.cumsum(made.table.sizes)
    for seed in range(logs):
        size = {"users": 4, "rows": 8, "minutes": 8000} if name in ("retention", "actives") else {}
        for changed in differences(name, log(seed, nulls=seed % 2 == 1, **size)):
            places = {(cell // ends[-1], int(np.searchsorted(ends, cell % ends[-1], side="right"))) for cell in changed}
            if len(changed) > made.table.most or len(places) > 1 or any(number != 1 for number in changed.values()):
                return False
    return True


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_user_changes_no_more_than_its_cells(name):
    assert audit(name)


def each_step_by_itself(self, shard):
    """The mutation: a user counts for each step that it ever did."""
    rows = UserRows.of(shard)
    found = [np.flatnonzero((rows.values[1] >> step) & 1) for step in range(self.steps)]
    pairs = sorted({(int(rows.user[at]), step) for step, places in enumerate(found) for at in places})
    user = np.array([each for each, _ in pairs], dtype=np.int64)
    whose, each = np.unique(user, return_counts=True)
    by = np.array([rows.item[np.argmax(rows.user == one)] for one in whose], dtype=np.int64)
    return records_of(shard.users, rows.items, whose, by, np.array([step for _, step in pairs]), each)


def across_users(self, places, start, user, time):
    """The mutation: the next row of a step may be another user's."""
    return self.sound(places, start, np.zeros_like(user), time)


def cohort_of_all(self, shard):
    """The mutation: ages are counted from the first period in which anybody is there."""
    rows = UserRows.of(shard)
    first = min(each for each in rows.values[0].tolist() if each in self.periods) if len(rows.user) else 0
    kept = [period for period in self.periods if period >= first]
    return dataclasses.replace(self, periods=(*self.periods[: len(self.periods) - len(kept)], *kept)).sound(
        moved(shard, first, self.periods)
    )


def moved(shard, first, periods):
    """All rows earlier by what the first period of all is later than the first of the list."""
    (values,) = shard.values
    return dataclasses.replace(shard, values=(values - (first - periods[0]),))


def two_cohorts(self, shard):
    """The mutation: who comes back after a gap is in a second cohort as well."""
    found = self.sound(shard)
    first = self.first_cells()
    cells, each = [], []
    for user in range(len(found.starts) - 1):
        own = found.cells[found.starts[user] : found.starts[user + 1]].tolist()
        row = int(np.searchsorted(first, own[0], side="right")) - 1
        later = row + own[-1] - first[row]
        if later > row:
            own.append(int(first[later]))
        cells += sorted(set(own))
        each.append(len(set(own)))
    return Records(found.by, np.append(0, np.cumsum(each)), np.array(cells, dtype=np.int64))


@pytest.mark.parametrize(
    ("name", "where", "method", "wrong"),
    [
        ("funnel", funnels.FunnelRecords, "__call__", each_step_by_itself),
        ("funnel", funnels.FunnelRecords, "_depths", across_users),
        ("retention", retentions.RetentionRecords, "__call__", cohort_of_all),
        ("retention", retentions.RetentionRecords, "__call__", two_cohorts),
    ],
)
def test_the_audit_catches(name, where, method, wrong, monkeypatch):
    monkeypatch.setattr(where, "sound", getattr(where, method), raising=False)
    monkeypatch.setattr(where, method, wrong)
    assert not audit(name)


@pytest.mark.parametrize("name", QUESTIONS)
def test_whatever_a_record_is_a_user_is_bounded(name):
    """The steps before the noise keep a user in `most` cells of one row, whatever a record says."""
    made, _ = QUESTIONS[name]
    every = np.arange(3 * made.table.cells)
    batch = contribution_batch(pa.array(["a"] * len(every) + ["b"]), pa.array([*every, 0]))
    shard = value_users_of([batch])[0].pairs
    bounded = bound_shard(shard, made.table.steps, [bytes(32)] * len(made.table.steps), "test")
    held = [set(np.asarray(bounded.items)[bounded.item[bounded.offsets[u] : bounded.offsets[u + 1]]]) for u in (0, 1)]
    assert all(1 <= len(each) <= made.table.most for each in held)
    ends = np.cumsum(made.table.sizes)
    for each in held:
        assert len({(cell // ends[-1], np.searchsorted(ends, cell % ends[-1], side="right")) for cell in each}) == 1
    assert OneRowStep((2, 1)).apply(shard, b"").rows_per_user().tolist() == [2, 1]


def worst_mu(plan, size, relation):
    """The largest distance of neighbours in one row, in standard deviations, over all 0/1 vectors of a user."""
    own, shared = plan.stddev**2 - plan.shared_stddev**2, plan.shared_stddev**2
    inverse = np.linalg.inv(own * np.eye(size) + shared * np.ones((size, size)))
    vectors = np.array(list(itertools.product((0, 1), repeat=size)), dtype=float)
    if relation is Relation.REPLACE:
        vectors = np.array([one - other for one in vectors for other in vectors])
    return math.sqrt(np.einsum("ij,jk,ik->i", vectors, inverse, vectors).max())


@pytest.mark.parametrize("relation", Relation)
def test_gaussian_noise_covers_every_user_of_a_triangle(relation):
    """Exactly, over all users: in one row where one is added, in one or two rows where one is replaced. And it is tight."""
    budget = Budget(1.0, 1e-6)
    table = make_table(budget, (5, 4, 3, 2, 1), 5, relation, "gaussian")
    alone = [worst_mu(plan, size, Relation.ADD_REMOVE) for size, plan in zip(table.sizes, table.plans, strict=True)]
    worst = max(worst_mu(plan, size, relation) for size, plan in zip(table.sizes, table.plans, strict=True))
    if relation is Relation.REPLACE:
        worst = max(worst, *(math.hypot(one, other) for one, other in itertools.combinations(alone, 2)))
    assert 0.9 * budget.delta < gaussian_delta(budget.epsilon, worst, 1.0) <= budget.delta
    assert table.losses().mu >= worst
    shared = [plan.shared is not None for plan in table.plans]
    assert any(shared) == (relation is Relation.ADD_REMOVE)


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize(("sizes", "most"), [((3,), 1), ((4, 3, 2, 1), 4)])
def test_laplace_noise_covers_every_user(sizes, most, relation):
    """What a user moves, by l1, over the scale of each row: added, or from one row to another."""
    table = make_table(Budget(1.0), sizes, most, relation, "laplace")
    moved = sorted(min(most, size) / float(plan.scale) for size, plan in zip(sizes, table.plans, strict=True))
    assert all(plan.grid == 0 for plan in table.plans)
    loss = moved[-1] if relation is Relation.ADD_REMOVE else 2 * moved[-1]
    assert loss == pytest.approx(1.0) and loss <= 1.0 + 1e-12
    assert all(plan.delta == 0 for plan in table.plans)


@pytest.fixture
def release(tmp_path):
    write_fixed_key(tmp_path / "key")
    return Release(KeyFile(str(tmp_path / "key")), "people")


def drawn(made, release, number):
    """Noisy counts of 2 * `number` values: each of the first half has one user, the others nobody."""
    users = contribution_batch(pa.array([f"u{k}" for k in range(number)]), pa.array(np.arange(number), pa.int64()))
    return made.run([users], release)["count"].to_numpy()


def audited(made, release, number=40_000):
    """The largest log ratio of the chances of a noisy count of 0 and less, or 1 and more, between a user and none; less 5.2
    standard deviations of it: a false alarm has a chance below 1e-6, and noise for twice epsilon is seen but for 1e-6."""
    found = drawn(made, release, number)
    with_one, without = (found[half] >= 1 for half in (slice(0, number), slice(number, None)))
    worst = 0.0
    for one, other in ((with_one.mean(), without.mean()), (1 - without.mean(), 1 - with_one.mean())):
        slack = 5.2 * math.sqrt((1 - one) / (one * number) + (1 - other) / (other * number))
        worst = max(worst, abs(math.log(one / other)) - slack)
    return worst


def test_the_noise_that_is_drawn_keeps_epsilon_and_half_of_it_is_seen(release):
    domain = {"by": True, "domain": range(80_000), "item_type": int}
    made = activity(Budget(1.0), [1], **domain)
    assert audited(made, release) <= 1.0
    half = make_table(Budget(2.0), (1,), 1, Relation.ADD_REMOVE, "laplace")
    assert audited(dataclasses.replace(made, table=half), release) > 1.0


def test_another_input_changes_all_noise_and_the_same_one_none(release):
    made = activity(Budget(1.0, 1e-6), [1, 10, 13], by=True, domain=COUNTRIES, noise="gaussian")
    rows = asked_of_people("user", "country", drop_null=True)

    def cells_of(table):
        batch = [rows.of_schema(table.schema).batch(each, Place()) for each in table.to_batches()]
        return made.run(batch, release)["share"].to_pylist()

    table = log(1, users=400, rows=4000)
    one = cells_of(table)
    assert one == cells_of(table)
    more = pa.concat_tables([table, table.slice(0, 1).set_column(0, "user", pa.array(["new"]))])
    changed = [before != after for before, after in zip(one, cells_of(more), strict=True)]
    assert all(changed), "noise is drawn on a fine grid, so that no two are equal by chance"


def test_names_take_their_part_and_all_adds_up():
    made = funnel(Budget(1.0, 1e-6), STEPS, by=True)
    guarantee = made.guarantee()
    assert sum(step.epsilon for step in guarantee.mechanisms) <= 1.0
    assert (guarantee.epsilon, guarantee.delta) == (1.0, 1e-6)
    assert sum(step.delta for step in guarantee.mechanisms) <= 1e-6
    both = funnel(Budget(1.0, 1e-6), STEPS, by=True, noise="gaussian").guarantee()
    assert sum(step.delta for step in both.mechanisms) <= 1e-6 and both.delta == 1e-6
    assert funnel(Budget(1.0, 1e-6), STEPS).guarantee().delta == 0.0


def drawn_cost(relation, release, monkeypatch):
    """What the noise that is drawn costs at most, of names and of cells: one user changes one of each, or two if replaced."""
    draws = Draws(monkeypatch)
    users = contribution_batch(pa.array([f"u{k}" for k in range(400)]), pa.array([f"c{k % 4}" for k in range(400)]))
    activity(Budget(1.0, 1e-3), [1], by=True, noise="laplace", relation=relation).run([users], release)
    assert [each.kind for each in draws.noise] == ["truncated_laplace", "discrete_laplace"]
    return relation.users * sum(1 / each.scale for each in draws.noise)


@pytest.mark.parametrize("relation", Relation)
def test_names_and_cells_are_drawn_for_epsilon_together_and_names_for_all_of_it_are_seen(
    relation, release, monkeypatch
):
    with monkeypatch.context() as patch:
        assert 0.999 < drawn_cost(relation, release, patch) <= 1
    rounds = releases.rounds_of
    monkeypatch.setattr(releases, "rounds_of", lambda budget, *more: rounds(Budget(1.0, 1e-3), *more))
    assert drawn_cost(relation, release, monkeypatch) > 1.7
