"""Sample and threshold: the sampling rate and the threshold for a budget, by the exact curve of `divergence`.

Calibration runs once, in the driver; workers get a rational rate and an integer threshold. Rates are rounded down, and
whatever a search proposes, a pair is returned only if it was itself seen to keep the budget.
Proof: docs/proofs/sampled.md.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, check_budget
from headcount.mechanisms.accounting.losses import Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.bounding.steps import check_bound
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import calibrate_unknown_domain
from headcount.mechanisms.checks import check_one_of
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.sampled.divergence import (
    STEPS,
    added_delta,
    chance_shown,
    removed_delta,
    sampled_curve,
    sampled_delta,
)

#: Sampling rates are multiples of 1 / RATE_GRID.
RATE_GRID = 2**32

Objective = Literal["w95", "w50"]
_FOUND = {"w95": 0.95, "w50": 0.5}

_MOST_THRESHOLD = 1 << 14


@dataclasses.dataclass(frozen=True)
class SamplePlan:
    """A sampling rate and a threshold that keep (epsilon, delta) for a user in at most `compositions` items.

    (Or levels, or rounds: whatever is sampled with coins of its own, and shown if sampled `threshold` times or more.)
    """

    rate: Fraction
    threshold: int
    epsilon: float
    delta: float
    relation: Relation
    compositions: int = 1

    def count_found(self, chance: float) -> int:
        """The least number of users with which an item is shown with at least this probability."""
        if not 0 < chance < 1:
            raise ParameterError(f"the chance must be between 0 and 1, got {chance!r}")
        return int(_count_found(float(self.rate), self.threshold, chance))

    @property
    def w50(self) -> int:
        """The number of users from which on an item is shown more often than not."""
        return self.count_found(_FOUND["w50"])

    @property
    def w95(self) -> int:
        """The number of users from which on an item is shown with probability 0.95."""
        return self.count_found(_FOUND["w95"])

    def stddev(self, estimate: Any) -> np.ndarray:
        """The standard deviation of an estimate (the sampled number over the rate), told from the estimate itself."""
        return np.sqrt(np.asarray(estimate, float) * float((1 - self.rate) / self.rate))

    def losses(self) -> Losses:
        """What composition needs to know: the curve of one item, level or round, and how many there are."""
        curve = sampled_curve(float(self.rate), self.threshold, self.epsilon, self.relation)
        return Losses(parts=((curve, self.compositions),))

    def to_json(self) -> dict[str, str | int]:
        """What defines the mechanism, exactly and in one form only."""
        return {
            "rate": f"{self.rate.numerator}/{self.rate.denominator}",
            "threshold": self.threshold,
            "epsilon": repr(float(self.epsilon)),
            "delta": repr(float(self.delta)),
            "relation": self.relation.value,
            "compositions": self.compositions,
        }


def _count_found(rate: Any, threshold: Any, chance: float) -> np.ndarray:
    """Elementwise the least number of users of whom this number is sampled with at least this probability."""
    rate, threshold = np.broadcast_arrays(np.asarray(rate, float), np.asarray(threshold, np.int64))
    high = np.ceil(2 * threshold / rate).astype(np.int64)
    return least_count(threshold - 1, high, lambda users: chance_shown(users, threshold, rate) >= chance)


def least_count(low: np.ndarray, high: np.ndarray, found: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Elementwise the least number above `low` that is `found`, as are all above it; `high` is where to look first."""
    while (short := ~found(high)).any():
        low, high = np.where(short, high, low), np.where(short, 2 * high, high)
    while (high - low > 1).any():
        middle = (low + high) // 2
        enough = found(middle)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


@functools.lru_cache(maxsize=64)
def calibrate_sample(
    budget: Budget,
    objective: Objective = "w95",
    relation: Relation = Relation.ADD_REMOVE,
    compositions: int = 1,
) -> SamplePlan:
    """The rate and the threshold that find the rarest items: least users at which one is shown with probability 0.95
    ("w95") or 0.5 ("w50").

    For one item, adding or removing, milliseconds (after scipy's import); else a second or two, once per process.
    """
    (epsilon, delta), relation = _checked(budget), Relation.parse(relation)
    check_one_of("objective", objective, _FOUND)
    compositions = check_bound("compositions", compositions)
    chance = _FOUND[objective]
    if relation is Relation.ADD_REMOVE and compositions == 1:
        rate, threshold = _search_blocks(epsilon, delta, chance)
    else:
        start = _search_blocks(epsilon, delta, chance)[1]
        rate, threshold = _search_walk(epsilon, delta, chance, relation, compositions, start)
    return SamplePlan(rate, threshold, epsilon, delta, relation, compositions)


def least_threshold(
    budget: Budget, rate: Fraction, relation: Relation = Relation.ADD_REMOVE, compositions: int = 1
) -> int:
    """The least threshold that keeps the budget at a given rate, such as that of a cohort of limited size."""
    (epsilon, delta), relation = _checked(budget), Relation.parse(relation)
    compositions = check_bound("compositions", compositions)
    if not isinstance(rate, Fraction) or not Fraction(1, RATE_GRID) <= rate < 1:
        raise ParameterError(f"the rate must be a Fraction from 2^-32 on and below 1, got {rate!r}")

    def holds(threshold: int) -> bool:
        return sampled_delta(epsilon, rate, threshold, relation, compositions, delta) <= delta

    low, high = 0, 1
    while not holds(high):
        low, high = high, 2 * high
        if high > _MOST_THRESHOLD:
            raise ParameterError(
                f"no threshold up to {_MOST_THRESHOLD} keeps epsilon = {epsilon}, delta = {delta} at a rate of {rate}; "
                "give a lower rate"
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _checked(budget: Budget) -> tuple[float, float]:
    check_budget(budget)
    if not 1e-200 <= budget.delta < 0.5:
        raise ParameterError(
            f"sampling with a threshold needs a delta of at least 1e-200 and below 1/2, got {budget.delta}: that one "
            "user's data is there cannot be hidden with certainty"
        )
    return budget.epsilon, budget.delta


def _limit(epsilon: float) -> int:
    """The largest rate that is looked at, in units of the grid: above 1 - e^-epsilon only larger counts are found."""
    return min(RATE_GRID - 1, max(1, math.floor(-math.expm1(-epsilon) * RATE_GRID * (1 - 1e-12))))


def _largest_rates(epsilon: float, delta: float, thresholds: np.ndarray) -> np.ndarray:
    """For each threshold the largest rate, in units of the grid, that keeps (epsilon, delta) for one item; 0: none."""
    good, bad = np.zeros(len(thresholds), dtype=np.int64), np.full(len(thresholds), _limit(epsilon) + 1)
    while (bad - good > 1).any():
        middle = (good + bad) // 2
        rates = np.maximum(middle, 1) / RATE_GRID  # where nothing is left to halve, middle may be 0
        deltas = np.maximum(added_delta(epsilon, rates, thresholds), removed_delta(epsilon, rates, thresholds))
        holds = (deltas <= delta) | (middle == 0)
        good, bad = np.where(holds, middle, good), np.where(holds, bad, middle)
    return good


def _search_blocks(epsilon: float, delta: float, chance: float) -> tuple[Fraction, int]:
    """The best rate and threshold for one item, adding or removing: all thresholds, until they get worse."""
    best, rate, threshold, first, size = math.inf, Fraction(0), 0, 2, 64
    while first < _MOST_THRESHOLD:
        thresholds = np.arange(first, first + size)
        rates = _largest_rates(epsilon, delta, thresholds)
        usable = rates > 0
        found = np.full(size, math.inf)
        found[usable] = _count_found(rates[usable] / RATE_GRID, thresholds[usable], chance)
        place = int(found.argmin())
        if found[place] < best:
            best, rate, threshold = found[place], Fraction(int(rates[place]), RATE_GRID), int(thresholds[place])
        if found[-1] > tuning.WORSE_THRESHOLD * best:
            return rate, threshold
        first, size = first + size, 2 * size
    raise ParameterError(
        f"no threshold up to {_MOST_THRESHOLD} is the best for epsilon = {epsilon}, delta = {delta}: raise one of them"
    )


def _search_walk(
    epsilon: float, delta: float, chance: float, relation: Relation, compositions: int, start: int
) -> tuple[Fraction, int]:
    """The best rate and threshold by loss distributions: down, then up from `start`, as long as it pays."""
    nearest: int | None = None  # a rate that was found for another threshold

    @functools.cache
    def found(threshold: int) -> float:
        nonlocal nearest
        rate = _largest_composed(
            epsilon, delta, threshold, relation, compositions, nearest, 2.0**-9, tuning.SEARCH_STEPS
        )
        nearest = int(rate * RATE_GRID) or nearest
        return float(_count_found(float(rate), threshold, chance)) if rate else math.inf

    best = start
    for direction in (-1, 1):
        stride = max(1, start // 8)
        while stride:
            while best + direction * stride >= 2 and found(best + direction * stride) < found(best):
                best += direction * stride
            stride //= 2
    return _largest_composed(epsilon, delta, best, relation, compositions, nearest), best


def _largest_composed(
    epsilon: float,
    delta: float,
    threshold: int,
    relation: Relation,
    compositions: int,
    near: int | None = None,
    precision: float = 2.0**-12,
    steps: int = STEPS,
) -> Fraction:
    """The largest rate, to a relative `precision`, that keeps (epsilon, delta) by loss distributions in this number of steps
    of epsilon; 0: none was found.

    `near` is where to look first, in units of the grid.
    """
    from scipy import optimize

    limit, seen = math.log(_limit(epsilon)), {0: -math.inf}

    def excess(log_units: float) -> float:
        units = int(math.exp(log_units))
        if units not in seen:
            rate = Fraction(units, RATE_GRID)
            seen[units] = math.log(
                sampled_delta(epsilon, rate, threshold, relation, compositions, delta, steps) / delta
            )
        return seen[units]

    low = high = min(limit, math.log(near)) if near else limit
    width = 1.0 / threshold  # delta is about a power of the rate, with the threshold as exponent
    while excess(low) > 0 and low > 0:
        low, high, width = max(0.0, low - width), low, 2 * width
    while high < limit and excess(high) <= 0:
        low, high, width = high, min(limit, high + width), 2 * width
    if low < high and excess(high) > 0:
        optimize.brentq(excess, low, high, xtol=precision / 2)
    return Fraction(max(units for units, over in seen.items() if over <= 0), RATE_GRID)


def laplace_w50(budget: Budget, relation: Relation = Relation.ADD_REMOVE, items: int = 1) -> int:
    """For comparison: what central Laplace noise with a threshold needs for an item to be shown more often than not."""
    plan = calibrate_unknown_domain(budget, Bound(l0=items, l1=items, linf=1), relation, "laplace")
    assert plan.threshold is not None
    return plan.threshold


def paper_parameters(epsilon: float, delta: float) -> tuple[Fraction, int]:
    """The rate (rounded down) and threshold of the paper's Theorem 1, for comparison; they are ten times too cautious."""
    whole = 3 - math.log(delta)
    return Fraction(math.floor(-math.expm1(-epsilon) / whole * RATE_GRID), RATE_GRID), math.ceil(whole)
