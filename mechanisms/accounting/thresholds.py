"""Thresholds that hide items of one user alone: the histogram of an unknown domain.

Each user's contribution is bounded and summed by item. Every item with a positive sum gets noise, and is released if and only
if its noisy sum reaches the threshold. An item that only one user has tells of that user by being released at all; the
threshold makes this as unlikely as delta demands. The formulas follow Algorithm 3 of the contribution bounding paper (ICML
2023), with thresholds that are tight for the *joint* limit on a user's items and counts, for discrete noise, and for both
relations.

Notation. Z is the noise, p(h) = P[Z >= threshold - h] the probability that an item of x alone with count h is released, phi(h)
= -ln(1 - p(h)), and Q = exp(-sum of phi) the probability that none is. Replacing x by y gives the divergence at epsilon

    H = 1 - Qx + Qx delta_shared(epsilon + ln Qy - ln Qx)                                               (1)

with delta_shared that of the noisy sums of shared items. Guarantee: H falls in Qx and in Qy, and rises with the distance of the
shared sums, so the worst Q and the worst distance may be bounded one by one. Proof: docs/proofs/accounting.md, "Thresholds".
"""

from __future__ import annotations

import contextlib
import dataclasses
import decimal
import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from headcount.mechanisms.accounting.gaussian import gaussian_delta, log_normal
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import ParameterError

# The share of delta for noise and threshold together. What is left covers the difference between the continuous Gaussian of the
# formulas and the grid of at most sigma/1024 that is sampled. This is a relative difference of delta of some (z/1024)^2 / 8
# where z is the normal quantile of delta: 3e-6 at delta 1e-6, 5e-5 at delta 1e-200.
TOTAL_SHARE = 0.999


# The joint accounting looks at every split of a user into own and shared up to these many, then at blocks.
_ADD_REMOVE_BLOCKS = 10_000
_REPLACE_BLOCKS = 200


@dataclasses.dataclass(frozen=True)
class Spread:
    """How a bounded user may spread over items: `units` in all, at most `cap` counts on one item.

    In the mass structure a unit is one count (l1 = units), in the item structure a whole item with `cap`
    counts (l0 = units). Counts are integers of at least 1.
    """

    units: int
    cap: int
    whole_items: bool

    @classmethod
    def of_mass(cls, total: int, cap: int) -> Spread:
        """At most `total` counts in all and `cap` on one item."""
        return cls(total, min(cap, total), whole_items=False)

    @classmethod
    def of_items(cls, items: int, cap: int) -> Spread:
        """At most `items` items with at most `cap` counts each."""
        return cls(items, cap, whole_items=True)

    @property
    def l1(self) -> int:
        """The most counts that one user can have."""
        return self.units * self.cap if self.whole_items else self.units

    def worst_own(self, own: Any) -> list[list[tuple[Any, Any]]]:
        """The ways to spread `own` units over items alone, one of which maximises sum phi(h): lists of
        (number of items, count of each). Elementwise for arrays.

        Whole items: phi increases, so every item has `cap`. Mass: phi is convex (the noise's distribution function is
        log-concave), hence among all spreads over a fixed number of items one of the worst has at most one item strictly
        between 1 and cap. With a caps, one item of s and ones, sum phi is convex in s. For a < own // cap its ends s = 1 and
        s = cap are spreads of ones and caps only, whose sum is linear in a: no cap or all possible caps are worst. For
        a = own // cap the ends are s = 1 and s = own % cap.
        """
        if self.whole_items:
            return [[(own, self.cap)]]
        caps, rest = own // self.cap, own % self.cap
        return [[(own, 1)], [(caps, self.cap), (rest, 1)], [(caps, self.cap), ((rest > 0) * 1, rest)]]

    def shared_l2_squared(self, own: Any) -> Any:
        """The largest squared l2 norm of what is left when `own` units are on items alone."""
        left = self.units - own
        if self.whole_items:
            return left * self.cap**2
        return (left // self.cap) * self.cap**2 + (left % self.cap) ** 2


def laplace_threshold(spread: Spread, scale: Fraction, delta: float) -> int:
    """The least integer tau such that releasing iff value >= tau is (epsilon, delta) private, with discrete
    Laplace noise of `scale` b >= l1/epsilon (adding or removing) or b >= 2 l1/epsilon (replacing).

    Noise: P[Z = z] proportional to exp(-|z|/b), so P[Z >= m] = q^m / (1+q) for m >= 0, q = exp(-1/b). The condition is that the
    own items of every user are released with probability 1 - Q <= delta. It is necessary (the user who has all of its items
    alone), hence tau is tight. And it is sufficient. With masses w and v on items of x and y alone (whole items counted as
    cap), the shared sums' loss is at most (users * l1 - w - v)/b <= epsilon - (w + v)/b. So P'[S] >= e^((w + v)/b - epsilon)
    P[S], and the first line of (1) gives H <= max(1 - Qx, 1 - Qy e^((w + v)/b)) <= delta.
    """
    if not 0 < delta < 0.5:
        raise ParameterError(f"an unknown domain with Laplace noise needs 0 < delta < 1/2, got {delta}")
    with _exactly_enough(spread, delta):
        b = decimal.Decimal(scale.numerator) / scale.denominator
        log_hidden, log_norm = (1 - decimal.Decimal(repr(delta))).ln(), (1 + (-1 / b).exp()).ln()

        def least(count: int, items: decimal.Decimal) -> decimal.Decimal:
            """The real tau at which `items` items of `count` are released with probability delta."""
            return count - b * ((1 - (log_hidden / items).exp()).ln() + log_norm)

        # Below `low` even the equal items of one way to spread show;
        # at `high` every item keeps to its share of l1.
        parts = [(n, h) for way in spread.worst_own(spread.units) for n, h in way if n]
        low = math.floor(max(least(h, decimal.Decimal(n)) for n, h in parts))
        high = math.ceil(max(least(h, decimal.Decimal(spread.l1) / h) for n, h in parts))
    failing, holding = low - 1, high + 1
    while holding - failing > 1:
        middle = (holding + failing) // 2
        if laplace_own_items_stay_hidden(spread, scale, delta, middle):
            holding = middle
        else:
            failing = middle
    return holding


def laplace_own_items_stay_hidden(spread: Spread, scale: Fraction, delta: float, tau: int) -> bool:
    """Whether items of any user alone are released at `tau` with probability at most delta."""
    if tau <= spread.cap:  # an item of one user alone would be released with probability above 1/2
        return False
    with _exactly_enough(spread, delta):
        rate = decimal.Decimal(scale.denominator) / scale.numerator
        norm = 1 + (-rate).exp()

        def phi(count: int) -> decimal.Decimal:
            return -(1 - (-rate * (tau - count)).exp() / norm).ln()

        allowed = -(1 - decimal.Decimal(repr(delta))).ln()
        return all(sum(n * phi(h) for n, h in way if n) <= allowed for way in spread.worst_own(spread.units))


def truncated_radius(scale: Fraction, delta: Fraction) -> int:
    """The least k >= 1 such that discrete Laplace noise X of `scale` b, given |X| <= k, has P[X = k] <= delta.

    With q = exp(-1/b) and P[X = k] = q^k (1-q) / (1 + q - 2 q^(k+1)): k >= -b ln(delta (1+q) / (1 - q + 2 q delta)).
    """
    if not 0 < delta < Fraction(1, 2):
        raise ParameterError(f"truncated noise needs 0 < delta < 1/2, got {float(delta)}")
    with _digits_for(delta, math.ceil(scale) + scale.denominator):
        share, b = _decimal(delta), _decimal(scale)
        q = (-1 / b).exp()
        return max(1, math.ceil(-b * (share * (1 + q) / (1 - q + 2 * q * share)).ln()))


def _exactly_enough(spread: Spread, delta: float) -> contextlib.AbstractContextManager[decimal.Context]:
    """Decimals with some 60 digits beyond the smallest probability in question: rounding decides nothing."""
    return _digits_for(delta, spread.l1)


def _digits_for(delta: float | Fraction, largest: int) -> contextlib.AbstractContextManager[decimal.Context]:
    digits = 60 + math.ceil(-math.log10(delta)) + len(str(largest))
    return decimal.localcontext(decimal.Context(prec=digits))


def _decimal(value: Fraction) -> decimal.Decimal:
    return decimal.Decimal(value.numerator) / value.denominator


def gaussian_joint_delta(
    spread: Spread,
    epsilon: float,
    sigma: float,
    threshold: float,
    relation: Relation,
    blocks: int | None = None,
) -> float:
    """At least the delta of Gaussian noise with standard deviation `sigma` and `threshold`: maximum of (1).

    The maximum runs over the own units w of x and v of y. Where these are too many, it runs over blocks of neighbouring w (and
    v). The items alone of the block's last with the distance of its first bound every split of the block, since Q decreases and
    the distance increases with the shared part. `blocks` is the number of splits up to which each is looked at singly.
    """

    def phi(count: Any) -> Any:
        return gaussian_rate(count, sigma, threshold)

    if blocks is None:
        blocks = _REPLACE_BLOCKS if relation is Relation.REPLACE else _ADD_REMOVE_BLOCKS
    first, last = _blocks(spread.units, blocks)
    own = _worst_sum(spread.worst_own(last), phi)
    return joint_delta(epsilon, own, spread.shared_l2_squared(first), sigma, relation)


def gaussian_rate(count: Any, sigma: float, threshold: float) -> np.ndarray:
    """phi(count) for Gaussian noise, elementwise."""
    return -np.log1p(-np.exp(log_normal((count - threshold) / sigma)))


def joint_delta(epsilon: float, own: np.ndarray, squared: np.ndarray, sigma: float, relation: Relation) -> float:
    """The maximum of (1) over what a user may be: own = -ln Q of its items alone, with the squared l2 norm of the shared."""
    if relation is Relation.REPLACE:
        return float(_divergence(epsilon, own[:, None], own, squared[:, None] + squared, sigma).max())
    added = _divergence(epsilon, own, 0.0, squared, sigma)
    removed = _divergence(epsilon, 0.0, own, squared, sigma)
    return float(np.maximum(added, removed).max())


def gaussian_threshold(spread: Spread, epsilon: float, delta: float, sigma: float, relation: Relation) -> float:
    """The least threshold t (to sigma/2^14) at which the joint accounting gives at most TOTAL_SHARE * delta.

    `sigma` must be private for less, such as `tuning.GAUSSIAN_NOISE_DELTA` * delta, which is what a very high
    threshold leaves. t is at least cap + sigma: from there on the bell curve is convex and `grid_threshold` may
    replace integrals by sums.
    """
    target = TOTAL_SHARE * delta

    def holds(threshold: float) -> bool:
        return gaussian_joint_delta(spread, epsilon, sigma, threshold, relation) <= target

    return least_threshold(holds, spread.cap, sigma)


def least_threshold(holds: Callable[[float], bool], cap: float, sigma: float) -> float:
    """The least threshold (to sigma/2^14) from cap + sigma on at which `holds`, which then holds for all higher ones."""
    low, high = 1.0, 2.0
    if holds(cap + low * sigma):
        return cap + low * sigma
    while not holds(cap + high * sigma):
        low, high = high, 2 * high
        if high > 1024:
            raise ParameterError(f"sigma = {sigma} is too small for any threshold: raise epsilon or delta")
    while high - low > 2**-14:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(cap + middle * sigma) else (middle, high)
    return cap + high * sigma


def grid_threshold(threshold: float, grid: int) -> int:
    """The least multiple m of 2**-grid (given as m * 2**grid) such that the discrete Gaussian on that grid, of the same sigma,
    hides as much as the continuous one: P[Z >= m - h] <= P[N >= threshold - h] for all h with threshold - h >= sigma.

    The sum of the bell curve over the whole grid exceeds its integral (Poisson summation), so each grid point has at most its
    density times the step. Where the curve is convex, this is at most the integral over the cell around it. The cells from
    m - h on begin half a step lower.
    """
    return math.ceil(Fraction(threshold) * 2**grid + Fraction(1, 2))


def _divergence(epsilon: float, own_x: Any, own_y: Any, squared: Any, sigma: float) -> np.ndarray:
    """(1) with own = -ln Q."""
    shared = gaussian_delta(epsilon + own_x - own_y, np.sqrt(squared), sigma)
    return -np.expm1(-own_x) + np.exp(-own_x) * shared


def _worst_sum(ways: Iterable[list[tuple[Any, Any]]], phi: Callable[[Any], Any]) -> np.ndarray:
    return np.maximum.reduce([sum(n * phi(h) for n, h in way) for way in ways])


def _blocks(units: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """First and last of consecutive blocks that cover 0..units: single numbers if at most `most`, else blocks
    that grow geometrically away from both ends, where the maximum lies."""
    if units < most:
        each = np.arange(units + 1.0)
        return each, each
    steps = np.unique(np.geomspace(1, units // 2 + 1, most // 2).astype(np.int64)) - 1
    first = np.unique(np.concatenate([steps, units - steps])).astype(float)
    return first, np.append(first[1:] - 1, units)
