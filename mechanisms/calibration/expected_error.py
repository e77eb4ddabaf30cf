"""How far noisy counts will be from what they count, before there are any.

It follows from the noise plan alone, which is public: what `--explain` prints costs nothing, and says nothing of the data.
Bounding and threshold bias counts besides, by what only the data know.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
import statistics
from collections.abc import Iterable

from headcount.mechanisms.calibration.intervals import half_width
from headcount.mechanisms.calibration.noise import curve_chance
from headcount.mechanisms.calibration.noise_plan import NoisePlan


@dataclasses.dataclass(frozen=True)
class ExpectedError:
    """How far a noisy count is from the bounded count under it, in counts.

    `half_width` of the interval that holds 95 % of the noise; `even_count` and `sure_count`, the rarest
    bounded counts that are released with a chance of 50 % and 99.9 % (None where every item is released).
    """

    stddev: float
    half_width: float
    threshold: float | None
    even_count: int | None
    sure_count: int | None


def expected_error(plan: NoisePlan) -> ExpectedError:
    """The error of a noise plan: exact for Laplace, by the continuous distribution (the grid is fine) for Gaussian."""
    unit = 2.0**-plan.grid
    threshold = even = sure = None
    if plan.threshold is not None:
        threshold = plan.threshold * unit
        even, sure = rarest(plan, 0.5), rarest(plan, 0.999)
    return ExpectedError(plan.stddev, half_width(plan) * unit, threshold, even, sure)


def users_needed(plans: Iterable[NoisePlan]) -> dict[str, int]:
    """About how many users that count once each an item needs to be shown by one of the plans; nothing, if all are shown."""
    needed = [rarest(plan, 0.5) for plan in plans if plan.threshold is not None]
    return {"users_needed": min(needed)} if needed else {}


def correlated(plan: NoisePlan) -> dict[str, str]:
    """What a reader of counts must know where one draw of the noise is in all of them; nothing, if none is."""
    if plan.shared is None:
        return {}
    items = plan.shared.items
    return {
        "correlated": f"all {items:,} bounded counts share one draw of the noise, so their errors are correlated: a difference "
        f"of two has a standard deviation of {plan.difference_stddev:,.4g}, the sum of all {plan.sum_stddev(items):,.4g}, and "
        f"not the {math.sqrt(items) * plan.stddev:,.4g} of independent errors"
    }


def rarest(plan: NoisePlan, chance: float) -> int:
    """The smallest whole count v that the threshold shows with this chance or more, which is 1/2 or more."""
    threshold, scale = plan.threshold or 0, float(plan.scale)
    if plan.kind == "law":
        states = len(plan.law) // 16
        state = bisect.bisect_left(range(states), chance, key=lambda x: curve_chance(plan.law, x))
        return max(1, math.ceil(state / 2**plan.grid))
    if plan.kind != "gaussian":  # noise that is truncated differs by delta at most
        # P(Z >= k) = 1 - q**(1 - k) / (1 + q) for k <= 0: the largest k for which that is the chance or more.
        q = math.exp(-1 / scale)
        noise = math.floor(1 + scale * math.log((1 - chance) * (1 + q)) + 1e-9)
    else:
        noise = math.floor(-scale * statistics.NormalDist().inv_cdf(chance))
    return max(1, math.ceil((threshold - noise) / 2**plan.grid))
