"""Discrete Laplace noise on very many equal values at once: how many of them end up where, exactly in distribution.

m cells with the value c get independent noise, and only the multiset of the results matters. So the cells are not drawn one
by one: their number is split by binomials. A cell's noise is not zero with probability 2 / (1 + e^x), where 1/x is the scale;
its sign is a fair coin; and its size is then 1 + G with P[G >= g] = e^(-xg). The binary digits of G are independent, digit i
being 1 with probability 1 / (1 + e^(2^i x)): from the top digit down, each node of a tree of prefixes splits what it holds.
The cost is that of the distinct results, not of the cells. Proof: docs/proofs/noise.md.

The probabilities are irrational. A binomial looks at the binary digits of its probability, one by one, and stops when every
trial is decided (see `randomness.binomial`); the digits are made as they are asked for, from bounds that are proved. No
probability is ever rounded.
"""

from __future__ import annotations

import decimal
import functools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pyarrow as pa

from headcount.mechanisms.randomness.binomial import binomial, fair
from headcount.mechanisms.randomness.lane_ids import item_lane_ids, lane_sum
from headcount.mechanisms.randomness.lanes import GEOMETRIC_LIMIT, Lanes
from headcount.mechanisms.randomness.noise import discrete_laplace
from headcount.mechanisms.randomness.subkeys import block_key, lane_key
from headcount.mechanisms.shape.tallies import Tally, make_tally

# Positions that are drawn together: enough to spread the cost of a call.
_CHUNK = 1 << 20

# Digits of a probability that are made at a time.
_BLOCK = 64

# Noise that is not zero goes up or down, and is at least one.
_SIGNS, _LEAST_SIZE = (1, -1), 1


def noisy_tally(tally: Tally, scale: Fraction, subkey: bytes) -> Tally:
    """Each cell's value with discrete Laplace noise of `scale` on it, as the tally of the results.

    A lane is a distinct value with the number of its cells, under a key that holds a digest of the whole tally. The nodes of
    its tree draw with lanes of their own, whose ids are words of the node above. Neglected: sizes of noise beyond
    GEOMETRIC_LIMIT * scale, with a probability below e^-4096 for each cell.
    """
    ids = _value_ids(tally, subkey)
    key = block_key(subkey, lane_sum(ids).to_bytes(16, "little"))
    rate = 1 / Fraction(scale)
    lanes = Lanes(key, ids)
    moved = binomial(lanes, tally.cells, functools.partial(logistic_digits, 2, rate))
    up = _fair(lanes, moved)
    children = lanes.words_each(np.arange(lanes.n), np.full(lanes.n, 4)).reshape(-1, 2, 2).astype(np.uint64)
    sign = np.repeat(_SIGNS, lanes.n)
    value, held = np.tile(tally.values, 2), np.concatenate([up, moved - up])
    ids, size = children.swapaxes(0, 1).reshape(-1, 2), np.full(2 * lanes.n, _LEAST_SIZE, dtype=np.int64)
    for digit in reversed(range(_digits(rate))):
        some = np.flatnonzero(held)
        value, sign, size, held = value[some], sign[some], size[some], held[some]
        lanes = Lanes(key, ids[some])
        ones = binomial(lanes, held, functools.partial(logistic_digits, 1, rate * 2**digit))
        children = lanes.words_each(np.arange(lanes.n), np.full(lanes.n, 4)).reshape(-1, 2, 2).astype(np.uint64)
        ids = children.swapaxes(0, 1).reshape(-1, 2)
        value, sign = np.tile(value, 2), np.tile(sign, 2)
        size, held = np.concatenate([size, size + (1 << digit)]), np.concatenate([held - ones, ones])
    return make_tally(np.concatenate([tally.values, value + sign * size]), np.concatenate([tally.cells - moved, held]))


def noisy_positions(tally: Tally, scale: Fraction, subkey: bytes) -> np.ndarray:
    """The values of all cells, largest first, each with discrete Laplace noise of `scale`: one number for each position.

    A lane is a distinct value with the number of its cells, under a key that holds a digest of the whole tally. Each of its
    positions draws with a lane of its own, whose id is the next two words of that lane.
    """
    ids = _value_ids(tally, subkey)
    key = block_key(subkey, lane_sum(ids).to_bytes(16, "little"))
    cells, order = tally.cells[::-1], np.arange(len(ids))[::-1]
    noisy = np.repeat(tally.values[::-1], cells)
    parents, ends = Lanes(key, ids), np.cumsum(cells)
    for start in range(0, len(noisy), _CHUNK):
        stop = min(start + _CHUNK, len(noisy))
        here = np.clip(ends, start, stop) - np.clip(ends - cells, start, stop)
        touched = np.flatnonzero(here)
        words = parents.words_each(order[touched], 2 * here[touched])
        noisy[start:stop] += discrete_laplace(Lanes(key, words.reshape(-1, 2).astype(np.uint64)), scale)
    return noisy


def logistic_digits(numerator: int, exponent: Fraction) -> Iterator[int]:
    """The binary digits of numerator / (1 + e^exponent), which is below 1 and irrational, for a rational exponent above 0."""
    bits = 0
    while True:
        block = logistic_floor(numerator, exponent, bits + _BLOCK) & ((1 << _BLOCK) - 1)
        yield from (block >> place & 1 for place in reversed(range(_BLOCK)))
        bits += _BLOCK


@functools.lru_cache(maxsize=4096)
def logistic_floor(numerator: int, exponent: Fraction, bits: int) -> int:
    """floor(2^bits numerator / (1 + e^exponent)), exactly, for an exponent above 0 and up to 10^6.

    Decimals are rounded correctly by every operation, exp among them. With P digits the exponent is off by less than
    10^(6 - P), so that the result is off by less than a factor of 1 +- 10^(7 - P); P grows until both bounds have one floor,
    which happens because the number is irrational.
    """
    digits = bits // 3 + 30
    while True:
        with decimal.localcontext(decimal.Context(prec=digits, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)):
            power = decimal.Decimal(exponent.numerator) / exponent.denominator
            scaled = numerator * decimal.Decimal(2) ** bits / (1 + power.exp())
            slack = scaled * decimal.Decimal(10) ** (8 - digits)
            low, high = math.floor(scaled - slack), math.floor(scaled + slack)
        if low == high:
            return low
        digits *= 2


def _digits(rate: Fraction) -> int:
    """How many binary digits of G are drawn: those beyond have a probability below e^-GEOMETRIC_LIMIT together."""
    return math.ceil((GEOMETRIC_LIMIT + 1) / rate).bit_length()


def _value_ids(tally: Tally, subkey: bytes) -> np.ndarray:
    """The lane of each distinct value together with the number of its cells."""
    return item_lane_ids(lane_key(subkey), pa.array(tally.values, pa.int64()), tally.cells)


def _fair(lanes: Lanes, trials: np.ndarray) -> np.ndarray:
    """Bin(trials[i], 1/2) for each lane; nothing is drawn where there is no trial."""
    result = np.zeros(len(trials), dtype=np.int64)
    some = np.flatnonzero(trials)
    result[some] = fair(lanes, some, trials[some])
    return result
