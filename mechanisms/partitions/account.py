"""What a selection costs whose strategy is chosen first: the choice and the noise, composed together.

Guarantee: the choice, of range c (`choice.exponential`), and what follows it, whichever that is, are together
(epsilon, delta)-differentially private under the relation.

Proof. Let x be a user of d items, the share u of them its own, and write A(e, s) for the divergence at e of Gaussian noise at a
squared distance s. What may follow the choice has, at every e >= epsilon - c, a divergence of at most

    laplace, one item        u H                              private but for own items, of which it keeps one with chance u
    weighted-gaussian        u (H + A'(e)) + (1 - u) A(e - H, mu^2)
    sips                     H_s + A(e - H_s, mu_s^2)         the proof in `rounds`: own shares change with what is named

Here H and H_s are the rates at which thresholds show own items, and A' is 0, or A(e - H, mu^2 / 2) where a user is replaced.
For the second: a sample with own share v shows own items with probability v H or less. What it shares is at a squared distance
of (1 - v) mu^2, or (1 - v/2) mu^2. A is convex in s from 0 on where (e / mu)^2 >= 1 + mu^2 / 4, so it lies below its chord; and
the mean of v is u. That own items of the other user, or of an absent one, stay hidden moves e by H at most.

So each is affine in u. The whole is at most the mean of the largest of them over the losses of the choice (`composition`),
which is convex in u: it is largest at u = 0 or at u = 1. Both are computed, at epsilon less the larger rate.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

from headcount.mechanisms.accounting import thresholds
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.composition import Parts, composed_delta, largest_mu
from headcount.mechanisms.accounting.gaussian import gaussian_epsilon
from headcount.mechanisms.accounting.losses.parts import Draw, Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.choice.run import split_budget
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.partitions.rounds import SIPS_NOISE, SIPS_ROUNDS, Round, rounds_of, zcdp_rounds

# The share of epsilon that the choice has: where many items are close to the threshold, a percent of noise is many of them.
_CHOICE_SHARE = Fraction(1, 25)

# The share of delta that sips has. The less it is, the more is left for one round, which some data may choose.
_SIPS_SHARE = 0.8


@dataclasses.dataclass(frozen=True)
class SelectionAccount:
    """The parts of a budget: the choice, and for what follows it mu of Gaussian noise and the rates of thresholds."""

    budget: Budget
    relation: Relation
    choice: Budget
    one_item: Budget
    mu: float
    hiding: float
    sips_mu: float
    sips_hiding: float

    def __post_init__(self) -> None:
        if not self.delta() <= self.budget.delta:
            raise ParameterError(f"the parts cost a delta of {self.delta()}, more than {self.budget!r} has")

    def delta(self) -> float:
        """What all of it costs at epsilon."""
        own, shared = _ways(self.mu, self.hiding, self.relation)
        rounds = Parts(mu=self.sips_mu, hiding=self.sips_hiding)
        left = self.budget.epsilon - max(self.hiding, self.sips_hiding)
        if not _is_convex(left - self.choice.epsilon, self.mu) or self.one_item.delta > self.hiding:
            return 1.0
        worst = max(composed_delta(left, (self.choice.epsilon,), way, rounds) for way in (own, shared))
        return worst / thresholds.TOTAL_SHARE

    def losses(self, *strategies: str) -> Losses:
        """What composition needs to know of the choice and of whichever of these strategies follows it.

        The proofs above trade own items against shared ones at one epsilon. Here both are paid for in full.
        """
        ways = {
            "laplace": self.rounds("laplace", 1, SIPS_ROUNDS)[0].plan.losses(),
            "weighted-gaussian": Losses(mu=self.mu, hiding=-math.expm1(-self.hiding) * (1 + 1e-12)),
            "sips": Losses(mu=self.sips_mu, hiding=-math.expm1(-self.sips_hiding) * (1 + 1e-12)),
        }
        return Losses.of(Draw(self.choice.epsilon)) + Losses.one_of(*(ways[strategy] for strategy in strategies))

    def rounds(self, strategy: str, max_items: int, rounds: int) -> tuple[Round, ...]:
        """The rounds of a strategy that was chosen; `rounds` is for sips alone."""
        if strategy == "laplace":
            return rounds_of(self.one_item, strategy, max_items, SIPS_ROUNDS, self.relation)
        if strategy == "sips":
            shown = -math.expm1(-self.sips_hiding)
            return zcdp_rounds(self.sips_mu**2 / 2, shown, max_items, self.relation, strategy, rounds)
        return zcdp_rounds(self.mu**2 / 2, -math.expm1(-self.hiding), max_items, self.relation, strategy)

    def cost(self, strategy: str) -> Budget:
        """What noise and threshold of a strategy would cost alone."""
        if strategy == "laplace":
            return self.one_item
        mu, hiding = (self.sips_mu, self.sips_hiding) if strategy == "sips" else (self.mu, 0.0)
        return Budget(gaussian_epsilon(mu, self.budget.delta - hiding), self.budget.delta)


def make_account(budget: Budget, relation: Relation) -> SelectionAccount:
    """The account of a selection whose strategy is chosen by a 25th of epsilon."""
    choice, rest = split_budget(budget, _CHOICE_SHARE, "gem")
    whole = thresholds.TOTAL_SHARE * budget.delta * (1 - 1e-6)  # beyond the search for mu
    left, first = budget.epsilon - budget.delta, (choice.epsilon,)
    least = left - choice.epsilon
    if least <= 0:
        raise ParameterError(f"{budget!r} has too large a delta for a choice: lower it, or give strategy and max_items")
    sips_hiding = (1 - SIPS_NOISE) * _SIPS_SHARE * whole
    sips_mu = largest_mu(left, _SIPS_SHARE * whole, first, Parts(hiding=sips_hiding))
    rounds = Parts(mu=sips_mu, hiding=sips_hiding)
    # Up to the second the divergence is convex: beyond, delta is so large that this proof does not serve.
    mu = min(largest_mu(left, whole, first, Parts(), rounds), math.sqrt(2 * (math.hypot(1, least) - 1)) * (1 - 1e-9))
    if mu == 0 or sips_mu == 0:
        raise ParameterError(f"{budget!r} is too small for a choice beside its noise: raise epsilon or delta")

    def holds(hiding: float) -> bool:
        own, _ = _ways(mu, hiding, relation)
        return composed_delta(left, first, own, rounds) <= whole

    low, high = 0.0, whole
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return SelectionAccount(budget, relation, choice, Budget(rest.epsilon, low), mu, low, sips_mu, sips_hiding)


def _ways(mu: float, hiding: float, relation: Relation) -> tuple[Parts, Parts]:
    """One round of weights, for a user of own items alone and for one of shared items alone."""
    half = mu / math.sqrt(2) if relation is Relation.REPLACE else 0.0
    return Parts(mu=half, hiding=hiding), Parts(mu=mu)


def _is_convex(epsilon: float, mu: float) -> bool:
    """Whether the divergence of Gaussian noise at `epsilon` is convex in the squared distance up to mu^2.

    Its derivative there is phi(e/mu - mu/2) / (2 mu), and the derivative of that has the sign of (e/mu)^2 - 1 - mu^2/4.
    """
    return (epsilon / mu) ** 2 >= 1 + mu**2 / 4
