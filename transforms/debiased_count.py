"""`DebiasedCount` (paper 000, Algorithm 5): totals of given items, with the bias of the cap taken out."""

from __future__ import annotations

from collections.abc import Iterable

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.calibration import NoisePlan
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.counting.users import EVERYBODY, EVERYBODY_STEPS, number_of_users, one_row_per_user
from headcount.mechanisms.histogram.debiased import CountPlan, debiased_count
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.bounding import Bounded
from headcount.transforms.core.contributions import ContributionBatch, as_contributions
from headcount.transforms.core.domain import OnlyDomain
from headcount.transforms.core.rows import ToRows, count_row
from headcount.transforms.core.user_shards import check_shards
from headcount.transforms.histogram import NoisyCounts


class DebiasedCount(beam.PTransform):
    """How often users did an item, or each of a few, with what the cap on a user takes away estimated and added again.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`; delta is 0 with Laplace noise. The input
    is the rows of *all* items, since users without the given ones count too: their number is `users` if it is public
    (needed under REPLACE), else it is counted, by `users_share` of epsilon. The items are public, given by the caller.
    The result is as for `BoundedHistogram`; `stddev` is that of the estimate, for the noise alone.
    """

    def __init__(
        self,
        budget: Budget,
        items: str | int | Iterable[str] | Iterable[int],
        max_per_item: int,
        users: int | None = None,
        users_share: float | None = None,
        max_items: int | None = None,
        largest_mean: float | None = None,
        noise: str = "auto",
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type = str,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        super().__init__()
        self.plan = debiased_count(
            budget,
            items,
            max_per_item,
            users,
            users_share,
            max_items,
            largest_mean,
            noise,
            Relation.parse(relation),
            item_type,
        )
        plan, count = self.plan, 1 if output_files is None else output_files
        self._shards, self._output_files, self._release = check_shards(shards), output_files, release
        self._counts = self._noisy_counts(plan.noise, plan.items, item_type, count)
        self._users = self._noisy_counts(plan.users, EVERYBODY, str, 1) if isinstance(plan.users, NoisePlan) else None

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self.plan.guarantee()

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        plan = self.plan
        contributions = as_contributions(rows)  # record batches
        counts = (
            contributions
            | "OnlyDomain" >> OnlyDomain(plan.items)
            | "Bounded" >> Bounded(plan.steps, self._release, self._shards)
            | "NoisyCounts" >> self._counts
        )  # (file, capped totals), beyond a barrier
        users: int | beam.pvalue.AsSingleton | NoisePlan = plan.users
        if self._users is not None:
            users = beam.pvalue.AsSingleton(
                contributions
                | "OneRowPerUser" >> beam.Map(one_row_per_user).with_output_types(ContributionBatch)
                | "BoundedUsers" >> Bounded(EVERYBODY_STEPS, self._release, self._shards)
                | "NoisyUsers" >> self._users  # (0, one count), beyond a barrier
                | "NumberOfUsers" >> beam.MapTuple(_number_of_users).with_output_types(int)
            )
        # All from here on works on released numbers only.
        debiased = counts | "Debias" >> beam.Map(_debiased, plan, users).with_output_types(tuple[int, pa.RecordBatch])
        if self._output_files is not None:
            return debiased
        return debiased | "ToRows" >> ToRows(count_row(plan.item_type))

    def _noisy_counts(self, plan: NoisePlan, domain: Names, item_type: type, output_files: int) -> NoisyCounts:
        """The step that adds the noise of a plan to the totals of a few items."""
        return NoisyCounts(
            Budget(plan.epsilon, plan.delta),
            plan.bound,
            domain.to_pylist(),
            plan.kind,
            plan.relation,
            self._release,
            item_type,
            shards=min(self._shards, len(domain)),
            output_files=output_files,
        )


def _number_of_users(file: int, counts: pa.RecordBatch) -> int:
    return number_of_users(counts)


def _debiased(file: tuple[int, pa.RecordBatch], plan: CountPlan, users: int) -> tuple[int, pa.RecordBatch]:
    number, counts = file
    return number, plan.debiased(counts, users)
