"""`headcount key`: a key file, from which the noise of releases follows."""

from __future__ import annotations

import argparse

from headcount.mechanisms.randomness.keys import write_key_file
from headcount.pipelines.command import Tool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.add_argument("file", metavar="FILE", help="the file to make; an existing one is never touched")


def make_key(args: argparse.Namespace) -> None:
    """Make the file."""
    write_key_file(args.file)
    print(f"wrote {args.file}: with it and an output anybody can take the noise off, so guard it like the data")


COMMAND = Tool(
    name="key",
    add_arguments=add_arguments,
    do=make_key,
    example="headcount key headcount-key",
)
