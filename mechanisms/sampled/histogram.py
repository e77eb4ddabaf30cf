"""Histograms without noise: every user is sampled, and items that were not sampled often enough stay hidden.

Guarantee: the released rows are (epsilon, delta)-differentially private for the plan's relation, per user. Each user counts
with at most `max_items` of its distinct items, a uniform choice, once each. An item's users are sampled with
independent coins of probability p, and the item is shown iff theta of them or more were: what is shown is the true number
of sampled users, so that nobody's item cannot appear, and an estimate of all users that follows from it (`estimates`).
Proof: docs/proofs/sampled.md.

Coins are drawn per item and user; with one coin for all of a user's items the guarantee would fail (delta above 5e-4 where
5e-9 is claimed, for ten items). Only the sum of an item's coins matters, Bin(count, p), and that is what is drawn.

Nothing else may be published: neither the number of sampled users in all, nor that of hidden items, nor the number of users,
each of which would give a sampled user away with a probability of about p.

Whatever shows less of a sample than its threshold does, such as heavy hitters at any share, is a function of what is shown at
the threshold: any number of them is one release, if they read one sample. So a sample's random bits depend on what defines it
(`sample_subkey`), and on nothing that is done with it.

The functions are the steps of the Beam pipeline; `SampledHistogramMechanism.run` runs them in a row without Beam, and a
pipeline with the same key, id and name of the sample gives exactly its rows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import arrow_type
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.packing import to_ipc
from headcount.mechanisms.bounding.steps import (
    Step,
    check_bound,
    one_each,
    promise_of,
)
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.counting.evidence import Evidence, Origin
from headcount.mechanisms.counting.noisy import bounded_batches, sums_of
from headcount.mechanisms.counting.released import sorted_counts
from headcount.mechanisms.counting.sums import merge_sums
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.binomial import binomial
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.subkeys import block_key, subkey
from headcount.mechanisms.sampled.estimates import with_estimates
from headcount.mechanisms.sampled.plan import Objective, SamplePlan, calibrate_sample

HISTOGRAM = "SampledHistogram"
MOST_USERS = 10**18


#: The name of a sample that is given none. Samples of other users or items under the same release id need other names.
ONE_SAMPLE = "Sample"


#: The label under which users' choices of their items are drawn, from a sample's own key.
CHOICES = "Choices"
_LABEL = "SampleAndThreshold"


def sample_subkey(key: bytes, release_id: str, sample: str, plan: SamplePlan, of: Mapping[str, Any]) -> bytes:
    """The subkey of one sample: from all that defines it, and nothing else.

    `sample` names whose items are sampled, and `of` says what they are. The promise, the transform, its label and what it shows
    are no part of it: steps that agree on the rest read the same sample, and together publish what one of them might have.
    The threshold is, although no coin is thrown by it: of two samples with one rate, the one with the higher threshold would
    else promise more than both together keep.
    """
    defined = {"sample": sample, "rate": plan.rate, "threshold": plan.threshold, **of}
    return subkey(key, release_id, _LABEL, defined)


class Drawn(Protocol):
    """What is sampled, as a value."""

    def subkey(self, key: bytes, release_id: str, sample: str) -> bytes:
        """The subkey of the sample of that name."""


@dataclasses.dataclass(frozen=True)
class SampleKey:
    """Where the randomness of one sample comes from: a key source, which derives the sample's subkey where it is asked."""

    plan: Drawn
    release: Release
    sample: str

    derived = True

    def fetch(self) -> bytes:
        """The sample's subkey."""
        return self.plan.subkey(self.release.key_source.fetch(), self.release.id, self.sample)

    @property
    def choices(self) -> Release:
        """Where users' choices of their items come from, under the label `CHOICES`: from the sample, as they are part of it."""
        return Release(self, self.release.id, windows=self.release.windows)

    def of_window(self, end: int) -> SampleKey:
        """That of the sample of one window, whose release has an id of its own."""
        return dataclasses.replace(self, release=self.release.of_window(end))


@dataclasses.dataclass(frozen=True)
class SampledHistogramMechanism:
    """A whole sampled histogram as a value. `least` is the number of sampled users from which on an item is reported: the
    plan's threshold, or more, which is post-processing."""

    name: str
    plan: SamplePlan
    max_items: int
    least: int
    item_type: type

    def __post_init__(self) -> None:
        if self.least < self.plan.threshold or self.max_items > self.plan.compositions:
            raise ParameterError(
                f"a plan for {self.plan.compositions} items with the threshold {self.plan.threshold} does not hold for "
                f"{self.max_items} items reported from {self.least} on"
            )

    @property
    def steps(self) -> tuple[Step, ...]:
        """What bounds a user's contribution: a number of distinct items, each counted once."""
        return one_each(self.max_items)

    @property
    def bound(self) -> Bound:
        """What the steps promise of every user, and the plan is made for."""
        return promise_of(self.steps, Bound(), "")

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        steps = sample_steps(self.plan, self.bound)
        if self.least > self.plan.threshold:
            steps += (MechanismStep("report", 0.0, 0.0, {"sampled users, at least": self.least}),)
        plan = self.plan
        return Guarantee(plan.epsilon, plan.delta, plan.relation, steps, losses=plan.losses())

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows item, count, noise_stddev, low, high, sampled, sorted by item, of contribution batches; `label`
        names the sample."""
        return self.reported(self.shown(batches, release, label))

    def summary(self) -> dict[str, int]:
        """About how many users an item needs to be shown."""
        return {"users_needed": max(self.plan.w50, math.ceil(self.least / self.plan.rate))}

    def shown(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The rows item, sampled, sorted by item, that `reported` is made of: as public as they are."""
        key = SampleKey(self, release, label or ONE_SAMPLE)
        bounded = bounded_batches(batches, self.steps, key.choices, CHOICES)
        return self.sampled_counts(*sums_of(bounded), key.fetch())

    def reported(self, shown: pa.RecordBatch, users: int | None = None) -> pa.RecordBatch:
        """What is reported of rows item, sampled, with the estimates of all users; `users` is their number, where that is
        needed."""
        return with_estimates(shown, self.plan.rate, self.least)

    def subkey(self, key: bytes, release_id: str, sample: str) -> bytes:
        """The subkey of the sample of that name. What is reported of it is no part of it."""
        return sample_subkey(key, release_id, sample, self.plan, {"items": self.max_items})

    def sampled_counts(self, chunks: list[bytes], origins: Iterable[Origin], key: bytes) -> pa.RecordBatch:
        """All sums of the histogram as rows item, sampled of what is shown, sorted by item."""
        histogram, digest = merge_sums(chunks, key, self.item_type) if chunks else (None, 0)
        evidence = Evidence.of([digest], origins)
        evidence.check(self.bound)
        if histogram is None:
            return nothing_shown(self.item_type)
        return sorted_counts([to_ipc(sample_sums(histogram, self.plan, self.least, key, evidence))])


def sampled_items(
    budget: Budget, max_items: int, objective: Objective, relation: Relation, item_type: type
) -> SampledHistogramMechanism:
    """The number of users of each item, of whom each counts for at most `max_items`."""
    arrow_type(item_type)
    items = check_bound("max_items", max_items)
    plan = calibrate_sample(budget, objective, relation, items)
    return SampledHistogramMechanism(HISTOGRAM, plan, items, plan.threshold, item_type)


def sample_steps(plan: SamplePlan, bound: Bound, what: str = "items") -> tuple[MechanismStep, ...]:
    """The parts of the guarantee of a mechanism with this plan, in which a user's data is in several `what`."""
    details: dict[str, str | int | float] = {"rate": float(plan.rate), "threshold": plan.threshold}
    if plan.compositions > 1:
        details[f"{what} of a user, each with its own coin"] = plan.compositions
    details |= {"shown with probability 0.5 from": plan.w50, "with 0.95 from": plan.w95}
    bounding = MechanismStep("bounding", 0.0, 0.0, {"a user adds at most": bound.description()})
    return bounding, MechanismStep("sample and threshold", plan.epsilon, plan.delta, details)


def sample_sums(
    histogram: pa.RecordBatch, plan: SamplePlan, least: int, sample_subkey: bytes, evidence: Evidence
) -> pa.RecordBatch:
    """The rows item, sampled of what is shown of one item shard, which `merge_sums` has made.

    A row's lane depends on its item and exact sum, and its key on the digest of the whole histogram: a repeated run draws the
    same sample, and a changed input changes every item's.
    """
    ids = np.stack([np.asarray(histogram.column("lane_hi")), np.asarray(histogram.column("lane_lo"))], axis=1)
    lanes = Lanes(block_key(sample_subkey, evidence.digest.to_bytes(16, "little")), ids)
    sampled = binomial(lanes, np.asarray(histogram.column("sum")), plan.rate)
    shown = np.flatnonzero(sampled >= least)
    return shown_rows(histogram.column("item").take(pa.array(shown)), sampled[shown])


def shown_rows(item: Names, sampled: np.ndarray) -> pa.RecordBatch:
    """Items that are shown, and their sampled users."""
    return pa.RecordBatch.from_pydict({"item": item, "sampled": pa.array(sampled)})


def nothing_shown(item_type: type) -> pa.RecordBatch:
    """Such rows of no item."""
    return shown_rows(pa.array([], arrow_type(item_type)), np.zeros(0, dtype=np.int64))
