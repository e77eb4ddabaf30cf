"""Replay-stable randomness: every lane draws its own stream of bits, a function of key and identity alone.

A pipeline may run any step twice. Fresh noise in each run would publish two noisy values of one count, so
nothing here is fresh: word j of a lane is AES-256 of (lane id + j) under the step's block key. A lane's draws
do not depend on which other lanes are present, on their order, or on how they are cut into arrays.

The samplers are exact: integers only, no floating point, every probability as stated, given that the cipher's
words are uniform and independent. They follow Canonne, Kamath, Steinke: "The Discrete Gaussian for
Differential Privacy" (2020), except that a run of Bernoulli(exp(-1)) trials is read off a table at once
(`Lanes.geometric`).
"""

from __future__ import annotations

import functools
from math import factorial
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from headcount.mechanisms.errors import ParameterError

Words = npt.NDArray[np.uint64]
Integers = npt.NDArray[Any]  # int64; Python integers (dtype object) where int64 is too narrow
Flags = npt.NDArray[np.bool_]

#: `Lanes.geometric` stops counting here; what lies beyond has probability e^-4096 and is neglected.
GEOMETRIC_LIMIT = 4096

_WORD = np.dtype("<u8")
_LARGEST = np.uint64(2**64 - 1)


@functools.lru_cache(maxsize=1024)
def exp_floor(power: int, bits: int) -> int:
    """floor(2^bits * e^-power), exactly.

    The sum of 1/k! for k <= n is below e by less than 2/(n+1)!, which gives rational bounds on e^-power. It
    is irrational for power >= 1, so for some n both bounds have the same floor, and that is the answer.
    """
    terms = 32
    while True:
        terms *= 2
        # e lies strictly between below/unit and above/unit.
        unit = factorial(terms + 1)
        below = sum(unit // factorial(k) for k in range(terms + 1))
        above = below + 2
        scaled = unit**power << bits
        if scaled // below**power == scaled // above**power:
            return scaled // below**power


# Edge v-1 of this table is floor(2^64 e^-v); it ends with the first zero (v = 45).
_EDGES = tuple(exp_floor(power, 64) for power in range(1, 46))


class Lanes:
    """Independent random streams, one per lane, all advanced by a few calls on arrays.

    `ids` has shape (n, 2): the high and low half of each lane's 128-bit id. Two lanes with the same id draw
    the same bits: ids must come from identities that differ. Word j of a lane is the first 8 bytes, little
    endian, of AES-256(block_key, high || low + j mod 2^64), both halves as 8 bytes little endian. (The runs
    of n lanes that draw w words each meet with probability below n^2 w / 2^128, as ids are keyed digests.)

    An `index` selects lanes by position, each at most once per call; results are in the order of the index.
    """

    def __init__(self, block_key: bytes, ids: Words) -> None:
        if len(block_key) != 32:
            raise ParameterError(f"a block key is 32 bytes, got {len(block_key)}")
        if ids.ndim != 2 or ids.shape[1] != 2 or ids.dtype != np.uint64:
            raise ParameterError(f"lane ids are uint64 of shape (n, 2), got {ids.dtype} of shape {ids.shape}")
        self._ids = np.ascontiguousarray(ids, dtype=_WORD)
        self._drawn = np.zeros(len(ids), dtype=_WORD)
        self._cipher = Cipher(algorithms.AES(block_key), modes.ECB()).encryptor()
        self._output = np.empty(0, dtype=np.uint8)

    @property
    def n(self) -> int:
        """How many lanes there are."""
        return len(self._ids)

    def _checked(self, index: npt.ArrayLike) -> npt.NDArray[np.intp]:
        """`index` as positions; a lane named twice would give the same word to two draws."""
        lanes = np.asarray(index, dtype=np.intp)
        if lanes.size:
            order = lanes if (lanes[1:] > lanes[:-1]).all() else np.unique(lanes)
            if len(order) != len(lanes) or order[0] < 0 or order[-1] >= self.n:
                raise ParameterError(f"an index must name distinct lanes out of {self.n}")
        return lanes

    def _encrypt(self, blocks: Words) -> Words:
        size = blocks.size * 8
        if size == 0:
            return np.empty(0, dtype=_WORD)
        if len(self._output) < size + 15:  # update_into asks for one byte less than a block on top
            self._output = np.empty(size + 15, dtype=np.uint8)
        self._cipher.update_into(blocks.data.cast("B"), self._output.data)
        return self._output[:size].view(_WORD)[::2].copy()

    def words(self, index: npt.ArrayLike) -> Words:
        """The next word of each lane."""
        lanes = self._checked(index)
        blocks = self._ids.take(lanes, axis=0)
        drawn = self._drawn.take(lanes)
        blocks[:, 1] += drawn
        drawn += np.uint64(1)
        self._drawn[lanes] = drawn
        return self._encrypt(blocks)

    def words_each(self, index: npt.ArrayLike, each: Integers) -> Words:
        """The next each[i] words of lane index[i], lane after lane."""
        lanes = self._checked(index)
        starts = np.cumsum(each) - each
        blocks = self._ids.take(np.repeat(lanes, each), axis=0)
        steps = np.arange(len(blocks)) - np.repeat(starts, each)
        blocks[:, 1] += np.repeat(self._drawn[lanes], each) + steps.astype(_WORD)
        self._drawn[lanes] += np.asarray(each).astype(_WORD)
        return self._encrypt(blocks)

    def uniform_below(self, bound: int | Integers, index: npt.ArrayLike) -> Integers:
        """Uniform on 0 .. bound - 1, exactly: words past the last multiple of the bound are drawn again.

        The bound is one number or one per lane, 1 .. 2^62. A single larger one gives Python integers, slowly.
        """
        lanes = self._checked(index)
        if isinstance(bound, int) and bound > 2**62:
            return self._large_uniform_below(bound, lanes)
        bounds, last = _bounds(bound)
        words = self.words(lanes)
        again = np.flatnonzero(words > last)
        while again.size:
            words[again] = self.words(lanes[again])
            again = again[words[again] > (last[again] if np.ndim(last) else last)]
        return _remainder(words, bounds)

    def uniform_below_each(self, bound: int | Integers, index: npt.ArrayLike, each: Integers) -> Integers:
        """each[i] draws, uniform below the bound (of lane index[i]), lane after lane."""
        lanes = self._checked(index)
        owner = np.repeat(np.arange(len(lanes)), each)
        bounds, last = _bounds(bound)
        words = self.words_each(lanes, each)
        again = np.flatnonzero(words > np.min(last, initial=_LARGEST))  # of whichever lane: hardly ever one
        again = again[words[again] > _of_lane(last, owner[again])]
        while again.size:
            words[again] = self.words_each(lanes, np.bincount(owner[again], minlength=len(lanes)))
            again = again[words[again] > _of_lane(last, owner[again])]
        return _remainder(words, _of_lane(bounds, owner))

    def _large_uniform_below(self, bound: int, lanes: npt.NDArray[np.intp]) -> Integers:
        """Uniform on 0 .. bound - 1 for any bound: as many bits as it has, drawn again if they exceed it."""
        count = -(-bound.bit_length() // 64)
        values = np.empty(len(lanes), dtype=object)
        again = np.arange(len(lanes))
        while again.size:
            words = self.words_each(lanes[again], np.full(len(again), count)).astype(object)
            drawn = words[::count]
            for k in range(1, count):
                drawn = drawn << 64 | words[k::count]
            values[again] = drawn >> (64 * count - bound.bit_length())
            again = again[values[again] >= bound]
        return values

    def bernoulli(self, numerator: int | Integers, denominator: int | Integers, index: npt.ArrayLike) -> Flags:
        """True with probability numerator/denominator, 0 <= numerator <= denominator."""
        if np.less(numerator, 0).any() or np.greater(numerator, denominator).any():
            raise ParameterError("a probability must be between 0 and 1")
        return (self.uniform_below(denominator, index) < numerator).astype(bool)

    def geometric(self, index: npt.ArrayLike) -> Integers:
        """V >= 0 with P(V >= v) = e^-v, exactly (up to GEOMETRIC_LIMIT).

        Read a lane's words as the binary digits of a uniform R in [0, 1): V is the number of v >= 1 with
        R < e^-v. One word settles this unless it equals some floor(2^64 e^-v); then more words are read.
        """
        lanes = self._checked(index)
        words = self.words(lanes)
        values = np.zeros(len(lanes), dtype=np.int64)
        active, open_words = np.arange(len(lanes)), words
        for edge in map(np.uint64, _EDGES):
            below = np.flatnonzero(open_words <= edge)
            if below.size == 0:
                break
            active, open_words = active[below], open_words[below]
            values[active] += 1
            for tied in active[open_words == edge].tolist():
                values[tied] = self._settle_geometric(int(lanes[tied]), int(words[tied]))
        return values

    def _settle_geometric(self, lane: int, word: int) -> int:
        """V of a lane whose first word is `word`, digit by digit: R lies in [digits, digits + 1) / 2^bits."""
        digits, bits, value = word, 64, 0
        while value < GEOMETRIC_LIMIT:
            edge = exp_floor(value + 1, bits)
            if digits < edge:  # R < (digits + 1) / 2^bits <= edge / 2^bits <= e^-(value + 1)
                value += 1
            elif digits > edge:  # R >= (edge + 1) / 2^bits > e^-(value + 1)
                break
            else:
                digits = digits << 64 | int(self.words([lane])[0])
                bits += 64
        return value

    def bernoulli_exp(self, numerator: int | Integers, denominator: int | Integers, index: npt.ArrayLike) -> Flags:
        """True with probability exp(-numerator/denominator), for any numerator >= 0.

        The whole part w passes if a geometric variable is at least w (so never above GEOMETRIC_LIMIT). For
        the rest x < 1: let K be the first k = 1, 2, ... at which a Bernoulli(x/k) fails; K is odd with
        probability exp(-x). Bernoulli(x/k) is drawn as Bernoulli(1/k) and Bernoulli(x), so that no number
        exceeds the numerator and denominator given.
        """
        lanes = self._checked(index)
        if np.less(numerator, 0).any():
            raise ParameterError("exp(-x) is a probability for x >= 0 only")
        whole = np.broadcast_to(numerator // denominator, lanes.shape)
        rest = numerator - whole * denominator
        result = np.ones(len(lanes), dtype=bool)
        large = np.flatnonzero(whole)
        if large.size:
            result[large] = self.geometric(lanes[large]) >= whole[large]
        active = np.flatnonzero(result)
        k = 1
        while active.size:
            if k > 1:
                chosen = self.uniform_below(k, lanes[active]) == 0
                result[active] = k % 2 == 1
                active = active[chosen]
            below = denominator[active] if isinstance(denominator, np.ndarray) else denominator
            passed = self.bernoulli(rest[active], below, lanes[active])
            result[active] = k % 2 == 1
            active = active[passed]
            k += 1
        return result


def _bounds(bound: int | Integers) -> tuple[Any, Any]:
    """The bounds as uint64, and for each the last word that is below a whole multiple of it."""
    bounds = np.asarray(bound)
    if bounds.dtype.kind not in "iu" or (bounds.size and not 1 <= bounds.min() <= bounds.max() <= 2**62):
        raise ParameterError("bounds of uniform draws must be integers between 1 and 2^62")
    bounds = bounds.astype(np.uint64)[()]
    return bounds, _LARGEST - (_LARGEST % bounds + np.uint64(1)) % bounds


def _of_lane(values: Any, lanes: npt.NDArray[np.intp]) -> Any:
    """What each of the lanes has, of one number for all of them, or one for each."""
    return values[lanes] if np.ndim(values) else values


def _remainder(words: Words, bounds: Any) -> Integers:
    if np.ndim(bounds):
        return (words % bounds).astype(np.int64)
    # NumPy divides an array by one number without a division, but does not do the same for the remainder.
    return (words - words // bounds * bounds).astype(np.int64)
