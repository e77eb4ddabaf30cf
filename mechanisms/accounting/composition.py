"""What choices and noise cost together, composed exactly: epsilon and delta of parts of several kinds.

* **Gaussian parts**, at an l2 distance of neighbours d and a standard deviation sigma: together mu^2 = sum of (d / sigma)^2.
* **Choices** of bounded range c: log-probabilities of neighbours differ by amounts within an interval of length c
  (`choice.exponential`).
* **Pure parts**, such as Laplace noise: e-differentially private, with no more said.
* **Renyi parts**: a divergence of at most R of one order a, such as selection curves, and all that is known to be zCDP.
* **Hiding**, the delta of selection: items of one user alone are shown with this probability at most. It is added.

Guarantee: `composed_delta` is an upper bound of delta at epsilon for all parts together, in any order, where each may depend on
what the ones before have released. Where one of several alternatives follows the choices, the worst of them counts.

Each part is replaced by a pair of distributions that dominates it, on a lattice of privacy losses. The formulas are those of
continuous noise; `thresholds.TOTAL_SHARE` keeps back what the grid takes. Proof: docs/proofs/accounting.md, "Composition".
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from headcount.mechanisms.accounting.gaussian import gaussian_delta

# How fine the lattice is: any number gives an upper bound, and this one costs 1/1000 of delta where it is used.
_CELLS = 64


@dataclasses.dataclass(frozen=True)
class Parts:
    """Parts of a release: ranges of choices, Gaussian parts of `mu` together, pure parts, and what thresholds fail to hide.

    In place of a mu there may be `renyi`: an order, and a divergence of it.
    """

    choices: tuple[float, ...] = ()
    mu: float = 0.0
    pure: tuple[float, ...] = ()
    hiding: float = 0.0
    renyi: tuple[float, float] | None = None


def composed_delta(epsilon: float, choices: Sequence[float], *alternatives: Parts) -> float:
    """An upper bound of delta at `epsilon` for choices of these ranges, and whichever of the alternatives follows them."""
    sizes = [*choices, *(size for each in alternatives for size in (*each.choices, *each.pure))]
    step = min(sizes, default=1.0) / _CELLS
    first = _Losses.of_parts(Parts(tuple(choices)), step)
    worst = np.max([_delta_after(epsilon, first, each) for each in alternatives], axis=0)
    return float(np.dot(first.mass, worst)) * (1 + 1e-9)  # beyond the rounding of these sums


def largest_divergence(
    epsilon: float, delta: float, choices: Sequence[float], order: float, hiding: float, *others: Parts
) -> float:
    """The largest Renyi divergence of this order, from the private side, that keeps delta beside `hiding`, where the choices
    may also lead to others; 0 if none does."""
    sizes = [*choices, *(size for each in others for size in (*each.choices, *each.pure))]
    first = _Losses.of_parts(Parts(tuple(choices)), min(sizes, default=1.0) / _CELLS)
    after = [_delta_after(epsilon, first, each) for each in others]

    def holds(divergence: float) -> bool:
        law = _delta_after(epsilon, first, Parts(hiding=hiding, renyi=(order, divergence)))
        return float(np.dot(first.mass, np.max([law, *after], axis=0))) * (1 + 1e-8) <= delta

    low = high = epsilon + renyi_left(order, delta)  # about what it is without choices
    step = 1 / (order - 1)
    while not holds(low):
        high, low, step = low, low - step, 2 * step
        if high < 0:
            return 0.0
    while holds(high):
        low, high, step = high, high + step, 2 * step
    # Halved so often, and no more: where the last digits of a sum are rounded otherwise, this number is the same.
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return max(low, 0.0)


def renyi_left(order: float, delta: float) -> float:
    """By how much a Renyi divergence must be below epsilon for a divergence of delta there, as a negative number."""
    return (math.log(delta) + math.log(order) - (order - 1) * math.log1p(-1 / order)) / (order - 1)


@functools.lru_cache(maxsize=64)  # a job plans once to tell what it will do, and once to do it
def largest_mu(epsilon: float, delta: float, choices: tuple[float, ...], parts: Parts, *others: Parts) -> float:
    """The largest mu of the parts, to a relative 1e-7 and from the private side, that keeps delta, where the choices may also
    lead to others; 0 if none does."""

    known = [0.0, math.inf]  # the largest mu that is known to hold, and the least that is known not to

    @functools.cache
    def excess(mu: float) -> float:
        """The logarithm of delta in parts of what is to be kept."""
        found = composed_delta(epsilon, choices, dataclasses.replace(parts, mu=mu), *others)
        known[found > delta] = mu
        return math.log(max(found, 1e-300) / delta)

    def holds(mu: float) -> bool:
        if known[0] < mu < known[1]:
            excess(mu)
        return mu <= known[0]  # by the comparison itself, and not by its logarithm, which is rounded

    low, high = 0.0, 1.0
    while holds(high):
        low, high = high, 2 * high
    start = high / 2
    while start > 1e-9 and not holds(start):
        start /= 2
    if start > 1e-9:
        _close_in(excess, known)
    while high - low > 1e-7 * high:
        if high < 1e-9:
            return 0.0
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _close_in(excess: Callable[[float], float], known: list[float]) -> None:
    """Brings what is `known` of the zero of a rising function together, to a relative 1e-8 or so: halving alone takes twice as
    many values. Nothing rests on it: whoever halves then asks for all that is still not known."""
    before, last = known
    for _ in range(12):
        rise = excess(last) - excess(before)
        # By the line through both over 1 / mu^2, in which the logarithm of a Gaussian's delta is nearly one.
        to = last**-2 - excess(last) * (last**-2 - before**-2) / rise if rise else 0.0
        guess = to**-0.5 if to > 0 else 0.0
        if abs(guess - last) < 1e-9 * last:
            break
        if not known[0] < guess < known[1]:
            guess = (known[0] + known[1]) / 2
        before, last = last, guess
    for mu in (last * (1 - 4e-9), last * (1 + 4e-9)):
        if known[0] < mu < known[1]:
            excess(mu)


def _delta_after(epsilon: float, first: _Losses, parts: Parts) -> np.ndarray:
    """delta of the parts, at epsilon less each of the first losses."""
    losses = _Losses.of_parts(parts, first.step)
    sums = np.arange(len(first.mass) + len(losses.mass) - 1) + first.first + losses.first
    left = epsilon - sums * first.step
    if parts.renyi is not None:
        order, divergence = parts.renyi
        left += math.log1p(-parts.hiding)
        after = np.exp(np.minimum((order - 1) * (divergence - left - renyi_left(order, 1.0)), 700.0))
    elif parts.mu > 0:
        after = gaussian_delta(left, parts.mu, 1.0)
    else:
        after = -np.expm1(np.minimum(left, 0.0))
    return np.correlate(after, losses.mass, mode="valid") + parts.hiding


@dataclasses.dataclass(frozen=True)
class _Losses:
    """A distribution of privacy losses on the lattice: `mass[i]` at (first + i) * step."""

    first: int
    mass: np.ndarray
    step: float

    @classmethod
    def of_parts(cls, parts: Parts, step: float) -> _Losses:
        """The distribution of the sum of all losses but the Gaussian ones."""
        first, mass = 0, np.ones(1)
        for each in (
            *(cls.of_choice(size, step) for size in parts.choices),
            *(cls.of_pure(size, step) for size in parts.pure),
        ):
            first, mass = first + each.first, np.convolve(mass, each.mass)
        return cls(first, mass, step)

    @classmethod
    def of_choice(cls, c: float, step: float) -> _Losses:
        """The losses of a choice of range c, on 2 c / step cells: the mass of each lies on its two edges."""
        cells = _cells(c, step)
        c = cells * step
        inside = np.exp((np.arange(-cells, cells) * step - c) / 2) * (math.expm1(step / 2) / -math.expm1(-c))
        # What keeps the mass of the second distribution, which is e^-L times that of the first.
        upper = 1 / (1 + math.exp(-step / 2))
        return cls(-cells, np.append((1 - upper) * inside, 0.0) + np.append(0.0, upper * inside), step)

    @classmethod
    def of_pure(cls, e: float, step: float) -> _Losses:
        """The losses of a pure part: +-e."""
        cells = _cells(e, step)
        mass = np.zeros(2 * cells + 1)
        mass[-1] = 1 / (1 + math.exp(-cells * step))
        mass[0] = 1 - mass[-1]
        return cls(-cells, mass, step)


def _cells(size: float, step: float) -> int:
    """The cells of a range or of a pure part, rounded up: which costs more, but for the rounding of the quotient."""
    return math.ceil(size / step * (1 - 1e-12))
