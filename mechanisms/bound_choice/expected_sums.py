"""What the sum of each item would be at every candidate bound, from one pass over the users.

Under a cap c on one item, n = min(N, c) of a user's N events on an item are left, and m on all its items. A sample of at most
C of these counts, so exactly f = n min(1, C/m) is what the user is expected to add to the item. For a fixed cap, f is a line
through zero in C, of slope n/m, until C >= m, and stays at n from there on. So one pair of integers per user, item and cap
tells f for all bounds: the level n, and the slope floor(2**30 n/m), filed under the first bound at which the line ends.
Proof: docs/proofs/bound-choice.md.

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
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from headcount.mechanisms.batches.cut import cut_by_item
from headcount.mechanisms.batches.packing import unpack
from headcount.mechanisms.batches.run_sums import run_sums, sum_by_code
from headcount.mechanisms.batches.shards import Shard, unite

FRACTION_BITS = 30
_FRACTION = (1 << FRACTION_BITS) - 1
_BLOCK = 1 << 12  # items whose sums are computed at a time, which bounds the memory


@dataclasses.dataclass(frozen=True)
class CandidateGrid:
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

    def least(self, sum_of_item: int) -> Least:
        """The same least sum at every bound, under every cap."""
        return dict.fromkeys((*self.caps, None), [sum_of_item] * len(self.bounds))


# For each cap (None: none) the least sum of an item that matters, at each bound.
Least = Mapping[int | None, Sequence[int]]


@dataclasses.dataclass(frozen=True)
class ItemSums:
    """The sums of some items under one cap (None: none), one row per bound: whole + fraction * 2**-30.

    `most` is what no sum of the item exceeds by more than one, under any bound and cap; it descends. Bounds at which none of
    these sums matters are left out at the end.
    """

    cap: int | None
    most: np.ndarray
    whole: np.ndarray
    fraction: np.ndarray


class _Entries(NamedTuple):
    """Sums of levels and slopes, one for each item (by its place) and slot: layer * steps + step."""

    place: np.ndarray
    slot: np.ndarray
    level: np.ndarray
    slope: np.ndarray


def split_sums(shard: Shard, grid: CandidateGrid, shards: int) -> Iterator[tuple[int, bytes]]:
    """The shard's entries by item, cut into (item shard, bytes) chunks by a hash of the item."""
    cut = cut_by_item(shard.items, shards)
    place, *columns = _entries(shard, grid, cut.places())
    return cut.scattered(place, dict(zip(_Entries._fields[1:], columns, strict=True)))


def total_sums(shard: Shard, grid: CandidateGrid) -> list[int]:
    """The sum over all items and users without a cap, at each bound, in units of 2**-30."""
    one_item = np.zeros(len(shard.items), dtype=np.int64)
    entries = _entries(shard, dataclasses.replace(grid, caps=()), one_item)
    levels, slopes = [0] * grid.steps, [0] * grid.steps
    for step, a, b in zip(entries.slot.tolist(), entries.level.tolist(), entries.slope.tolist(), strict=True):
        levels[step], slopes[step] = a, b
    return [
        (sum(levels[: k + 1]) << FRACTION_BITS) + bound * sum(slopes[k + 1 :]) for k, bound in enumerate(grid.bounds)
    ]


def merged_sums(chunks: Iterable[bytes], grid: CandidateGrid, least: Least) -> Iterator[ItemSums]:
    """Adds up the chunks of one item shard: the sums of all items, for each cap, some items at a time.

    Items whose sums are all below the `least` that matters may be left out, as most are.
    """
    parts = [unpack(chunk)[0] for chunk in chunks]
    items, code = unite([part["item"] for part in parts])
    slot, level, slope = (
        np.concatenate([np.asarray(part[name]) for part in parts]) for name in ("slot", "level", "slope")
    )
    layer, step = np.divmod(slot, grid.steps)
    most = _most(code, layer, step, level, slope, len(items), grid)
    kept = np.flatnonzero(most >= min(map(min, least.values())) - 1)
    kept = kept[np.argsort(-most[kept])]
    most = most[kept]
    blocks = -(-len(kept) // _BLOCK)
    place = np.full(len(items), blocks * _BLOCK, dtype=np.int64)  # those that are left out are in a block of their own
    place[kept] = np.arange(len(kept))
    place = place[code]
    block = (place // _BLOCK).astype(np.uint16 if blocks < 1 << 16 else np.int64)
    order = np.argsort(block, kind="stable")  # 16 bits sort by radix
    starts = np.searchsorted(block[order], np.arange(blocks + 1))
    for number in range(blocks):
        rows = order[starts[number] : starts[number + 1]]
        first = number * _BLOCK
        mine = most[first : first + _BLOCK]
        columns = {cap: _reached(each, mine[0]) for cap, each in least.items()}
        wide = max(columns.values())
        # Bounds beyond `wide` matter to none of these items, so that all steps there are one.
        cell = layer[rows] * (wide + 1) + np.minimum(step[rows], wide)
        shape = (int(layer[rows].max()) + 1, wide + 1, len(mine))
        cell = cell * len(mine) + (place[rows] - first)
        levels, slopes = (sum_by_code(cell, values[rows], math.prod(shape)).reshape(shape) for values in (level, slope))
        yield from _at_bounds(mine, levels, slopes, grid, columns)


def _reached(least: Sequence[int], most: float) -> int:
    """How many bounds there are up to the last at which a sum can matter that `most` exceeds by less than one."""
    return max((number + 1 for number, each in enumerate(least) if most >= each - 1), default=0)


def _entries(shard: Shard, grid: CandidateGrid, place: np.ndarray) -> _Entries:
    """The entries of all rows, each (place, slot) once; `place` has that of each item."""
    count, item, rows, totals = shard.count, place[shard.item], shard.rows_per_user(), shard.totals()
    items = int(place.max(initial=-1)) + 1
    parts = []
    for number, cap in enumerate(grid.caps):  # of users whom all caps so far have changed: ever fewer
        capped = np.minimum(count, cap)
        held = run_sums(capped, np.cumsum(rows) - rows)
        lower = held < totals
        of_lower = np.repeat(lower, rows)
        same, of_same = ~lower, ~of_lower
        parts.append(_layer(2 * number, item[of_same], items, count[of_same], rows[same], totals[same], grid))
        count, item, rows, totals = count[of_lower], item[of_lower], rows[lower], totals[lower]
        if len(rows) == 0:
            break
        parts.append(_layer(2 * number + 1, item, items, capped[of_lower], rows, held[lower], grid))
    else:
        parts.append(_layer(2 * len(grid.caps), item, items, count, rows, totals, grid))
    return _Entries(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _layer(
    layer: int,
    item: np.ndarray,
    items: int,
    count: np.ndarray,
    rows: np.ndarray,
    totals: np.ndarray,
    grid: CandidateGrid,
) -> _Entries:
    """The entries of one layer: of rows with these items (by place, of `items`) and counts, user after user."""
    step, level, slope = _lines(count, rows, totals, grid)
    lowest = int(step.min(initial=grid.steps))
    cell = (step - lowest) * items + item  # by step, so that the cells of one lie together
    found = np.zeros((int(step.max(initial=lowest)) + 1 - lowest) * items, dtype=bool)
    found[cell] = True
    cells = np.flatnonzero(found)
    number = np.empty(len(found), dtype=np.int32)
    number[cells] = np.arange(len(cells), dtype=np.int32)
    code = number[cell].astype(np.intp)
    above, place = np.divmod(cells, items) if items else (cells, cells)
    place, slot = place.astype(np.int32), (layer * grid.steps + lowest + above).astype(np.int32)
    return _Entries(place, slot, sum_by_code(code, level, len(cells)), sum_by_code(code, slope, len(cells)))


def _lines(
    count: np.ndarray, rows: np.ndarray, totals: np.ndarray, grid: CandidateGrid
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(step, level, slope) of rows with these counts, user after user, of users with these numbers of rows and totals."""
    ends = np.searchsorted(np.array(grid.bounds), totals)
    step, total = np.repeat(ends, rows), np.repeat(totals, rows)
    level = np.where(step < grid.steps - 1, count, 0)  # a level beyond the last bound counts nowhere
    return step, level, (count << FRACTION_BITS) // total  # counts are below 2**30, as `shards` cuts them


def _most(
    code: np.ndarray,
    layer: np.ndarray,
    step: np.ndarray,
    level: np.ndarray,
    slope: np.ndarray,
    items: int,
    grid: CandidateGrid,
) -> np.ndarray:
    """The largest sum of each item over all bounds and caps, but for the rounding of floats.

    A higher bound raises the sums. A cap lowers those of items that it bites on, and raises others, whose events are no
    longer crowded out of the sample; so the last bound is looked at under every cap.
    """
    beyond = step == grid.steps - 1
    highest = np.where(beyond, slope * (grid.bounds[-1] / 2.0**FRACTION_BITS), level)
    layers = int(layer.max(initial=0)) + 1
    added = np.bincount(layer * items + code, weights=highest, minlength=layers * items).reshape(layers, items)
    without = np.cumsum(added[::2], axis=0)
    capped = without[: layers // 2] + added[1::2]
    return np.maximum(without[-1], capped.max(axis=0, initial=0.0))


def _at_bounds(
    most: np.ndarray, levels: np.ndarray, slopes: np.ndarray, grid: CandidateGrid, columns: Mapping[int | None, int]
) -> Iterator[ItemSums]:
    """The sums under each cap, from levels and slopes by layer, step and item; of each cap as many bounds as `columns` has."""
    bounds = np.array(grid.bounds)[:, None]
    without = [np.cumsum(sums[::2], axis=0) for sums in (levels, slopes)]
    # The caps that change these items' users. Under the others the sums are the same as without a cap.
    bitten = len(levels) // 2
    for number, caps in enumerate([*((cap,) for cap in grid.caps[:bitten]), (*grid.caps[bitten:], None)]):
        wide = max(columns[cap] for cap in caps)
        if wide == 0:
            continue
        level, slope = (sums[number] for sums in without)
        if number < bitten:
            level, slope = level + levels[2 * number + 1], slope + slopes[2 * number + 1]
        ended = np.cumsum(level[:wide], axis=0)
        running = slope.sum(axis=0) - np.cumsum(slope[:wide], axis=0)
        rest = bounds[:wide] * (running & _FRACTION)
        whole = ended + bounds[:wide] * (running >> FRACTION_BITS) + (rest >> FRACTION_BITS)
        fraction = rest & _FRACTION
        for cap in caps:
            yield ItemSums(cap, most, whole[: columns[cap]], fraction[: columns[cap]])
