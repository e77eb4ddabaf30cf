"""`headcount demo`: a synthetic event log, the users of its items by a private histogram, and the truth beside it."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines import parser
from headcount.pipelines.command import Tool, say
from headcount.pipelines.commands import histogram
from headcount.pipelines.flags import numbers
from headcount.pipelines.flags.flag import add
from headcount.pipelines.reports.summary import counted, heading, missing, much_left_out, summarize, table
from headcount.pipelines.sources.synthetic import generate

_SHOWN = 20
_SEED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.add_argument(
        "--rows", type=numbers.whole_number(), default=1_000_000, metavar="N", help="default: 1,000,000"
    )
    add(parser, "--output", default="demo", metavar="DIR", help="default: %(default)s")


def demo(args: argparse.Namespace) -> None:
    """Make the log unless it is there, count it, and show the largest counts."""
    directory = Path(args.output)
    log, result = directory / f"events-{args.rows}.parquet", directory / "histogram"
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        raise ParameterError(f"cannot write to --output {args.output!r}: {error.strerror}") from error
    if not log.exists():
        generate("tail", args.rows, max(1, args.rows // 2), None, _SEED, log)
    print(f"How often was each item used? Counted in a made-up log of {args.rows:,} rows, with random noise in every")
    print("number, so that nobody can learn much about any one person from the counts.")
    print(f"the log: {log}")
    flags = [
        *("--input", str(log), "--user", "user", "--item", "item"),
        *("--epsilon", "1", "--delta", "1e-8"),
        *("--output", str(result), "--overwrite"),
    ]
    started = time.monotonic()
    outcome = histogram.COMMAND.outcome(*parser.parse(histogram.COMMAND, flags))
    elapsed = time.monotonic() - started
    assert outcome.report is not None  # the job ran in this process
    print()
    say(outcome.description(shown({**outcome.report, "shown": _largest(outcome.rows())}, _truth(log))))
    print()
    print("\n".join(outcome.report["details"]["guarantee"]["words"]))
    print()
    print(f"{args.rows:,} rows in {elapsed:.1f} s: {args.rows / elapsed:,.0f} rows/s")


def shown(report: Mapping[str, Any], truth: Mapping[str, int]) -> str:
    """The rows of a report with bars, as its job shows them, and the true number of users beside them."""
    if not report["shown"]:
        return summarize(report)
    head, *lines = table(report, report["shown"], report["keys"], bars=True)
    wide = max(map(len, lines))
    beside = [f"{truth.get(row['item'], 0):,}" for row in report["shown"]]
    lines = [f"{line:<{wide}}  {true:>10}" for line, true in zip((head, *lines), ("true users", *beside), strict=True)]
    never = "the true users stand beside them because this is a demo with made-up users: never publish them"
    return "\n".join(
        [heading(report), *much_left_out(report), never, "", *lines, "", *counted(report), *missing(report)]
    )


def _largest(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(rows, key=lambda row: (-row["count"], row["item"]))[:_SHOWN]


def _truth(log: Path) -> dict[str, int]:
    counts = pq.read_table(log, columns=["user", "item"]).group_by("item").aggregate([("user", "count_distinct")])
    return {row["item"]: row["user_count_distinct"] for row in counts.to_pylist()}


COMMAND = Tool(
    name="demo",
    add_arguments=add_arguments,
    do=demo,
    example="headcount demo --rows 1000000 --output demo",
)
