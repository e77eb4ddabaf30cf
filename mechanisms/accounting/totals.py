"""What many releases of the same data promise together, as one epsilon for a delta, or the other way round.

Three bounds are known, and the least of them is taken:

* basic composition: at the sum of the deltas, the sum of the epsilons;
* privacy loss distributions of what every release says of its losses (`losses`, `laws`): the sharpest, where there are many;
* zero-concentrated differential privacy: the sum of what every release keeps of that, converted once.

What may depend on what. A release may be any function of what the earlier ones have released: which items are asked for, which
bounds are taken. But what it costs, its `losses`, must have been fixed before any of them ran, and so must how many there are.
With `adaptive=True` the total holds even if costs, and when to end, were chosen after a look: it is that of zCDP alone, with
what was really spent (Whitehouse, Ramdas, Rogers, Wu: "Fully Adaptive Composition in Differential Privacy", 2023; `filters`).
Whoever wants that must settle on it before the first release: the smaller of the two is neither.

Releases compose under one relation and one unit. Where the unit is a user's day, the total is that of each such day, for
releases that may all be about the same day; a user's total over several days is `windows.over_windows` of that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from headcount.mechanisms.accounting.budget import sum_up, zcdp_delta, zcdp_epsilon
from headcount.mechanisms.accounting.guarantee import Guarantee, check_alike, total_zcdp
from headcount.mechanisms.accounting.losses.parts import Losses
from headcount.mechanisms.accounting.losses.sums import losses_delta, losses_epsilon
from headcount.mechanisms.checks import check_at_least_0


def total_epsilon(guarantees: Iterable[Guarantee], delta: float, adaptive: bool = False) -> float:
    """The least epsilon that all of them are known to keep together with `delta`; infinite if there is none."""
    parts, delta = check_alike(guarantees), check_at_least_0("delta", delta)
    if adaptive:
        spent = total_zcdp(parts)
        left = 0.0 if spent is None else (min(delta, 0.5) - spent.delta) / (1 - spent.delta) * (1 - 1e-12)
        return zcdp_epsilon(spent.rho, left) if spent is not None and left > 0 else math.inf
    found = [math.inf]
    if sum_up(part.delta for part in parts) <= delta:
        found.append(sum_up(part.epsilon for part in parts))
    if 0 < delta < 1:
        found.append(losses_epsilon(Losses.together(part.losses for part in parts), delta))
    return min(found)


def total_delta(guarantees: Iterable[Guarantee], epsilon: float, adaptive: bool = False) -> float:
    """The least delta that all of them are known to keep together with `epsilon`; 1 if there is none."""
    parts, epsilon = check_alike(guarantees), check_at_least_0("epsilon", epsilon)
    if adaptive:
        spent = total_zcdp(parts)
        return 1.0 if spent is None else min(1.0, spent.delta + (1 - spent.delta) * zcdp_delta(spent.rho, epsilon))
    found = [1.0]
    if sum_up(part.epsilon for part in parts) <= epsilon:
        found.append(sum_up(part.delta for part in parts))
    return min(*found, losses_delta(Losses.together(part.losses for part in parts), epsilon))
