"""`headcount statement`: a release as people outside need it told, in Markdown or as a record for OpenDP's registry.

Made from report.json alone, and a ledger if one is named: it reads no rows, and costs no epsilon.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from headcount.mechanisms.errors import InputError, ParameterError
from headcount.pipelines.command import say
from headcount.pipelines.commands.outputs.complete import Complete, OutputTool, add_folder, read_complete
from headcount.pipelines.commands.outputs.facts import (
    Converted,
    Facts,
    OverTime,
    facts_of,
    listed,
    rounded_up,
    sentence,
)
from headcount.pipelines.commands.outputs.registry import record, to_fill_in
from headcount.pipelines.flags import account
from headcount.pipelines.flags.account import add_account
from headcount.pipelines.flags.flag import add
from headcount.pipelines.flags.options import hint_text
from headcount.pipelines.sinks.finished import changed_note
from headcount.pipelines.terminal import lines

FORMATS = ("markdown", "json", "yaml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    add_folder(parser)
    add(
        parser,
        "--format",
        choices=FORMATS,
        default="markdown",
        help="markdown is for readers; json and yaml are a record in the schema of OpenDP's registry of deployments "
        "(default: %(default)s)",
    )
    add(parser, "--output", dest="file", metavar="FILE", help="where to write it (default: the terminal)")
    add_account(parser, reserves=False)


def state(args: argparse.Namespace) -> None:
    """Print the statement, or write it to a new file."""
    account.check(args)
    found = read_complete(args.output)
    unknown = changed_note(found.report)
    if found.is_changed:
        raise InputError(f"{unknown}: no statement is made of it; see {found.directory!r}")
    told = None if args.ledger is None else over_time(args.ledger, args.dataset, found)
    text, left = stated(found, args.format, told)
    if unknown is not None:
        print(f"headcount: {unknown}", file=sys.stderr)
    if left:
        # Only the publisher knows these; the registry refuses a record without them.
        print(f"headcount: fill in before you send it: {', '.join(left)}", file=sys.stderr)
    if args.file is None:
        say(text)
        return
    if os.path.lexists(args.file):
        raise ParameterError(f"--output {args.file!r} is there already: give another file")
    try:
        with open(args.file, "x", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        raise ParameterError(f"--output {args.file!r} cannot be written: {error.strerror}") from error


def over_time(url: str, dataset: str, found: Complete) -> OverTime:
    """What a ledger says of a data set: its releases, what they add up to, and its limit. Refuses a release whose job has told
    the ledger of another report."""
    from headcount.pipelines.commands.outputs.in_ledger import own_entries
    from headcount.pipelines.ledger import spending
    from headcount.pipelines.ledger.account import open_ledger

    ledger = open_ledger(url)
    known, entries = ledger.dataset(dataset), ledger.entries(dataset)
    guarantees = spending.spent(entries)
    total = sentence(spending.total(guarantees, known).description(known.limit_delta))
    own = own_entries(found, entries)
    approval = ledger.approval_of(found.report["release_id"]) if own else None
    approved = None
    if approval is not None:
        approved = (
            f"Before it was made, {approval.said_by} approved its plan, on {approval.at[:10]}: SHA-256 "
            f"`{approval.plan_sha256}`."
        )
    return OverTime(dataset, len(guarantees), total, known.limit_description(), bool(own), approved)


def stated(found: Complete, format: str, over_time: OverTime | None) -> tuple[str, Sequence[str]]:
    """The statement on an output, and what is left in it to fill in."""
    facts = facts_of(found.report)
    if format == "markdown":
        return lines(markdown(facts, over_time, found)), ()
    content = record(facts, over_time)
    return _json(content) if format == "json" else _yaml(content), [*to_fill_in(content)]


def markdown(facts: Facts, over_time: OverTime | None, found: Complete) -> str:
    """The statement for readers."""
    report = facts.report
    told = {"label": "Label", "period": "Period", "date": "Date", "dataset": "Data set"}
    head = [f"{words}: {report[name]}  " for name, words in told.items() if name in report]
    head += [f"Asked for: {facts.product}  ", f"Came out: {report['rows']:,} rows, release `{report['release_id']}`"]
    weak = hint_text(facts.guarantee.epsilon, facts.guarantee.delta)
    beside = [sentence(each) for each in (report.get("protected"), weak) if each is not None]
    promise = [report["promise"], facts.plainly(), *beside]
    parts = {
        "What was published": "\n".join(head) + "\n\n" + _files(found),
        "What is promised": "\n\n".join(promise) + "\n\n" + _numbers(facts),
        "Whom it protects": facts.adjacency(),
        "Over time": listed(facts.composition(over_time)),
        "How it is kept": listed(facts.mechanisms()),
        "How parameters were set": listed(facts.tuning()),
        "What is done to released numbers": listed(facts.post_processing()),
        "What is not protected": listed(facts.not_protected()),
        "Who is trusted": listed(facts.trust()),
        "Arithmetic, time and randomness": listed([facts.floating_point(), facts.timing(), facts.randomness()]),
        "Software": f"{facts.versions}.",
        "How to check this": (
            "`headcount verify OUT` compares the files with the digests above. With the input and the key, "
            "`headcount verify OUT --input FILES --key-file KEY` makes the release again, and compares every byte."
        ),
    }
    sections = [f"## {title}\n\n{content}" for title, content in parts.items()]
    return "\n\n".join(["# Statement on a differentially private release", *sections])


def _files(found: Complete) -> str:
    rows = [f"| `{file.name}` | `{file.digest}` |" for file in found.files]
    return "\n".join(["| file | SHA-256 |", "|---|---|", *rows])


def _numbers(facts: Facts) -> str:
    rows = [_row(each) for each in (facts.given(), *facts.converted())]
    return "\n".join(["| variant | epsilon | delta | rho | |", "|---|---|---|---|---|", *rows])


def _row(each: Converted) -> str:
    numbers = ["" if value is None else rounded_up(value) for value in (each.epsilon, each.delta, each.rho)]
    return f"| {' | '.join([each.terms, *numbers, each.how])} |"


def _json(content: Any) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)


def _yaml(content: Any) -> str:
    """YAML with texts of several lines as they are read."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def text(dumper: Any, value: str) -> Any:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    dumped: str = yaml.dump(content, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10**6)
    return dumped.rstrip("\n")


COMMAND = OutputTool(
    name="statement",
    add_arguments=add_arguments,
    do=state,
    example="headcount statement out/\n  headcount statement out/ --format yaml --output record.yaml",
)
