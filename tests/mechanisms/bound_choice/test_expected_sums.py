"""The sums of items at every bound and cap, against their definition in rationals."""

import itertools
from fractions import Fraction
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.mechanisms.batches.packing import pack, unpack
from headcount.mechanisms.batches.shards import gather, no_users
from headcount.mechanisms.batches.user_shards import split_by_user
from headcount.mechanisms.bound_choice import expected_sums
from headcount.mechanisms.bound_choice.expected_sums import (
    FRACTION_BITS,
    CandidateGrid,
    merged_sums,
    split_sums,
    total_sums,
)

GRID = CandidateGrid(bounds=(1, 3, 10, 100), caps=(1, 2, 5))


def shard_of(rows):
    users, items, counts = zip(*rows, strict=True)
    batch = pa.RecordBatch.from_pydict(
        {"user": pa.array(users), "item": pa.array(items), "count": pa.array(counts, pa.int64())}
    )
    return gather(chunk for _, chunk in split_by_user(batch, 1))


def sums_by_definition(rows, grid):
    """{(item, cap): sums at each bound}, with each user's line rounded down as documented."""
    pairs = {}
    for user, item, count in rows:
        pairs[user, item] = pairs.get((user, item), 0) + count
    sums = {}
    for cap in (None, *grid.caps):
        held = {pair: count if cap is None else min(count, cap) for pair, count in pairs.items()}
        for (user, item), n in held.items():
            m = sum(count for (other, _), count in held.items() if other == user)
            slope = Fraction(n * 2**FRACTION_BITS // m, 2**FRACTION_BITS)
            added = [n if c >= m else c * slope for c in grid.bounds]
            before = sums.get((item, cap), [Fraction(0)] * len(grid.bounds))
            sums[item, cap] = [b + a for b, a in zip(before, added, strict=True)]
    return sums


def sums_by_code(shard, grid, shards=3, least=0):
    """All sums as a sorted list of (cap, sums), since items have no names there."""
    chunks = {}
    for home, chunk in split_sums(shard, grid, shards):
        chunks.setdefault(home, []).append(chunk)
    found = []
    for held in chunks.values():
        for sums in merged_sums(held, grid, grid.least(least)):
            exact = sums.whole.astype(object) + sums.fraction.astype(object) * Fraction(1, 2**FRACTION_BITS)
            assert (np.diff(sums.most) <= 0).all()
            for most, line in zip(sums.most, exact.T.tolist(), strict=True):
                assert max(line) <= most + 1
                found.append((str(sums.cap), line))
    return sorted(found)


rows_of_users = st.lists(
    st.tuples(st.integers(0, 5).map("u{}".format), st.integers(0, 6).map("i{}".format), st.integers(1, 300)),
    min_size=1,
    max_size=60,
)


@pytest.mark.seconds
@settings(deadline=None, max_examples=150)
@given(rows_of_users)
def test_sums_are_those_of_the_definition(rows):
    expected = sorted((str(cap), line) for (_, cap), line in sums_by_definition(rows, GRID).items())
    assert sums_by_code(shard_of(rows), GRID) == expected


def test_totals_beyond_32_bits_are_exact():
    """Of the largest counts that there are, 10^9 on one item."""
    rows = [("a", "x", 10**9), ("a", "y", 3), ("c", "y", 4)] + [("b", f"i{n}", 10**9 - n) for n in range(6)]
    for grid in (GRID, CandidateGrid(GRID.bounds, (2, 2**20, 10**9 - 3)), CandidateGrid((2, 2**31), (5, 10**9))):
        expected = sorted((str(cap), line) for (_, cap), line in sums_by_definition(rows, grid).items())
        assert sums_by_code(shard_of(rows), grid) == expected


def test_many_users_do_not_wrap():
    """2**16 users of 10^4 events at a bound of 10^4: products of 2**59, which the halves keep apart."""
    grid = CandidateGrid((1, 9_999, 10_000))
    shard = shard_of([(f"u{n}", "x", 10_000 if n % 2 else 10_001) for n in range(1 << 16)])
    ((_, line),) = sums_by_code(shard, grid)
    half = 1 << 15
    below = Fraction((10_001 * 2**30) // 10_001, 2**30)
    assert line == [2 * half, 2 * half * 9_999, half * 10_000 + half * 10_000 * below]


def sums_of_user(counts, grid):
    """{cap: (the user's events under it, what the user adds to all items at each bound)}, as the code has it."""
    found = sums_by_code(shard_of([("u", item, count) for item, count in counts.items()]), grid)
    events = {str(cap): sum(min(n, cap or n) for n in counts.values()) for cap in (None, *grid.caps)}
    return {
        cap: (m, [sum(column) for column in zip(*(line for name, line in found if name == cap), strict=True)])
        for cap, m in events.items()
    }


def excess(counts, grid):
    """By how much the user's sums exceed min(m, C), at most, over all bounds and caps."""
    return max(
        total - min(m, bound)
        for m, totals in sums_of_user(counts, grid).values()
        for bound, total in zip(grid.bounds, totals, strict=True)
    )


@pytest.mark.seconds
@settings(deadline=None, max_examples=100)
@given(st.dictionaries(st.integers(0, 30).map("i{}".format), st.integers(1, 300), min_size=1))
def test_no_user_adds_more_than_the_bound(counts):
    """The proof of every choice: for each bound and cap, one user's sums add up to min(m, C) at most, exactly."""
    assert excess(counts, GRID) <= 0


SIX = {f"i{n}": 7 for n in range(6)}  # under a cap of one, slopes of 1/6: in units of 2**-30, 2/3 beyond a whole number


def rounded(lines, count, rows, totals, grid):
    """Slopes that are rounded to nearest."""
    step, level, slope = lines(count, rows, totals, grid)
    total = np.repeat(totals, rows)
    return step, level, slope + (2 * ((count << FRACTION_BITS) % total) >= total)


def uncapped(lines, count, rows, totals, grid):
    """Slopes of all events of an item, also those beyond the cap."""
    return lines(np.full(len(count), 7), rows, totals, grid)


@pytest.mark.parametrize("mutation", [rounded, uncapped])
def test_a_line_that_is_too_steep_is_caught(mutation, monkeypatch):
    assert excess(SIX, CandidateGrid((3,), (1,))) <= 0
    monkeypatch.setattr(expected_sums, "_lines", partial(mutation, expected_sums._lines))
    assert excess(SIX, CandidateGrid((3,), (1,))) > 0


def expected_counts(counts, bound, cap):
    """What is expected to count of each item, over all samples of at most `bound` of the events that the cap leaves."""
    events = [item for item, count in counts.items() for _ in range(min(count, cap))]
    samples = list(itertools.combinations(events, min(bound, len(events))))
    return {item: Fraction(sum(sample.count(item) for sample in samples), len(samples)) for item in counts}


def test_sums_are_what_is_expected_to_count():
    """A user who repeats itself, at every bound and cap, from all samples; the rounding is below C 2**-30."""
    counts, grid = {"x": 5, "y": 2, "z": 1, "w": 1}, CandidateGrid(tuple(range(1, 11)), (1, 2, 3, 5))
    found = sums_by_code(shard_of([("u", item, count) for item, count in counts.items()]), grid)
    for cap in grid.caps:
        lines = sorted(line for name, line in found if name == str(cap))
        exact = zip(*(expected_counts(counts, bound, cap).values() for bound in grid.bounds), strict=True)
        for line, expected in zip(lines, sorted(map(list, exact)), strict=True):
            below = [e - f for f, e in zip(line, expected, strict=True)]
            assert all(0 <= b < Fraction(c, 2**FRACTION_BITS) for b, c in zip(below, grid.bounds, strict=True))


def test_all_events_in_place_of_those_under_the_cap_are_caught(monkeypatch):
    """With the user's total before the cap, an item beside a much repeated one would seem to count for nearly nothing."""
    grid, counts = CandidateGrid((2,), (1,)), {"x": 97, "y": 1, "z": 1, "w": 1}
    assert sums_of_user(counts, grid)["1"] == (4, [2])
    lines = expected_sums._lines
    monkeypatch.setattr(expected_sums, "_lines", lambda n, rows, m, grid: lines(n, rows, m * 0 + 100, grid))
    assert sums_of_user(counts, grid)["1"][1][0] < Fraction(1, 12)


def test_the_total_is_that_of_all_items():
    rng = np.random.default_rng(3)
    rows = [(f"u{u}", f"i{i}", int(n)) for u, i, n in zip(*rng.integers(1, 50, (3, 500)), strict=True)]
    shard = shard_of(rows)
    lines = [line for cap, line in sums_by_code(shard, GRID) if cap == "None"]
    assert total_sums(shard, GRID) == [int(sum(column) * 2**FRACTION_BITS) for column in zip(*lines, strict=True)]


def test_items_below_the_least_are_left_out_and_no_others():
    rng = np.random.default_rng(4)
    users, names, counts = rng.integers(0, 80, 900), rng.zipf(1.5, 900) % 40, rng.zipf(1.5, 900) % 100 + 1
    rows = [(f"u{u}", f"i{i}", int(n)) for u, i, n in zip(users, names, counts, strict=True)]
    shard = shard_of(rows)
    kept = sums_by_code(shard, GRID, least=50)
    everything = sums_by_code(shard, GRID)
    assert len(kept) < len(everything)
    assert [line for line in kept if max(line[1]) >= 50] == [line for line in everything if max(line[1]) >= 50]


def test_only_bounds_at_which_no_sum_matters_are_left_out(monkeypatch):
    """A least that ascends with the bound, as thresholds do, and differs by cap: what reaches it is there, block by block."""
    rng = np.random.default_rng(6)
    rows = [(f"u{u}", f"i{i}", int(n)) for u, i, n in zip(*rng.zipf(1.2, (3, 9000)) % 200 + 1, strict=True)]
    chunks = [chunk for _, chunk in split_sums(shard_of(rows), GRID, 1)]
    least = {cap: [(cap or 6) * bound for bound in GRID.bounds] for cap in (*GRID.caps, None)}

    def reached(least_asked, block):
        monkeypatch.setattr(expected_sums, "_BLOCK", block)
        return sorted(
            (str(sums.cap), place, whole, fraction)
            for sums in merged_sums(chunks, GRID, least_asked)
            for place in range(len(sums.whole))
            for whole, fraction in zip(sums.whole[place].tolist(), sums.fraction[place].tolist(), strict=True)
            if whole >= least[sums.cap][place]
        )

    everything = reached(GRID.least(0), 1 << 20)
    assert len(everything) > 50
    assert all(reached(least, block) == everything for block in (1 << 20, 64, 3))
    shapes = {sums.whole.shape for sums in merged_sums(chunks, GRID, least)}
    assert min(shapes)[0] < len(GRID.bounds), "something was left out"


def test_without_users_there_is_nothing():
    assert not list(split_sums(no_users(pa.string()), GRID, 3))
    assert total_sums(no_users(pa.string()), GRID) == [0] * len(GRID.bounds)


@pytest.mark.parametrize("shards", [1, 2, 9])
def test_sharding_changes_nothing(shards):
    rng = np.random.default_rng(5)
    rows = [(f"u{u}", f"i{i}", int(n)) for u, i, n in zip(*rng.integers(1, 30, (3, 300)), strict=True)]
    assert sums_by_code(shard_of(rows), GRID, shards) == sums_by_code(shard_of(rows), GRID, 1)


def test_items_that_a_cap_frees_are_not_left_out():
    """Beside 29,999 events on another item, one is expected to count for a third at a bound of 10,000, and under a cap for one.

    So a cap can take an item over the least that no cap did, and at any of the caps.
    """
    grid = CandidateGrid((1, 10_000), (1, 5))
    ((_, chunk),) = split_sums(shard_of([("u", "x", 1), ("u", "y", 29_999)]), grid, 1)
    columns, _ = unpack(chunk)
    for name in ("level", "slope"):
        columns[name] = pa.array(np.asarray(columns[name]) * 1_000_000)
    for least in (400_000, 1_000_000):
        found = {sums.cap: sums for sums in merged_sums([pack(columns)], grid, grid.least(least))}
        assert sorted(found[1].whole[1]) == [1_000_000, 1_000_000]
        assert sorted(found[5].whole[1]) == [1_000_000, 5_000_000]
        assert min(found[None].whole[1]) < 333_334
        assert all((sums.whole[1] <= sums.most + 1).all() for sums in found.values())
