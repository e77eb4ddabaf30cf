"""Whether two released numbers differ by more than their noise: a test from their 95 % intervals, and one rate for many tests.

What is tested is that both true numbers are the same. Noise is symmetric with a log-concave density (Gaussian, Laplace, sums of
these), and that of two releases with ids of their own is independent: reaches of it add up as squares. What an interval has
beyond the noise, for an assumption about what was left out, may be off in both releases in any way that goes together: these
parts are added up as they are, which is the worst case.

An interval at 95 % says little of rarer noise, and tests of many rows need that. For Gaussian noise the normal tail is exact.
For any other it is bounded: a log-concave tail falls from 5 % at the reach h at least as fast as 0.05^(t / h).

Proof: docs/proofs/calibration.md, "Changes between two releases". All of it is post-processing and costs nothing.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from headcount.mechanisms.calibration.intervals import DEVIATIONS

BEYOND = 0.05  # what is beyond the intervals that are given
#: Standard deviations of Laplace noise that hold 95 % of it on both sides: no sum of such noise and normal noise needs more.
LAPLACE_DEVIATIONS = math.log(1 / BEYOND) / math.sqrt(2)


class _Reaches(NamedTuple):
    """How far intervals go from their numbers up and down, from their middles, and for the noise alone."""

    up: np.ndarray
    down: np.ndarray
    half: np.ndarray
    noise: np.ndarray


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Released numbers with the ends of their 95 % intervals, and the standard deviations of their noise, 0 where none is
    stated. NaN stands for what is not known.

    `assumed` says that intervals have more than the noise. `curved` is, for ratios, the square of the reach of the noise below
    as a share of what it is in: a ratio's interval widens faster than its level (Fieller).
    """

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    stddev: np.ndarray
    assumed: bool = False
    curved: np.ndarray | float = 0.0

    def reaches(self, deviations: float) -> _Reaches:
        """How far intervals go, at least as far as the noise does, where an end was cut."""
        noise = deviations * self.stddev
        half = np.maximum((self.high - self.low) / 2, noise)
        up, down = (np.maximum(part, half) for part in (self.high - self.value, self.value - self.low))
        return _Reaches(up, down, half, noise)


class Differences(NamedTuple):
    """After less before: the ends of a 95 % interval of each difference, and its p-value: the chance of a difference as clear
    as this, or clearer, where there is none."""

    low: np.ndarray
    high: np.ndarray
    p: np.ndarray


def differences(before: Numbers, after: Numbers, normal: bool) -> Differences:
    """The differences of numbers in two releases, whose noise is independent; `normal` says that it is Gaussian in both.

    Intervals that touch are no difference at any rate: so an end that was cut, as counts are at 0, is never taken for news.
    """
    deviations = DEVIATIONS if normal else LAPLACE_DEVIATIONS
    a, b = before.reaches(deviations), after.reaches(deviations)
    rise = _reach((a.up, a.noise, before.assumed), (b.down, b.noise, after.assumed))
    fall = _reach((a.down, a.noise, before.assumed), (b.up, b.noise, after.assumed))
    risen, fallen = after.low - before.high, before.low - after.high  # from end to end
    least, most = risen + a.half + b.half, -(fallen + a.half + b.half)  # from middle to middle, as either side tells it
    curved = np.broadcast_to(np.maximum(before.curved, after.curved), risen.shape)
    p = np.ones(len(risen))
    for apart, far, reach in ((risen, least, rise), (fallen, -most, fall)):
        clear = (apart > 0) & (reach > 0)
        p[clear] = tail(_flat(far[clear] / reach[clear], curved[clear]), normal)
    change = after.value - before.value
    return Differences(np.fmin(least - rise, change), np.fmax(most + fall, change), p)


def _reach(before: tuple[np.ndarray, np.ndarray, bool], after: tuple[np.ndarray, np.ndarray, bool]) -> np.ndarray:
    """How far a difference goes at 95 %: noise as squares, and what is beyond it added up first."""
    noise, beyond = np.zeros(len(before[0])), np.zeros(len(before[0]))
    for reach, own, assumed in (before, after):
        noise += own**2 if assumed else reach**2
        beyond += np.sqrt(np.maximum(reach**2 - own**2, 0.0)) if assumed else 0.0
    return np.sqrt(noise + beyond**2)


def _flat(reaches: np.ndarray, curved: np.ndarray) -> np.ndarray:
    """How many reaches of the noise of a ratio's parts a ratio is off that is off by so many of its own: the k for which
    k / (1 - curved k^2) is that."""
    bent = curved * reaches > 1e-9
    safe = np.where(bent, curved * reaches, 1.0)
    return np.where(bent, (np.sqrt(1 + 4 * safe * reaches) - 1) / (2 * safe), reaches)


def tail(reaches: np.ndarray, normal: bool) -> np.ndarray:
    """The chance that noise is off by more than so many times what it stays within in 95 %, on either side."""
    if normal:
        return np.array([math.erfc(each * DEVIATIONS / math.sqrt(2)) for each in reaches.tolist()])
    return np.where(reaches < 1, 1.0, np.exp(math.log(BEYOND) * np.maximum(reaches, 1.0)))


def holm(p: np.ndarray) -> np.ndarray:
    """The least rate of false alarms, over all of these tests together, at which each is taken for news (Holm's rule).

    The chance that there is one among all tests that is taken for news at a rate, and is none, is at most that rate, however
    the tests depend on each other.
    """
    order = np.argsort(p, kind="stable")
    left = len(p) - np.arange(len(p))
    found = np.empty(len(p))
    found[order] = np.minimum(np.maximum.accumulate(p[order] * left), 1.0) if len(p) else 0.0
    return found
