"""Sample and threshold: how private it is, exactly. (Which rate and threshold to take: `plan`.)

Each user is sampled with probability p, and an item is shown, with its number of sampled users, if and only if it was sampled
theta times or more. No noise is added. Let an item have k + 1 users in one data set and k in its neighbour, and B(k) be
binomial of k trials of p. The divergences of the two outputs at epsilon >= 0 are those of the best cut j >= theta,

    added:      max over j of  P[B(k+1) >= j] - e^epsilon P[B(k) >= j],
    removed:    max over j of  P[B(k) < j] - e^epsilon P[B(k+1) < j],

since the ratio of the two distributions increases with the number shown, and is least where nothing is. What counts is the
supremum over all k, and that has a closed form:

1. Over k, for j fixed, the first difference of the first line is p times P[B(k+1) = j-1] - e^epsilon P[B(k) = j-1]. The
   quotient of these probabilities, (1-p)(k+1) / (k+2-j), falls in k. So the line rises, then falls: its maximum g(j) is at
   k = floor((j-1) / q) with q = 1 - (1-p) e^-epsilon. In the same way the second line has its maximum at
   k = ceil((j-1) / q') - 1 with q' = 1 - (1-p) e^epsilon. If q' <= 0 it rises for ever, to its limit 0, and is never positive.
2. Neither maximum rises with j. Let T be the number of the first success: given T = t, the event B(k) >= j + 1 is
   B(k-t) >= j. So the first line at (j+1, k) is a mean, over t, of itself at (j, k-t) and of zeros, and is at most
   max(0, g(j)). The second is such a mean plus P[T > k] (1 - e^epsilon), which is negative.

Hence the cut at theta is worst, at the k of 1. (The paper bounds all this by a formula that costs a factor of ten in p, and
its Lambert formula for showing the items alone is wrong: neither is used.) Both suprema fall with theta and with epsilon and
rise with p, as a lower rate is a sample of the sample, and a higher threshold a function of the output.

Several items, levels or rounds, each with coins of its own, compose: a supremum of such curves is again one, and its privacy
loss distribution dominates them all (`loss_distributions`). Proof: docs/proofs/sampled.md.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np

from headcount.mechanisms.accounting.budget import digits_up
from headcount.mechanisms.accounting.losses import Curve
from headcount.mechanisms.accounting.relation import Relation

# Divergences are raised by this much of the larger of the two probabilities of which they are the difference. That was seen to
# be off by 4.5e-12 of it (against numbers of 400 bits, for rates from 2^-32 on, thresholds up to 16,000, down to 1e-240).
_ROUNDING = 3e-11
_LARGEST_EPSILON = 600.0
# Below this, SciPy's incomplete beta says nothing of a divergence.
_LEAST_DELTA = 1e-240

#: In how many steps of an epsilon loss distributions are computed, unless fewer will do.
STEPS = 256
# Losses beyond so many epsilons count as infinite.
_LARGEST_LOSS = 64
# What one entry of a composed distribution may be off by: composing is by Fourier transforms (1e-17 was seen). An error of the
# transform grows with the number of compositions, which is its exponent: that is in the above.
_ENTRY_ERROR, _FEW_COMPOSITIONS = 1e-16, 100


# A curve for compositions: its points, and the part of delta from which on it is no longer looked at.
_CURVE_POINTS, _NEGLIGIBLE = 120, 1e-6


def added_delta(epsilon: Any, rate: Any, threshold: Any) -> np.ndarray:
    """At least the supremum, over all counts, of the divergence at `epsilon` >= 0 of an item with one user more.

    Elementwise, and tight up to the rounding of floats.
    """
    epsilon, rate, threshold = _together(epsilon, rate, threshold)
    q = -np.expm1(-epsilon) + rate * np.exp(-epsilon)
    k = _around(np.floor((threshold - 1) / q), threshold)
    more, fewer = (chance_shown(count, threshold, rate) for count in (k + 1, k))
    return np.maximum(_raised(more, np.exp(epsilon) * fewer), _LEAST_DELTA)  # it is never zero


def removed_delta(epsilon: Any, rate: Any, threshold: Any) -> np.ndarray:
    """The same of an item with one user less; 0 from epsilon = -ln(1 - rate) on."""
    epsilon, rate, threshold = _together(epsilon, rate, threshold)
    sampled = rate * np.exp(epsilon)
    q = sampled - np.expm1(epsilon)
    positive = q > -1e-15 * sampled  # it may be, for all that floats tell
    found = np.zeros(q.shape)  # where q is not positive: nearly everywhere on the grid of a loss distribution
    epsilon, rate, threshold, q = (each[positive] for each in (epsilon, rate, threshold, q))
    k = _around(np.ceil((threshold - 1) / np.maximum(q, 1e-16 * rate)) - 1, threshold)
    fewer, more = (_chance_hidden(count, threshold, rate) for count in (k, k + 1))
    found[positive] = _raised(fewer, np.exp(epsilon) * more)
    return found


def chance_shown(count: Any, threshold: Any, rate: Any) -> np.ndarray:
    """The probability that this number or more of `count` users are sampled."""
    from scipy import special  # slow to import, and only a job that samples needs it

    spare = np.asarray(count, float) + 1 - threshold
    return np.where(spare > 0, special.betainc(threshold, np.maximum(spare, 1), rate), 0.0)


def _chance_hidden(count: Any, threshold: Any, rate: Any) -> np.ndarray:
    """The probability that fewer are, which is not the difference to 1 where it is small."""
    from scipy import special

    spare = np.asarray(count, float) + 1 - threshold
    return np.where(spare > 0, special.betaincc(threshold, np.maximum(spare, 1), rate), 1.0)


def _together(epsilon: Any, rate: Any, threshold: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arrays of one shape. A divergence falls with epsilon, so that one beyond the range of e^x may be lowered."""
    limited = np.minimum(np.asarray(epsilon, float), _LARGEST_EPSILON)
    epsilon, rate, threshold = np.broadcast_arrays(limited, np.asarray(rate, float), np.asarray(threshold, float))
    return epsilon, rate, threshold


def _around(k: np.ndarray, threshold: np.ndarray) -> np.ndarray:
    """The count and those next to it, so that a rounded quotient cannot miss the maximum; all are true lower bounds."""
    return np.maximum(k + np.arange(-1.0, 2.0).reshape(3, *[1] * k.ndim), threshold - 1)


def _raised(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    values = np.maximum(first - second, 0.0) + _ROUNDING * first
    return np.minimum(values.max(axis=0), 1.0)


def sampled_delta(
    epsilon: float,
    rate: Fraction | float,
    threshold: int,
    relation: Relation = Relation.ADD_REMOVE,
    compositions: int = 1,
    precise: float = 0.0,
    steps: int = STEPS,
) -> float:
    """At least the delta at `epsilon` of a user who is in `compositions` items, levels or rounds, each with its own coin.

    One item, adding or removing: exact. Else the least of what the loss distributions say, of basic composition, and, for
    replacing one item, of the added divergence with what the other item may lose, -ln(1 - rate), taken off epsilon. The
    distributions may be coarse for a delta below `precise`, and in fewer `steps` of an epsilon all are, at less cost.
    """
    p, relation = float(rate), Relation.parse(relation)
    if relation is Relation.ADD_REMOVE and compositions == 1:
        return float(max(added_delta(epsilon, p, threshold), removed_delta(epsilon, p, threshold)))
    bounds = [_losses_delta(epsilon, p, threshold, relation, compositions, precise, steps)]
    if relation is Relation.ADD_REMOVE:
        part = epsilon / compositions * (1 - 1e-15)
        bounds.append(compositions * sampled_delta(part, p, threshold))
    else:
        left = epsilon + compositions * math.log1p(-p) - 1e-15
        if left > 0:
            bounds.append(compositions * float(added_delta(left / compositions, p, threshold)))
    return min(1.0, *bounds)


@functools.lru_cache(maxsize=64)
def sampled_curve(rate: float, threshold: int, epsilon: float, relation: Relation) -> Curve:
    """The divergences of one item as a curve, for compositions: a supremum over all counts is convex in e^s as they are.

    Where a user is replaced, one item has a user more and another one less. A hundred points, dense near 0, where most losses
    are, go as far as the divergences fall: from ln(threshold (1 - rate)) on, k is threshold - 1, and from -ln(1 - rate) on
    removed is 0. Or they end where the divergence is of no interest beside that at `epsilon`.
    """
    most = max(math.log(threshold), -math.log1p(-rate))
    last, least = min(epsilon, most), _NEGLIGIBLE * float(added_delta(epsilon, rate, threshold))
    while last < most and added_delta(last, rate, threshold) > least:
        last = min(1.25 * last, most)
    losses = np.array([float(f"{s:.5g}") for s in last * np.linspace(0.0, 1.0, _CURVE_POINTS) ** 1.5])
    values = [np.minimum.accumulate(each(losses, rate, threshold)) for each in (added_delta, removed_delta)]
    values[0][0] = values[1][0] = max(values[0][0], values[1][0])  # the same number, but for the rounding of floats
    added, removed = (tuple(map(_few_digits, each.tolist())) for each in values)
    return Curve(tuple(losses.tolist()), added, removed, both=relation is Relation.REPLACE)


def _few_digits(value: float) -> float:
    """A number rounded up to 8 digits: a report stays short, and the same on every machine."""
    return min(1.0, digits_up(value, 8))


def loss_distributions(
    rate: Fraction | float, threshold: int, epsilon: float, negligible: float = 0.0, steps: int = STEPS
) -> tuple[Any, Any]:
    """Privacy loss distributions (dp-accounting's) that dominate one item with one user more, and with one user less.

    In `steps` of an epsilon, as far as the divergence exceeds `negligible`, and at most up to 64 epsilon; the rest
    counts as an infinite loss. The divergences at -e follow from those of the other direction at e, and below
    ln(1 - rate) there is no loss.
    """
    p, step = float(rate), epsilon / steps
    last = steps
    while last < _LARGEST_LOSS * steps and added_delta(last * step, p, threshold) > negligible:
        last *= 2
    losses = np.arange(last + 1) * step
    added = np.minimum.accumulate(added_delta(losses, p, threshold))
    last = max(steps, int(np.count_nonzero(added[:-1] > negligible)))
    losses, added = losses[: last + 1], added[: last + 1]
    removed = np.minimum.accumulate(removed_delta(losses, p, threshold))
    low = min(last, math.floor(-math.log1p(-p) / step) + 2)  # removed is 0 from here on
    return _distribution(step, low, added, removed), _distribution(step, last, removed[: low + 1], added)


def _distribution(step: float, low: int, one: np.ndarray, other: np.ndarray) -> Any:
    """The distribution with the divergences `one` at 0, step, 2 step, ... and by `other` at -low step, ... 0."""
    from dp_accounting.pld import pld_pmf

    away = np.exp(-np.arange(low, 0, -1) * step)
    negative = 1 - away + away * other[low:0:-1]
    deltas = np.minimum.accumulate(np.concatenate([negative, one]))
    made = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -low, len(one) - 1, deltas)
    return made.to_dense_pmf()


def _losses_delta(
    epsilon: float, p: float, threshold: int, relation: Relation, compositions: int, precise: float, steps: int
) -> float:
    """The delta by loss distributions, with what their composition may be off by added."""
    negligible = precise * 1e-4 / compositions
    added, removed = loss_distributions(p, threshold, epsilon, negligible, steps)
    if compositions > 1:
        # Cutting off tails takes most of the time, and is worth it only if the others' rounding is too much.
        small = _ENTRY_ERROR * compositions * (added.size + removed.size) < 1e-3 * precise
        with np.errstate(over="ignore"):  # a bound on the tails that overflows is left out
            added, removed = (each.self_compose(compositions, 0.0 if small else 1e-15) for each in (added, removed))
    if relation is Relation.REPLACE:
        composed = [added.compose(removed)]
    else:
        composed = [added, removed]
    error = _ENTRY_ERROR * max(1.0, compositions / _FEW_COMPOSITIONS)
    return max(max(0.0, float(each.get_delta_for_epsilon(epsilon))) + error * each.size for each in composed)
