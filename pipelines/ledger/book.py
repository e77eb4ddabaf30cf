"""The ledger itself: data sets with their limits, and the entries of their releases.

An entry is reserved, then publishing, then committed; or left or given back on the way. It counts unless it is given back.

    reserved     nothing of it was published by the process that reserved it, as that would say so first
    publishing   something may have been published; the entry holds the digest of what
    left         its process has no more to do with it, and something may have been published, or may yet be
    committed    it is published, or a person says so

Invariants, which hold at the end of every transaction, whatever processes die or race:
- what counts in the time of a limit keeps the limit, composed (`spending.total`), but for what was published after it had been
  given up, which counts all the same;
- what counts in one data set protects the same users, told apart by the same columns;
- a release id counts at most once, in one data set, for one digest of its input, rows and choices;
- an entry that was ever committed counts for ever, whatever is added to it;
- of a release that is not committed one process works at a time: an entry is taken over only from one that is over;
- only a person gives back what may have been published (`resolve`); no process publishes here what was given back;
- in a data set whose limit is for a month or year, what counts was reserved at times that do not go back, and that go ahead
  by more than a stated span only if somebody says that the clock is right;
- rows are added and never changed: every state that an entry had is still there;
- in a data set that is `approved_only`, each entry is of a plan that was approved when it was reserved (`approvals`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import sqlalchemy as sa

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.ledger import approvals, spending, tables
from headcount.pipelines.ledger.clocks import time_of
from headcount.pipelines.ledger.database import Database
from headcount.pipelines.ledger.records import (
    COMMITTED,
    GIVEN_BACK,
    LEFT,
    RESERVED,
    SPENT,
    Change,
    Dataset,
    Entry,
    Request,
    Users,
    guarantee_of,
    guarantee_text,
    made_again,
    now,
    process_of,
    process_text,
    who,
)
from headcount.pipelines.suggestions import did_you_mean, nearest

_STORED = [column.name for column in tables.entries.columns if column.name not in ("id", "span")]
_DATASET = [field.name for field in dataclasses.fields(Dataset) if field.name != "approved_only"]
_LOOKS = 3  # at what is spent, before the limit is checked while others wait


@dataclasses.dataclass(frozen=True)
class Settled:
    """A change to an entry that is reserved, if it still is as it was looked at."""

    entry: Entry
    change: Change


class _Seen(NamedTuple):
    """The entries with which one more keeps the limit of a month or year: with fewer of them, it does too."""

    span: str
    entries: frozenset[int]


class Ledger:
    """The ledger in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.name = database.name

    def create(self, dataset: Dataset) -> None:
        """Add a data set; the first one makes the tables."""
        self._database.make()
        self._database.check()
        if dataset.approved_only:
            self._database.upgrade()
        with self._database.writing() as connection:
            if dataset.name in _names(connection):
                raise ParameterError(f"data set {dataset.name!r} is in {self.name} already: see headcount ledger show")
            stored = {name: getattr(dataset, name) for name in _DATASET} | {"at": now(), "who": who()}
            connection.execute(tables.datasets.insert().values(**stored))
            if dataset.approved_only:
                approvals.require(connection, dataset.name)

    def approve(self, approval: approvals.Approval) -> None:
        """Add somebody's yes to a plan."""
        self.dataset(approval.dataset)
        self._database.upgrade()
        with self._database.writing() as connection:
            approvals.add(connection, approval)

    def withdraw(self, dataset: str, plan: str, said_by: str) -> approvals.Approval:
        """Take back the yes to a plan, by the beginning of its digest."""
        self.dataset(dataset)
        self._database.upgrade()
        with self._database.writing() as connection:
            return approvals.withdraw(connection, dataset, plan, said_by)

    def approved(self, dataset: str) -> list[approvals.Approval]:
        """All approvals of a data set, in order."""
        with self._checked() as connection:
            return approvals.read(connection, dataset)

    def refuse_unapproved(self, request: Request) -> None:
        """Refuse what `reserve` would, for want of an approval."""
        with self._checked() as connection:
            approvals.allowing(connection, request)

    def approval_of(self, release_id: str) -> approvals.Approval | None:
        """The approval under which a release was reserved."""
        with self._checked() as connection:
            return approvals.of_release(connection, release_id)

    def datasets(self) -> list[Dataset]:
        """All data sets, by name."""
        with self._checked() as connection:
            return [_dataset(connection, name) for name in _names(connection)]

    def dataset(self, name: str) -> Dataset:
        """The data set of this name."""
        with self._checked() as connection:
            return _dataset(connection, name)

    def entries(
        self, dataset: str | None = None, release_id: str | None = None, states: Sequence[str] | None = None
    ) -> list[Entry]:
        """The entries of a data set, of a release, in some states, in the order in which they were reserved."""
        with self._checked() as connection:
            return _entries(connection, dataset, release_id, states)

    def reserve(self, request: Request, settled: Iterable[Settled] = ()) -> Entry:
        """Reserve what a release costs, or refuse it; the entry that is committed already, if this is it once more.

        What is `settled` of other entries is written before, in the same transaction. What releases cost together takes long to
        compute, so others do not wait for it: it is computed before, and holds if nothing came since.
        """
        settled = tuple(settled)
        try:
            for _ in range(_LOOKS):
                entry = self._reserve(request, settled, self._look(request, settled))
                if entry is not None:
                    return entry
            entry = self._reserve(request, settled, None)
            assert entry is not None
            return entry
        except spending.ExceededError as error:
            raise error.refusal() from None

    def _look(self, request: Request, settled: Sequence[Settled]) -> _Seen:
        """What is spent now, if the limit holds with one more; refuses one with which it does not."""
        gone = {each.entry.id for each in settled if each.change.state == GIVEN_BACK}
        with self._checked() as connection:
            dataset, at = _open_dataset(connection, request, gone)
            span = dataset.span(at)
            again = [entry for entry in _entries(connection, None, request.release_id, SPENT) if entry.id not in gone]
            spent = [entry for entry in _entries(connection, dataset.name, None, SPENT, span) if entry.id not in gone]
            if not again:
                approvals.allowing(connection, request)
        if again:  # which costs nothing
            return _Seen(span, frozenset())
        spending.refuse_above(dataset, span, [entry.request.guarantee for entry in spent], request.guarantee)
        return _Seen(span, frozenset(entry.id for entry in spent))

    def _reserve(self, request: Request, settled: Iterable[Settled], seen: _Seen | None) -> Entry | None:
        """Reserve it if nothing came since what was seen, or whatever came, if nothing was; None if it must be seen again."""
        with self._database.writing() as connection:
            for each in settled:
                _settle(connection, each)
            dataset, at = _open_dataset(connection, request)
            for entry in _entries(connection, None, request.release_id, SPENT):
                _refuse_another(entry, request)
                if entry.state == COMMITTED:
                    return entry
                _add(connection, entry.id, made_again(request), now())
                return _again(connection, entry)
            span, approval = dataset.span(at), approvals.allowing(connection, request)
            if seen is None:
                spent = [entry.request.guarantee for entry in _entries(connection, dataset.name, None, SPENT, span)]
                spending.refuse_above(dataset, span, spent, request.guarantee)
            elif seen.span != span or not seen.entries.issuperset(_ids(connection, dataset.name, span)):
                return None
            stored = {name: getattr(request, name) for name in _STORED} | {
                "guarantee": guarantee_text(request.guarantee),
                "process": process_text(request.process),
            }
            made = connection.execute(tables.entries.insert().values(span=span, **stored))
            assert made.inserted_primary_key is not None
            number = int(made.inserted_primary_key[0])
            _add(connection, number, Change(RESERVED), at)
            approvals.record(connection, number, approval)
            return next(entry for entry in _entries(connection, None, request.release_id, SPENT) if entry.id == number)

    def settle(self, settled: Settled) -> bool:
        """Add what became of an entry; False if somebody else has told it meanwhile, or if it is committed and stays so."""
        with self._database.writing() as connection:
            return _settle(connection, settled)

    def publish(self, entry: Entry, change: Change) -> None:
        """Say that an entry is about to be published; refuses one that was given back, of which nothing may be."""
        with self._database.writing() as connection:
            state = _again(connection, entry).state
            if state == GIVEN_BACK:
                raise ParameterError(
                    f"release {entry.request.release_id!r} was given up while it was made, so nothing of it is published: run "
                    "it again"
                )
            if state != COMMITTED:
                _add(connection, entry.id, change, now())

    def leave(self, entry: Entry, note: str) -> None:
        """Say that this process has no more to do with an entry, of which something may have been published."""
        with self._database.writing() as connection:
            if _again(connection, entry).state != COMMITTED:
                _add(connection, entry.id, Change(LEFT, note=note), now())

    def commit(self, entry: Entry, change: Change) -> str:
        """Add that an entry is published, whatever was said of it before; the state that it had."""
        with self._database.writing() as connection:
            state = _again(connection, entry).state
            _add(connection, entry.id, change, now())
            return state

    @contextmanager
    def _checked(self) -> Iterator[sa.Connection]:
        self._database.check()
        with self._database.reading() as connection:
            yield connection


def _refuse_another(entry: Entry, request: Request) -> None:
    """Refuse to make a release again that is being made, or that was another one."""
    known = entry.request
    if known.dataset != request.dataset:
        raise ParameterError(
            f"release {request.release_id!r} is one of data set {known.dataset!r}: an id has one data set, give another"
        )
    if known.parameters_sha256 != request.parameters_sha256:
        raise ParameterError(
            f"release {request.release_id!r} was made with other parameters: give the same again, or another --release-id"
        )
    # One that died while it published may be made again: what it may have published is known.
    over = entry.state == COMMITTED or (entry.made is not None and entry.is_over())
    if not over:
        raise ParameterError(
            f"release {request.release_id!r} is being made by {entry.begun.who} since {entry.begun.at[:19]}: wait "
            "for it; if it is over, run `headcount ledger resolve`"
        )
    if entry.made is None:
        raise ParameterError(
            f"what release {request.release_id!r} has published is not known here, so that it cannot be made again: give "
            "another --release-id, which is charged"
        )


def _open_dataset(connection: sa.Connection, request: Request, gone: Iterable[int] = ()) -> tuple[Dataset, str]:
    """The data set of a request, if its numbers add up with those of the others but for what is `gone`, and the time of the
    request."""
    dataset = _dataset(connection, request.dataset)
    dataset.refuse_other(request.guarantee)
    counting = _counting(dataset.name, SPENT).where(tables.entries.c.id.not_in([*gone]))
    known = dataset.users
    if known.user_column is None:
        first = counting.order_by(tables.entries.c.id).limit(1)
        row = connection.execute(first).mappings().one_or_none()
        known = request.users if row is None else Users(*(row[name] for name in Users._fields))
    dataset.refuse_others(known, request.users)
    return dataset, time_of(dataset, now(), _newest(connection, counting), request.clock_checked)


def _newest(connection: sa.Connection, counting: sa.Select[Any]) -> str | None:
    """The newest time at which one of these entries was reserved."""
    change = tables.changes.c
    first = sa.select(sa.func.min(change.id)).where(change.entry.in_(sa.select(counting.subquery().c.id)))
    found = connection.execute(sa.select(sa.func.max(change.at)).where(change.id.in_(first.group_by(change.entry))))
    newest: str | None = found.scalar_one()
    return newest


def _names(connection: sa.Connection) -> list[str]:
    return [*connection.execute(sa.select(tables.datasets.c.name).order_by(tables.datasets.c.name)).scalars()]


def _dataset(connection: sa.Connection, name: str) -> Dataset:
    columns = [tables.datasets.c[field] for field in _DATASET]
    found = connection.execute(sa.select(*columns).where(tables.datasets.c.name == name)).one_or_none()
    if found is None:
        known = _names(connection)
        near = did_you_mean(nearest(name, known)) or "make it by `headcount ledger create`"
        raise ParameterError(f"no data set {name!r} is in the ledger; {near}")
    return Dataset(**found._mapping, approved_only=approvals.is_approved_only(connection, name))


def _entries(
    connection: sa.Connection,
    dataset: str | None,
    release_id: str | None,
    states: Sequence[str] | None,
    span: str | None = None,
) -> list[Entry]:
    query = _counting(dataset, states, release_id, span).order_by(tables.entries.c.id)
    rows = connection.execute(query).mappings().all()
    changed: dict[int, list[Change]] = {row["id"]: [] for row in rows}
    wanted = sa.select(query.subquery().c.id)
    history = sa.select(tables.changes).where(tables.changes.c.entry.in_(wanted)).order_by(tables.changes.c.id)
    for change in connection.execute(history).mappings():
        told = {name: value for name, value in change.items() if name != "entry"}
        changed[change["entry"]].append(Change(**told))
    return [_entry(row, changed[row["id"]]) for row in rows]


def _counting(
    dataset: str | None, states: Sequence[str] | None, release_id: str | None = None, span: str | None = None
) -> sa.Select[Any]:
    """The rows of the entries in some states. The state of one is as `Entry.state` has it."""
    query, entry = sa.select(tables.entries), tables.entries.c
    for column, value in (("dataset", dataset), ("release_id", release_id), ("span", span)):
        if value is not None:
            query = query.where(entry[column] == value)
    if states is not None:
        change = tables.changes.c
        ever = entry.id.in_(sa.select(change.entry).where(change.state == COMMITTED))
        newest = sa.select(sa.func.max(change.id)).group_by(change.entry)
        last = entry.id.in_(sa.select(change.entry).where(change.id.in_(newest), change.state.in_(states)))
        query = query.where(sa.or_(ever, last) if COMMITTED in states else sa.and_(sa.not_(ever), last))
    return query


def _ids(connection: sa.Connection, dataset: str, span: str) -> list[int]:
    """The numbers of the entries that count."""
    return [*connection.execute(_counting(dataset, SPENT, span=span)).scalars()]


def _entry(row: Any, changed: Sequence[Change]) -> Entry:
    try:
        guarantee = guarantee_of(row["guarantee"])
    except ParameterError as error:
        raise ParameterError(
            f"entry {row['id']} of the ledger, of data set {row['dataset']!r}, was changed by another program: {error}, so "
            "that what is spent is not known; its owner must put it back from a copy"
        ) from None
    stored = {name: row[name] for name in _STORED} | {
        "guarantee": guarantee,
        "process": process_of(row["process"]),
    }
    return Entry(row["id"], row["span"], Request(**stored), changed)


def _add(connection: sa.Connection, entry: int, change: Change, at: str) -> None:
    told = dataclasses.asdict(change) | {"at": at, "who": who()}
    del told["id"]
    connection.execute(tables.changes.insert().values(entry=entry, **told))


def _again(connection: sa.Connection, entry: Entry) -> Entry:
    """An entry as it is now."""
    return next(each for each in _entries(connection, None, entry.request.release_id, None) if each.id == entry.id)


def _settle(connection: sa.Connection, settled: Settled) -> bool:
    present = _again(connection, settled.entry)
    if present.last.id != settled.entry.last.id or (present.state == COMMITTED and settled.change.state != COMMITTED):
        return False
    _add(connection, settled.entry.id, settled.change, now())
    return True
