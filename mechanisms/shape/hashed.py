"""Anonymized histograms of domains that are too large to list (the paper, Algorithm 2): items are hashed into buckets first.

The error of Algorithm 1 grows with the root of the number of cells. So items are hashed into B buckets, a public number of
about four times the users; Algorithm 1 gives the shape of the buckets, and the collisions are taken out again.

A bucket's count is S = sum over items of count * Bernoulli(1/B). With phi_r items of count r,
ln E z^S = const + sum_r phi_r sum_i (-1)^(i+1) z^(ri) / (i (B-1)^i). The inversion takes the logarithm of the power series of
the buckets' shares, and then the phi from its coefficients, in order. Counts above 4 sqrt(n) are rare, collide
seldom, and stay as they are. This replaces the paper's missing Algorithm 7, and is exact on data without noise.

Guarantee: as that of `anonymized`. A user's item is in one bucket, so that one user moves the buckets by as much as the items.
(Its items may meet in one bucket, which then moves by more than one; the sum, which the noise is for, stays as it is.) The salt
is public: it is drawn before the data is looked at, and privacy does not rest on it. Mode "l2" splits the budget into two
halves, the second for noise on the items' own counts in n^2 cells, whose ranks bound every position (`anonymized`). Cells
beyond the number of items are as good as buckets without a collision, so that nothing is hashed for it.
Proof: docs/proofs/shape.md.

Where all items can be listed and are not more than B, `anonymized_histogram` is better: there are no collisions.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import numpy as np
import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, check_parts
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.bounding.steps import Step, check_bound, one_each
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.checks import check_one_of
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.randomness.subkeys import subkey
from headcount.mechanisms.shape.anonymized import (
    Estimate,
    best_shape,
    check_estimate,
    estimated_shape,
    noise_guarantee,
    noise_parameter,
    noise_plan,
    run_from_tallies,
    shape_rows,
)
from headcount.mechanisms.shape.isotonic import antitonic_l1, clip_to_positions, items_by_count, noise_width
from headcount.mechanisms.shape.rehearsal import rehearsed_errors
from headcount.mechanisms.shape.tallies import MOST_CELLS, Tally, check_cells, make_tally, of_cells
from headcount.mechanisms.shape.tally_noise import noisy_tally

LEAST_BUCKETS_PER_USER = 2

BucketMode = Literal["l1", "l2"]


# The share of empty buckets that the inversion needs.
_LEAST_EMPTY = 0.5

_REASON = (
    "the number of users decides how many buckets there are, and that of the data is private; give a number that is known, "
    "or one that the data will not exceed"
)


@dataclasses.dataclass(frozen=True)
class HashedHistogram:
    """A whole hashed anonymized histogram as a value. `ranks` is the noise of mode "l2" for the items' own counts."""

    name: str
    plan: NoisePlan
    ranks: NoisePlan | None
    max_items: int
    users: int
    buckets: int
    budget: Budget
    estimate: Estimate = "auto"

    def __post_init__(self) -> None:
        plans = [self.plan] if self.ranks is None else [self.plan, self.ranks]
        check_parts(self.budget, *(Budget(plan.epsilon) for plan in plans))

    @property
    def steps(self) -> tuple[Step, ...]:
        """What bounds a user's contribution: a number of distinct items, each counted once."""
        return one_each(self.max_items)

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        what = {"buckets": self.buckets, "users, a public number": self.users}
        steps = [MechanismStep("hashed shape", 0.0, 0.0, what)]
        if self.ranks is not None:
            steps.append(self.ranks.step("noise on every rank"))
        own = noise_guarantee(self.plan, *steps)
        losses = own.losses if self.ranks is None else own.losses + self.ranks.losses()
        return dataclasses.replace(own, epsilon=self.budget.epsilon, losses=losses)

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows count, items, error, sorted by count, of contribution batches."""
        return run_from_tallies(self, batches, release, self.name if label is None else label)

    @property
    def bound(self) -> Bound:
        """What the steps promise of every user."""
        return self.plan.bound

    @property
    def tallied(self) -> tuple[int | None, ...]:
        """Buckets and, in mode "l2", items."""
        return (self.buckets,) if self.ranks is None else (self.buckets, None)

    def released(self, tallies: Sequence[Tally], key: bytes, release_id: str, label: str) -> pa.RecordBatch:
        """The released rows of the tallies of buckets and items."""
        items = tallies[1] if self.ranks is not None else make_tally(np.zeros(0, dtype=np.int64))
        keys = (self.subkey(key, release_id, f"{label}/{part}") for part in ("Shape", "Ranks"))
        return self.shape(tallies[0], items, *keys)

    def subkey(self, key: bytes, release_id: str, label: str) -> bytes:
        """The subkey of a step that draws noise."""
        ranks = None if self.ranks is None else self.ranks.to_json()
        parameters = {"plan": self.plan.to_json(), "ranks": ranks, "buckets": self.buckets, "users": self.users}
        return subkey(key, release_id, label, parameters)

    def notes(self, shape: Tally) -> tuple[str, ...]:
        """What a released shape tells of public numbers that do not fit the data."""
        return crowded(shape, self.buckets)

    def shape(self, buckets: Tally, items: Tally, shape_key: bytes, ranks_key: bytes) -> pa.RecordBatch:
        """The released rows of the tally of all buckets' counts and, in mode "l2", of that of the items' own."""
        samples = self.users * self.max_items
        noisy = noisy_tally(of_cells(buckets, self.buckets), self.plan.scale, shape_key)
        limits = None
        if self.ranks is not None:
            ranked = noisy_tally(of_cells(items, samples**2), self.ranks.scale, ranks_key)
            limits = ranked, noise_width(noise_parameter(self.ranks), samples**2, tuning.MISSED_BY_SHAPE)
        p = noise_parameter(self.plan)
        return shape_rows(*bucket_shape(noisy, p, self.buckets, samples, limits=limits, estimate=self.estimate))


def hashed_histogram(
    budget: Budget,
    *,
    users: int | None,
    buckets: int | None = None,
    mode: BucketMode = "l1",
    max_items: int = 1,
    relation: Relation = Relation.ADD_REMOVE,
    estimate: Estimate = "auto",
) -> HashedHistogram:
    """How many items have which count, for any number of possible items.

    `users` is public: about how many there are. From it follow the buckets, or it from them: four for each item of a user.
    """
    items = check_bound("max_items", max_items)
    if users is None and buckets is not None:
        users = check_cells("buckets", buckets, _REASON) // (tuning.BUCKETS_PER_USER * items)
        if users == 0:
            raise ParameterError(
                f"users with up to {items} items each need {tuning.BUCKETS_PER_USER} buckets for each item of each user, got "
                f"{buckets} buckets for all: give more of them"
            )
    number = check_cells("users", users, _REASON)
    size = check_cells("buckets", tuning.BUCKETS_PER_USER * number * items if buckets is None else buckets, _REASON)
    if size < LEAST_BUCKETS_PER_USER * number * items:
        raise ParameterError(
            f"{number} users with {items} items each need at least {LEAST_BUCKETS_PER_USER * number * items} buckets, got "
            f"{size}: with fewer, collisions cannot be taken out"
        )
    check_one_of("mode", mode, get_args(BucketMode), ": the curator's mode needs no buckets")
    whole = Budget(budget.epsilon)
    if mode == "l1":
        plan = noise_plan(budget, items, relation)
        return HashedHistogram("HashedHistogram", plan, None, items, number, size, whole, check_estimate(estimate))
    if (number * items) ** 2 > MOST_CELLS:
        raise ParameterError(f"mode 'l2' takes at most 2^31 users' items, got {number} users with {items} items each")
    plan, ranks = (noise_plan(part, items, relation) for part in whole.split(1, 1))
    return HashedHistogram("HashedHistogram", plan, ranks, items, number, size, whole, check_estimate(estimate))


def crowded(shape: Tally, buckets: int) -> tuple[str, ...]:
    """What is to be said of a shape with too many items for its buckets."""
    if int(shape.cells.sum()) < _LEAST_EMPTY * buckets:
        return ()
    return (
        f"more than half of the {buckets:,} buckets are in use, too many to take all collisions out: some of the "
        f"counts are those of several items; give about {tuning.BUCKETS_PER_USER} buckets for each item of a user",
    )


def rank_buckets(samples: int) -> int:
    """The buckets of a second hash, n^(3/2) for n samples, whose ranks bound every position in mode "l2".

    Where two items meet, the one with fewer moves the ranks: by the squares of counts, that is at most n^2 / B in the mean over
    all pairs, and so sqrt(n), which the error has anyway. (The paper takes n^2 buckets, in which no two items meet.)
    """
    return math.isqrt(samples**3) + 1


def summed_shape(
    noisy: Tally,
    ranks: Tally | None,
    p: float,
    samples: int | None,
    noises: int = 1,
    mode: BucketMode = "l1",
    estimate: Estimate = "auto",
) -> pa.RecordBatch:
    """The rows count, items, error from the noisy sums of buckets, which is all that the other models have to give.

    `samples` is None where every item has a bucket of its own; then mode "l2" takes the ranks of the buckets themselves, and
    else those of the second hash (`rank_buckets`). `noises` of parameter p are in every sum: each position is brought to within
    a width that all of them keep with probability 0.99.
    """
    buckets = int(noisy.cells.sum())
    ranked = ranks if ranks is not None else noisy
    width = noises * noise_width(p, noises * int(ranked.cells.sum()), tuning.MISSED_BY_SHAPE) if mode == "l2" else None
    if samples is None:
        return shape_rows(*estimated_shape(noisy, p, buckets, noises, width, estimate))
    limits = None if width is None or ranks is None else (ranks, width)
    return shape_rows(*bucket_shape(noisy, p, buckets, samples, noises, limits, estimate))


def bucket_shape(
    noisy: Tally,
    p: float,
    buckets: int,
    samples: int | None,
    noises: int = 1,
    limits: tuple[Tally, int] | None = None,
    estimate: Estimate = "auto",
) -> tuple[Tally, np.ndarray]:
    """The shape behind the noisy tally of all buckets, and by about how much each of its rows is off.

    With a number of `samples` it is that of the items which were hashed; with None that of the buckets, for items that have
    one each. With `limits`, noisy ranks and a width, each position is brought to within it.
    """

    def finished(held: Tally) -> Tally:
        shape = held if samples is None else unhashed(held, buckets, samples)
        return shape if limits is None else clip_to_positions(shape, *limits)

    best, nearest = best_shape(noisy, p, buckets, noises, estimate)
    shape, truth = finished(best), finished(nearest)

    def again(noisy: Tally) -> Tally:
        return finished(best_shape(noisy, p, buckets, noises, estimate)[0])

    return shape, rehearsed_errors(shape, truth, buckets, p, noises, again, thrown=samples is not None)


def unhashed(shape: Tally, buckets: int, samples: int) -> Tally:
    """The shape of the items from the shape of the buckets, for about this number of samples.

    Where half of the buckets or more are in use, there are more users than was said, and collisions are not taken out: an
    error would come after the noise was drawn, and whoever runs the job again pays twice.
    """
    if len(shape.values) == 0:
        return shape
    reach = min(math.ceil(4 * math.sqrt(samples)), int(shape.values[-1]), tuning.FARTHEST_INVERTED)
    near = shape.values <= reach
    share = np.zeros(reach + 1)
    share[shape.values[near]] = shape.cells[near] / buckets
    share[0] = 1 - int(shape.cells.sum()) / buckets
    if share[0] <= _LEAST_EMPTY:
        return shape
    heavy, held = shape.values[~near], shape.cells[~near]
    above = np.append(np.cumsum(held[::-1])[::-1], 0)  # items with at least heavy[i]
    light = np.cumsum(items_from_shares(share, buckets)[:0:-1])[::-1] + above[0]
    ends = np.concatenate([np.arange(1, reach + 1), heavy])
    estimate = np.concatenate([light, above[:-1]])
    fit = antitonic_l1(estimate, np.diff(ends, prepend=0), buckets)
    return items_by_count(ends, fit)


def items_from_shares(share: np.ndarray, buckets: int) -> np.ndarray:
    """phi_r for r = 0 .. len - 1 (phi_0 is 0) from the shares of buckets with count 0, 1, ..: the inverse of hashing.

    First the logarithm of a power series with coefficients share, by s share_s = sum_r r log_r share_(s-r). Then phi from small
    r to large, each taken out of what its own multiples have in the logarithm (beyond three of them it is below 1 / (B-1)^3).
    """
    size = len(share)
    log, weighted = np.zeros(size), np.zeros(size)
    for s in range(1, size):
        log[s] = (share[s] - weighted[1:s] @ share[s - 1 : 0 : -1] / s) / share[0]
        weighted[s] = s * log[s]
    items = np.zeros(size)
    for r in range(1, size):
        items[r] = (buckets - 1) * log[r]
        for i in (2, 3):
            if r * i < size:
                log[r * i] -= items[r] * (-1) ** (i + 1) / (i * float(buckets - 1) ** i)
    return items
