"""A release that is made once more: it costs nothing, and so must be the same in all that follows from its input.

Its rows alone do not tell: names, and results without a row, are often the same for other data, whose private choices the
report would then publish for nothing. So everything counts that a report says of the release, and the keyed digest of its
input.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headcount.mechanisms.errors import InputError
from headcount.pipelines.sinks.finished import SEAL

REPORT_MARK = "headcount"  # the key of report.json by which we know our own
INPUT = "input_digest"  # the part of a report's details that tells another attempt of its release: with a ledger alone
# Of a report, what a second run need not give: what made it, when, on whose account, and where a bound came from that it holds;
# and the digest of all of it.
_OWN = {REPORT_MARK, "date", SEAL, "dataset", f"details.{INPUT}", "details.versions"}
_OWN |= {"details.parameters.bound_from", "details.parameters.like"}
_WORDS = ("label", "period")  # the user's own, which follow from nothing


def release_digest(report: bytes) -> str:
    """One digest of a release by its finished report: of its rows, its input, and all parts but what made it and its words."""
    content = json.loads(report)
    parts = {
        name: part for name, part in part_digests(content).items() if name not in (*_WORDS, "files", "rows_sha256")
    }
    known = [parts, rows_of(report), content.get("details", {}).get(INPUT)]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def rows_of(report: bytes) -> str:
    """The digest of the rows that a finished report is of: of a table it has that of what was loaded, and no files."""
    content = json.loads(report)
    found: str = content.get("rows_sha256") or rows_digest([file["sha256"] for file in content["files"]])
    return found


def refuse_another(expected: str | None, report: bytes, release_id: str) -> None:
    """Refuse another release than the one of this digest, if one is expected: it would be one more, for nothing."""
    if expected is not None and release_digest(report) != expected:
        raise InputError(
            f"release {release_id!r} has published another result than this, so nothing is published: the input changed since "
            "(or the key, or the version of Headcount or a library); for other events give another --period or --release-id"
        )


def is_of(release_id: str, report: bytes | str) -> bool:
    """Whether a report is one of this release."""
    try:
        content = json.loads(report)
    except ValueError:
        return False
    return isinstance(content, Mapping) and content.get("release_id") == release_id


def is_same(there: bytes | str, report: bytes | str) -> bool:
    """Whether two finished reports say the same of one release and its rows: all but what made them, and on whose account."""
    old, new = json.loads(there), json.loads(report)
    inputs = {each.get("details", {}).get(INPUT) for each in (old, new)} - {None}
    return part_digests(old) == part_digests(new) and len(inputs) < 2


def changed(release_id: str, where: str) -> InputError:
    """The refusal of a release that is there, with another result, and may not be replaced."""
    return InputError(
        f"release {release_id!r} is in --output {where} already, with another result than this, so nothing is changed: the "
        "input or a flag changed since (or the key, or the version of Headcount or a library); give another --release-id "
        "with another --output, or --overwrite"
    )


def rows_digest(digests: Sequence[str]) -> str:
    """One digest of all rows of an output: of the SHA-256 digests of its files, in their order."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def part_digests(report: Mapping[str, Any]) -> dict[str, str]:
    """A digest for each part of a report, by its name; the details, and the parameters in them, are parts each.

    Floats count with seven digits: the last ones of a fitted curve depend on the processor.
    """
    parts = {}
    for name, value in _parts(report):
        if name not in _OWN:
            parts[name] = hashlib.sha256(json.dumps(_plain(value), sort_keys=True).encode()).hexdigest()
    return parts


def not_from_input(report: Mapping[str, Any]) -> list[str]:
    """The parts of a report that its input and its key do not tell: what made it and when, whose it is, and its words."""
    untold = (_OWN | {*_WORDS}) - {SEAL}
    return [name for name, _ in _parts(report) if name in untold]


def _parts(report: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    details = report.get("details", {})
    yield from ((name, value) for name, value in report.items() if name != "details")
    yield from ((f"details.{name}", value) for name, value in details.items() if name != "parameters")
    yield from ((f"details.parameters.{name}", value) for name, value in details.get("parameters", {}).items())


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.7g}"
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value
