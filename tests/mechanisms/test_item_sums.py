"""The sums of items at every bound and cap, against their definition in rationals."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.mechanisms.batches import gather, split_by_user
from headcount.mechanisms.item_sums import FRACTION_BITS, Ladder, merged_sums, split_sums, total_sums
from headcount.mechanisms.packing import pack, unpack

LADDER = Ladder(bounds=(1, 3, 10, 100), caps=(1, 2, 5))


def shard_of(rows):
    users, items, counts = zip(*rows, strict=True)
    batch = pa.RecordBatch.from_pydict(
        {"user": pa.array(users), "item": pa.array(items), "count": pa.array(counts, pa.int64())}
    )
    return gather(chunk for _, chunk in split_by_user(batch, 1))


def sums_by_definition(rows, ladder):
    """{(item, cap): sums at each bound}, with each user's line rounded down as documented."""
    pairs = {}
    for user, item, count in rows:
        pairs[user, item] = pairs.get((user, item), 0) + count
    totals = {}
    for (user, _), count in pairs.items():
        totals[user] = totals.get(user, 0) + count
    sums = {}
    for (user, item), n in pairs.items():
        m = totals[user]
        slope = Fraction(n * 2**FRACTION_BITS // m, 2**FRACTION_BITS)
        for cap in (None, *ladder.caps):
            level = n if cap is None else min(n, cap)
            added = [level if c >= m or (cap is not None and c * n >= cap * m) else c * slope for c in ladder.bounds]
            before = sums.get((item, cap), [Fraction(0)] * len(ladder.bounds))
            sums[item, cap] = [b + a for b, a in zip(before, added, strict=True)]
    return sums


def sums_by_code(shard, ladder, shards=3, least=0):
    """All sums as a sorted list of (cap, sums), since items have no names there."""
    chunks = {}
    for home, chunk in split_sums(shard, ladder, shards):
        chunks.setdefault(home, []).append(chunk)
    found = []
    for held in chunks.values():
        for sums in merged_sums(held, ladder, least):
            exact = sums.whole.astype(object) + sums.fraction.astype(object) * Fraction(1, 2**FRACTION_BITS)
            assert (np.diff(sums.most) <= 0).all()
            for most, line in zip(sums.most, exact.tolist(), strict=True):
                assert max(line) <= most + 1
                found.append((str(sums.cap), line))
    return sorted(found)


rows_of_users = st.lists(
    st.tuples(st.integers(0, 5).map("u{}".format), st.integers(0, 6).map("i{}".format), st.integers(1, 300)),
    min_size=1,
    max_size=60,
)


@settings(deadline=None, max_examples=150)
@given(rows_of_users)
def test_sums_are_those_of_the_definition(rows):
    expected = sorted((str(cap), line) for (_, cap), line in sums_by_definition(rows, LADDER).items())
    assert sums_by_code(shard_of(rows), LADDER) == expected


def test_totals_beyond_32_bits_are_exact():
    rows = [("a", "x", 2**61), ("a", "y", 3), ("b", "x", 2**40), ("b", "y", 2**40 + 7), ("c", "y", 4)]
    expected = sorted((str(cap), line) for (_, cap), line in sums_by_definition(rows, LADDER).items())
    assert sums_by_code(shard_of(rows), LADDER) == expected


def test_many_users_do_not_wrap():
    """2**16 users of 10^4 events at a bound of 10^4: products of 2**59, which the halves keep apart."""
    ladder = Ladder((1, 9_999, 10_000))
    shard = shard_of([(f"u{n}", "x", 10_000 if n % 2 else 10_001) for n in range(1 << 16)])
    ((_, line),) = sums_by_code(shard, ladder)
    half = 1 << 15
    below = Fraction((10_001 * 2**30) // 10_001, 2**30)
    assert line == [2 * half, 2 * half * 9_999, half * 10_000 + half * 10_000 * below]


@settings(deadline=None, max_examples=100)
@given(rows_of_users)
def test_no_user_adds_more_than_the_bound(rows):
    """The proof of every choice: for each bound and cap, one user's sums add up to min(m, C) at most, exactly."""
    one = [("u", item, count) for _, item, count in rows]
    m = sum(count for _, _, count in one)
    for cap in (None, *LADDER.caps):
        lines = [line for name, line in sums_by_code(shard_of(one), LADDER) if name == str(cap)]
        for bound, total in zip(LADDER.bounds, map(sum, zip(*lines, strict=True)), strict=True):
            assert total <= min(m, bound)


def test_the_total_is_that_of_all_items():
    rng = np.random.default_rng(3)
    rows = [(f"u{u}", f"i{i}", int(n)) for u, i, n in zip(*rng.integers(1, 50, (3, 500)), strict=True)]
    shard = shard_of(rows)
    lines = [line for cap, line in sums_by_code(shard, LADDER) if cap == "None"]
    assert total_sums(shard, LADDER) == [int(sum(column) * 2**FRACTION_BITS) for column in zip(*lines, strict=True)]


def test_items_below_the_least_are_left_out_and_no_others():
    rng = np.random.default_rng(4)
    rows = [(f"u{u}", f"i{i}", 1) for u, i in zip(rng.integers(0, 80, 900), rng.zipf(1.5, 900) % 40, strict=True)]
    shard = shard_of(rows)
    kept = sums_by_code(shard, LADDER, least=50)
    everything = sums_by_code(shard, LADDER)
    assert len(kept) < len(everything)
    assert [line for line in kept if max(line[1]) >= 50] == [line for line in everything if max(line[1]) >= 50]


@pytest.mark.parametrize("shards", [1, 2, 9])
def test_sharding_changes_nothing(shards):
    rng = np.random.default_rng(5)
    rows = [(f"u{u}", f"i{i}", int(n)) for u, i, n in zip(*rng.integers(1, 30, (3, 300)), strict=True)]
    assert sums_by_code(shard_of(rows), LADDER, shards) == sums_by_code(shard_of(rows), LADDER, 1)


def test_a_line_that_ends_at_its_cap_is_not_left_out():
    """Without a cap a user's 3 of 30,000 events are just below one at a bound of 10,000, for the slope is rounded down; with
    a cap of one they are one. A million such users are more than one count apart."""
    ladder = Ladder((1, 10_000), (1,))
    ((_, chunk),) = split_sums(shard_of([("u", "x", 3), ("u", "y", 29_997)]), ladder, 1)
    columns, _ = unpack(chunk)
    for name in ("level", "slope"):
        columns[name] = pa.array(np.asarray(columns[name]) * 1_000_000)
    sums = [sums for sums in merged_sums([pack(columns)], ladder, 1_000_000) if sums.cap == 1]
    assert sorted(sums[0].whole[:, 1]) == [1_000_000, 1_000_000]
    assert (sums[0].whole[:, 1] <= sums[0].most + 1).all()
