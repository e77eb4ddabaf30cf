"""Approvals: somebody says yes to a plan before anything of it is spent, and a data set may refuse all else.

An approval is of a plan: of its releases, each by a digest of what it asks. That has the command, the label, and all parameters
that say what is released and at what cost; the period is free, and so are the values that follow from it. Where the data lies,
where the output goes and how it is cut into files is no part of it. A reservation is compared with these digests, by the ledger
and in its own transaction: so a job is of an approved plan by what it does, and not because it says so.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.flags.periods import values_of
from headcount.pipelines.ledger import tables
from headcount.pipelines.ledger.records import Request, now, who

# A period that is free: a name or a date. Words of a condition, such as "x' or page = 'y", would ask for other rows.
_PLAIN = re.compile(r"[A-Za-z0-9._-]+")
_MOST_PLACES = 8  # in which something that follows from the period may stand by chance; of more, in all or in none
_HOW = ("format", "output_files")  # how rows are written, which says nothing of what they are


@dataclasses.dataclass(frozen=True)
class Approved:
    """A release of an approved plan."""

    name: str
    command: str
    asked_sha256: str
    epsilon: float
    delta: float


@dataclasses.dataclass(frozen=True)
class Approval:
    """Somebody's yes to a plan, and when it was taken back, if it was."""

    dataset: str
    plan_sha256: str
    said_by: str
    releases: Sequence[Approved]
    at: str = ""
    who: str = ""
    withdrawn: str | None = None
    id: int = 0

    def as_dict(self) -> dict[str, Any]:
        """All of it for JSON."""
        return dataclasses.asdict(self)


def asked_digests(
    command: str,
    label: str | None,
    period: str | None,
    asked: Mapping[str, Any],
    public: Mapping[str, Any],
) -> list[str]:
    """Digests of what a job asks, by its flags as they are given, and its `public` domain and table. The first has a mark in
    every place where something that follows from the period stands.

    It may stand there for the period, or by chance: which of both, the job does not say. So the others have marks in some of
    these places alone, down to none. A job is the approved release in its period just if one of them is that of the release.
    Public values that are no file or range are not told apart, and differ from all that a plan can name. A period that is more
    than a name or a date stands for nothing but itself.
    """
    told = {name: value for name, value in asked.items() if name not in _HOW}
    for name, given in public.items():
        named = isinstance(given, str) or (isinstance(given, list) and all(isinstance(each, str) for each in given))
        told[name] = given if given is None or named else ["values"]
    known = {name: value for name, value in sorted(told.items()) if value is not None}
    values = values_of(period) if period is not None and _PLAIN.fullmatch(period) else {}
    places = iter(range(sys.maxsize))
    _marked(known, values, lambda: next(places) >= 0)
    number = next(places)
    masks = (
        itertools.product((True, False), repeat=number)
        if number <= _MOST_PLACES
        else [[True] * number, [False] * number]
    )
    found = []
    for mask in masks:
        marked = _marked(known, values, iter(mask).__next__)
        text = json.dumps([command, label, marked], sort_keys=True, allow_nan=False, separators=(",", ":"))
        found.append(hashlib.sha256(text.encode()).hexdigest())
    return found


def _marked(value: Any, values: Mapping[str, str], marks: Callable[[], bool]) -> Any:
    """The same with names in place of what follows from the period, the longest first, where there is to be a mark."""
    if isinstance(value, str) and values:
        names: dict[str, str] = {}
        for name, text in values.items():
            names.setdefault(text, name)
        longest = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        return re.sub(longest, lambda found: f"{{{names[found[0]]}}}" if marks() else found[0], value)
    if isinstance(value, list | tuple):
        return [_marked(each, values, marks) for each in value]
    if isinstance(value, dict):
        return {name: _marked(each, values, marks) for name, each in value.items()}
    return value


def plan_digest(promise: Mapping[str, Any] | None, releases: Iterable[Approved]) -> str:
    """The digest of a plan: its promise, and what its releases ask, in whatever order they stand."""
    asked = sorted([each.name, each.command, each.asked_sha256, each.epsilon, each.delta] for each in releases)
    text = json.dumps([promise, asked], sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def is_there(connection: sa.Connection) -> bool:
    """Whether the ledger has approvals: one of the version before has no tables of them.

    What it says of its version is not asked: whoever could write that would switch approvals off.
    """
    return sa.inspect(connection).has_table(tables.approved_only.name)


def is_approved_only(connection: sa.Connection, dataset: str) -> bool:
    """Whether a data set refuses what is of no approved plan."""
    if not is_there(connection):
        return False
    found = sa.select(tables.approved_only.c.dataset).where(tables.approved_only.c.dataset == dataset)
    return connection.execute(found).one_or_none() is not None


def require(connection: sa.Connection, dataset: str) -> None:
    """From now on the data set refuses what is of no approved plan."""
    connection.execute(tables.approved_only.insert().values(dataset=dataset, at=now(), who=who()))


def read(connection: sa.Connection, dataset: str) -> list[Approval]:
    """The approvals of a data set, in order, with those that were taken back."""
    if not is_there(connection):
        return []
    table = tables.approvals
    rows = connection.execute(sa.select(table).where(table.c.dataset == dataset).order_by(table.c.id)).mappings().all()
    back = dict(connection.execute(sa.select(tables.withdrawals.c.approval, tables.withdrawals.c.at)).tuples().all())
    return [Approval(**row, releases=_releases(connection, row["id"]), withdrawn=back.get(row["id"])) for row in rows]


def _releases(connection: sa.Connection, approval: int) -> list[Approved]:
    columns = [tables.approved.c[field.name] for field in dataclasses.fields(Approved)]
    query = sa.select(*columns).where(tables.approved.c.approval == approval).order_by(tables.approved.c.id)
    return [Approved(*row) for row in connection.execute(query)]


def add(connection: sa.Connection, approval: Approval) -> None:
    """Add somebody's yes; refuses a second to the same plan."""
    for known in read(connection, approval.dataset):
        if known.plan_sha256 == approval.plan_sha256 and known.withdrawn is None:
            raise ParameterError(
                f"this plan of data set {approval.dataset!r} is approved already, by {known.said_by} on {known.at[:10]}"
            )
    stored = {name: getattr(approval, name) for name in ("dataset", "plan_sha256", "said_by")}
    made = connection.execute(tables.approvals.insert().values(**stored, at=now(), who=who()))
    assert made.inserted_primary_key is not None
    for release in approval.releases:
        told = dataclasses.asdict(release)
        connection.execute(tables.approved.insert().values(approval=int(made.inserted_primary_key[0]), **told))


def withdraw(connection: sa.Connection, dataset: str, plan: str, said_by: str) -> Approval:
    """Take back the approval of the plan whose digest begins so; what was released under it stays."""
    found = [each for each in read(connection, dataset) if each.plan_sha256.startswith(plan) and each.withdrawn is None]
    if len(found) != 1:
        number = "no approved plan" if not found else f"{len(found)} approved plans"
        raise ParameterError(
            f"{number} of data set {dataset!r} has a digest that begins with {plan!r}: see headcount ledger show"
        )
    connection.execute(tables.withdrawals.insert().values(approval=found[0].id, said_by=said_by, at=now(), who=who()))
    return found[0]


def allowing(connection: sa.Connection, request: Request) -> Approval | None:
    """The approval that a request is under; refuses one that is under none where all must be."""
    live = [each for each in read(connection, request.dataset) if each.withdrawn is None]
    for approval in reversed(live):
        if any(_is(request, release) for release in approval.releases):
            return approval
    if not is_approved_only(connection, request.dataset):
        return None
    raise ParameterError(
        f"data set {request.dataset!r} takes releases of approved plans alone, and {_why(request, live)}: nothing was read"
    )


def _is(request: Request, release: Approved) -> bool:
    cost = request.guarantee
    return (
        request.command == release.command
        and release.asked_sha256 in request.asked
        and (cost.epsilon <= release.epsilon and cost.delta <= release.delta)
    )


def _why(request: Request, live: Sequence[Approval]) -> str:
    """Why a request is of no approved plan, without a word of what it asks."""
    if not live:
        return "no plan is approved: see headcount ledger approve"
    names = {release.name for each in live for release in each.releases if release.command == request.command}
    if request.label in names:
        return (
            f"{request.command} {request.label!r} has other parameters or another budget than the plan that was approved: "
            "give the same, or have this one approved"
        )
    return f"none has a release {request.command} {request.label!r}: give the label of one, or have this one approved"


def record(connection: sa.Connection, entry: int, approval: Approval | None) -> None:
    """Say under which approval an entry was reserved."""
    if approval is not None:
        connection.execute(tables.allowed.insert().values(entry=entry, approval=approval.id))


def of_release(connection: sa.Connection, release_id: str) -> Approval | None:
    """The approval under which a release was reserved."""
    if not is_there(connection):
        return None
    joined = tables.allowed.join(tables.entries, tables.allowed.c.entry == tables.entries.c.id)
    joined = joined.join(tables.approvals, tables.allowed.c.approval == tables.approvals.c.id)
    query = sa.select(tables.approvals.c.dataset, tables.approvals.c.id).select_from(joined)
    row = connection.execute(query.where(tables.entries.c.release_id == release_id)).first()
    return None if row is None else next(each for each in read(connection, row[0]) if each.id == row[1])
