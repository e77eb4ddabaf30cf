"""What a job says of itself: report.json beside the result, and `--explain` before there is one.

The report is part of what is published. It holds the promise and public parameters only: no rows, bytes,
shards, dropped rows, timings, file lists or key source. It is complete before the job starts, but for what the job
chooses itself, at a cost that the promise states.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib import metadata
from typing import Any, Protocol

from headcount.mechanisms.accounting.calibration import NoisePlan
from headcount.mechanisms.accounting.expected_error import expected_error
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.histogram.auto import AutoRelease
from headcount.pipelines.sinks.output import REPORT_MARK

_PACKAGES = ("apache-beam", "cryptography", "dp-accounting", "fastavro", "numpy", "pyarrow", "scipy")
Parameters = Mapping[str, str | int | float | bool | None]


def versions() -> dict[str, str]:
    """The version of Python and of every package that has a part in the result."""
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in _PACKAGES}


class Decision(Protocol):
    """What a job came to, and what it therefore promises. All of it is paid for, and public."""

    @property
    def guarantee(self) -> Guarantee:
        """The whole promise, in the numbers of the decision."""

    def words(self) -> str:
        """What was decided, in one line."""

    def sections(self) -> Mapping[str, Any]:
        """The same for a machine: more parts of the report, by name."""


def decided_report(
    decision: Decision, command: str, release_id: str, parameters: Parameters, note: str | None = None
) -> bytes:
    """The content of report.json where the job decided something itself."""
    return make_report(command, release_id, decision.guarantee, parameters, note, decision)


def make_report(
    command: str,
    release_id: str,
    guarantee: Guarantee,
    parameters: Parameters,
    note: str | None = None,
    decision: Decision | None = None,
) -> bytes:
    """The content of report.json; parameters that are None were not given and are left out."""
    content = {
        REPORT_MARK: metadata.version("headcount"),
        "command": command,
        "release_id": release_id,
        "guarantee": {"words": guarantee.words().splitlines(), **guarantee.as_dict()},
        "parameters": {name: value for name, value in parameters.items() if value is not None},
        "versions": versions(),
    }
    if note is not None:
        content["note"] = note
    if decision is not None:
        content |= {"decision": decision.words(), **decision.sections()}
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def explain(guarantee: Guarantee, plan: NoisePlan | AutoRelease) -> str:
    """The promise and what it costs, in words, before anything is read; where the bound is chosen, at both ends."""
    lines = [guarantee.words().rstrip()]
    if isinstance(plan, NoisePlan):
        lines += ["", *expected_words(plan)]
    else:
        for end in plan.choice.ends():
            lines += ["", f"if a bound of {end.bound:,} is chosen:", *expected_words(plan.decided(end).plan)]
    lines += ["", "bounding users lowers the counts besides: what they did beyond the bound does not count"]
    return "\n".join(lines)


def expected_words(plan: NoisePlan) -> list[str]:
    """Noise and threshold of counts in words."""
    error = expected_error(plan)
    lines = [
        f"noise: {plan.kind}, standard deviation {error.stddev:,.4g};"
        f" 95 % of the noisy counts are within {error.half_width:,.4g} of the bounded count",
    ]
    if error.threshold is None:
        lines.append("threshold: none, every item that is public is released")
    else:
        lines += [
            f"threshold: {error.threshold:,.6g}, items with a lower noisy count are left out",
            f"a bounded count of {error.even_count:,} is released with a chance of 50 %,"
            f" one of {error.sure_count:,} with 99.9 %",
        ]
    return lines
