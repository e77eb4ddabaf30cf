"""What many releases of the same data promise together, as one epsilon for a delta, or the other way round.

By basic composition: at the sum of the deltas the epsilons add up, and nothing is promised at a smaller delta or epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from headcount.mechanisms.accounting.guarantee import Guarantee, compose
from headcount.mechanisms.checks import check_at_least_0


def total_epsilon(guarantees: Iterable[Guarantee], delta: float) -> float:
    """The least epsilon that all of them are known to keep together with `delta`; infinite if there is none."""
    whole = compose(guarantees)
    return whole.epsilon if whole.delta <= check_at_least_0("delta", delta) else math.inf


def total_delta(guarantees: Iterable[Guarantee], epsilon: float) -> float:
    """The least delta that all of them are known to keep together with `epsilon`; 1 if there is none."""
    whole = compose(guarantees)
    return min(1.0, whole.delta) if whole.epsilon <= check_at_least_0("epsilon", epsilon) else 1.0
