"""How much each of a user's items weighs when items are named, and the thresholds that hide items of one user alone.

A user who keeps d items adds to each of them

    "count":  1               norms l0 <= K, linf <= 1
    "l2":     1 / sqrt(d)     l2 norm of at most 1: a user of few items does not count for less than one of many
    "l1":     1 / d           l1 norm of at most 1

in units of 2**-20, rounded *down*, so that the norms hold exactly, in integers. (Rounding to nearest breaks them: three items
of 2**20 / sqrt(3) to nearest have a squared norm above 2**40.) Proof that one number, the share u of a user's items that it has
alone, covers all users: docs/proofs/partitions.md, "Rounds of noise".
"""

from __future__ import annotations

import dataclasses
import decimal
import math
from fractions import Fraction
from typing import Literal

import numpy as np

from headcount.mechanisms.accounting import thresholds
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.errors import ParameterError

Weights = Literal["count", "events", "l2", "l1", "law"]

#: Weights are multiples of 2**-GRID.
GRID = 20

#: The most items of a user that can be weighed: beyond, a weight of 1/d would be nothing.
MOST_ITEMS = 1 << GRID

# Every number of items is looked at up to here, then blocks of neighbouring ones, which cost 3 % of a rate at most: less than a
# thousandth of a threshold.
_SINGLE, _BLOCKS = 300, 300

# Shares u of items alone are looked at in blocks that grow in equal ratios, from this on, to 1.
_LEAST_SHARE = 1e-6
_ADD_REMOVE_SHARES, _REPLACE_SHARES = 1000, 120


def weight_of(items: int, weights: Weights) -> int:
    """What each item weighs of a user who keeps this number of items, in units of 2**-GRID."""
    if weights == "count":
        return 1 << GRID
    return (1 << GRID) // items if weights == "l1" else math.isqrt((1 << 2 * GRID) // items)


@dataclasses.dataclass(frozen=True)
class WeighStep:
    """Each item of a user gets the weight that their number gives; the last step, since counts are fractions after it."""

    weights: Weights
    name = "Weigh"

    def apply(self, shard: Shard, subkey: bytes) -> Shard:
        rows = shard.rows_per_user()
        most = int(rows.max(initial=0))
        if most > MOST_ITEMS:
            raise ParameterError(f"items are weighed after LimitItems({MOST_ITEMS}) or less")
        table = np.zeros(most + 1, dtype=np.int64)
        held = np.flatnonzero(np.bincount(rows[rows > 0]))
        table[held] = [weight_of(items, self.weights) for items in held.tolist()]
        return dataclasses.replace(shard, count=np.repeat(table[rows], rows))

    def promise(self, before: Bound) -> Bound:
        l1 = 1 if self.weights == "l1" else before.l1
        return dataclasses.replace(before, l1=l1, l2=1, linf=1, grid=GRID)


def _table(items: int, weights: Weights) -> tuple[np.ndarray, np.ndarray]:
    """Numbers d <= items and weights w such that d phi(w) bounds every rate of the numbers up to d: the weight is that of the
    first number of a block, and d is its last."""
    if weights == "count":
        return np.array([float(items)]), np.array([1.0])
    first = np.arange(1, items + 1)
    if items > _SINGLE:
        first = np.unique(np.geomspace(1, items, _BLOCKS).astype(np.int64))
    last = np.append(first[1:] - 1, items)
    weight = [weight_of(number, weights) for number in first.tolist()]
    return last.astype(float), np.array(weight) / 2.0**GRID


def gaussian_hiding_threshold(items: int, weights: Weights, sigma: float, rate: float) -> float:
    """The least threshold (to sigma/2^14) at which items of any one user alone stay hidden with probability e^-rate or more."""
    number, weight = _table(items, weights)

    def holds(threshold: float) -> bool:
        return _worst_rate(number, weight, sigma, threshold) <= rate

    return thresholds.least_threshold(holds, 1.0, sigma)


def weighted_gaussian_threshold(items: int, epsilon: float, delta: float, sigma: float, relation: Relation) -> float:
    """The least threshold (to sigma/2^14) at which the joint accounting of weights "l2" gives at most TOTAL_SHARE * delta.

    `sigma` must be private for less than TOTAL_SHARE * delta at the l2 distance of neighbours.
    """
    number, weight = _table(items, "l2")

    def holds(threshold: float) -> bool:
        rate = _worst_rate(number, weight, sigma, threshold)
        return weighted_joint_delta(rate, epsilon, sigma, relation) <= thresholds.TOTAL_SHARE * delta

    return thresholds.least_threshold(holds, 1.0, sigma)


def weighted_joint_delta(rate: float, epsilon: float, sigma: float, relation: Relation) -> float:
    """At least the delta of Gaussian noise for weights "l2" if a user of nothing but items alone shows at `rate` G: maximum of
    (1).

    (1) is that of `thresholds`. Over blocks of the share u of items alone, the rate at the block's end with the distance at its
    beginning bounds all of it.
    """
    count = _REPLACE_SHARES if relation is Relation.REPLACE else _ADD_REMOVE_SHARES
    ends = np.geomspace(_LEAST_SHARE, 1.0, count)
    begins = np.append(0.0, ends[:-1])
    own, squared = np.append(0.0, rate * ends), np.append(1.0, 1 - begins)
    return thresholds.joint_delta(epsilon, own, squared, sigma, relation)


def weighted_laplace_threshold(items: int, scale: Fraction, delta: float) -> int:
    """The least tau, in units of 2**-GRID, at which the items of every user alone show with probability delta or less.

    For weights "l1" and discrete Laplace noise of `scale` (in those units). A user of d such items shows with delta at most iff
    tau >= w(d) - b (ln(1 - (1-delta)^(1/d)) + ln(1 + q)), q = e^(-1/b), as P[Z >= m] = q^m / (1+q) for m >= 0. That is
    sufficient as in `thresholds.laplace_threshold`: items alone and shared ones have a mass of at most 1 together. Floats find
    the few d that come near to the largest, and exact arithmetic decides among them.
    """
    number = np.arange(1.0, items + 1)
    weight, b = (1 << GRID) // np.arange(1, items + 1), float(scale)
    near = weight - b * np.log(-np.expm1(math.log1p(-delta) / number))
    close = np.flatnonzero(near >= near.max() - 2 - 1e-9 * near.max()) + 1
    digits = 60 + math.ceil(-math.log10(delta)) + 2 * GRID
    with decimal.localcontext(decimal.Context(prec=digits)):
        exact = decimal.Decimal(scale.numerator) / scale.denominator
        log_hidden, log_norm = (1 - decimal.Decimal(repr(delta))).ln(), (1 + (-1 / exact).exp()).ln()
        real = max(weight_of(d, "l1") - exact * ((1 - (log_hidden / d).exp()).ln() + log_norm) for d in close.tolist())
        return math.ceil(real)


def _worst_rate(number: np.ndarray, weight: np.ndarray, sigma: float, threshold: float) -> float:
    """G, or a little more where numbers of items are looked at in blocks."""
    return float((number * thresholds.gaussian_rate(weight, sigma, threshold)).max())
