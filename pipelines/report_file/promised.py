"""What a report costs before anything of it runs: each release, one run, all runs of its promise, and with one release less.

It is computed from the file, and from what its ledger says of the data set: no row is read and nothing is spent.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from headcount.mechanisms.accounting.budget import Budget, sum_up
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.promise import budgets, repeated
from headcount.mechanisms.accounting.totals import total_epsilon
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.flags import periods
from headcount.pipelines.ledger import spending
from headcount.pipelines.ledger.account import asked_digests, open_ledger
from headcount.pipelines.ledger.approvals import Approved, plan_digest
from headcount.pipelines.ledger.records import Dataset, Request, now
from headcount.pipelines.report_file.file import ReportFile
from headcount.pipelines.report_file.jobs import Job, cost_at, jobs

_EXAMPLES = ("2026-W01", "2026-01-01", "2026-01", "2026-Q1", "2026")  # a period of each kind, the usual one first


def example(period: str | None = None) -> str:
    """A period of the same kind, which is the same for all of them: what a plan is made for, so that all have one budget."""
    if period is None:
        return _EXAMPLES[0]
    return next((each for each in _EXAMPLES if _shape(each) == _shape(period)), period)


def _shape(period: str) -> str:
    return re.sub("[0-9]", "0", period)


@dataclasses.dataclass(frozen=True)
class Cost:
    """What some releases cost together, composed at a delta and added up."""

    releases: int
    epsilon: float
    delta: float
    sum_epsilon: float
    sum_delta: float

    @classmethod
    def of(cls, costs: Sequence[Guarantee], delta: float, adaptive: bool) -> Cost:
        """That of these, at this delta."""
        sums = (sum_up(getattr(each, name) for each in costs) for name in ("epsilon", "delta"))
        return cls(len(costs), total_epsilon(costs, delta, adaptive), delta, *sums)


@dataclasses.dataclass(frozen=True)
class Planned:
    """One release as it is planned: its job in an example of a period, and what a ledger gets of it."""

    job: Job
    guarantee: Guarantee
    approved: Approved


@dataclasses.dataclass(frozen=True)
class ReportPlan:
    """A report before its first run. `left_out` has the budgets of the others if the release of a name is left out."""

    report: ReportFile
    releases: Sequence[Planned]
    adaptive: bool
    left_out: Mapping[str, Mapping[str, Budget]] = dataclasses.field(default_factory=dict)

    @property
    def runs(self) -> int:
        """How many runs the promise is for."""
        return 1 if self.report.promise is None else self.report.promise.runs

    @property
    def sha256(self) -> str:
        """The digest of the plan, by which it is approved: whatever spaces and comments the file has."""
        return plan_digest(promise_dict(self.report), (each.approved for each in self.releases))

    def year(self) -> list[Guarantee]:
        """What all runs write into the ledger."""
        return repeated((each.guarantee for each in self.releases), self.runs)

    def costs(self) -> tuple[Cost, Cost]:
        """What one run costs, and what all do, at the delta of the promise; without one, at the sum of all deltas."""
        run = [each.guarantee for each in self.releases]
        promise = self.report.promise
        delta = sum_up(each.delta for each in run) if promise is None else promise.delta
        return Cost.of(run, delta, self.adaptive), Cost.of(self.year(), delta, self.adaptive)


def promise_dict(report: ReportFile) -> dict[str, Any] | None:
    """The promise as the file says it, for JSON."""
    found = report.promise
    return None if found is None else {name: getattr(found, name) for name in ("epsilon", "delta", "runs", "per")}


def dataset_of(report: ReportFile) -> Dataset | None:
    """The data set on whose account the report goes, as its ledger has it; None of a report without a ledger."""
    if "ledger" not in report.account:
        return None
    return open_ledger(report.account["ledger"].values[0]).dataset(report.account["dataset"].values[0])


def budgets_of(report: ReportFile, period: str | None, dataset: Dataset | None) -> dict[str, Budget] | None:
    """The budget of each release by the promise of the report; None where releases say their own."""
    return _budgets(report, period, report.weights, dataset is not None and dataset.adaptive)


def _budgets(
    report: ReportFile, period: str | None, weights: Mapping[str, float], adaptive: bool
) -> dict[str, Budget] | None:
    promise = report.promise
    if promise is None:
        return None
    try:
        return budgets(
            cost_at(report, _planned_for(report, period)),
            weights,
            promise.epsilon,
            promise.delta,
            promise.runs,
            adaptive,
        )
    except ParameterError as error:
        if str(error).startswith(report.path):  # which tells the line by itself
            raise
        raise ParameterError(f"{report.path}:{promise.line}: promise: {error}") from None


def make_plan(report: ReportFile, period: str | None, dataset: Dataset | None, less: bool = False) -> ReportPlan:
    """The plan of a report, in a period or in an example of one; with `less`, also what each release takes from the others."""
    period = _planned_for(report, period)
    adaptive = dataset is not None and dataset.adaptive
    jobs(report, period)  # values are refused before budgets are computed, which takes longer
    own = budgets_of(report, period, dataset)
    made = jobs(report, period, own)
    left_out = {}
    if less and report.promise is not None and len(made) > 1:
        for name in report.weights:
            others = {other: weight for other, weight in report.weights.items() if other != name}
            left_out[name] = _budgets(report, period, others, adaptive) or {}
    marking = jobs(report, _marking(report, period), own)
    planned = [_planned(job, marked) for job, marked in zip(made, marking, strict=True)]
    return ReportPlan(report, planned, adaptive, left_out)


def _marking(report: ReportFile, period: str | None) -> str | None:
    """A period of the same kind of which nothing stands in the file, so that all that follows from it in what the releases ask
    stands for a placeholder."""
    if period is None:
        return None
    given = [each for release in report.releases for each in release.given.values()]
    texts = [text for each in given for text in each.values]
    others = (
        period.replace("2026", str(year)) if "2026" in period else f"{period}{year}" for year in range(2026, 9999)
    )
    for other in others:
        values = periods.values_of(other).values()
        if not any(value in text for value in values for text in texts):
            return other
    raise AssertionError("a file of so many years")


def _planned_for(report: ReportFile, period: str | None) -> str | None:
    """The period that a plan is made for: none if the file does not ask for one."""
    return example(period) if period is not None or periods.placeholders(report.output.values[0]) else None


def _planned(job: Job, marking: Job) -> Planned:
    guarantee = job.guarantee()
    digest = asked_digests(marking.checked(), job.command.name, marking.plan())[0]
    return Planned(job, guarantee, Approved(job.name, job.command.name, digest, guarantee.epsilon, guarantee.delta))


def refuse_unapproved(made: Sequence[Job]) -> None:
    """Refuse jobs that are of no approved plan where they must be: all of them, before the first reserves anything."""
    for job in made:
        args = job.checked()
        request = Request(
            args.dataset,
            "",
            job.command.name,
            job.guarantee(),
            "",
            label=args.label,
            asked=asked_digests(args, job.command.name, job.plan()),
        )
        open_ledger(args.ledger).refuse_unapproved(request)


def room_of(plan: ReportPlan, dataset: Dataset) -> bool:
    """Whether all runs of a plan fit beside what is spent of its data set now."""
    ledger = open_ledger(plan.report.account["ledger"].values[0])
    spent = spending.spent(ledger.entries(dataset.name), dataset.span(now()))
    return spending.Room(dataset, spent).fits(*plan.year())
