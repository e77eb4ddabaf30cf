"""Each bounding function against a slow twin in plain Python, against its exact law, and against its promise."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from headcount.mechanisms.batches.names import hash64
from headcount.mechanisms.batches.shards import Shard, gather
from headcount.mechanisms.batches.user_shards import split_by_user
from headcount.mechanisms.bounding.clipping import clip_grid, clip_norm, limit_items, limit_per_item, rand_clip
from headcount.mechanisms.bounding.steps import (
    ClipNormStep,
    LimitItemsStep,
    LimitPerItemStep,
    RandClipStep,
    bound_shard,
    check_kept,
    promise_of,
    step_subkeys,
)
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.histogram.fixed import unknown_domain_steps
from headcount.mechanisms.randomness.lane_ids import user_lane_ids
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.subkeys import block_key, lane_key

SUBKEY = bytes(range(32))
Contents = dict[str, dict[str, int]]

people = st.dictionaries(
    st.sampled_from([f"u{k}" for k in range(5)]),
    st.dictionaries(st.sampled_from([f"i{k}" for k in range(12)]), st.integers(1, 9), min_size=1, max_size=12),
    min_size=1,
    max_size=5,
)


def shard_of(data: Contents) -> Shard:
    rows = [(user, item, count) for user, items in data.items() for item, count in items.items()]
    user, item, count = (list(column) for column in zip(*rows, strict=True))
    batch = pa.RecordBatch.from_pydict(
        {"user": pa.array(user), "item": pa.array(item), "count": pa.array(count, pa.int64())}
    )
    return gather([chunk for _, chunk in split_by_user(batch, 1)])


def contents(shard: Shard) -> Contents:
    names = shard.items.to_pylist()
    found: Contents = {}
    for u, user in enumerate(shard.users.to_pylist()):
        rows = range(int(shard.offsets[u]), int(shard.offsets[u + 1]))
        kept = {names[int(shard.item[row])]: int(shard.count[row]) for row in rows}
        if kept:
            found[user] = kept
    return found


def _canonical(items: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(items.items(), key=lambda pair: (int(hash64(pa.array([pair[0]]))[0]), pair[0]))


def _positions(user: str, items: dict[str, int], population: int, wanted: int) -> set[int]:
    """A uniform sample of positions, drawn one at a time from the user's own lane."""
    rows = _canonical(items)
    ids = user_lane_ids(
        lane_key(SUBKEY),
        pa.array([user]),
        np.array([0, len(rows)]),
        pa.array([name for name, _ in rows]),
        np.array([count for _, count in rows]),
    )
    lane = Lanes(block_key(SUBKEY), ids)
    leave_out = 2 * wanted > population
    drawn: set[int] = set()
    while len(drawn) < (population - wanted if leave_out else wanted):
        drawn.add(int(lane.uniform_below(population, np.array([0]))[0]))
    return set(range(population)) - drawn if leave_out else drawn


def rand_clip_twin(data: Contents, bound: int) -> Contents:
    clipped = {}
    for user, items in data.items():
        total = sum(items.values())
        if total > bound:
            units = [name for name, count in _canonical(items) for _ in range(count)]
            clipped[user] = dict(Counter(units[p] for p in _positions(user, items, total, bound)))
        else:
            clipped[user] = items
    return clipped


def limit_items_twin(data: Contents, most: int) -> Contents:
    limited = {}
    for user, items in data.items():
        if len(items) > most:
            rows = _canonical(items)
            limited[user] = dict(rows[p] for p in _positions(user, items, len(rows), most))
        else:
            limited[user] = items
    return limited


@pytest.mark.seconds
@given(people, st.integers(1, 30))
@settings(deadline=None, max_examples=60)
def test_sampling_equals_its_slow_twin_and_keeps_its_bound(data, bound):
    clipped = contents(rand_clip(shard_of(data), bound, SUBKEY))
    assert clipped == rand_clip_twin(data, bound)
    limited = contents(limit_items(shard_of(data), bound, SUBKEY))
    assert limited == limit_items_twin(data, bound)
    for user, items in data.items():
        assert sum(clipped[user].values()) == min(bound, sum(items.values()))
        assert all(0 < clipped[user][name] <= items[name] for name in clipped[user])
        assert len(limited[user]) == min(bound, len(items))


@pytest.mark.seconds
@given(people, st.integers(1, 2000), st.sampled_from([1, 2]))
@settings(deadline=None, max_examples=100)
def test_clip_norm_equals_its_slow_twin_and_keeps_its_bound(data, bound, p):
    limit = bound << clip_grid(bound)
    twin = {}
    for user, items in data.items():
        if p == 1:
            norm = sum(items.values())
            scaled = {name: min(count * limit // bound, count * limit // norm) for name, count in items.items()}
        else:
            square = sum(count * count for count in items.values())
            scaled = {
                name: min(count * limit // bound, math.isqrt(count * count * limit * limit // square))
                for name, count in items.items()
            }
        twin[user] = {name: value for name, value in scaled.items() if value}
    assert contents(clip_norm(shard_of(data), bound, p)) == twin
    assert all(sum(value**p for value in kept.values()) <= limit**p for kept in twin.values())


def test_clip_norm_is_exact_where_products_are_what_no_float_holds():
    data = {"u": {"a": 10**9, "b": 10**9 - 1, "c": 1}, "v": {"a": 10**9 - 63, "b": 2**29 + 1}}
    for p, bound in itertools.product((1, 2), (7, 10**9 - 1)):
        kept = contents(clip_norm(shard_of(data), bound, p))
        limit = bound << clip_grid(bound)
        for user, items in data.items():
            power = sum(count**p for count in items.values())
            for name, count in items.items():
                exact = count * limit // power if p == 1 else math.isqrt(count * count * limit * limit // power)
                assert kept[user].get(name, 0) == exact


def test_limit_per_item_caps_each_count():
    data = {"u": {"a": 5, "b": 1}, "v": {"a": 2}}
    assert contents(limit_per_item(shard_of(data), 2)) == {"u": {"a": 2, "b": 1}, "v": {"a": 2}}


@pytest.mark.seconds
@pytest.mark.parametrize(("counts", "bound"), [((6, 3, 1), 4), ((6, 3, 1), 8), ((5, 5), 5)])
def test_rand_clip_has_exactly_the_hypergeometric_law(counts, bound):
    """40,000 users with the same rows, chi-square against the exact law; false alarm 1e-6, and a shift of 3 % in the share
    of the first item is seen with power above 0.99."""
    users = 40_000
    total = sum(counts)
    batch = pa.RecordBatch.from_pydict(
        {
            "user": pa.array([f"u{u}" for u in range(users) for _ in counts]),
            "item": pa.array([f"i{k}" for _ in range(users) for k in range(len(counts))]),
            "count": pa.array(list(counts) * users, pa.int64()),
        }
    )
    clipped = rand_clip(gather([chunk for _, chunk in split_by_user(batch, 1)]), bound, SUBKEY)
    names = clipped.items.to_pylist()
    kept = np.zeros((users, len(counts)), dtype=int)
    owner = np.repeat(np.arange(users), clipped.rows_per_user())
    kept[owner, [int(names[i][1:]) for i in clipped.item]] = clipped.count
    assert (kept.sum(axis=1) == bound).all()
    for k, count in enumerate(counts):
        law = stats.hypergeom(total, count, bound)
        support = [v for v in range(count + 1) if law.pmf(v) * users >= 5]
        observed = np.array([(kept[:, k] == v).sum() for v in support])
        expected = np.array([law.pmf(v) for v in support]) * users
        rest = users - observed.sum(), users - expected.sum()
        if rest[1] > 1e-6:
            observed, expected = np.append(observed, rest[0]), np.append(expected, rest[1])
        statistic = ((observed - expected) ** 2 / expected).sum()
        assert stats.chi2.sf(statistic, len(observed) - 1) > 1e-6 / len(counts)


@pytest.mark.parametrize(
    ("bound", "kept"),
    [
        (Bound(l0=3, l1=6, l2=4, linf=3), True),
        (Bound(l0=2), False),
        (Bound(l1=5), False),
        (Bound(l2=3), False),
        (Bound(linf=2), False),
        (Bound(l1=3, grid=1), True),
        (Bound(l1=2, grid=1), False),
    ],
)
def test_a_carried_promise_is_checked_before_another_builds_on_it(bound, kept):
    shard = dataclasses.replace(shard_of({"u": {"a": 3, "b": 2, "c": 1}, "v": {"a": 1}}), bound=bound)
    if kept:
        check_kept(shard)
    else:
        with pytest.raises(InputError, match="are not bounded by"):
            check_kept(shard)


def test_each_step_draws_with_its_own_label_parameters_and_release():
    """Two samples of 5 of 100 items agree with probability below 1e-7; with shared bits they would be the same."""
    shard = shard_of({"u": {f"i{k}": 1 for k in range(100)}})

    def sample(key: bytes, release: str, label: str, step) -> set[str]:
        (subkey,) = step_subkeys(key, release, label, [step])
        return set(contents(step.apply(shard, subkey))["u"])

    base = sample(SUBKEY, "r", "A", RandClipStep(5))
    others = {
        "key": sample(SUBKEY[::-1], "r", "A", RandClipStep(5)),
        "id": sample(SUBKEY, "s", "A", RandClipStep(5)),
        "label": sample(SUBKEY, "r", "B", RandClipStep(5)),
        "step": sample(SUBKEY, "r", "A", LimitItemsStep(5)),
    }
    for name, other in others.items():
        assert other != base, name
    assert not base <= sample(SUBKEY, "r", "A", RandClipStep(6)), "parameter"
    assert base == sample(SUBKEY, "r", "A", RandClipStep(5))


@pytest.mark.seconds
@settings(deadline=None)
@given(people, st.integers(1, 30), st.integers(1, 9))
def test_capping_first_loses_no_event_that_could_count(data, bound, cap):
    """Each user counts with as many events as bound and cap allow; sampling first keeps no more, and often fewer."""
    cap = min(cap, bound)
    steps = unknown_domain_steps(bound, cap)
    kept = contents(bound_shard(shard_of(data), steps, [SUBKEY] * 2, ""))
    other = contents(bound_shard(shard_of(data), steps[::-1], [SUBKEY] * 2, ""))
    for user, counts in data.items():
        assert max(kept[user].values()) <= cap
        assert sum(kept[user].values()) == min(bound, sum(min(count, cap) for count in counts.values()))
        assert sum(other[user].values()) <= sum(kept[user].values())


def test_a_repeated_item_does_not_crowd_out_the_others():
    data = {"u": {"x": 10**6, "y": 1, "z": 1}}
    first, then = unknown_domain_steps(3, 1)
    assert contents(bound_shard(shard_of(data), [first, then], [SUBKEY] * 2, "")) == {"u": {"x": 1, "y": 1, "z": 1}}
    assert contents(bound_shard(shard_of(data), [then, first], [SUBKEY] * 2, "")) == {"u": {"x": 1}}


def test_steps_promise_what_they_keep():
    assert promise_of(unknown_domain_steps(9, 2), Bound(), "A") == Bound(l0=9, l1=9, linf=2, label='["A"]')
    assert promise_of([RandClipStep(9)], Bound(), "A") == Bound(l0=9, l1=9, linf=9, label='["A"]')
    both = promise_of([LimitItemsStep(3), LimitPerItemStep(2)], Bound(), "B")
    assert both == Bound(l0=3, l1=6, linf=2, label='["B"]')
    assert promise_of([LimitItemsStep(3)], Bound(), "").l1 is None
    once = promise_of([RandClipStep(9)], Bound(), "A")
    assert promise_of([LimitPerItemStep(2)], once, "B").label == '["A", "B"]'
    assert promise_of([ClipNormStep(3, 2)], Bound(), "") == Bound(l2=3, linf=3, grid=clip_grid(3), label='[""]')
    for cap, linf in ((1, 1), (7, 3)):
        capped = [LimitPerItemStep(cap), ClipNormStep(3, 1)]
        assert promise_of(capped, Bound(), "") == Bound(l1=3, l2=3, linf=linf, grid=clip_grid(3), label='[""]')
        capped = [LimitPerItemStep(cap), ClipNormStep(3, 2)]
        assert promise_of(capped, Bound(), "") == Bound(l2=3, linf=linf, grid=clip_grid(3), label='[""]')
    with pytest.raises(ParameterError, match="put ClipNorm last"):
        promise_of([ClipNormStep(3, 2), RandClipStep(3)], Bound(), "")
    with pytest.raises(ParameterError, match="put ClipNorm last"):
        promise_of([ClipNormStep(1024, 1), RandClipStep(3)], Bound(), "")
    assert RandClipStep(np.int64(5)) == RandClipStep(5) and type(RandClipStep(np.int64(5)).bound) is int
    for wrong in (0, -1, 2.5, True, 10**10, "3"):
        with pytest.raises(ParameterError, match="bound must be an integer"):
            RandClipStep(wrong)
    with pytest.raises(ParameterError, match="p must be 1 or 2, got 3"):
        ClipNormStep(1, 3)
