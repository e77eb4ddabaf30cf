"""`headcount demo`: a synthetic event log, its private histogram, and the truth beside it."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines import numbers, parser
from headcount.pipelines.command import Tool
from headcount.pipelines.commands import histogram
from headcount.pipelines.sources.synthetic import generate

_SHOWN = 20
_BAR = 24
_SEED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.add_argument(
        "--rows", type=numbers.whole_number(), default=1_000_000, metavar="N", help="default: 1,000,000"
    )
    parser.add_argument("--output", default="demo", metavar="DIR", help="default: %(default)s")


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
    print(f"{log}: a synthetic log of {args.rows:,} rows, heavy users who repeat themselves")
    flags = [
        *("--input", str(log), "--user", "user", "--item", "item"),
        *("--epsilon", "1", "--delta", "1e-8"),
        *("--output", str(result), "--overwrite"),
    ]
    started = time.monotonic()
    outcome = histogram.COMMAND.job(*parser.parse(histogram.COMMAND, flags))
    elapsed = time.monotonic() - started
    assert outcome.report is not None  # the job ran in this process
    print()
    print(table(_largest(outcome.rows()), _truth(log), outcome.report["details"]["chosen"]["bound"]))
    print()
    print("\n".join(outcome.report["details"]["guarantee"]["words"]))
    print()
    print(f"{args.rows:,} rows in {elapsed:.1f} s: {args.rows / elapsed:,.0f} rows/s")
    print(f"the counts and their report: {result}")


def table(noisy: Sequence[tuple[str, float, float]], truth: Mapping[str, int], bound: int) -> str:
    """Noisy counts (item, count, stddev) with bars, and the true number of rows beside them."""
    lines = [
        f"The {len(noisy)} largest noisy counts, with two standard deviations of the noise.",
        "The true rows stand beside them because this is a demo with made-up users: never publish them.",
        f"Counts lie below the truth as every user counts for {bound} rows at most, which the job chose by itself.",
        "",
        f"{'item':<12} {'noisy count':>12} {'+-':>6}  {'':<{_BAR}} {'true rows':>10}",
    ]
    most = max((count for _, count, _ in noisy), default=1)
    for item, count, stddev in noisy:
        bar = "#" * max(1, round(_BAR * count / most))
        true = truth.get(item, 0)
        lines.append(f"{item:<12} {count:>12,.0f} {2 * stddev:>6,.0f}  {bar:<{_BAR}} {true:>10,}")
    return "\n".join(lines)


def _largest(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, float, float]]:
    largest = sorted(rows, key=lambda row: (-row["bounded_count"], row["item"]))[:_SHOWN]
    return [(row["item"], row["bounded_count"], row["noise_stddev"]) for row in largest]


def _truth(log: Path) -> dict[str, int]:
    counts = pq.read_table(log, columns=["item"]).group_by("item").aggregate([([], "count_all")])
    return {row["item"]: row["count_all"] for row in counts.to_pylist()}


COMMAND = Tool(
    name="demo",
    help="Make a synthetic event log, count it privately, and show the result beside the truth.",
    add_arguments=add_arguments,
    do=demo,
    example="headcount demo --rows 1000000 --output demo",
)
