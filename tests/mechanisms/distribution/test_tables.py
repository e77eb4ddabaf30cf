"""What is counted before anything is learned: the statistic, and the nearest point of the simplex."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.batches.shards import gather
from headcount.mechanisms.batches.user_shards import split_by_user
from headcount.mechanisms.distribution.learn import (
    BUCKETS,
    learn_distribution,
    on_simplex,
)
from headcount.mechanisms.distribution.tables import (
    ExactSamplesStep,
    ValueCounts,
    merge_values,
    pack_values,
    split_values,
    unpack_values,
)
from headcount.mechanisms.errors import InputError
from tests.mechanisms.distribution.user_counts import names, rows_of, table_of


def same(a: ValueCounts, b: ValueCounts) -> bool:
    pairs = [(a.offsets, b.offsets), (a.value, b.value), (a.users, b.users)]
    return a.symbols.equals(b.symbols) and all(np.array_equal(x, y) for x, y in pairs)


# --- the statistic -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [3, 400])
def test_the_statistic_is_the_same_however_it_is_cut(k):
    counts = np.random.default_rng(1).multinomial(12, np.random.default_rng(2).dirichlet(np.ones(k)), 500)
    batches = [rows_of(counts[part]) for part in np.array_split(np.arange(500), 4)]
    domain, expected = pa.array(names(k)), table_of(counts)
    for shards in (1, 5):
        chunks: dict[int, list[bytes]] = {}
        for batch in batches:
            for shard, chunk in split_values(batch, shards):
                chunks.setdefault(shard, []).append(chunk)
        parts = [merge_values(each, domain) for each in chunks.values()]
        assert sum(int(part.totals().sum()) for part in parts) == 12 * 500
        whole = merge_values([chunk for each in chunks.values() for chunk in each], domain)
        assert same(whole, expected) and same(unpack_values(pack_values(whole)), expected)
    assert same(merge_values([], domain), table_of(np.zeros((1, k), dtype=np.int64)))


def test_users_keep_exactly_so_many_samples_or_none():
    counts = np.array([[3, 0, 1], [2, 2, 9], [0, 5, 0], [0, 3, 1], [1, 1, 1]])
    shard = gather(chunk for _, chunk in split_by_user(rows_of(counts), 1))
    kept = ExactSamplesStep(4).apply(shard, bytes(32))
    assert sorted(kept.totals().tolist()) == [0, 4, 4, 4, 4]
    below = ExactSamplesStep(4, 8).apply(shard, bytes(32))
    assert sorted(below.totals().tolist()) == [0, 0, 4, 4, 4]


def test_every_user_is_in_one_bucket():
    """A user at the edge of two that counted in both would cost twice epsilon."""
    totals = np.unique([*range(1, 70), *(b + d for b in BUCKETS for d in (-1, 0, 1) if b + d > 0), 20_000])
    shard = gather(chunk for _, chunk in split_by_user(rows_of(totals[:, None]), 1))
    plans = learn_distribution(Budget(1, 1e-6), names(1), samples_per_user="buckets").plans(None)
    kept = sum((each.steps[0].apply(shard, bytes(32)).totals() > 0).astype(int) for each in plans)
    assert kept.tolist() == [1] * len(totals)


def test_a_sample_without_replacement_keeps_the_distribution():
    """Users with 3 to 60 samples, of which 3 are kept: the shares of symbols stay, to five standard errors (1e-6 for all), and
    counts are binomial: with replacement there would be more users who have a symbol thrice."""
    rng = np.random.default_rng(7)
    p = np.array([0.6, 0.3, 0.1])
    counts = np.array([rng.multinomial(size, p) for size in rng.integers(3, 61, 20_000)])
    shard = gather(chunk for _, chunk in split_by_user(rows_of(counts), 1))
    batch = ExactSamplesStep(3).apply(shard, bytes(32)).to_batch()
    table = merge_values([chunk for _, chunk in split_values(batch, 1)], pa.array(names(3)))
    assert table.totals() / 60_000 == pytest.approx(p, abs=5 * math.sqrt(0.24 / 60_000))
    for i in range(3):
        value, users = table.row(i)
        thrice = int(users[value == 3].sum())
        assert thrice / 20_000 == pytest.approx(p[i] ** 3, abs=5 * math.sqrt(p[i] ** 3 / 20_000))


def test_counts_that_no_step_bounded_are_refused():
    with pytest.raises(InputError, match="a count exceeds 10000"):
        list(split_values(rows_of(np.array([[10_001]])), 1))


# --- the simplex -------------------------------------------------------------------------------------------------------


def test_the_projection_is_the_nearest_point_of_the_simplex():
    rng = np.random.default_rng(0)
    for k in (1, 2, 5, 60):
        for scale in (0.01, 1, 10):
            point = rng.normal(1 / k, scale, k)
            found = on_simplex(point)
            assert found.min() >= 0 and found.sum() == pytest.approx(1)
            for other in rng.dirichlet(np.full(k, 0.3), 50):  # an obtuse angle to every point of a convex set
                assert (point - found) @ (other - found) <= 1e-9
    assert on_simplex(np.array([0.2, 0.3, 0.5])) == pytest.approx([0.2, 0.3, 0.5])
