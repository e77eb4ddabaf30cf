"""Lane ids: a keyed digest of what a lane is and of the data it works on.

The digest is of an injective encoding: a head of fixed size that holds type tags and lengths, then the bytes that those lengths
delimit, then zeros up to a whole number of words of 8 bytes. Two lanes share an id only if identity and data are the same, up
to a collision of the digest; without the key an id tells nothing. Proof: docs/proofs/noise.md.

The digest is a protected counter sum (Bernstein, "How to stretch random functions", J. Cryptology 1999): a cipher works on
arrays of lanes, where a hash works on one lane at a time.

    id = AES-256(k2, sum over j of AES-256(k1, j || word j)),    added up by halves mod 2^64,

with keys k1 and k2 of the step and the kind of lane. Of two different encodings one has a pair (j, word j) that the other has
not, and none has a pair twice. Were the ciphers random functions, two sums would so be equal with probability 2^-128, and ids
of different sums would be independent and uniform. Ciphers are permutations instead. All lanes of a step together, of n words,
show that with probability n^2 / 2^128 or less: 2^-48 for 2^40 words.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.blocks import WORD, BlockCipher
from headcount.mechanisms.randomness.subkeys import KEY_BYTES

_TEXT, _NUMBER = b"s", b"i"
_ITEM_HEAD = np.dtype([("kind", "S8"), ("item", "<i8"), ("sum", "<i8")])
_USER_HEAD = np.dtype([("kind", "S4"), ("item_kind", "S4"), ("user", "<i8"), ("rows", "<i8")])
_DRAW_HEAD = np.dtype([("draw", "<i8"), ("length", "<i8")])
_BATCH = 1 << 12  # lanes encoded and encrypted at a time, whose copies a cache holds


def item_lane_ids(lane_key: bytes, items: pa.Array, sums: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """The lane of each item (text or int64) together with its exact sum, as an (n, 2) array.

    Encoding: kind, length in bytes (int64 items: the item), the sum; the item's bytes.
    """
    if len(items) != len(sums):
        raise ParameterError(f"every item needs one sum, got {len(items)} items and {len(sums)} sums")
    kind, numbers, offsets, text = _columns(items)
    head = np.empty(len(items), dtype=_ITEM_HEAD)
    head["kind"], head["item"], head["sum"] = kind, numbers, sums
    return _digests(lane_key, b"headcount.items", head, [(offsets, text)])


def user_lane_ids(
    lane_key: bytes,
    users: pa.Array,
    offsets: npt.NDArray[np.int64],
    items: pa.Array,
    counts: npt.NDArray[np.int64],
) -> npt.NDArray[np.uint64]:
    """The lane of each user together with all its rows, as an (n, 2) array.

    User u has the rows offsets[u] to offsets[u + 1] of `items` and `counts`, consolidated and in canonical
    order (the caller's part: another order is another lane). Users and items are text or int64.

    Encoding: both kinds, length of the user in bytes (int64 users: the user), number of rows; the user's
    bytes; for each row the item's length (int64 items: the item) and the count; all the items' bytes.
    """
    offsets = np.asarray(offsets, dtype=np.int64)
    if len(offsets) != len(users) + 1 or len(items) != len(counts):
        raise ParameterError(
            f"{len(users)} users need one offset more, got {len(offsets)}; {len(items)} items need as many"
            f" counts, got {len(counts)}"
        )
    rows = np.diff(offsets)
    if offsets[0] < 0 or offsets[-1] > len(items) or (rows < 0).any():
        raise ParameterError(f"the offsets of users must ascend within the {len(items)} rows")
    kind, user_numbers, user_offsets, user_text = _columns(users)
    item_kind, item_numbers, item_offsets, item_text = _columns(items)
    head = np.empty(len(users), dtype=_USER_HEAD)
    head["kind"], head["item_kind"], head["user"], head["rows"] = kind, item_kind, user_numbers, rows
    table = np.empty((len(items), 2), dtype="<i8")
    table[:, 0], table[:, 1] = item_numbers, counts
    return _digests(
        lane_key,
        b"headcount.users",
        head,
        [
            (user_offsets, user_text),
            (offsets * table.strides[0], pa.py_buffer(table.data)),
            (item_offsets[offsets], item_text),
        ],
    )


def decision_lane_ids(lane_key: bytes, table: bytes, draws: int) -> npt.NDArray[np.uint64]:
    """The lanes of one decision, numbered from 0, together with the whole table that it looks at, as a (draws, 2) array.

    Encoding: the number of the draw, length of the table in bytes; the table.
    """
    head = np.empty(draws, dtype=_DRAW_HEAD)
    head["draw"], head["length"] = np.arange(draws), len(table)
    copies = np.arange(draws + 1) * len(table), pa.py_buffer(table * draws)
    return _digests(lane_key, b"headcount.draws", head, [copies])


def lane_sum(ids: npt.NDArray[np.uint64]) -> int:
    """The sum of all ids mod 2^128: one number for a set of lanes, the same for every order and sharding."""
    # Added up in halves of 32 bits, since a sum of 2^32 of them still fits 64.
    upper = (ids >> np.uint64(32)).sum(axis=0, dtype=np.uint64).tolist()
    lower = (ids & np.uint64(2**32 - 1)).sum(axis=0, dtype=np.uint64).tolist()
    high, low = ((u << 32) + v for u, v in zip(upper, lower, strict=True))
    return ((high << 64) + low) % 2**128


def _columns(array: pa.Array) -> tuple[bytes, npt.NDArray[Any], npt.NDArray[np.int64], pa.Buffer]:
    """Kind of the array; what stands in the head for each value; offsets into its text; its text."""
    if array.null_count:
        raise ParameterError("lanes have no nulls; drop or refuse them before")
    if pa.types.is_int64(array.type):
        numbers = array.to_numpy(zero_copy_only=False)
        return _NUMBER, numbers, np.zeros(len(array) + 1, dtype=np.int64), pa.py_buffer(b"")
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        raise ParameterError(f"lanes are made of string or int64 values, got {array.type}")
    _, offset_buffer, text = array.buffers()
    if len(array) == 0 or text is None:  # Arrow may leave out buffers without content
        offsets = np.zeros(len(array) + 1, dtype=np.int64)
        return _TEXT, np.diff(offsets), offsets, pa.py_buffer(b"")
    width = np.int32 if pa.types.is_string(array.type) else np.int64
    offsets = np.frombuffer(offset_buffer, dtype=width, count=array.offset + len(array) + 1)
    offsets = offsets[array.offset :].astype(np.int64)
    return _TEXT, np.diff(offsets), offsets, text


def _digests(
    lane_key: bytes, purpose: bytes, head: npt.NDArray[np.void], pieces: list[tuple[npt.NDArray[np.int64], pa.Buffer]]
) -> npt.NDArray[np.uint64]:
    """The keyed digest of each head followed by its pieces: of each content, the bytes between two offsets."""
    sums, last = (_cipher(lane_key, purpose, use) for use in (b"words", b"sums"))
    heads = np.arange(len(head) + 1) * head.itemsize
    sizes = np.diff(sum((offsets for offsets, _ in pieces), heads))
    filled = np.append(0, np.cumsum(-sizes % WORD.itemsize))
    columns = [_binary(*piece) for piece in ((heads, pa.py_buffer(head.tobytes())), *pieces, (filled, _zeros(filled)))]
    nothing = pa.scalar(b"", pa.large_binary())
    ids = np.empty((len(head), 2), dtype=np.uint64)
    for start in range(0, len(head), _BATCH):
        encoded = pc.binary_join_element_wise(*(column.slice(start, _BATCH) for column in columns), nothing)
        _, offsets, content = encoded.buffers()
        ends = np.frombuffer(offsets, dtype=np.int64, count=len(encoded) + 1) // WORD.itemsize
        blocks = np.empty((ends[-1], 2), dtype=WORD)
        blocks[:, 0] = np.arange(ends[-1]) - np.repeat(ends[:-1], np.diff(ends))
        blocks[:, 1] = np.frombuffer(content, dtype=WORD, count=ends[-1])
        ids[start : start + len(encoded)] = last(np.add.reduceat(sums(blocks), ends[:-1], axis=0))
    return ids


def _cipher(lane_key: bytes, purpose: bytes, use: bytes) -> BlockCipher:
    return BlockCipher(hashlib.blake2b(use, key=lane_key, digest_size=KEY_BYTES, person=purpose).digest())


def _binary(offsets: npt.NDArray[np.int64], content: pa.Buffer) -> pa.Array:
    """The bytes of `content` between each two offsets, without a copy."""
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets.data), content])


def _zeros(offsets: npt.NDArray[np.int64]) -> pa.Buffer:
    return pa.py_buffer(bytes(offsets[-1]))
