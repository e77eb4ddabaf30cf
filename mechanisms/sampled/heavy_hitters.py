"""Heavy hitters by sample and threshold: the items that a share of all users have, who are counted if need be.

A sampled histogram shows items from its threshold theta on; of those, the ones whose sampled users are a share phi of p n are
reported, where n is the number of all users. That is post-processing if n is public. It is never that of the data: there are
data sets in which an item is just at the limit, and one user more or less decides. Where nobody knows n, it is counted, by
discrete Laplace noise with a part of epsilon of its own, which the sample has less.

Guarantee: (epsilon, delta)-differential privacy per user under the plan's relation. Users are counted with noise only where
they are added or removed, by basic composition; where they are replaced, their number is public, and must be given.
Proof: docs/proofs/sampled.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.bounding.steps import promise_of
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import calibrate_public_domain
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.counting.noisy import bounded_batches, noisy_counts
from headcount.mechanisms.counting.users import EVERYBODY, EVERYBODY_STEPS, number_of_users, one_row_per_user
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.sampled.estimates import with_estimates
from headcount.mechanisms.sampled.histogram import (
    ONE_SAMPLE,
    SampledHistogramMechanism,
    SampleKey,
    sample_steps,
)

HITTERS = "HeavyHitters"

#: The labels under which all users are brought together and counted, from the sample's own key: so the number is one release
#: with the sample, however many results are read off both.
BOUNDED_USERS, NOISY_USERS = "BoundedUsers", "NoisyUsers"


@dataclasses.dataclass(frozen=True)
class CountedHitters(SampledHistogramMechanism):
    """A sampled histogram of which the items are reported that a share `phi` of all users have, who are counted with noise."""

    phi: Fraction
    users: NoisePlan
    epsilon: float

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        users = self.users.step("number of users")
        report = MechanismStep("report", 0.0, 0.0, {"share of the noisy number of users, at least": float(self.phi)})
        steps = (*sample_steps(self.plan, self.bound), users, report)
        losses = self.plan.losses() + self.users.losses()
        return Guarantee(self.epsilon, self.plan.delta, self.plan.relation, steps, losses=losses)

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows item, count, noise_stddev, low, high, sampled, sorted by item, of contribution batches; `label`
        names the sample."""
        batches, key = list(batches), SampleKey(self, release, label or ONE_SAMPLE)
        return self.reported(self.shown(batches, release, label), self.number(batches, key.choices))

    def number(self, batches: Iterable[pa.RecordBatch], key: Release) -> int:
        """The noisy number of users of contribution batches."""
        everybody = bounded_batches(map(one_row_per_user, batches), EVERYBODY_STEPS, key, BOUNDED_USERS)
        return number_of_users(noisy_counts(everybody, self.users, key, NOISY_USERS, EVERYBODY))

    def reported(self, shown: pa.RecordBatch, users: int | None = None) -> pa.RecordBatch:
        """The released rows of the items that the share of the users have, whose number may be noisy. Post-processing."""
        assert users is not None
        least = max(self.least, _least(self.phi, self.plan.rate, max(users, 0)))
        kept = shown.filter(pa.array(np.asarray(shown.column("sampled")) >= least))
        return with_estimates(kept, self.plan.rate, least)


def hitters_of(
    sample: SampledHistogramMechanism, phi: Fraction, users: int | NoisePlan, epsilon: float
) -> SampledHistogramMechanism:
    """The items of a sample that a share `phi` of all users have: their number is public, or they are counted with this
    noise, where all of it costs `epsilon`."""
    if isinstance(users, NoisePlan):
        fields = {field.name: getattr(sample, field.name) for field in dataclasses.fields(sample)}
        return CountedHitters(**fields | {"name": HITTERS}, phi=phi, users=users, epsilon=epsilon)
    least = max(sample.plan.threshold, _least(phi, sample.plan.rate, users))
    return dataclasses.replace(sample, name=HITTERS, least=least)


def users_noise(budget: Budget) -> NoisePlan:
    """The noise by which users are counted."""
    return calibrate_public_domain(budget, promise_of(EVERYBODY_STEPS, Bound(), ""), Relation.ADD_REMOVE, "laplace")


def _least(share: Fraction, rate: Fraction, users: int) -> int:
    """The sampled users that this share of the users has on average, rounded up."""
    return math.ceil(share * rate * users)
