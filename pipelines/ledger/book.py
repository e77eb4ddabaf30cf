"""The ledger itself: data sets with their limits, and the entries of their releases.

Invariants, which hold at the end of every transaction, whatever processes die or race:
- what is reserved or committed in the time of a limit keeps the limit, composed (`spending.total`);
- a release id is reserved or committed at most once, in one data set;
- rows are added and never changed: every state that an entry had is still there.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.ledger import spending, tables
from headcount.pipelines.ledger.database import Database
from headcount.pipelines.ledger.records import (
    COMMITTED,
    RESERVED,
    SPENT,
    Change,
    Dataset,
    Entry,
    Request,
    guarantee_of,
    guarantee_text,
    now,
    who,
)
from headcount.pipelines.suggestions import did_you_mean, nearest

_STORED = [column.name for column in tables.entries.columns if column.name not in ("id", "span")]
_DATASET = [field.name for field in dataclasses.fields(Dataset)]


@dataclasses.dataclass(frozen=True)
class Settled:
    """A change to an entry that is reserved, if it still is as it was looked at."""

    entry: Entry
    change: Change


class Ledger:
    """The ledger in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.name = database.name

    def create(self, dataset: Dataset) -> None:
        """Add a data set; the first one makes the tables."""
        self._database.make()
        with self._database.writing() as connection:
            if dataset.name in _names(connection):
                raise ParameterError(f"data set {dataset.name!r} is in {self.name} already: see headcount ledger show")
            stored = dataclasses.asdict(dataset) | {"at": now(), "who": who()}
            connection.execute(tables.datasets.insert().values(**stored))

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

        What is `settled` of other entries is written before, in the same transaction.
        """
        try:
            return self._reserve(request, settled)
        except spending.ExceededError as error:
            raise error.refusal() from None

    def _reserve(self, request: Request, settled: Iterable[Settled]) -> Entry:
        with self._database.writing() as connection:
            for each in settled:
                _settle(connection, each)
            dataset = _dataset(connection, request.dataset)
            dataset.refuse_other(request.guarantee)
            for entry in _entries(connection, None, request.release_id, SPENT):
                _refuse_another(entry, request)
                return entry
            at = now()
            span = dataset.span(at)
            spent = [entry.request.guarantee for entry in _entries(connection, dataset.name, None, SPENT, span)]
            spending.refuse_above(dataset, span, spent, request.guarantee)
            stored = {name: getattr(request, name) for name in _STORED} | {
                "guarantee": guarantee_text(request.guarantee),
                "process": json.dumps(dict(request.process), sort_keys=True),
            }
            made = connection.execute(tables.entries.insert().values(span=span, **stored))
            assert made.inserted_primary_key is not None
            number = int(made.inserted_primary_key[0])
            _add(connection, number, Change(RESERVED), at)
            return next(entry for entry in _entries(connection, None, request.release_id, SPENT) if entry.id == number)

    def settle(self, settled: Settled) -> bool:
        """Add what became of an entry; False if somebody else has told it meanwhile."""
        with self._database.writing() as connection:
            return _settle(connection, settled)

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
    if entry.state != COMMITTED:
        raise ParameterError(
            f"release {request.release_id!r} is being made by {entry.changes[0].who} since {entry.changes[0].at[:19]}: wait "
            "for it; if it is over, run `headcount ledger resolve`"
        )


def _names(connection: sa.Connection) -> list[str]:
    return [*connection.execute(sa.select(tables.datasets.c.name).order_by(tables.datasets.c.name)).scalars()]


def _dataset(connection: sa.Connection, name: str) -> Dataset:
    columns = [tables.datasets.c[field] for field in _DATASET]
    found = connection.execute(sa.select(*columns).where(tables.datasets.c.name == name)).one_or_none()
    if found is None:
        known = _names(connection)
        near = did_you_mean(nearest(name, known)) or "make it by `headcount ledger create`"
        raise ParameterError(f"no data set {name!r} is in the ledger; {near}")
    return Dataset(**found._mapping)


def _entries(
    connection: sa.Connection,
    dataset: str | None,
    release_id: str | None,
    states: Sequence[str] | None,
    span: str | None = None,
) -> list[Entry]:
    query = sa.select(tables.entries).order_by(tables.entries.c.id)
    for column, value in (("dataset", dataset), ("release_id", release_id), ("span", span)):
        if value is not None:
            query = query.where(tables.entries.c[column] == value)
    if states is not None:
        newest = sa.select(sa.func.max(tables.changes.c.id)).group_by(tables.changes.c.entry)
        those = sa.select(tables.changes.c.entry).where(
            tables.changes.c.id.in_(newest), tables.changes.c.state.in_(states)
        )
        query = query.where(tables.entries.c.id.in_(those))
    rows = connection.execute(query).mappings().all()
    changed: dict[int, list[Change]] = {row["id"]: [] for row in rows}
    wanted = sa.select(query.subquery().c.id)
    history = sa.select(tables.changes).where(tables.changes.c.entry.in_(wanted)).order_by(tables.changes.c.id)
    for change in connection.execute(history).mappings():
        told = {name: value for name, value in change.items() if name != "entry"}
        changed[change["entry"]].append(Change(**told))
    return [_entry(row, changed[row["id"]]) for row in rows]


def _entry(row: Any, changed: Sequence[Change]) -> Entry:
    stored = {name: row[name] for name in _STORED} | {
        "guarantee": guarantee_of(row["guarantee"]),
        "process": json.loads(row["process"]),
    }
    return Entry(row["id"], row["span"], Request(**stored), changed)


def _add(connection: sa.Connection, entry: int, change: Change, at: str) -> None:
    told = dataclasses.asdict(change) | {"at": at, "who": who()}
    del told["id"]
    connection.execute(tables.changes.insert().values(entry=entry, **told))


def _settle(connection: sa.Connection, settled: Settled) -> bool:
    newest = sa.select(sa.func.max(tables.changes.c.id)).where(tables.changes.c.entry == settled.entry.id)
    if connection.execute(newest).scalar_one() != settled.entry.last.id:
        return False
    _add(connection, settled.entry.id, settled.change, now())
    return True
