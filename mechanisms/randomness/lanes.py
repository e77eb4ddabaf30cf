"""Replay-stable randomness: every lane draws its own stream of bits, a function of key and identity alone.

A pipeline may run any step twice. Fresh noise in each run would publish two noisy values of one count, so
nothing here is fresh: word j of a lane is AES-256 of (lane id + j) under the step's block key. A lane's draws
do not depend on which other lanes are present, on their order, or on how they are cut into arrays.
Proof: docs/proofs/noise.md.

The samplers are exact: every probability is as stated, and no result depends on how a float is rounded, given that the
cipher's words are uniform and independent. They follow Canonne, Kamath, Steinke: "The Discrete Gaussian for Differential
Privacy" (2020), except that a run of Bernoulli(exp(-1)) trials is read off a table at once (`Lanes.geometric`), and that
Bernoulli(exp(-x)) compares a uniform number with exp(-x), by as many of its digits as it takes (`Lanes.bernoulli_exp`).
"""

from __future__ import annotations

import functools
from fractions import Fraction
from math import factorial
from typing import Any

import numpy as np
import numpy.typing as npt

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.blocks import WORD, BlockCipher, Words

Integers = npt.NDArray[Any]  # int64; Python integers (dtype object) where int64 is too narrow
Flags = npt.NDArray[np.bool_]

#: `Lanes.geometric` stops counting here; what lies beyond has probability e^-4096 and is neglected.
GEOMETRIC_LIMIT = 4096

_LARGEST = np.uint64(2**64 - 1)


@functools.lru_cache(maxsize=1024)
def exp_floor(power: int | Fraction, bits: int) -> int:
    """floor(2^bits * e^-power), exactly.

    The sum of 1/k! for k <= n is below e by less than 2/(n+1)!, and that of x^k/k! below e^x by less than 2 x^(n+1)/(n+1)!
    for x < 1, which gives rational bounds on e^-power. It is irrational unless it is 1, so for some n both bounds have the same
    floor, and that is the answer.
    """
    if power >= bits > 0:
        return 0
    whole, rest = divmod(Fraction(power), 1)
    n, d = rest.numerator, rest.denominator
    terms = 32
    while True:
        terms *= 2
        # e lies strictly between below/unit and above/unit, and e^rest between least/part and most/part.
        unit = factorial(terms + 1)
        below = sum(unit // factorial(k) for k in range(terms + 1))
        above = below + 2
        part = d**terms * factorial(terms)
        least = sum(n**k * d ** (terms - k) * (factorial(terms) // factorial(k)) for k in range(terms + 1))
        most = least + (2 * n ** (terms + 1) // (d * (terms + 1)) + 1 if n else 0)
        scaled = part * unit**whole << bits
        if scaled // (least * below**whole) == scaled // (most * above**whole):
            return scaled // (least * below**whole)


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
        if ids.ndim != 2 or ids.shape[1] != 2 or ids.dtype != np.uint64:
            raise ParameterError(f"lane ids are uint64 of shape (n, 2), got {ids.dtype} of shape {ids.shape}")
        self._ids = np.ascontiguousarray(ids, dtype=WORD)
        self._drawn = np.zeros(len(ids), dtype=WORD)
        self._cipher = BlockCipher(block_key)

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
        return self._cipher(blocks)[:, 0].copy()

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
        blocks[:, 1] += np.repeat(self._drawn[lanes], each) + steps.astype(WORD)
        self._drawn[lanes] += np.asarray(each).astype(WORD)
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

        Read a lane's words as the binary digits of a uniform R in [0, 1): it is true where R < exp(-numerator/denominator).
        One word of 64 bits tells by far: a float of the right side is off by less than 2^-40 of itself, or is far below a bit
        of the word, whose own float is off by 2^10 bits. Where both are closer than that, integers decide; so no result
        depends on how floats are rounded.
        """
        lanes = self._checked(index)
        if np.less(numerator, 0).any():
            raise ParameterError("exp(-x) is a probability for x >= 0 only")
        words = self.words(lanes)
        power = np.broadcast_to(np.asarray(numerator / denominator, dtype=np.float64), lanes.shape)
        edge, drawn = np.exp(-power) * 2.0**64, words.astype(np.float64)
        result = drawn < edge
        for close in np.flatnonzero(np.abs(drawn - edge) <= edge * 2.0**-38 + 2.0**12).tolist():
            exact = Fraction(*(int(np.broadcast_to(each, lanes.shape)[close]) for each in (numerator, denominator)))
            result[close] = self._settle_exp(int(lanes[close]), int(words[close]), exact)
        return result

    def _settle_exp(self, lane: int, word: int, power: Fraction) -> bool:
        """Whether R < exp(-power) for a lane whose first word is `word`: R lies in [digits, digits + 1) / 2^bits."""
        digits, bits = word, 64
        while (edge := exp_floor(power, bits)) == digits:
            digits = digits << 64 | int(self.words([lane])[0])
            bits += 64
        return digits < edge


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
