"""`headcount key` and `headcount generate`: what one needs beside the jobs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from headcount.mechanisms.randomness.keys import write_key_file
from headcount.pipelines import numbers
from headcount.pipelines.command import Command
from headcount.pipelines.sources.synthetic import generate


def _add_key_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the file to make; an existing one is never touched")


def _run_key(args: argparse.Namespace, beam_flags: Sequence[str]) -> int:
    write_key_file(args.file)
    print(f"wrote {args.file}: who has it and an output can take the noise off, so guard it like the data")
    return 0


def _add_generate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--law",
        choices=("tail", "spread"),
        required=True,
        help="tail: heavy users who repeat themselves; spread: nearly every (user, item) pair is new",
    )
    parser.add_argument("--rows", type=numbers.whole_number(), required=True, metavar="N")
    parser.add_argument("--users", type=numbers.whole_number(), metavar="U", help="default: by the rows")
    parser.add_argument("--items", type=numbers.whole_number(), metavar="I", help="default: by the rows")
    parser.add_argument("--seed", type=numbers.whole_number(least=0), default=0, metavar="S", help="default: 0")
    parser.add_argument("--output", required=True, metavar="FILE", help="ends in .parquet or .csv")


def _run_generate(args: argparse.Namespace, beam_flags: Sequence[str]) -> int:
    generate(args.law, args.rows, args.users, args.items, args.seed, args.output)
    print(f"wrote {args.output}")
    return 0


KEY = Command(
    name="key",
    help="Make a key file, from which the noise of releases follows.",
    add_arguments=_add_key_arguments,
    run=_run_key,
    example="headcount key ~/.headcount-key",
)

GENERATE = Command(
    name="generate",
    help="Write a synthetic event log with the columns user and item.",
    add_arguments=_add_generate_arguments,
    run=_run_generate,
    example="headcount generate --law tail --rows 1000000 --output events.parquet",
)
