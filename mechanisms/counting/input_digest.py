"""A digest of the whole input of a release, by which another attempt at it shows that it is of the same input.

Guarantee: the same rows have the same digest for any order, batching and sharding, and with equal rows added up or not. Whoever
has no key learns nothing from it: for one release id it is a pseudorandom number for each input. So it may stand in a report.
Proof: docs/proofs/noise.md.

The sum is one of lane ids (`randomness.lane_ids` has the proof): each row without its count is a set of blocks of a number and
a word, and of these

    id = AES-256(k2, sum of AES-256(k1, block)),    digest = BLAKE2b(k3, sum over rows of count * id),

added up by halves mod 2^64. A block's number says which column it is of, how long the text is, and where in the text the word
stands; so two different rows have different sets of blocks. Two inputs differ by some rows, each by a difference d of counts,
and each half of d times a uniform number is 0 for at most |d| of 2^64 numbers: the digests of two inputs are equal with a
probability of 2^-68 or less, if no pair differs by more than 2^30 in its count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from headcount.mechanisms.batches.names import string_buffers
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.blocks import WORD, BlockCipher, Words
from headcount.mechanisms.randomness.subkeys import KEY_BYTES, block_key, lane_key, subkey

_LABEL = "input digest"  # no transform has it
_BATCH = 1 << 13  # rows whose blocks a cache holds
_COLUMN, _LENGTH, _TEXT = np.uint64(1 << 56), np.uint64(1 << 24), np.uint64(1)  # what a block's number is made of
_MASKS = np.array([(1 << 8 * k) - 1 for k in range(9)], dtype=np.uint64)

NOTHING = bytes(16)


class InputDigest:
    """The digest of the input of one release. Without a key, for rows that hold noise of their own, anybody can compute it."""

    def __init__(self, key: bytes | None, release_id: str) -> None:
        own = subkey(bytes(KEY_BYTES) if key is None else key, release_id, _LABEL, {"keyed": key is not None})
        self._own, self._blocks, self._rows = own, BlockCipher(lane_key(own)), BlockCipher(block_key(own))

    def of(self, batch: pa.RecordBatch) -> bytes:
        """The sum of a batch of texts and integers; a row counts as often as its column `count` says, or once."""
        ids = np.zeros((batch.num_rows, 2), dtype=WORD)
        for number, name in enumerate(name for name in batch.schema.names if name != "count"):
            self._add(ids, number, batch.column(name))
        counts = np.asarray(batch.column("count")).astype(np.uint64) if "count" in batch.schema.names else None
        found = np.zeros(2, dtype=WORD)
        for start in range(0, len(ids), _BATCH):
            rows = slice(start, start + _BATCH)
            each = self._rows(ids[rows])
            found += (each if counts is None else each * counts[rows, None]).sum(axis=0, dtype=WORD)
        return found.tobytes()

    def whole(self, sums: Iterable[bytes]) -> str:
        """The digest of all batches, in 32 hexadecimal digits."""
        return hashlib.blake2b(add_up(sums), key=self._own, digest_size=16, person=b"headcount.input").hexdigest()

    def _add(self, ids: Words, number: int, column: pa.Array) -> None:
        """Add the blocks of a column to the sums of its rows."""
        if isinstance(column, pa.DictionaryArray):
            distinct = np.zeros((len(column.dictionary), 2), dtype=WORD)
            self._add(distinct, number, column.dictionary)
            ids += distinct[np.asarray(column.indices)]
            return
        if pa.types.is_integer(column.type):
            values = np.asarray(column.cast(pa.int64())).view(np.uint64)
            for start in range(0, len(values), _BATCH):
                part = values[start : start + _BATCH]
                ids[start : start + _BATCH] += self._encrypted(np.uint64(number) * _COLUMN, part)
            return
        if not pa.types.is_string(column.type):
            raise ParameterError(f"an input is known by its texts and integers, got {column.type}")
        ends, text = string_buffers(column)
        padded = np.append(text, np.zeros(8, dtype=np.uint8))
        words = np.ndarray((len(padded) - 7,), dtype=WORD, buffer=padded.data, strides=(1,))  # a word at every byte
        for start in range(0, len(column), _BATCH):
            cut = ends[start : start + _BATCH + 1].astype(np.int64)
            self._add_texts(ids[start : start + _BATCH], number, words, cut[:-1], np.diff(cut))

    def _add_texts(self, ids: Words, number: int, words: Words, begin: np.ndarray, size: np.ndarray) -> None:
        rows = np.arange(len(size))
        for place in range(-(-int(size.max()) // 8) or 1):
            rows = rows[size[rows] > 8 * place] if place else rows
            at, left = begin[rows] + 8 * place, size[rows] - 8 * place
            numbers = np.uint64(number) * _COLUMN + size[rows].astype(np.uint64) * _LENGTH + (np.uint64(place) + _TEXT)
            ids[rows] += self._encrypted(numbers, words[at] & _MASKS[np.minimum(left, 8)])

    def _encrypted(self, numbers: np.ndarray | np.uint64, words: Words) -> Words:
        blocks = np.empty((len(words), 2), dtype=WORD)
        blocks[:, 0], blocks[:, 1] = numbers, words
        return self._blocks(blocks)


def add_up(sums: Iterable[bytes]) -> bytes:
    """Sums of parts of an input as that of the whole, in any order."""
    halves = np.frombuffer(b"".join([NOTHING, *sums]), dtype=WORD).reshape(-1, 2)
    return halves.sum(axis=0, dtype=WORD).tobytes()
