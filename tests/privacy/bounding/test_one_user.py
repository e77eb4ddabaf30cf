"""What one user adds to a release, all in all: after sampling, over all shards, and over all buckets. Structural, and exact.

Each audit is shown to catch its mutation: a sample of C + 1, a user who is split over shards, borders of buckets that overlap.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches import user_shards
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import Shard, gather
from headcount.mechanisms.batches.user_shards import split_by_user
from headcount.mechanisms.bounding import clipping
from headcount.mechanisms.bounding.steps import LimitItemsStep, RandClipStep, Step
from headcount.mechanisms.distribution.learn import DistributionRelease, learn_distribution
from headcount.mechanisms.distribution.tables import ExactSamplesStep

KEY = bytes(range(32))


def batch_of(users: list[int], items: list[int], counts: list[int], encoded: bool, names: bool) -> pa.RecordBatch:
    """Contributions with users as text or numbers, as they are or in a dictionary."""
    user = pa.array([f"u{u}" for u in users] if names else users)
    return contribution_batch(user.dictionary_encode() if encoded else user, pa.array(items), pa.array(counts))


def crowd(encoded: bool = False, names: bool = True) -> list[pa.RecordBatch]:
    """200 users with 1 to 40 items, 1 to 9 times each, in three batches of all of them."""
    rng = np.random.default_rng(4)
    rows = [(u, i, int(n)) for u in range(200) for i, n in enumerate(rng.integers(1, 10, rng.integers(1, 41)))]
    rng.shuffle(rows)
    parts = [rows[k::3] for k in range(3)]
    return [batch_of(*map(list, zip(*part, strict=True)), encoded, names) for part in parts]


def shards_of(contributions: list[pa.RecordBatch], shards: int) -> list[Shard]:
    chunks: dict[int, list[bytes]] = {}
    for batch in contributions:
        for shard, chunk in split_by_user(batch, shards):
            chunks.setdefault(shard, []).append(chunk)
    return [gather(held) for held in chunks.values()]


def added(step: Step, contributions: list[pa.RecordBatch], shards: int = 1) -> tuple[int, int]:
    """The most events and the most items that one user adds, over all shards."""
    events: Counter[str] = Counter()
    items: Counter[str] = Counter()
    for shard in shards_of(contributions, shards):
        kept = step.apply(shard, KEY)
        for user, total, distinct in zip(kept.users.to_pylist(), kept.totals(), kept.rows_per_user(), strict=True):
            events[user] += int(total)
            items[user] += int(distinct)
    return max(events.values()), max(items.values())


BOUND = 5
STEPS = {"events": RandClipStep(BOUND), "items": LimitItemsStep(BOUND), "samples": ExactSamplesStep(BOUND)}


def most(name: str, contributions: list[pa.RecordBatch], shards: int = 1) -> int:
    """The most of what the step limits."""
    events, items = added(STEPS[name], contributions, shards)
    return items if name == "items" else events


@pytest.mark.parametrize("name", STEPS)
def test_a_sample_of_one_more_is_refused_by_the_step_itself_and_seen_without_that(name, monkeypatch):
    assert most(name, crowd()) == BOUND
    sample = clipping.sample_units
    monkeypatch.setattr(
        clipping, "sample_units", lambda lanes, units, ends, wanted: sample(lanes, units, ends, wanted + 1)
    )
    with pytest.raises(RuntimeError, match="bounding did not keep its bound"):
        most(name, crowd())
    monkeypatch.setattr(clipping, "_checked", lambda bounded, norms, limit: bounded)
    assert most(name, crowd()) == BOUND + 1


@pytest.mark.parametrize("name", STEPS)
def test_a_sample_of_everything_is_refused_too(name, monkeypatch):
    """No step takes rows that are all kept for users who are all within the bound."""
    monkeypatch.setattr(clipping, "sample_units", lambda lanes, units, ends, wanted: units)
    with pytest.raises(RuntimeError, match="bounding did not keep its bound"):
        most(name, crowd())


def test_a_sample_with_counts_that_cancel_out_is_refused(monkeypatch):
    """An l1 norm is that of the sizes: +7 and -2 on two items are a sum of 5, and a norm of 9."""
    sample = clipping.sample_units

    def unfair(lanes, units, ends, wanted):
        kept = sample(lanes, units, ends, wanted)
        first = ends[:-1][np.diff(ends) > 1]
        kept[first] += 2
        kept[first + 1] -= 2
        return kept

    monkeypatch.setattr(clipping, "sample_units", unfair)
    with pytest.raises(RuntimeError, match="bounding did not keep its bound"):
        most("events", crowd())


# All rows of a user meet in one shard, however batches and shards are cut.


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_a_user_adds_the_bound_over_all_shards(name, encoded, names):
    for shards in (1, 2, 7, 64):
        assert most(name, crowd(encoded, names), shards) == BOUND
    mixed = [*crowd(False, names)[:2], crowd(True, names)[2]]
    assert most(name, mixed, 7) == BOUND


@pytest.mark.parametrize("name", STEPS)
def test_a_user_who_is_split_over_shards_is_caught(name, monkeypatch):
    """The shard by the hash of the row, or by another hash for each batch: every shard then takes a sample of its own."""
    hashes = user_shards._row_hashes

    def by_row(user: pa.Array) -> np.ndarray:
        return hashes(pa.array([f"{u} {k}" for k, u in enumerate(user.to_pylist())]))

    def by_batch(user: pa.Array) -> np.ndarray:
        return hashes(pa.array([f"{len(user)} {u}" for u in user.to_pylist()]))

    uneven = [crowd()[0], *(batch.slice(7 * k) for k, batch in enumerate(crowd()[1:], 1))]
    assert most(name, uneven, 64) == BOUND
    for mutation in (by_row, by_batch):
        monkeypatch.setattr(user_shards, "_row_hashes", mutation)
        assert most(name, uneven, 64) > BOUND
        assert most(name, uneven, 1) == BOUND  # only shards show it


# Buckets of users by their number of samples: each user is in one of them, so that each may spend all of the budget.


def homes(relation: Relation = Relation.ADD_REMOVE) -> dict[int, list[int]]:
    """For each number of samples, the buckets (by their least number) that keep anything of a user with so many."""
    plans = learn_distribution(
        Budget(1), ["a", "b"], samples_per_user="buckets", method="dense", relation=relation
    ).plans()
    edges = {edge + near for g in range(14) for edge in (2**g,) for near in (-1, 0, 1)} | {10_000, 10_001, 10**6}
    sizes = sorted(size for size in edges if size > 0)
    batch = contribution_batch(pa.array(sizes), pa.array(["a"] * len(sizes)), pa.array(sizes))
    (shard,) = shards_of([batch], 1)
    found: dict[int, list[int]] = {size: [] for size in sizes}
    for plan in plans:
        (step,) = plan.steps
        kept = step.apply(shard, KEY)
        for size, total in zip(kept.users.to_pylist(), kept.totals().tolist(), strict=True):
            assert total in (0, plan.samples)
            found[size] += [plan.samples] * (total > 0)
    return found


@pytest.mark.parametrize("relation", list(Relation))
def test_every_user_is_in_exactly_one_bucket(relation):
    assert {size: len(buckets) for size, buckets in homes(relation).items()} == dict.fromkeys(homes(relation), 1)


@pytest.mark.parametrize("by", [1, -1])
def test_borders_that_overlap_or_leave_a_gap_are_caught(by, monkeypatch):
    """One user in two buckets would spend the budget twice; one in none is left out."""
    plan = DistributionRelease._plan

    def moved(self, budget, samples, below):
        made = plan(self, budget, samples, below)
        return made if below is None or samples < 2 else dataclasses.replace(made, below=below + by)

    monkeypatch.setattr(DistributionRelease, "_plan", moved)
    assert {len(buckets) for buckets in homes().values()} == {1, 1 + by}
