"""What a job says of itself: report.json beside the result, and `--explain` before there is one.

The report is part of what is published. It says in plain words what came out and what was promised; the numbers of the
mechanisms, parameters and versions are its "details". It holds nothing of the input: no rows, bytes, shards, dropped rows,
timings, file lists or key source. It is complete before the job starts, but for what the job chooses itself, at a cost that the
promise states, for what `sinks.finished` says of the released rows, and, on an account, for the digest of the input under the
key (`counting.input_digest`).
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import platform
from collections.abc import Mapping
from importlib import metadata
from typing import Any, Protocol, runtime_checkable

from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.calibration.expected_error import correlated, expected_error
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.pipelines.flags.protection import Protection
from headcount.pipelines.reports.plan import Parameters
from headcount.pipelines.sinks.finished import to_json
from headcount.pipelines.sinks.repeated import INPUT, REPORT_MARK

#: What a reader of bounded counts must know of them.
BOUNDED = "bounding users also lowers the counts: what they did beyond the bound does not count"

_PACKAGES = ("apache-beam", "cryptography", "dp-accounting", "fastavro", "numpy", "pyarrow", "scipy")


def versions() -> dict[str, str]:
    """The version of Python and of every package that has a part in the result."""
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in _PACKAGES}


class Decision(Protocol):
    """What a job came to, and what it therefore promises. All of it is paid for, and public."""

    @property
    def guarantee(self) -> Guarantee:
        """The whole promise, in the numbers of the decision."""

    def description(self) -> str:
        """What was decided, in one line."""

    def report_fields(self) -> Mapping[str, Any]:
        """The same for a machine: more parts of the report, by name."""


@runtime_checkable
class Summarized(Protocol):
    """A decision that tells what a reader of the rows asks first, where it is known: all of it is public or paid for."""

    def summary(self) -> Mapping[str, Any]:
        """`users_needed`, about how many users an item needs to be shown; `share_left_out`, about which share of the events of
        the shown items the bound left out; `assumption`, the sentence on what estimates take for granted; `correlated`, that on
        errors of which all rows have a part."""


@dataclasses.dataclass(frozen=True)
class About:
    """What a report says of its job, whatever that decides. Label, period and
    the data set's name are the user's own words, and nothing else.

    `date` is the day on which the release was first made (`first_made`): a second run of it is no other release.
    """

    command: str
    release_id: str
    parameters: Parameters
    note: str | None = None
    label: str | None = None
    period: str | None = None
    summary: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    protection: Protection = Protection()
    dataset: str | None = None
    date: str | None = None


def first_made(release_id: str, reserved: str | None, there: bytes | None) -> str:
    """The day of a release, as a date in UTC: that of its entry in the ledger, where it has one; that in the report of an
    earlier run of it, where such an output is about to be replaced; else today. So a second run writes the same bytes."""
    earlier = {} if there is None else json.loads(there)
    known = earlier.get("date") if earlier.get("release_id") == release_id else None
    return reserved or known or datetime.datetime.now(datetime.UTC).date().isoformat()


def decided_report(decision: Decision, about: About, input_digest: str | None = None) -> bytes:
    """The content of report.json where the job decided something itself."""
    return make_report(about, decision.guarantee, decision, input_digest)


def plain_report(input_digest: str, about: About, guarantee: Guarantee) -> bytes:
    """The content of report.json where nothing but the digest of the input is known at the end alone."""
    return make_report(about, guarantee, None, input_digest)


def make_report(
    about: About, guarantee: Guarantee, decision: Decision | None = None, input_digest: str | None = None
) -> bytes:
    """The content of report.json, before there are rows; what is None was not given and is left out."""
    protected, guarantee = about.protection.description(guarantee), about.protection.of(guarantee)
    content: dict[str, Any] = {
        REPORT_MARK: metadata.version("headcount"),
        "label": about.label,
        "period": about.period,
        "date": about.date,
        "dataset": about.dataset,
        "command": about.command,
        "release_id": about.release_id,
        "promise": guarantee.promise_line(),
        "protected": protected,
        "decision": None if decision is None else decision.description(),
        "note": about.note,
        **about.summary,
        **(decision.summary() if isinstance(decision, Summarized) else {}),
    }
    details = {
        "guarantee": {"words": guarantee.description().splitlines(), **guarantee.as_dict()},
        "parameters": _given(about.parameters),
        **({} if decision is None else decision.report_fields()),
        **({} if input_digest is None else {INPUT: input_digest}),
        "versions": versions(),
    }
    return to_json({**_given(content), "details": details})


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def explain(guarantee: Guarantee, plan: NoisePlan) -> str:
    """The promise and what it costs, in words, before anything is read."""
    lines = [guarantee.description().rstrip(), "", *expected_error_lines(plan)]
    return "\n".join([*lines, "", BOUNDED])


def expected_error_lines(plan: NoisePlan) -> list[str]:
    """Noise and threshold of counts in words."""
    error = expected_error(plan)
    lines = [
        f"noise: {plan.kind}, standard deviation {error.stddev:,.4g};"
        f" 95 % of the noisy counts are within {error.half_width:,.4g} of the bounded count",
    ]
    lines += correlated(plan).values()
    if error.threshold is None:
        lines.append("threshold: none, every item that is public is released")
    else:
        lines += [
            f"threshold: {error.threshold:,.6g}, items with a lower noisy count are left out",
            f"a bounded count of {error.even_count:,} is released with a chance of 50 %,"
            f" one of {error.sure_count:,} with 99.9 %",
            "low to high knows of the threshold: near it the lucky ones are released, and intervals are wider",
        ]
    return lines
