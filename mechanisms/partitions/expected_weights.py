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
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.packing import unpack
from headcount.mechanisms.batches.run_sums import begins_run, run_sums
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
    held, nth = _held(np.bincount(rows))
    bits = len(held).bit_length()
    key = (cut.places() << bits)[shard.item]
    key += np.repeat(nth[rows], rows)
    key.sort()
    starts = np.flatnonzero(begins_run(key))
    users = np.diff(starts, append=len(key))
    return cut.rows(key[starts] >> bits, {"items": held[key[starts] & ((1 << bits) - 1)], "users": users})


def _held(users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of items that any users have, ascending, and the place of each number among them."""
    held = np.flatnonzero(users)
    nth = np.zeros(len(users), dtype=np.int64)
    nth[held] = np.arange(len(held))
    return held, nth


@dataclasses.dataclass(frozen=True)
class _Part:
    """A chunk of `split_weights`: name k has the rows starts[k] .. starts[k + 1] - 1."""

    names: Names
    starts: np.ndarray
    items: np.ndarray
    users: np.ndarray

    @classmethod
    def of(cls, chunk: bytes) -> _Part:
        columns = unpack(chunk)[0]
        item = columns["item"]
        starts = np.searchsorted(np.asarray(item.indices), np.arange(len(item.dictionary) + 1))
        return cls(item.dictionary, starts, np.asarray(columns["items"]), np.asarray(columns["users"]))


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
    parts = [_Part.of(chunk) for chunk in chunks]
    names, code = unite([part.names for part in parts])
    # Of the names of each part: they ascend, as all names are in one order.
    places = np.split(code, np.cumsum([len(part.names) for part in parts])[:-1])
    all_users = np.zeros(len(names), dtype=np.int64)
    for part, place in zip(parts, places, strict=True):
        all_users[place] += run_sums(part.users, part.starts[:-1])
    if len(all_users) and int(all_users.max()) >= _MOST_USERS:
        raise InputError(f"an item has {_MOST_USERS} users or more, too many to choose a strategy for; give one")
    kept = np.flatnonzero(all_users >= least)
    if len(kept) == 0:
        return
    held, nth = _held(np.bincount(np.concatenate([part.items for part in parts])))
    step = np.searchsorted(np.array(grid), held)
    each = np.array([_of_user(d, by_curve) for d in held.tolist()]).T
    steps = len(grid) + 1
    row = np.full(len(names), -1, dtype=np.int64)  # of an item that is kept, in its block
    row[kept] = np.arange(len(kept)) % _BLOCK
    for first in range(0, len(kept), _BLOCK):
        block = kept[first : first + _BLOCK]
        sums = np.zeros((len(each), len(block), steps), dtype=np.int64)
        for part, place in zip(parts, places, strict=True):
            begin, end = np.searchsorted(place, (block[0], block[-1] + 1))
            rows = slice(part.starts[begin], part.starts[end])
            at = np.repeat(row[place[begin:end]], np.diff(part.starts[begin : end + 1]))
            there = at >= 0
            number, users = nth[part.items[rows][there]], part.users[rows][there]
            cell = at[there] * steps + step[number]
            for one, added in zip(each, sums.reshape(len(each), -1), strict=True):
                np.add.at(added, cell, users * one[number])
        yield ItemWeights(*np.cumsum(sums, axis=2, out=sums))
