"""`headcount plan`: what a report costs, in each run and in all, and what it will show, before anything is spent."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget, digits_up
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.command import Tool, add_json, say
from headcount.pipelines.flags.groups import short_text
from headcount.pipelines.reports.summary import aligned

if TYPE_CHECKING:
    from headcount.pipelines.ledger.records import Dataset
    from headcount.pipelines.report_file.promised import Cost, Planned, ReportPlan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.add_argument("file", metavar="FILE", help="the report, a file of YAML (see: docs/report-file.md)")
    parser.add_argument(
        "--period",
        type=short_text,
        metavar="PERIOD",
        help="what stands for {period} in the file, such as 2026-W46 (default: an example)",
    )
    add_json(parser)


@dataclasses.dataclass(frozen=True)
class Costs:
    """What a report costs and will show. It is made of the file and its ledger alone: no row is read, and nothing is spent.

    Printed, it is what the terminal shows.
    """

    made: ReportPlan
    dataset: Dataset | None
    missing: str | None  # why the ledger does not tell

    @property
    def told(self) -> dict[str, Any]:
        """All of it as plain values, as `--json` prints it."""
        return _told(self.made, self.dataset)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The budget of each release."""
        names = ("name", "command", "weight", "epsilon", "delta")
        return [{name: each[name] for name in names} for each in self.told["releases"]]

    @property
    def table(self) -> pa.Table:
        """The same as an Arrow table."""
        return pa.Table.from_pylist(self.rows)

    def to_pandas(self) -> Any:
        """The same as a pandas frame; it needs pandas."""
        return self.table.to_pandas()

    def __repr__(self) -> str:
        return _words(self.made, self.dataset, self.missing)


def costs(file: str, period: str | None) -> Costs:
    """What the report in a file costs."""
    from headcount.pipelines.report_file.file import read_file
    from headcount.pipelines.report_file.promised import dataset_of, make_plan

    report = read_file(file)
    try:
        dataset, missing = dataset_of(report), None
    except ParameterError as error:  # which may be made after the plan
        dataset, missing = None, str(error)
    return Costs(make_plan(report, period, dataset, less=True), dataset, missing)


def plan(args: argparse.Namespace) -> None:
    """Say what the report costs and will show."""
    found = costs(args.file, args.period)
    say(json.dumps(found.told, indent=2, allow_nan=False) if args.json else repr(found))


def _words(made: ReportPlan, dataset: Dataset | None, missing: str | None) -> str:
    promise, (run, year) = made.report.promise, made.costs()
    lines = [f"plan {made.sha256[:16]} of {made.report.path}:"]
    if promise is not None:
        when = f" in each {promise.per}" if promise.per else ""
        number = f"{_number(promise.runs, 'run')} of {_number(len(made.releases), 'release')}"
        lines.append(f"promised: epsilon = {promise.epsilon:g} at delta = {promise.delta:g}{when}, for {number}")
    lines.append(f"each run costs {_cost(run)}")
    if made.runs > 1:
        lines.append(f"{made.runs:,} runs cost {_cost(year)}")
        even = promise.epsilon / year.releases if promise is not None else 0.0
        lines.append(f"divided evenly, by adding up, each release would have epsilon = {even:.4g}")
    rows = [("release", "command", "epsilon", "delta"), *map(_row, made.releases)]
    lines += ["", *aligned(rows, [True, True, False, False])]
    for each in made.releases:
        lines += ["", f"{each.job.name} will show:", *(f"  {line}".rstrip() for line in _shows(each))]
    if made.left_out:
        lines += ["", "with one release less:", *(f"  {line}" for line in _left_out(made))]
    return "\n".join([*lines, "", *_account(made, dataset, missing), "no row was read, and nothing is spent"])


def _account(made: ReportPlan, dataset: Dataset | None, missing: str | None) -> list[str]:
    """What the ledger says to it: the limit, whether all runs fit in, and whether somebody has said yes."""
    from headcount.pipelines.ledger.account import open_ledger
    from headcount.pipelines.report_file.promised import room_of

    if dataset is None:
        return [] if missing is None else [f"the ledger: {missing}"]
    fit = "all of it fits" if room_of(made, dataset) else "not all of it fits"
    lines = [f"data set {dataset.name}: limit {dataset.limit_description()}; {fit} beside what is spent now"]
    ledger = open_ledger(made.report.account["ledger"].values[0])
    live = [each for each in ledger.approved(dataset.name) if each.withdrawn is None]
    found = next((each for each in live if each.plan_sha256 == made.sha256), None)
    if found is not None:
        lines.append(f"approved by {found.said_by} on {found.at[:10]}")
    elif dataset.approved_only:
        lines.append(f"not approved: headcount ledger approve {dataset.name} {made.report.path}")
    return lines


def _row(planned: Planned) -> tuple[str, ...]:
    cost = planned.guarantee
    return planned.job.name, planned.job.command.name, f"{cost.epsilon:.4g}", f"{cost.delta:.3g}"


def _shows(planned: Planned) -> list[str]:
    """What is known of the rows before there is data: what --explain says behind the promise and its parts."""
    job = planned.job
    told = job.command.explained(job.args()).split("\n\n", 1)
    return told[1].splitlines() if len(told) > 1 else told[0].splitlines()


def _left_out(made: ReportPlan) -> list[str]:
    lines = []
    for name, others in made.left_out.items():
        told = ", ".join(f"{other} epsilon = {budget.epsilon:.4g}" for other, budget in others.items())
        lines.append(f"without {name}: {told}; intervals about {100 * (1 - _narrower(made, others)):.0f} % narrower")
    return lines


def _narrower(made: ReportPlan, others: Mapping[str, Budget]) -> float:
    """How wide the intervals of the others are, against what they are with all: noise is about as 1 / epsilon."""
    before = {each.job.name: each.guarantee.epsilon for each in made.releases}
    return sum(before[name] / budget.epsilon for name, budget in others.items()) / len(others)


def _cost(cost: Cost) -> str:
    return (
        f"epsilon = {digits_up(cost.epsilon, 4):.4g} at delta = {cost.delta:g} together; added up, epsilon = "
        f"{digits_up(cost.sum_epsilon, 4):.4g} at delta = {digits_up(cost.sum_delta, 3):.3g}"
    )


def _number(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _told(made: ReportPlan, dataset: Dataset | None) -> dict[str, Any]:
    from headcount.pipelines.report_file.promised import promise_dict, room_of

    run, year = made.costs()
    return {
        "report": made.report.path,
        "plan_sha256": made.sha256,
        "promise": promise_dict(made.report),
        "adaptive": made.adaptive,
        "run": vars(run),
        "all_runs": {"runs": made.runs} | vars(year),
        "releases": [
            {
                "name": each.job.name,
                "command": each.job.command.name,
                "weight": each.job.release.weight,
                "epsilon": each.guarantee.epsilon,
                "delta": each.guarantee.delta,
                "guarantee": each.guarantee.as_dict(),
                "shows": _shows(each),
            }
            for each in made.releases
        ],
        "left_out": {
            name: {
                "budgets": {other: vars(budget) for other, budget in others.items()},
                "intervals": _narrower(made, others),
            }
            for name, others in made.left_out.items()
        },
        "fits": None if dataset is None else room_of(made, dataset),
    }


COMMAND = Tool(
    name="plan",
    add_arguments=add_arguments,
    do=plan,
    example="headcount plan report.yaml",
)
