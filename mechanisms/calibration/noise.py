"""How much noise, and which threshold: from a budget and a bound to the integers that the sampler works with.

Calibration runs once, in the driver. Its result holds for every data set whose users keep within the bound.
Proof: docs/proofs/histogram.md.
"""

from __future__ import annotations

import decimal
import functools
import math
from fractions import Fraction
from typing import Literal

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting import gaussian, thresholds
from headcount.mechanisms.accounting.budget import Budget, check_budget
from headcount.mechanisms.accounting.losses import Laplace, Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.accounting.thresholds import Spread
from headcount.mechanisms.calibration.bound import Bound, most_l1, most_l2_squared, most_on_one
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.calibration.shared_noise import SharedNoise, best_split
from headcount.mechanisms.checks import check_one_of, is_whole
from headcount.mechanisms.errors import ParameterError

#: What a caller may ask for; "auto" leaves it to the domain and the budget.
NOISES = ("auto", "laplace", "gaussian")

# Numerators and denominators below this keep the sampler's products, and noisy sums, within its integers.
_LARGEST_SCALE = 2**40


def calibrate_unknown_domain(budget: Budget, bound: Bound, relation: Relation | str, noise: str = "auto") -> NoisePlan:
    """Noise and threshold for a histogram whose items come from the data.

    Private for noise on the items with a positive bounded sum, and only if every contribution to an item is
    an integer of at least 1. `bound` must limit l1, or l0 and linf.
    """
    relation = Relation.parse(relation)
    check_budget(budget)
    spread = _spread(bound)
    if not 0 < budget.delta < 0.5:
        raise ParameterError(
            f"a histogram of an unknown domain needs a delta above 0 and below 1/2, got {budget.delta}: "
            "which items there are cannot be hidden with certainty; with a given domain delta may be 0"
        )
    if noise == "auto":
        return choose_noise(budget, bound, relation)
    if noise == "laplace":
        scale = laplace_scale(budget, spread.l1, bound, relation)
        tau = thresholds.laplace_threshold(spread, scale, budget.delta)
        return make_plan("laplace", bound.grid, scale, tau, budget, relation, bound)
    if noise == "gaussian":
        share = tuning.GAUSSIAN_NOISE_DELTA
        grid, scale = gaussian_scale(budget, share, spread.shared_l2_squared(0), bound, relation)
        sigma = float(scale / 2**grid)
        real = thresholds.gaussian_threshold(spread, budget.epsilon, budget.delta, sigma, relation)
        return make_plan("gaussian", grid, scale, thresholds.grid_threshold(real, grid), budget, relation, bound)
    raise ParameterError(f"noise must be 'auto', 'laplace' or 'gaussian', got {noise!r}", "noise")


def choose_noise(budget: Budget, bound: Bound, relation: Relation | str) -> NoisePlan:
    """Of the Laplace and the Gaussian plan for an unknown domain, the one with the lower threshold in counts,
    which releases more items; if these are equal, the one with the lower standard deviation."""
    plans = [calibrate_unknown_domain(budget, bound, relation, noise) for noise in ("laplace", "gaussian")]
    return min(plans, key=lambda plan: (plan.threshold_in_counts, plan.stddev))


def calibrate_public_domain(
    budget: Budget, bound: Bound, relation: Relation | str, noise: str = "laplace", items: int | None = None
) -> NoisePlan:
    """Noise for a histogram over a domain that is public, with every item of it released.

    Laplace noise needs `bound` to limit l1 (or l0 and linf) and makes delta 0; Gaussian noise needs a limit
    on l2 (which a limit on l1, or on l0 and linf, implies) and a delta above 0. `items` is the size of the domain: with it,
    Gaussian noise may share a draw (`shared_noise`), replacing a user moves one item by its bound alone (`NoisePlan`), and the
    bound must be of what a user has, which is not below 0, and never of a difference. "auto" takes what has less noise.
    """
    relation = Relation.parse(relation)
    check_budget(budget)
    _check(bound)
    if noise == "auto":
        kinds = ("laplace", "gaussian") if budget.delta > 0 else ("laplace",)
        plans = [calibrate_public_domain(budget, bound, relation, kind, items) for kind in kinds]
        return min(plans, key=lambda plan: plan.stddev)
    if noise == "laplace":
        l1 = most_l1(bound)
        if l1 is None:
            raise ParameterError(
                f"Laplace noise needs a limit on a user's total (l1), but a bound of {bound.describe()} has none: bound it "
                "with RandClip or ClipNorm(p=1), or take Gaussian noise"
            )
        scale, pure = laplace_scale(budget, l1, bound, relation, items == 1), Budget(budget.epsilon)
        return make_plan("laplace", bound.grid, scale, None, pure, relation, bound, one_item=items == 1)
    if noise == "gaussian":
        if budget.delta == 0:
            raise ParameterError("Gaussian noise needs a delta above 0, got 0: give one, or take Laplace")
        squared = most_l2_squared(bound)
        if squared is None:
            raise ParameterError(
                f"Gaussian noise needs a limit on a user's l2 norm, but a bound of {bound.describe()} has none: bound it "
                "with ClipNorm(p=2) or RandClip"
            )
        deviation = gaussian.gaussian_sigma(budget.epsilon, thresholds.TOTAL_SHARE * budget.delta)
        return gaussian_plan(deviation, budget, bound, relation, items)
    raise ParameterError(f"noise for a public domain must be 'auto', 'laplace' or 'gaussian', got {noise!r}")


def gaussian_plan(
    deviation: float, budget: Budget, bound: Bound, relation: Relation, items: int | None = None
) -> NoisePlan:
    """Gaussian noise without a threshold, of this standard deviation at an l2 distance of 1, which costs the budget.

    Of a public domain of `items` items, one draw is shared by all where that makes the noise of each smaller.
    """
    squared = most_l2_squared(bound)
    assert squared is not None
    plain = deviation * math.sqrt(relation.apart(items == 1) * squared)
    most = most_on_one(bound)
    if items is not None and relation is Relation.ADD_REMOVE:
        split = best_split(items, squared / most**2)
        if split is not None and deviation * most * split.stddev <= (1 - tuning.LEAST_GAIN_OF_SHARED_NOISE) * plain:
            grid, scale, shared = split.on_grid(deviation, squared, most, items, bound.grid)
            _check_scale(scale, budget, bound)
            return make_plan("gaussian", grid, scale, None, budget, relation, bound, shared)
    grid, scale = gaussian.whole_sigma(plain, bound.grid)
    _check_scale(scale, budget, bound)
    return make_plan("gaussian", grid, scale, None, budget, relation, bound, one_item=items == 1)


def public_noise(noise: str) -> str:
    """The noise that counts on a public domain are scaled down for: "auto" takes an l1 norm, which bounds an l2 norm, too."""
    check_one_of("noise", noise, NOISES)
    return "laplace" if noise == "auto" else noise


def make_plan(
    kind: Literal["laplace", "gaussian", "truncated-geometric"],
    grid: int,
    scale: Fraction,
    threshold: int | None,
    budget: Budget,
    relation: Relation,
    bound: Bound,
    shared: SharedNoise | None = None,
    one_item: bool = False,
) -> NoisePlan:
    """The plan of this noise and threshold, unless they are too large to compute with."""
    if threshold is not None and threshold >= 2**62:
        raise ParameterError(
            f"epsilon = {budget.epsilon} with a bound of {bound.describe()} gives a threshold beyond 64 bits: raise "
            "epsilon or lower the bound"
        )
    if kind == "truncated-geometric" and threshold is not None:
        steps = _truncated_stddev(scale, threshold - 1)
    else:
        steps = _laplace_stddev(scale) if kind == "laplace" else float(scale)
    if shared is not None:
        steps = math.hypot(steps, shared.scale)
    stddev = steps / 2**grid
    alone = one_item and relation is Relation.REPLACE  # else it makes no difference
    return NoisePlan(
        kind, grid, scale, threshold, stddev, budget.epsilon, budget.delta, relation, bound, b"", shared, alone
    )


def curve_chance(law: bytes, state: int) -> float:
    """The chance of a sum, by the selection curve of a plan."""
    return int.from_bytes(law[16 * state : 16 * state + 16], "little") / 2.0**128


@functools.lru_cache(maxsize=256)  # a study makes the same plan for each of its releases
def curve_plan(law: bytes, grid: int, budget: Budget, relation: Relation, bound: Bound) -> NoisePlan:
    """The plan that names by a selection curve."""
    chances = [curve_chance(law, state) for state in range(len(law) // 16)]
    median = next(state for state, chance in enumerate(chances) if chance >= 0.5)
    before, mean, squares = 0.0, 0.0, 0.0
    for state, chance in enumerate(chances):
        mean += (chance - before) * (state - median)
        squares += (chance - before) * (state - median) ** 2
        before = chance
    stddev = math.sqrt(max(0.0, squares - mean**2)) / 2**grid
    return NoisePlan("law", grid, Fraction(1), median, stddev, budget.epsilon, budget.delta, relation, bound, law)


def laplace_scale(budget: Budget, l1: int, bound: Bound, relation: Relation, one_item: bool = False) -> Fraction:
    """At least (l1 distance of neighbours) / epsilon in grid units; exact if that is a small fraction."""
    exact = relation.apart(one_item) * l1 * 2**bound.grid / budget.epsilon_fraction
    if max(exact.numerator, exact.denominator) < _LARGEST_SCALE:
        return exact
    if exact >= _LARGEST_SCALE - 1:
        raise _too_much_noise(budget, bound)
    denominator = _LARGEST_SCALE // 2
    while (numerator := math.ceil(exact * denominator)) >= _LARGEST_SCALE:
        denominator //= 2
    return Fraction(numerator, denominator)


def gaussian_scale(
    budget: Budget, share: float, l2_squared: float, bound: Bound, relation: Relation
) -> tuple[int, Fraction]:
    """The grid and, in its units, a whole sigma that keeps (epsilon, share * delta) if continuous."""
    distance = math.sqrt(relation.users * l2_squared)
    sigma = distance * gaussian.gaussian_sigma(budget.epsilon, share * budget.delta)
    grid, scale = gaussian.whole_sigma(sigma, bound.grid)
    _check_scale(scale, budget, bound)
    return grid, scale


def any_bound_losses(budget: Budget, users: int, kind: str, public: int) -> Losses:
    """Losses that dominate those of noise of this kind for whatever bound is chosen, and `users` users by `Relation.apart`,
    without a threshold if the domain is public: then `public` is the least number of steps that a bound has on its grid; else
    there is a threshold, and it is 0."""
    hiding = 0.0 if public else budget.delta
    if kind == "laplace":
        part = Laplace.in_more_steps(budget.epsilon, users * public) if public else Laplace(budget.epsilon, users)
        return Losses.of(part, hiding=hiding)
    share = thresholds.TOTAL_SHARE if public else tuning.GAUSSIAN_NOISE_DELTA
    mu = (1 + 1e-12) / gaussian.gaussian_sigma(budget.epsilon, share * budget.delta)
    return Losses(mu=mu, hiding=thresholds.TOTAL_SHARE * hiding)


def _laplace_stddev(scale: Fraction) -> float:
    """sqrt(2q) / (1-q) with q = exp(-1/scale), in a form that keeps its digits for large scales."""
    half = 1 / (2 * float(scale))
    return 1 / (math.sqrt(2) * math.sinh(half)) if half < 700 else 0.0


def _truncated_stddev(scale: Fraction, most: int) -> float:
    """The standard deviation of discrete Laplace noise that is at most `most` in size.

    Sums of q^x and x^2 q^x for x = 1 .. most in closed form, with more digits than their cancellation takes.
    """
    digits = 40 + 4 * len(str(math.ceil(scale) + most)) + len(str(scale.denominator))
    with decimal.localcontext(decimal.Context(prec=digits)):
        q = (-decimal.Decimal(scale.denominator) / scale.numerator).exp()
        last, rest = q**most, 1 - q
        sizes = q * (1 - last) / rest
        tail = last * ((most + 1) ** 2 - (2 * most * (most + 1) - 1) * q + most**2 * q**2)
        squares = q * (1 + q - tail) / rest**3
        return float((2 * squares / (1 + 2 * sizes)).sqrt())


def _spread(bound: Bound) -> Spread:
    """What one user can do to the histogram of an unknown domain."""
    _check(bound)
    if bound.scaled:
        raise ParameterError(
            f"an unknown domain takes whole counts only, but a bound of {bound.describe()} is one of counts that were "
            "scaled, as ClipNorm leaves them: a user could have any number of own items, each just "
            "above 0 and each with a chance to be shown (116 times the claimed delta at a bound of 10); use "
            "RandClip, or LimitItems with LimitPerItem"
        )
    if bound.l0 is not None and bound.linf is not None:
        if bound.l1 is None or bound.l0 * bound.linf <= bound.l1:
            return Spread.of_items(bound.l0, bound.linf)
    if bound.l1 is None:
        raise ParameterError(
            f"an unknown domain needs a limit on a user's total (l1), but a bound of {bound.describe()} has none: use "
            "RandClip, or LimitItems with LimitPerItem"
        )
    return Spread.of_mass(bound.l1, bound.l1 if bound.linf is None else bound.linf)


def _check(bound: Bound) -> None:
    if not isinstance(bound, Bound):
        raise ParameterError(f"the bound must be a Bound, such as RandClip(10).bound, got {bound!r}")
    for name in ("l0", "l1", "l2", "linf"):
        limit = getattr(bound, name)
        if limit is not None and not is_whole(limit, 1, _LARGEST_SCALE):
            raise ParameterError(f"the bound's {name} must be a whole number from 1 to 2^40, got {limit!r}")
    if not is_whole(bound.grid, 0, 40):
        raise ParameterError(f"the bound's grid must be a whole number from 0 to 40, got {bound.grid!r}")


def _check_scale(scale: Fraction, budget: Budget, bound: Bound) -> None:
    if scale >= _LARGEST_SCALE:
        raise _too_much_noise(budget, bound)


def _too_much_noise(budget: Budget, bound: Bound) -> ParameterError:
    return ParameterError(
        f"epsilon = {budget.epsilon} with delta = {budget.delta} and a bound of {bound.describe()} needs more noise than "
        "can be sampled: raise epsilon or lower the bound"
    )
