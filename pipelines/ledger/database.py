"""The database of a ledger: a file of SQLite, or PostgreSQL. One transaction at a time writes, and it is on disk when it ends.

SQLite takes its lock at the beginning of a writing transaction (BEGIN IMMEDIATE), waits for it, and writes through to the disk
(WAL, synchronous = FULL). PostgreSQL locks the one row of `headcount_ledger`; what is read behind that sees all that was
written before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.pool import NullPool

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.ledger import tables
from headcount.pipelines.storage.stores import reason

_WAIT = 120  # seconds for the lock, while others hold it
_CONNECT = 20  # seconds for a server to answer
_READING = "headcount_reading"
_EFFECTIVE = os.access in os.supports_effective_ids


class Database:
    """The database behind a URL; nothing is opened before it is used, and nothing stays open."""

    def __init__(self, url: str) -> None:
        try:
            parsed = sa.make_url(url)
        except (sa.exc.ArgumentError, ValueError):  # the latter of a port that is no number
            raise ParameterError(
                "--ledger cannot be read as a URL; give sqlite:///ledger.db or postgresql://..."
            ) from None
        self._password = str(parsed.password or parsed.query.get("password") or "")
        if parsed.get_backend_name() == "sqlite":
            if not parsed.database or parsed.database == ":memory:":
                raise ParameterError("--ledger must name a file, as in sqlite:///ledger.db")
            self.file: str | None = os.path.abspath(parsed.database)
            self.name = f"sqlite:///{parsed.database}"
            self._engine = sa.create_engine(parsed, poolclass=NullPool, hide_parameters=True)
            event.listen(self._engine, "connect", _set_up_sqlite)
            event.listen(self._engine, "begin", _begin_sqlite)
        else:
            if url.count("@") > 1:  # the first would end the password: its rest would be taken for a host, and told
                raise ParameterError(
                    "--ledger has more than one @: write those of a user, a password or an option as %40"
                )
            self.file = None
            self.name = f"postgresql://{parsed.host or ''}/{parsed.database or ''}"
            self._engine = sa.create_engine(
                parsed.set(drivername="postgresql+psycopg"),
                poolclass=NullPool,
                hide_parameters=True,
                # Whatever the server's default is: another level would not see what was written while it waited for the lock.
                isolation_level="READ COMMITTED",
                connect_args={"connect_timeout": _CONNECT, "client_encoding": "utf8"},
            )
            event.listen(self._engine, "begin", _begin_postgres)

    def make(self) -> None:
        """Make the tables that are not there yet."""
        if self.file is not None and not os.path.isdir(os.path.dirname(self.file)):
            raise ParameterError(f"--ledger {self.name} lies in a folder that is not there: make it first")
        with self._one_line_errors(), self._engine.begin() as connection:
            if not sa.inspect(connection).has_table(tables.ledger.name):
                tables.metadata.create_all(connection)
                connection.execute(tables.ledger.insert().values(version=tables.VERSION))

    def check(self) -> None:
        """Refuse a database that holds no ledger, or one of another version."""
        if self.file is not None and not os.path.exists(self.file):  # SQLite would make an empty one
            raise self._none_there()
        with self._one_line_errors(), self._reading() as connection:
            if not sa.inspect(connection).has_table(tables.ledger.name):
                raise self._none_there()
            found = connection.execute(sa.select(tables.ledger.c.version)).scalar_one()
            if found not in (tables.BEFORE, tables.VERSION):
                raise ParameterError(
                    f"--ledger {self.name} has tables of version {found}, and this is for version {tables.VERSION}: "
                    "use the Headcount that made it"
                )

    def upgrade(self) -> None:
        """Add the tables that a ledger of the version before does not have; from then on, that version refuses it."""
        with self.writing() as connection:
            if connection.execute(sa.select(tables.ledger.c.version)).scalar_one() == tables.BEFORE:
                tables.metadata.create_all(connection)
                connection.execute(tables.ledger.update().values(version=tables.VERSION))

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that only looks."""
        with self._one_line_errors(), self._reading() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that nobody else's comes between; it is all on disk at the end, or nothing of it."""
        with self._one_line_errors(), self._engine.begin() as connection:
            connection.execute(sa.select(tables.ledger.c.version).with_for_update())
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        options: dict[str, Any] = {_READING: True}
        if self.file is None:
            options["isolation_level"] = "REPEATABLE READ"  # several queries see one state, as they do in SQLite
        engine = self._engine if self.file is None or _is_writable(self.file) else _engine_to_look(self.file)
        with engine.connect().execution_options(**options) as connection:
            yield connection

    @contextmanager
    def _one_line_errors(self) -> Iterator[None]:
        """Turns what a database says into one line without the password."""
        try:
            yield
        except sa.exc.SQLAlchemyError as error:
            words = reason(getattr(error, "orig", None) or error)
            if self._password:
                words = words.replace(self._password, "***")
            if "locked" in words or "lock timeout" in words:
                words = f"others have kept it locked for {_WAIT} seconds; try again"
            raise ParameterError(f"--ledger {self.name} cannot be used: {words}") from None

    def _none_there(self) -> ParameterError:
        return ParameterError(f"--ledger {self.name} holds no ledger: make one by `headcount ledger create`")


def _set_up_sqlite(connection: Any, record: Any) -> None:
    _take_transactions(connection, record)
    for pragma in (f"busy_timeout={_WAIT * 1000}", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _is_writable(file: str) -> bool:
    """Whether a file that is there, and others beside it, may be written, as SQLite does even to read."""
    places = (file, os.path.dirname(file))
    return not os.path.exists(file) or all(os.access(each, os.W_OK, effective_ids=_EFFECTIVE) for each in places)


def _engine_to_look(file: str) -> sa.Engine:
    """SQLite on a file that cannot be written: nobody changes it, unless what others wrote lies beside it still."""
    log = f"{file}-wal"
    left = os.path.exists(log) and os.path.getsize(log) > 0
    named = f"file:{quote(file)}?mode=ro{'' if left else '&immutable=1'}&uri=true"
    engine = sa.create_engine(f"sqlite:///{named}", poolclass=NullPool, hide_parameters=True)
    event.listen(engine, "connect", _take_transactions)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _take_transactions(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # transactions begin below


def _begin_postgres(connection: sa.Connection) -> None:
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_WAIT}s'")


def _begin_sqlite(connection: sa.Connection) -> None:
    reading = connection.get_execution_options().get(_READING, False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
