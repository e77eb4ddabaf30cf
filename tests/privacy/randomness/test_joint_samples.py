"""The joint law of samples: equal users, two steps of one user, rounds, levels and equal cells, each with its shared lane.

Keys are fixed; over the choice of the key each test of independence fails with probability 1e-8, all of this file below 1e-6.
Each mutation makes two samples equal, or nearly so, and is seen with probability above 1 - 1e-9.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import Shard, gather
from headcount.mechanisms.batches.user_shards import split_by_user, users_of
from headcount.mechanisms.bounding import clipping, steps
from headcount.mechanisms.bounding.steps import LimitItemsStep, RandClipStep, Step
from headcount.mechanisms.count_release.papers.plume import plume
from headcount.mechanisms.counting import noisy
from headcount.mechanisms.counting import sums as counting_sums
from headcount.mechanisms.partitions.rounds import rounds_of
from headcount.mechanisms.partitions.select import named_in_rounds
from headcount.mechanisms.sampled.leaves import Leaves
from headcount.mechanisms.sampled.plan import SamplePlan
from headcount.mechanisms.sampled.quantiles import Hierarchy
from tests.privacy.independence import independent

KEY = bytes(range(32))
USERS = 4000


def equal_users(items: int = 4, events: int = 1, users: int = USERS) -> pa.RecordBatch:
    """Users with the same items, each so often."""
    user = pa.array(np.repeat(np.arange(users), items))
    return contribution_batch(
        user, pa.array(np.tile(np.arange(items), users)), pa.array(np.full(items * users, events))
    )


def shard_of(batch: pa.RecordBatch) -> Shard:
    return gather(chunk for _, chunk in split_by_user(batch, 1))


def outcome(kept: Shard) -> np.ndarray:
    """What each user keeps, as one number, in the order of the users."""
    digits = kept.count * 10 ** np.asarray(kept.items)[kept.item]
    number = np.add.reduceat(np.append(digits, 0), kept.offsets[:-1])
    number[kept.rows_per_user() == 0] = 0
    return number[np.argsort(np.asarray(kept.users))]


def of_nobody(users: Callable[..., Any] = clipping.user_lane_ids) -> Callable[..., Any]:
    """Lane ids that do not hold the user."""
    return lambda key, who, *rows: users(key, pa.array([0] * len(who)), *rows)


SAMPLES: dict[str, tuple[Step, pa.RecordBatch]] = {
    "items": (LimitItemsStep(2), equal_users(4)),
    "events": (RandClipStep(3), equal_users(2, 4)),
    "all but one": (RandClipStep(3), equal_users(4)),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_equal_users_are_sampled_independently_and_lanes_without_the_user_are_caught(name, monkeypatch):
    """Pairs of users with the same rows: 2000 of them. In the mutation all users keep the same."""
    step, batch = SAMPLES[name]
    first = outcome(step.apply(shard_of(batch), KEY))
    assert len(np.unique(first)) >= 4
    assert independent(first[::2], first[1::2], classes=4)
    monkeypatch.setattr(clipping, "user_lane_ids", of_nobody())
    assert len(np.unique(outcome(step.apply(shard_of(batch), KEY)))) == 1


def spied(monkeypatch: pytest.MonkeyPatch, seen: list[Shard]) -> None:
    """Keeps what every sample of items gives."""
    limit = clipping.limit_items

    def recorded(shard: Shard, items: int, subkey: bytes) -> Shard:
        kept = limit(shard, items, subkey)
        seen.append(kept)
        return kept

    monkeypatch.setattr(steps, "limit_items", recorded)


def without_label(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutation: a step's subkey does not hold its label."""
    derive = steps.derive_subkey
    monkeypatch.setattr(steps, "derive_subkey", lambda key, id, label, parameters: derive(key, id, "", parameters))


@pytest.mark.parametrize("mutated", [False, True])
def test_two_steps_of_one_user_sample_independently_and_subkeys_without_the_label_are_caught(
    mutated, monkeypatch, make_release
):
    """The same users, rows and bound under two labels: 4000 pairs of samples."""
    if mutated:
        without_label(monkeypatch)
    found = [
        outcome(shard_of(noisy.bounded_batches([equal_users()], (LimitItemsStep(2),), make_release(), label)[0]))
        for label in ("One", "Other")
    ]
    assert independent(*found) != mutated
    assert np.array_equal(*found) == mutated


@pytest.mark.parametrize("mutated", [False, True])
def test_rounds_of_sips_sample_independently_and_one_sample_for_all_rounds_is_caught(
    mutated, monkeypatch, make_release
):
    """4000 users with the same four items, of which none is named: in both rounds all are sampled from."""
    if mutated:
        without_label(monkeypatch)
    seen: list[Shard] = []
    spied(monkeypatch, seen)
    rounds = rounds_of(Budget(1e-3, 1e-9), "sips", 2, 2, Relation.ADD_REMOVE)
    named = named_in_rounds(users_of([equal_users()]), rounds, make_release(), "Sips", int)
    assert len(named) == 0 and len(seen) == 2
    assert independent(*map(outcome, seen)) != mutated


@pytest.mark.parametrize("mutated", [False, True])
def test_the_two_samples_of_plume_are_independent_and_one_for_both_is_caught(mutated, monkeypatch, make_release):
    """4000 users with the same four items, all of which are named by two of each user, and then counted by two."""
    if mutated:
        without_label(monkeypatch)
    seen: list[Shard] = []
    spied(monkeypatch, seen)
    rows = plume(Zcdp(1, 1e-6), max_items=2, item_type=int).run([equal_users()], make_release())
    assert rows.num_rows == 4 and len(seen) == 2
    assert independent(*map(outcome, seen)) != mutated


# Levels of a hierarchy, and cells of a sampled histogram: only the node, or the item, tells their lanes apart.

PLAN = SamplePlan(Fraction(1, 3), 1, 1.0, 1e-3, Relation.ADD_REMOVE, 12)


def level_samples(make_release: Any) -> tuple[np.ndarray, np.ndarray]:
    """A tree whose even leaves have 30 users each, and the odd ones none: the sampled users of each leaf, and of its parent."""
    leaves = np.repeat(np.arange(0, 4096, 2), 30)
    batch = contribution_batch(pa.array(np.arange(len(leaves))), pa.array(leaves))
    hierarchy = Hierarchy(PLAN, Leaves(0, 4096, 4096), 2, 12)
    tree = hierarchy.tree(hierarchy.run([batch], make_release()))
    return tree.sampled[-1][::2], tree.sampled[-2]


@pytest.mark.parametrize("mutated", [False, True])
def test_levels_and_equal_cells_are_sampled_independently_and_lanes_without_the_node_are_caught(
    mutated, monkeypatch, make_release
):
    """2048 leaves with an only parent each, all of 30 users: Bin(30, 1/3) of its own for each of the 4096 nodes."""
    if mutated:
        ids = counting_sums.item_lane_ids
        monkeypatch.setattr(
            counting_sums, "item_lane_ids", lambda key, items, sums: ids(key, pa.array([0] * len(items)), sums)
        )
    leaf, parent = level_samples(make_release)
    if (
        mutated
    ):  # all of one sum are sampled alike: nothing varies, and the difference of a parent and its child tells it
        assert len(np.unique(leaf)) == 1 and np.array_equal(leaf, parent)
    else:
        assert independent(leaf, parent)
        assert independent(leaf[::2], leaf[1::2]) and independent(parent[::2], parent[1::2])
