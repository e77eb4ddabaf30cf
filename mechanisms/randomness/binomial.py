"""Binomial draws, exact in distribution and in integers: how many of c trials succeed, each with rational probability q.

Bin(c, q) is a sum over the binary digits of c: for each digit from the sixth on that is set, a draw of Bin(2^k, q) by inversion
(`binomial_tables`). The 63 trials or fewer that are left, and all of a c of 2^26 or more, are drawn by the digits of q:

A trial succeeds iff a uniform U in [0, 1) is below q. Both are read digit by digit, in binary, for all trials of a lane at
once: while U and q agree, a trial is undecided, and at the first digit where they differ it is settled. Each digit of U is a
fair coin, so that of n undecided trials H ~ Bin(n, 1/2) have a 1. If q has a 1 there, the n - H with a 0 succeed and H stay
undecided; if q has a 0, the H with a 1 fail and n - H stay. Where q ends, what is undecided has U >= q and fails. About
log2(n) + 2 digits are looked at, whatever q. (An irrational q, of which there are digits only, is drawn by these alone.)

Bin(n, 1/2) for 63 trials or fewer is the number of ones among as many random bits, and for an n of 2^26 or more it is drawn by
rejection (`_halved`), at a cost that does not grow with n.

Proof: docs/proofs/noise.md.
"""

from __future__ import annotations

import decimal
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.binomial_tables import FIRST_TABLE, LAST_TABLE, draw_power
from headcount.mechanisms.randomness.lanes import Lanes

#: The largest number of trials of a lane.
LARGEST_COUNT = 2**62

# Lanes drawn together: they and what they draw stay in the processor's cache.
_LANES = 1 << 15

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
    if not callable(q) and (isinstance(q, bool) or not isinstance(q, Fraction | int) or not 0 <= q <= 1):
        raise ParameterError(f"a probability must be a Fraction between 0 and 1, got {q!r}")
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
    if q == 0:
        return successes
    for start in range(0, len(trials), _LANES):
        part = slice(start, start + _LANES)
        left = trials[part]
        if not callable(q):
            successes[part], left = _tabled(lanes, places[part], left, Fraction(q))
        _thin(lanes, places[part], left, q() if callable(q) else _digits(Fraction(q)), successes[part])
    return successes


def _tabled(lanes: Lanes, places: Index, trials: Counts, q: Fraction) -> tuple[Counts, Counts]:
    """The successes of those of each lane's trials that tables are for, and how many trials are left."""
    tables = trials >> (LAST_TABLE + 1) == 0
    powers, successes = np.where(tables, trials >> FIRST_TABLE, 0), np.zeros(len(trials), dtype=np.int64)
    for k in range(FIRST_TABLE, FIRST_TABLE + int(powers.max(initial=0)).bit_length()):
        those = np.flatnonzero(powers & (1 << (k - FIRST_TABLE)))
        if those.size:
            successes[those] += draw_power(lanes, places[those], k, q)
    return successes, np.where(tables, trials & ((1 << FIRST_TABLE) - 1), trials)


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
    if len(trials) and int(trials.max()) >> FIRST_TABLE == 0:  # often so, and the same words as below
        return _ones(lanes.words(index), trials)
    result, left = _tabled(lanes, index, trials, Fraction(1, 2))
    large = left >> (LAST_TABLE + 1) > 0
    counted = np.flatnonzero((left > 0) & ~large)
    result[counted] += _ones(lanes.words(index[counted]), left[counted])
    for place in np.flatnonzero(large).tolist():
        result[place] = _halved(lanes, int(index[place]), int(trials[place]))
    return result


def _ones(words: npt.NDArray[np.uint64], trials: Counts) -> Counts:
    """How many of the first trials[i] bits of each word are ones."""
    return np.bitwise_count(words >> (64 - trials).astype(np.uint64)).astype(np.int64)


def _halved(lanes: Lanes, lane: int, n: int) -> int:
    """Bin(n, 1/2) for a large n, by rejection.

    An odd n is one coin and an even rest 2h. Let f(k) = C(2h, h + k) / C(2h, h), and t the least integer above sqrt(h/2).
    Proposal: a block b with P[b >= v] = e^-v and a place y = bt + u, u uniform below t; then k = y or, equally likely,
    k = -1 - y. It is accepted with probability f(k) e^(b - 33/64), which makes the result's distribution C(2h, h + k) / 4^h.
    This is at most 1: f(k) is the product over i <= |k| of 1 - (2i-1)/(h+i), so at most exp(-k^2 / (h + |k|)). With s =
    sqrt(h/2) and x = |k|/s, b <= y/t <= x, and the exponent b - k^2 / (h + |k|) is at most x - x^2 / (2 + x/s). As
    x (2 + x/s - x) / (2 + x/s) <= x (2 - x (1 - 1/s)) / 2 where this is positive, that is at most 1 / (2 (1 - 1/s)). This is
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
