"""Audits of counts in levels: all stages on neighbours, over the same course of what was released. Exact, no false alarms.

Each of the known bugs breaks it:

    the norm of the leaves in place of that of all levels   a user of many leaves of one country is above the norm
    each level scaled by itself, where numbers add up       the levels disagree before any noise
    names on the whole key                                  a country of many small cities has no name
    a home that other users decide on                       a user moves another one's home
    the noise of one user more or less for a replaced one   a user who moves to another country costs more
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.shards import MOST_COUNT, Shard, one_shard
from headcount.mechanisms.batches.threads import Parts
from headcount.mechanisms.bounding import steps
from headcount.mechanisms.bounding.clipping import clip_grid, squared_norms
from headcount.mechanisms.columns.keys import JOINT
from headcount.mechanisms.counting import noisy
from headcount.mechanisms.counting.noisy import bounded_users
from headcount.mechanisms.errors import InputError
from headcount.mechanisms.levels import release as module
from headcount.mechanisms.levels.release import LevelsMechanism, in_levels
from headcount.mechanisms.levels.tree import UNIT, Tree, weights_of
from tests.privacy.histogram.courses import BUDGET, Course, Seen, Spent, User, batch_of, compared, fits
from tests.privacy.independence import Words

KINDS: dict[str, dict[str, Any]] = {
    "users": {},
    "events": {"of": "events"},
    "events up to 3": {"of": "events", "max_per_item": 3},
    "home": {"home": True},
}
CITIES = [JOINT.join((f"c{c}", f"r{r}", f"t{t}")) for c in range(3) for r in range(3) for t in range(4)]
SMALL = [JOINT.join(("c9", "r0", f"small{n}")) for n in range(400)]  # of a country that has no city of many users


def crowd() -> list[User]:
    """Users of five cities each, most of them in one country, and of one small city each."""
    users = []
    for u in range(300):
        items = Counter({CITIES[(12 * (u % 3) + 5 * k + u) % 36]: 1 + (u + k) % 3 for k in range(5)})
        items[SMALL[u]] += 1
        users.append(dict(items))
    return users


TARGETS: dict[str, User] = {
    "one-country": dict.fromkeys(CITIES[:12], 1),
    "everything": {item: MOST_COUNT for item in CITIES + SMALL},
    "once": dict.fromkeys(CITIES, 1),
    "one-city": {CITIES[0]: 10**6},
    "own": {JOINT.join((f"own{n}", "r", "t")): 7 for n in range(5)},
    "own-cities": {JOINT.join(("c0", "r0", f"own{n}")): 1 for n in range(50)},
}


@functools.cache
def mechanism_of(name: str, relation: Relation = Relation.ADD_REMOVE) -> LevelsMechanism:
    return in_levels(BUDGET, depth=3, relation=relation, **KINDS[name])


class LevelCourse(Course):
    """Runs of counts in levels with what the first of them has released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        monkeypatch.setattr(module, "noisy_counts", self.counts)
        monkeypatch.setattr(module, "group_rows", self.rows)
        monkeypatch.setattr(LevelsMechanism, "estimates", lambda *_: (None, None))  # what follows the last draw


def seen_of(
    mechanism: LevelsMechanism, runs: list[list[User]], release: Any, monkeypatch: pytest.MonkeyPatch
) -> list[Seen]:
    with monkeypatch.context() as context:
        course = LevelCourse(context)
        return [course.run(mechanism, users, release) for users in runs]


def audited(mechanism: LevelsMechanism, one: list[User], other: list[User], release: Any, monkeypatch: Any) -> Spent:
    return compared(*seen_of(mechanism, [one, other], release, monkeypatch))


@pytest.mark.parametrize("name", KINDS)
def test_one_user_more_or_less_costs_what_the_account_says(name, make_release, monkeypatch):
    mechanism, without = mechanism_of(name), crowd()
    for target in TARGETS:
        with_target = [*without, TARGETS[target]]
        for number, (one, other) in enumerate(((without, with_target), (with_target, without))):
            spent = audited(mechanism, one, other, make_release(f"{target}-{number}"), monkeypatch)
            assert fits(spent, mechanism), (target, spent)


@pytest.mark.parametrize("name", KINDS)
def test_a_replaced_user_costs_what_the_account_says(name, make_release, monkeypatch):
    mechanism = mechanism_of(name, Relation.REPLACE)
    for one, other in itertools.combinations(TARGETS, 2):
        neighbours = ([*crowd(), TARGETS[one]], [*crowd(), TARGETS[other]])
        spent = audited(mechanism, *neighbours, make_release(f"{one}-{other}"), monkeypatch)
        assert fits(spent, mechanism), (one, other, spent)


def test_the_audit_is_sharp(make_release, monkeypatch):
    """The user who has everything uses up all of the counts' and totals' part; at home, one row of one city uses nearly all."""
    for name, target, least in (
        ("users", "everything", 0.75),
        ("events", "everything", 0.95),
        ("home", "one-city", 0.95),
    ):
        mechanism = mechanism_of(name)
        spent = audited(mechanism, crowd(), [*crowd(), TARGETS[target]], make_release(name), monkeypatch)
        account = mechanism.stages.account
        assert sum(spent.gaussian.values()) > least * (account.counts_mu**2 + account.totals_mu**2), (name, spent)


def small_users() -> list[User]:
    """All users of up to three of six leaves, with counts of 1, 2 or 40."""
    leaves = [
        JOINT.join(key) for key in (("a", "x", "1"), ("a", "x", "2"), ("a", "y", "1"), ("b", "x", "1"), ("b", "z", "9"))
    ]
    leaves.append(JOINT.join(("q", "q", "q")))
    users = []
    for size in (1, 2, 3):
        for chosen in itertools.combinations(leaves, size):
            users += [dict(zip(chosen, counts, strict=True)) for counts in itertools.product((1, 2, 40), repeat=size)]
    return users


@pytest.mark.parametrize("name", KINDS)
def test_no_small_user_exceeds_the_norm_of_all_levels(name, make_release):
    """The exact norms of all small users, through the mechanism's own steps, for every norm that can be chosen."""
    mechanism, users = mechanism_of(name), small_users()
    shard = one_shard(batch_of(users))
    if mechanism.home:
        shard = module.at_home(shard, bytes(32))
    tree = Tree.of_named([f"3:{JOINT.join(key)}" for key in (("a", "x", "1"), ("a", "y", "1"), ("b", "x", "1"))], 3)
    cells = mechanism.cells(shard, tree, 5 if mechanism.of == "events" else 0)
    names, _ = mechanism.stages.ends()[0]
    choice, most = mechanism.stages.clip_choice, 0.0
    for bound in [UNIT] if choice is None else sorted({each.bound for each in choice.candidates}):
        chosen = None if choice is None else choice.ends()[0]._replace(bound=bound, items=9)
        plan = mechanism.stages.plan(names, chosen)
        (batch,) = bounded_users(
            Parts.of(mechanism.of_counts(cells, tree, plan)), plan.counts_steps, make_release(), "x"
        )
        unit = bound << clip_grid(bound)
        norms = squared_norms(one_shard([batch.replace_schema_metadata(None)])) ** 0.5 / unit
        assert norms.max() <= 1
        most = max(most, norms.max())
    assert most > 0.99


# Mutations.


def test_the_norm_of_the_leaves_for_that_of_all_levels_is_caught(make_release, monkeypatch):
    """A user with d leaves of one country has a norm of the root of d on the leaves, and of d at the country."""
    real = steps.clip_norm

    def by_leaves(shard: Shard, bound: int, p: int) -> Shard:
        if not pa.types.is_string(shard.items.type):
            return real(shard, bound, p)
        leaf = weights_of(3)[3]
        leaves = dataclasses.replace(shard, count=np.where(shard.count % leaf == 0, shard.count, 0))
        norm = np.sqrt(squared_norms(leaves).astype(float))
        scale = np.repeat(np.minimum(1.0, bound / np.maximum(norm, 1.0)), shard.rows_per_user())
        return dataclasses.replace(
            shard, count=np.maximum(1, (shard.count * scale).astype(np.int64) << clip_grid(bound))
        )

    monkeypatch.setattr(steps, "clip_norm", by_leaves)
    mechanism, neighbours = mechanism_of("events"), (crowd(), [*crowd(), TARGETS["everything"]])
    with pytest.raises(InputError, match="not bounded"):  # as soon as it is made
        audited(mechanism, *neighbours, make_release(), monkeypatch)
    monkeypatch.setattr(noisy, "check_kept", lambda shard: None)
    assert not fits(audited(mechanism, *neighbours, make_release(), monkeypatch), mechanism)


@pytest.mark.parametrize("name", ["home", "events up to 3"])
def test_noise_for_one_user_more_is_caught_where_one_is_replaced(name, make_release, monkeypatch):
    """A user who moves to another country adds to its cells there, and takes as much away from those here."""
    here, there = (dict.fromkeys(cities, 10**6) for cities in (CITIES[:12], CITIES[24:]))
    neighbours = ([*crowd(), here], [*crowd(), there])
    for relation, held in ((Relation.REPLACE, True), (Relation.ADD_REMOVE, False)):
        mechanism = mechanism_of(name, relation)
        assert fits(audited(mechanism, *neighbours, make_release("moved"), monkeypatch), mechanism) == held


def off_by(seen: Seen, tree: Tree) -> float:
    """How far the sums of nodes are from those of their children, before noise, by the number of users."""
    (stage,) = [each for each in seen.stages if each.label.endswith("Counts/NoisyCounts") and "Named" not in each.label]
    sums = np.array([stage.sums[name] for name in tree.cells.to_pylist()]) / tree.weight / 2.0**stage.plan.grid
    inner = [node for node, cells in enumerate(tree.children) if len(cells)]
    return max(abs(sums[node] - sums[tree.children[node]].sum()) for node in inner) / len(crowd())


def test_each_level_scaled_by_itself_is_caught(make_release, monkeypatch):
    """One factor for all levels leaves sums that add up, but for rounding. Levels that are scaled by themselves do not."""
    mechanism, found, trees, real = mechanism_of("events"), [], [], Tree.user_cells
    for number in range(2):
        with monkeypatch.context() as context:
            course = LevelCourse(context)
            context.setattr(Tree, "user_cells", lambda self, *given: (trees.append(self), real(self, *given))[1])
            if number:
                by_itself = lambda self, cells, tree, plan: tree.level_by_level(cells, plan.kept.bound // UNIT)  # noqa: E731
                context.setattr(LevelsMechanism, "of_counts", by_itself)
            found.append(off_by(course.run(mechanism, crowd(), make_release("levels")), trees[-1]))
    assert found[0] < 0.05 < 0.5 < found[1]


def test_names_on_the_whole_key_are_caught(make_release, monkeypatch):
    """A country whose users are all in small cities has a name, as its users are counted at its own level."""
    rows = mechanism_of("users").run(batch_of(crowd()), make_release())
    assert "1:c9" in rows.column("item").to_pylist()
    real = module.user_nodes

    def of_leaves(shard: Shard, depth: int) -> Shard:
        made = real(shard, depth)
        return made.with_items(pa.array([each for each in made.items.to_pylist() if each.startswith(f"{depth}:")]))

    monkeypatch.setattr(module, "user_nodes", of_leaves)
    rows = mechanism_of("users").run(batch_of(crowd()), make_release())
    assert "1:c9" not in rows.column("item").to_pylist()


def test_a_home_depends_on_its_user_alone():
    """With any other users beside, and a lot that is drawn anew only where the user's own rows are others."""
    users = [{CITIES[0]: 2, CITIES[1]: 2, CITIES[2]: 1}, {CITIES[3]: 9, CITIES[4]: 1}, {CITIES[5]: 1, CITIES[6]: 1}]

    def homes(those: list[User]) -> list[str]:
        shard = module.at_home(one_shard(batch_of(those)), bytes(range(32)))
        assert shard.rows_per_user().tolist() == [1] * len(those) and set(shard.count.tolist()) == {1}
        found = dict(zip(shard.users.to_pylist(), shard.items.take(pa.array(shard.item)).to_pylist(), strict=True))
        return [found[f"u{number}"] for number in range(3)]

    alone = homes(users)
    assert alone[0] in CITIES[:2] and alone[1] == CITIES[3] and alone[2] in CITIES[5:7]
    assert homes([*users, *crowd()]) == alone
    lots = [module.at_home(one_shard(batch_of(users)), bytes([n]) * 32) for n in range(60)]
    first = Counter(lot.items.to_pylist()[lot.item[lot.users.to_pylist().index("u0")]] for lot in lots)
    assert set(first) == set(CITIES[:2])  # one of two by lot, 60 times: all alike with a chance of 2^-59


@pytest.mark.parametrize("name", KINDS)
def test_no_two_stages_share_a_word(name, make_release, monkeypatch):
    words = Words(monkeypatch)
    mechanism_of(name).run(batch_of(crowd()), make_release())
    assert words.all > 0 and words.twice == 0
