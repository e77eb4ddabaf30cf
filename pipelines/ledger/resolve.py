"""What became of reserved entries whose jobs did not say it: killed, detached, or cut off from the ledger.

An entry is committed if its output is complete. It is given back without a person only if nothing of it can have been
published: it was never about to be, of which its state is proof, and its process has ended, of which there is proof too. That
nothing is there now is no proof, since an output can be moved away. All else stays as it is, and counts, until a person says
what became of it.
"""

from __future__ import annotations

from typing import NamedTuple

from headcount.mechanisms.errors import HeadcountError, ParameterError
from headcount.pipelines.ledger import outputs
from headcount.pipelines.ledger.book import Ledger, Settled
from headcount.pipelines.ledger.records import (
    COMMITTED,
    GIVEN_BACK,
    OPEN,
    RESERVED,
    SPENT,
    Change,
    Entry,
    published,
)
from headcount.pipelines.storage import stores

GAVE_UP, PUBLISHED = "gave up", "published"  # what a person may say of an entry


class Decision(NamedTuple):
    """What is to be written of an entry, if anything, and why."""

    settled: Settled | None
    description: str


def undecided(ledger: Ledger, dataset: str | None = None, release_id: str | None = None) -> list[Entry]:
    """The entries of which it is not known what became of them: open ones, and those of jobs elsewhere that were given up, and
    may have published since."""
    found = ledger.entries(dataset, release_id, OPEN)
    given_up = [e for e in ledger.entries(dataset, release_id, [GIVEN_BACK]) if e.request.runner is not None]
    return [*found, *(entry for entry in given_up if not ledger.entries(None, entry.request.release_id, SPENT))]


def decide(entry: Entry, said: str | None = None) -> Decision:
    """What became of an entry that is undecided; `said` is a person's word on it."""
    request, found = entry.request, None
    if request.output is not None:
        try:
            found = outputs.look(request.output)
        except HeadcountError:
            raise
        except Exception as error:  # every storage has its own
            if said is None:
                return Decision(None, f"stays reserved: {request.output!r} cannot be looked at: {stores.reason(error)}")
    if found is not None and found.release_id == request.release_id:
        change = published(found.report, "resolved: its output is complete")
        return Decision(Settled(entry, change), f"committed: {request.output!r} is complete")
    if said == PUBLISHED:
        made = entry.made or Change(COMMITTED)
        change = Change(
            COMMITTED, made.report_sha256, made.rows_sha256, made.release_sha256, "resolved: somebody says so"
        )
        return Decision(Settled(entry, change), "committed: you say that it was published")
    if entry.state == GIVEN_BACK:
        return Decision(None, "is given back, and nothing of it is there")
    if said == GAVE_UP and entry.is_over() is False:
        raise ParameterError(
            f"release {request.release_id!r} may still be published: {_process(entry)} is still there; stop it first"
        )
    over = "its job was given up" if said == GAVE_UP else _over(entry, found)
    if over is None:
        return Decision(None, f"stays reserved: {_why_not(entry, found)}")
    outputs.abandon(request)
    change = Change(GIVEN_BACK, note=f"resolved: {over}, and nothing of it was published")
    return Decision(Settled(entry, change), f"given back: {over}, and nothing of it was published")


def _over(entry: Entry, found: outputs.Found | None) -> str | None:
    """Why nothing of the entry was published and nothing can come; None if that is not known."""
    if entry.state != RESERVED or entry.request.runner is not None or _may_be_replaced(entry, found):
        return None
    return f"{_process(entry)} has ended" if entry.is_over() else None


def _may_be_replaced(entry: Entry, found: outputs.Found | None) -> bool:
    """Whether the output that lies there came after this one was reserved, and so may have replaced it."""
    return found is not None and found.release_id != entry.request.replaces


def _process(entry: Entry) -> str:
    return f"process {entry.process.get('pid')} on {entry.process.get('host')}"


def _why_not(entry: Entry, found: outputs.Found | None) -> str:
    request, over = entry.request, entry.is_over()
    if over is False:
        return f"{_process(entry)} is still there"
    say_so = f"say what became of it: --release-id {request.release_id} with --published, or --gave-up if nothing was"
    if _may_be_replaced(entry, found):
        return f"another output lies at {request.output!r}, which may have replaced it; {say_so}"
    if request.runner is not None:
        return f"what it releases may be elsewhere ({request.runner}), and {request.output!r} is not complete; {say_so}"
    if entry.state != RESERVED:
        return (
            f"it was about to be published, and {request.output!r} is not complete now, which is no proof that it never was; "
            f"run the same job again, at no further cost, or {say_so}"
        )
    return f"whether {_process(entry)} has ended cannot be known here; {say_so}"
