"""A report is run: its releases one after another, each as its command makes it, then the page over all.

Before the first one reads a row, everything of all is refused that can be: values, files, columns, the key, the output, and
what is left in the ledger. A run that was stopped goes on: what is there is made again, to the same bytes and at no cost, and
the rest is made. An input that changed since is refused, as its command does.
"""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.flags.protection import protection
from headcount.pipelines.report_file.file import ReportFile, read_file
from headcount.pipelines.report_file.jobs import Job, jobs, output_of
from headcount.pipelines.report_file.nodes import mistake
from headcount.pipelines.report_file.promised import budgets_of, dataset_of, refuse_unapproved
from headcount.pipelines.report_file.room import Cost, refuse_together
from headcount.pipelines.reports.outcome import Outcome
from headcount.pipelines.storage import stores

if TYPE_CHECKING:
    from headcount.pipelines.jobs.job import Looked

INDEX = "index.html"


@dataclasses.dataclass(frozen=True)
class Made:
    """What came of one release, by its name in the file."""

    job: Job
    outcome: Outcome


@dataclasses.dataclass(frozen=True)
class Checked:
    """A report of which nothing is left to refuse but the rows: its jobs as they were looked at, and what the ledger says."""

    report: ReportFile
    jobs: Sequence[Job]
    looked: Sequence[Looked]
    room: str | None


def check_report(path: str, period: str | None, beam_flags: Sequence[str]) -> Checked:
    """Refuse all that can be refused before a row is read; nothing is written and nothing reserved."""
    report = read_file(path)
    jobs(report, period)  # values are refused before budgets are computed, which takes longer
    try:
        dataset = dataset_of(report)
    except ParameterError as error:
        raise mistake(report.path, report.account["ledger"].line, str(error)) from None
    made = jobs(report, period, budgets_of(report, period, dataset))
    looked = [_looked(job, beam_flags) for job in made]
    return Checked(report, made, looked, _room(report, made, looked))


def run_report(
    path: str, period: str | None, beam_flags: Sequence[str], tell: Callable[[Made], None]
) -> tuple[list[Made], str | None]:
    """Run a report to its end, and tell of each release; what came of them, and where the page over all is.

    A page is missing where a release was only submitted.
    """
    checked = check_report(path, period, beam_flags)
    made = []
    for job in checked.jobs:
        with job.placed():
            made.append(Made(job, job.command.outcome(job.args(), beam_flags)))
        tell(made[-1])
    if any(each.outcome.report is None for each in made):
        return made, None
    return made, _put_index(checked.report, period, made)


def _looked(job: Job, beam_flags: Sequence[str]) -> Looked:
    with job.placed():
        found = job.command.look(job.args(), beam_flags)
        _refuse_unwritable(job.output)
    return found


def _refuse_unwritable(folder: str) -> None:
    """Refuse a folder on this machine that cannot be made or written; elsewhere only a job can tell."""
    if not stores.is_local(folder):
        return
    above = os.path.abspath(folder)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        raise ParameterError(f"--output {folder!r} cannot be made: {above!r} is no folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise ParameterError(f"--output {folder!r} cannot be written: {above!r} may not be written to")


def _room(report: ReportFile, made: Sequence[Job], looked: Sequence[Looked]) -> str | None:
    account = report.account
    if "ledger" not in account:
        return None
    costs = [
        Cost(each.release.id, protection(job.args()).of(each.plan.guarantee))
        for job, each in zip(made, looked, strict=True)
    ]
    try:
        refuse_unapproved(made)
        return refuse_together(account["ledger"].values[0], account["dataset"].values[0], costs)
    except ParameterError as error:
        raise mistake(report.path, account["ledger"].line, str(error)) from None


def _put_index(report: ReportFile, period: str | None, made: Sequence[Made]) -> str:
    """Put the page over all releases in its place, whole or not at all; returns where that is."""
    from headcount.pipelines.pages.report import report_page

    folder = stores.normal(output_of(report, period))
    content = report_page(report.title, period, [(each.job.name, each.outcome.report or {}) for each in made])
    place, draft = stores.join(folder, INDEX), stores.join(folder, f"{INDEX}.{uuid.uuid4().hex}")
    try:
        stores.write(draft, content)
        stores.move(draft, place)
    finally:
        stores.remove(draft)
    return place
