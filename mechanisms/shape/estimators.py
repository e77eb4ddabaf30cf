"""What follows from a shape: entropy, number of distinct items, and how many a larger sample would bring (the paper, section
5).

Each is a sum over items of g(count), with a g that is fixed by public numbers: the estimators of the literature (plug-in with
Miller and Madow's correction, polynomial, smoothed Good-Toulmin). Two ways to have it private:

- from the rows of an anonymized histogram, which is post-processing and costs nothing; the error is at most the largest step
  of g (its Lipschitz constant) times the l1 error of the shape;
- mode "central": the exact sum with noise for that largest step, which is far more accurate and answers one question only.

Guarantee of mode "central": epsilon-differential privacy for the relation, per user. Proof: g is replaced by whole numbers G(c)
on a grid. Each is computed from c alone (never from where c stands in an array, since vectorised logarithms need not give the
same number twice), so that items whose count is the same in two neighbours add exactly the same. The others, at most users *
max_items of them, change by one, and move the sum by at most the largest |G(c + 1) - G(c)| each. The noise is discrete Laplace
on the same grid. `Estimator.step` is that largest step: for what stands in the table its exact maximum. For the tail of the
entropy, -x ln x is concave, so that its steps are at most ln(n)/n in size where it rises and 1/n where it falls. Rounding to
the grid adds at most 1, and the error of the float 2^-48 of 1/2, for each of both. Where the number of samples n is private it
is counted first, with a share of epsilon, and everything else uses that noisy number. A guard lowers the degree or the
smoothing until the largest step is small enough for the accuracy asked for. Proof: docs/proofs/shape.md.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from fractions import Fraction
from typing import Literal, Protocol, get_args

import numpy as np

from headcount.mechanisms import tuning
from headcount.mechanisms.checks import check_one_of, check_share, check_whole
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.shape.tallies import Tally

EntropyKind = Literal["plug-in", "miller-madow", "polynomial"]

#: The largest number of samples that estimators are made for.
MOST_SAMPLES = 10**15

#: The most by which counts may be off in sum, for an answer to say anything.
MOST_SPREAD = 2.0**30

# The largest step of g is about 2^26 grid units: the rounding of ten million items' values then adds up to less than a tenth
# of the step, which is less than the noise. Where counts are off by more than 2^8 in sum, fewer units are enough, and more
# would exceed the largest scale of the noise.
_STEP_BITS, _SPREAD_BITS = 26, 8


# With this many times more samples, extrapolation without its full smoothing says nothing any more.
_FARTHEST = 3


@dataclasses.dataclass(frozen=True)
class Estimator:
    """A sum of G(count) over items, in units of 2^-grid, plus a constant.

    `table` has G(c) for small c. Beyond it, on the grid: for the entropy -x ln x + `extra` with x = c / samples; with a
    `ratio` t, 1 - (-t)^c; with neither, 1. Counts above `samples` are taken for `samples`. `step` is the largest
    |G(c+1) - G(c)|.
    """

    samples: int
    grid: int
    table: tuple[int, ...]
    step: int
    extra: float | None = None
    ratio: float | None = None
    constant: float = 0.0

    def on_grid(self, count: int) -> int:
        """G(count), which depends on the count alone."""
        count = min(count, self.samples)
        if count < len(self.table):
            return self.table[count]
        if self.extra is not None:
            return _rounded(_plug_in(count, self.samples) + self.extra, self.grid)
        return _rounded(1.0 if self.ratio is None else 1 - (-self.ratio) ** count, self.grid)

    def exact(self, tally: Tally) -> int:
        """The sum over a tally of counts, in grid units."""
        return sum(self.on_grid(v) * m for v, m in zip(tally.values.tolist(), tally.cells.tolist(), strict=True))

    def value(self, units: int) -> float:
        """A sum in grid units as the estimate."""
        return float(Fraction(units, 1 << self.grid)) + self.constant

    @property
    def lipschitz(self) -> float:
        """By how much the estimate moves, at most, if one count moves by one."""
        return self.step / 2.0**self.grid


class TooFarError(ParameterError):
    """A sample so much larger than the one at hand that nothing can be said of it."""


class Question(Protocol):
    """What is asked of a shape."""

    @property
    def name(self) -> str:
        """Its name in the result."""

    def estimator(self, samples: int, spread: float) -> Estimator:
        """The estimator for this number of samples, whose error is to stay small if counts are off by `spread` in sum.

        `TooFarError` if there is none.
        """

    def limited(self, value: float, samples: int, distinct: int | None = None) -> float:
        """The estimate within what is possible for this number of samples and, if it is known, of distinct items."""

    def per_sample(self, value: float, samples: int) -> float:
        """By how much an estimate of this value moves, at most or about, if there were one sample more."""


@dataclasses.dataclass(frozen=True)
class EntropyQuestion:
    """The Shannon entropy, in nats, of the distribution that the counts are samples of."""

    kind: EntropyKind = "polynomial"
    accuracy: float = 0.1
    name = "entropy"

    def __post_init__(self) -> None:
        check_one_of("kind", self.kind, get_args(EntropyKind))
        object.__setattr__(self, "accuracy", float(check_share("accuracy", self.accuracy)))

    def estimator(self, samples: int, spread: float) -> Estimator:
        """By the polynomial, of the highest degree for which noise costs at most half of the accuracy; else the others."""
        if self.kind == "plug-in":
            return plug_in_entropy(samples, 0.0, spread)
        if self.kind == "polynomial":
            for degree in range(max(2, int(tuning.ENTROPY_DEGREE * math.log(samples))), 1, -1):
                made = polynomial_entropy(samples, degree, spread)
                if made.lipschitz * spread <= self.accuracy / 2:
                    return made
        return plug_in_entropy(samples, 0.5, spread)

    def limited(self, value: float, samples: int, distinct: int | None = None) -> float:
        return max(value, 0.0)

    def per_sample(self, value: float, samples: int) -> float:
        return abs(1 - value) / samples  # the derivative of the plug-in


@dataclasses.dataclass(frozen=True)
class DistinctQuestion:
    """How many distinct items the samples have."""

    name = "distinct items"

    def estimator(self, samples: int, spread: float) -> Estimator:
        """One for each item."""
        return _coverage_table(samples, 0.0, None, spread)

    def limited(self, value: float, samples: int, distinct: int | None = None) -> float:
        return max(value, 0.0)

    def per_sample(self, value: float, samples: int) -> float:
        return 0.0


@dataclasses.dataclass(frozen=True)
class CoverageQuestion:
    """How many distinct items `target` samples would have; without a target, twice as many as there are."""

    target: int | None = None
    accuracy: float = 0.1
    name = "support coverage"

    def __post_init__(self) -> None:
        if self.target is not None:
            object.__setattr__(self, "target", check_whole("target", self.target, 1, MOST_SAMPLES))
        object.__setattr__(self, "accuracy", float(check_share("accuracy", self.accuracy)))

    def samples(self, samples: int) -> int:
        """How many samples are asked about, where there is this number of them."""
        return 2 * samples if self.target is None else self.target

    def estimator(self, samples: int, spread: float) -> Estimator:
        """With the most smoothing's steps for which noise costs at most half of the accuracy times the target."""
        return coverage(samples, self.samples(samples), spread, self.accuracy)

    def limited(self, value: float, samples: int, distinct: int | None = None) -> float:
        target = self.samples(samples)
        least, most = 0, target
        if distinct is not None:
            least, most = (distinct, target) if target >= samples else (0, min(target, distinct))
        return min(max(value, float(least)), float(max(least, most)))

    def per_sample(self, value: float, samples: int) -> float:
        # The estimate depends on target / samples alone, and so much more of it brings no more items than samples.
        return 0.0 if self.target is None else self.target / samples


@dataclasses.dataclass(frozen=True)
class SupportQuestion:
    """How many items there are, if each has a probability of at least 1 / `most`: that many samples see nearly all."""

    most: int
    accuracy: float = 0.1
    name = "support size"

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", check_whole("most", self.most, 1, MOST_SAMPLES))
        object.__setattr__(self, "accuracy", float(check_share("accuracy", self.accuracy)))

    @property
    def target(self) -> int:
        """The number of samples after which an item is missed with probability accuracy / 3."""
        return math.ceil(self.most * math.log(3 / self.accuracy))

    def estimator(self, samples: int, spread: float) -> Estimator:
        """That of the coverage at the target; its error is to be at most the accuracy times `most`."""
        return coverage(samples, self.target, spread, self.accuracy * self.most / self.target)

    def limited(self, value: float, samples: int, distinct: int | None = None) -> float:
        return min(max(value, float(distinct or 0)), float(self.most))

    def per_sample(self, value: float, samples: int) -> float:
        return self.target / samples  # as for the coverage


def plug_in_entropy(samples: int, correction: float, spread: float = 0.0) -> Estimator:
    """-sum x ln x with x = count / samples; plus correction * (distinct items - 1) / samples (Miller, Madow: 1/2)."""
    extra = correction / samples
    grid = _grid(max(math.log(samples), 1.0) / samples, spread)
    return _with_tail(samples, grid, (0,), extra, -extra)


def polynomial_entropy(samples: int, degree: int, spread: float = 0.0) -> Estimator:
    """-sum x ln x, where x is small by the unbiased estimate of a polynomial near it, else by plug-in + 1 / (2 samples).

    The polynomial interpolates -y ln y on [0, 1] at Chebyshev's nodes, with y = x / width; y^m is estimated by the falling
    factorial c (c-1) .. (c-m+1) / (samples * width)^m, which has no bias under Poisson sampling.
    """
    from numpy.polynomial import Chebyshev, Polynomial

    log = max(math.log(samples), 1.0)
    width = min(tuning.ENTROPY_INTERVAL * log / samples, 1.0)

    def target(y: np.ndarray) -> np.ndarray:
        return -y * np.log(np.maximum(y, 1e-300))

    coefficients = Chebyshev.interpolate(target, degree, domain=[0, 1]).convert(kind=Polynomial).coef.tolist()
    coefficients += [0.0] * (degree + 1 - len(coefficients))
    coefficients[0] = 0.0  # an item that nobody has adds nothing
    coefficients[1] -= math.log(width)  # -x ln x = width (-y ln y - y ln width)
    grid = _grid(log / samples, spread)
    table = []
    for count in range(int(tuning.ENTROPY_CUT * log) + 1):
        total, power = 0.0, 1.0
        for m in range(1, degree + 1):
            power *= (count - m + 1) / (samples * width)
            total += coefficients[m] * power
        table.append(_rounded(width * total, grid))
    return _with_tail(samples, grid, tuple(table), 0.5 / samples, 0.0)


def coverage(samples: int, target: int, spread: float, accuracy: float) -> Estimator:
    """The smoothed Good-Toulmin estimator of the number of distinct items among `target` samples.

    g(c) = 1 - (-t)^c P[L >= c] with t = target / samples - 1 and, for t > 1, L ~ Bin(k, 1 / (1 + t)) with
    k = floor(log2(samples t^2 / (t - 1)) / 2). The guard takes a smaller k if noise would cost more than half the accuracy. For
    t from 0 to 1, k = 10: without it, which would have no bias, items of many users would count 0 or 2 for twice the samples,
    by the parity of their count. An item of 20 expected users then has a variance of 1; it has 0.0001 so, and the bias is at
    most 0.0001 an item, for every expected count and t. For t below 0 nothing alternates, and L is infinite.
    """
    t = Fraction(target, samples) - 1
    if t <= 1:
        return _coverage_table(samples, float(t), tuning.COVERAGE_SMOOTHING if t > 0 else None, spread)
    full = max(0, int(math.log2(samples * float(t) ** 2 / (float(t) - 1)) / 2))
    for k in range(full, -1, -1):
        with contextlib.suppress(OverflowError):  # so steep that no float holds it: far too steep
            made = _coverage_table(samples, float(t), k, spread)
            if made.lipschitz * spread <= accuracy * target / 2:
                break
    if k < full and t > _FARTHEST:
        raise TooFarError(
            f"{target} samples are more than {_FARTHEST + 1} times the {samples} there are, too far for an accuracy of "
            f"{accuracy:.3g} with this noise: ask for fewer, raise epsilon, or take mode 'central'"
        )
    return made


def _coverage_table(samples: int, t: float, k: int | None, spread: float) -> Estimator:
    grid = _grid(1.0, spread)
    if k is None:  # the steps are (1 + t) |t|^c, the first the largest; 2 for the rounding of both and their floats
        return Estimator(samples, grid, (0,), _rounded(1 + t, grid) + 2, ratio=t)
    q = 1 / (1 + t)
    masses = [math.comb(k, j) * q**j * (1 - q) ** (k - j) for j in range(k + 1)]
    table = [0] + [_rounded(1 - (-t) ** c * math.fsum(masses[c:]), grid) for c in range(1, k + 1)] + [1 << grid]
    step = max(abs(after - before) for before, after in zip(table, table[1:], strict=False))
    return Estimator(samples, grid, tuple(table), step)


def _with_tail(samples: int, grid: int, table: tuple[int, ...], extra: float, constant: float) -> Estimator:
    """An entropy's estimator with its largest step: exactly in the table and into the tail, by the bound beyond."""
    made = Estimator(samples, grid, table, 0, extra=extra, constant=constant)
    steps = [abs(made.on_grid(c + 1) - made.on_grid(c)) for c in range(len(table))]
    first = len(table)  # from here on, x ln x is steepest at once or at the end
    rise = max(-math.log(first / samples), 1.0) / samples if first < samples else 0.0
    # 1 for the rounding of both, and 2^-48 for the floats of both, which are at most 1/2 + extra < 1 in size.
    steps.append(math.ceil(rise * (1 + 2.0**-40) * 2**grid) + 1 + math.ceil(2.0 ** (grid - 47)))
    return dataclasses.replace(made, step=max(steps))


def _plug_in(count: int, samples: int) -> float:
    """-x ln x by one scalar logarithm: a function of the count alone."""
    return -(count / samples) * math.log(count / samples) if count else 0.0


def _rounded(value: float, grid: int) -> int:
    return round(Fraction(value) * (1 << grid))


def _grid(step: float, spread: float) -> int:
    """The bits of a grid on which a step has about 2^26 units, or fewer where counts are off by many in sum."""
    excess = math.ceil(math.log2(max(min(spread, MOST_SPREAD), 1.0))) - _SPREAD_BITS
    return _STEP_BITS - max(0, excess) - min(0, math.floor(math.log2(step)))
