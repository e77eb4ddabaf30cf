"""What the sum of each item would be at every candidate bound, from one pass over the users.

Under a cap c on one item, n = min(N, c) of a user's N events on an item are left, and m on all its items. A sample of at most
C of these counts, so exactly f = n min(1, C/m) is what the user is expected to add to the item. For a fixed cap, f is a line
through zero in C, of slope n/m, until C >= m, and stays at n from there on. So one pair of integers per user, item and cap
tells f for all bounds: the level n, and the slope floor(2**30 n/m), filed under the first bound at which the line ends.

The slope is rounded down for each user and item *before* any sum. Hence for every bound and cap, one user's f sum up to
at most min(m, C), exactly, which is what the sensitivity of a choice rests on (rounding to nearest, or after the sum,
breaks it). All sums are integers in units of 2**-30, in two parts, since a product with C needs more than 64 bits.

A cap changes all lines of a user who has an item with more than c events, and none of any other user. So what users add is kept
in layers, and users are told apart by the number k of caps that change them. Layer 2k has their lines without a cap, and layer
2j + 1 those under cap j, for each j < k. Under cap j the sum of an item is that of the layers 0, 2, .. 2j and 2j + 1, and
without a cap that of all even layers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from headcount.mechanisms.batches.cut import cut_by_item
from headcount.mechanisms.batches.packing import unpack
from headcount.mechanisms.batches.run_sums import run_sums
from headcount.mechanisms.batches.shards import Shard, unite

FRACTION_BITS = 30
_FRACTION = (1 << FRACTION_BITS) - 1
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
    def layers(self) -> int:
        """The layers of lines: one for each cap, one without before each, and one without after the last."""
        return 2 * len(self.caps) + 1

    @property
    def slots(self) -> int:
        """The entries that an item can have: one per layer and step."""
        return self.layers * self.steps


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
    cut = cut_by_item(shard.items, shards)
    key, level, slope = _entries(shard, ladder, cut.places())
    return cut.rows(key // ladder.slots, {"slot": key % ladder.slots, "level": level, "slope": slope})


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

    Items whose sum is below `least` at every bound and cap may be left out, as most are.
    """
    parts = [unpack(chunk)[0] for chunk in chunks]
    items, code = unite([part["item"] for part in parts])
    slot, level, slope = (
        np.concatenate([np.asarray(part[name]) for part in parts]) for name in ("slot", "level", "slope")
    )
    most = _most(code, slot, level, slope, len(items), ladder)
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
        shape = (block, ladder.layers, ladder.steps)
        levels, slopes = (_dense(cell, values[begin:end], shape) for values in (level, slope))
        yield from _at_bounds(most[kept[first : first + block]], levels, slopes, ladder)


def _entries(shard: Shard, ladder: Ladder, rank: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rank of the item * slots + slot, level, slope), each key once, ascending."""
    totals = shard.totals()
    user = np.repeat(np.arange(len(totals)), shard.rows_per_user())
    home = rank[shard.item] * ladder.slots
    layer = np.zeros(len(totals), dtype=np.int64)
    parts = []
    rows, changed = (
        np.arange(len(user)),
        np.arange(len(totals)),
    )  # of users whom the caps so far have changed: ever fewer
    for number, cap in enumerate(ladder.caps):
        capped = np.minimum(shard.count[rows], cap)
        held = run_sums(capped, np.flatnonzero(np.diff(user[rows], prepend=-1)))
        lower = held < totals[changed]
        kept = np.repeat(lower, shard.rows_per_user()[changed])
        rows, changed = rows[kept], changed[lower]
        if len(rows) == 0:
            break
        layer[changed] += 2
        place = home[rows] + (2 * number + 1) * ladder.steps
        parts.append(_lines(place, capped[kept], shard.rows_per_user()[changed], held[lower], ladder))
    parts.append(_lines(home + layer[user] * ladder.steps, shard.count, shard.rows_per_user(), totals, ladder))
    key, level, slope = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(key)
    key = key[order]
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    if len(starts) == 0:
        return key, level, slope
    return key[starts], np.add.reduceat(level[order], starts), np.add.reduceat(slope[order], starts)


def _lines(
    place: np.ndarray, count: np.ndarray, rows_per_user: np.ndarray, totals: np.ndarray, ladder: Ladder
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(place + step, level, slope) of rows with these counts, user after user, of users with so many rows and these totals."""
    total = np.repeat(totals, rows_per_user)
    step = np.repeat(np.searchsorted(np.array(ladder.bounds), totals), rows_per_user)
    level = np.where(step < ladder.steps - 1, count, 0)  # a level beyond the last bound counts nowhere
    return place + step, level, (count << FRACTION_BITS) // total  # counts are below 2**30, as `shards` cuts them


def _most(
    code: np.ndarray, slot: np.ndarray, level: np.ndarray, slope: np.ndarray, items: int, ladder: Ladder
) -> np.ndarray:
    """The largest sum of each item over all bounds and caps, but for the rounding of floats.

    A higher bound raises the sums. A cap lowers those of items that it bites on, and raises others, whose events are no
    longer crowded out of the sample; so the last bound is looked at under every cap.
    """
    beyond = slot % ladder.steps == ladder.steps - 1
    highest = np.where(beyond, slope * (ladder.bounds[-1] / 2.0**FRACTION_BITS), level)
    layer = slot // ladder.steps
    most = without = np.zeros(items)
    for number in range(ladder.layers):
        rows = np.flatnonzero(layer == number)
        added = without + np.bincount(code[rows], weights=highest[rows], minlength=items)
        most = np.maximum(most, added)
        if number % 2 == 0:
            without = added
    return most


def _dense(cell: np.ndarray, values: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    dense = np.zeros(shape, dtype=np.int64)
    np.add.at(dense.reshape(-1), cell, values)
    return dense


def _at_bounds(most: np.ndarray, levels: np.ndarray, slopes: np.ndarray, ladder: Ladder) -> Iterator[ItemSums]:
    bounds = np.array(ladder.bounds)
    without = np.cumsum(levels[:, ::2], axis=1), np.cumsum(slopes[:, ::2], axis=1)
    for number, cap in enumerate((*ladder.caps, None)):
        level, slope = (sums[:, number] for sums in without)
        if cap is not None:
            level, slope = level + levels[:, 2 * number + 1], slope + slopes[:, 2 * number + 1]
        ended = np.cumsum(level, axis=1)[:, :-1]
        running = slope.sum(axis=1, keepdims=True) - np.cumsum(slope, axis=1)[:, :-1]
        rest = bounds * (running & _FRACTION)
        whole = ended + bounds * (running >> FRACTION_BITS) + (rest >> FRACTION_BITS)
        yield ItemSums(cap, most, whole, rest & _FRACTION)
