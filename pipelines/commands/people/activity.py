"""`headcount activity`: how many users did it how often."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headcount.mechanisms.people.ask import activity
from headcount.mechanisms.people.release import PeopleMechanism
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.command import JobCommand, Rows
from headcount.pipelines.commands.people import shared
from headcount.pipelines.flags import groups, options, people
from headcount.pipelines.flags.flag import add
from headcount.pipelines.reports.plan import Plan
from headcount.pipelines.sources.domain import domain_of, planned_domain

if TYPE_CHECKING:
    from headcount.transforms.people.questions import Activity

DEFAULT_BINS = (1, 2, 3, 6, 11, 51)
_NOTE = (
    "a user counts once, in the bin of the number of its events; who has fewer than the first bin says is not counted"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    people.add_input(
        parser, "the value that most of a user's events have counts, of equal ones the first by name", False
    )
    group = parser.add_argument_group("what to ask")
    add(
        group,
        "--bins",
        kind="str | Sequence[int]",
        type=bins,
        default=",".join(map(str, DEFAULT_BINS)),
        metavar="N,..",
        help="where bins of the number of events begin, which must be public (default: %(default)s)",
    )
    people.add_noise(groups.add_budget(parser))
    groups.add_output(parser)
    groups.add_release(parser)


def bins(text: str) -> str:
    """Reads ascending whole numbers; a list of Python is one, too."""
    inner = text.strip("[]() ").replace(" ", "")
    parts = inner.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) <= 10 for part in parts):
        raise argparse.ArgumentTypeError(
            f"must be whole numbers with commas between them, as 1,2,3,6,11,51, got {text!r}"
        )
    return inner


def _edges(args: argparse.Namespace) -> list[int]:
    return [int(part) for part in args.bins.split(",")]


def make_mechanism(args: argparse.Namespace, item_type: type) -> PeopleMechanism:
    """The mechanism that the flags ask for."""
    given = shared.parameters(args, planned_domain(args), item_type)
    return activity(bins=_edges(args), by=args.by is not None, **given)


def make_transform(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> Activity:
    """The same as a transform."""
    from headcount.transforms.people.questions import Activity

    given = shared.parameters(args, domain_of(args), item_type) | options.how_to_run(args, release, shards)
    return Activity(bins=_edges(args), **shared.of_transform(args), **given)


def make_plan(args: argparse.Namespace, made: PeopleMechanism, item_type: type) -> Plan:
    """What the command says of itself, and the public parameters of it."""
    return shared.plan(made, "activity", _NOTE)


def explain(args: argparse.Namespace, made: PeopleMechanism) -> str:
    """The promise and what it costs, in words, before anything is read."""
    noise = made.table.noise()
    line = f"each bin: standard deviation {noise.stddev[0]:,.4g}; 95 % are within {noise.half[0]:,.4g} users"
    return shared.explained(made, [line], _NOTE)


def show(report: Mapping[str, Any], rows: Rows) -> str:
    """The bins in their order."""
    return shared.shown(report, rows, _table, "how many users have how many events, with 95 % intervals")


def _table(rows: Sequence[shared.Row]) -> list[str]:
    cells = [
        [
            str(row["events"]),
            *(shared.number(row[name]) for name in ("count", "low", "high")),
            shared.share(row, "share"),
        ]
        for row in rows
    ]
    return shared.lined_up(["events", "users", "low", "high", "share"], cells)


_CALL = """How many users have how many events, in public bins.

Guarantee: user-level epsilon-differential privacy under `relation`; with delta for Gaussian noise, or where values of
`by` are named.

    headcount.activity(frame, user="user_id", bins=[1, 2, 3, 6, 11, 51], epsilon=1)

Parameters:
The result has the columns of `by`, and events, least, most, count, noise_stddev, low, high, share, share_low, share_high.
"""

COMMAND = JobCommand(
    name="activity",
    call=_CALL,
    add_arguments=add_arguments,
    example=(
        "headcount activity --input visits.parquet --user user_id --bins 1,2,3,6,11,51 \\\n"
        "      --epsilon 1 --output activity/"
    ),
    elsewhere={"--item": "activity counts all events of a user: give --by COLUMN to tell people apart"},
    check=shared.check,
    make_mechanism=make_mechanism,
    make_plan=make_plan,
    explain=explain,
    make_transform=make_transform,
    source=shared.source,
    show=show,
)
