"""`headcount series`: releases of one kind side by side, and what changed between them beyond the noise."""

from __future__ import annotations

import argparse
import glob
import os
from collections.abc import Sequence

from headcount.mechanisms.errors import InputError
from headcount.pipelines.commands.outputs import over_time
from headcount.pipelines.storage import stores


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.add_argument(
        "releases",
        nargs="+",
        metavar="OUT",
        help="the folders that jobs wrote to (their --output), in order of time; a pattern stands for folders in order of name",
    )
    over_time.add_arguments(parser, "OUT OUT ...")


def folders(args: argparse.Namespace) -> Sequence[str]:
    """The folders that are given, with those on this machine that match a pattern which a shell has left alone."""
    found: list[str] = []
    for given in args.releases:
        is_pattern = glob.has_magic(given) and stores.is_local(given) and not os.path.exists(given)
        matching = sorted(glob.glob(given)) if is_pattern else [given]
        if not matching:
            raise InputError(f"no folder matches {given!r}")
        found += matching
    return found


COMMAND = over_time.OverTimeTool(
    name="series",
    add_arguments=add_arguments,
    releases=folders,
    example="headcount series reports/*/pages --output series/",
)
