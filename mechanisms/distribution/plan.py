"""The numbers of learning a distribution: which method, what each of its steps may cost, and the error to expect.

Methods, for k public symbols and users with exactly m samples each. K is how many symbols' tables two neighbours can differ in:
min(k, m) if a user is added or removed, min(k, 2 m) if one is replaced (see `tables` for why it is not k).
Proof: docs/proofs/distribution.md.

    "dense" (Algorithm 3): p of every symbol is chosen by `binomial_choice`, at epsilon' each. What counts are the K choices
        that differ, which cost K epsilon' in pure privacy, or K epsilon'^2 / 8 in zCDP: epsilon' is the larger of the two.
    "sparse" (Algorithm 5, corrected): first all p by `small`, from one vector with noise for its l2 distance sqrt(K) (l1
        distance K, where delta is 0). Then the n symbols that are not small by choices, of which min(n, K) count. Which
        ones these are is a private output by then. The two parts of rho (of epsilon, where delta is 0) add up.
    "gaussian", "laplace": baselines, the numbers of samples with noise for all m samples of a user. A twentieth of epsilon
        tells how much users differ (`spread`), if m is above 1.

The error from privacy falls with sqrt(m) by the first two, while it does not depend on m with the baselines. But the first two
are for users who are all alike, and far off where they differ, as users do: "auto" takes one of the baselines.

What differs from the paper: it has k in place of K for "dense", constants that spend less than a third of epsilon, and passes
an epsilon' that is divided already to be divided again in "sparse" (private, and useless).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, Zcdp, zcdp_rho
from headcount.mechanisms.accounting.gaussian import whole_sigma
from headcount.mechanisms.accounting.guarantee import MechanismStep
from headcount.mechanisms.accounting.losses import Draw, Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.bounding.steps import Step, promise_of
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import calibrate_public_domain, make_plan
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.distribution.binomial_choice import (
    KINDS,
    MOST_USERS,
    BinomialChoice,
    least_users,
    rounded_down,
)
from headcount.mechanisms.distribution.small import holders_slope
from headcount.mechanisms.distribution.spread import spread_noise
from headcount.mechanisms.distribution.tables import ExactSamplesStep
from headcount.mechanisms.errors import ParameterError

METHODS = ("dense", "sparse", "gaussian", "laplace")

#: The methods that are right for the mean of users who differ.
ROBUST = ("gaussian", "laplace")


_LARGEST_SIGMA = 2**40
_ROOT_2_PI = math.sqrt(2 / math.pi)  # mean absolute value of a standard normal variable


@dataclasses.dataclass(frozen=True)
class DistributionPlan:
    """The numbers of one distribution, for users with `samples` samples (and fewer than `below`, if it is one of several
    buckets): `plan_distribution` makes one.

    `budget` is what all steps after counting the users cost together. `users` is their number if it is public, the noise by
    which it is counted, or None where the method needs none. `noise` is for the vector of "sparse" or the baselines' counts,
    and `spread` for how much users differ, which the baselines ask.
    """

    method: str
    hypothesis: str
    symbols: int
    samples: int
    below: int | None
    relation: Relation
    budget: Budget
    users: int | NoisePlan | None
    noise: NoisePlan | None
    spread: NoisePlan | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """What bounds a user's contribution."""
        return (ExactSamplesStep(self.samples, self.below),)

    @property
    def bound(self) -> Bound:
        """What the steps promise of every user."""
        return promise_of(self.steps, Bound(), "")

    @property
    def touched(self) -> int:
        """K: in how many symbols' tables two neighbours can differ."""
        return touched_symbols(self.symbols, self.samples, self.relation)

    def choice(self, users: int, large: int | None = None) -> BinomialChoice:
        """How p is chosen for each symbol: for all of them, or in "sparse" for those `large` many that are not small."""
        if self.method == "dense":
            epsilon = choice_epsilon(self.budget, self.touched)
        elif large is None:
            raise ParameterError("the method 'sparse' chooses among symbols whose number must be given")
        else:
            _, rest = _sparse_parts(self.budget)
            epsilon = _part_epsilon(rest, min(large, self.touched))
        return BinomialChoice(self.samples, min(max(users, 1), MOST_USERS), epsilon, self.hypothesis)

    def least_users(self) -> int:
        """From how many users on choices say anything, in "sparse" one of them at least: 1, but for the hypothesis "phs"."""
        if self.method in ROBUST:
            return 1
        choice = self.choice(1, 1)
        return least_users(self.samples, choice.epsilon, choice.kind)

    def parameters(self) -> Mapping[str, Any]:
        """What defines the mechanism, in canonical form: part of its randomness."""
        return {
            "method": self.method,
            "hypothesis": self.hypothesis,
            "symbols": self.symbols,
            "samples": self.samples,
            "below": self.below,
            "relation": self.relation.value,
            "budget": [repr(self.budget.epsilon), repr(self.budget.delta)],
            "users": self.users.to_json() if isinstance(self.users, NoisePlan) else self.users,
            "noise": None if self.noise is None else self.noise.to_json(),
        } | ({} if self.spread is None else {"spread": self.spread.to_json()})

    def mechanism_steps(self) -> tuple[MechanismStep, ...]:
        """The parts of the guarantee."""
        few = f"{self.samples} samples, on {min(self.samples, self.symbols)} symbols at most"
        parts = [MechanismStep("bounding", 0.0, 0.0, {"a user counts with": few})]
        if isinstance(self.users, NoisePlan):
            parts.append(self.users.step("number of users"))
        elif self.users is not None:
            parts.append(MechanismStep("number of users", 0.0, 0.0, {"public": self.users}))
        budget, noise = self.budget, self.noise
        if self.method in ROBUST:
            assert noise is not None
            parts.append(noise.step("noise"))
            if self.spread is not None:
                parts.append(self.spread.step("how much users differ"))
        elif self.method == "dense":
            epsilon = choice_epsilon(budget, self.touched)
            each: dict[str, str | int | float] = {"by": self.hypothesis, "epsilon of each": float(epsilon)}
            each["symbols that a user can change"] = self.touched
            parts.append(MechanismStep("choices", budget.epsilon, budget.delta, each))
        else:
            assert noise is not None
            each = {**noise.step("").details, "larger symbols": f"chosen by {self.hypothesis}"}
            each["symbols that a user can change"] = self.touched
            parts.append(MechanismStep("vector and choices", budget.epsilon, budget.delta, each))
        return tuple(parts)

    def losses(self) -> Losses:
        """What composition needs to know of all steps."""
        found = [each.losses() for each in (self.users, self.noise, self.spread) if isinstance(each, NoisePlan)]
        if self.method == "dense":
            each = Draw(float(choice_epsilon(self.budget, self.touched)) * (1 + 1e-15))
            found.append(Losses(parts=((each, self.touched),)))
        elif self.method == "sparse":
            _, rest = _sparse_parts(self.budget)  # whatever number of choices shares it
            found.append(Losses(rho=rest.rho) if isinstance(rest, Zcdp) else Losses.of_promise(rest.epsilon, 0.0))
        return Losses.together(found)

    def errors(self, p: np.ndarray, users: int, correlation: np.ndarray | float = 0.0) -> np.ndarray:
        """The mean absolute error to expect of each estimate, if the probabilities were `p` in the mean of all users, and two
        samples of a user have that correlation: an estimate from the distributions of sampling and of the noise, and no bound.
        Their sum is that of the l1 error. It is 1 where nothing is known.
        """
        if users < 1:
            return np.ones(len(p))
        m = self.samples
        p = np.clip(p, 0.0, 1.0)
        sampling = np.sqrt(p * (1 - p) / (m * users))
        if self.method in ROBUST:
            assert self.noise is not None
            sampling = sampling * np.sqrt(1 + (m - 1) * correlation)
            return np.minimum(np.hypot(_ROOT_2_PI * sampling, _mean_absolute(self.noise) / (m * users)), 1.0)
        if self.method == "dense":
            return np.minimum(np.hypot(_ROOT_2_PI * sampling, self._choice_errors(p, self.choice(users))), 1.0)
        assert self.noise is not None
        large = p >= tuning.LEAST_LARGE / m
        slope = holders_slope(p, m)
        share = (1 - p) ** m
        by_holders = np.sqrt(share * (1 - share) / users) / slope
        small = np.hypot(_ROOT_2_PI * by_holders, _mean_absolute(self.noise) / (users * slope))
        if large.any():
            chosen = self._choice_errors(p, self.choice(users, int(large.sum())))
            small = np.where(large, np.hypot(_ROOT_2_PI * sampling, chosen), small)
        return np.minimum(small, 1.0)

    def l1_error(self, users: int) -> float:
        """The sum of the errors to expect with this number of users, for symbols that are equally likely; 2 is the most."""
        return min(2.0, float(self.errors(np.full(self.symbols, 1 / self.symbols), users).sum()))

    def _choice_errors(self, p: np.ndarray, choice: BinomialChoice) -> np.ndarray:
        """The distribution of a choice is about exp(-epsilon s |TV| / 2), and TV moves with p by m times the largest
        probability of Bin(m - 1, p). That is about 1 / sqrt(1 + 2 pi m p (1 - p)). The cover adds a quarter of its step in p,
        and what "phs" does not tell apart half of its width."""
        if choice.has_too_few_users:
            return np.ones(len(p))
        slope = self.samples / np.sqrt(1 + 2 * math.pi * (self.samples - 1) * p * (1 - p))
        step = 2.5 * choice.step * np.sqrt(p * (1 - p) / self.samples)
        bias = np.where(np.minimum(p, 1 - p) <= choice.edge, choice.edge / 2, 0.0)
        return np.hypot(2 / (float(choice.epsilon) * choice.users * slope), step / 4) + bias


def plan_distribution(
    budget: Budget,
    symbols: int,
    samples: int,
    relation: Relation,
    users: int | None = None,
    method: str = "auto",
    hypothesis: str = "ks",
    below: int | None = None,
) -> DistributionPlan:
    """All numbers, from public ones alone; "auto" takes the one of ROBUST with the least error to expect for equal p.

    A method that needs the number of users counts them, by a twentieth of epsilon, unless it is given.
    """
    if method == "auto":
        with_delta = [name for name in ROBUST if budget.delta > 0 or name != "gaussian"]
        plans = [plan_distribution(budget, symbols, samples, relation, users, m, hypothesis, below) for m in with_delta]
        return min(plans, key=lambda plan: plan.l1_error(users or tuning.TYPICAL_USERS))
    if method not in METHODS:
        raise ParameterError(f"method must be 'auto' or one of {METHODS}, got {method!r}", "method")
    if hypothesis not in KINDS:
        raise ParameterError(f"hypothesis must be one of {KINDS}, got {hypothesis!r}", "hypothesis")
    bound = promise_of((ExactSamplesStep(samples, below),), Bound(), "")
    number: int | NoisePlan | None = users
    if method in ROBUST:
        spread = None
        if samples > 1:
            weights = _weights(tuning.SPREAD_SHARE)
            part, budget = budget.split(*weights, delta=(0, 1)) if budget.delta else budget.split(*weights)
            spread = spread_noise(part, samples, relation)
        noise: NoisePlan | None = calibrate_public_domain(budget, bound, relation, method)
        return DistributionPlan(method, hypothesis, symbols, samples, below, relation, budget, number, noise, spread)
    if users is None:
        weights = _weights(tuning.USERS_SHARE_OF_DISTRIBUTION)
        counting, budget = budget.split(*weights, delta=(0, 1))
        # One user more or less, or another one: the number of those with enough samples moves by at most 1.
        number = calibrate_public_domain(counting, Bound(l0=1, l1=1, linf=1), Relation.ADD_REMOVE, "laplace")
    noise = _vector_noise(budget, symbols, samples, relation) if method == "sparse" else None
    return DistributionPlan(method, hypothesis, symbols, samples, below, relation, budget, number, noise)


def touched_symbols(symbols: int, samples: int, relation: Relation) -> int:
    """K: in how many symbols' tables two neighbours can differ, if zeros do not follow the number of users."""
    return min(symbols, relation.users * samples)


def choice_epsilon(budget: Budget, choices: int) -> Fraction:
    """The largest epsilon (rounded down) of each of this number of choices that together keep the budget."""
    pure = _part_epsilon(Budget(budget.epsilon), choices)
    if budget.delta == 0:
        return pure
    return max(pure, _part_epsilon(Zcdp(zcdp_rho(budget.epsilon, budget.delta)), choices))


def _part_epsilon(part: Budget | Zcdp, choices: int) -> Fraction:
    """The same by one way of adding up: epsilons, or epsilon^2 / 8 each in zCDP."""
    choices = max(choices, 1)
    if isinstance(part, Budget):
        return rounded_down(part.epsilon_fraction / choices)
    square = 8 * Fraction(repr(part.rho)) / choices
    epsilon = rounded_down(Fraction(math.sqrt(square)))
    while epsilon**2 > square:
        epsilon = rounded_down(epsilon * (1 - Fraction(1, 2**20)))
    return epsilon


def _weights(share: Fraction) -> tuple[int, int]:
    """A share and the rest, as whole numbers."""
    return share.numerator, share.denominator - share.numerator


def _sparse_parts(budget: Budget) -> tuple[Budget | Zcdp, Budget | Zcdp]:
    """What the vector of "sparse" and its choices may cost; they add up to the budget."""
    weights = _weights(tuning.SPARSE_VECTOR_SHARE)
    if budget.delta == 0:
        vector, rest = budget.split(*weights)
        return vector, rest
    first, second = Zcdp(zcdp_rho(budget.epsilon, budget.delta)).split(*weights)
    return first, second


def _vector_noise(budget: Budget, symbols: int, samples: int, relation: Relation) -> NoisePlan:
    """Noise for the numbers of users who have each symbol: two neighbours differ by at most 1 in at most K of them."""
    part, _ = _sparse_parts(budget)
    touched = touched_symbols(symbols, samples, relation)
    distance = Bound(l0=touched, linf=1)
    if isinstance(part, Budget):
        return calibrate_public_domain(part, distance, Relation.ADD_REMOVE, "laplace")
    sigma = math.sqrt(touched / (2 * part.rho)) * (1 + 1e-9)  # beyond the rounding of this line
    grid, scale = whole_sigma(sigma, 0)
    if scale >= _LARGEST_SIGMA:
        raise ParameterError(f"epsilon = {budget.epsilon} needs more noise than can be sampled: raise it")
    return make_plan("gaussian", grid, scale, None, budget, Relation.ADD_REMOVE, distance)


def _mean_absolute(noise: NoisePlan) -> float:
    return noise.stddev * (_ROOT_2_PI if noise.kind == "gaussian" else math.sqrt(0.5))
