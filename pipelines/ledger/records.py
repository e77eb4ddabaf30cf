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
from typing import Any

from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.sinks.output import rows_digest

RESERVED, COMMITTED, GIVEN_BACK = "reserved", "committed", "given back"
SPENT = (RESERVED, COMMITTED)  # what counts
SPANS = {"": "", "month": "%Y-%m", "year": "%Y"}  # how long a limit holds, and the name of such a time
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A data set: who is promised something, and how much at most, in all or in each month or year.

    The total of an `adaptive` one holds even if what releases cost, and how many there are, was chosen after a look at others.
    """

    name: str
    unit: str
    relation: str
    limit_epsilon: float
    limit_delta: float
    per: str = ""
    adaptive: bool = False
    at: str = ""
    who: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ParameterError(
                f"the name of a data set is 1 to 64 letters, digits, dots, dashes or underscores, got {self.name!r}"
            )

    def span(self, at: str) -> str:
        """The month or year of a time, if the limit is for such."""
        return datetime.datetime.fromisoformat(at).strftime(SPANS[self.per])

    def limit_words(self) -> str:
        """The limit as the end of a sentence."""
        each = f" in each {self.per}" if self.per else ""
        how = ", however they are planned" if self.adaptive else ""
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


@dataclasses.dataclass(frozen=True)
class Request:
    """A release that is about to be made, as it goes into the ledger."""

    dataset: str
    release_id: str
    command: str
    guarantee: Guarantee
    parameters_sha256: str
    label: str | None = None
    period: str | None = None
    output: str | None = None
    files: str = "counts"
    replaces: str | None = None
    runner: str | None = None
    process: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Change:
    """What became of an entry, when, and by whom; with the digests of what was published."""

    state: str
    report_sha256: str | None = None
    rows_sha256: str | None = None
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
        """Whether it is reserved, committed or given back."""
        return self.last.state

    def as_dict(self) -> dict[str, Any]:
        """All of it for JSON."""
        request = self.request
        plain = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
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
            "report_sha256": self.last.report_sha256,
            "rows_sha256": self.last.rows_sha256,
            "changes": history,
        }


def published(report: bytes, note: str | None = None) -> Change:
    """The change by which a release with this report.json is committed."""
    content = json.loads(report)
    # The report of a table has the digest of what was loaded, and no files.
    rows = content["rows_sha256"] if "files" not in content else rows_digest([f["sha256"] for f in content["files"]])
    return Change(COMMITTED, hashlib.sha256(report).hexdigest(), rows, note)


def guarantee_text(guarantee: Guarantee) -> str:
    """A guarantee as it is stored."""
    return json.dumps(guarantee.as_dict(), sort_keys=True, allow_nan=False)


def guarantee_of(text: str) -> Guarantee:
    """The guarantee that was stored as this."""
    return Guarantee.from_dict(json.loads(text))


def make_dataset(
    name: str, unit: str, relation: str, epsilon: float, delta: float, per: str | None, adaptive: bool = False
) -> Dataset:
    """A new data set; refuses a limit that is none."""
    if not 0 < epsilon < float("inf"):
        raise ParameterError(f"--limit-epsilon must be positive, got {epsilon}")
    if not 0 <= delta < 1:
        raise ParameterError(f"--limit-delta must be at least 0 and below 1, got {delta}")
    return Dataset(name, unit, Relation.parse(relation).value, epsilon, delta, per or "", adaptive)


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
