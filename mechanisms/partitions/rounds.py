"""The rounds of a selection, calibrated: how a user's items are kept and weighed, with the noise and threshold for that.

`rounds_of` gives rounds that together are (epsilon, delta)-differentially private, `zcdp_rounds` rounds that together are
delta-approximate rho-zCDP. What a round does is told in `partitions`; the proofs stand here, at the calibrations. They use the
notation and formula (1) of `thresholds`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from fractions import Fraction

import numpy as np

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting import thresholds
from headcount.mechanisms.accounting.budget import Budget, Zcdp, check_budget, check_delta_for_names
from headcount.mechanisms.accounting.gaussian import whole_sigma
from headcount.mechanisms.accounting.losses import Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.bounding.steps import (
    LimitItemsStep,
    LimitPerItemStep,
    RandClipStep,
    Step,
    check_bound,
    promise_of,
)
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import (
    calibrate_unknown_domain,
    gaussian_scale,
    laplace_scale,
    law_plan,
    make_plan,
)
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.checks import check_whole
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.partitions.law import MOST_LAW_ITEMS, Law, LawWeighStep
from headcount.mechanisms.partitions.law_budget import LawBudget, LawPart
from headcount.mechanisms.partitions.weights import (
    GRID,
    MOST_ITEMS,
    WeighStep,
    Weights,
    gaussian_hiding_threshold,
    weighted_gaussian_threshold,
    weighted_laplace_threshold,
)

#: The strategies that are given, with the weights of their items.
STRATEGIES: dict[str, Weights] = {
    "laplace": "count",
    "gaussian": "count",
    "truncated-geometric": "count",
    "weighted-gaussian": "l2",
    "weighted-laplace": "l1",
    "sips": "l2",
    "law": "law",
}
ZCDP_STRATEGIES = ("gaussian", "weighted-gaussian", "sips")

#: Rounds of sips and of law unless told otherwise.
MOST_ROUNDS = 8


# Laplace noise is drawn in so many steps of the grid to its scale: what the threshold loses by being one of them is nothing.
_LAPLACE_STEPS = 2**10


@dataclasses.dataclass(frozen=True)
class Round:
    """One round of selection: how a user's items are kept and weighed, and the noise and threshold for that."""

    max_items: int
    weights: Weights
    plan: NoisePlan

    @property
    def steps(self) -> tuple[Step, ...]:
        """What is done to each user's items, those named before already taken away."""
        return round_steps(self.max_items, self.weights, self.plan.bound.grid)


def round_steps(max_items: int, weights: Weights, grid: int = GRID) -> tuple[Step, ...]:
    """Each distinct item once, a sample of them, and their weights; or for "events" a sample of a user's events.

    The grid is for the weights of a law; those of noise have one.
    """
    if weights == "events":
        return (RandClipStep(max_items),)
    kept = (LimitPerItemStep(1), LimitItemsStep(max_items))
    if weights == "law":
        return (*kept, LawWeighStep(grid))
    return kept if weights == "count" else (*kept, WeighStep(weights))


def weighted_bound(max_items: int, weights: Weights, grid: int = GRID) -> Bound:
    """What one user adds to a round at most."""
    return promise_of(round_steps(max_items, weights, grid), Bound(), "")


def rounds_of(budget: Budget, strategy: str, max_items: int, rounds: int, relation: Relation) -> tuple[Round, ...]:
    """The rounds of a strategy, which together are (epsilon, delta)-differentially private; `rounds` is for sips and law."""
    if strategy not in STRATEGIES:
        raise ParameterError(f"strategy must be one of {', '.join(STRATEGIES)} or auto, got {strategy!r}", "strategy")
    weights = STRATEGIES[strategy]
    items = _check_items(max_items, weights)
    check_budget(budget)
    check_delta_for_names(budget.delta)
    if strategy == "sips":
        return _sips(budget, items, rounds, relation)
    if strategy == "law":
        return law_rounds(LawBudget(budget, relation), items, rounds)
    if rounds != tuning.ROUNDS:
        raise ParameterError(f"rounds = {rounds!r} is for the strategies sips and law, got {strategy!r}: leave one out")
    make = {
        "laplace": lambda: _laplace(budget, items, relation),
        "gaussian": lambda: calibrate_unknown_domain(budget, weighted_bound(items, weights), relation, "gaussian"),
        "truncated-geometric": lambda: _truncated_geometric(budget, items, relation),
        "weighted-gaussian": lambda: _weighted_gaussian(budget, items, relation),
        "weighted-laplace": lambda: _weighted_laplace(budget, items, relation),
    }[strategy]
    return (Round(items, weights, make()),)


def one_step_round(budget: Budget, relation: Relation, weights: Weights) -> Round:
    """One round of Laplace noise with one item of each user, or with one event: its noisy sums may be released as well."""
    return Round(1, weights, _laplace(budget, 1, relation, weights))


def _laplace(budget: Budget, items: int, relation: Relation, weights: Weights = "count") -> NoisePlan:
    """Noise and threshold of the histogram of an unknown domain, on a grid so fine that the threshold need not be a whole
    number: as only names are released, nothing has to be."""
    bound = weighted_bound(items, weights)
    grid = 0
    while (scale := laplace_scale(budget, items << grid, bound, relation)) < _LAPLACE_STEPS:
        grid += 1
    tau = thresholds.laplace_threshold(thresholds.Spread.of_items(items, 1 << grid), scale, budget.delta)
    return make_plan("laplace", grid, scale, tau, budget, relation, bound)


def _truncated_geometric(budget: Budget, items: int, relation: Relation) -> NoisePlan:
    """Discrete Laplace noise X of scale 1/epsilon', given |X| <= k; n users name an item iff n + X >= k + 1.

    Proof, first for one item and one user more or less, with (epsilon', delta'). The laws of n + X and n + 1 + X have the ratio
    e^(+-epsilon') wherever both have mass, and each has the mass P[X = k] <= delta' elsewhere. Whether k + 1 is reached is a
    function of that. An item of no user is never named, so that only items of positive count need noise. Two neighbours differ
    by one in at most K items, or 2K where a user is replaced: that many such steps, each of the K-th (or 2K-th) part of the
    budget. For K = 1 no mechanism names more, but for the step to a whole k.
    """
    steps = relation.users * items
    bound = weighted_bound(items, "count")
    scale = laplace_scale(budget, items, bound, relation)  # at least 1/epsilon'
    radius = thresholds.truncated_radius(scale, Fraction(repr(budget.delta)) / steps)
    return make_plan("truncated-geometric", 0, scale, radius + 1, budget, relation, bound)


def _weighted_gaussian(budget: Budget, items: int, relation: Relation) -> NoisePlan:
    """Noise for an l2 norm of 1, and the least threshold that the joint accounting of own and shared items allows."""
    bound = weighted_bound(items, "l2")
    grid, scale = gaussian_scale(budget, tuning.GAUSSIAN_NOISE_DELTA, 1, bound, relation)
    sigma = float(scale / 2**grid)
    real = weighted_gaussian_threshold(items, budget.epsilon, budget.delta, sigma, relation)
    return make_plan("gaussian", grid, scale, thresholds.grid_threshold(real, grid), budget, relation, bound)


def _weighted_laplace(budget: Budget, items: int, relation: Relation) -> NoisePlan:
    """Noise for an l1 norm of 1, and the least threshold that hides every user's own items."""
    bound = weighted_bound(items, "l1")
    scale = laplace_scale(budget, 1, bound, relation)
    return make_plan(
        "laplace", GRID, scale, weighted_laplace_threshold(items, scale, budget.delta), budget, relation, bound
    )


def _sips(budget: Budget, items: int, rounds: int, relation: Relation) -> tuple[Round, ...]:
    """Rounds of weighted Gaussian noise of precision w_r / sigma^2, whose own items show at a rate of w_r G at most; sum w = 1.

    Proof. What a round does depends on the names of the rounds before. Let M* be the mechanism in which no item of x's own is
    ever named. Round by round M* is Gaussian noise, at a squared distance of at most (1 without, 2 with a replaced user) times
    w_r / sigma^2 whatever came before. Hence it is as a whole one Gaussian at the sum of these (adaptive composition). On a
    course of all rounds that names no own item, the law of M is that of M* times the chance that none is named, which is at
    least Q = e^-G on every course. So M keeps out of a set S and of own names with probability Q (1 - M*[S]) or more, and
    reaches any set S without own names with Q M*[S] or more. This is the first line of (1), with Qx, Qy = Q (or 1 for an absent
    user) and P, P' at full distance. The sigma below spends half of delta, and G is the largest that keeps to the rest.

    (A user's share of own items must not be accounted against the distance here, as it is within a round. It may change from
    round to round with what was named, and a sum over rounds of what is worst in each can exceed the worst fixed share.)
    """
    shares = _shares(rounds)
    bound = weighted_bound(items, "l2")
    grids_and_scales = [gaussian_scale(budget, tuning.SIPS_NOISE_DELTA, 1 / share, bound, relation) for share in shares]
    precision = sum((2.0**grid / float(scale)) ** 2 for grid, scale in grids_and_scales)
    rate = _sips_rate(budget, 1 / math.sqrt(precision), relation)
    return tuple(
        _gaussian_round(items, "l2", grid, scale, rate * share, budget, relation)
        for (grid, scale), share in zip(grids_and_scales, shares, strict=True)
    )


def rounds_losses(strategy: str, budget: Budget, rounds: tuple[Round, ...]) -> Losses:
    """What composition needs to know of the rounds that `rounds_of` gives: by the proof of sips, hiding is that of all.

    Of laws no more is said than what they promise.
    """
    if strategy == "law":
        return Losses.of_promise(budget.epsilon, budget.delta)
    if strategy != "sips":
        return Losses.together(each.plan.losses() for each in rounds)
    mu = Losses.together(dataclasses.replace(each.plan.losses(), hiding=0.0) for each in rounds).mu
    relation = rounds[0].plan.relation
    rate = _sips_rate(budget, math.sqrt(relation.users) / mu, relation)
    return Losses(mu=mu, hiding=-math.expm1(-rate) * (1 + 1e-9))  # beyond the rounding of mu


def _sips_rate(budget: Budget, sigma: float, relation: Relation) -> float:
    """The largest G (to 2^-40 of itself) with which own items and noise together keep to TOTAL_SHARE * delta."""
    target = thresholds.TOTAL_SHARE * budget.delta

    def holds(rate: float) -> bool:
        own = np.array([rate])
        return thresholds.joint_delta(budget.epsilon, own, np.array([1.0]), sigma, relation) <= target

    low, high = 0.0, -math.log1p(-budget.delta)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def zcdp_rounds(
    rho: float,
    delta: float,
    max_items: int,
    relation: Relation,
    selection: str = "gaussian",
    rounds: int = tuning.ROUNDS,
) -> tuple[Round, ...]:
    """Rounds that together are delta-approximate rho-zCDP: all of delta goes to the thresholds. `rounds` is for sips alone.

    Proof. Let D^2 be the squared l2 distance of neighbours: K for counts, 1 for weights, twice that where a user is replaced.
    Noise of sigma_r^2 = D^2 / (2 rho w_r) is rho w_r-zCDP, exactly so on a grid, and these add up over adaptive rounds. With M*
    as in the proof of sips: M >= (1 - delta) M* on courses without own names, so that M is M* but for a part of probability
    delta.

    The plans' epsilon and delta are what this implies for all of them together, with a second delta of the same size.
    """
    if selection not in ZCDP_STRATEGIES:
        raise ParameterError(f"selection must be one of {', '.join(ZCDP_STRATEGIES)}, got {selection!r}", "selection")
    zcdp = Zcdp(rho, delta)
    check_delta_for_names(zcdp.delta)
    weights = STRATEGIES[selection]
    items = _check_items(max_items, weights)
    budget = zcdp.to_budget(zcdp.delta)
    shares = _shares(rounds) if selection == "sips" else (1.0,)
    distance = relation.users * (items if weights == "count" else 1)
    rate = -math.log1p(-zcdp.delta) * (1 - 1e-9)  # beyond the rounding of the formulas
    made = []
    for share in shares:
        sigma = math.sqrt(distance / (2 * zcdp.rho * share)) * (1 + 1e-9)
        grid, scale = whole_sigma(sigma, weighted_bound(items, weights).grid)
        if scale >= 2**40:
            raise ParameterError(
                f"rho = {rho} with {items} items per user needs more noise than can be sampled: raise rho"
            )
        made.append(_gaussian_round(items, weights, grid, scale, rate * share, budget, relation))
    return tuple(made)


def law_rounds(budget: LawBudget | LawPart, items: int, rounds: int) -> tuple[Round, ...]:
    """Rounds of names by law, which together cost what `law_budget` says; with one item of each user there is one round.

    (Who has one item that counts frees none by having it named. Users of more, of which one counts, would gain from rounds; but
    then the law is not the exact one.)
    """
    shares = _shares(rounds, budget.early)
    if items == 1:
        shares = shares[:1]
    return tuple(_law_round(budget, items, budget.law(items, len(shares) > 1, share)) for share in shares)


def last_round(budget: LawBudget | LawPart, items: int, rounds: int) -> Round:
    """The last of these rounds alone, which takes less time to make than all."""
    return _law_round(budget, items, budget.law(items, rounds > 1, _shares(rounds, budget.early)[-1]))


def law_sizes(budget: LawBudget | LawPart, items: int, rounds: int) -> float:
    """About how many states the largest law of these rounds has, for several items."""
    return max(budget.states(items, rounds > 1, share) for share in _shares(rounds, budget.early))


def _law_round(budget: LawBudget | LawPart, items: int, law: Law) -> Round:
    weights: Weights = "count" if items == 1 else "law"
    bound = weighted_bound(items, weights, law.grid)
    return Round(items, weights, law_plan(law.chances, law.grid, budget.budget, budget.relation, bound))


@functools.lru_cache(maxsize=1024)  # a job plans once to tell what it will do, and once to do it
def _gaussian_round(
    items: int, weights: Weights, grid: int, scale: Fraction, rate: float, budget: Budget, relation: Relation
) -> Round:
    """A round of this noise whose own items show at this rate at most."""
    real = gaussian_hiding_threshold(items, weights, float(scale / 2**grid), rate)
    threshold = thresholds.grid_threshold(real, grid)
    return Round(
        items, weights, make_plan("gaussian", grid, scale, threshold, budget, relation, weighted_bound(items, weights))
    )


def _shares(rounds: int, before: float = tuning.EARLY_ROUNDS_SHARE_OF_PART) -> tuple[float, ...]:
    """Each round's share of precision and delta, which sum up to 1 at most: 1 : 3 : 36 for three of sips.

    Those before the last have so much together, and each of them three times the share of the one before. First rounds take
    away what is named easily, and need little for it; every part that they have raises the threshold of the last.
    """
    first = check_rounds(rounds) - 1
    whole = sum(3**r for r in range(first))
    early = [before * 3**r / whole for r in range(first)]
    last = 1 - before if first else 1.0
    return tuple(math.nextafter(share, 0) for share in (*early, last))


def check_rounds(rounds: object) -> int:
    """A number of rounds, or an error that names it."""
    return check_whole("rounds", rounds, 1, MOST_ROUNDS)


def _check_items(max_items: object, weights: Weights) -> int:
    items = check_bound("max_items", max_items)
    if weights == "law" and items > MOST_LAW_ITEMS:
        raise ParameterError(f"max_items must be at most {MOST_LAW_ITEMS} for the law, got {items}", "max_items")
    if weights != "count" and items > MOST_ITEMS:
        raise ParameterError(
            f"max_items must be at most {MOST_ITEMS} where items are weighed, got {items}", "max_items"
        )
    return items
