"""Privacy loss distributions (PLDs) on a lattice: what dominates the parts of a release, as numbers.

By `losses`, every part is dominated by a pair with a divergence h(s), a convex function of e^s. On a lattice of losses it is
replaced by the function that is linear in e^s between h at the lattice's points (and constant beyond the last, where h is next
to nothing). That lies above h, and is the divergence of a pair whose losses are points of the lattice: their masses under the
first distribution are e^s times the bends of the function, and what is left beyond the last is a loss of infinity.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from headcount.mechanisms.accounting.budget import check_order
from headcount.mechanisms.accounting.gaussian import gaussian_delta
from headcount.mechanisms.accounting.losses import Curve, Draw, Laplace, Losses, OneOf, Part

# How fine the lattice is: a part of the standard deviation of an average part, with at most this number of points to the
# largest loss of one. Any lattice gives an upper bound. And where the tails of Gaussian noise and of zCDP end, in standard
# deviations.
_FINE, _MOST_POINTS = 0.05, 2**13
_TAIL = 38.0
_ZCDP_POINTS = 1000
_CUT = 1e-40  # the mass of a tail of what is merged, which is added to delta
_FEW = 16  # times that a pld is merged; more are a power of its transform

Divergence = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class PLD:
    """A privacy loss distribution: `mass[i]` at (first + i) * step, and `infinite` beyond all."""

    first: int
    mass: np.ndarray
    infinite: float
    step: float

    @classmethod
    def of(cls, one: np.ndarray, other: np.ndarray, step: float) -> PLD:
        """The pld whose divergences are `one` at 0, step, 2 step, ..., and in the other direction `other`.

        A loss of -s has e^-s times the mass that a loss of s has in the other direction, which keeps the digits of both tails.
        """
        start = max(one[0], other[0])
        up, other_up = (_bends(np.append(start, values[1:]), step) for values in (one, other))
        shrink = -math.expm1(-step)
        slopes = [(values[1] - start) / shrink if len(values) > 1 else 0.0 for values in (one, other)]
        zero = 1 - start + math.exp(-step) * (slopes[0] + slopes[1])
        down = other_up * np.exp(-step * np.arange(1, len(other_up) + 1))
        mass = np.maximum(np.concatenate([down[::-1], [zero], up]), 0.0)
        return cls(-len(down), mass, float(one[-1]) if len(one) > 1 else float(start), step)

    @functools.cached_property
    def losses(self) -> np.ndarray:
        """The points of the lattice."""
        return (self.first + np.arange(len(self.mass))) * self.step

    @functools.cached_property
    def logs(self) -> np.ndarray:
        """The logarithms of the masses."""
        with np.errstate(divide="ignore"):
            return np.log(self.mass)

    def plus(self, other: PLD) -> PLD:
        """The pld of the sum of both losses."""
        whole = shown(self.infinite, other.infinite)
        return PLD(self.first + other.first, np.convolve(self.mass, other.mass), whole, self.step)

    def within(self, cut: float) -> PLD:
        """The pld without its ends of at most this mass each: losses above are infinite, and those below the least that is
        kept. A sum of losses, of which one is raised, has no smaller delta."""
        low = int(np.searchsorted(np.cumsum(self.mass), cut, side="right"))
        high = len(self.mass) - int(np.searchsorted(np.cumsum(self.mass[::-1]), cut, side="right"))
        if low >= high:  # all is infinite
            return self
        mass = self.mass[low:high].copy()
        mass[0] += self.mass[:low].sum()
        above = float(self.mass[high:].sum())
        return PLD(self.first + low, mass, min(1.0, self.infinite + above), self.step)

    def divergences(self) -> np.ndarray:
        """The divergences at 0, step, 2 step, ... up to the last point."""
        mass = self.mass[max(0, -self.first) :] if self.first <= 0 else np.append(np.zeros(self.first), self.mass)
        if len(mass) < 2:
            return np.full(2, self.infinite)
        shrink, keep, fall, falls = -math.expm1(-self.step), math.exp(-self.step), 0.0, []
        for each in mass[:0:-1].tolist():
            fall = shrink * each + keep * fall
            falls.append(fall)
        return np.append(np.cumsum(falls)[::-1], 0.0) + self.infinite


def shown(hiding: float, delta: float) -> float:
    """delta of what is hidden but for that probability."""
    return min(1.0, hiding + (1 - hiding) * delta)


def _bends(values: np.ndarray, step: float) -> np.ndarray:
    """The masses at step, 2 step, ... of a function with these values at 0, step, ..., which stays what it is at the end."""
    falls = -np.diff(values)
    after = np.append(falls[1:], 0.0)
    return falls / -math.expm1(-step) - after / math.expm1(step)


def plds_of(losses: Losses, step: float, turned: bool) -> list[tuple[PLD, int]]:
    """The plds of all parts but for what is hidden, with the times of each; `turned` is the other direction."""
    found = [(pld, times) for part, times in losses.parts for pld in _plds_of_part(part, step, turned)]
    if losses.mu > 0:
        found.append((_gaussian_pld(losses.mu, step), 1))
    if losses.rho > 0:
        found.append((_zcdp_pld(losses.rho, losses.order, step), 1))
    return found


def merged(plds: Sequence[tuple[PLD, int]]) -> list[tuple[PLD, int]]:
    """PLDs with the same sum, but few: those that are there a few times are one.

    Masses are multiplied and added as they are, without a transform, so that each keeps its digits, in the tails too. They are
    off by a part of 1e-10 at most, which `sums` has room for.
    """
    few = [pld for pld, times in plds if times <= _FEW for pld in [pld.within(_CUT)] * times]
    heap = [(len(pld.mass), k, pld) for k, pld in enumerate(few)]
    heapq.heapify(heap)
    while len(heap) > 1:  # the shortest first, as that is the least work
        (_, _, one), (_, k, other) = heapq.heappop(heap), heapq.heappop(heap)
        both = one.plus(other).within(_CUT)
        heapq.heappush(heap, (len(both.mass), k, both))
    return [*((pld, 1) for _, _, pld in heap), *((pld, times) for pld, times in plds if times > _FEW)]


def _plds_of_part(part: Part, step: float, turned: bool) -> Iterator[PLD]:
    if isinstance(part, Draw):
        yield _symmetric(functools.partial(_choice, part.range), part.range, step)
    elif isinstance(part, Laplace):
        yield _symmetric(functools.partial(_laplace, part), part.epsilon, step)
    elif isinstance(part, Curve):
        points = np.arange(math.ceil(part.losses[-1] / step * (1 - 1e-12)) + 1) * step
        one, other = (_between(part.losses, values, points) for values in (part.added, part.removed))
        if turned or part.both:
            yield PLD.of(other, one, step)
        if not turned or part.both:
            yield PLD.of(one, other, step)
    else:
        yield _worst(part.ways, step, turned)


def _worst(ways: Sequence[Losses], step: float, turned: bool) -> PLD:
    """The pld of whichever way is the worst, at every loss."""
    sides = (turned, not turned) if any(map(has_sides, ways)) else (turned,)
    curves = [_largest([_whole(way, step, side).divergences() for way in ways]) for side in sides]
    return PLD.of(curves[0], curves[-1], step)


def _whole(losses: Losses, step: float, turned: bool) -> PLD:
    """The pld of one way, with what is not hidden."""
    pld = PLD(0, np.ones(1), losses.hiding, step)
    for each, times in plds_of(losses, step, turned):
        for _ in range(times):
            pld = pld.plus(each)
    # The masses of the finite losses are those of what is hidden: 1 - infinite of them in all.
    return dataclasses.replace(pld, mass=pld.mass * (1 - losses.hiding))


def _largest(curves: Sequence[np.ndarray]) -> np.ndarray:
    size = max(map(len, curves))
    return np.max([np.append(curve, np.full(size - len(curve), curve[-1])) for curve in curves], axis=0)


def _symmetric(divergence: Divergence, last: float, step: float) -> PLD:
    """The pld of a part that is the same in both directions, with losses up to `last`."""
    values = divergence(np.arange(math.ceil(last / step * (1 - 1e-12)) + 1) * step)
    return PLD.of(values, values, step)


def _choice(c: float, s: np.ndarray) -> np.ndarray:
    return np.where(s < c, np.expm1((np.minimum(s, c) - c) / 2) ** 2 / -math.expm1(-c), 0.0)


def _laplace(part: Laplace, s: np.ndarray) -> np.ndarray:
    """Linear in e^s between 1 - e^(-m e / k) at e - 2 m e / k."""
    unit = part.epsilon / part.steps
    place = np.maximum(part.epsilon - s, 0.0) / (2 * unit)
    m = np.minimum(np.floor(place), part.steps - 1)
    down, up = -np.expm1(-m * unit), -np.expm1(-(m + 1) * unit)  # at the loss above, and at the one below
    share = np.expm1(-(place - m) * 2 * unit) / math.expm1(-2 * unit)
    return np.where(s < part.epsilon, down + share * (up - down), 0.0)


def _between(losses: Sequence[float], values: Sequence[float], s: np.ndarray) -> np.ndarray:
    """Given values, linear in e^s between their losses."""
    at, of = np.array(losses), np.array(values)
    place = np.clip(np.searchsorted(at, s, side="right") - 1, 0, len(at) - 2)
    low, high = at[place], at[place + 1]
    share = np.clip(np.expm1(s - high) / np.expm1(low - high), 0.0, 1.0)
    return of[place + 1] + share * (of[place] - of[place + 1])


@functools.lru_cache(maxsize=8)  # whoever asks what is left asks for the same mu and rho again and again
def _gaussian_pld(mu: float, step: float) -> PLD:
    """The pld of Gaussian noise at a distance of mu standard deviations."""
    return _symmetric(lambda s: gaussian_delta(s, mu, 1.0) * (1 + 1e-9), mu**2 / 2 + _TAIL * mu, step)


@functools.lru_cache(maxsize=8)
def _zcdp_pld(rho: float, order: float, step: float) -> PLD:
    """The pld of all that is rho-zCDP up to an order: divergences below those of the conversion, and convex."""
    last, x, y = _zcdp_hull(rho, order)
    hull = np.interp(np.exp(np.arange(math.ceil(last / step * (1 - 1e-12)) + 1) * step), x, y)
    return PLD.of(hull, hull, step)


@functools.lru_cache(maxsize=1024)  # it is the same on every lattice, and a release has it several times
def _zcdp_hull(rho: float, order: float) -> tuple[float, np.ndarray, np.ndarray]:
    """The last loss of what is rho-zCDP up to an order, and the corners of its divergences over e^s."""
    last = min(600.0, _zcdp_reach(rho, order))
    some = np.linspace(0.0, last, _ZCDP_POINTS)
    return last, *_convex(some, _zcdp_deltas(rho, some, order))


def _zcdp_deltas(rho: float, epsilons: np.ndarray, order: float) -> np.ndarray:
    """`budget.zcdp_delta` at all of these epsilons, by the same halvings: each is valid, however far these have come."""
    low = np.full(len(epsilons), max(-700.0, -(3 * rho + 1)))
    high = np.log(np.maximum(1.0, (epsilons + 1) / rho))
    for _ in range(80):
        middle = (low + high) / 2
        u = np.exp(middle)
        below = (1 + 2 * u) * rho - epsilons - np.log1p(1 / u) < 0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    u = np.minimum(np.exp(high), check_order(order) - 1)
    logs = u * ((1 + u) * rho - epsilons) - np.log1p(u) - u * np.log1p(1 / u)
    return np.maximum(np.exp(np.minimum(0.0, logs)), math.ulp(0.0))


def _zcdp_reach(rho: float, order: float) -> float:
    """The loss at which the conversion's delta is next to nothing, that of Gaussian noise at the end of its tail: by the best
    order, or the last."""
    best = min(order, 1 + _TAIL / math.sqrt(2 * rho))
    return best * rho + _TAIL**2 / 2 / (best - 1)


def _convex(s: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The corners of the largest convex function of e^s, of both directions alike, with at most the given values. Whatever
    divergence has at most these values lies below it."""
    x = np.concatenate([np.exp(-s[:0:-1]), np.exp(s)]).tolist()
    y = np.concatenate([(1 - np.exp(-s) + np.exp(-s) * values)[:0:-1], values]).tolist()
    kept: list[int] = []
    for i in range(len(x)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) <= (y[i] - y[a]) * (x[b] - x[a]):
                break
            kept.pop()
        kept.append(i)
    return np.array(x)[kept], np.array(y)[kept]


def has_gaussian(losses: Losses) -> bool:
    return losses.mu > 0 or any(has_gaussian(way) for part, _ in losses.parts for way in _ways(part))


def has_sides(losses: Losses) -> bool:
    """Whether the two directions differ."""
    curves = (part for part, _ in losses.parts if isinstance(part, Curve))
    return any(not part.both for part in curves) or any(
        has_sides(way) for part, _ in losses.parts for way in _ways(part)
    )


def _ways(part: Part) -> Sequence[Losses]:
    return part.ways if isinstance(part, OneOf) else ()


def lattice_step(losses: Losses) -> float:
    """The step of the lattice, for all that has these losses."""
    sizes = [(_variance(part), times) for part, times in losses.parts]
    sizes += [(variance, 1) for variance in (losses.mu**2, 2 * losses.rho) if variance > 0]
    variance = sum(size * times for size, times in sizes) / sum(times for _, times in sizes)
    return max(_FINE * math.sqrt(variance), least_step(losses))


def least_step(losses: Losses) -> float:
    """The step at which the largest loss has as many points as it may."""
    return _reach(losses) / _MOST_POINTS


def _variance(part: Part) -> float:
    """About the variance of the losses of a part."""
    if isinstance(part, Draw):
        return part.range**2 / 4
    if isinstance(part, Laplace):
        return part.epsilon**2
    if isinstance(part, Curve):
        return 2 * math.pi * max(part.added[0], part.removed[0], 1e-6) ** 2
    return max(way.mu**2 + 2 * way.rho + sum(_variance(each) * times for each, times in way.parts) for way in part.ways)


def _reach(losses: Losses) -> float:
    """The largest loss of one part."""
    found = [losses.mu**2 / 2 + _TAIL * losses.mu]
    found += [_zcdp_reach(losses.rho, losses.order)] if losses.rho > 0 else []
    for part, _ in losses.parts:
        if isinstance(part, Draw):
            found.append(part.range)
        elif isinstance(part, Laplace):
            found.append(part.epsilon)
        elif isinstance(part, Curve):
            found.append(part.losses[-1])
        else:
            found += [_reach(way) for way in part.ways]
    return max(found)
