"""`DebiasedCount` (the paper, Algorithm 5): the totals of given items, with the bias of the cap taken out."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import Domain
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.counting.users import (
    EVERYBODY,
    EVERYBODY_STEPS,
    number_of_users,
    one_row_per_user,
)
from headcount.mechanisms.histogram.fixed import HistogramMechanism
from headcount.mechanisms.histogram.papers.debiased import CountPlan, debiased_count
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.bounding import Bounded
from headcount.transforms.core.base import PrivateTransform
from headcount.transforms.core.contributions import ContributionBatch, as_contributions
from headcount.transforms.core.domain import OnlyDomain
from headcount.transforms.core.rows import estimate_row
from headcount.transforms.histogram import NoisyCounts
from headcount.transforms.keyed.domain import given_items


class DebiasedCount(PrivateTransform):
    """How often users did an item, or each of a few, with what the cap on a user takes away estimated and added again.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`; delta is 0 with Laplace noise. The input
    is the rows of *all* items, since users without the given ones count too. The result is `Estimate` rows
    (`IntEstimate` with `item_type=int`).

    Parameters:
        budget: what all of it may cost.
        items: the item or items to count: public, given by the caller; tuples where the key has several columns.
        max_per_item: the events of one user on one item that count. Less takes less noise, and leaves more to estimate.
        users: how many users there are, if that is public, which "replace" needs (default: None, they are counted).
        users_share: the share of epsilon that counting them takes (default: a tenth). Only where they are counted.
        max_items: how many of the items one user may count for (default: None, all of them). Less takes less noise.
        largest_mean: the events of a user on an item, on average, that an estimate may come to (default: twice the cap).
            Less limits what noise does to a total near the cap, and cuts off items with more.
        noise: "laplace", "gaussian", or "auto" (default), the one with less of it.
        relation, release, item_type, shards, output_files: as for `Histogram`.
    """

    mechanism: CountPlan
    _domain_field = "items"

    def __init__(
        self,
        budget: Budget,
        items: Any,
        *,
        max_per_item: int,
        users: int | None = None,
        users_share: float | None = None,
        max_items: int | None = None,
        largest_mean: float | None = None,
        noise: str = "auto",
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        given = given_items(item_type, [items] if isinstance(items, str | int | tuple) else items)
        plan = debiased_count(
            budget,
            given.domain,
            max_per_item=max_per_item,
            users=users,
            users_share=users_share,
            max_items=max_items,
            largest_mean=largest_mean,
            noise=noise,
            relation=Relation.parse(relation),
            item_type=given.made,
        )
        super().__init__(plan, release=release, shards=shards, output_files=output_files, items=given)

    def _expand(self, rows: beam.PCollection) -> beam.PCollection:
        plan = self.mechanism
        noisy = self._noisy_counts(plan.noise, plan.items, plan.item_type, self._output_files or 1)
        contributions = as_contributions(rows)  # record batches
        counts = (
            contributions
            | "OnlyDomain" >> OnlyDomain(plan.items)
            | "Bounded" >> Bounded(plan.steps, self._release, self._shards)
            | "NoisyCounts" >> noisy
        )  # (file, capped totals), beyond a barrier
        users: int | beam.pvalue.AsSingleton | NoisePlan = plan.users
        if isinstance(plan.users, NoisePlan):
            noisy_users = self._noisy_counts(plan.users, EVERYBODY, str, 1)
            users = beam.pvalue.AsSingleton(
                contributions
                | "OneRowPerUser" >> beam.Map(one_row_per_user).with_output_types(ContributionBatch)
                | "BoundedUsers" >> Bounded(EVERYBODY_STEPS, self._release, self._shards)
                | "NoisyUsers" >> noisy_users  # (0, one count), beyond a barrier
                | "NumberOfUsers" >> beam.MapTuple(_number_of_users).with_output_types(int)
            )
        # All from here on works on released numbers only.
        debiased = counts | "Debias" >> beam.Map(_debiased, plan, users).with_output_types(tuple[int, pa.RecordBatch])
        return self._shown(debiased, estimate_row(plan.item_type))

    def _noisy_counts(self, plan: NoisePlan, domain: Domain, item_type: type, output_files: int) -> NoisyCounts:
        """The step that adds the noise of a plan to the totals of a few items."""
        how = {"release": self._release, "shards": min(self._shards, len(domain)), "output_files": output_files}
        return _Inner(plan, domain, item_type, **how)


class _Inner(NoisyCounts):
    """Noisy counts by name, which are no result yet, with a plan as it is: its bound may be one of differences, for which
    `NoisyCounts` would calibrate other noise."""

    def __init__(self, plan: NoisePlan, domain: Domain, item_type: type, **how: Any) -> None:
        made = HistogramMechanism("NoisyCounts", (), plan, domain, item_type)
        PrivateTransform.__init__(self, made, items=given_items(item_type, domain), **how)

    def expand(self, bounded: beam.PCollection) -> beam.PCollection:
        return self._expand(bounded)


def _number_of_users(file: int, counts: pa.RecordBatch) -> int:
    return number_of_users(counts)


def _debiased(file: tuple[int, pa.RecordBatch], plan: CountPlan, users: int) -> tuple[int, pa.RecordBatch]:
    number, counts = file
    return number, plan.debiased(counts, users)
