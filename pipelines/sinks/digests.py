"""Where the rows of a second run go: nowhere. Its files are known by their digests alone, for `headcount verify`.

A second run with another key, or on other input, would be another release, which nobody has paid for. So no row of it is
written, not even to a temporary file: what a job leaves is one file of digests, which whoever asked for it removes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headcount.pipelines.sinks.finished import SEAL, to_json
from headcount.pipelines.sinks.output import REPORT_MARK, Target, Written
from headcount.pipelines.storage import stores

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

COMPLETE = "the digests are there"
DIGESTS = "digests.json"
INPUT = "input_digest"  # the part of a report's details that tells another attempt of its release: with a ledger alone
# Of a report, what a second run need not give: what made it, when, on whose account, and where a bound came from that it holds;
# and the digest of all of it.
_OWN = {REPORT_MARK, "date", SEAL, "dataset", f"details.{INPUT}", "details.versions", "details.parameters.bound_from"}


@dataclasses.dataclass(frozen=True)
class DigestTarget(Target):
    """An output that is compared and never kept."""

    def keep(self, name: str, content: bytes) -> None:
        """Nothing is kept."""


def make_target(
    output: str, release_id: str, files: int, format: str, overwrite: bool, prefix: str, options: PipelineOptions | None
) -> DigestTarget:
    """The target of a second run; `output` is where its digests go."""
    return DigestTarget(stores.normal(output), release_id, files, format, overwrite, prefix)


def refuse(target: DigestTarget) -> bool:
    """Nothing to refuse, and nothing that is replaced."""
    return False


def prepare(target: DigestTarget) -> None:
    """Nothing to prepare: the folder of the digests is made by whoever asked for them."""


def commit(target: DigestTarget, written: Iterable[Written], report: bytes) -> None:
    """The last step: the digests, of every file and of every part of the report. It may run again, or twice at once."""
    files = {target.name(file.k): file.digest.hex() for file in target.checked(written)}
    found = {"files": files, "parts": part_digests(json.loads(report))}
    stores.write(stores.join(target.directory, DIGESTS), to_json(found))


def abandon(target: DigestTarget) -> None:
    """After a failure: remove the digests, if they are there."""
    stores.remove(stores.join(target.directory, DIGESTS))


def read_report(target: DigestTarget) -> bytes:
    """The digests."""
    return stores.read(stores.join(target.directory, DIGESTS))


def written(target: DigestTarget) -> list[str]:
    """No files."""
    return []


def part_digests(report: Mapping[str, Any]) -> dict[str, str]:
    """A digest for each part of a report, by its name; the details, and the parameters in them, are parts each.

    Floats count with seven digits: the last ones of a fitted curve depend on the processor.
    """
    parts = {}
    for name, value in _parts(report):
        if name not in _OWN:
            parts[name] = hashlib.sha256(json.dumps(_plain(value), sort_keys=True).encode()).hexdigest()
    return parts


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
