"""The release of a report, made again from its input and with its key, to compare; what comes out is known by digests alone.

The command line is rebuilt from the report: its parameters, release id, label and period. A report may be anybody's, so it is
compared and never obeyed: only plain values of it become flags, and none that name a place. What is read, and where the key
lies, is given again by whoever verifies. Nothing that a report names is opened, connected to, written to or charged.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from typing import Any, NamedTuple

from headcount.mechanisms.errors import InputError, ParameterError
from headcount.pipelines import parser
from headcount.pipelines.command import COMMANDS, JobCommand, load
from headcount.pipelines.flags.options import as_flag
from headcount.pipelines.releases import KEY_SOURCES
from headcount.pipelines.sinks import digests
from headcount.pipelines.sinks.output import REPORT
from headcount.pipelines.sinks.repeated import REPORT_MARK, part_digests
from headcount.pipelines.storage import stores

# What the flags of a job say that its report does not: where things lie, and how it is run. A report that has one of these was
# changed: it is never taken from there.
NOT_STATED = {
    *("input", "input_format", "delimiter", "domain", "join", "output", "overwrite", *KEY_SOURCES),
    *("release_id", "label", "period", "ledger", "dataset", "clock_checked", "shards", "memory_limit", "explain"),
    *("verbose", "help"),
}
_GIVEN_AGAIN = ("input", "input_format", "delimiter", "domain", "join", *KEY_SOURCES)
_BOTH = "users and events"  # of what a total is that was not told of what
# Ids of other releases, where flags are files; what these hold are parameters besides.
_CHOSEN_BEFORE = {"bound_from", "like"}


class Found(NamedTuple):
    """What a second run gave, by digest: its files, and the parts of its report."""

    files: Mapping[str, str]
    parts: Mapping[str, str]


def command_of(report: Mapping[str, Any]) -> JobCommand[Any]:
    """The command that a report says it is of."""
    name = report["command"]
    command = load(name) if name in COMMANDS else None
    if not isinstance(command, JobCommand):
        raise InputError(f"{REPORT} says that headcount {name} wrote it, and this version has no such job")
    return command


def rebuilt(report: Mapping[str, Any]) -> list[str]:
    """The flags of the job that wrote a report, but for those in NOT_STATED; its release id, label and period among them.

    Whatever a report holds, these name no place: a flag for one is in NOT_STATED, and all others take plain values.
    """
    actions = {action.dest: action for action in parser.make_parser(command_of(report))._actions}
    details = report.get("details")
    parameters = details.get("parameters") if isinstance(details, Mapping) else None
    if not isinstance(parameters, Mapping):
        raise InputError(f"{REPORT} states no parameters, so that its release cannot be made again")
    plain = actions.keys() - NOT_STATED - _CHOSEN_BEFORE
    stated = {name: value for name, value in parameters.items() if name in plain}
    if stated.get("of") == _BOTH:
        del stated["of"]
    if "epsilon" in stated:
        stated.pop("rho", None)  # that of this epsilon
    words = {name: report[name] for name in ("release_id", "label", "period") if name in report}
    return [flag for name, value in (stated | words).items() for flag in _flags(name, value)]


def _flags(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [as_flag(name)] if value else []
    return [f"{as_flag(name)}={each}" for each in (value if isinstance(value, list) else [value])]


def arguments(report: Mapping[str, Any], given: argparse.Namespace, output: str) -> argparse.Namespace:
    """The arguments of the second run: what the report states, and what is given again."""
    command, parameters = command_of(report), report["details"].get("parameters", {})
    for name, what in (("domain", "a public domain"), ("join", "a public table")):
        stated, again = f"{name}_digest" in parameters, getattr(given, name) is not None
        if stated and not again:
            raise ParameterError(f"this release is over {what}: give it again by --{name}")
        if again and not stated:
            raise ParameterError(f"--{name} is of no use, as this release is over no {what[2:]}: leave it out")
    try:
        args, _ = parser.parse(command, [*rebuilt(report), f"--output={output}"])
    except ParameterError as error:
        raise InputError(f"{REPORT} states parameters that no job has: {error}") from None
    return argparse.Namespace(
        **vars(args) | {name: getattr(given, name) for name in _GIVEN_AGAIN if hasattr(args, name)}
    )


def run_again(report: Mapping[str, Any], given: argparse.Namespace, beam_flags: Sequence[str]) -> Found:
    """The release once more. No row of it is written or shown, and no ledger is asked: it costs nothing if it is the same
    release, and gives nothing away if it is not."""
    command, (place, remote) = command_of(report), _place(given.output, beam_flags)
    with _removed(place, remote) as folder:
        args = arguments(report, given, folder)
        command.check(args)
        source = command.source(args)
        if source is not None:
            source.check_again(args)
        outcome = command.outcome(args, beam_flags, digests)
        if outcome.report is None:
            raise ParameterError(
                "a release is compared when its second run has ended: leave --no_wait_until_finish out"
            )
        return Found(outcome.report["files"], outcome.report["parts"])


def _place(output: str, beam_flags: Sequence[str]) -> tuple[str, bool]:
    """Where the digests go, and whether workers elsewhere write them: beside the output then, which they can reach."""
    from headcount.pipelines.jobs.run import on_beam

    if not beam_flags or on_beam(beam_flags).runner is None:
        return "", False
    return f"{stores.normal(output)}.verify-{uuid.uuid4().hex}", True


@contextmanager
def _removed(place: str, remote: bool) -> Iterator[str]:
    """A folder for the digests that is gone afterwards, however that comes about, but for a kill -9."""
    folder = place if remote else tempfile.mkdtemp(prefix="headcount-verify-")
    try:
        yield folder
    finally:
        if remote:
            stores.remove_files(folder, [digests.DIGESTS])
        else:
            shutil.rmtree(folder, ignore_errors=True)


def other_versions(report: Mapping[str, Any], present: Mapping[str, str]) -> str:
    """What of the software that made a release is another now, in words; nothing if it is all the same."""
    details = report.get("details", {})
    made = {REPORT_MARK: report[REPORT_MARK], **details.get("versions", {})}
    now = {REPORT_MARK: metadata.version("headcount"), **present}
    other = [f"{name} {made[name]} (now {now[name]})" for name in now if name in made and made[name] != now[name]]
    return f"it was made by {', '.join(other)}, which may give other rows or bytes" if other else ""


def changed_parts(report: Mapping[str, Any], found: Found) -> list[str]:
    """The parts of a report that are not what the second run gave."""
    own = part_digests(report)
    return sorted(name for name in own.keys() | found.parts.keys() if own.get(name) != found.parts.get(name))
