"""Names of users and items as Arrow columns: a stable hash, a canonical order, and the two kinds that are allowed.

A name is a string or an int64. The hash here only spreads work over shards and fixes an order; it is no secret and
nothing private rests on it: whoever shares a hash with another is still told apart by the name itself.
"""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import numpy as np
import pyarrow as pa

Names: TypeAlias = pa.Array  # of pa.string() or pa.int64(), without nulls

_LONG = 256  # bytes; longer strings are hashed one by one, so that one huge name cannot cost a pass per word
_WORDS = 4  # of a string on average, beyond which Arrow compares strings faster than this does word by word
_K1 = np.uint64(0x9E3779B97F4A7C15)
_K2 = np.uint64(0xBF58476D1CE4E5B9)
_K3 = np.uint64(0x94D049BB133111EB)
_ODD = [np.uint64((0x9E3779B97F4A7C15 * (2 * k + 3)) & (2**64 - 1) | 1) for k in range(_LONG >> 3)]
_BLOCK = 1 << 13  # names hashed at a time: what they need stays in the cache
_MASKS = np.array([(1 << (8 * k)) - 1 for k in range(8)], dtype=np.uint64)


def _finalise(h: np.ndarray) -> np.ndarray:
    """The splitmix64 finaliser: a bijection of 64-bit words that spreads every bit; in place."""
    h ^= h >> np.uint64(30)
    h *= _K2
    h ^= h >> np.uint64(27)
    h *= _K3
    h ^= h >> np.uint64(31)
    return h


def string_buffers(names: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Offsets (n + 1, int32) into the bytes, and the bytes, of a string array that may be a slice."""
    _, offsets, data = names.buffers()
    if offsets is None or len(names) == 0:
        return np.zeros(len(names) + 1, dtype=np.int32), np.zeros(0, dtype=np.uint8)
    ends = np.frombuffer(offsets, dtype=np.int32)[names.offset : names.offset + len(names) + 1]
    return ends, np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)


def hash64(names: Names) -> np.ndarray:
    """A 64-bit hash of each name: the same in every process, on every machine, for every batch it appears in."""
    if pa.types.is_integer(names.type):
        return _finalise(np.asarray(names).view(np.uint64) + _K1)
    hashes = np.empty(len(names), dtype=np.uint64)
    if len(names) == 0:
        return hashes
    ends, padded = _padded(names)
    sizes = np.diff(ends)
    most = int(sizes.max())
    words = _every_word(padded)
    for begin in range(0, len(names), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        size = sizes[block]
        if most <= _LONG and (size == size[0]).all():
            hashes[block] = _hash_equal(padded, int(ends[begin]), len(size), int(size[0]))
        else:
            hashes[block] = _hash_block(words, ends[begin : begin + len(size)].astype(np.int64), size.astype(np.int64))
    for i in np.flatnonzero(sizes > _LONG) if most > _LONG else ():
        digest = hashlib.blake2b(padded[ends[i] : ends[i + 1]].tobytes(), digest_size=8).digest()
        hashes[i] = int.from_bytes(digest, "little")
    return hashes


def _padded(names: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Offsets into the bytes of strings, from 0, and these bytes, with a word behind them, whatever it holds."""
    ends, data = string_buffers(names)
    first, last = int(ends[0]), int(ends[-1])
    ends = ends - np.int32(first) if first else ends
    if len(data) >= last + 8:  # another slice has them
        return ends, data[first : last + 8]
    padded = np.zeros(last - first + 8, dtype=np.uint8)
    padded[:-8] = data[first:last]
    return ends, padded


def in_one_size(names: pa.Array) -> pa.Array:
    """Strings that are all as long as the first, as an array of this one size: rows of it are taken in half the time.

    Other names are what they are. `as_names` undoes it.
    """
    if len(names) == 0 or not pa.types.is_string(names.type):
        return names
    ends, data = string_buffers(names)
    first, size = int(ends[0]), int(ends[1]) - int(ends[0])
    if size == 0 or int(ends[-1]) - first != size * len(names) or not (np.diff(ends) == size).all():
        return names
    text = pa.py_buffer(data[first : int(ends[-1])])
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), len(names), [None, text])


def as_names(held: pa.Array) -> Names:
    """The strings of an array that `in_one_size` made, or rows taken from it, which are no slice."""
    if not pa.types.is_fixed_size_binary(held.type):
        return held
    ends = np.arange(len(held) + 1, dtype=np.int32)
    ends *= np.int32(held.type.byte_width)
    return pa.StringArray.from_buffers(len(held), pa.py_buffer(ends), held.buffers()[1])


def same_where(names: pa.Array, order: np.ndarray, first: np.ndarray) -> bool | None:
    """Whether neighbours in this order of names, which share a hash unless one is the `first` of another, are the same name;
    None if only the names themselves tell.

    The hash of an integer is of no other. That of a string is a sum, finalised, of its size times an odd number and one term
    for each word; the terms, and what finalises, are one-to-one. So strings that share it, their size and all words but the
    last share that one, too. Strings may be as `in_one_size` has them.
    """
    if pa.types.is_integer(names.type) or len(names) == 0:
        return True
    if pa.types.is_fixed_size_binary(names.type):
        size, text = names.type.byte_width, np.frombuffer(names.buffers()[1], dtype=np.uint8)
        if size > _LONG:
            return None
        words = (_words(text, 0, len(names), size, step)[order] for step in range((size - 1) // 8))
        return all(_same(word, first) for word in words)
    ends, padded = _padded(names)
    if int(ends[-1]) > _WORDS * 8 * len(names):
        return None
    sizes = np.diff(ends)[order]
    if int(sizes.max()) > _LONG:
        return None
    if not _same(sizes, first):
        return False
    every_word, start = _every_word(padded), ends[order]
    for step in range((int(sizes.max()) - 1) // 8):
        longer = sizes > 8 * step + 8  # of names that share a hash, all or none
        if not longer.all():
            sizes, start, first = sizes[longer], start[longer], first[longer]
        if not _same(every_word[start + np.int32(8 * step)], first):
            return False
    return True


def _same(values: np.ndarray, first: np.ndarray) -> bool:
    """Whether each value but the first ones is as the one before."""
    return bool((first[1:] | (values[1:] == values[:-1])).all())


def _every_word(padded: np.ndarray) -> np.ndarray:
    """A word at every byte."""
    return np.ndarray((len(padded) - 7,), dtype="<u8", buffer=padded, strides=(1,))


def _words(padded: np.ndarray, start: int, count: int, size: int, step: int) -> np.ndarray:
    """The word of this number of each of `count` names of one size; its bytes beyond the name are zeros."""
    words = np.ndarray((count,), dtype="<u8", buffer=padded, offset=start + 8 * step, strides=(size,))
    return words.copy() if size >= 8 * step + 8 else words & _MASKS[size & 7]


def _hash_equal(padded: np.ndarray, start: int, count: int, size: int) -> np.ndarray:
    """What `_hash_block` gives for names of one size, of which each lies where the one before it ends."""
    whole = size >> 3
    h = np.full(count, size * int(_K1) % 2**64, dtype=np.uint64)
    if size & 7:  # a word without a byte adds nothing
        h += _stir(_words(padded, start, count, size, whole), _K2)
    for step in range(whole):
        h += _stir(_words(padded, start, count, size, step), _ODD[step])
    return _finalise(h)


def _hash_block(words: np.ndarray, start: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The sum of each name's words, each times another odd number, and its length, finalised."""
    h = size.astype(np.uint64) * _K1
    whole = size >> 3
    for step in range(min(int(size.max()), _LONG) >> 3):
        active = np.flatnonzero(whole > step)
        rows: slice | np.ndarray = slice(None) if len(active) == len(size) else active
        h[rows] += _stir(words[start[rows] + 8 * step], _ODD[step])
    return _finalise(h + _stir(words[start + 8 * whole] & _MASKS[size & 7], _K2))


def _stir(word: np.ndarray, factor: np.uint64) -> np.ndarray:
    word *= factor
    word ^= word >> np.uint64(29)
    return word


def shard_of(hashes: np.ndarray, shards: int) -> np.ndarray:
    """The shard of each hash: equal ranges of the 64-bit line, so that names sorted by hash lie shard by shard."""
    found = hashes >> np.uint64(32)
    found *= np.uint64(shards)
    found >>= np.uint64(32)
    return found


def first_hash(shard: int, shards: int) -> int:
    """The least hash of a shard: 2**64 for the one after the last."""
    return -(-(shard << 32) // shards) << 32


def canonical_order(names: Names, hashes: np.ndarray) -> np.ndarray:
    """Positions that sort distinct names by (hash, name): an order that depends on the names alone."""
    order = np.argsort(hashes, kind="stable")
    ranked = hashes[order]
    tied = np.flatnonzero(ranked[1:] == ranked[:-1])
    if len(tied):  # two names share a hash: only the names themselves can settle their order
        for run in np.split(tied, np.flatnonzero(np.diff(tied) > 1) + 1):
            lo, hi = int(run[0]), int(run[-1]) + 2
            order[lo:hi] = sorted(order[lo:hi], key=lambda i: names[int(i)].as_py())
    return order
