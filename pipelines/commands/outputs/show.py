"""`headcount show`: a complete output again, as its job told it, with the promise; all of it is released already."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

from headcount.pipelines import numbers
from headcount.pipelines.command import COMMANDS, JobCommand, say
from headcount.pipelines.commands.outputs.complete import Complete, OutputTool, add_folder, read_complete, reading
from headcount.pipelines.jobs.told import told
from headcount.pipelines.main import load
from headcount.pipelines.sinks.finished import largest

_MOST_ROWS = 1_000_000  # that are listed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    add_folder(parser)
    parser.add_argument(
        "--rows",
        type=numbers.whole_number(most=_MOST_ROWS),
        metavar="N",
        help="list the N largest rows of the files, where rows are a list (default: what the job showed, often 10)",
    )


def show(args: argparse.Namespace) -> None:
    """Print what the job said, its rows and its promise."""
    found = read_complete(args.output)
    with reading(found.directory, "; headcount verify tells which of its files is not as it was"):
        text = words(found, args.rows)
    # A report that lies somewhere may hold what a terminal would obey.
    say("".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text))


def words(found: Complete, rows: int | None = None) -> str:
    """All that is printed of an output, with so many rows, or those that its job showed."""
    report, outcome = found.report, found.outcome()
    head = [f"release {outcome.release_id} of headcount {report['command']} in {found.directory}"]
    head += [f"{name}: {report[name]}" for name in ("label", "period") if name in report]
    listed = "" if rows is None else told({**report, "shown": _listed(found, rows)})
    if not listed:
        listed = _drawn(found)
    return "\n\n".join(filter(None, ("\n".join(head), outcome.said(), listed, report["promise"])))


def _drawn(found: Complete) -> str:
    """The rows as the job showed them."""
    outcome, name = found.outcome(), found.report["command"]
    command = load(name) if name in COMMANDS else None
    return command.shown(outcome) if isinstance(command, JobCommand) else outcome.told()


def _listed(found: Complete, number: int) -> list[dict[str, Any]]:
    """The largest rows of the files, in the order and with the values that a report shows them in."""
    report = found.report
    rows = _typed(found.outcome().rows(), report["shown"])
    return largest(rows, [*report["columns"]], report.get("keys", []), number)


def _typed(rows: Iterable[Mapping[str, Any]], shown: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """Rows whose texts are what the report shows in their columns: in CSV all values are texts."""
    kinds = {name: type(value) for row in shown for name, value in row.items() if value is not None}
    for row in rows:
        yield {name: _value(value, kinds.get(name, str)) for name, value in row.items()}


def _value(value: Any, kind: type) -> Any:
    if not isinstance(value, str) or kind is str:
        return value
    if kind is bool:
        return value == "true"
    return kind(value) if value else None


COMMAND = OutputTool(
    name="show",
    add_arguments=add_arguments,
    do=show,
    example="headcount show out/",
)
