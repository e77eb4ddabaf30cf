"""What became of reserved entries whose jobs did not say it: killed, detached, or cut off from the ledger.

An entry is committed if its output is complete. It is given back only if nothing of it is there and nothing can come: its
process has ended, of which there is proof, or a person says so. All else stays reserved, and counts.
"""

from __future__ import annotations

from typing import NamedTuple

from headcount.mechanisms.errors import HeadcountError
from headcount.pipelines.ledger import outputs
from headcount.pipelines.ledger.book import Settled
from headcount.pipelines.ledger.processes import is_over
from headcount.pipelines.ledger.records import GIVEN_BACK, Change, Entry, published
from headcount.pipelines.storage import stores


class Decision(NamedTuple):
    """What is to be written of an entry, if anything, and why."""

    settled: Settled | None
    words: str


def decide(entry: Entry, gave_up: bool = False) -> Decision:
    """What became of a reserved entry; `gave_up` is a person's word that its job is over and published nothing."""
    request, found = entry.request, None
    if request.output is not None:
        try:
            found = outputs.look(request.output)
        except HeadcountError:
            raise
        except Exception as error:  # every storage has its own
            return Decision(None, f"stays reserved: {request.output!r} cannot be looked at: {stores.reason(error)}")
    if found is not None and found.release_id == request.release_id:
        change = published(found.report, "resolved: its output is complete")
        return Decision(Settled(entry, change), f"committed: {request.output!r} is complete")
    over = "its job was given up" if gave_up else _over(entry, found)
    if over is None:
        return Decision(None, f"stays reserved: {_why_not(entry, found)}")
    outputs.abandon(request)
    change = Change(GIVEN_BACK, note=f"resolved: {over}, and nothing of it was published")
    return Decision(Settled(entry, change), f"given back: {over}, and nothing of it was published")


def _over(entry: Entry, found: outputs.Found | None) -> str | None:
    """Why nothing of the entry was published and nothing can come; None if that is not known."""
    if entry.request.runner is not None or _may_be_replaced(entry, found):
        return None
    process = entry.request.process
    return f"process {process['pid']} on {process['host']} has ended" if is_over(process) else None


def _may_be_replaced(entry: Entry, found: outputs.Found | None) -> bool:
    """Whether the output that lies there came after this one was reserved, and so may have replaced it."""
    return found is not None and found.release_id != entry.request.replaces


def _why_not(entry: Entry, found: outputs.Found | None) -> str:
    request, process = entry.request, entry.request.process
    say_so = f"if it is over and published nothing, say so: --release-id {request.release_id} --gave-up"
    if _may_be_replaced(entry, found):
        return f"another output lies at {request.output!r}, which may have replaced it; {say_so}"
    if request.runner is not None:
        return f"what it releases may be elsewhere ({request.runner}), and {request.output!r} is not complete; {say_so}"
    if is_over(process) is None:
        return f"whether process {process['pid']} on {process['host']} has ended cannot be known here; {say_so}"
    return f"process {process['pid']} on {process['host']} is still there"
