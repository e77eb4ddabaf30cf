"""Bounding what one user contributes (Liu et al., ICML 2023, Algorithms 1 and 3), vectorised over a shard of many users.

Each function takes all rows of its users and returns rows whose norm, per user, keeps the bound that it names, whatever
the data. `rand_clip` and `limit_items` draw a uniform sample; their randomness comes from one lane per user above
the bound, bound to that user's rows, so that a repeated run draws the same sample and changed rows draw a new one.
`clip_norm` scales instead, on an integer grid and rounding down, so that no float can push a norm above its bound.
Proof: docs/proofs/bounding.md.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pyarrow as pa

from headcount.mechanisms.batches.run_sums import INT64_MAX, run_sums
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.randomness.lane_ids import user_lane_ids
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.subkeys import block_key, lane_key


def rand_clip(shard: Shard, bound: int, subkey: bytes) -> Shard:
    """At most `bound` events of each user, a uniform sample without replacement: l1 <= bound, counts >= 1."""
    above = shard.totals() > bound
    if not above.any():
        return shard
    rows, offsets, lanes = _lanes(shard, above, subkey)
    count = shard.count.copy()
    count[rows] = sample_units(lanes, count[rows], offsets, bound)
    rows = np.flatnonzero(count)
    clipped = shard.keep(rows, count[rows])
    return _checked(clipped, run_sums(np.abs(clipped.count), clipped.offsets[:-1]), bound)


def limit_items(shard: Shard, items: int, subkey: bytes) -> Shard:
    """At most `items` distinct items of each user, chosen uniformly, with their whole counts: l0 <= items."""
    rows = sampled_items(shard, items, subkey)
    limited = shard.keep(rows, shard.count[rows])
    return _checked(limited, limited.rows_per_user(), items)


def sampled_items(shard: Shard, items: int, subkey: bytes) -> np.ndarray:
    """The rows of at most `items` distinct items of each user, chosen uniformly: those that `limit_items` leaves."""
    stays = np.ones(len(shard.item), dtype=bool)
    above = shard.rows_per_user() > items
    if above.any():
        rows, offsets, lanes = _lanes(shard, above, subkey)
        stays[rows] = sample_units(lanes, np.ones(len(rows), dtype=np.int64), offsets, items)
    return np.flatnonzero(stays)


def limit_per_item(shard: Shard, count: int) -> Shard:
    """At most `count` events of each user on each item: linf <= count. Draws nothing."""
    return dataclasses.replace(shard, count=np.minimum(shard.count, count))


_MOST_MARKS = 1 << 23  # units of the lanes of a shard that are marked one by one: 40 MB

#: The least number of steps of its grid that a norm has to which counts are scaled.
LEAST_STEPS = 2**10


def clip_grid(bound: int) -> int:
    """The smallest q >= 0 with 2**-q <= bound / 2**10: fine enough that rounding down costs under a thousandth."""
    return max(0, LEAST_STEPS.bit_length() - 1 - int(math.floor(math.log2(bound))))


def clip_norm(shard: Shard, bound: int, p: int) -> Shard:
    """Scales each user's counts by min(1, bound / norm) for the l1 (p = 1) or l2 (p = 2) norm.

    Counts come out in units of 2**-clip_grid(bound), rounded down; so the norm keeps the bound exactly, in integers.
    """
    limit = bound << clip_grid(bound)
    value = _scaled_rows(shard, shard.totals() if p == 1 else squared_norms(shard), bound, limit, p)
    norms = run_sums(value if p == 1 else value * value, shard.offsets[:-1])
    rows = np.flatnonzero(value)
    return _checked(shard.keep(rows, value[rows]), norms, limit if p == 1 else limit * limit)


def _checked(bounded: Shard, norms: np.ndarray, limit: int) -> Shard:
    """The shard, if no user's norm exceeds the limit."""
    if len(norms) and norms.max() > limit:
        raise RuntimeError("bounding did not keep its bound")  # a bug, and never to be released
    return bounded


def _lanes(shard: Shard, above: np.ndarray, subkey: bytes) -> tuple[np.ndarray, np.ndarray, Lanes]:
    """The rows of the users above a bound, where the rows of each of them begin, and their lanes; others need none."""
    who = np.flatnonzero(above)
    rows = np.flatnonzero(np.repeat(above, shard.rows_per_user()))
    offsets = np.append(0, np.cumsum(shard.rows_per_user()[who]))
    ids = user_lane_ids(
        lane_key(subkey),
        shard.users.take(pa.array(who)),
        offsets,
        shard.items.take(pa.array(shard.item[rows])),
        shard.count[rows],
    )
    return rows, offsets, Lanes(block_key(subkey), ids)


def sample_units(lanes: Lanes, units: np.ndarray, offsets: np.ndarray, wanted: int) -> np.ndarray:
    """How many units of each row are in a uniform sample without replacement of `wanted` units per lane.

    Lane i has the rows offsets[i] .. offsets[i + 1] - 1 and more units than wanted: exactly multivariate hypergeometric.
    Positions are drawn with replacement and repeated ones drawn again until enough are distinct, which leaves every
    set of that size equally likely; where the sample is more than half, the units to leave out are drawn instead.
    """
    ends = np.cumsum(units)  # of all lanes of a shard: fits, as `shards` says
    start = np.append(0, ends)[offsets]
    have = np.diff(start)
    leave_out = 2 * wanted > have
    need = np.where(leave_out, have - wanted, wanted)
    hits = (_marked if start[-1] <= _MOST_MARKS else _sorted)(lanes, ends, start, need)
    return np.where(np.repeat(leave_out, np.diff(offsets)), units - hits, hits)


def _marked(lanes: Lanes, ends: np.ndarray, start: np.ndarray, need: np.ndarray) -> np.ndarray:
    """How many units of each row are among `need` distinct ones of each lane, by a mark on every unit that was drawn."""
    marked = np.zeros(int(start[-1]), dtype=bool)
    last_draw = np.empty(len(marked), dtype=np.int32)  # of those at once, the one that has the unit
    missing = need
    while len(active := np.flatnonzero(missing)):
        owner = np.repeat(active, missing[active])
        drawn = lanes.uniform_below_each(np.diff(start)[active], active, missing[active]) + start[owner]
        numbers = np.arange(len(drawn), dtype=np.int32)
        last_draw[drawn] = numbers
        repeated = np.flatnonzero(marked[drawn] | (last_draw[drawn] != numbers))
        marked[drawn] = True
        missing = np.bincount(owner[repeated], minlength=len(need))
    if np.array_equal(ends, np.arange(1, len(marked) + 1)):  # one unit in every row
        return marked.astype(np.int64)
    before = np.zeros(len(marked) + 1, dtype=np.int64)
    np.cumsum(marked, out=before[1:])
    return np.diff(before[ends], prepend=0)


def _sorted(lanes: Lanes, ends: np.ndarray, start: np.ndarray, need: np.ndarray) -> np.ndarray:
    """The same where units are too many to be marked: by sorting those that were drawn."""
    chosen = np.zeros(0, dtype=np.int64)
    missing = need
    while len(active := np.flatnonzero(missing)):
        each = missing[active]
        drawn = lanes.uniform_below_each(np.diff(start)[active], active, each) + np.repeat(start[active], each)
        chosen = np.sort(np.concatenate([chosen, drawn]))  # numpy's unique hashes, ten times slower
        chosen = chosen[np.diff(chosen, prepend=-1) > 0]
        missing = need - np.diff(np.searchsorted(chosen, start))
    return np.bincount(np.searchsorted(ends, chosen, side="right"), minlength=len(ends))


def squared_norms(shard: Shard) -> np.ndarray:
    """The squared l2 norm of each user's counts, exactly."""
    wide = len(shard.count) > 0 and int(shard.count.max()) ** 2 * len(shard.count) > INT64_MAX
    count = shard.count.astype(object) if wide else shard.count  # Python's integers: slower, and they never wrap
    return run_sums(count * count, shard.offsets[:-1])


def _scaled_rows(shard: Shard, power: np.ndarray, bound: int, limit: int, p: int) -> np.ndarray:
    """Each row's count in grid units, scaled for users above the bound; `power` is norm^p of each user."""
    unit, rows = limit // bound, shard.rows_per_user()
    one = np.full(len(power), unit)  # counts of one are alike for a user, and scaled once
    above = np.flatnonzero(power > bound**p)
    one[above] = _scaled(np.ones(len(above), dtype=np.int64), power[above], limit, p)
    value = np.repeat(one, rows)
    more = np.flatnonzero(shard.count != 1)
    if len(more):
        value[more] = shard.count[more] * unit
        own = np.repeat(power, rows)[more]
        above = np.flatnonzero(own > bound**p)
        value[more[above]] = _scaled(shard.count[more[above]], own[above], limit, p)
    return value


def _scaled(count: np.ndarray, power: np.ndarray, limit: int, p: int) -> np.ndarray:
    """The counts times limit / norm, rounded down.

    The float is off by less than 2**-48 of itself; where it lies closer than that to an integer, integers decide.
    """
    near = count * (limit / (power if p == 1 else np.sqrt(power.astype(np.float64))))
    value = near.astype(np.int64)
    close = np.flatnonzero(np.abs(near - np.rint(near)) <= near * 2.0**-48)
    if len(close):
        whole, most, power = count[close], np.rint(near[close]).astype(np.int64), power[close]
        # Both sides of the comparison are about (count limit)^p: beyond 64 bits in Python's integers, which never wrap.
        if (int(whole.max()) * limit + 1) ** p >= INT64_MAX >> 1:
            whole, most, power = (column.astype(object) for column in (whole, most, power))
        value[close] = most - (most**p * power > (whole * limit) ** p)
    return value
