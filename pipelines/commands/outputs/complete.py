"""A complete output that is looked at again: its folder, on a disk or an object store, its report, and the files it lists.

Nothing of Beam is imported for a folder on this machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

from headcount.mechanisms.errors import HeadcountError, InputError, ParameterError
from headcount.pipelines.command import Tool
from headcount.pipelines.reports.outcome import Outcome
from headcount.pipelines.sinks import output
from headcount.pipelines.sinks.finished import SEAL, changed_note
from headcount.pipelines.storage import stores

# What a finished report holds, whichever command wrote it, and as what.
_FINISHED = {"command": str, "release_id": str, "promise": str, "rows": int, "columns": dict, "shown": list}


class DataFile(NamedTuple):
    """What a report says of one file with rows."""

    name: str
    digest: str


@dataclasses.dataclass(frozen=True)
class Complete:
    """An output with a report of ours. Whether the files are there, and what the report says they are, is not known yet."""

    directory: str
    report: Mapping[str, Any]
    files: Sequence[DataFile]
    report_sha256: str  # of the bytes of report.json

    @property
    def is_changed(self) -> bool:
        """Whether the report is certainly not as it was written."""
        return SEAL in self.report and changed_note(self.report) is not None

    def outcome(self) -> Outcome:
        """What came of the job that wrote it."""
        paths = [stores.join(self.directory, file.name) for file in self.files]
        release_id = self.report["release_id"]
        format = self.files[0].name.rpartition(".")[2]
        return Outcome(self.directory, release_id, output.COMPLETE, self.report, paths, format)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputTool(Tool):
    """A tool that looks at an output; flags of Beam say how its store is reached."""

    takes_beam_flags: ClassVar[bool] = True

    def run(self, args: argparse.Namespace, beam_flags: Sequence[str]) -> None:
        """Do it."""
        if not stores.is_local(args.output):
            from apache_beam.io.filesystems import FileSystems
            from apache_beam.options.pipeline_options import PipelineOptions

            FileSystems.set_options(PipelineOptions(list(beam_flags)))
        self.do(args)


def add_folder(parser: argparse.ArgumentParser) -> None:
    """The argument of these commands."""
    parser.usage = f"{parser.prog} OUT [FLAGS] [FLAGS OF BEAM] [-- MORE FLAGS OF BEAM]"
    parser.add_argument("output", metavar="OUT", help="the folder that a job wrote to (its --output)")


def read_complete(path: str) -> Complete:
    """The output in this folder; refuses one that has no finished report of ours."""
    if stores.scheme_of(path) == "bigquery":
        raise ParameterError(
            f"OUT must be a folder, got the table {path!r}: its report is the description of the table"
        )
    directory = stores.normal(path, "OUT")
    with reading(directory):
        if output.REPORT not in stores.names(directory):
            raise InputError(
                f"{path!r} is no complete output: it holds no {output.REPORT}; give the folder of a job's --output"
            )
        content = stores.read(stores.join(directory, output.REPORT))
    if output.listed_files(content) is None:
        raise InputError(f"{path!r} is no output of Headcount: its {output.REPORT} is another program's")
    report = json.loads(content)
    files = [*_data_files(report.get("files"))]
    if not files or len(files) != len(report["files"]) or not _is_finished(report):
        raise InputError(f"the {output.REPORT} of {path!r} is not as a job wrote it: it lacks a part, or was changed")
    return Complete(directory, report, files, hashlib.sha256(content).hexdigest())


@contextmanager
def reading(place: str, more: str = "") -> Iterator[None]:
    """Turns what a storage raises into one line."""
    try:
        yield
    except HeadcountError:
        raise
    except Exception as error:  # every storage has its own
        raise InputError(f"cannot read {place!r}: {stores.reason(error)}{more}") from error


def _data_files(listed: Any) -> Iterator[DataFile]:
    for file in listed if isinstance(listed, list) else ():
        name, digest = (file.get(key) if isinstance(file, Mapping) else None for key in ("name", "sha256"))
        if isinstance(name, str) and output.DATA_FILE.fullmatch(name) and isinstance(digest, str):
            yield DataFile(name, digest)


def _is_finished(report: Mapping[str, Any]) -> bool:
    return all(isinstance(report.get(name), kind) for name, kind in _FINISHED.items())
