"""What a job or a call does with a ledger: it reserves its cost before it reads rows, and says in the end what became of it.

Never is anything published that is not in the ledger: the entry is there before, and stays there whatever happens to the
process. Where this process publishes itself, it says so before, with the digest of what: if the ledger cannot be told then,
nothing is published. The cost is given back only if nothing of it could have been published. Only the process that starts a job
touches the ledger, never workers elsewhere.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from typing import TYPE_CHECKING, Any

from headcount.mechanisms.accounting.windows import WINDOWS
from headcount.mechanisms.errors import HeadcountError, ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.flags.account import AUTO
from headcount.pipelines.flags.protection import protection
from headcount.pipelines.ledger.records import (
    COMMITTED,
    GIVEN_BACK,
    PUBLISHING,
    Change,
    Entry,
    Request,
    Users,
    published,
)
from headcount.pipelines.reports.plan import Plan
from headcount.pipelines.sinks.output import Target

if TYPE_CHECKING:
    from headcount.pipelines.ledger.book import Ledger

_AGAIN = "written once more, at no cost"
_SCHEMES = ("sqlite", "postgresql")


def open_ledger(url: str) -> Ledger:
    """The ledger at a URL, which is never printed: it may hold a password."""
    scheme = url.partition("://")[0]
    if scheme not in _SCHEMES:
        raise ParameterError("--ledger must be a URL such as sqlite:///ledger.db or postgresql://user@host/database")
    if scheme == "postgresql":
        from headcount.pipelines.storage.stores import require_extra

        require_extra(f"--ledger {scheme}://", "postgres", "psycopg")
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

    `expected` is the digest of a release that was published already, or was about to be: only this one may be published again.
    `date` is the day on which it was first reserved.
    """

    def __init__(self, ledger: Ledger | None = None, entry: Entry | None = None) -> None:
        self._ledger, self._entry = ledger, entry
        self._may_publish = False
        made = None if entry is None else entry.made
        self.expected = None if made is None else made.release_sha256
        self.date = None if entry is None else entry.changes[0].at[:10]

    def started(self) -> None:
        """From now on something may be published, whatever becomes of this process: on other machines, or at once."""
        self._may_publish = True

    def publishing(self, report: bytes) -> None:
        """Say in the ledger that what has this report is about to be published; raises if it must not be, or cannot be said."""
        if self._ledger is None or self._entry is None or self._entry.state == COMMITTED:
            return
        self._ledger.publish(self._entry, published(report, state=PUBLISHING))
        self._may_publish = True

    def published(self, report: bytes) -> tuple[str | None, str | None]:
        """The output with this report is there, so its cost is spent: what is to be said of that, and what is wrong if the
        ledger could not be told."""
        if self._ledger is None or self._entry is None:
            return None, None
        name = self._entry.request.dataset
        try:
            before = self._ledger.commit(self._entry, published(report, None if self.expected is None else _AGAIN))
        except HeadcountError as error:
            # What a call returns is seen and leaves no trace by which the entry could be told later: so it must be written now.
            if self._entry.request.output is None and self.expected is None:
                raise
            if self._entry.state == COMMITTED:
                return self._repeat_note(), None
            return None, (
                f"{error}; this release is published, but not yet committed in the ledger: it counts, and stays reserved; run "
                f"`headcount ledger resolve {name}`, before the output is moved"
            )
        if before == GIVEN_BACK:
            _tell(
                f"this release had been given up, and is published: it counts, also beyond the limit of data set {name}"
            )
        said = f"data set {name}: this release is in the ledger (see: headcount ledger total {name})"
        return self._repeat_note() or said, None

    def submitted(self) -> str | None:
        """The job runs without this process; what is to be said of that."""
        if self._entry is None:
            return None
        name = self._entry.request.dataset
        stays = f"data set {name}: the cost stays reserved until `headcount ledger resolve {name}` finds the output complete"
        return self._repeat_note() or self._leave("it was submitted") or stays

    def _repeat_note(self) -> str | None:
        """What is to be said of a release that is only written once more."""
        if self._entry is None or self.expected is None:
            return None
        return f"data set {self._entry.request.dataset}: this release is in the ledger already, and spends nothing"

    def failed(self) -> None:
        """The job or call failed, and its output was abandoned: give back, unless something may have been published."""
        if self._ledger is None or self._entry is None:
            return
        if self.expected is not None:  # which counts whatever becomes of this attempt; another may follow
            said = None if self._may_publish or self._entry.state == COMMITTED else self._leave("it failed once more")
            if said is not None:
                _tell(said)
            return
        from headcount.pipelines.ledger.book import Settled

        try:
            if not self._may_publish:
                change = Change(GIVEN_BACK, note="the job failed, and nothing was published")
                self._ledger.settle(Settled(self._entry, change))  # unless somebody has said it already
                return
            found = self._found()
            if found is not None:
                self._ledger.commit(self._entry, published(found, "its job was stopped when the output was complete"))
                return
        except HeadcountError as error:
            _tell(f"{error}; the entry stays reserved: run `headcount ledger resolve` later")
            return
        stays = (
            f"the job may have published, so its cost stays reserved in data set {self._entry.request.dataset}: "
            "`headcount ledger resolve` looks at the output"
        )
        _tell(self._leave("it failed when it may have been published") or stays)

    def _leave(self, note: str) -> str | None:
        """Say in the ledger that this process has no more to do with the entry; what is wrong if it cannot be said."""
        assert self._ledger is not None and self._entry is not None
        try:
            self._ledger.leave(self._entry, note)
        except HeadcountError as error:
            return f"{error}; the entry stays reserved: run `headcount ledger resolve` later"
        return None

    def _found(self) -> bytes | None:
        """The report of the output, if it is there and of this release; what cannot be looked at may be there as well."""
        from headcount.pipelines.ledger import outputs

        assert self._entry is not None
        place = self._entry.request.output
        try:
            found = None if place is None else outputs.look(place)
        except Exception:  # every storage has its own
            return None
        return found.report if found is not None and found.release_id == self._entry.request.release_id else None


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

    place = None if target is None else target.place_of_report
    there = None if place is None else outputs.look(place)
    # What an earlier attempt of this release left, and whatever was to be written to the same place, is settled first.
    decided = [
        resolve.decide(entry).settled
        for entry in resolve.undecided(ledger)
        if entry.request.release_id == release.id or (place is not None and entry.request.output == place)
    ]
    request = Request(
        args.dataset,
        release.id,
        command,
        protection(args).of(plan.guarantee),
        hashlib.sha256(_json([command, _public(plan)])).hexdigest(),
        *_users(args),
        args.label,
        args.period,
        place,
        plan.files,
        None if there is None else there.release_id,
        runner,
        processes.this_process(),
        asked_digests(args, command, plan),
        args.clock_checked,
    )
    return Account(ledger, ledger.reserve(request, [each for each in decided if each is not None]))


def asked_digests(args: argparse.Namespace, command: str, plan: Plan) -> list[str]:
    """What a release asks, as it is compared with approved plans."""
    from headcount.pipelines.ledger import approvals

    public = {name: getattr(args, name, None) for name in ("domain", "join")}
    return approvals.asked_digests(command, args.label, args.period, plan.asked, public)


def _users(args: argparse.Namespace) -> Users:
    """Who is told apart by the flags; the zone matters only where a unit is a day or the like."""
    timed = WINDOWS[protection(args).unit] is not None
    return Users(args.user, args.time if timed else None, args.time_zone if timed else None)


def _public(plan: Plan) -> dict[str, Any]:
    return {name: value for name, value in plan.parameters.items() if value is not None}


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":")).encode()


def _tell(words: str) -> None:
    print(f"headcount: {words}", file=sys.stderr)
