"""`Total`: how many users and how many events there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.choice.protocol import Decision
from headcount.mechanisms.counting.quality import Quality
from headcount.mechanisms.counting.users import all_as_one
from headcount.mechanisms.histogram.auto import AutoHistogramMechanism, Decided
from headcount.mechanisms.histogram.fixed import HistogramMechanism
from headcount.mechanisms.histogram.total import OF, TotalPlan, TotalRow, total, total_row, total_rows
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.barrier import with_beside
from headcount.transforms.core.base import PrivateTransform
from headcount.transforms.core.contributions import ContributionBatch, as_contributions
from headcount.transforms.core.domain import OnlyDomain
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.rows import TotalCount, in_first
from headcount.transforms.histogram import Histogram
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

    def _closes_in_streams(self) -> bool:
        return True

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
            found.append(with_beside(counts, f"{name}Row", row))  # counts are beyond a barrier
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
        return self._result(shown, decision | "Decided" >> beam.Map(plan.decided).with_output_types(Decision))


class _OneTotal(Histogram):
    """The wiring of a `Histogram` for a part of a total: (0, the one count), beyond a barrier."""

    def __init__(self, mechanism: HistogramMechanism | AutoHistogramMechanism, release: Release, shards: int) -> None:
        PrivateTransform.__init__(self, mechanism, release=release, shards=shards, output_files=1)
        self._quality = Quality()  # one number, whatever its noise


def _total_row(counts: tuple[int, pa.RecordBatch], of: str, numbers: NoisePlan | Decided) -> tuple[int, TotalRow]:
    return 0, total_row(of, counts[1], numbers if isinstance(numbers, NoisePlan) else numbers.plan)


def _in_first(found: tuple[int, Iterable[TotalRow]], output_files: int) -> Iterable[tuple[int, pa.RecordBatch]]:
    return in_first(total_rows(list(found[1])), output_files)
