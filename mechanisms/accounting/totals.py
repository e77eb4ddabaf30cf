"""What many releases of the same data promise together: one epsilon for a delta, or the other way round.

Three bounds are known, and the least of them is taken:

* basic composition: at the sum of the deltas, the sum of the epsilons;
* privacy loss distributions of what every release states of its losses (`losses`, `pld`): the sharpest, where there are many;
* zero-concentrated differential privacy: the sum of what every release keeps of that, converted once.

What may depend on what. A release may be any function of what the earlier ones have released: which items are asked for, which
bounds are taken. But what it costs, its `losses`, must have been fixed before any of them ran, and so must how many there are.
With `adaptive=True` the total holds even if costs, and when to end, were chosen after a look: by a filter of zCDP with what was
really spent (`filters`). Whoever wants that must settle on it, and on a limit (epsilon, delta), before the first release: the
smaller of the two totals is neither. Proof: docs/proofs/accounting.md, "Totals".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Zcdp, sum_up, zcdp_delta, zcdp_epsilon, zcdp_order
from headcount.mechanisms.accounting.guarantee import Guarantee, check_alike, total_zcdp
from headcount.mechanisms.accounting.losses import Losses
from headcount.mechanisms.accounting.pld_sums import NOTHING, Together
from headcount.mechanisms.checks import check_at_least_0

# Orders are compared beyond the rounding of the one at which a limit is converted.
_BEYOND = 1 + 1e-9


# So often the rho of which an order is that of the conversion is doubled, and then halved in.
_DOUBLINGS, _HALVINGS = 60, 40


def total_epsilon(guarantees: Iterable[Guarantee], delta: float, adaptive: bool = False) -> float:
    """The least epsilon that all of them are known to keep together with `delta`; infinite if there is none."""
    return Spent(guarantees, adaptive).epsilon(delta)


def total_delta(guarantees: Iterable[Guarantee], epsilon: float, adaptive: bool = False) -> float:
    """The least delta that all of them are known to keep together with `epsilon`; 1 if there is none."""
    return Spent(guarantees, adaptive).delta(epsilon)


class Spent:
    """Some releases, of which totals are asked: of them alone, and with one or other more of the same kind."""

    def __init__(self, guarantees: Iterable[Guarantee], adaptive: bool = False) -> None:
        self._parts, self._adaptive = check_alike(guarantees), adaptive
        self._losses = Together(Losses.together(part.losses for part in self._parts))

    def epsilon(self, delta: float) -> float:
        """The least epsilon that they are known to keep together with `delta`; infinite if there is none."""
        parts, delta, found = self._parts, check_at_least_0("delta", delta), [math.inf]
        if self._adaptive:
            delta = min(delta, 0.5) * (1 - 2e-12)  # beyond the rounding of the shares
            rest = delta * (1 - tuning.FILTER_HIDING_DELTA)
            for order, spent in _spent(parts):
                if rest > 0 and spent.delta <= delta * tuning.FILTER_HIDING_DELTA:
                    rho = _raised(spent.rho, order, lambda rho: zcdp_epsilon(rho, rest))
                    found.append(zcdp_epsilon(rho, rest) if math.isfinite(rho) else math.inf)
            return min(found)
        if sum_up(part.delta for part in parts) <= delta:
            found.append(sum_up(part.epsilon for part in parts))
        if 0 < delta < 1:
            found.append(self._losses.epsilon(delta))
        return min(found)

    def delta(self, epsilon: float, more: Iterable[Guarantee] = ()) -> float:
        """The least delta that they are known to keep together with `epsilon`, and with `more` beside them; 1 if there is
        none."""
        others, epsilon, found = tuple(more), check_at_least_0("epsilon", epsilon), [1.0]
        parts = check_alike([*self._parts, *others])
        if self._adaptive:
            for order, spent in _spent(parts):
                rho = _raised(spent.rho, order, lambda _: epsilon)
                if math.isfinite(rho):
                    of_rho = zcdp_delta(rho, epsilon) / (1 - tuning.FILTER_HIDING_DELTA)
                    found.append(max(spent.delta / tuning.FILTER_HIDING_DELTA, of_rho) * (1 + 1e-12))
            return min(found)
        if sum_up(part.epsilon for part in parts) <= epsilon:
            found.append(sum_up(part.delta for part in parts))
        beside = Losses.together(part.losses for part in others) if others else NOTHING
        return min(*found, self._losses.delta(epsilon, beside))


def _spent(parts: Sequence[Guarantee]) -> Iterator[tuple[float, Zcdp]]:
    """What all have spent, if the limit is converted at this order at most; for each order up to which one of them is known."""
    for order in {math.inf, *(part.order for part in parts)}:
        spent = total_zcdp(parts, order)
        if spent is not None:
            yield order, spent


def _raised(rho: float, order: float, epsilon_of: Callable[[float], float]) -> float:
    """About the least rho, this or above, that is converted at this order at most; infinite if there is none."""

    def holds(rho: float) -> bool:
        return zcdp_order(rho, epsilon_of(rho)) * _BEYOND <= order

    if holds(rho):
        return rho
    low, high = rho, 2 * rho
    for _ in range(_DOUBLINGS):
        if holds(high):
            break
        low, high = high, 2 * high
    else:
        return math.inf
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
