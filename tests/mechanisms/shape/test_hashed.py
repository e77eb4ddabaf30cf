"""Hashed anonymized histograms: hashing is inverted exactly, and the whole is as accurate as measured.

Keys and seeds are fixed. Bounds on means are at 5.5 standard errors: each fails with probability below 1e-7 for a fresh key.
"""

import dataclasses
import math

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.shape.buckets import buckets_of, release_salt, sums_by_bucket
from headcount.mechanisms.shape.hashed import hashed_histogram, items_from_shares, unhashed
from headcount.mechanisms.shape.tallies import Tally, make_tally

NOTHING = make_tally(np.zeros(0, dtype=np.int64))
SALT = bytes(range(16))


def shares_of_buckets(items, buckets):
    """The expected share of buckets with each count, where items[r] items have count r: powers of the series itself."""
    share = np.zeros(len(items))
    share[0] = 1.0
    for r in np.flatnonzero(items).tolist():
        hits = np.arange((len(items) - 1) // r + 1)
        factor = np.zeros(len(items))
        factor[hits * r] = stats.binom.pmf(hits, int(items[r]), 1 / buckets)
        share = np.convolve(share, factor)[: len(items)]
    return share


@pytest.mark.parametrize("buckets", [8_000, 20_000, 10**9])
def test_the_inversion_undoes_hashing(buckets):
    """T8: to a thousandth of an item; counts far enough apart from the end that no mass is lost."""
    items = np.zeros(600)
    items[[1, 2, 3, 7, 50, 200]] = [3000, 500, 100, 20, 4, 1]
    found = items_from_shares(shares_of_buckets(items, buckets), buckets)
    assert np.abs(found - items).max() < 1e-3


def test_without_the_inversion_collisions_stay():
    items = np.zeros(60)
    items[1] = 3000
    share = shares_of_buckets(items, 12_000)
    assert share[1] * 12_000 < 2400 and share[2] * 12_000 > 250
    rounded = make_tally(np.arange(1, 60), np.rint(share[1:] * 12_000).astype(np.int64))
    found = unhashed(rounded, 12_000, 3000)
    assert np.abs((found.values * found.cells).sum() - 3000) < 10 and found.cells[0] > 2980


def test_large_counts_stay_as_they_are():
    heavy = make_tally(np.array([1, 1000, 50_000]), np.array([100, 3, 1]))
    found = unhashed(heavy, 4000, 1000)
    assert found.values[-2:].tolist() == [1000, 50_000] and found.cells[-2:].tolist() == [3, 1]
    assert len(unhashed(NOTHING, 10, 2).values) == 0


def test_too_many_used_buckets_are_left_as_they_are():
    """An error would come after the noise, and the job would be run, and paid for, again."""
    full = make_tally(np.array([1]), np.array([60]))
    assert unhashed(full, 100, 25) is full
    assert unhashed(make_tally(np.array([1]), np.array([40])), 100, 25).cells[0] > 45


def distance(rows, counts):
    found = np.sort(np.repeat(np.asarray(rows.column("count")), np.asarray(rows.column("items"))))[::-1]
    long = max(len(found), len(counts))
    return int(
        np.abs(np.pad(found, (0, long - len(found))) - np.pad(np.sort(counts)[::-1], (0, long - len(counts)))).sum()
    )


def uniform(n, rng):
    counts = rng.multinomial(n, np.full(2 * n, 0.5 / n))
    return counts[counts > 0]


def distinct(n, rng):
    return np.ones(n, dtype=np.int64)


# Measured at epsilon 1 under REPLACE with n = 30,000 and four buckets a user: mean and stddev of one run.
@pytest.mark.slow("accuracy")
@pytest.mark.parametrize(
    ("data", "mean", "stddev", "unreversed"), [(uniform, 2200, 1000, 5168), (distinct, 1520, 1280, 8060)]
)
def test_errors_are_as_measured_and_far_below_those_without_the_inversion(data, mean, stddev, unreversed):
    rng = np.random.default_rng(0)
    n, runs, errors, stated = 30_000, 10, [], []
    histogram = hashed_histogram(Budget(1), users=n, relation=Relation.REPLACE)
    for run in range(runs):
        counts = data(n, rng)
        buckets = np.bincount(rng.integers(0, histogram.buckets, len(counts)), weights=counts).astype(np.int64)
        rows = histogram.shape(make_tally(buckets[buckets > 0]), NOTHING, bytes([run]) * 32, b"")
        errors.append(distance(rows, counts))
        stated.append(np.asarray(rows.column("error")).sum())
    assert np.mean(errors) < mean + 5.5 * stddev / math.sqrt(runs)
    assert np.mean(errors) < 0.85 * unreversed
    assert np.mean(errors) / 2 < np.mean(stated) < 2 * np.mean(errors)


def test_the_l2_mode_brings_every_position_near(make_release):
    """1000 users of 300 items; the width is 30 at half of epsilon 2 with n^2 cells, which all noise keeps but for 0.01."""
    rng = np.random.default_rng(3)
    items = rng.zipf(1.5, 1000) % 300
    batch = contribution_batch(pa.array([f"u{k}" for k in range(1000)]), pa.array([f"i{k}" for k in items]))
    histogram = hashed_histogram(Budget(2), users=1000, mode="l2")
    rows = histogram.run([batch], make_release())
    counts = np.sort(np.bincount(items)[np.bincount(items) > 0])[::-1]
    found = np.sort(np.repeat(np.asarray(rows.column("count")), np.asarray(rows.column("items"))))[::-1]
    long = max(len(found), len(counts))
    gaps = np.abs(np.pad(found, (0, long - len(found))) - np.pad(counts, (0, long - len(counts))))
    assert gaps.max() <= 2 * 30
    promise = histogram.guarantee()
    assert promise.epsilon == 2 and sum(step.epsilon for step in promise.mechanisms) == 2
    assert histogram.plan.epsilon == histogram.ranks.epsilon == 1


def test_buckets_are_uniform_and_hang_on_the_salt():
    """Chi-square of 100,000 names in 50 buckets; power: a hash that is constant in one bit fills half of them."""
    names = pa.array([f"name {k}" for k in range(100_000)])
    found = buckets_of(names, SALT, 50)
    assert stats.chisquare(np.bincount(found, minlength=50)).pvalue > 1e-8
    assert (found == buckets_of(names, SALT[::-1], 50)).mean() < 0.03
    assert np.array_equal(found[5:9], buckets_of(names[5:9], SALT, 50))
    numbers = buckets_of(pa.array(np.arange(1000)), SALT, 10**6)
    assert len(set(numbers.tolist())) > 980
    assert release_salt("a") == release_salt("a") != release_salt("b") and len(release_salt("a")) == 16


def test_hashing_keeps_the_total():
    names, sums = pa.array([f"i{k}" for k in range(1000)]), np.arange(1, 1001)
    bucket, held = sums_by_bucket(names, sums, SALT, 37)
    expected = np.bincount(buckets_of(names, SALT, 37), weights=sums, minlength=37).astype(np.int64)
    assert bucket.to_pylist() == np.flatnonzero(expected).tolist()
    assert held.tolist() == expected[expected > 0].tolist()
    assert [len(part) for part in sums_by_bucket(names[:0], sums[:0], SALT, 37)] == [0, 0]


@pytest.mark.seconds
def test_a_run_is_the_same_however_the_data_is_cut(make_release):
    rng = np.random.default_rng(4)
    users, items = [f"u{k}" for k in range(2000)], [f"i{k}" for k in rng.zipf(1.5, 2000)]
    histogram = hashed_histogram(Budget(1), users=2000)
    rows = histogram.run([contribution_batch(pa.array(users), pa.array(items))], make_release())
    order = rng.permutation(2000)
    parts = [
        contribution_batch(pa.array([users[k] for k in part]), pa.array([items[k] for k in part]))
        for part in np.array_split(order, 3)
    ]
    assert histogram.run(parts, make_release()).equals(rows)
    assert histogram.run([], make_release()).schema == rows.schema
    several = hashed_histogram(Budget(1), users=2000, max_items=3)
    assert several.buckets == 24_000 and several.run(parts, make_release()).schema == rows.schema


def test_public_sizes_are_needed():
    with pytest.raises(ParameterError, match="users must be given.*private"):
        hashed_histogram(Budget(1), users=None)
    with pytest.raises(ParameterError, match="need at least 2000 buckets, got 1999"):
        hashed_histogram(Budget(1), users=1000, buckets=1999)
    with pytest.raises(ParameterError, match="got 'central'"):
        hashed_histogram(Budget(1), users=1000, mode="central")
    with pytest.raises(ParameterError, match="at most 2.31 users"):
        hashed_histogram(Budget(1), users=2**40, mode="l2")
    assert hashed_histogram(Budget(1), users=1000).buckets == 4000
    assert isinstance(hashed_histogram(Budget(1), users=1000).guarantee().description(), str)
    assert Tally(*NOTHING).total == 0


def test_parts_that_cost_more_than_the_whole_are_refused():
    made = hashed_histogram(Budget(1), users=1000, mode="l2")
    with pytest.raises(ParameterError, match="cost more than the whole budget"):
        dataclasses.replace(made, ranks=hashed_histogram(Budget(0.51), users=1000).plan)
