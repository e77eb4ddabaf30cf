"""The rounds of a selection, calibrated: how a user's items are kept and weighed, with the noise and threshold for that.

Guarantee: rounds of `rounds_of` together are (epsilon, delta)-differentially private, those of `zcdp_rounds` delta-approximate
rho-zCDP. What a round does is described in `select`. Proofs: docs/proofs/partitions.md, "Rounds of noise".
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
    curve_plan,
    gaussian_scale,
    laplace_scale,
    make_plan,
)
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.checks import check_whole
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.partitions.curve_budget import CurveBudget, CurvePart
from headcount.mechanisms.partitions.selection_curve import MOST_CURVE_ITEMS, LawWeighStep, SelectionCurve
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

#: Rounds of the strategies sips and law, unless others are asked for.
MOST_ROUNDS = 8


# Steps of the grid to the scale of Laplace noise: so fine that the threshold loses nothing by being one of them.
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

    The grid is for the weights of a curve; those of noise have one.
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
        return curve_rounds(CurveBudget(budget, relation), items, rounds)
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

    Guarantee: (epsilon, delta) over the K items of a user, or 2K where a user is replaced, each of which has that part of both.
    For K = 1 no mechanism names more, but for the step to a whole k. Proof: docs/proofs/partitions.md, "Rounds of noise".
    """
    steps = relation.users * items
    bound = weighted_bound(items, "count")
    scale = laplace_scale(budget, items, bound, relation)  # at least 1/epsilon'
    radius = thresholds.truncated_radius(scale, Fraction(repr(budget.delta)) / steps)
    return make_plan("truncated-geometric", 0, scale, radius + 1, budget, relation, bound)


def _weighted_gaussian(budget: Budget, items: int, relation: Relation) -> NoisePlan:
    """Noise for an l2 norm of 1, and the least threshold that the joint accounting of items alone and shared ones allows."""
    bound = weighted_bound(items, "l2")
    grid, scale = gaussian_scale(budget, tuning.GAUSSIAN_NOISE_DELTA, 1, bound, relation)
    sigma = float(scale / 2**grid)
    real = weighted_gaussian_threshold(items, budget.epsilon, budget.delta, sigma, relation)
    return make_plan("gaussian", grid, scale, thresholds.grid_threshold(real, grid), budget, relation, bound)


def _weighted_laplace(budget: Budget, items: int, relation: Relation) -> NoisePlan:
    """Noise for an l1 norm of 1, and the least threshold that hides the items of every user alone."""
    bound = weighted_bound(items, "l1")
    scale = laplace_scale(budget, 1, bound, relation)
    return make_plan(
        "laplace", GRID, scale, weighted_laplace_threshold(items, scale, budget.delta), budget, relation, bound
    )


def _sips(budget: Budget, items: int, rounds: int, relation: Relation) -> tuple[Round, ...]:
    """Rounds of weighted Gaussian noise of precision w_r / sigma^2 that show items of one user alone at a rate of w_r G; sum w
    = 1.

    Guarantee: (epsilon, delta) of all rounds together. Sigma spends half of delta, and G is the largest that keeps to the rest.
    A user's share of items alone must not be set against the distance, as it is within one round: it may change with what was
    named. Proof: docs/proofs/partitions.md, "Rounds of noise".
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
    """The privacy losses of the rounds that `rounds_of` gives; by the proof of sips, the delta of selection is one for all
    rounds.

    Of selection curves no more is stated than what they promise.
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
    """The largest G (to 2^-40 of itself) with which items of one user alone and noise together keep to TOTAL_SHARE * delta."""
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

    Proof: docs/proofs/partitions.md, "Rounds of noise". The plans' epsilon and delta are what this implies for all of them
    together, with a second delta of the same size.
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


def curve_rounds(budget: CurveBudget | CurvePart, items: int, rounds: int) -> tuple[Round, ...]:
    """Rounds of selection by curves, which together cost what `curve_budget` says; with one item of each user there is one.

    (Who has one item that counts frees none by having it named. Users of more, of which one counts, would gain from rounds; but
    then the curve is not the exact one.)
    """
    shares = _shares(1 if items == 1 else rounds, budget.early)
    return tuple(_curve_round(budget, items, budget.curve(items, len(shares) > 1, share)) for share in shares)


def last_round(budget: CurveBudget | CurvePart, items: int, rounds: int) -> Round:
    """The last of these rounds alone, which takes less time to make than all."""
    return _curve_round(budget, items, budget.curve(items, rounds > 1, _shares(rounds, budget.early)[-1]))


def curve_sizes(budget: CurveBudget | CurvePart, items: int, rounds: int) -> float:
    """About how many states the largest curve of these rounds has, for several items."""
    return max(budget.states(items, rounds > 1, share) for share in _shares(rounds, budget.early))


def _curve_round(budget: CurveBudget | CurvePart, items: int, curve: SelectionCurve) -> Round:
    weights: Weights = "count" if items == 1 else "law"
    bound = weighted_bound(items, weights, curve.grid)
    return Round(items, weights, curve_plan(curve.chances, curve.grid, budget.budget, budget.relation, bound))


@functools.lru_cache(maxsize=1024)  # a job plans once to tell what it will do, and once to do it
def _gaussian_round(
    items: int, weights: Weights, grid: int, scale: Fraction, rate: float, budget: Budget, relation: Relation
) -> Round:
    """A round of this noise that shows items of one user alone at this rate at most."""
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
    if weights == "law" and items > MOST_CURVE_ITEMS:
        raise ParameterError(
            f"max_items must be at most {MOST_CURVE_ITEMS} for the strategy law, got {items}", "max_items"
        )
    if weights != "count" and items > MOST_ITEMS:
        raise ParameterError(
            f"max_items must be at most {MOST_ITEMS} where items are weighed, got {items}", "max_items"
        )
    return items
