"""What a ledger holds, as plain values."""

from __future__ import annotations

import dataclasses
import datetime
import getpass
import hashlib
import json
import re
import socket
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.accounting.windows import WINDOWS
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.ledger.processes import is_over
from headcount.pipelines.sinks.repeated import release_digest, rows_of

RESERVED, PUBLISHING, LEFT, COMMITTED, GIVEN_BACK = "reserved", "publishing", "left", "committed", "given back"
OPEN = (RESERVED, PUBLISHING, LEFT)  # of which it is not known what became of them
SPENT = (*OPEN, COMMITTED)  # what counts
SPANS = {"": "", "month": "%Y-%m", "year": "%Y"}  # how long a limit holds, and the name of such a time
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_AGAIN = (
    "made again by "  # begins the note of a change by which another process takes over; the process follows, as JSON
)


class Users(NamedTuple):
    """Who is told apart, and so protected: by the column of users, and by that of times in a zone if a unit is a window."""

    user_column: str | None
    time_column: str | None = None
    time_zone: str | None = None

    def description(self) -> str:
        """As the end of a sentence."""
        if self.user_column is None:
            return "no column of users"
        when = "" if self.time_column is None else f" and by the times in {self.time_column!r} in {self.time_zone}"
        return f"the column {self.user_column!r}{when}"


ANY_USERS = Users(None)  # of a data set that does not say it


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A data set: who is promised something, and how much at most, in all or in each month or year.

    The total of an `adaptive` one holds even if what releases cost, and how many there are, was chosen after a look at others.
    Without a column of users, the first release that counts says who is told apart. One that is `approved_only` takes releases
    of approved plans alone.
    """

    name: str
    unit: str
    relation: str
    limit_epsilon: float
    limit_delta: float
    per: str = ""
    adaptive: bool = False
    user_column: str | None = None
    time_column: str | None = None
    time_zone: str | None = None
    at: str = ""
    who: str = ""
    approved_only: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ParameterError(
                f"the name of a data set is 1 to 64 letters, digits, dots, dashes or underscores, got {self.name!r}"
            )

    @property
    def users(self) -> Users:
        """Who is told apart, if that was said when it was made."""
        return Users(self.user_column, self.time_column, self.time_zone)

    def span(self, at: str) -> str:
        """The month or year of a time, if the limit is for such."""
        return datetime.datetime.fromisoformat(at).strftime(SPANS[self.per])

    def limit_description(self) -> str:
        """The limit as the end of a sentence."""
        each = f" in each {self.per}" if self.per else ""
        how = ", however they are planned" if self.adaptive else ""
        how += ", for approved plans alone" if self.approved_only else ""
        return f"epsilon = {self.limit_epsilon:g} at delta = {self.limit_delta:g}{each}{how}"

    def refuse_other(self, guarantee: Guarantee) -> None:
        """Refuse a release whose promise is not of the kind that adds up to this limit."""
        for what, ours, theirs, flag in (
            ("unit", self.unit, guarantee.unit, "--protect"),
            ("relation", self.relation, guarantee.relation.value, "--relation"),
        ):
            if ours != theirs:
                raise ParameterError(
                    f"data set {self.name!r} has the {what} {ours}, and this release promises something under {theirs}: "
                    f"its numbers do not add up with the others; give {flag} {ours}, or another --dataset"
                )

    def refuse_others(self, known: Users, asked: Users) -> None:
        """Refuse a release that protects others than the releases of this data set do: one of these may be many of them."""
        if known != asked:
            raise ParameterError(
                f"data set {self.name!r} protects each {self.unit} of {known.description()}, and this release each of "
                f"{asked.description()}: one of the former may be many of the latter, so that their costs do not add up; give "
                "the same --user, --time and --time-zone, or another --dataset"
            )


@dataclasses.dataclass(frozen=True)
class Request:
    """A release that is about to be made, as it goes into the ledger.

    What is not kept: `asked`, which is compared with approved plans (`approvals.asked_digests`), and `clock_checked`, by
    which somebody says that the clock is right, though it is far beyond the newest entry.
    """

    dataset: str
    release_id: str
    command: str
    guarantee: Guarantee
    parameters_sha256: str
    user_column: str | None = None
    time_column: str | None = None
    time_zone: str | None = None
    label: str | None = None
    period: str | None = None
    output: str | None = None
    files: str = "counts"
    replaces: str | None = None
    runner: str | None = None
    process: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    asked: Sequence[str] = ()
    clock_checked: bool = False

    @property
    def users(self) -> Users:
        """Who is told apart."""
        return Users(self.user_column, self.time_column, self.time_zone)


@dataclasses.dataclass(frozen=True)
class Change:
    """What became of an entry, when, and by whom; with the digests of what was published."""

    state: str
    report_sha256: str | None = None
    rows_sha256: str | None = None
    release_sha256: str | None = None
    note: str | None = None
    at: str = ""
    who: str = ""
    id: int = 0


@dataclasses.dataclass(frozen=True)
class Entry:
    """A release in the ledger, with all that became of it, in order."""

    id: int
    span: str
    request: Request
    changes: Sequence[Change]

    @property
    def last(self) -> Change:
        """What became of it last."""
        return self.changes[-1]

    @property
    def state(self) -> str:
        """What counts of its history: what was ever committed stays so, whatever anybody adds."""
        return COMMITTED if any(change.state == COMMITTED for change in self.changes) else self.last.state

    @property
    def made(self) -> Change | None:
        """The first change that says what was published, or was about to be; None if that is not known."""
        return next((change for change in self.changes if change.release_sha256 is not None), None)

    @property
    def begun(self) -> Change:
        """The change by which the process that works on it began: the last that took it over, or that which reserved it."""
        again = (change for change in reversed(self.changes) if (change.note or "").startswith(_AGAIN))
        return next(again, self.changes[0])

    @property
    def process(self) -> Mapping[str, Any]:
        """The process that works on it, or did last."""
        begun = self.begun
        return self.request.process if begun.id == self.changes[0].id else process_of(str(begun.note)[len(_AGAIN) :])

    def is_over(self) -> bool | None:
        """Whether its process has no more to do with it; None if that cannot be known from here."""
        return True if self.state == LEFT else is_over(self.process)

    def as_dict(self) -> dict[str, Any]:
        """All of it for JSON."""
        request, made = self.request, self.made or self.last
        kept = (each.name for each in dataclasses.fields(request) if each.name not in ("asked", "clock_checked"))
        plain = {name: getattr(request, name) for name in kept}
        history = [
            {name: value for name, value in dataclasses.asdict(change).items() if value is not None and name != "id"}
            for change in self.changes
        ]
        return {
            "id": self.id,
            **plain,
            "guarantee": request.guarantee.as_dict(),
            "span": self.span or None,
            "state": self.state,
            "at": self.changes[0].at,
            "who": self.changes[0].who,
            "report_sha256": made.report_sha256,
            "rows_sha256": made.rows_sha256,
            "release_sha256": made.release_sha256,
            "changes": history,
        }


def published(report: bytes, note: str | None = None, state: str = COMMITTED) -> Change:
    """The change by which a release with this report.json is committed, or is about to be published."""
    return Change(state, hashlib.sha256(report).hexdigest(), rows_of(report), release_digest(report), note)


def made_again(request: Request) -> Change:
    """The change by which the process of a request takes over what another was about to publish. What runs elsewhere is never
    known to be over, as its process here may end before it."""
    process = dict(request.process) | ({} if request.runner is None else {"space": None})
    return Change(PUBLISHING, note=_AGAIN + process_text(process))


def process_text(process: Mapping[str, Any]) -> str:
    """A process as it is stored."""
    return json.dumps(dict(process), sort_keys=True)


def process_of(text: str) -> dict[str, Any]:
    """The process that was stored as this; none, of which nothing is known, if it is not one."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("pid"), int) else {}


def guarantee_text(guarantee: Guarantee) -> str:
    """A guarantee as it is stored."""
    return json.dumps(guarantee.as_dict(), sort_keys=True, allow_nan=False)


def guarantee_of(text: str) -> Guarantee:
    """The guarantee that was stored as this; refuses what is none."""
    try:
        return Guarantee.from_dict(json.loads(text))
    except (ValueError, TypeError, RecursionError):  # what is refused is a ValueError, too
        raise ParameterError("its guarantee is not as a job writes it") from None


def make_dataset(
    name: str,
    unit: str,
    relation: str,
    epsilon: float,
    delta: float,
    per: str | None,
    adaptive: bool = False,
    users: Users = ANY_USERS,
    approved_only: bool = False,
) -> Dataset:
    """A new data set; refuses a limit that is none."""
    if not 0 < epsilon < float("inf"):
        raise ParameterError(f"--limit-epsilon must be positive, got {epsilon}")
    if not 0 <= delta < 1:
        raise ParameterError(f"--limit-delta must be at least 0 and below 1, got {delta}")
    if users.user_column is None and users.time_column is not None:
        raise ParameterError("--time says when a user's rows were: give --user, the column that tells users apart, too")
    windowed = WINDOWS.get(unit) is not None
    if users.user_column is not None and (users.time_column is not None) != windowed:
        words = "needs the column that says when a row was: give --time" if windowed else "has no --time: leave it out"
        raise ParameterError(f"--unit {unit} {words}")
    kind = Relation.parse(relation).value
    return Dataset(name, unit, kind, epsilon, delta, per or "", adaptive, *users, approved_only=approved_only)


def now() -> str:
    """The time, as it is stored: UTC, in a form that sorts."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


def who() -> str:
    """Who runs this process, and where."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have a user without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
