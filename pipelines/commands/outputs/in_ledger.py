"""What a ledger knows of a report: all of it by its digest, or, of what a call in Python returned, what the call told it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from headcount.mechanisms.errors import InputError
from headcount.pipelines.commands.outputs.complete import Complete
from headcount.pipelines.ledger.account import open_ledger
from headcount.pipelines.ledger.records import SPENT, Entry
from headcount.pipelines.sinks.repeated import release_digest

_TOLD = ("dataset", "label", "period")


def own_entries(found: Complete, entries: Iterable[Entry]) -> list[Entry]:
    """The entries of an output's release; refuses an output whose job has told the ledger of another report."""
    own = [e for e in entries if e.request.release_id == found.report["release_id"] and e.state in SPENT]
    for entry in own:
        reports = _reports(entry)
        # What a call returned may be saved in other files, with another report, any time later.
        if entry.request.output is not None and reports and found.report_sha256 not in reports:
            raise _changed(found, "another report.json")
    return own


def confirmed(url: str, found: Complete, parts: Sequence[str]) -> list[str]:
    """Those of these parts of a report that the ledger confirms; refuses a report that is another than it knows."""
    release_id = found.report["release_id"]
    own = own_entries(found, open_ledger(url).entries(None, release_id))
    if not own:
        raise InputError(f"--ledger has no release {release_id!r} that counts, so that nothing was compared with it")
    (entry,) = own
    if found.report_sha256 in _reports(entry):
        return [*parts]
    for name in _TOLD:
        if found.report.get(name) != getattr(entry.request, name):
            raise _changed(found, f"another {name}")
    released = {change.release_sha256 for change in entry.changes} - {None}
    if released and release_digest(json.dumps(found.report).encode()) not in released:
        raise _changed(found, "another result")
    return [name for name in parts if name in _TOLD or (released and name == "details.input_digest")]


def _reports(entry: Entry) -> set[str | None]:
    return {change.report_sha256 for change in entry.changes} - {None}


def _changed(found: Complete, what: str) -> InputError:
    return InputError(f"changed: the ledger knows {what} of release {found.report['release_id']!r}")
