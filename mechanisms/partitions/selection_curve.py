"""Private selection of items by a selection curve: an item of total weight x is named with probability pi(x).

A user who keeps d of its items, at most K, adds the weight w(d) = 2^g / d^(1/4), rounded down, to each. Nothing but names is
released, so no sum needs noise: all that must be hidden is how one user moves the coins. (Harrison, Manurangsi, arXiv
2603.09167, have the idea. Here each item has a share of a user's budget by the number of the user's items.)

A curve for K rises, has pi(0) = 0, and for every d <= K, with D_a the Renyi divergence of order a of two coins,

    (alone)    pi(w(d)) <= H / d
    (shared)   D_a(pi(x + w(d)) || pi(x)) and D_a(pi(x) || pi(x + w(d))) are at most W / d,  for every sum x > 0 of weights.

Guarantee of a round: items of one user alone are named with probability H or less together, and the coins of its other items
differ by a Renyi divergence of order a of W or less; 2W where a user is replaced. What that is in epsilon and delta stands in
`curve_budget`. With a `slope_ratio`, D_alpha <= alpha * rho holds as well, for all orders alpha up to a, with rho = slope_ratio
* W / a. Proofs: docs/proofs/partitions.md. Every pair of states of a curve is checked before it is given out.
"""

from __future__ import annotations

import dataclasses
import decimal
import functools
import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from headcount.mechanisms import tuning
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.partitions.coins import Floats, Pairs, largest, limit_of, limited, logs, power

#: The most items of a user that a curve is made for.
MOST_CURVE_ITEMS = 10_000

#: Chances are multiples of 2**-BITS.
BITS = 128

#: The least delta for which items are named by curves. From 1e-28 on those of all numbers of items can be made, in three rounds
#: and at an epsilon of 0.1 to 10: with less, the chances of single users would be rounded by too much.
LEAST_DELTA = 1e-25


# W is lowered when a curve is made, by more if that did not do, and less when it is checked: beyond interpolation and rounding.
_MADE, _CHECKED = (1 - 1e-4, 1 - 1e-3, 1 - 1e-2, 0.9), 1 - 1e-6


def check_curve_delta(delta: float) -> None:
    """Refuses a delta that is too small for curves."""
    if delta < LEAST_DELTA:
        raise ParameterError(
            f"naming items that come from the data needs a delta of at least {LEAST_DELTA:g} here, got {delta:g}: raise delta, "
            "or name them by noise (a histogram in one stage, or the strategy laplace)"
        )


def curve_weight(items: int, grid: int) -> int:
    """What each item weighs of a user who keeps this number of items, in units of 2**-grid: one by the fourth root of it."""
    return fourth_root(16**grid // items)


def fourth_root(number: int) -> int:
    """The largest integer whose fourth power is at most the number."""
    return math.isqrt(math.isqrt(number))


def curve_grid(items: int, fine: int = tuning.CURVE_UNITS) -> int:
    """The coarsest grid on which each item of a user of this many items weighs `fine` units or more."""
    return next(grid for grid in range(64) if curve_weight(items, grid) >= fine)


@dataclasses.dataclass(frozen=True)
class LawWeighStep:
    """Each item of a user gets the weight that their number gives; the last step, since counts are fractions after it."""

    grid: int
    name = "LawWeigh"

    def apply(self, shard: Shard, subkey: bytes) -> Shard:
        rows = shard.rows_per_user()
        table = np.zeros(int(rows.max(initial=0)) + 1, dtype=np.int64)
        held = np.flatnonzero(np.bincount(rows[rows > 0]))
        table[held] = [curve_weight(items, self.grid) for items in held.tolist()]
        return dataclasses.replace(shard, count=np.repeat(table[rows], rows))

    def promise(self, before: Bound) -> Bound:
        return dataclasses.replace(before, linf=1, grid=self.grid)


def curve_steps(items: int, grid: int) -> tuple[tuple[int, int], ...]:
    """The weights that users of up to this many items have, ascending, each with the most items that give it."""
    most: dict[int, int] = {}
    for number in range(1, items + 1):
        most[curve_weight(number, grid)] = number
    return tuple(sorted(most.items()))


@dataclasses.dataclass(frozen=True)
class SelectionCurve:
    """A selection curve as integers: `chances[x]` is 2**BITS pi(x), for x in units of 2**-grid; beyond the last it stays."""

    grid: int
    chances: bytes

    @classmethod
    def of(cls, grid: int, chances: list[int]) -> SelectionCurve:
        """The curve of these chances."""
        return cls(grid, b"".join(chance.to_bytes(BITS // 8, "little") for chance in chances))


@functools.lru_cache(maxsize=256)
def make_curve(
    items: int, order: float, cost: float, shown: float, fine: int = tuning.CURVE_UNITS, slope_ratio: float = math.inf
) -> SelectionCurve:
    """The largest curve for K `items` that costs a user at most `cost` (W) of this order, and `shown` (H) for its items alone.

    With a `slope_ratio` (`coins.slope_ratio`) it also keeps D_alpha <= alpha * slope_ratio * W / order for all orders up to
    this one. Where it would have very many states, as at a small epsilon, its weights are coarser than `fine`.
    """
    if not (cost > 0 and 0 < shown < 1 and order > 1):
        raise ParameterError(f"a curve needs cost, order and shown above 0, got {cost}, {order} and {shown}")
    grid, states = _size(items, order, cost, fine)
    if states > tuning.CURVE_MOST_STATES:
        raise ParameterError(
            f"a curve for {items} items per user at so small a budget has too many states: raise epsilon or lower max_items"
        )
    weights, numbers = (np.array(column) for column in zip(*curve_steps(items, grid), strict=True))
    own = np.array([math.log(shown / number) for number in numbers.tolist()])
    rho = slope_ratio * cost / order
    for made in _MADE:
        held = slope_ratio < math.inf and (items < tuning.FREE_ITEMS or made < _MADE[0])
        wanted = _rising(weights, order, cost * made / numbers, own, limit_of(rho) * made / numbers if held else None)
        chances = _chances(wanted)
        if chances[int(weights[0])] == 0:  # the least state must not be rounded to 0 where others are not
            continue
        logits = _logits(chances, wanted)  # of what is drawn: near 2**-BITS, chances are rounded by much
        if _keeps_pairs(logits, weights, order, cost * _CHECKED / numbers) and _keeps_rho(
            logits, weights, numbers, order, rho
        ):
            return SelectionCurve.of(grid, chances)
    raise ParameterError(
        f"a curve of this order and cost, for {items} items per user, cannot be computed in {BITS} bits: raise epsilon or delta"
    )


def curve_states(items: int, order: float, cost: float) -> float:
    """About how many states the curve of `make_curve` has: what it takes to make, and to ship."""
    return _size(items, order, cost, tuning.CURVE_UNITS)[1]


def _size(items: int, order: float, cost: float, fine: int) -> tuple[int, float]:
    """The grid of a curve, and about how many states it has there."""
    grid = curve_grid(items, fine)
    # Steps of K items cross the middle of the curve, where an angle of pi/2 takes as many of sqrt(2 a K / W); about thrice.
    states = 5 * math.sqrt(order * items / cost)
    while fine > 1 and states * curve_weight(items, grid) > tuning.CURVE_STATES:
        fine //= 2
        grid = curve_grid(items, fine)
    return grid, states * curve_weight(items, grid)


def _rising(
    weights: npt.NDArray[np.int64], order: float, costs: Floats, own: Floats, rhos: Floats | None = None
) -> Floats:
    """The logits of pi(x) for x = 0, 1, ...: minus infinity at 0, and NaN where no sum of weights is.

    `own` are the logarithms of what a weight alone may have, which as logits are a little less. With `rhos` lower orders
    hold back as well.
    """
    nodes = np.arange(own.min() - 2 * tuning.CURVE_STEP, tuning.CURVE_TOP + 3 * tuning.CURVE_STEP, tuning.CURVE_STEP)
    table = largest(nodes, order, costs)
    if rhos is not None:
        table = np.append(table, limited(nodes, table.min(axis=1), order, rhos)[:, None], axis=1)
    heaviest = int(weights[-1])
    pi, most = np.full(1 << 12, np.nan), np.full(1 << 12, np.inf)
    pi[0] = -np.inf
    most[weights] = own
    x, before = int(weights[0]), -np.inf
    while True:
        if x + heaviest >= len(pi):
            pi, most = np.append(pi, np.full(len(pi), np.nan)), np.append(most, np.full(len(most), np.inf))
        here = float(most[x])
        if here < before:
            # Lowered states allow as much as this one does, which is more than any state before has or will get.
            allowed = _between(nodes, table, here)
            for each in _lowered(pi[:x], here).tolist():
                most[each + weights] = np.minimum(most[each + weights], allowed)
        if here < np.inf:
            pi[x] = before = here
            if here >= tuning.CURVE_TOP:
                return pi[: x + 1]
            places = x + weights
            most[places] = np.minimum(most[places], _between(nodes, table, here))
        x += 1


def _lowered(pi: Floats, here: float) -> npt.NDArray[np.intp]:
    """Lowers the states above `here` to it, and tells which they are."""
    late = np.flatnonzero(pi > here)
    pi[late] = here
    return late


def _between(nodes: Floats, table: Floats, logit: float) -> Floats:
    """What a state of this logit allows the state that is higher by each weight: the cubic through the four nodes around it."""
    place = (logit - float(nodes[0])) / tuning.CURVE_STEP
    node = int(place)
    t = place - node
    u, v, w = t - 1, t - 2, t + 1
    # Term by term: a product of matrices would be rounded by the kind of processor, and curves must be the same on all.
    factors = np.array([-t * u * v / 6, w * u * v / 2, -w * t * v / 2, w * t * u / 6])[:, None, None]
    found: Floats = np.add.reduce(factors * table[node - 1 : node + 3], axis=0).min(axis=0)
    return found


def _keeps_pairs(logits: Floats, weights: npt.NDArray[np.int64], order: float, costs: Floats) -> bool:
    """Whether a curve rises, and no pair of its states differs by more than it may."""
    states = np.flatnonzero(np.isfinite(logits))
    if not (np.diff(logits[states]) >= 0).all():
        return False
    last, filled, now = len(logits) - 1, _filled(logits), logs(logits[states])
    for weight, cost in zip(weights.tolist(), costs.tolist(), strict=True):
        after, limit = filled[np.minimum(states + weight, last)], (order - 1) * cost
        then = logs(after)
        if not max(power(then, now, order).max(), power(now, then, order).max()) <= limit:
            return False
    return True


def _keeps_rho(
    logits: Floats, weights: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64], order: float, rho: float
) -> bool:
    """Whether no pair of states differs by more than rho allows, at any order up to this one."""
    if math.isinf(rho):
        return True
    states, filled = np.flatnonzero(np.isfinite(logits)), _filled(logits)
    after = [filled[np.minimum(states + weight, len(logits) - 1)] for weight in weights.tolist()]
    return Pairs(logits[states], after, numbers.tolist()).keeps_rho(order, rho)


def _filled(logits: Floats) -> Floats:
    """States that no sum of weights reaches have the chance of the one before."""
    return np.fmax.accumulate(logits)


def _chances(logits: Floats) -> list[int]:
    """2**BITS pi(x), rounded down; where it is above 1/2, by its complement, which is what must be precise there."""
    whole = 1 << BITS
    chances = []
    for logit in _filled(logits).tolist():
        if logit <= 0:
            chances.append(_scaled(math.exp(logit) / (1 + math.exp(logit))))
        else:
            chances.append(whole - 1 - _scaled(math.exp(-logit) / (1 + math.exp(-logit))))
    return chances


def _scaled(chance: float) -> int:
    return int(math.ldexp(chance, BITS))


def _logits(chances: list[int], wanted: Floats) -> Floats:
    """The logits of chances as they are drawn, of the states of `wanted`."""
    found = wanted.copy()
    for state in np.flatnonzero(np.isfinite(wanted)).tolist():
        found[state] = math.log(chances[state]) - math.log((1 << BITS) - chances[state])
    return found


@functools.lru_cache(maxsize=256)
def one_item_curve(*allowed: tuple[Fraction, Fraction]) -> SelectionCurve:
    """The best curve where each user has one item that counts one: for each pair it is (epsilon, delta)-differentially private.

    No curve names more (the paper, for one pair). States are rounded such that every pair keeps the condition exactly. Proof:
    docs/proofs/partitions.md, "One item of each user".
    """
    whole = 1 << BITS
    least, most = min(epsilon for epsilon, _ in allowed), min(delta for _, delta in allowed)
    if math.log(1 + float(least / most)) / float(least) > tuning.CURVE_MOST_STATES / 2:
        raise ParameterError(
            f"a curve at epsilon = {float(least)} has too many states: raise epsilon, or take truncated-geometric"
        )
    limits = []
    with decimal.localcontext(decimal.Context(prec=2 * BITS)):
        for epsilon, delta in allowed:
            power = (decimal.Decimal(epsilon.numerator) / epsilon.denominator).exp()
            limits.append((int(power * whole) - 1, int(1 / power * whole) + 1, int(delta * whole)))
    chances = [0]
    while chances[-1] < whole - 1:
        before = chances[-1]
        up = min((low * before >> BITS) + extra for low, _, extra in limits)
        down = min(whole - (-(-high * max(0, whole - before - extra) >> BITS)) for _, high, extra in limits)
        chances.append(min(up, down, whole - 1))
        if chances[-1] == before:
            break
    return SelectionCurve.of(0, chances)
