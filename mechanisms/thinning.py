"""Binomial draws, exact in law and in integers: how many of c trials succeed, each with rational probability q.

A trial succeeds iff a uniform U in [0, 1) is below q. Both are read digit by digit, in binary, for all trials of a lane at
once: while U and q agree, a trial is undecided, and at the first digit where they differ it is settled. Each digit of U is a
fair coin, so that of n undecided trials H ~ Bin(n, 1/2) have a 1; if q has a 1 there, the n - H with a 0 succeed and H stay
undecided; if q has a 0, the H with a 1 fail and n - H stay. Where q ends, what is undecided has U >= q and fails. About
log2(c) + 2 digits are looked at, whatever q.

Bin(n, 1/2) is a sum over the binary digits of n: the number of ones in n mod 2^9 random bits, and for each digit k from 9 on
that is set, a draw of Bin(2^k, 1/2) by inversion, from a table of its distribution (`_drawn`). For an n of 2^26 or more it is
drawn by rejection (`_halved`), at a cost that does not grow with n.
"""

from __future__ import annotations

import bisect
import decimal
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness import Lanes

#: The largest number of trials of a lane.
LARGEST_COUNT = 2**62

# Digits of n below the first are counted bit by bit, those up to the last are drawn from tables: a table of the last has 80,000
# entries, made in a tenth of a second. Beyond, n is drawn by rejection, whose bounds need at least 2^13.
_FIRST_TABLE, _LAST_TABLE = 9, 25

# Words drawn together, over all lanes: they and what makes them stay in the processor's cache.
_WORDS = 1 << 17

# ln of the rejection's factor, as the proof in `_halved` needs it.
_LOG_FACTOR = Fraction(33, 64)

Counts = npt.NDArray[np.int64]
Index = npt.NDArray[np.intp]


def binomial(
    lanes: Lanes,
    counts: npt.ArrayLike,
    q: Fraction | Callable[[], Iterator[int]],
    index: npt.ArrayLike | None = None,
) -> Counts:
    """Bin(counts[i], q) for each lane (or for those that the index names), exactly, from the lane's own words.

    A lane's draw does not depend on which others are present. Counts are 0 .. 2^62. A q that is not rational is given by what
    makes its binary digits after the point, as many as are asked for.
    """
    if callable(q):
        digits = q
    else:
        if isinstance(q, bool) or not isinstance(q, Fraction | int) or not 0 <= q <= 1:
            raise ParameterError(f"a probability must be a Fraction between 0 and 1, got {q!r}")
        digits = functools.partial(_digits, q)
    places = np.arange(lanes.n) if index is None else np.asarray(index, dtype=np.intp)
    trials = np.asarray(counts)
    if trials.shape != places.shape or trials.dtype.kind not in "iu":
        raise ParameterError(
            f"{len(places)} lanes need as many whole numbers of trials, got {trials.dtype}{trials.shape}"
        )
    if trials.size and not 0 <= int(trials.min()) <= int(trials.max()) <= LARGEST_COUNT:
        raise ParameterError("a number of trials must be between 0 and 2^62")
    trials = trials.astype(np.int64)
    if q == 1:
        return trials
    successes = np.zeros(len(trials), dtype=np.int64)
    for part in _parts(trials):
        _thin(lanes, places[part], trials[part], digits(), successes[part])
    return successes


def _parts(trials: Counts) -> Iterator[slice]:
    """Consecutive lanes whose first digits take about so many words that they stay in the cache."""
    ends = np.cumsum(_words(trials))
    start = 0
    while start < len(trials):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _WORDS, side="right")))
        yield slice(start, stop)
        start = stop


def _words(trials: Counts) -> Counts:
    """About how many words the first digit takes."""
    return np.where(trials >> _FIRST_TABLE, 8, (trials + 63) >> 6)


def _thin(lanes: Lanes, places: Index, trials: Counts, digits: Iterator[int], successes: Counts) -> None:
    """Adds the successes of each lane's trials, digit by digit of q."""
    open_ = np.flatnonzero(trials)
    undecided = trials[open_]
    for digit in digits:
        if open_.size == 0:
            return
        ones = fair(lanes, places[open_], undecided)
        if digit:
            successes[open_] += undecided - ones
            undecided = ones
        else:
            undecided = undecided - ones
        left = np.flatnonzero(undecided)
        if len(left) < len(open_):
            open_, undecided = open_[left], undecided[left]


def _digits(q: Fraction) -> Iterator[int]:
    """The binary digits of q in [0, 1) after the point; they end if the denominator is a power of two."""
    numerator, denominator = q.numerator, q.denominator
    while numerator:
        numerator *= 2
        digit = int(numerator >= denominator)
        numerator -= digit * denominator
        yield digit


def fair(lanes: Lanes, index: Index, trials: Counts) -> Counts:
    """Bin(trials[i], 1/2) for each lane of the index, each with one trial or more."""
    if len(trials) and int(trials.max()) <= 64:
        return _ones(lanes.words(index) >> (64 - trials).astype(np.uint64))
    result = np.zeros(len(trials), dtype=np.int64)
    tables = trials >> (_LAST_TABLE + 1) == 0
    rest = np.where(tables, trials & ((1 << _FIRST_TABLE) - 1), 0)
    counted = np.flatnonzero(rest)
    if counted.size:
        each = (rest[counted] + 63) >> 6
        words = lanes.words_each(index[counted], each)
        ends = np.cumsum(each)
        words[ends - 1] >>= (-rest[counted] & 63).astype(np.uint64)
        result[counted] = np.add.reduceat(_ones(words), ends - each)
    powers = np.where(tables, trials >> _FIRST_TABLE, 0)
    for k in range(_FIRST_TABLE, _FIRST_TABLE + int(powers.max(initial=0)).bit_length()):
        those = np.flatnonzero(powers & (1 << (k - _FIRST_TABLE)))
        result[those] += _drawn(lanes, index[those], k)
    for place in np.flatnonzero(~tables).tolist():
        result[place] = _halved(lanes, int(index[place]), int(trials[place]))
    return result


def _ones(words: npt.NDArray[np.uint64]) -> Counts:
    return np.bitwise_count(words).astype(np.int64)


def _drawn(lanes: Lanes, index: Index, k: int) -> Counts:
    """Bin(2^k, 1/2) for each lane: the least j with U < P[X <= j], for a uniform U that is read word by word.

    Where the word is not the first 64 digits of any P[X <= j], it settles all comparisons; else more words are read.
    """
    first, edges = _words_table(k)
    words = lanes.words(index)
    place = np.searchsorted(edges, words, side="right")
    result = first + place.astype(np.int64)
    for tied in np.flatnonzero(edges[np.maximum(place, 1) - 1] == words).tolist():
        result[tied] = _settled(lanes, int(index[tied]), int(words[tied]), k)
    return result


def _settled(lanes: Lanes, lane: int, word: int, k: int) -> int:
    """The draw of a lane whose first word is `word`, by as many more as it takes."""
    digits, bits = word, 64
    while True:
        digits, bits = digits << 64 | int(lanes.words([lane])[0]), bits + 64
        first, edges = _table(k, bits)
        place = bisect.bisect_right(edges, digits)
        if place == 0 or edges[place - 1] != digits:
            return first + place


@functools.cache
def _words_table(k: int) -> tuple[int, npt.NDArray[np.uint64]]:
    first, edges = _table(k, 64)
    return first, np.array(edges, dtype=np.uint64)


@functools.lru_cache(maxsize=32)
def _table(k: int, bits: int) -> tuple[int, list[int]]:
    """A number j and floor(2^bits P[X <= i]) for i = j, j + 1, ... with X ~ Bin(2^k, 1/2), exactly: all that differ.

    Numbers are in units of 2^-places, rounded down, with a bound on what they are too low by. If that leaves a digit open,
    more places decide it; with 2^k of them all numbers are exact.
    """
    n, half = 1 << k, 1 << (k - 1)
    places = bits + 96
    while places < n:
        lower = _lower_half(n, bits, places)
        if lower is not None:
            upper = [(1 << bits) - 1 - edge for edge in lower]
            return half - len(lower), lower[::-1] + upper
        places *= 2
    sums = itertools.accumulate(math.comb(n, i) for i in range(n + 1))
    return 0, [(each << bits) >> n for each in sums]


def _lower_half(n: int, bits: int, places: int) -> list[int] | None:
    """floor(2^bits P[X <= i]) for i = n/2 - 1, n/2 - 2, ... down to the first 0; None if `places` do not tell.

    With r(d) = P[X = n/2 - d] / P[X = n/2], which falls by factors (n/2 - d + 1) / (n/2 + d) below 1 from r(0) = 1, the
    probability is the sum of r(e), e >= d, over 1 + 2 times that of e >= 1. Each r(d) is too low by less than d units, and
    where it has become 0, at D, all that follow are below D units: a sum is too low by less than D (n/2 + D).

    None of the floors may be the number itself, so that 1 less the number has the floor 2^bits - 1 - floor.
    """
    half, terms = n // 2, [1 << places]
    while terms[-1] and len(terms) <= half:
        d = len(terms)
        terms.append(terms[-1] * (half - d + 1) // (half + d))
    slack = len(terms) * (half + len(terms))
    below = list(itertools.accumulate(reversed(terms[1:])))[::-1]
    least = terms[0] + 2 * below[0]
    most, edges = least + 2 * slack, []
    for part in below:
        edge, left = divmod(part << bits, most)
        if left == 0 or ((part + slack) << bits) // least != edge:
            return None
        edges.append(edge)
        if edge == 0:
            return edges
    return edges


def _halved(lanes: Lanes, lane: int, n: int) -> int:
    """Bin(n, 1/2) for a large n, by rejection.

    An odd n is one coin and an even rest 2h. Let f(k) = C(2h, h + k) / C(2h, h), and t the least integer above sqrt(h/2).
    Proposal: a block b with P[b >= v] = e^-v and a place y = bt + u, u uniform below t; then k = y or, equally likely,
    k = -1 - y. It is accepted with probability f(k) e^(b - 33/64), which makes the result's law C(2h, h + k) / 4^h. This is at
    most 1: f(k) is the product over i <= |k| of 1 - (2i-1)/(h+i), so at most exp(-k^2 / (h + |k|)). With s = sqrt(h/2) and
    x = |k|/s, b <= y/t <= x, and the exponent b - k^2 / (h + |k|) is at most x - x^2 / (2 + x/s). As
    x (2 + x/s - x) / (2 + x/s) <= x (2 - x (1 - 1/s)) / 2 where this is positive, that is at most 1 / (2 (1 - 1/s)), which is
    below 33/64 for s >= 33. Nearly half of the proposals are accepted.

    A uniform number is compared with that probability by as many digits of both as it takes. Neglected: b above
    GEOMETRIC_LIMIT, of probability e^-4096.
    """
    h, coin = n // 2, 0
    if n % 2:
        coin = int(lanes.words([lane])[0]) & 1
    t = math.isqrt(h // 2) + 1
    while True:
        block = int(lanes.geometric([lane])[0])
        drawn = int(lanes.uniform_below(2 * t, [lane])[0])
        y = block * t + (drawn >> 1)
        k = y if drawn & 1 else -1 - y
        if abs(k) <= h and _below_exp(lanes, lane, h, abs(k), block):
            return h + k + coin


def _below_exp(lanes: Lanes, lane: int, h: int, k: int, block: int) -> bool:
    """True with probability C(2h, h + k) / C(2h, h) * exp(block - 33/64), exactly: U is between digits and digits + 1."""
    digits, bits = 0, 0
    while True:
        digits = digits << 64 | int(lanes.words([lane])[0])
        bits += 64
        low, high = _acceptance(h, k, block, bits)
        if digits + 1 <= low:
            return True
        if digits >= high:
            return False


def _acceptance(h: int, k: int, block: int, bits: int) -> tuple[int, int]:
    """Integers around 2^bits times the probability of acceptance, a few units apart.

    Decimals are rounded correctly by every operation, so that an error bound holds: with `places` digits behind the point, a
    logarithm below 10^32 is off by less than 10^-places.
    """
    places = bits // 3 + 10
    with decimal.localcontext(decimal.Context(prec=places + 40, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)):
        exponent = block - decimal.Decimal(_LOG_FACTOR.numerator) / _LOG_FACTOR.denominator
        exponent += 2 * _log_factorial(h, places) - _log_factorial(h + k, places) - _log_factorial(h - k, places)
        error = decimal.Decimal(10) ** (1 - places)
        scale = decimal.Decimal(2) ** bits
        low, high = ((exponent + sign * error).exp() * scale for sign in (-1, 1))
        return math.floor(low) - 1, math.ceil(high) + 1


@functools.lru_cache(maxsize=256)
def _log_factorial(n: int, places: int) -> decimal.Decimal:
    """ln n! - ln(2 pi) / 2 with an error below 10^-places, for n up to 2^62, in a context of 40 digits more.

    By Stirling's series, whose error is below the first term that is left out; a small n is brought up by a product. No number
    here exceeds 2^69 < 10^21, so that rounding costs less than 10^(21 - 40 - places) an operation.
    """
    least = 10 * places
    if n < least:
        return _log_factorial(least, places) - decimal.Decimal(math.factorial(least) // math.factorial(n)).ln()
    x = decimal.Decimal(n + 1)
    total = (x - decimal.Decimal("0.5")) * x.ln() - x
    power, square = x, x * x
    for j in itertools.count(1):
        b = _bernoulli(2 * j) / (2 * j * (2 * j - 1))
        term = decimal.Decimal(b.numerator) / (b.denominator * power)
        if abs(term).adjusted() < -places - 2:
            break
        total += term
        power *= square
    return total


@functools.cache
def _bernoulli(m: int) -> Fraction:
    """The m-th Bernoulli number."""
    if m == 0:
        return Fraction(1)
    return -sum(math.comb(m + 1, k) * _bernoulli(k) for k in range(m)) / Fraction(m + 1)
