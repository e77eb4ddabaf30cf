"""The flags of questions about people: which columns say who, when and where."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from headcount.pipelines.flags import groups, options
from headcount.pipelines.flags.flag import add
from headcount.pipelines.flags.numbers import whole_number

if TYPE_CHECKING:
    from headcount.mechanisms.columns.person_rows import PersonRows


def add_input(parser: argparse.ArgumentParser, by: str, time: bool = True) -> None:
    """Which rows to read, and which columns of them; `by` says where a user's value of that column is taken from."""
    group = parser.add_argument_group("what to read")
    groups.add_files(group)
    add(
        group,
        "--user",
        needed=True,
        metavar="COLUMN",
        help="the column that tells users apart; a field of an object by its path, as user.id",
    )
    if time:
        add(group, "--time", needed=True, metavar="COLUMN", help="when a row was: a column of times or dates")
    else:
        group.add_argument(
            "--count", metavar="COLUMN", help="how often a row counts, 10^9 times at most (default: once)"
        )
    add(
        group,
        "--by",
        python=f"tell people apart by this column, or a list of several: {by}",
        action="append",
        metavar="COLUMN",
        help=f"tell people apart by this column, as --item of headcount histogram: {by}; may be repeated",
    )
    groups.add_time_zone(group)
    lacking = "a user, a time or a value of --by" if time else "a user, a count or a value of --by"
    group.add_argument("--drop-null", action="store_true", help=f"drop rows without {lacking}")
    groups.add_rows(group)
    add(
        group,
        "--max-item-bytes",
        type=whole_number(),
        default=4096,
        metavar="N",
        help="rows with a longer value of --by are dropped (default: %(default)s)",
        rare=True,
    )


def add_noise(group: argparse._ArgumentGroup) -> None:
    """Which values of --by there are, and which noise."""
    groups.add_domain(
        group,
        "the values of --by, if they are public; without it, those that enough users have are named, which takes a delta",
    )
    group.add_argument(
        "--noise",
        choices=("auto", "laplace", "gaussian"),
        default="auto",
        help="gaussian takes a delta, and costs less where many releases add up; auto takes the one with less noise "
        "(default: %(default)s)",
    )


def person_rows(args: argparse.Namespace) -> PersonRows:
    """How the rows of a question about people are read, by its flags."""
    from headcount.mechanisms.columns.person_rows import asked_of_people  # which needs Arrow, as flags do not

    steps = getattr(args, "step", None) or ()
    return asked_of_people(
        args.user,
        args.by,
        time=getattr(args, "time", None),
        unit=None if steps or not hasattr(args, "from_") else getattr(args, "every", "day"),
        steps=steps,
        count=getattr(args, "count", None),
        drop_null=args.drop_null,
        max_item_bytes=args.max_item_bytes,
        time_zone=args.time_zone,
        prepare=options.preparation(args),
    )
