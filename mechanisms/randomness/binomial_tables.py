"""Bin(2^k, q) for a rational q by inversion, exactly: from tables of its distribution, in integers.

A uniform U is read word by word, and the draw is the least j with U < P[X <= j]. A table holds the first 64 binary digits of
each P[X <= j]: where the first word of U is none of them, it settles all comparisons; else more words are read, and compared
with as many more digits. Proof: docs/proofs/noise.md.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from headcount.mechanisms.randomness.lanes import Lanes

#: The powers of two for which there are tables: that of the last has 50,000 entries, made in 0.05 s.
FIRST_TABLE, LAST_TABLE = 6, 25


def draw_power(lanes: Lanes, index: npt.NDArray[np.intp], k: int, q: Fraction) -> npt.NDArray[np.int64]:
    """Bin(2^k, q) for each lane of the index, 0 < q < 1."""
    first, edges = _words_table(k, q)
    words = lanes.words(index)
    place = np.searchsorted(edges, words, side="right")
    result = first + place.astype(np.int64)
    for tied in np.flatnonzero(edges[np.maximum(place, 1) - 1] == words).tolist():
        result[tied] = _settled(lanes, int(index[tied]), int(words[tied]), k, q)
    return result


def _settled(lanes: Lanes, lane: int, word: int, k: int, q: Fraction) -> int:
    """The draw of a lane whose first word is `word`, by as many more as it takes."""
    digits, bits = word, 64
    while True:
        digits, bits = digits << 64 | int(lanes.words([lane])[0]), bits + 64
        first, edges = _table(k, q, bits)
        place = bisect.bisect_right(edges, digits)
        if place == 0 or edges[place - 1] != digits:
            return first + place


@functools.lru_cache(maxsize=128)
def _words_table(k: int, q: Fraction) -> tuple[int, npt.NDArray[np.uint64]]:
    first, edges = _table(k, q, 64)
    return first, np.array(edges, dtype=np.uint64)


@functools.lru_cache(maxsize=32)
def _table(k: int, q: Fraction, bits: int) -> tuple[int, list[int]]:
    """A number j and floor(2^bits P[X <= i]) for i = j, j + 1, ... with X ~ Bin(2^k, q), exactly: all that differ.

    Numbers are in units of 2^-places, rounded down, with a bound on what they are too low by. If that leaves a digit open,
    more places decide it; with as many as the denominator of P[X <= i] has digits, all numbers are exact.
    """
    n, (a, b) = 1 << k, q.as_integer_ratio()
    places = bits + 96
    while places < n * b.bit_length():
        found = _around_mode(n, a, b, bits, places)
        if found is not None:
            return found
        places *= 2
    sums = itertools.accumulate(math.comb(n, i) * a**i * (b - a) ** (n - i) for i in range(n))
    return 0, [(each << bits) // b**n for each in sums]


def _around_mode(n: int, a: int, b: int, bits: int, places: int) -> tuple[int, list[int]] | None:
    """A table from the mode on to both sides, up to the first floors that are those of 0 and of 1; None if `places` do not
    tell.

    From the mode on, the probabilities fall on both sides, by factors that fall, too. In units of 2^-places of that of the
    mode, a term at distance d is too low by less than d. Where it has become 0, at D, all that follow are below D, so that
    the sum of one side, or a part of it, is too low by less than D (D + the number of its places).
    """
    mode = (n + 1) * a // b
    sides = [(n - mode, mode, a, b - a), (mode, n - mode, b - a, a)]  # upwards, downwards
    terms = [_falling(*side, places) for side in sides]
    slack = sum(len(each) * (len(each) + side[0]) for each, side in zip(terms, sides, strict=True))
    tails = [list(itertools.accumulate(reversed(each)))[::-1] for each in terms]  # from distance 1, 2, ... on
    least = (1 << places) + sum(tail[0] for tail in tails if tail)
    above, below = (_floors(tail, slack, least, bits) for tail in tails)
    if above is None or below is None:
        return None
    return mode - len(below), below[::-1] + [(1 << bits) - 1 - floor for floor in above]


def _falling(more: int, fewer: int, x: int, y: int, places: int) -> list[int]:
    """Terms at distances 1, 2, ... from a mode with 2^places, each the one before times (more - d + 1) x / ((fewer + d) y)."""
    terms, term = [], 1 << places
    for d in range(1, more + 1):
        term = term * (more - d + 1) * x // ((fewer + d) * y)
        terms.append(term)
        if term == 0:
            break
    return terms


def _floors(tail: list[int], slack: int, least: int, bits: int) -> list[int] | None:
    """floor(2^bits t / w) of each sum t over the sum w of all, up to the first 0; None if one could be another floor.

    All sums are too low by less than `slack`. None of the quotients may be whole, so that 1 less a quotient has the floor
    2^bits - 1 - floor.
    """
    most, floors = least + slack, []
    for part in tail:
        floor, left = divmod(part << bits, most)
        if left == 0 or ((part + slack) << bits) // least != floor:
            return None
        floors.append(floor)
        if floor == 0:
            break
    return floors
