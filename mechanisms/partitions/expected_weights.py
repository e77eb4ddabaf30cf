"""What each user adds to the expected weights of its items, as integers that add up by item.

A user of d distinct items is filed, at each of them, under the first step K of a grid with d <= K, with four integers: one;
floor(2**30 / d); its weight, floor(2**30 / sqrt(d)), or for curves floor(2**30 / d**(1/4)); and the part (d - 1)/d of the
weight for the user's other items, or half of it for curves. Their sums by item say for every step what the item's expected
weight would be if each user kept at most K items. What travels is how many users of each item have d items, of which all of
this follows. Guarantee: all are rounded down for each user before any sum, so that sensitivities hold exactly. Proof:
docs/proofs/partitions.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from headcount.mechanisms.batches.cut import cut_by_item
from headcount.mechanisms.batches.packing import unpack
from headcount.mechanisms.batches.run_sums import begins_run, sum_by_code
from headcount.mechanisms.batches.shards import Shard, unite
from headcount.mechanisms.errors import InputError
from headcount.mechanisms.partitions.selection_curve import curve_weight

FRACTION_BITS = 30
_MOST_USERS = (
    1 << 32
)  # of one item: from here on its sums would not fit 64 bits. Only users reach it, no counts of theirs
_BLOCK = 1 << 13  # items whose sums are computed at a time, which bounds the memory


@dataclasses.dataclass(frozen=True)
class ItemWeights:
    """Sums of some items, one column for each step and one for beyond: of all users whose number of items is at most the step.

    All but `users` are in units of 2**-30.
    """

    users: np.ndarray
    shares: np.ndarray
    roots: np.ndarray
    others: np.ndarray


def split_weights(shard: Shard, shards: int) -> Iterator[tuple[int, bytes]]:
    """Of each item, how many of the shard's users have how many items, cut into (item shard, bytes) chunks by a hash of the
    item: few and small numbers, of which all sums follow."""
    if len(shard.item) == 0:
        return iter(())
    cut = cut_by_item(shard.items, shards)
    rows = shard.rows_per_user()
    held, nth = _held(rows)
    bits = len(held).bit_length()
    key = (cut.places() << bits)[shard.item]
    key += np.repeat(nth[rows], rows)
    key.sort()
    starts = np.flatnonzero(begins_run(key))
    users = np.diff(starts, append=len(key))
    return cut.rows(key[starts] >> bits, {"items": held[key[starts] & ((1 << bits) - 1)], "users": users})


def _held(items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct numbers of items that users have, ascending, and the place of each among them."""
    held = np.flatnonzero(np.bincount(items))
    nth = np.zeros(held[-1] + 1, dtype=np.int64)
    nth[held] = np.arange(len(held))
    return held, nth


def _of_user(items: int, by_curve: bool) -> tuple[int, int, int, int]:
    """What a user of so many items adds to the sums of each of them."""
    return 1, (1 << FRACTION_BITS) // items, *(_curve_weights if by_curve else _root_weights)(items)


def _root_weights(items: int) -> tuple[int, int]:
    own = math.isqrt((1 << 2 * FRACTION_BITS) // items)
    return own, math.isqrt(((items - 1) ** 2 << 2 * FRACTION_BITS) // items**3)


def _curve_weights(items: int) -> tuple[int, int]:
    own = curve_weight(items, FRACTION_BITS)
    return own, own * (items - 1) // (2 * items)


def merged_weights(
    chunks: Iterable[bytes], grid: Sequence[int], least: int, by_curve: bool = False
) -> Iterator[ItemWeights]:
    """Adds up the chunks of one item shard, some items at a time, `by_curve` as curves weigh; items of fewer than `least` users
    are left out."""
    parts = [unpack(chunk)[0] for chunk in chunks]
    names, code = unite([part["item"] for part in parts])
    items, users = (np.concatenate([np.asarray(part[name]) for part in parts]) for name in ("items", "users"))
    all_users = sum_by_code(code, users, len(names))
    if len(all_users) and int(all_users.max()) >= _MOST_USERS:
        raise InputError(f"an item has {_MOST_USERS} users or more, too many to choose a strategy for; give one")
    kept = np.flatnonzero(all_users >= least)
    if len(kept) == 0:
        return
    place = np.full(len(names), -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    rows = np.flatnonzero(place[code] >= 0)
    rows = rows[np.argsort(place[code[rows]], kind="stable")]
    place, items, users = place[code[rows]], items[rows], users[rows]
    held, nth = _held(items)
    number = nth[items]
    step = np.searchsorted(np.array(grid), held)[number]
    each = np.array([_of_user(d, by_curve) for d in held.tolist()]).T
    starts = np.searchsorted(place, np.arange(0, len(kept) + _BLOCK, _BLOCK))
    steps = len(grid) + 1
    for first, begin, end in zip(range(0, len(kept), _BLOCK), starts[:-1], starts[1:], strict=False):
        shape = (min(_BLOCK, len(kept) - first), steps)
        cell = (place[begin:end] - first) * steps + step[begin:end]
        yield ItemWeights(*(_up_to(cell, users[begin:end] * one[number[begin:end]], shape) for one in each))


def _up_to(cell: np.ndarray, values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Values by item and step, added up along the steps."""
    dense = np.zeros(shape, dtype=np.int64)
    np.add.at(dense.reshape(-1), cell, values)
    return np.cumsum(dense, axis=1)
