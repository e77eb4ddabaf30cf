"""What `series` and `diff` share: releases as they are given, in folders that jobs wrote or by calls in Python, and flags.

Both read released files alone: they need no key and no epsilon. Folders are checked by their digests.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from headcount.mechanisms.errors import HeadcountError, InputError
from headcount.pipelines.command import Command, add_json, say
from headcount.pipelines.commands.outputs.complete import read_complete, reading
from headcount.pipelines.commands.outputs.verify import check
from headcount.pipelines.flags import numbers
from headcount.pipelines.flags.flag import add
from headcount.pipelines.over_time.changes import FALSE_ALARMS, check_rate, find_changes
from headcount.pipelines.over_time.kind import Side, names_of
from headcount.pipelines.over_time.told import CSV, PAGE, ROWS, Changes
from headcount.pipelines.sinks.formats import times_as_text
from headcount.pipelines.sinks.output import REPORT
from headcount.pipelines.storage import stores
from headcount.pipelines.studies.rehearsal import check_folder


class Released(Protocol):
    """What a call in Python gave."""

    @property
    def report(self) -> Mapping[str, Any]:
        """What report.json would hold."""

    @property
    def table(self) -> pa.Table:
        """All rows."""


def add_arguments(parser: argparse.ArgumentParser, number: str) -> None:
    """The flags of both; `number` says how many folders there are."""
    group = parser.add_argument_group("what is a change")
    group.add_argument(
        "--metric",
        action="append",
        metavar="COLUMN",
        help="test this number alone, such as count or users; may be repeated (default: all numbers of the rows)",
    )
    group.add_argument(
        "--false-alarms",
        type=numbers.number,
        default=FALSE_ALARMS,
        metavar="RATE",
        help="the chance, over all rows together, that any change is called real and is none (default: %(default)s)",
    )
    group = parser.add_argument_group("what to write")
    add(group, "--output", metavar="DIR", help=f"the folder of {CSV}, {ROWS} and {PAGE} (default: none)", python=False)
    add(group, "--overwrite", action="store_true", help="replace those of an earlier run", python=False)
    add_json(group)
    parser.usage = f"{parser.prog} {number} [FLAGS] [FLAGS OF BEAM] [-- MORE FLAGS OF BEAM]"


def read_changes(releases: Sequence[str | Released], args: argparse.Namespace) -> Changes:
    """What changed between these releases, in their order; refuses files that are not as their jobs wrote them."""
    check_rate(args.false_alarms)
    given = [_released(each) for each in releases]
    names = names_of([report.get("period") for _, report, _ in given], [place for place, _, _ in given])
    sides = [Side(name, place or name, report, rows) for name, (place, report, rows) in zip(names, given, strict=True)]
    try:
        return Changes(find_changes(sides, args.metric, args.false_alarms))
    except HeadcountError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # a report may be anybody's
        raise InputError(
            f"the {REPORT} of a release is not as a job wrote it: it lacks a part, or was changed"
        ) from error


def _released(release: str | Released) -> tuple[str | None, Any, pa.Table]:
    """Where a release lies, its report and its rows."""
    if not isinstance(release, str):
        return None, release.report, times_as_text(release.table)
    found = read_complete(release)
    check(found)
    with reading(found.directory):
        return release, found.report, found.outcome().table() if found.report["rows"] else pa.table({})


@dataclasses.dataclass(frozen=True, kw_only=True)
class OverTimeTool(Command):
    """A tool that puts outputs side by side; flags of Beam say how their store is reached."""

    releases: Callable[[argparse.Namespace], Sequence[str]]
    takes_beam_flags: ClassVar[bool] = True

    def run(self, args: argparse.Namespace, beam_flags: Sequence[str]) -> None:
        """Read, print, and write what is asked for."""
        folders = self.releases(args)
        if not all(map(stores.is_local, folders)):
            from apache_beam.io.filesystems import FileSystems
            from apache_beam.options.pipeline_options import PipelineOptions

            FileSystems.set_options(PipelineOptions(list(beam_flags)))
        if args.output is not None:
            check_folder(args.output, args.overwrite, (CSV, ROWS, PAGE))
        found = read_changes(folders, args)
        say(found.json() if args.json else found.text())
        if args.output is not None:
            wrote = "\n".join(["", *(f"wrote {path}" for path in found.save(args.output, overwrite=True))])
            print(wrote, file=sys.stderr if args.json else sys.stdout)
