"""Exact discrete Laplace and discrete Gaussian noise, one value per lane.

Canonne, Kamath, Steinke: "The Discrete Gaussian for Differential Privacy" (2020), algorithms 2 and 3, on
arrays. All arithmetic is on integers: a scale is a fraction, and the probabilities are those stated, not
those of a rounded float. Two neglected events, each of probability below e^-1000, are named where they occur.
Proof: docs/proofs/noise.md.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.lanes import GEOMETRIC_LIMIT, Lanes

#: The largest scale of either noise: every value then fits int64.
LARGEST_SCALE = 2**40

#: What `by_curve` draws for what is never reached: above every sum that gets noise.
NEVER = 2**62

# Lanes worked on together: enough to spread the cost of a call, few enough to stay in the processor's cache.
_CHUNK = 1 << 17

# Below this, a scale's numerator t times a geometric variable, plus t, fits int64.
_NARROW = 2**63 // (GEOMETRIC_LIMIT + 1)

Lane = npt.NDArray[np.intp]
Values = npt.NDArray[Any]
# One trial of a rejection sampler for the given lanes: which of them accept, and the values of those.
Trial = Callable[[Lane], tuple[Lane, Values]]


def discrete_laplace(lanes: Lanes, scale: Fraction | int) -> npt.NDArray[np.int64]:
    """Integers y with probability proportional to exp(-|y| / scale), one per lane."""
    t, s = _numerator_denominator(scale, "the scale of discrete Laplace noise")
    return _sample(lanes, lambda index: _laplace_trial(lanes, t, s, index))


def truncated_laplace(lanes: Lanes, scale: Fraction | int, most: int) -> npt.NDArray[np.int64]:
    """Integers y with |y| <= most and probability proportional to exp(-|y| / scale), one per lane."""
    t, s = _numerator_denominator(scale, "the scale of truncated discrete Laplace noise")

    def trial(index: Lane) -> tuple[Lane, Values]:
        accepted, values = _laplace_trial(lanes, t, s, index)
        near = np.flatnonzero(np.abs(values) <= most)
        return accepted[near], values[near]

    return _sample(lanes, trial)


def by_curve(lanes: Lanes, law: bytes) -> npt.NDArray[np.int64]:
    """Integers y >= 0, one per lane, with P[y <= x] = law[x] / 2**128: 16 bytes each, little endian, which must not fall.

    y is how many entries are no larger than an integer below 2**128, drawn as two words, the high one first. Where all are, it
    is NEVER, which is above every sum: P[y <= x] stays at the last entry for all x beyond it. (If it were 1 there, the step
    from the last entry to 1 would have no finite divergence.)
    """
    low, high = np.frombuffer(law, dtype="<u8").reshape(-1, 2).T.copy()
    index = np.arange(lanes.n)
    drawn = lanes.words(index)
    first, last = (np.searchsorted(high, drawn, side=side) for side in ("left", "right"))
    result, tied = first.astype(np.int64), np.flatnonzero(first < last)
    if tied.size:  # the second word decides: at a chance of 2**-64 for each entry
        seconds = lanes.words(tied)
        for lane, second in zip(tied.tolist(), seconds, strict=True):
            result[lane] += np.searchsorted(low[first[lane] : last[lane]], second, side="right")
    result[result == len(high)] = NEVER
    return result


def discrete_gaussian(lanes: Lanes, sigma: Fraction | int) -> npt.NDArray[np.int64]:
    """Integers y with probability proportional to exp(-y^2 / (2 sigma^2)), one per lane.

    A proposal y of discrete Laplace noise with an integer scale t is accepted with probability exp(-gamma),
    gamma = (|y| - sigma^2/t)^2 / (2 sigma^2). Fast for an integer sigma up to 2^25; another one may need
    arithmetic beyond int64, which is slower but just as exact.
    """
    n, d = _numerator_denominator(sigma, "the sigma of discrete Gaussian noise")
    # Any t is correct. Near sigma few proposals are lost; with t = n = sigma gamma is (|y| - n)^2 / (2 n^2).
    t = n if d == 1 else n // d + 1
    slope, shift, factor, denominator = _refusal(n, d, t)
    # Neglected: accepting a proposal above sigma^2/t + 45 sigma, which has probability below e^-1012.
    limit = -(-(n * n + 45 * n * d * t) // (t * d * d))
    largest = max(limit * slope - shift, shift) ** 2 * factor
    narrow = max(largest, denominator) < 2**62

    def trial(index: Lane) -> tuple[Lane, Values]:
        accepted, values = _laplace_trial(lanes, t, 1, index)
        size = np.abs(values)
        near = np.flatnonzero(size <= limit)
        accepted, values, size = accepted[near], values[near], size[near]
        if not narrow:
            size = size.astype(object)
        kept = lanes.bernoulli_exp((size * slope - shift) ** 2 * factor, denominator, index[accepted])
        return accepted[kept], values[kept]

    return _sample(lanes, trial)


def _refusal(n: int, d: int, t: int) -> tuple[int, int, int, int]:
    """The slope, shift, factor and denominator of gamma = (|y| slope - shift)^2 factor / denominator, for sigma = n/d.

    It is (|y| t d^2 - n^2)^2 / (2 n^2 t^2 d^2), reduced.
    """
    common = gcd(t * d * d, n * n)
    return (t * d * d // common, n * n // common, *Fraction(common**2, 2 * (n * t * d) ** 2).as_integer_ratio())


def _numerator_denominator(scale: Fraction | int, what: str) -> tuple[int, int]:
    if isinstance(scale, bool) or not isinstance(scale, (Fraction, int)) or not 0 < scale <= LARGEST_SCALE:
        raise ParameterError(f"{what} must be a positive integer or Fraction up to 2^40, got {scale!r}")
    return scale.numerator, scale.denominator


def _sample(lanes: Lanes, trial: Trial) -> npt.NDArray[np.int64]:
    """One value for every lane: each repeats the trial, with its own words, until it accepts."""
    result = np.empty(lanes.n, dtype=np.int64)
    for start in range(0, lanes.n, _CHUNK):
        todo = np.arange(start, min(start + _CHUNK, lanes.n))
        while todo.size:
            accepted, values = trial(todo)
            result[todo[accepted]] = values
            remaining = np.ones(len(todo), dtype=bool)
            remaining[accepted] = False
            todo = todo[remaining]
    return result


def _laplace_trial(lanes: Lanes, t: int, s: int, index: Lane) -> tuple[Lane, Values]:
    """One trial for discrete Laplace noise of scale t/s.

    U uniform below t, kept with probability exp(-U/t), and V geometric of exp(-1) make X = U + tV geometric
    of exp(-1/t), and X // s geometric of exp(-s/t). It gets a sign; minus zero is refused, or zero would
    count twice. Neglected: V above GEOMETRIC_LIMIT, with probability e^-4096.
    """
    drawn = lanes.uniform_below(2 * t, index)  # uniform below t, and independently a sign
    u, negative = drawn >> 1, (drawn & 1).astype(bool)
    accepted = np.flatnonzero(lanes.bernoulli_exp(u, t, index))
    u, negative = u[accepted], negative[accepted]
    v = lanes.geometric(index[accepted])
    if max(t, s) >= _NARROW:
        u, v = u.astype(object), v.astype(object)
    size = ((u + t * v) // s).astype(np.int64)
    valid = np.flatnonzero(_counts_once(size, negative))
    size, negative = size[valid], negative[valid]
    return accepted[valid], np.where(negative, -size, size)


def _counts_once(size: Values, negative: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """All but minus zero."""
    return ~negative | (size > 0)
