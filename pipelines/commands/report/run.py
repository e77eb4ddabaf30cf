"""`headcount run`: all releases of a report from one file, and a page over them."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.command import Command, UnsettledError, say
from headcount.pipelines.flags.groups import short_text
from headcount.pipelines.reports.summary import title
from headcount.pipelines.terminal import masked

if TYPE_CHECKING:
    from headcount.pipelines.report_file import run as reports


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.usage = f"{parser.prog} FILE [FLAGS] [FLAGS OF BEAM] [-- MORE FLAGS OF BEAM]"
    parser.add_argument("file", metavar="FILE", nargs="?", help="the report, a file of YAML (see: docs/report-file.md)")
    parser.add_argument(
        "--period", type=short_text, metavar="PERIOD", help="what stands for {period} in the file, such as 2026-W46"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="look at values, files, columns, key, output and ledger, say what each release promises and will show, read no "
        "rows, and stop",
    )
    parser.add_argument(
        "--schema", action="store_true", help="print the JSON schema of the file, for editors, and stop"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run(Command):
    """The command; flags of Beam go to every release."""

    takes_beam_flags: ClassVar[bool] = True

    def run(self, args: argparse.Namespace, beam_flags: Sequence[str]) -> None:
        """Run the report, look at it, or print what it may hold."""
        if args.schema:
            from headcount.pipelines.report_file.schema import schema_text

            print(schema_text(), end="")
            return
        if args.file is None:
            raise ParameterError("missing FILE, the report to run, as in: headcount run report.yaml --period 2026-W46")
        from headcount.pipelines.report_file import run as reports  # which needs Beam, as help does not

        if args.check:
            say(described(reports.check_report(args.file, args.period, beam_flags)))
            return
        made, page = reports.run_report(args.file, args.period, beam_flags, lambda each: say(told(each)))
        if page is not None:
            say(f"to look at: {page}")
        unsettled = [each.outcome.unsettled for each in made if each.outcome.unsettled is not None]
        if unsettled:
            raise UnsettledError("; ".join(unsettled))


def told(made: reports.Made) -> str:
    """What is said of one release, in a line or two."""
    outcome = made.outcome
    if outcome.report is None:
        return f"{made.job.name}: {outcome.description('')}"
    about = title(outcome.report)
    done = "already there, the same bytes:" if outcome.again else "wrote"
    rows = f"{outcome.report['rows']:,} {'row' if outcome.report['rows'] == 1 else 'rows'}"
    return f"{made.job.name}: {about[:1].lower()}{about[1:]}, {rows}; {done} {outcome.output} (release {outcome.release_id})"


def described(checked: reports.Checked) -> str:
    """What a look at a report found: of each release its command line, what it reads, promises and will show."""
    parts = []
    for job, looked in zip(checked.jobs, checked.looked, strict=True):
        there = ["it is there already: it is made again, to the same bytes and at no cost"] if looked.there else []
        lines = [f"headcount {shlex.join(map(masked, job.argv))}", looked.source.description(), *there, ""]
        lines += job.command.explained(job.args()).splitlines()
        parts.append("\n".join([f"{job.name}:", *(f"  {line}".rstrip() for line in lines)]))
    end = f"{checked.report.path} can be run: no row was read, and nothing is spent"
    return "\n\n".join([*parts, *([] if checked.room is None else [checked.room]), end])


COMMAND = Run(
    name="run",
    add_arguments=add_arguments,
    example="headcount run report.yaml --period 2026-W46",
)
