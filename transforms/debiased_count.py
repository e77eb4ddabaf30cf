"""Totals: `Total`, how many users and events there are, and `DebiasedCount` (the paper, Algorithm 5), the totals of given items
with the bias of the cap taken out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import Domain
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.choice.protocol import DecidedBound
from headcount.mechanisms.counting.quality import Quality
from headcount.mechanisms.counting.users import (
    EVERYBODY,
    EVERYBODY_STEPS,
    all_as_one,
    number_of_users,
    one_row_per_user,
)
from headcount.mechanisms.histogram.auto import AutoHistogramMechanism, Decided
from headcount.mechanisms.histogram.fixed import HistogramMechanism
from headcount.mechanisms.histogram.papers.debiased import CountPlan, debiased_count
from headcount.mechanisms.histogram.total import OF, TotalPlan, TotalRow, total, total_row, total_rows
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.bounding import Bounded
from headcount.transforms.core.base import PrivateTransform
from headcount.transforms.core.contributions import ContributionBatch, as_contributions
from headcount.transforms.core.domain import OnlyDomain
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.rows import TotalCount, estimate_row, in_first
from headcount.transforms.histogram import Histogram, NoisyCounts
from headcount.transforms.keyed.domain import given_items


class Total(PrivateTransform):
    """How many users and how many events there are, of all rows or of those on given items together.

    Guarantee: user-level epsilon-differential privacy under `relation`, delta 0. Each user counts once, and with its events up
    to a bound, which is chosen privately or given. The result is a `TotalCount` row for each of `of`. The number of users is
    right up to its noise. Events beyond the bound are missing: their true number is `low` or more. `with_decision()` gives the
    bound and the guarantee beside, where it is chosen.

    Parameters:
        budget: what all of it may cost.
        of: "users", "events", or both (default); of both, the users take a tenth of epsilon.
        domain: the public items whose rows count, as for `Histogram` (default: None, all rows).
        bound: the events of one user that count (default: "auto", chosen by a fifth of the events' epsilon).
        relation, release, item_type, shards, output_files: as for `Histogram`.
    """

    mechanism: TotalPlan

    def __init__(
        self,
        budget: Budget,
        *,
        of: str | Sequence[str] = OF,
        domain: Any = None,
        bound: int | Literal["auto"] = "auto",
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        relation, items = Relation.parse(relation), given_items(item_type, domain)
        plan = total(budget, of=of, domain=items.domain, bound=bound, relation=relation, item_type=items.made)
        super().__init__(plan, release=release, shards=shards, output_files=output_files, items=items)

    def _given(self) -> str | None:
        return None if isinstance(self.mechanism.events, AutoHistogramMechanism) else "the bound is"

    def _expand(self, rows: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        release, _ = self._drawn(rows)
        plan, decision, found = self.mechanism, None, []
        contributions = as_contributions(rows)  # record batches
        if plan.domain is not None:
            contributions = contributions | "OnlyDomain" >> OnlyDomain(plan.domain)
        one = contributions | "AllAsOne" >> beam.Map(all_as_one).with_output_types(ContributionBatch)
        for of, part in plan.parts():
            name, counted = of.capitalize(), _OneTotal(part, release, self._shards)
            numbers: NoisePlan | beam.pvalue.AsSingleton
            if isinstance(part, AutoHistogramMechanism):
                counts, decision = one | name >> counted.with_decision()
                numbers = beam.pvalue.AsSingleton(decision)
            else:
                counts, numbers = one | name >> counted, part.plan
            row = beam.Map(_total_row, of, numbers).with_output_types(beam.typehints.Tuple[int, TotalRow])
            found.append(counts | f"{name}Row" >> row)  # counts are beyond a barrier
        batch = (
            found
            | "AllRows" >> beam.Flatten()
            | "Gather" >> beam.GroupByKey()
            | "InFirst"
            >> beam.FlatMap(_in_first, self._output_files or 1).with_output_types(tuple[int, pa.RecordBatch])
        )
        shown = self._shown(batch, TotalCount)
        if decision is None:
            return shown
        return self._result(shown, decision | "Decided" >> beam.Map(plan.decided).with_output_types(DecidedBound))


class _OneTotal(Histogram):
    """The wiring of a `Histogram` for a part of a total: (0, the one count), beyond a barrier."""

    def __init__(self, mechanism: HistogramMechanism | AutoHistogramMechanism, release: Release, shards: int) -> None:
        PrivateTransform.__init__(self, mechanism, release=release, shards=shards, output_files=1)
        self._quality = Quality()  # one number, whatever its noise


def _total_row(counts: tuple[int, pa.RecordBatch], of: str, numbers: NoisePlan | Decided) -> tuple[int, TotalRow]:
    return 0, total_row(of, counts[1], numbers if isinstance(numbers, NoisePlan) else numbers.plan)


def _in_first(found: tuple[int, Iterable[TotalRow]], output_files: int) -> Iterable[tuple[int, pa.RecordBatch]]:
    return in_first(total_rows(list(found[1])), output_files)


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
