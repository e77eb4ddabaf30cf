"""What the process of a stream does while its job runs: it reserves the cost of each window, and publishes the window once.

The cost of a window is reserved when the window begins, long before anything of it can be written; or it is refused, and then
the stream stops before that window. When its result lies aside, the ledger is told the digest of what is about to be published,
the files are moved into place, and the entry is committed. Killed before the ledger was told, nothing was seen, and the next
start makes the window again; killed after that, it publishes what still lies aside, and nothing else. Workers never touch the
ledger.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.command import UnsettledError
from headcount.pipelines.ledger import account as accounts
from headcount.pipelines.ledger.records import SPENT
from headcount.pipelines.pages.written import with_page
from headcount.pipelines.reports.outcome import Outcome
from headcount.pipelines.reports.plan import Plan
from headcount.pipelines.reports.report import first_made
from headcount.pipelines.sinks import output
from headcount.pipelines.sinks.output import Target
from headcount.pipelines.sinks.repeated import refuse_another, release_digest
from headcount.pipelines.storage import stores
from headcount.pipelines.streams import folders
from headcount.pipelines.streams.folders import Folders, Staged


class Publisher:
    """Publishes the windows of a stream; `left` are the ends of those that are not yet. From the end `stop` on nothing may be
    made, since the ledger has refused it."""

    def __init__(
        self,
        args: argparse.Namespace,
        command: str,
        release: Release,
        plan: Plan,
        places: Folders,
        tell: Callable[[str], None],
    ) -> None:
        self._args, self._command, self._release, self._plan = args, command, release, plan
        self._places, self._tell = places, tell
        self._accounts: dict[int, accounts.Account] = {}
        self._refused: ParameterError | None = None
        self.left = list(places.ends())
        self.stop: int | None = None

    def resume(self, now: float) -> frozenset[int]:
        """Go on from earlier starts: the ends of the windows of which nothing is to be made, since they are published, or must
        not be."""
        there = self._places.published()
        self._settle(there)
        present = self._places.present()
        for end in there:
            target = self._places.of(end)
            if self._places.is_staged(end, present):
                output.discard(target)
            if not stores.exists(stores.join(target.directory, output.PAGE)):
                with_page(_outcome(target))
        self.left = [end for end in self.left if end not in there]
        self.step(now)
        return frozenset(
            end for end in self._places.ends() if end not in self.left or (self.stop is not None and end >= self.stop)
        )

    def step(self, now: float) -> None:
        """Reserve what begins, and publish what lies aside complete; raises when there is nothing more that may be made."""
        self._reserve(now)
        present = self._places.present()
        for end in [end for end in self._places.ends() if self._places.is_staged(end, present)]:
            target = self._places.of(end)
            staged = folders.staged_of(target)
            if staged and end in self._accounts:
                self._publish(end, target, staged, self._accounts[end])
            elif staged and end not in self.left:
                output.discard(target)
                self._tell(
                    f"a second result for the window {self._places.name(end)} was thrown away: the one that is published stays"
                )
        if self._refused is not None and self.stop is not None and not [end for end in self.left if end < self.stop]:
            raise self._refused

    def close(self) -> None:
        """Give back what was reserved and not published."""
        for account in self._accounts.values():
            account.failed()
        self._accounts.clear()

    def _reserve(self, now: float) -> None:
        for end in self.left:
            if self._refused is not None or end - self._places.windows.size > now:
                return
            if end not in self._accounts:
                try:
                    self._accounts[end] = accounts.open_account(*self._asked(end), self._plan, self._places.of(end))
                except ParameterError as error:
                    why = str(error).replace(": nothing was read; ", "; ")
                    self._refused, self.stop = (
                        ParameterError(f"the stream stops before the window {self._places.name(end)}: {why}"),
                        end,
                    )

    def _publish(self, end: int, target: Target, staged: list[Staged], account: accounts.Account) -> None:
        chosen, report = self._chosen(target, staged, account)
        account.publishing(report)
        output.commit(target, chosen.files, report)
        found = output.read_report(target)
        _, unsettled = account.published(found)
        del self._accounts[end]
        self.left.remove(end)
        with_page(_outcome(target))
        rows = json.loads(found)["rows"]
        self._tell(
            f"window {self._places.name(end)}: wrote {target.directory}, {rows:,} {'row' if rows == 1 else 'rows'}"
        )
        if unsettled is not None:
            raise UnsettledError(unsettled)

    def _chosen(self, target: Target, staged: list[Staged], account: accounts.Account) -> tuple[Staged, bytes]:
        """What is published of all that lies aside, and its report: the one that the ledger knows of, if it does."""
        date = first_made(target.release_id, account.date, None)
        made = [(each, target.finished(each.dated(date), each.files)) for each in staged]
        for each, report in made:
            if account.expected in (None, release_digest(report)):
                return each, report
        refuse_another(account.expected, made[0][1], target.release_id)
        raise AssertionError("it is another one")

    def _asked(self, end: int) -> tuple[argparse.Namespace, str, Release]:
        """The command line of the job of one window, as its account takes it."""
        own = self._release.of_window(end)
        given = vars(self._args) | {"release_id": own.id, "period": self._places.name(end)}
        return argparse.Namespace(**given), self._command, own

    def _settle(self, there: frozenset[int]) -> None:
        """See that every published window has its entry: an earlier start may have been killed, or had no ledger."""
        if self._args.ledger is None:
            return
        from headcount.pipelines.ledger import resolve

        ledger = accounts.open_ledger(self._args.ledger)
        ledger.dataset(self._args.dataset)
        own = {self._places.of(end).release_id for end in self._places.ends()}
        for entry in resolve.undecided(ledger, self._args.dataset):
            if entry.request.release_id in own:
                settled = resolve.decide(entry).settled
                if settled is not None:
                    ledger.settle(settled)
        for end in sorted(there):
            target = self._places.of(end)
            if not ledger.entries(None, target.release_id, SPENT):
                account = accounts.open_account(*self._asked(end), self._plan, target)
                _, unsettled = account.published(output.read_report(target))
                if unsettled is not None:
                    raise InputError(unsettled)


def _outcome(target: Target) -> Outcome:
    """A published window as its page is made from it."""
    told = json.loads(output.read_report(target))
    return Outcome(target.directory, target.release_id, output.COMPLETE, told, output.written(target), target.format)
