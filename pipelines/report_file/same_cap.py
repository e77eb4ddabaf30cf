"""How many events of a user count stays the same over the runs of a report: the first run chooses it, and later ones take it.

Nothing is kept for it but the outputs. A release that counts events and says nothing of c is looked for in other periods of the
same report; the first one there that chose its c, by its date and folder, is what `--like` of this one names. What a run has
begun stays as it is: an output that is there, or an entry of the ledger, tells whether c was taken, and from where. So a run
that is repeated, before or after others, makes the same bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.flags import periods
from headcount.pipelines.flags.like import cap_in, chooses_cap, with_earlier_cap
from headcount.pipelines.ledger.account import open_ledger
from headcount.pipelines.ledger.records import SPENT
from headcount.pipelines.report_file.jobs import Job
from headcount.pipelines.sinks.output import REPORT
from headcount.pipelines.storage import stores


class _Earlier(NamedTuple):
    """A release of another period that chose its c: by what it is sorted, and where it lies."""

    date: str
    place: str
    release_id: str


def with_same_caps(made: Sequence[Job], beam_flags: Sequence[str]) -> list[Job]:
    """The jobs, of which those that would choose c take it from an earlier run, if there is one."""
    return [_with_cap(job, beam_flags) if chooses_cap(job.args()) else job for job in made]


def _with_cap(job: Job, beam_flags: Sequence[str]) -> Job:
    earlier = sorted(_earlier(job))
    there = _report(stores.join(job.output, REPORT))
    if there is not None:
        taken = there.get("details", {}).get("parameters", {}).get("like")
        return next((job.like(each.place) for each in earlier if each.release_id == taken), job)
    if not earlier:
        return job
    ways = [job, *(job.like(each.place) for each in earlier)]
    known = _ids(job)
    begun = (way for way in ways if known and _id(way, beam_flags) in known)
    return next(begun, ways[1])


def _earlier(job: Job) -> list[_Earlier]:
    """All releases of the same name and command in other periods of the report that have chosen their c."""
    template = stores.normal(job.report.output.values[0])
    if not periods.placeholders(template):
        return []
    folder = template[: template.index("{")].rpartition("/")[0]
    found, end, args = [], f"/{job.name}/{REPORT}", job.checked()
    for place, _ in stores.files_below(folder, lambda name: ".tmp-" in name) if folder else ():
        own = stores.normal(job.output) == place.removesuffix(f"/{REPORT}")
        report = _report(place) if place.endswith(end) and not own else None
        if report is not None and report.get("command") == job.command.name and _has_chosen(report, args):
            found.append(_Earlier(str(report.get("date", "")), place, str(report["release_id"])))
    return found


def _has_chosen(report: dict[str, Any], args: argparse.Namespace) -> bool:
    """Whether a release chose its c, of the columns that these arguments name."""
    try:
        with_earlier_cap(argparse.Namespace(**vars(args) | {"like": cap_in(report)}))
    except ParameterError:
        return False
    return not {"max_per_item", "like"} & report["details"]["parameters"].keys()


def _report(place: str) -> dict[str, Any] | None:
    try:
        found = json.loads(stores.read(place)) if stores.exists(place) else None
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _ids(job: Job) -> set[str]:
    """The releases that the ledger knows of the data set."""
    account = job.report.account
    if "ledger" not in account:
        return set()
    entries = open_ledger(account["ledger"].values[0]).entries(account["dataset"].values[0])
    return {entry.request.release_id for entry in entries if entry.state in SPENT}


def _id(job: Job, beam_flags: Sequence[str]) -> str:
    with job.placed():
        return job.command.look(job.args(), beam_flags).release.id
