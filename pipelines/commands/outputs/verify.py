"""`headcount verify`: whether the files of an output are those that its report was written for, and whether they came from
given input with a given key.

The first compares digests and needs no key. It does not tell who wrote the report: whoever can write the files can write that
too. With the input and the key, the release is made again, and what comes out is compared by digest, file by file. Some parts
of a report follow from no input, such as its date: these are named, and a ledger tells them.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from importlib import metadata

from headcount.mechanisms.errors import InputError, ParameterError
from headcount.pipelines.command import say
from headcount.pipelines.commands.outputs.complete import Complete, OutputTool, add_folder, read_complete, reading
from headcount.pipelines.flags import groups, options
from headcount.pipelines.flags.account import add_ledger
from headcount.pipelines.releases import KEY_SOURCES
from headcount.pipelines.sinks.finished import changed_note
from headcount.pipelines.sinks.output import DATA_FILE, PAGE, REPORT
from headcount.pipelines.sinks.repeated import REPORT_MARK, not_from_input
from headcount.pipelines.storage import stores

_WITH_INPUT = ("input_format", "delimiter", "domain", "join", *KEY_SOURCES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    add_folder(parser)
    group = parser.add_argument_group("to make the release again, from what it was made of")
    groups.add_files(group)
    groups.add_domain(group, "the public domain of the release, if it had one")
    groups.add_join(group, "the public table of the release, if it had one")
    groups.add_key(group)
    add_ledger(parser.add_argument_group("to compare with the account of the release"))


def verify(args: argparse.Namespace) -> None:
    """Say that all is as the report says, or refuse with the first file that is not."""
    found = read_complete(args.output)
    check(found)
    left = (changed_note(found.report), check_page(found))
    if args.input is None:
        known = [] if args.ledger is None else [beside(found, args.ledger)]
        say("\n".join([f"complete and unchanged: {_contents(found)}", *known]))
    say("\n".join(filter(None, left)))


def verify_again(args: argparse.Namespace, beam_flags: Sequence[str]) -> None:
    """Say that the release came from this input with this key, or refuse; of an output that is unchanged."""
    from headcount.pipelines.commands.outputs import again
    from headcount.pipelines.reports.report import versions

    found = read_complete(args.output)
    made = again.run_again(found.report, args, beam_flags)
    keyed = any(getattr(args, name) is not None for name in KEY_SOURCES)
    changed, other = again.changed_parts(found.report, made), again.other_versions(found.report, versions())
    told = verdict(found, made.files, changed, other, "this input with this key" if keyed else "this input")
    say(f"{told}\n{beside(found, args.ledger)}")


def beside(found: Complete, ledger: str | None) -> str:
    """What is said of the parts of a report that no input tells: the ledger confirms them, or nothing does. Refuses a report of
    which the ledger knows another."""
    parts = not_from_input(found.report)
    if ledger is None:
        return f"not compared, as no input tells them: {', '.join(parts)}; --ledger compares them with the entry of the release"
    from headcount.pipelines.commands.outputs.in_ledger import confirmed

    known = confirmed(ledger, found, parts)
    open_parts = [name for name in parts if name not in known]
    said = f"the ledger has the same: {', '.join(known)}"
    return (
        f"{said}\nnot compared, as neither input nor ledger tells them: {', '.join(open_parts)}" if open_parts else said
    )


def verdict(
    found: Complete,
    files: Mapping[str, str],
    other_parts: Sequence[str],
    other_versions: str,
    source: str = "this input with this key",
) -> str:
    """What is said of an unchanged output whose second run, from this source, gave files of these digests, and differs in these
    parts of the report; refuses where the rows or the report are others."""
    because = f"; {other_versions}" if other_versions else ""
    if "details.parameters.domain_digest" in other_parts:
        raise InputError(
            f"the files are unchanged, but --domain is not that of this release: {REPORT} states another digest of its keys"
        )
    if "details.parameters.join_digest" in other_parts:
        raise InputError(
            f"the files are unchanged, but --join is not that of this release: {REPORT} states another digest of its table"
        )
    if files != {file.name: file.digest for file in found.files}:
        raise InputError(
            f"the files are unchanged, but {source} gives other rows: another input, another key, or a release without a key "
            f"of its own{because}"
        )
    if other_parts and not other_versions:
        parts = ", ".join(other_parts)
        raise InputError(
            f"changed: the rows came from {source}, but {REPORT} says other than their job does, in: {parts}"
        )
    said = f"complete and unchanged, and it came from {source}: {_contents(found)}"
    return f"{said}\n{REPORT} has other words than now in: {', '.join(other_parts)}{because}" if other_parts else said


def check(found: Complete) -> None:
    """Refuse an output whose report is not as it was written, that lacks a listed file, has one of other bytes, or has a file
    of another release beside them."""
    if found.is_changed:
        raise InputError(f"{changed_note(found.report)}; see {found.directory!r}")
    with reading(found.directory):
        present = set(stores.names(found.directory))
    for file in found.files:
        path = stores.join(found.directory, file.name)
        if file.name not in present:
            raise InputError(f"incomplete: {path!r} is not there, and {REPORT} lists it")
        with reading(path):
            digest = hashlib.sha256(stores.read(path)).hexdigest()
        if digest != file.digest:
            raise InputError(f"changed: {path!r} has the SHA-256 digest {digest}, and {REPORT} says {file.digest}")
    listed = {file.name for file in found.files}
    other = sorted(name for name in present - listed if DATA_FILE.fullmatch(name))
    if other:
        path = stores.join(found.directory, other[0])
        raise InputError(f"not of this release: {path!r} lies beside its files, and {REPORT} does not list it")


def check_page(found: Complete) -> str | None:
    """Refuse an output whose page is not the one that report and files give; what is to be said of one that is not compared."""
    with reading(found.directory):
        path = stores.join(found.directory, PAGE)
        if not stores.exists(path):
            return None
        there = stores.read(path)
    made, now = found.report[REPORT_MARK], metadata.version("headcount")
    if made != now:
        return f"{PAGE} beside it was not compared: headcount {made} made it and this is {now}"
    from headcount.pipelines.pages.release import release_page

    with reading(found.directory):
        page = release_page(found.outcome())
    if there != page:
        raise InputError(f"changed: {path!r} is not the page of this release; headcount show OUT --html makes it again")
    return None


def _contents(found: Complete) -> str:
    number, rows = len(found.files), found.report["rows"]
    files = "1 file" if number == 1 else f"{number:,} files"
    return f"{files}, {rows:,} {'row' if rows == 1 else 'rows'}, release {found.report['release_id']}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verify(OutputTool):
    """The tool, which runs a job if it is given the input; flags of Beam say where."""

    def run(self, args: argparse.Namespace, beam_flags: Sequence[str]) -> None:
        """Do it."""
        for name in _WITH_INPUT:
            if args.input is None and getattr(args, name) is not None:
                raise ParameterError(f"{options.as_flag(name)} is of use with --input alone: give both, or neither")
        super().run(args, beam_flags)
        if args.input is not None:
            verify_again(args, beam_flags)


COMMAND = Verify(
    name="verify",
    add_arguments=add_arguments,
    do=verify,
    example="headcount verify out/",
)
