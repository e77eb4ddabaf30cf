"""`headcount generate`: a synthetic event log to try things on."""

from __future__ import annotations

import argparse

from headcount.pipelines.command import Tool
from headcount.pipelines.flags import numbers
from headcount.pipelines.flags.flag import add
from headcount.pipelines.sources import synthetic


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.add_argument(
        "--law",
        choices=synthetic.LAWS,
        required=True,
        help="tail: heavy users who repeat themselves; spread: nearly every (user, item) pair is new; visits: the law tail, as "
        "visits with user_id, country, device, age, page, query, viewed_at, seconds and price",
    )
    parser.add_argument("--rows", type=numbers.whole_number(), required=True, metavar="N")
    parser.add_argument("--users", type=numbers.whole_number(), metavar="U", help="default: by the rows")
    parser.add_argument("--items", type=numbers.whole_number(), metavar="I", help="default: by the rows")
    add(parser, "--seed", type=numbers.whole_number(least=0), default=0, metavar="S", help="default: 0", rare=True)
    add(parser, "--output", required=True, metavar="FILE", help="ends in .parquet or .csv")


def generate(args: argparse.Namespace) -> None:
    """Write the log."""
    synthetic.generate(args.law, args.rows, args.users, args.items, args.seed, args.output)
    print(f"wrote {args.output}")


COMMAND = Tool(
    name="generate",
    add_arguments=add_arguments,
    do=generate,
    example="headcount generate --law visits --rows 200000 --output visits.parquet",
)
