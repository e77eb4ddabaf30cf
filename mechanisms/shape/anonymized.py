"""Anonymized histograms (the paper, Algorithm 1 and its l2 variant; Hay et al. for a trusted curator): the shape of the data.

How many items are held by one user, by two, by three; which items these are is not said. Each user counts with at most
`max_items` of its distinct items, a uniform choice, once each. There are `domain_size` cells, a public number: one for
each item that there could be.

- mode "l1" (Algorithm 1): every cell gets noise, also those that nobody holds; from the noisy tally follows the most likely
  shape (`best_shape`). This is what the shuffle and the pan-private model can do, too.
- mode "l2" (Appendix B): the same, and each position's count is then brought to within a width of the noisy value of its
  rank, a width that all of the noise keeps with probability 0.99.
- mode "central": counts are sorted before the noise, so that the order is known and a regression on it averages the noise
  away: two to thirty times more accurate. Every position gets noise, those of the zeros too: noise on the counts above zero
  alone would publish the exact number of distinct items.

Guarantee: the released rows are epsilon-differentially private for the relation, per user. One user moves the counts of at most
max_items cells, each by one (twice as many if a user is replaced). Sorting counts never increases the l1 distance of two
histograms, nor does it to leave out the smallest. So all modes have the noise of the counts' own sensitivity, and if there are
more items than `domain_size`, the largest counts are kept. To refuse such data would be a leak.
Proof: docs/proofs/shape.md.

What differs from the paper: under ADD_REMOVE the noise has half the scale. The noise of equal counts is drawn together
(`tally_noise`). Its missing Algorithm 5 is `isotonic.antitonic_l1`. The most likely shape is nearer to the truth than the one
nearest to the unbiased numbers: by a fifth where epsilon is 1 and a user is replaced, and by far where it is lower. The l2
variant clips in place of a regression under constraints, which has the same error bound. Sorted counts are brought to the
nearest by distance, not by its square, which halves the error where many items have the same count.

`AnonymizedHistogramMechanism.run` is the mechanism without Beam, and a pipeline with the same key, id and labels gives
its rows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, get_args

import numpy as np
import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.bounding.steps import Step, check_bound, one_each, promise_of
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import calibrate_public_domain
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.checks import check_one_of
from headcount.mechanisms.counting.evidence import Evidence
from headcount.mechanisms.counting.noisy import bounded_batches, sums_of
from headcount.mechanisms.counting.sums import add_sums
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.randomness.subkeys import subkey
from headcount.mechanisms.shape.buckets import release_salt, sums_by_bucket
from headcount.mechanisms.shape.isotonic import clip_to_positions, nearest_shape, noise_width, sorted_fit
from headcount.mechanisms.shape.likelihood import likely_shape
from headcount.mechanisms.shape.rehearsal import rehearsed_errors
from headcount.mechanisms.shape.tallies import Tally, check_cells, l1_distance, make_tally, of_cells
from headcount.mechanisms.shape.tally_noise import noisy_positions, noisy_tally

Mode = Literal["l1", "l2", "central"]

#: What is taken from noisy cells: the paper's own shape, the most likely one, or that one unless it is too far from the first.
Estimate = Literal["auto", "likelihood", "algorithm-1"]
ESTIMATES: tuple[Estimate, ...] = get_args(Estimate)

#: In mode "central" every position is drawn: beyond this they would not fit the memory of a worker.
MOST_POSITIONS = 10**8


# A stddev beyond which rounding to whole numbers does not matter.
_COARSE = 100.0


_REASON = "how many items the data has is private; give the size of the domain, or a number that no data would exceed"


class FromTallies(Protocol):
    """A mechanism of users' bounded contributions that sees no more of them than how many cells have which count."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """What bounds a user's contribution."""

    @property
    def bound(self) -> Bound:
        """What the steps must have promised of every user."""

    @property
    def tallied(self) -> tuple[int | None, ...]:
        """For each tally that it looks at: into how many buckets items are hashed for it, or None if they are not."""

    def released(self, tallies: Sequence[Tally], key: bytes, release_id: str, label: str) -> pa.RecordBatch:
        """The released rows of the tallies of all items' counts, for the transform of this label."""


def run_from_tallies(
    mechanism: FromTallies, batches: Iterable[pa.RecordBatch], release: Release, label: str
) -> pa.RecordBatch:
    """The released rows of contribution batches; refused if the steps do not keep the bound."""
    bounded = bounded_batches(batches, mechanism.steps, release, f"{label}/Bounded")
    chunks, origins = sums_of(bounded)
    Evidence.of([], origins).check(mechanism.bound)
    items, sums = add_sums(chunks) if chunks else (pa.array([], pa.string()), np.zeros(0, dtype=np.int64))
    salt = release_salt(release.id)
    tallies = [
        make_tally(sums if buckets is None else sums_by_bucket(items, sums, salt, buckets)[1])
        for buckets in mechanism.tallied
    ]
    return mechanism.released(tallies, release.key_source.fetch(), release.id, label)


@dataclasses.dataclass(frozen=True)
class AnonymizedHistogramMechanism:
    """A whole anonymized histogram as a value."""

    name: str
    plan: NoisePlan
    max_items: int
    domain_size: int
    mode: Mode
    estimate: Estimate = "auto"
    tallied = (None,)

    @property
    def bound(self) -> Bound:
        """What the steps promise of every user."""
        return self.plan.bound

    @property
    def steps(self) -> tuple[Step, ...]:
        """What bounds a user's contribution: a number of distinct items, each counted once."""
        return one_each(self.max_items)

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        what = {"cells": self.domain_size, "mode": self.mode}
        return noise_guarantee(self.plan, MechanismStep("shape", 0.0, 0.0, what))

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows count, items, error, sorted by count, of contribution batches."""
        return run_from_tallies(self, batches, release, self.name if label is None else label)

    def released(self, tallies: Sequence[Tally], key: bytes, release_id: str, label: str) -> pa.RecordBatch:
        """The released rows of the one tally."""
        return self.shape(tallies[0], self.subkey(key, release_id, f"{label}/Shape"))

    def subkey(self, key: bytes, release_id: str, label: str) -> bytes:
        """The subkey of the step that draws the noise. Not of the estimate: two of them are of the same noisy cells."""
        parameters = {"plan": self.plan.to_json(), "cells": self.domain_size, "mode": self.mode}
        return subkey(key, release_id, label, parameters)

    def notes(self, shape: Tally) -> tuple[str, ...]:
        """What a released shape tells of public numbers that do not fit the data."""
        if int(shape.cells.sum()) < self.domain_size:
            return ()
        return (
            f"all {self.domain_size:,} cells are in use: if there can be more items than this domain size, only those with the "
            "largest counts are here; give a larger one",
        )

    def shape(self, tally: Tally, key: bytes) -> pa.RecordBatch:
        """The released rows of the tally of all items' counts."""
        cells = of_cells(tally, self.domain_size)
        if self.mode == "central":
            return central_shape(noisy_positions(cells, self.plan.scale, key), self.plan.stddev)
        p = noise_parameter(self.plan)
        width = noise_width(p, self.domain_size, tuning.MISSED_BY_SHAPE) if self.mode == "l2" else None
        noisy = noisy_tally(cells, self.plan.scale, key)
        return shape_rows(*estimated_shape(noisy, p, self.domain_size, width=width, estimate=self.estimate))


def anonymized_histogram(
    budget: Budget,
    *,
    domain_size: int,
    mode: Mode = "l1",
    max_items: int = 1,
    relation: Relation = Relation.ADD_REMOVE,
    estimate: Estimate = "auto",
) -> AnonymizedHistogramMechanism:
    """How many items have which count. `domain_size` is public: the number of items that there could be."""
    size = check_cells("domain_size", domain_size, _REASON)
    check_one_of("mode", mode, get_args(Mode))
    if mode == "central" and size > MOST_POSITIONS:
        raise ParameterError(
            f"mode 'central' draws noise for every position, at most {MOST_POSITIONS}, got a domain_size of {size}: give "
            "the largest number of distinct items that is of interest (larger counts come first), or take mode 'l1'"
        )
    if mode == "central" and check_estimate(estimate) != "auto":
        raise ParameterError(
            f"mode 'central' sorts the counts before the noise, and has an estimate of its own, got estimate {estimate!r}: "
            "take mode 'l1' or 'l2'"
        )
    items = check_bound("max_items", max_items)
    plan = noise_plan(budget, items, relation)
    return AnonymizedHistogramMechanism("AnonymizedHistogram", plan, items, size, mode, check_estimate(estimate))


def check_estimate(estimate: Estimate) -> Estimate:
    """The estimate, if it is one."""
    check_one_of("estimate", estimate, ESTIMATES)
    return estimate


def noise_plan(budget: Budget, max_items: int, relation: Relation) -> NoisePlan:
    """The noise of each cell, for users who count once with each of this number of items."""
    bound = promise_of(one_each(max_items), Bound(), "")
    return calibrate_public_domain(budget, bound, relation, "laplace")


def noise_guarantee(plan: NoisePlan, *more: MechanismStep) -> Guarantee:
    """The guarantee of noise on every cell, and of what is computed from it."""
    bounding = MechanismStep("bounding", 0.0, 0.0, {"a user adds at most": plan.bound.description()})
    steps = (bounding, plan.step("noise on every cell"), *more)
    return Guarantee(plan.epsilon, plan.delta, plan.relation, steps, losses=plan.losses())


def noise_parameter(plan: NoisePlan) -> float:
    """p = e^(-1/scale): a noise of k has a probability proportional to p^|k|."""
    return math.exp(-1 / float(plan.scale))


def estimated_shape(
    noisy: Tally,
    p: float,
    most: int,
    noises: int = 1,
    width: int | None = None,
    estimate: Estimate = "auto",
) -> tuple[Tally, np.ndarray]:
    """The shape behind a noisy tally, with at most this number of items, and by about how much each of its rows is off.

    `noises` says how often noise of parameter p was added. With a `width` each position is brought to within it.
    """

    def limited(noisy: Tally, shape: Tally) -> Tally:
        return shape if width is None else clip_to_positions(shape, noisy, width)

    best, nearest = best_shape(noisy, p, most, noises, estimate)
    shape, truth = limited(noisy, best), limited(noisy, nearest)

    def again(noisy: Tally) -> Tally:
        return limited(noisy, best_shape(noisy, p, most, noises, estimate)[0])

    return shape, rehearsed_errors(shape, truth, most, p, noises, again, thrown=False)


def best_shape(noisy: Tally, p: float, most: int, noises: int = 1, estimate: Estimate = "auto") -> tuple[Tally, Tally]:
    """The shape that the estimate takes from a noisy tally; and the one that is nearest to the unbiased numbers.

    The second is that of Algorithm 1, and the paper's bound on the l1 error is for it. "auto" takes the most likely shape,
    unless that is further away from the second than this is from the truth, in the mean, by a factor of
    FARTHEST_LIKELY_SHAPE. So the error of what is taken exceeds that of the second by no more than that.
    """
    nearest, runs = nearest_shape(noisy, p, most, noises)
    if estimate == "algorithm-1":
        return nearest, nearest
    likely = likely_shape(noisy, p, most, noises)
    farthest = tuning.FARTHEST_LIKELY_SHAPE * float(runs.errors.sum())
    near = estimate == "likelihood" or l1_distance(likely, nearest) <= farthest
    return (likely if near else nearest), nearest


def central_shape(noisy: np.ndarray, stddev: float) -> pa.RecordBatch:
    """The rows of a sorted histogram with noise of that stddev on every position: the most likely ones.

    The noise is Laplace's, so that the sum of distances tells the likelihood. (Hay et al. take that of squares, which misplaces
    twice as many items.)
    """
    fit = sorted_fit(noisy)
    shape = make_tally(fit[fit > 0])
    return shape_rows(shape, _central_errors(shape.cells, stddev))


def _central_errors(items: np.ndarray, stddev: float) -> np.ndarray:
    """By how much the counts of the items that share one row are off in sum, roughly.

    Their mean has noise of stddev / sqrt(items), of which rounding leaves what is beyond a half; and at the edge of the row
    about SORTED_MISPLACED * stddev^2 items are taken for one count more or less. As measured on seven distributions, the sum
    over all rows is 0.9 to 1.6 times the true one, and half of it where nobody has any item.

    The first row borders on the zeros, of which there is no end: as many of these may be taken for items as noise can misplace,
    however few are in the row. (Where the sum of log-likelihoods is a random walk that drifts by 1 / (sqrt(2) stddev) a step,
    its maximum is off by 2 to 2.5 times stddev^2, as a root of mean squares.)
    """
    if len(items) == 0:
        return np.zeros(0)
    distinct, place = np.unique(items, return_inverse=True)
    spread = stddev / np.sqrt(distinct)
    rounded = np.array([_rounded_error(each) for each in spread.tolist()])
    errors = np.minimum(
        math.sqrt(2 / math.pi) * spread * distinct, distinct * rounded + tuning.SORTED_MISPLACED * stddev**2
    )[place]
    errors[0] = max(errors[0], tuning.SORTED_MISPLACED * stddev**2)
    return errors


def _rounded_error(stddev: float) -> float:
    """The mean size of a normal error after it was rounded to a whole number."""
    if stddev > _COARSE:  # what rounding changes is then far below 1e-6 of it
        return math.sqrt(2 / math.pi) * stddev
    steps = np.arange(0.5, 9 * stddev + 1).tolist()  # rounding to 1 or more, to 2 or more, ...
    return math.fsum(math.erfc(step / (math.sqrt(2) * max(stddev, 1e-9))) for step in steps)


def shape_rows(shape: Tally, errors: np.ndarray) -> pa.RecordBatch:
    """Released rows: a count, the number of items that have it, and by how much these counts are off in sum."""
    columns = {"count": pa.array(shape.values, pa.int64()), "items": pa.array(shape.cells, pa.int64())}
    return pa.RecordBatch.from_pydict({**columns, "error": pa.array(errors, pa.float64())})
