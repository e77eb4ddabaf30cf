"""Heavy hitters by sample and threshold: the items that a share of all users have, who are counted if need be.

A sampled histogram shows items from its threshold theta on; of those, the ones whose sampled users are a share phi of p n are
reported, where n is the number of all users. That is post-processing if n is public. It is never that of the data: there are
data sets in which an item is just at the limit, and one user more or less decides. Where nobody knows n, it is counted, by
discrete Laplace noise with a part of epsilon of its own, which the sample has less.

Guarantee: (epsilon, delta)-differential privacy per user under the plan's relation. Users are counted with noise only where
they are added or removed, by basic composition; where they are replaced, their number is public, and must be given.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pyarrow as pa

from headcount.mechanisms.accounting.bound import Bound
from headcount.mechanisms.accounting.budget import USERS_SHARE, Budget
from headcount.mechanisms.accounting.calibration import NoisePlan, calibrate_public_domain
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.bounding.steps import promise_of
from headcount.mechanisms.checks import check_share, check_whole
from headcount.mechanisms.counting.noisy import bounded_batches, noisy_counts
from headcount.mechanisms.counting.users import EVERYBODY, EVERYBODY_STEPS, number_of_users, one_row_per_user
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.sampled.histogram import (
    MOST_USERS,
    ONE_SAMPLE,
    SampledHistogramMechanism,
    SampleKey,
    sample_steps,
    sampled_histogram,
)
from headcount.mechanisms.sampled.plan import Objective

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
        users = MechanismStep.of_plan("number of users", self.users)
        report = MechanismStep("report", 0.0, 0.0, {"share of the noisy number of users, at least": float(self.phi)})
        steps = (*sample_steps(self.plan, self.bound), users, report)
        return Guarantee(self.epsilon, self.plan.delta, self.plan.relation, steps)

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows item, count, noise_stddev, sampled, sorted by item, of contributions; `label` names the sample."""
        batches, key = list(batches), SampleKey(self, release, label or ONE_SAMPLE).choices
        everybody = bounded_batches(map(one_row_per_user, batches), EVERYBODY_STEPS, key, BOUNDED_USERS)
        users = number_of_users(noisy_counts(everybody, self.users, key, NOISY_USERS, EVERYBODY))
        return self.reported(super().run(batches, release, label), users)

    def reported(self, rows: pa.RecordBatch, users: int) -> pa.RecordBatch:
        """The released rows of the items that the share of so many users have, who may be noisy. Post-processing."""
        least = _least(self.phi, self.plan.rate, max(users, 0))
        return rows.filter(pa.array(np.asarray(rows.column("sampled")) >= least))


def heavy_hitters(
    budget: Budget,
    phi: float,
    *,
    users: int | None = None,
    max_items: int = 1,
    objective: Objective = "w95",
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
    users_share: float | None = None,
) -> SampledHistogramMechanism:
    """The items that a share `phi` of all `users` have, by their sampled number: a higher threshold on the sample that
    `sampled_histogram` has for the same budget, items, objective and relation.

    So they and any number of shares together are one release, if release and sample are the same. `users` is public, or None:
    then users are counted, by `users_share` of epsilon (default: a tenth), and the sample is that of the rest of the budget.
    The exact number of the data's users is not public.
    """
    share = check_share("phi", phi, "share")
    if users is not None:
        users = check_whole("users", users, 1, MOST_USERS)
        if users_share is not None:
            raise ParameterError(f"users_share is of no use where users is given, got {users_share!r}: leave one out")
        histogram = sampled_histogram(
            budget, max_items=max_items, objective=objective, relation=relation, item_type=item_type
        )
        least = max(histogram.plan.threshold, _least(share, histogram.plan.rate, users))
        return dataclasses.replace(histogram, name="HeavyHitters", least=least)
    if Relation.parse(relation) is Relation.REPLACE:
        raise ParameterError(
            "replacing a user leaves the number of users as it is, so that it must be public: give users, the number of all "
            "users"
        )
    own = check_share("users_share", USERS_SHARE if users_share is None else users_share, "share")
    counted, rest = budget.split(own.numerator, own.denominator - own.numerator, delta=(0, 1))
    noise = calibrate_public_domain(counted, promise_of(EVERYBODY_STEPS, Bound(), ""), Relation.ADD_REMOVE, "laplace")
    made = sampled_histogram(rest, max_items=max_items, objective=objective, relation=relation, item_type=item_type)
    fields = {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}
    return CountedHitters(**fields | {"name": "HeavyHitters"}, phi=share, users=noise, epsilon=budget.epsilon)


def _least(share: Fraction, rate: Fraction, users: int) -> int:
    """The sampled users that such a share of so many users has on average, rounded up."""
    return math.ceil(share * rate * users)
