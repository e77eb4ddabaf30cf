"""What a job or a call does with a ledger: it reserves its cost before it reads rows, and says in the end what became of it.

Never is anything published that is not in the ledger: the entry is there before, and stays there whatever happens to the
process. It is given back only if nothing of it could have been published. Only the process that starts a job touches the
ledger, never its workers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from typing import TYPE_CHECKING, Any

from headcount.mechanisms.errors import HeadcountError, ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.jobs.plan import Plan
from headcount.pipelines.ledger.flags import AUTO
from headcount.pipelines.protection import protection
from headcount.pipelines.sinks.output import Target

if TYPE_CHECKING:
    from headcount.pipelines.ledger.book import Ledger
    from headcount.pipelines.ledger.records import Change, Entry

_AGAIN = "written once more, at no cost"
_EXTRAS = {"sqlite": ("ledger", "sqlalchemy"), "postgresql": ("postgres", "psycopg")}


def open_ledger(url: str) -> Ledger:
    """The ledger at a URL, which is never printed: it may hold a password."""
    scheme = url.partition("://")[0]
    if scheme not in _EXTRAS:
        raise ParameterError("--ledger must be a URL such as sqlite:///ledger.db or postgresql://user@host/database")
    from headcount.pipelines.storage.stores import require_extra

    extra, module = _EXTRAS[scheme]
    for needed in ("sqlalchemy", module):
        require_extra(f"--ledger {scheme}://", extra, needed)
    from headcount.pipelines.ledger.book import Ledger
    from headcount.pipelines.ledger.database import Database

    return Ledger(Database(url))


def identified(release: Release, args: argparse.Namespace, command: str, plan: Plan) -> Release:
    """The release with the id that was asked for: `auto` is a digest of data set, label, period, command and parameters."""
    if args.release_id != AUTO:
        return release
    named = [args.dataset, args.label, args.period, command, _public(plan)]
    digest = hashlib.blake2b(_json(named), digest_size=16, person=b"headcount.auto").hexdigest()
    return Release(release.key_source, f"{AUTO}-{digest}")


class Account:
    """The account of one release; without a ledger it does nothing.

    `expected` is the digest of the rows of a release that is committed already: only these may be published again.
    """

    def __init__(self, ledger: Ledger | None = None, entry: Entry | None = None) -> None:
        self._ledger, self._entry = ledger, entry
        self._may_publish = False
        self.expected = None if entry is None else entry.last.rows_sha256

    def started(self) -> None:
        """From now on something may be published, whatever becomes of this process: on other machines, or at once."""
        self._may_publish = True

    def published(self, report: bytes) -> str | None:
        """The output with this report is there, so its cost is spent; what is to be said of that."""
        if self._entry is None:
            return None
        from headcount.pipelines.ledger.records import published

        name = self._entry.request.dataset
        change = published(report, None if self.expected is None else _AGAIN)
        # What a call returns is seen and leaves no trace by which the entry could be told later: so it must be written now.
        self._add(change, must=self._entry.request.output is None and self.expected is None)
        return (
            self._told_again() or f"data set {name}: this release is in the ledger (see: headcount ledger total {name})"
        )

    def submitted(self) -> str | None:
        """The job runs without this process; what is to be said of that."""
        if self._entry is None:
            return None
        name = self._entry.request.dataset
        stays = f"data set {name}: the cost stays reserved until `headcount ledger resolve {name}` finds the output complete"
        return self._told_again() or stays

    def _told_again(self) -> str | None:
        """What is to be said of a release that is only written once more."""
        if self._entry is None or self.expected is None:
            return None
        return f"data set {self._entry.request.dataset}: this release is in the ledger already, and spends nothing"

    def failed(self) -> None:
        """The job or call failed, and its output was abandoned: give back, unless something may have been published."""
        if self._entry is None or self.expected is not None:
            return
        from headcount.pipelines.ledger import outputs
        from headcount.pipelines.ledger.records import GIVEN_BACK, Change, published

        place = self._entry.request.output
        try:
            found = None if place is None else outputs.look(place)
        except Exception:  # every storage has its own; what cannot be looked at may be there
            self._may_publish = True
            found = None
        if found is not None and found.release_id == self._entry.request.release_id:
            self._add(published(found.report, "its job was stopped when the output was complete"))
        elif self._may_publish:
            _tell(
                f"the job may have published, so its cost stays reserved in data set {self._entry.request.dataset}: "
                "`headcount ledger resolve` looks at the output"
            )
        else:
            self._add(Change(GIVEN_BACK, note="the job failed, and nothing was published"))

    def _add(self, change: Change, must: bool = False) -> None:
        """Write what became of the entry. A ledger that cannot be reached now has it as reserved, which counts."""
        from headcount.pipelines.ledger.book import Settled

        assert self._ledger is not None and self._entry is not None
        try:
            self._ledger.settle(Settled(self._entry, change))
        except HeadcountError as error:
            if must:
                raise
            _tell(f"{error}; the entry stays reserved: run `headcount ledger resolve` later")


def open_account(
    args: argparse.Namespace,
    command: str,
    release: Release,
    plan: Plan,
    target: Target | None = None,
    runner: str | None = None,
) -> Account:
    """Reserve what a release costs, before any row is read; refuses one for which too little is left.

    Without a `target` nothing is written, and what is published is what the call returns.
    """
    if args.ledger is None:
        return Account()
    ledger = open_ledger(args.ledger)
    from headcount.pipelines.ledger import outputs, processes, resolve
    from headcount.pipelines.ledger.records import RESERVED, Request

    place = None if target is None else target.place_of_report
    there = None if place is None else outputs.look(place)
    # What an earlier attempt of this release left, and whatever was to be written to the same place, is settled first.
    decided = [
        resolve.decide(entry).settled
        for entry in ledger.entries(states=[RESERVED])
        if entry.request.release_id == release.id or (place is not None and entry.request.output == place)
    ]
    request = Request(
        args.dataset,
        release.id,
        command,
        protection(args).of(plan.guarantee),
        hashlib.sha256(_json([command, _public(plan)])).hexdigest(),
        args.label,
        args.period,
        place,
        plan.files,
        None if there is None else there.release_id,
        runner,
        processes.this_process(),
    )
    return Account(ledger, ledger.reserve(request, [each for each in decided if each is not None]))


def _public(plan: Plan) -> dict[str, Any]:
    return {name: value for name, value in plan.parameters.items() if value is not None}


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":")).encode()


def _tell(words: str) -> None:
    print(f"headcount: {words}", file=sys.stderr)
