"""What selection curves may cost a user, from epsilon and delta: the order a, the divergence W, and H for items of one user
alone.

With e' = epsilon + ln(1 - delta), R(t) = e' + (ln t + ln a - (a-1) ln(1 - 1/a)) / (a-1), U = 1, or 2 where a user is replaced,
c the sum of the ranges of the choices before, and D = a/8 times the sum of their squares:

    one item     the exact curve at epsilon - L and A F(e^((a-1)(L - D))) for every L up to c; at half of both if U is 2
    one round    W = (R(A) - D) / U,         H = A (1 - e^(-(a-1) W))
    rounds       W = (R((1-h) B) - D) / U,   H = h B, of both of which each round has a share

where F(g) = max(1, g, (B/A)(h + (1-h) g)). The share h and the ratio B/A are any numbers with h B < A (both in `tuning`);
without a choice B is A. A is delta by E, the largest mean of F that the choices can make (`worst_mean`).

Guarantee: choices of these ranges, each of which knows those before, and whichever of the namings they lead to, are together
(epsilon, delta)-differentially private; so is each naming without a choice. Where something follows that is rho-zCDP given the
names, all goes by divergences: A = delta, W = (R((1-h) A) - D - a rho) / U and H = h A. Proof: docs/proofs/partitions.md.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from fractions import Fraction

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, sum_up
from headcount.mechanisms.accounting.composition import renyi_left
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.partitions.coins import slope_ratio
from headcount.mechanisms.partitions.selection_curve import (
    SelectionCurve,
    check_curve_delta,
    curve_states,
    make_curve,
    one_item_curve,
)

# The number of parts that values of t are cut into, and those of L for one item.
_VALUES, _STEPS = 100, 50

# Beyond the rounding of these formulas.
_SLACK = 1 - 1e-9


@dataclasses.dataclass(frozen=True)
class CurveBudget:
    """The parts of a budget for selection curves, beside choices of these ranges, and zCDP of `rho` that follows (0: none
    does).
    """

    budget: Budget
    relation: Relation
    choices: tuple[float, ...] = ()
    rho: float = 0.0

    #: What the rounds before the last have of all. They take away what is named easily.
    early = tuning.EARLY_ROUNDS_SHARE

    def __post_init__(self) -> None:
        check_curve_delta(self.budget.delta)

    @functools.cached_property
    def order(self) -> float:
        """The order of all divergences: one number, as only divergences of one order add up."""
        best = best_order(lambda order: self._divergence(order, self.budget.delta / 2))
        if self._divergence(best, self._rounds(best) * (1 - tuning.OWN_ITEMS_DELTA)) <= 0:
            raise ParameterError(f"{self.budget!r} is too small for a curve: raise epsilon or delta")
        return best

    @property
    def share(self) -> float:
        """A: what every alternative may have of delta."""
        return self._share(self.order)

    def cost(self, in_rounds: bool) -> tuple[float, float]:
        """W and H of all rounds together."""
        in_rounds = in_rounds or self.rho > 0
        order, shared = self.order, self.share
        if in_rounds:
            own = self._rounds(order) * tuning.OWN_ITEMS_DELTA
            shared = self._rounds(order) - own
        cost = self._divergence(order, shared) * _SLACK / self.relation.users
        shown = (own if in_rounds else -math.expm1(-(order - 1) * cost) * shared) * _SLACK
        return cost, shown

    @property
    def alone(self) -> Budget:
        """What naming costs without all beside: in the proof, at L = D, where g is 1."""
        left = self._beside(self.order)
        return Budget(self.budget.epsilon - left, self.share if self.choices else self.budget.delta)

    def curve(self, items: int, in_rounds: bool, part: float) -> SelectionCurve:
        """The curve of a round that has this part of all; for one item, of which nothing follows, the exact one."""
        if items == 1 and self.rho == 0:
            return one_item_curve(*self.one_item)
        cost, shown = self.cost(in_rounds)
        if items == 1:
            return make_curve(1, self.order, cost * part, shown * part, fine=1)
        return make_curve(items, self.order, cost * part, shown * part)

    def states(self, items: int, in_rounds: bool, part: float) -> float:
        """About how many states the curve of a round of several items has."""
        cost, _ = self.cost(in_rounds)
        return curve_states(items, self.order, cost * part)

    @property
    def one_item(self) -> tuple[tuple[Fraction, Fraction], ...]:
        """The pairs of epsilon and delta that one coin keeps, where one item of each user counts.

        Losses L are looked at in steps: of each, the epsilon at its end with the delta at its beginning bound all of it. They
        begin where F is 1, as it is for all below.
        """
        whole, users = self.budget.epsilon_fraction, self.relation.users
        if not self.choices:
            return ((whole / users, Fraction(repr(self.budget.delta)) / users),)
        most = sum_up(self.choices)
        if whole <= Fraction(most):
            raise ParameterError(f"{self.budget!r} is too small for a choice beside a curve: raise epsilon")
        beside = self._beside(self.order)
        first = min(most, beside + math.log(_last_of_one()) / (self.order - 1))
        ends = [first + (most - first) * number / _STEPS for number in range(_STEPS)] + [most]
        share = self.share * _SLACK
        return tuple(
            (
                (whole - Fraction(after)) / users,
                Fraction(min(1.0, share * _larger(math.exp((self.order - 1) * (loss - beside))))) / users,
            )
            for loss, after in itertools.pairwise(ends)
        )

    def _share(self, order: float) -> float:
        if self.rho > 0:  # all goes by divergences
            return self.budget.delta
        return self.budget.delta / worst_mean(self.choices, order) if self.choices else self.budget.delta

    def _rounds(self, order: float) -> float:
        """B: what rounds may have of delta."""
        return self._share(order) * (tuning.ROUNDS_DELTA if self.choices and self.rho == 0 else 1)

    def _beside(self, order: float) -> float:
        """D, and what follows, in divergence."""
        return order * (math.fsum(choice**2 for choice in self.choices) / 8 + self.rho)

    def _divergence(self, order: float, shared: float) -> float:
        """R(shared) - D."""
        left = renyi_left(order, shared)
        return self.budget.epsilon + math.log1p(-self.budget.delta) + left - self._beside(order)


@dataclasses.dataclass(frozen=True)
class CurvePart:
    """What selection curves may cost as a part of a release: a Renyi divergence of one order of `cost` for neighbours, and
    `shown`.

    `shown` is the probability that items of one user alone are named. Both hold whatever K is, in all rounds together. Whoever
    states them composes them with the rest. `budget` is that of the whole release. For one item the curve is not the exact one,
    which has no divergence of an order.
    """

    budget: Budget
    relation: Relation
    order: float
    cost: float
    shown: float

    early = tuning.EARLY_ROUNDS_SHARE_OF_PART

    def __post_init__(self) -> None:
        check_curve_delta(self.budget.delta)

    @property
    def rho(self) -> float:
        """All curves together also have divergences of at most alpha times this, of every order alpha from 1 to `order`.

        Each curve keeps its part of it for a user, by the order; a user who is replaced moves as much as two.
        """
        return self._slope_ratio * self.cost / self.order

    @property
    def _slope_ratio(self) -> float:
        return slope_ratio(self.order, self.cost / self.relation.users)

    def curve(self, items: int, in_rounds: bool, part: float) -> SelectionCurve:
        """The curve of a round that has this part of all."""
        of_each = self.cost * _SLACK / self.relation.users * part
        fine = {"fine": 1} if items == 1 else {}
        return make_curve(items, self.order, of_each, self.shown * _SLACK * part, slope_ratio=self._slope_ratio, **fine)

    def states(self, items: int, in_rounds: bool, part: float) -> float:
        """About how many states the curve of a round has."""
        return curve_states(items, self.order, self.cost / self.relation.users * part)


def best_order(divergence: Callable[[float], float]) -> float:
    """The order of curves that may cost this divergence at each order. Any order above 1 keeps the guarantee."""
    orders = (1 + 2 ** (number / 32) for number in range(-96, 480))
    return max(orders, key=lambda order: divergence(order) / order**tuning.ORDER_POWER)


def _last_of_one() -> float:
    """Up to this g, F is 1."""
    return min(1.0, (1 / tuning.ROUNDS_DELTA - tuning.OWN_ITEMS_DELTA) / (1 - tuning.OWN_ITEMS_DELTA))


def _larger(g: float) -> float:
    """F(g)."""
    return max(1.0, g, tuning.ROUNDS_DELTA * (tuning.OWN_ITEMS_DELTA + (1 - tuning.OWN_ITEMS_DELTA) * g))


@functools.lru_cache(maxsize=1024)
def worst_mean(choices: tuple[float, ...], order: float) -> float:
    """E, rounded up: the largest mean of F(g) for these choices."""
    return _worst_mean(choices, order, 1.0)


def _worst_mean(choices: tuple[float, ...], order: float, before: float) -> float:
    """The same where earlier choices have made so much of g.

    A choice has losses at t - c and t, 0 <= t <= c, with a mean of e^-L of 1. So t has the chance (e^(c-t) - 1) / (e^(c-t) -
    e^-t), which falls in t, while what follows rises, and is larger at t than at t - c. Between two values of t the mean is at
    most that of the first one's chance with what follows the second.
    """
    if not choices:
        return _larger(before)
    c, *rest = choices
    d, found = order * c**2 / 8, 0.0

    def following(loss: float) -> float:
        return _worst_mean(tuple(rest), order, before * math.exp((order - 1) * (loss - d)))

    for number in range(_VALUES):
        t, after = number * c / _VALUES, (number + 1) * c / _VALUES
        chance = math.expm1(c - t) / (math.exp(c - t) - math.exp(-t))
        low = following(after - c)
        found = max(found, low + chance * (following(after) - low))
    return found * (1 + 1e-9)
