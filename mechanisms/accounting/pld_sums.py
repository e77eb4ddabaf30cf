"""The epsilon and delta of many losses together: privacy loss distributions on a lattice, composed by Fourier transforms.

Guarantee: `losses_delta` is an upper bound of delta at epsilon for all parts together, in any order, where each may depend on
what the ones before have released, if what each costs was fixed before.

Masses are multiplied by e^(tilt * loss) before the transform, so that its rounding is a small part of delta, however small
delta is. What the transform may be off by, and what lies above its window, is added. That noise is drawn on a grid, in steps of
at most sigma / 1024, takes 1 / `thresholds.TOTAL_SHARE` at most, once for all releases. Proof: docs/proofs/accounting.md, "Sums
of losses".
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from headcount.mechanisms.accounting import thresholds
from headcount.mechanisms.accounting.budget import zcdp_delta, zcdp_epsilon
from headcount.mechanisms.accounting.gaussian import gaussian_delta
from headcount.mechanisms.accounting.losses import Losses
from headcount.mechanisms.accounting.pld import (
    PLD,
    has_gaussian,
    has_sides,
    lattice_step,
    least_step,
    merged,
    plds_of,
    shown,
)

# The error of a transform, by its length's logarithm and by the number of factors (1e-16 was seen).
_ROUNDING = 4e-16

NOTHING = Losses()

# The logarithm of what is left out of a pld, in parts of its largest mass: all of it is far below _ROUNDING.
_TINY = -150.0

# Steps of the lattice beyond which there is nothing to be gained. Any step gives an upper bound.
_LEAST_STEP, _LARGEST_STEP = 1e-12, 20.0


def losses_delta(losses: Losses, epsilon: float) -> float:
    """An upper bound of the delta that these losses keep together with `epsilon`."""
    return Together(losses).delta(epsilon)


def losses_epsilon(losses: Losses, delta: float) -> float:
    """An upper bound of the epsilon that these losses keep together with `delta`; infinite if there is none."""
    return Together(losses).epsilon(delta)


class Together:
    """Losses that are known, and bounds for them alone or with some more, of which many are asked: what is known is put on a
    lattice once.

    The lattice with more is that of what is known. It is finer, by a power of two, where their own would be so by far, and
    coarser where the largest loss would have too many points.
    """

    def __init__(self, losses: Losses) -> None:
        self.losses = losses
        sided = tuple(part for part in losses.parts if has_sides(Losses(parts=(part,))))
        self._sided = Losses(parts=sided)
        self._alike = Losses(parts=tuple(part for part in losses.parts if part not in sided))
        self._known: dict[tuple[float, bool | None], list[tuple[PLD, int]]] = {}

    def delta(self, epsilon: float, more: Losses = NOTHING) -> float:
        """An upper bound of the delta that all keep together with `epsilon`."""
        whole = self.losses + more if more != NOTHING else self.losses
        found = [shown(whole.hiding, bound(epsilon)) for bound in self._bounds(whole, more, epsilon=epsilon)]
        if (zcdp := whole.zcdp_to_order()) is not None:
            found.append(shown(zcdp.delta, zcdp_delta(zcdp.rho, epsilon, whole.order_of_all())))
        return min([1.0, *found])

    def epsilon(self, delta: float) -> float:
        """An upper bound of the epsilon that they keep together with `delta`; infinite if there is none."""
        found, losses = [math.inf], self.losses
        left = _left(losses.hiding, delta)
        if left > 0:
            found += [_least(bound, left) for bound in self._bounds(losses, NOTHING, delta=left)]
        zcdp = losses.zcdp_to_order()
        if zcdp is not None and (left := _left(zcdp.delta, delta)) > 0:
            found.append(zcdp_epsilon(zcdp.rho, min(left, 0.5), losses.order_of_all()))
        return min(found)

    def _bounds(
        self, whole: Losses, more: Losses, epsilon: float | None = None, delta: float | None = None
    ) -> list[Callable[[float], float]]:
        """Upper bounds of delta at every epsilon, without what is hidden: sharp near the one, or for the other, that is
        given."""
        if whole.mu == 0 and whole.rho == 0 and not whole.parts:
            return [lambda epsilon: 0.0]
        share = thresholds.TOTAL_SHARE if has_gaussian(whole) else 1.0
        if whole.rho == 0 and not whole.parts:
            return [lambda epsilon: float(gaussian_delta(epsilon, whole.mu, 1.0)) * (1 + 1e-9) / share]
        step = lattice_step(whole)
        if self._step > 0 and more != NOTHING:
            finer = min(step, max(self._step, least_step(more)))
            step = self._step * 2.0 ** round(math.log2(finer / self._step))
        if not _LEAST_STEP < step < _LARGEST_STEP:
            return []
        sides = (False, True) if has_sides(whole) else (False,)
        # With mu and rho of all: these add up to less than the plds of each would.
        rest = dataclasses.replace(whole, parts=more.parts)
        sums = [_Sum.of([*self._plds(step, side), *plds_of(rest, step, side)], epsilon, delta) for side in sides]
        return [lambda epsilon: max(each.delta(epsilon) for each in sums) / share]

    @functools.cached_property
    def _step(self) -> float:
        """The step of the lattice of what is known; 0 if that is nothing."""
        return lattice_step(self.losses) if self.losses.mu or self.losses.rho or self.losses.parts else 0.0

    def _plds(self, step: float, turned: bool) -> list[tuple[PLD, int]]:
        """The parts that are known on a lattice: those that are the same in both directions once, and then the others."""
        if (step, None) not in self._known:
            self._known[step, None] = merged(plds_of(self._alike, step, turned))
        if (step, turned) not in self._known:
            self._known[step, turned] = merged([*self._known[step, None], *plds_of(self._sided, step, turned)])
        return self._known[step, turned]


def _left(hiding: float, delta: float) -> float:
    """What a delta leaves beside what is not hidden."""
    return (min(delta, 1.0) - hiding) / (1 - hiding) * (1 - 1e-12) if hiding < min(delta, 1.0) else 0.0


def _least(bound: Callable[[float], float], delta: float) -> float:
    """The least epsilon, to a relative 1e-6, at which the bound of delta is kept."""
    if bound(0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while bound(high) > delta:
        low, high = high, 2 * high
        if high > 1e6:
            return math.inf
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if bound(middle) > delta else (low, middle)
    return high


@dataclasses.dataclass(frozen=True, eq=False)
class _Sum:
    """The pld of a sum of many losses, tilted: `mass[i]` e^(log_mass - tilt * loss) at the loss (first + i) * step.

    `error` is what an entry of `mass` may be off by, `below` the tilted mass before the first and `above` that beyond the last.
    """

    first: int
    mass: np.ndarray
    step: float
    tilt: float
    log_mass: float
    error: float
    below: float
    above: float
    infinite: float

    @classmethod
    def of(cls, plds: Sequence[tuple[PLD, int]], epsilon: float | None, delta: float | None) -> _Sum:
        """The pld of all losses together, tilted for delta at this epsilon, or for the epsilon of this delta."""
        step, tilted = plds[0][0].step, _Tilted(plds)
        tilt = tilted.tilt_for(epsilon, delta)
        whole = tilted.at(tilt)
        low, high = (sum(each[end] * times for each, times in tilted.ends) for end in (0, 1))
        width = 12 * math.sqrt(whole.variance) + 8 * step
        while True:
            first, last = math.floor((whole.mean - width) / step), math.ceil((whole.mean + width) / step)
            first, last = max(first, low), min(last, high)
            above = 0.0 if last >= high else tilted.tail(whole, tilt, last * step)
            below = 0.0 if first <= low else tilted.tail(whole, tilt, first * step)
            if max(above, below) < 1e-15:
                break
            width *= 1.5
        points = 1 << max(1, (last - first).bit_length())
        spectrum = np.ones(points // 2 + 1, complex)
        for pld, weight, times in whole.each:
            place = np.arange(pld.first, pld.first + len(pld.mass)) % points
            mass = np.bincount(place, weight, points)
            spectrum *= np.fft.rfft(mass) if times == 1 else np.fft.rfft(mass) ** times
        mass = np.roll(np.fft.irfft(spectrum, points), -(first % points))
        error = _ROUNDING * math.log2(points) * (1 + sum(times for _, times in plds))
        hidden = -math.expm1(sum(times * math.log1p(-min(pld.infinite, 1 - 2**-53)) for pld, times in plds))
        return cls(first, mass, step, tilt, whole.log_mass, error, below, above, hidden * (1 + 1e-12))

    def delta(self, epsilon: float) -> float:
        """An upper bound of delta."""
        start = min(max(0, math.floor(epsilon / self.step) + 1 - self.first), len(self.mass))
        beyond = (self.first + np.arange(start, len(self.mass))) * self.step - epsilon
        weight = np.exp(-self.tilt * beyond) * -np.expm1(-beyond)
        last = (self.first + len(self.mass)) * self.step - epsilon
        found = np.dot(weight, np.maximum(self.mass[start:], 0.0) + self.error)
        # What is not in the window has a weight of at most that of its nearest end, or of epsilon itself.
        found += self.above * math.exp(min(0.0, -self.tilt * last))
        found += self.below if epsilon < self.first * self.step else 0.0
        log_found = math.log(found) + self.log_mass - self.tilt * epsilon if found > 0 else -math.inf
        finite = math.exp(min(log_found, 0.0)) * (1 + 1e-9) if found > 0 else 0.0
        return min(1.0, finite + self.infinite)


@dataclasses.dataclass(frozen=True)
class _At:
    """PLDs under one tilt: the logarithm of the mass of all, its mean and variance, and each with its tilted masses."""

    log_mass: float
    mean: float
    variance: float
    each: list[tuple[PLD, np.ndarray, int]]


class _Tilted:
    """Privacy loss distributions, which can be tilted."""

    def __init__(self, plds: Sequence[tuple[PLD, int]]) -> None:
        self.plds = [(pld, times) for pld, times in plds if pld.mass.any()]
        self.ends = [((pld.first, pld.first + len(pld.mass) - 1), times) for pld, times in self.plds]

    def at(self, tilt: float) -> _At:
        """All plds with masses multiplied by e^(tilt * loss)."""
        log_mass, mean, variance, each = 0.0, 0.0, 0.0, []
        for pld, times in self.plds:
            logs = pld.logs + tilt * pld.losses
            most = float(logs.max())
            logs -= most
            # What is below is no part of the sums, nor of what they are rounded to; and tiny floats are slow.
            weight = np.where(logs > _TINY, np.exp(np.maximum(logs, _TINY)), 0.0)
            own = most + math.log(weight.sum())
            weight /= weight.sum()
            center = float(np.dot(weight, pld.losses))
            log_mass, mean = log_mass + times * own, mean + times * center
            variance += times * float(np.dot(weight, (pld.losses - center) ** 2))
            each.append((pld, weight, times))
        return _At(log_mass, mean, variance, each)

    def tilt_for(self, epsilon: float | None, delta: float | None) -> float:
        """The tilt t at which E e^(t (L - epsilon)) c(t) is least, or for delta the epsilon at which it is that. Any is valid.

        It bounds delta, as c(t) = t^t / (1 + t)^(1 + t) is the largest that (1 - e^-x) e^(-t x) gets.
        """
        most = 500 / self.plds[0][0].step / max(1, max(abs(end) for ends, _ in self.ends for end in ends))

        def too_high(tilt: float) -> bool:
            here, slope = self.at(tilt), math.log1p(1 / tilt)
            if delta is None:
                assert epsilon is not None
                return here.mean - slope > epsilon
            log_bound = here.log_mass - tilt * slope - math.log1p(tilt)
            return here.mean - slope > (log_bound - math.log(delta)) / tilt

        low, high = 0.0, min(1.0, most)
        while not too_high(high) and high < most:
            low, high = high, min(2 * high, most)
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (low, middle) if too_high(middle) else (middle, high)
        return low

    def tail(self, here: _At, tilt: float, loss: float) -> float:
        """A bound of the tilted mass beyond a loss, on the side of the mean on which it lies: by Chernoff."""
        move = (loss - here.mean) / max(here.variance, self.plds[0][0].step ** 2)  # any is valid
        there = self.at(tilt + move)
        return math.exp(min(0.0, there.log_mass - here.log_mass - move * loss))
