"""Distinct names of a column, found by sorting hashes.

A hash table of names goes to memory for every row, and again for the name that it compares. To sort takes less: the first
bits of a row's hash and the row's number are one integer, and integers sort in the cache. Rows of one name are then neighbours.
That neighbours with one hash have one name is seen by comparing the names themselves: nobody is taken for somebody else.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.names import Names, as_names, canonical_order, hash64, in_one_size, same_where
from headcount.mechanisms.batches.run_sums import begins_run


@dataclasses.dataclass(frozen=True)
class Grouped:
    """Distinct names in canonical order, and their rows: name k has order[starts[k]] .. order[starts[k + 1] - 1], ascending."""

    names: Names
    hashes: np.ndarray  # of the names: they ascend
    order: np.ndarray
    starts: np.ndarray  # one more than names

    def codes(self, first: int, last: int) -> np.ndarray:
        """The place (int32) among the names first .. last - 1 of each of their rows, which are in order."""
        return np.repeat(np.arange(last - first, dtype=np.int32), np.diff(self.starts[first : last + 1]))


def grouped(names: pa.Array, hashes: np.ndarray) -> Grouped:
    """The rows of each name of a column, whose hashes these are; `in_one_size` may have made the column."""
    order, ranked = hash_order(hashes)
    first = begins_run(ranked)
    if not _told_apart(names, order, first):
        settled, codes = _by_name(as_names(names))
        order = sorting(codes, len(settled))
        ranked = hashes[order]
        first = begins_run(codes[order])
    starts = np.flatnonzero(first)
    found = as_names(names.take(pa.array(order[starts])))
    return Grouped(found, ranked[starts], order, np.append(starts, len(order)))


def distinct(names: Names) -> tuple[Names, np.ndarray]:
    """The distinct names in canonical order, and the place (int32) of each row's name among them."""
    found, _, codes = distinct_by_hash(names, hash64(names))
    return found, codes


def distinct_by_hash(names: Names, hashes: np.ndarray) -> tuple[Names, np.ndarray, np.ndarray]:
    """The distinct names in canonical order, their ascending hashes, and the place (int32) of each row's name among them."""
    found = grouped(in_one_size(names), hashes)
    codes = np.empty(len(names), dtype=np.int32)
    codes[found.order] = found.codes(0, len(found.names))
    return found.names, found.hashes, codes


def sorting(keys: np.ndarray, most: int) -> np.ndarray:
    """Positions that sort integers from 0 to `most` - 1; equal ones stay as they are."""
    bits = len(keys).bit_length()
    if most.bit_length() + bits > 63:
        return np.argsort(keys, kind="stable")
    packed = keys.astype(np.int64)
    packed <<= bits
    return _positions(packed, bits)


def hash_order(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions that sort hashes, where equal ones stay as they are, and the hashes so sorted."""
    bits = len(hashes).bit_length()
    packed = hashes >> np.uint64(bits)
    packed <<= np.uint64(bits)
    order = _positions(packed, bits).view(np.int64)
    ranked = hashes[order]
    if (ranked[1:] < ranked[:-1]).any():  # other bits than those that were sorted by tell them apart: that is rare
        order = np.argsort(hashes, kind="stable")
        ranked = hashes[order]
    return order, ranked


def _positions(packed: np.ndarray, bits: int) -> np.ndarray:
    """Positions that sort integers whose last bits are free; `packed` is used up."""
    packed |= np.arange(len(packed), dtype=packed.dtype)
    packed.sort()
    packed &= packed.dtype.type((1 << bits) - 1)
    return packed


def _told_apart(names: pa.Array, order: np.ndarray, first: np.ndarray) -> bool:
    """Whether neighbours in this order have one name wherever they have one hash: where neither is the first of another."""
    same = same_where(names, order, first)
    if same is None:
        taken = names.take(pa.array(order))
        return bool((first[1:] | np.asarray(pc.equal(taken[1:], taken[:-1]))).all())
    return same


def _by_name(names: Names) -> tuple[Names, np.ndarray]:
    """The same where two names share a hash, which nothing but the names can settle."""
    known = names.dictionary_encode()
    order = canonical_order(known.dictionary, hash64(known.dictionary))
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return known.dictionary.take(pa.array(order)), place[np.asarray(known.indices)]
