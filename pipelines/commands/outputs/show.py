"""`headcount show`: a complete output again, as its job told it, with the promise; all of it is released already."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.command import COMMANDS, JobCommand, add_json, load, say
from headcount.pipelines.commands.outputs.complete import Complete, OutputTool, add_folder, read_complete, reading
from headcount.pipelines.flags import numbers
from headcount.pipelines.pages.release import release_page
from headcount.pipelines.pages.written import put_page
from headcount.pipelines.reports.outcome import said
from headcount.pipelines.reports.summary import summarize
from headcount.pipelines.sinks import output
from headcount.pipelines.sinks.finished import changed_note, largest
from headcount.pipelines.sinks.formats import typed
from headcount.pipelines.storage import stores

_MOST_ROWS = 1_000_000  # that are listed
_VERIFY = "; headcount verify tells which of its files is not as it was"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    add_folder(parser)
    parser.add_argument(
        "--rows",
        type=numbers.whole_number(most=_MOST_ROWS),
        metavar="N",
        help="list the N largest rows of the files, where rows are a list (default: what the job showed, often 10)",
    )
    add_json(parser)
    parser.add_argument(
        "--html",
        action="store_true",
        help=f"write {output.PAGE} into the folder, or write it again, and open it in a browser if there is a screen",
    )


def show(args: argparse.Namespace) -> None:
    """Print what the job said, its rows and its promise."""
    found = read_complete(args.output)
    if args.html:
        _page(args, found)
        return
    with reading(found.directory, _VERIFY):
        text = _json(found, args.rows) if args.json else describe(found, args.rows)
    say(text)


def _page(args: argparse.Namespace, found: Complete) -> None:
    """Write the page, say where it is, and open it on the screen of whoever sits at this machine."""
    for given, flag in ((args.rows is not None, f"--rows {args.rows}"), (args.json, "--json")):
        if given:
            raise ParameterError(f"{flag} is for the terminal: leave it out, or --html")
    outcome = found.outcome()
    with reading(found.directory, _VERIFY):
        content = release_page(outcome)
    try:
        page = put_page(found.directory, outcome.release_id, content)
    except Exception as error:  # every storage has its own
        raise ParameterError(f"cannot write {output.PAGE} to {found.directory!r}: {stores.reason(error)}") from error
    print(f"to look at: {page}")
    if stores.is_local(page) and sys.stdout.isatty() and _has_screen():
        import webbrowser

        webbrowser.open(Path(page).as_uri())


def _has_screen() -> bool:
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def describe(found: Complete, rows: int | None = None) -> str:
    """All that is printed of an output, with this number of rows, or those that its job showed."""
    report, outcome = found.report, found.outcome()
    head = [f"release {outcome.release_id} of headcount {report['command']} in {found.directory}"]
    head += filter(None, [changed_note(report)])
    told_of = {"label": "label", "period": "period", "date": "date", "dataset": "data set"}
    head += [f"{words}: {report[name]}" for name, words in told_of.items() if name in report]
    listed = "" if rows is None else summarize({**report, "shown": _listed(found, rows)}, bars=True)
    if not listed:
        listed = _drawn(found)
    return "\n\n".join(("\n".join(head), said(report, listed), report["promise"]))


def _json(found: Complete, rows: int | None) -> str:
    """The report with all that it holds, and this number of rows, or those that its job showed."""
    shown = found.report["shown"] if rows is None else _listed(found, rows)
    return json.dumps({"report": dict(found.report), "rows": shown}, indent=2, allow_nan=False)


def _drawn(found: Complete) -> str:
    """The rows as the job showed them, with bars."""
    outcome, name = found.outcome(), found.report["command"]
    command = load(name) if name in COMMANDS else None
    return command.shown(outcome) if isinstance(command, JobCommand) and command.show else outcome.summary(bars=True)


def _listed(found: Complete, number: int) -> list[dict[str, Any]]:
    """The largest rows of the files, in the order and with the values that a report shows them in."""
    report = found.report
    rows = typed(found.outcome().rows(), report["shown"])
    return largest(rows, [*report["columns"]], report.get("keys", []), number)


COMMAND = OutputTool(
    name="show",
    add_arguments=add_arguments,
    do=show,
    example="headcount show out/ --html",
)
