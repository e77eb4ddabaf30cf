"""What laws may cost a user, from epsilon and delta: the order, the divergence and what own items are named by.

Let A be the share of delta below, e' = epsilon + ln(1 - A), and R(t) = e' + (ln t + ln a - (a-1) ln(1 - 1/a)) / (a-1). A Renyi
divergence of order a of at most R(t) - s gives a divergence at e' of at most t e^(-(a-1) s), and of t e^((a-1)(L - s)) at
e' - L (Canonne, Kamath, Steinke, "The discrete Gaussian", 2020: that is the largest of 1 - e^(e'-l) over e^((a-1) l)).
Let U be 1, or 2 where a user is replaced. In the words of `law`:

    one item     the exact law at epsilon - L and A max(1, e^((a-1)(L - D))) for every L up to c; where a user is replaced, two
                 coins move: at half of both
    one round    W = (R(A) - D) / U,     H = A (1 - e^(-(a-1) W))
    rounds       W = (R(A/2) - D) / U,   H = A / 2, of both of which each round has a share

Guarantee: choices of ranges c_1, c_2, ..., each of which knows those before, and whichever of these they lead to, are together
(epsilon, delta)-differentially private; without a choice, for c = D = 0, each of them is, alone. c and D are sums over choices.

Proof. (1 - H) M* <= M but for own names, which have probability H at most. So M has at every e a divergence of at most H and
that of M* at e + ln(1 - H). Let the choices be made with losses of L together, and g = e^((a-1)(L - D)). What is left is
epsilon - L, at least epsilon - c. Then the divergence of what follows is at most max(A, A g):

    one item     max(A, A g), as its law is made
    rounds       A/2 + A/2 g
    one round    u H + A g e^(-(a-1) u W) for a user of a share u of own items: they are named by u H at most, and the others
                 differ by U W - u W. This is convex in u, A g for u = 0, and a mean of A and A g for u = 1.

The whole is at most the mean of max(A, A g) over the losses of the choices. Those of one lie in an interval [t - c, t], the
mean of e^-L is 1, and max(A, A g) is convex in e^-L: so its mean is largest where L is at the ends. The worst t gives A E, with
the E below, and A = delta / E. Of several, max(1, g) is at most the product of theirs. Given those before, the mean of the last
is at most its E, and so on: E is the product of all.

D = a c^2 / 8 is what a choice costs in divergence: psi(t), the logarithm of the mean of e^(tL) over the second law, is 0 at 0
and at 1, and psi'' is the variance of what lies within an interval of c, at most c^2 / 4. So psi(a) <= a (a-1) c^2 / 8. (The
proof above holds for any D; this one keeps E small.)

Where a mechanism follows that looks at the data again, and is rho-zCDP given the names, all of it goes by divergences: for one
item, one round and several, A = delta, W = (R(A/2) - D - a rho) / U and H = A / 2. The choice, M* and what follows then differ
by R(A/2) at most, and are (e', A/2)-differentially private. Names of the first kind cost the rest of delta and of epsilon.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from fractions import Fraction

from headcount.mechanisms.accounting.budget import Budget, sum_up
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.partitions.law import Law, coin_law, law_states, one_item_law

# No part of the proof: the order is where R / a^1.9 is largest. R / a is what the middle of a law rises by, and its beginning
# rises the faster the lower a is. Medians are within half a percent of those at the best order, for two or three items in two;
# looked at were epsilon from 0.3 to 4, delta from 1e-10 to 1e-3, and K from 3 to 100, in one round and in rounds.
_LOWER = 1.9

# Into so many parts the values of t are cut, and those of L for one item.
_VALUES, _STEPS = 500, 50

# Beyond the rounding of these formulas.
_SLACK = 1 - 1e-9


@dataclasses.dataclass(frozen=True)
class LawBudget:
    """The parts of a budget for laws, beside choices of ranges `choices` and zCDP of `rho` that follows (0: there is none)."""

    budget: Budget
    relation: Relation
    choices: tuple[float, ...] = ()
    rho: float = 0.0

    @functools.cached_property
    def order(self) -> float:
        """The order of all divergences: one number, as only divergences of one order add up."""
        best = best_order(lambda order: self._divergence(order, 0.5))
        if self._divergence(best, 0.5) <= 0:
            raise ParameterError(f"{self.budget!r} is too small for a law: raise epsilon or delta")
        return best

    @property
    def share(self) -> float:
        """A: what every alternative may have of delta."""
        return self._share(self.order)

    def cost(self, in_rounds: bool) -> tuple[float, float]:
        """W and H of all rounds together."""
        in_rounds = in_rounds or self.rho > 0
        order, part = self.order, 0.5 if in_rounds else 1.0
        cost = self._divergence(order, part) * _SLACK / self.relation.users
        shown = self.share * (0.5 if in_rounds else -math.expm1(-(order - 1) * cost)) * _SLACK
        return cost, shown

    @property
    def alone(self) -> Budget:
        """What naming costs without all beside: in the proof, at L = D, where g is 1."""
        left = self._beside(self.order)
        return Budget(self.budget.epsilon - left, self.share if self.choices else self.budget.delta)

    def law(self, items: int, in_rounds: bool, part: float) -> Law:
        """The law of a round that has this part of all; for one item, of which nothing follows, the exact one."""
        if items == 1 and self.rho == 0:
            return one_item_law(*self.one_item)
        cost, shown = self.cost(in_rounds)
        if items == 1:
            return coin_law(1, self.order, cost * part, shown * part, fine=1)
        return coin_law(items, self.order, cost * part, shown * part)

    def states(self, items: int, in_rounds: bool, part: float) -> float:
        """About how many states the law of a round of several items has."""
        cost, _ = self.cost(in_rounds)
        return law_states(items, self.order, cost * part)

    @property
    def one_item(self) -> tuple[tuple[Fraction, Fraction], ...]:
        """The pairs of epsilon and delta that one coin keeps, where one item of each user counts.

        Losses L are looked at in steps: of each, the epsilon at its end with the delta at its beginning bound all of it.
        """
        whole, users = self.budget.epsilon_fraction, self.relation.users
        if not self.choices:
            return ((whole / users, Fraction(repr(self.budget.delta)) / users),)
        most = sum_up(self.choices)
        if whole <= Fraction(most):
            raise ParameterError(f"{self.budget!r} is too small for a choice beside a law: raise epsilon")
        first = min(most, self._beside(self.order))
        ends = [first + (most - first) * number / _STEPS for number in range(_STEPS)] + [most]
        share = self.share * _SLACK
        return tuple(
            (
                (whole - Fraction(after)) / users,
                Fraction(min(1.0, share * math.exp((self.order - 1) * (loss - first)))) / users,
            )
            for loss, after in itertools.pairwise(ends)
        )

    def _share(self, order: float) -> float:
        if self.rho > 0:  # all goes by divergences
            return self.budget.delta
        return self.budget.delta / math.prod(_mean_of_larger(choice, order) for choice in self.choices)

    def _beside(self, order: float) -> float:
        """D, and what follows, in divergence."""
        return order * (math.fsum(choice**2 for choice in self.choices) / 8 + self.rho)

    def _divergence(self, order: float, part: float) -> float:
        """R(A part) - D."""
        share = self._share(order)
        left = renyi_left(order, share * part)
        return self.budget.epsilon + math.log1p(-share) + left - self._beside(order)


@dataclasses.dataclass(frozen=True)
class LawPart:
    """What laws may cost as a part of a release: a divergence of one order, of `cost` for neighbours, and own items that are
    named by `shown` at most; whatever K is, and in all rounds together. Whoever states it composes it with what else there is.

    `budget` is that of the whole release. The law of one item is not the exact one, which has no divergence of an order.
    """

    budget: Budget
    relation: Relation
    order: float
    cost: float
    shown: float

    def law(self, items: int, in_rounds: bool, part: float) -> Law:
        """The law of a round that has this part of all."""
        of_each = self.cost * _SLACK / self.relation.users * part
        shown = self.shown * _SLACK * part
        return (
            coin_law(items, self.order, of_each, shown, 1)
            if items == 1
            else coin_law(items, self.order, of_each, shown)
        )

    def states(self, items: int, in_rounds: bool, part: float) -> float:
        """About how many states the law of a round has."""
        return law_states(items, self.order, self.cost / self.relation.users * part)


def best_order(divergence: Callable[[float], float]) -> float:
    """The order of laws that may cost so much at each: no part of any proof."""
    orders = (1 + 2 ** (number / 32) for number in range(-96, 480))
    return max(orders, key=lambda order: divergence(order) / order**_LOWER)


def renyi_left(order: float, delta: float) -> float:
    """By how much a divergence of this order must be below epsilon for a divergence of delta at epsilon, as a negative number:
    R(delta) - e' above."""
    return (math.log(delta) + math.log(order) - (order - 1) * math.log1p(-1 / order)) / (order - 1)


@functools.lru_cache(maxsize=1 << 14)  # a budget asks for two times 576
def _mean_of_larger(c: float, order: float) -> float:
    """E, rounded up: the largest mean of max(1, e^((a-1)(L - D))) over losses at t - c and t, t <= c, with a mean of e^-L of 1.

    The lower end is below D, and t has the chance (e^(c-t) - 1) / (e^(c-t) - e^-t), which falls in t, while the power rises: so
    between two values of t it is at most the chance of the first with the power of the second.
    """
    d, found = order * c**2 / 8, 1.0
    for number in range(_VALUES):
        t, after = number * c / _VALUES, (number + 1) * c / _VALUES
        chance = math.expm1(c - t) / (math.exp(c - t) - math.exp(-t))
        found = max(found, 1 + chance * math.expm1((order - 1) * (after - d)))
    return found * (1 + 1e-9)
