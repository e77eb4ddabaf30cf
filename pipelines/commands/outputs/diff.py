"""`headcount diff`: what changed between two releases of one kind, beyond the noise."""

from __future__ import annotations

import argparse

from headcount.pipelines.commands.outputs import over_time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.add_argument("before", metavar="BEFORE", help="the folder of the earlier release (its --output)")
    parser.add_argument("after", metavar="AFTER", help="the folder of the later release")
    over_time.add_arguments(parser, "BEFORE AFTER")


COMMAND = over_time.OverTimeTool(
    name="diff",
    add_arguments=add_arguments,
    releases=lambda args: (args.before, args.after),
    example="headcount diff 2026-W45/ 2026-W46/",
)
