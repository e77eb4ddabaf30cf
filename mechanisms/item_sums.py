"""What the sum of each item would be at every candidate bound, from one pass over the users.

A user with m events, N of them on an item, is expected to add f = min(c, N min(1, C/m)) to that item when a sample of at
most C events counts, and at most c of them on one item. For a fixed cap c, f is a line through zero in C, of slope N/m,
until C >= m or C N >= c m, and stays at min(N, c) from there on. So one pair of integers per user, item and cap tells f
for all bounds: the level min(N, c), and the slope floor(2**30 N/m), filed under the first bound at which the line ends.

The slope is rounded down for each user and item *before* any sum. Hence for every bound and cap, one user's f sum up to
at most min(m, C), exactly, which is what the sensitivity of a choice rests on (rounding to nearest, or after the sum,
breaks it). All sums are integers in units of 2**-30, in two parts, since a product with C needs more than 64 bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from headcount.mechanisms.batches import Shard, unite
from headcount.mechanisms.names import hash64, shard_of
from headcount.mechanisms.packing import pack, unpack

FRACTION_BITS = 30
_FRACTION = (1 << FRACTION_BITS) - 1
_LARGEST_PLAIN = 1 << 32  # totals from here on are divided as Python's integers, which never wrap
_BLOCK = 1 << 13  # items whose sums are computed at a time, which bounds the memory


@dataclasses.dataclass(frozen=True)
class Ladder:
    """The candidate bounds, ascending, and the caps on one item beside 'none', ascending."""

    bounds: tuple[int, ...]
    caps: tuple[int, ...] = ()

    @property
    def steps(self) -> int:
        """The places at which a line can end: at each bound, or beyond the last."""
        return len(self.bounds) + 1

    @property
    def slots(self) -> int:
        """The entries that an item can have: for each cap (the first is none) one per step."""
        return (len(self.caps) + 1) * self.steps


@dataclasses.dataclass(frozen=True)
class ItemSums:
    """The sums of some items under one cap (None: none), one column per bound: whole + fraction * 2**-30.

    `most` is what no sum of the item exceeds by more than one, under any bound and cap; it descends.
    """

    cap: int | None
    most: np.ndarray
    whole: np.ndarray
    fraction: np.ndarray


def split_sums(shard: Shard, ladder: Ladder, shards: int) -> Iterator[tuple[int, bytes]]:
    """The shard's entries by item, cut into (item shard, bytes) chunks by a hash of the item."""
    home = shard_of(hash64(shard.items), shards)
    order = np.argsort(home, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    items = shard.items.take(pa.array(order))
    key, level, slope = _entries(shard, ladder, rank)
    item = key // ladder.slots
    cuts = np.searchsorted(home[order], np.arange(shards + 1))
    ends = np.searchsorted(item, cuts)
    for k in np.flatnonzero(np.diff(ends)):
        rows = slice(ends[k], ends[k + 1])
        names = items[cuts[k] : cuts[k + 1]]
        yield (
            int(k),
            pack(
                {
                    "item": pa.DictionaryArray.from_arrays(pa.array(item[rows] - cuts[k]), names),
                    "slot": pa.array(key[rows] % ladder.slots),
                    "level": pa.array(level[rows]),
                    "slope": pa.array(slope[rows]),
                }
            ),
        )


def total_sums(shard: Shard, ladder: Ladder) -> list[int]:
    """The sum over all items and users without a cap, at each bound, in units of 2**-30."""
    key, level, slope = _entries(
        shard, dataclasses.replace(ladder, caps=()), np.zeros(len(shard.items), dtype=np.int64)
    )
    levels, slopes = [0] * ladder.steps, [0] * ladder.steps
    for step, a, b in zip(key.tolist(), level.tolist(), slope.tolist(), strict=True):
        levels[step], slopes[step] = a, b
    return [
        (sum(levels[: k + 1]) << FRACTION_BITS) + bound * sum(slopes[k + 1 :]) for k, bound in enumerate(ladder.bounds)
    ]


def merged_sums(chunks: Iterable[bytes], ladder: Ladder, least: int) -> Iterator[ItemSums]:
    """Adds up the chunks of one item shard: the sums of all items, for each cap, some items at a time.

    Items whose sum is below `least` at every bound may be left out, as most are.
    """
    parts = [unpack(chunk)[0] for chunk in chunks]
    items, code = unite([part["item"] for part in parts])
    slot, level, slope = (
        np.concatenate([np.asarray(part[name]) for part in parts]) for name in ("slot", "level", "slope")
    )
    # A higher bound raises the sums, and a cap lowers them, but for the slope's rounding: a line that ends at its cap may lie
    # above the rounded line without, by at most C 2**-30 of itself. One count is left for the rounding of floats.
    without_cap = slot < ladder.steps
    beyond = slot == ladder.steps - 1
    highest = np.where(beyond, slope * (ladder.bounds[-1] / 2.0**FRACTION_BITS), level) * without_cap
    rounding = 1 + ladder.bounds[-1] * 2.0 ** (1 - FRACTION_BITS)
    most = np.bincount(code, weights=highest, minlength=len(items)) * rounding
    kept = np.flatnonzero(most >= least - 1)
    kept = kept[np.argsort(-most[kept])]
    place = np.full(len(items), -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    rows = np.flatnonzero(place[code] >= 0)
    rows = rows[np.argsort(place[code[rows]], kind="stable")]
    place, slot, level, slope = place[code[rows]], slot[rows], level[rows], slope[rows]
    starts = np.searchsorted(place, np.arange(0, len(kept) + _BLOCK, _BLOCK))
    for first, begin, end in zip(range(0, len(kept), _BLOCK), starts[:-1], starts[1:], strict=False):
        block = min(_BLOCK, len(kept) - first)
        cell = (place[begin:end] - first) * ladder.slots + slot[begin:end]
        shape = (block, len(ladder.caps) + 1, ladder.steps)
        levels, slopes = (_dense(cell, values[begin:end], shape) for values in (level, slope))
        yield from _at_bounds(most[kept[first : first + block]], levels, slopes, ladder)


def _entries(shard: Shard, ladder: Ladder, rank: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rank of the item * slots + slot, level, slope), each key once, ascending.

    The slots of a cap hold the *differences* to those without: only pairs with more than c events have one.
    """
    bounds = np.array(ladder.bounds)
    last = len(bounds)
    count, total = shard.count, np.repeat(shard.totals(), shard.rows_per_user())
    wide = len(total) > 0 and int(total.max()) >= _LARGEST_PLAIN
    if wide:
        count, total = count.astype(object), total.astype(object)
    slope = ((count << FRACTION_BITS) // total).astype(np.int64)
    step = np.searchsorted(bounds, shard.totals())[np.repeat(np.arange(len(shard.users)), shard.rows_per_user())]
    home = rank[shard.item] * ladder.slots
    level = np.where(step < last, shard.count, 0)  # a level beyond the last bound counts nowhere
    keys, levels, slopes = [home + step], [level], [slope]
    rows = np.arange(len(count))
    for number, cap in enumerate(ladder.caps, start=1):
        rows = rows[shard.count[rows] > cap]
        if len(rows) == 0:
            break
        capped = np.searchsorted(bounds, (-(-cap * total[rows] // count[rows])).astype(np.int64))
        place = home[rows] + number * ladder.steps
        keys += [place + step[rows], place + capped]
        levels += [-level[rows], np.where(capped < last, cap, 0)]
        slopes += [-slope[rows], slope[rows]]
    key, level, slope = np.concatenate(keys), np.concatenate(levels), np.concatenate(slopes)
    order = np.argsort(key)
    key = key[order]
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    if len(starts) == 0:
        return key, level, slope
    return key[starts], np.add.reduceat(level[order], starts), np.add.reduceat(slope[order], starts)


def _dense(cell: np.ndarray, values: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    dense = np.zeros(shape, dtype=np.int64)
    np.add.at(dense.reshape(-1), cell, values)
    return dense


def _at_bounds(most: np.ndarray, levels: np.ndarray, slopes: np.ndarray, ladder: Ladder) -> Iterator[ItemSums]:
    bounds = np.array(ladder.bounds)
    for number, cap in enumerate((None, *ladder.caps)):
        level, slope = levels[:, number], slopes[:, number]
        if number:
            level, slope = level + levels[:, 0], slope + slopes[:, 0]
        ended = np.cumsum(level, axis=1)[:, :-1]
        running = slope.sum(axis=1, keepdims=True) - np.cumsum(slope, axis=1)[:, :-1]
        rest = bounds * (running & _FRACTION)
        whole = ended + bounds * (running >> FRACTION_BITS) + (rest >> FRACTION_BITS)
        yield ItemSums(cap, most, whole, rest & _FRACTION)
