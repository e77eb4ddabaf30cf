"""Renyi divergences of coins: of one order, and of all orders up to one.

Selection curves are made and checked with them. A coin of probability p is given by its logit. For coins of logits x and x + y,
with S(x) = ln(1 + e^x), (a-1) D_a(q||p) = S(x + a y) - S(x) - a (S(x + y) - S(x)).

Guarantee of `Pairs.keeps_rho`: where it is true, d D_a <= a rho for every order 1 < a <= `order`, for all pairs of states and
all users of d items who move them. It looks at chords of a convex function, whose ends are orders cosh(t/2)^2. Proof:
docs/proofs/partitions.md, "All orders at once".
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import digits_up

Floats = npt.NDArray[np.float64]

# How finely orders are cut, in t, before a curve is refused; what rounding may take of rho there.
_FINEST, _CHECKED = 0.1, 1 - 1e-3


def logs(logits: Floats) -> tuple[Floats, Floats]:
    """The logarithms of both sides of coins whose logits are given."""
    return -np.logaddexp(0, -logits), -np.logaddexp(0, logits)


def power(q: tuple[Floats, Floats], p: tuple[Floats, Floats], order: float | Floats) -> Floats:
    """(a-1) D_a(q||p) of coins, by the logarithms of their sides."""
    (q1, q0), (p1, p0) = q, p
    return np.logaddexp(order * q1 + (1 - order) * p1, order * q0 + (1 - order) * p0)


def largest(logits: Floats, order: float, costs: Floats) -> Floats:
    """For each p the largest q, as logits, with D_a(q||p) at most each of the costs, then with D_a(p||q): by bisection.

    The least of the two has a kink, across which nothing can be interpolated; each of them is smooth. The first is cut where it
    is so far above the second that it no longer matters, since it grows beyond all limits.
    """
    p, limit = np.repeat(logits[:, None], len(costs), axis=1), (order - 1) * costs
    of_p = logs(p)  # of all steps
    found = []
    for way in (lambda q: power(logs(q), of_p, order), lambda q: power(of_p, logs(q), order)):
        low, high = p, p + 80.0
        for _ in range(40):
            q = (low + high) / 2
            kept = way(q) <= limit
            low, high = np.where(kept, q, low), np.where(kept, high, q)
        found.append(low)
    up, down = found
    return np.stack([np.minimum(up, down + 1), down], axis=1)


def limited(logits: Floats, allowed: Floats, order: float, rhos: Floats) -> Floats:
    """For each p the largest q with D_a <= a rho in both directions, at some orders, for each of the rhos.

    Only where it is less than what is `allowed`, by p and rho: elsewhere it is twice as far from p as that.
    """
    p = np.repeat(logits[:, None], len(rhos), axis=1)
    orders, found = _orders(order, tuning.HELD_BACK_ORDERS)[:, None], 2 * allowed - p
    over = np.flatnonzero((_needed(p, allowed, orders) > rhos).any(axis=1))
    if not len(over):
        return found
    there = slice(max(0, over[0] - 4), over[-1] + 5)  # and what an interpolation at such a p looks at
    low, high = p[there], found[there]
    for _ in range(24):
        q = (low + high) / 2
        kept = _needed(p[there], q, orders) <= rhos
        low, high = np.where(kept, q, low), np.where(kept, high, q)
    found[there] = low
    return found


@functools.lru_cache(maxsize=256)
def slope_ratio(order: float, cost: float) -> float:
    """How far D_alpha / alpha of a curve may be above W / a, at orders alpha below a: D_alpha <= alpha * slope_ratio * W / a.

    In the tails of a curve D_alpha / alpha rises with alpha. In its middle it falls, the more the larger W / d is for users of
    the most items d. The number is a little more than a curve of FREE_ITEMS items has. Larger curves keep it as they are;
    smaller ones are lowered in their middle, which hardly costs them names. No proof rests on it: every curve is checked for
    what it states.
    """
    logits = np.arange(-6.0, 6.0, 0.04)  # the middle, where two curves meet in a peak
    each = cost / tuning.FREE_ITEMS
    q = largest(logits, order, np.array([each])).min(axis=(1, 2))
    found = max(1.0, float(_needed(logits, q, _orders(order, 32)).max()) * order / each) * tuning.STATED_BEYOND
    return digits_up(found, 4)  # the same on every kind of processor


def limit_of(rho: float) -> float:
    """The rho that a curve is lowered to, where another one is stated: a little less."""
    return rho / tuning.HELD_BACK_BY


def _orders(order: float, number: int) -> Floats:
    """This number of orders below the given one, as a column."""
    places = _place(order) * np.arange(1, number + 1) / (number + 1)
    return np.asarray(np.cosh(places / 2) ** 2)[:, None]


def _place(order: float) -> float:
    """The t of an order."""
    return 2 * math.acosh(math.sqrt(order))


def _needed(p: Floats, q: Floats, orders: Floats) -> Floats:
    """The rho that coins p and q need at these orders, in both directions."""
    of_p, of_q = logs(p), logs(q)
    both = np.maximum(power(of_q, of_p, orders), power(of_p, of_q, orders)) / (orders * (orders - 1))
    return np.asarray(both.max(axis=0))


class Pairs:
    """The pairs of states of a curve that users can move, with the number of items of such users: logits before and after."""

    def __init__(self, before: Floats, after: list[Floats], numbers: list[int]) -> None:
        # A coin and its other side are the same: the one below 1/2 has the digits.
        side = np.where(before > 0, -1.0, 1.0)
        self.before, self.below = before * side, _softplus(before * side)
        self.after = [
            (each * side, _softplus(each * side), number) for each, number in zip(after, numbers, strict=True)
        ]

    def worst(self, order: float) -> float:
        """P of this order."""
        found = 0.0
        for after, above, number in self.after:
            step, slope = order * (after - self.before), order * (above - self.below)
            up = _softplus(self.before + step) - self.below - slope
            down = _softplus(after - step) - above + slope
            found = max(found, number * max(float(up.max()), float(down.max())))
        return found

    def keeps_rho(self, order: float, rho: float) -> bool:
        """Whether d D_a <= a rho for every order 1 < a <= `order`, of all pairs."""
        rho *= _CHECKED
        parts = [(0.0, 0.0, _place(order), self.worst(order))]
        while parts:
            start, low, end, high = parts.pop()
            if _chord(math.sinh(start / 2) ** 2, low, math.sinh(end / 2) ** 2, high) <= rho:
                continue
            if end - start < 2 * _FINEST:
                return False
            middle = (start + end) / 2
            here = self.worst(math.cosh(middle / 2) ** 2)
            parts += [(start, low, middle, here), (middle, here, end, high)]
        return True


def _chord(b: float, low: float, c: float, high: float) -> float:
    """The largest ratio to a (a-1), between the orders 1 + b and 1 + c, of what is linear from one value to the other.

    With v = a - 1 it is (m v - k) / (v (1 + v)), k >= 0 as P is convex and 0 at 1; it rises up to the larger root of its
    derivative, m v^2 = 2 k v + k, and falls behind it.
    """
    m = (high - low) / (c - b)
    k = max(0.0, m * b - low)
    v = min(max((k + math.sqrt(k * (k + m))) / m, b), c)
    return (m - k / v) / (1 + v) if v > 0 else m


def _softplus(x: Floats) -> Floats:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))
