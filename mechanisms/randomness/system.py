"""Fresh randomness of the operating system, with the exact samplers of `lanes` and `noise`.

For noise that nobody may ever take off again, not even the owner of the release key: that of a shuffle model's user, and that
of pan-private counters. It cannot be repeated: what is drawn must be stored before it is used, and never drawn again for the
same purpose.
"""

from __future__ import annotations

import os
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.lanes import Integers, Lanes, Words
from headcount.mechanisms.randomness.noise import discrete_laplace

# Values drawn together: what they need stays small.
_CHUNK = 1 << 20


class SystemLanes(Lanes):
    """n independent streams of the operating system's random words, without any key or seed."""

    def __init__(self, n: int) -> None:
        super().__init__(bytes(32), np.zeros((n, 2), dtype=np.uint64))  # neither is ever looked at

    def words(self, index: npt.ArrayLike) -> Words:
        """A fresh word for each lane."""
        return _fresh(len(self._checked(index)))

    def words_each(self, index: npt.ArrayLike, each: Integers) -> Words:
        """each[i] fresh words for lane index[i]."""
        self._checked(index)
        return _fresh(int(np.sum(each)))


def _fresh(words: int) -> Words:
    return np.frombuffer(bytearray(os.urandom(8 * words)), dtype="<u8")


def laplace(n: int, scale: Fraction) -> Integers:
    """n values of discrete Laplace noise of the scale."""
    return np.concatenate(
        [discrete_laplace(SystemLanes(min(_CHUNK, n - start)), scale) for start in range(0, n, _CHUNK)]
        or [np.zeros(0, dtype=np.int64)]
    )


def geometric(lanes: Lanes, q: Fraction) -> Integers:
    """G >= 0 with P[G >= g] = q^g for a rational q below 1, one for each lane: tosses of a coin until it fails."""
    result = np.zeros(lanes.n, dtype=np.int64)
    active = np.arange(lanes.n)
    while active.size:
        active = active[lanes.bernoulli(q.numerator, q.denominator, active)]
        result[active] += 1
    return result


def poisson(mean: Fraction) -> int:
    """A Poisson variable of rational mean, exactly, from the operating system.

    It is a sum of independent ones of mean m <= 1/2. For these a geometric variable of parameter m, P[k] ~ m^k, is accepted
    with probability 1/k!, which makes P[k] ~ m^k / k!; at least (1 - m) e^m > 0.8 of the trials are accepted.
    """
    if mean < 0:
        raise ParameterError(f"the mean of a Poisson variable must not be negative, got {mean}")
    if mean == 0:
        return 0
    parts = -(-2 * mean.numerator // mean.denominator)
    total, open_ = 0, parts
    while open_:
        lanes = SystemLanes(open_)
        drawn = geometric(lanes, mean / parts)
        accepted = np.ones(open_, dtype=bool)
        for k in range(2, int(drawn.max()) + 1):
            tested = np.flatnonzero(accepted & (drawn >= k))
            accepted[tested] = lanes.uniform_below(k, tested) == 0
        total += int(drawn[accepted].sum())
        open_ -= int(accepted.sum())
    return total
