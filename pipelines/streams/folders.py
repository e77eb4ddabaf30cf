"""The outputs of a stream: a folder for each window, named by when the window begins, each written aside and published once.

The pipeline writes the files of a window under its temporary name, and last a note of them, `staged.<attempt>.json`: with the
note all is there that the window's output needs. Whoever publishes moves the files into place. The first note that is published
stays. What comes for the window later, after a restart, may be made of other rows, and would be a second release at the price
of one: it is thrown away unread.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.windows import Windows, window_id
from headcount.pipelines.reports.report import About
from headcount.pipelines.sinks import output
from headcount.pipelines.sinks.finished import to_json
from headcount.pipelines.sinks.output import REPORT, Target, Written
from headcount.pipelines.sinks.repeated import INPUT, is_of
from headcount.pipelines.storage import bigquery, stores

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

_DAY = 86_400
_STAGED = "staged."
_INFIX = ".tmp-"


class Staged(NamedTuple):
    """What was written aside for a window: its files, and its report but for what is known when it is published."""

    report: bytes
    files: tuple[Written, ...]

    def dated(self, date: str) -> bytes:
        """The report with the day of its release."""
        return to_json({**json.loads(self.report), "date": date})


@dataclasses.dataclass(frozen=True)
class Folders:
    """The outputs of all windows: `whole` has the folder of them all, and the id of the release before its windows' ends."""

    whole: Target
    windows: Windows

    def ends(self) -> Iterator[int]:
        """When each window ends."""
        return (start + self.windows.size for start in self.windows.starts())

    def name(self, end: int) -> str:
        """The name of a window, which its folder has and which is the period of its report: when it begins, in UTC."""
        begins = datetime.datetime.fromtimestamp(end - self.windows.size, datetime.UTC)
        days = self.windows.size % _DAY == 0 and self.windows.start % _DAY == 0
        return f"{begins:%Y-%m-%d}" if days else f"{begins:%Y-%m-%dT%H%M%SZ}"

    def of(self, end: int) -> Target:
        """The output of a window."""
        directory = stores.join(self.whole.directory, self.name(end))
        return dataclasses.replace(self.whole, directory=directory, release_id=window_id(self.whole.release_id, end))

    def about(self, about: About, end: int) -> About:
        """What the report of a window says of its job."""
        return dataclasses.replace(about, release_id=self.of(end).release_id, period=self.name(end), date="")

    def present(self) -> set[str]:
        """The names in the folder of them all."""
        return {name.split("/")[0] for name in stores.names(self.whole.directory)}

    def is_staged(self, end: int, present: set[str]) -> bool:
        """Whether there may be something aside for a window, by the names that are present."""
        return f"{self.name(end)}{_INFIX}{self.of(end).release_id}" in present

    def published(self) -> frozenset[int]:
        """The ends of the windows that are published; refuses a folder of something else in the place of one."""
        present = self.present()
        found = set()
        for end in self.ends():
            if self.name(end) in present:
                target = self.of(end)
                output.refuse(target)
                if is_published(target):
                    found.add(end)
        return frozenset(found)


def make_target(
    output_: str,
    release_id: str,
    files: int,
    format: str,
    overwrite: bool,
    prefix: str,
    options: PipelineOptions | None,
) -> Target:
    """The target of a command line, as the other sinks make theirs."""
    if bigquery.is_table(output_):
        raise ParameterError(f"--output of a stream is a folder, in which each window has its own, got {output_!r}")
    return output.make_target(output_, release_id, files, format, False, prefix, options)


def refuse(target: Target) -> bool:
    """Nothing of all windows is ever replaced."""
    return False


def is_published(target: Target) -> bool:
    """Whether the output of a window is complete."""
    return stores.exists(stores.join(target.directory, REPORT)) and is_of(target.release_id, output.read_report(target))


def stage(target: Target, staged: Staged) -> None:
    """Write the note of what lies aside, whole or not at all. It may run again: each attempt has a note of its own."""
    content = {
        "report": staged.report.decode(),
        "files": [[file.k, file.name, file.digest.hex(), file.summary] for file in staged.files],
    }
    attempt = uuid.uuid4().hex
    draft = stores.join(target.temporary, f"report.{attempt}.json")
    stores.write(draft, to_json(content))
    stores.move(draft, stores.join(target.temporary, f"{_STAGED}{attempt}.json"))


def staged_of(target: Target) -> list[Staged]:
    """All that lies aside for a window; usually one."""
    notes = [name for name in stores.names(target.temporary) if name.startswith(_STAGED)]
    return [_read(stores.read(stores.join(target.temporary, name))) for name in notes]


def _read(note: bytes) -> Staged:
    content: dict[str, Any] = json.loads(note)
    files = (Written(k, name, bytes.fromhex(digest), told) for k, name, digest, told in content["files"])
    return Staged(content["report"].encode(), tuple(files))


def with_input_digest(report: bytes, digest: str | None) -> bytes:
    """The report with the digest of its input, where a release on an account has it."""
    if digest is None:
        return report
    content = json.loads(report)
    details = content["details"]
    content["details"] = {**{k: v for k, v in details.items() if k != "versions"}, INPUT: digest}
    content["details"]["versions"] = details["versions"]
    return to_json(content)


def publish_at_once(target: Target, report: bytes, files: Sequence[Written], date: str) -> bool:
    """Publish a window where nobody waits who would; False if it was published before, and so stays as it is.

    What an attempt left aside before it was stopped goes first: some of its files may have been seen, and other ones in their
    place would be a second release.
    """
    if is_published(target):
        output.discard(target)
        return False
    if not staged_of(target):
        stage(target, Staged(report, tuple(files)))
    first = staged_of(target)[0]
    output.commit(target, first.files, target.finished(first.dated(date), first.files))
    return True
