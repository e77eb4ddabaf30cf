"""A release that is made once more: it costs nothing, and so must be the same in all that follows from its input.

Its rows alone do not tell: names, and results without a row, are often the same for other data, whose private choices the
report would then publish for nothing. So everything counts that a report says of the release, and the keyed digest of its
input.
"""

from __future__ import annotations

import hashlib
import json

from headcount.mechanisms.errors import InputError
from headcount.pipelines.sinks.digests import INPUT, part_digests
from headcount.pipelines.sinks.output import rows_digest

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
