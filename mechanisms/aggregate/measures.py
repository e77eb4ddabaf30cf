"""The numbers that get noise, and how much: every metric of a key is a function of these few sums over users.

A user's rows on one key, at most c of them, with values x in [-1, 1] (half ranges from the midpoint), add

    users      1
    flag       1 if one of all its rows meets a condition, and else -1, for each share that is asked for
    rows       the number of rows
    sum        the sum of x,               for each range
    gap        the sum of 1 - x^2,         for each range whose variance is asked for
    cosine     the sum of sin t cos 2t,    for each other range, where x is cos t
    sine       the sum of sin t sin 2t,    for the same
    missing    the number of rows without a value, for each range; such rows add to users and rows, and to no other sum of it
    tree       the rows in each part of the range, on each of LEVELS levels of ever finer parts (`trees`), for each range of
               which a quantile is asked for

All sums of all keys are one vector, which gets Gaussian noise of one calibration: of standard deviation sigma_u for users,
sigma_r for rows, sigma_j for sum, gap, cosine, sine and missing of range j, and tau_j for the parts of range j. (tau_j /
sqrt(LEVELS) for what is missing of a range that has a tree and no sum.) With one row per key, users are rows.

Guarantee: with F the sum of 1 / sigma^2 of flags, R = 1 / sigma_r^2, V the sum of 1 / sigma_j^2, T that of LEVELS / tau_j^2,
and B = 1 / sigma_u^2 + F + c^2 (R + V + T), the squared distance of neighbours of at most m keys is at most

    add-remove      m B
    replace         m max(2 B, 4 F + c^2 (4 V + 2 T), 4 F + (c - 1)^2 R + (c + 1)^2 V + (c^2 + 1) T)

Halves. Where users have few keys and rows, Laplace noise is smaller. Each row then adds, for each range,

    upper      (1 + x) / 2
    lower      (1 - x) / 2
    missing    1 if it has no value, and then nothing to the others
    gap        1 - x^2, with w times as much noise: it tells of all keys together how far values spread, for intervals

which is 1 together but for the gap, whatever x is. So the sum of x, upper - lower, costs no more than the number of rows, upper
+ lower + missing, which comes with it: with one row per key users, rows, sums and means share one number of length 1. Where
more rows count and users are asked for, these are a measure of their own. All have noise of one scale b, and gaps of w b. With
k ranges, and u = 1 if users have a measure and else 0, the l1 distance of neighbours is at most m (u + c k (1 + 1/w)) / b, and
twice that under replace. `HalvesPlan.loss` has it in exact fractions, and is checked against epsilon.

The auxiliary moments beside a sum (gap, cosine, sine) come for free, since they are small where x is large. `MeasuresPlan.loss`
is this distance in exact fractions, and is checked against mu when a plan is made. Proof: docs/proofs/aggregate.md.

Weights. Each of users, rows and ranges has a share of B. The shares are those with the least sum of squared relative errors of
the metrics, where a sum is relative to what c rows of half the largest value add, a mean to half the range, and a variance to
its square; that of a number of users or events counts half. The error of a quantile is that of its rank, which values that
spread over a sixth of their range turn into a third of that in half ranges. This needs no data, and no proof rests on it.
Cosine and sine turn faster than x, so that they tell keys apart whose values are close together (`pooled`).
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.gaussian import whole_sigma
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate.metrics import Metrics
from headcount.mechanisms.aggregate.trees import LEVELS
from headcount.mechanisms.bounding.clipping import LEAST_STEPS
from headcount.mechanisms.bounding.steps import LimitItemsStep, LimitPerItemStep, Step
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.columns.value_ranges import VALUE_BITS
from headcount.mechanisms.counting.noisy import promised
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.noise import LARGEST_SCALE

#: What stands beside the sum of a range, for free: one of these, and never both.
VARIANCE_MOMENT, AUXILIARY_MOMENTS = ("gap",), ("cosine", "sine")
_MISSING = "missing"

#: What a row adds 1 to in all, for each range, where noise is Laplace's.
HALVES = ("upper", "lower", _MISSING)

# Metrics that follow from halves.
_BY_HALVES = ("users", "events", "sum", "mean")

#: The most rows of a user on one key that can count: the sums of 2**33 users then fit 64 bits.
MOST_PER_ITEM = 1000

# The measures of metrics that are not sums.
_OWN = {"quantile": "tree", "share": "flag"}

_BESIDE = VARIANCE_MOMENT + AUXILIARY_MOMENTS

Real = TypeVar("Real", float, Fraction)

# Sums are kept in as many bits of a half range as give sigma about 24, where noise is drawn fast.
_FAST_BITS, _LEAST_BITS = 24, 6


class _Parts(NamedTuple, Generic[Real]):
    """What each kind of measure but users has of the squared length of what one user adds on one key."""

    flags: Real
    rows: Real
    values: Real
    trees: Real


@dataclasses.dataclass(frozen=True)
class Measure:
    """One kind of sum, of the values of a range if it is about values, and its noise.

    Contributions are whole multiples of 2**-bits, and noise is drawn on the grid 2**-grid with a whole `sigma` in its units.
    """

    kind: str
    value: int
    bits: int
    grid: int
    sigma: int

    noise: ClassVar[str] = "gaussian"

    @property
    def name(self) -> str:
        """The name of its column."""
        return self.kind if self.value < 0 else f"{self.kind}{self.value}"

    @property
    def exact_stddev(self) -> Fraction:
        """The scale of its noise in users, rows or half ranges."""
        return Fraction(self.sigma, 2**self.grid)

    @property
    def stddev(self) -> float:
        """The same as a float: the standard deviation."""
        return float(self.exact_stddev)


@dataclasses.dataclass(frozen=True)
class HalfMeasure(Measure):
    """The same with Laplace noise, of which `sigma` is the scale."""

    noise: ClassVar[str] = "laplace"

    @property
    def stddev(self) -> float:
        """The standard deviation of the noise; that of the grid is less than a millionth of it."""
        return math.sqrt(2) * float(self.exact_stddev)


@dataclasses.dataclass(frozen=True)
class MeasuresPlan:
    """At most `max_items` keys of a user, at most `max_per_item` rows on each, and the noise of all sums. All is public."""

    max_items: int
    max_per_item: int
    relation: Relation
    measures: tuple[Measure, ...]

    noise: ClassVar[str] = "gaussian"

    @property
    def steps(self) -> tuple[Step, ...]:
        """What is done to each user's rows of named keys; the second one draws a sample of rows."""
        return LimitItemsStep(self.max_items), LimitPerItemStep(self.max_per_item)

    @cached_property
    def bound(self) -> Bound:
        """What the noise was made for."""
        return promised(self.steps)

    def loss(self) -> Fraction:
        """The largest squared distance of neighbours, in units of the noise."""
        most = self.max_per_item**2
        precision = {measure.name: 1 / measure.exact_stddev**2 for measure in self.measures}
        users = precision.pop("users", Fraction(0))
        rows = precision.pop("rows", Fraction(0))
        values = self._values(precision)
        trees = sum((LEVELS * size for name, size in precision.items() if name.startswith("tree")), Fraction(0))
        for measure in self.measures:
            if measure.kind == _MISSING:
                free = precision.get(f"sum{measure.value}") or LEVELS * precision[f"tree{measure.value}"]
                if precision[measure.name] > free:
                    # A bug, and never to be released.
                    raise RuntimeError("what is missing has less noise than what a row adds in its place")
        flags = sum((size for name, size in precision.items() if name.startswith("flag")), Fraction(0))
        parts = _Parts(flags, most * rows, most * values, most * trees)
        return self.max_items * _distance(self.relation, sum(parts, users), parts, self.max_per_item)

    def _values(self, precision: dict[str, Fraction]) -> Fraction:
        """The sum of 1 / sigma_j^2; what stands beside a sum costs nothing where its noise is no less than that of its sum,
        and it is a gap, or a cosine and a sine."""
        sums = {measure.value for measure in self.measures if measure.kind == "sum"}
        for value in sums:
            beside = {each.kind: each.name for each in self.measures if each.value == value and each.kind in _BESIDE}
            if any(precision[name] > precision[f"sum{value}"] for name in beside.values()):
                # A bug, and never to be released.
                raise RuntimeError("a gap, cosine or sine has less noise than its sum")
            if "gap" in beside and len(beside) > 1:
                raise RuntimeError("a gap stands beside waves")  # a bug, and never to be released
        return sum((precision[f"sum{value}"] for value in sums), Fraction(0))

    def to_json(self) -> dict[str, Any]:
        """What defines the noise, exactly and in one form only."""
        return {
            "max_items": self.max_items,
            "max_per_item": self.max_per_item,
            "relation": self.relation.value,
            "measures": [list(dataclasses.astuple(measure)) for measure in self.measures],
        }

    def stddev(self, name: str) -> float:
        """The standard deviation of the noise of a measure, in users, rows or half ranges."""
        return next(measure.stddev for measure in self.measures if measure.name == name)

    @property
    def stddevs(self) -> dict[str, float]:
        """The standard deviations of users, rows, and the sums of each range, of those that there are."""
        return {measure.name: measure.stddev for measure in self.measures}


@dataclasses.dataclass(frozen=True)
class HalvesPlan(MeasuresPlan):
    """The same with Laplace noise on halves."""

    noise: ClassVar[str] = "laplace"

    def loss(self) -> Fraction:
        """The largest l1 distance of neighbours, in scales of the noise."""
        own: dict[tuple[int, bool], Fraction] = {}
        for (
            measure
        ) in self.measures:  # a row adds 1 to the halves of a range together, 1 to a gap, and a user 1 to users
            if measure.kind not in ("users", "gap", *HALVES):
                # A bug, and never to be released.
                raise RuntimeError(f"nothing says how much a user adds to {measure.kind} beside halves")
            part = measure.value, measure.kind in HALVES
            own[part] = max(own.get(part, Fraction(0)), 1 / measure.exact_stddev)
        users = own.pop((-1, False), Fraction(0))
        return self.relation.users * self.max_items * (users + self.max_per_item * sum(own.values()))

    def to_json(self) -> dict[str, Any]:
        """What defines the noise, exactly and in one form only."""
        return super().to_json() | {"noise": self.noise}

    @property
    def stddevs(self) -> dict[str, float]:
        """The standard deviations of users, rows, and the sums of each range, of those that there are. Rows are told by halves
        alone, where no value is missing."""
        found = super().stddevs
        halves = {each.value: math.sqrt(2) * each.stddev for each in self.measures if each.kind == HALVES[0]}
        rows = math.hypot(*halves.values()) / len(halves)
        return found | {"rows": rows} | {f"sum{value}": stddev for value, stddev in halves.items()}


def shares(metrics: Metrics, max_per_item: int) -> dict[str, float]:
    """The share of the squared distance that users, rows, and the sums (`sum0`, ...) and trees (`tree0`, ...) of each range
    have; what has none is not needed."""
    squared: dict[str, float] = {"users": 0.0, "rows": 0.0}
    users = "rows" if max_per_item == 1 else "users"  # which are the same then
    for metric in metrics.each:
        if metric.of is None:
            squared["rows" if metric.kind == "events" else users] += tuning.COUNT_WEIGHT
            continue
        for of in metric.ranges:
            own = f"{_OWN.get(metric.kind, 'sum')}{metrics.values.index(of)}"
            rows, values = {
                "mean": tuning.MEAN_WEIGHT,
                "variance": tuning.VARIANCE_WEIGHT,
                "quantile": tuning.QUANTILE_WEIGHT,
                "share": tuning.MEAN_WEIGHT,
            }.get(metric.kind, (0.0, 0.0))
            if metric.kind in ("sum", "ratio"):
                rows, values = ((2 * part / of.largest) ** 2 for part in (of.midpoint, of.half))
            squared[users if metric.kind == "share" else "rows"] += rows
            squared[own] = squared.get(own, 0.0) + values
    roots = {name: math.sqrt(value) for name, value in squared.items() if value > 0}
    return {name: root / sum(roots.values()) for name, root in roots.items()}


def make_plan(metrics: Metrics, max_items: int, max_per_item: int, mu: float, relation: Relation) -> MeasuresPlan:
    """The noise of all sums for these bounds, whose distance of neighbours is at most `mu` standard deviations together."""
    parts = shares(metrics, max_per_item)
    kinds = ("flag", "rows", "sum", "tree")
    each = _Parts(*(sum(share for name, share in parts.items() if name.startswith(kind)) for kind in kinds))
    # The squared distance, where one user adds 1 on each key: beyond the rounding of these lines.
    unit = math.sqrt(max_items * _distance(relation, 1.0, each, max_per_item)) / mu * (1 + 1e-9)
    has_rows = "rows" in parts  # else no number of rows is asked for, and none that lack a value
    gaps = {metrics.values.index(metric.of) for metric in metrics.each if metric.kind == "variance" and metric.of}
    found = []
    for name, share in parts.items():
        kind = name.rstrip("0123456789")
        levels = LEVELS if kind == "tree" else 1
        sigma = unit * (1 if kind in ("users", "flag") else max_per_item) * math.sqrt(levels / share)
        value = -1 if kind == name else int(name.removeprefix(kind))
        beside = () if kind != "sum" else VARIANCE_MOMENT if value in gaps else AUXILIARY_MOMENTS
        bits = _bits(sigma) if kind == "sum" else 0
        grid, scale = whole_sigma(sigma, bits)
        if scale >= LARGEST_SCALE:
            raise ParameterError(
                f"a bound of {max_items} keys with {max_per_item} rows each needs more noise than can be sampled: raise "
                "epsilon or lower the bounds"
            )
        found += [Measure(each, value, bits, grid, int(scale)) for each in (kind, *beside)]
        if has_rows and (kind == "sum" or (kind == "tree" and f"sum{value}" not in parts)):
            if kind == "tree":  # on each of whose levels a row without a value is in a part of its own
                grid, scale = whole_sigma(float(scale) / 2**grid / math.sqrt(LEVELS) * (1 + 1e-9), 0)
            found.append(Measure(_MISSING, value, bits, grid, int(scale)))
    plan = MeasuresPlan(max_items, max_per_item, relation, tuple(found))
    if plan.loss() > Fraction(mu) ** 2:
        raise RuntimeError("the noise is not what the budget asks for")  # a bug, and never to be released
    return plan


def has_halves(metrics: Metrics) -> bool:
    """Whether Laplace noise on halves may be taken: a mean is asked for, and all else follows from halves too."""
    kinds = {metric.kind for metric in metrics.each}
    return "mean" in kinds and kinds.issubset(_BY_HALVES)


def make_halves(
    metrics: Metrics, max_items: int, max_per_item: int, epsilon: float, relation: Relation
) -> HalvesPlan | None:
    """Laplace noise of all halves for these bounds, whose l1 distance of neighbours is at most `epsilon` scales; None if that
    is more noise than can be sampled."""
    users = max_per_item > 1 and any(metric.kind == "users" for metric in metrics.each)
    rows = max_per_item * len(metrics.values)
    apart = relation.users * max_items * (users + rows)
    bits = max(LEAST_STEPS.bit_length() - 1, _bits(apart / epsilon))
    coarse = bits - tuning.GAP_STEPS
    steps = relation.users * max_items * ((users + rows << bits) + (rows << coarse))
    scale = math.ceil(Fraction(steps) / Fraction(epsilon))
    if scale >= LARGEST_SCALE:
        return None
    found = [HalfMeasure("users", -1, 0, bits, scale)] if users else []
    for value in range(len(metrics.values)):
        found += [HalfMeasure(kind, value, bits, bits, scale) for kind in HALVES]
        found += [HalfMeasure(kind, value, coarse, coarse, scale) for kind in VARIANCE_MOMENT]
    plan = HalvesPlan(max_items, max_per_item, relation, tuple(found))
    if plan.loss() > Fraction(epsilon):
        raise RuntimeError("the noise is not what the budget asks for")  # a bug, and never to be released
    return plan


def _distance(relation: Relation, own: Real, parts: _Parts[Real], rows: int) -> Real:
    """The squared distance on one key: `own` is what one user adds at most there, with this number of rows, and `parts` are the
    parts of it. Of two users who both have the key, flags may have other signs, and rows may be as many, or as few as one."""
    if relation is Relation.ADD_REMOVE:
        return own
    alike = 4 * parts.values + 2 * parts.trees
    less, more, both = (Fraction(size, rows**2) for size in ((rows - 1) ** 2, (rows + 1) ** 2, rows**2 + 1))
    apart = parts.rows * less + parts.values * more + parts.trees * both
    return max(2 * own, 4 * parts.flags + max(alike, apart))


def _bits(sigma: float) -> int:
    """How finely sums of values are kept, for noise of this size in half ranges."""
    return min(VALUE_BITS, max(_LEAST_BITS, _FAST_BITS - math.ceil(math.log2(sigma))))
