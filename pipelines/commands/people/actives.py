"""`headcount actives`: how many users are active on each day, in the last 7 days and in the last 28."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headcount.mechanisms.people.ask import actives
from headcount.mechanisms.people.release import PeopleMechanism
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.command import JobCommand, Rows
from headcount.pipelines.commands.people import shared
from headcount.pipelines.commands.people.retention import add_days, check_days
from headcount.pipelines.flags import groups, options, people
from headcount.pipelines.reports.plan import Plan
from headcount.pipelines.sources.domain import domain_of, planned_domain

if TYPE_CHECKING:
    from headcount.transforms.people.questions import Actives

_NOTE = (
    "a user counts once in each window; a window that begins before the data does has only the users of the days that are "
    "there, so that the first 27 days may be too low"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    people.add_input(parser, "the value that most of a user's rows have counts, of equal ones the first by name")
    add_days(parser.add_argument_group("what to ask"))
    people.add_noise(groups.add_budget(parser))
    groups.add_output(parser)
    groups.add_release(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse parameters that do not go together, by the names of their flags."""
    options.require(args, "--time")
    shared.check(args)
    check_days(args)


def make_mechanism(args: argparse.Namespace, item_type: type) -> PeopleMechanism:
    """The mechanism that the flags ask for."""
    given = shared.parameters(args, planned_domain(args), item_type)
    return actives(first=args.from_, last=args.to, by=args.by is not None, **given)


def make_transform(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> Actives:
    """The same as a transform."""
    from headcount.transforms.people.questions import Actives

    given = shared.parameters(args, domain_of(args), item_type) | options.how_to_run(args, release, shards)
    return Actives(from_=args.from_, to=args.to, **shared.of_transform(args), **given)


def make_plan(args: argparse.Namespace, made: PeopleMechanism, item_type: type) -> Plan:
    """What the command says of itself, and the public parameters of it."""
    return shared.plan(made, "actives", _NOTE)


def explain(args: argparse.Namespace, made: PeopleMechanism) -> str:
    """The promise and what it costs, in words, before anything is read."""
    noise = made.table.noise()
    line = f"each number: standard deviation {noise.stddev[0]:,.4g}; 95 % are within {noise.half[0]:,.4g} users"
    more = [] if args.delta > 0 else ["with a --delta, such as 1e-8, Gaussian noise would be far less"]
    return shared.explained(made, [line, *more], _NOTE)


def show(report: Mapping[str, Any], rows: Rows) -> str:
    """A line for each day, with its three numbers."""
    what = "how many users are active, in windows that end with a day; +- is half of the 95 % interval"
    return shared.shown(report, rows, _table, what)


def _table(rows: Sequence[shared.Row]) -> list[str]:
    days: dict[str, list[str]] = {}
    for row in rows:
        half = (float(row["high"]) - float(row["low"])) / 2
        days.setdefault(str(row["day"]), []).append(f"{shared.number(row['count'])} +- {shared.number(half)}")
    heads = ["day", "that day", "last 7 days", "last 28 days"]
    return shared.lined_up(heads, [[day, *cells] for day, cells in days.items()])


_CALL = """How many users are active on each day, in the 7 days that end with it, and in the 28: three series in one release.

Guarantee: user-level (epsilon, delta)-differential privacy under `relation`; without a delta, by Laplace noise, which is
far more here.

    headcount.actives(frame, user="user_id", time="viewed_at", from_="2026-11-02", to="2026-11-15", epsilon=1, delta=1e-8)

Parameters:
The result has the columns of `by`, and day, window, count, noise_stddev, low, high, share, share_low, share_high.
"""

COMMAND = JobCommand(
    name="actives",
    call=_CALL,
    add_arguments=add_arguments,
    example=(
        "headcount actives --input visits.parquet --user user_id --time viewed_at \\\n"
        "      --from 2026-11-02 --to 2026-11-15 --epsilon 1 --delta 1e-8 --output actives/"
    ),
    elsewhere={"--item": "actives counts users by day: give --by COLUMN to tell people apart"},
    check=check,
    make_mechanism=make_mechanism,
    make_plan=make_plan,
    explain=explain,
    make_transform=make_transform,
    source=shared.source,
    show=show,
)
