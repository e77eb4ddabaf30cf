"""`headcount retention`: of the users who came first in each period, how many come back in each later one."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.people.ask import EVERY, retention
from headcount.mechanisms.people.release import PeopleMechanism
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.command import JobCommand, Rows
from headcount.pipelines.commands.people import shared
from headcount.pipelines.flags import groups, options, people
from headcount.pipelines.flags.flag import add
from headcount.pipelines.reports.plan import Plan
from headcount.pipelines.sources.domain import domain_of, planned_domain

if TYPE_CHECKING:
    from headcount.transforms.people.questions import Retention

_NOTE = (
    "a user's cohort is its first {every} in the data that was given, which may not be its first ever; rows before --from and "
    "after --to, but for their whole {every}, do not count"
)
_PRIVATE = (
    "the first and last day of the data are private, so that the periods must be given: --from and --to, as 2026-10-05"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    people.add_input(
        parser, "the value that most of a user's rows have in its first period counts, of equal ones the first by name"
    )
    group = parser.add_argument_group("what to ask")
    group.add_argument(
        "--every", choices=EVERY, default="week", help="the periods; a week begins on Monday (default: %(default)s)"
    )
    add_days(group)
    people.add_noise(groups.add_budget(parser))
    groups.add_output(parser)
    groups.add_release(parser)


def add_days(group: argparse._ArgumentGroup) -> None:
    """The first and the last day."""
    first = "the first day, such as 2026-10-05; it must be public: known without a look at the data"
    add(group, "--from", dest="from_", needed=True, metavar="DAY", help=first)
    add(group, "--to", needed=True, metavar="DAY", help="the last day, which counts, too")


def check_days(args: argparse.Namespace) -> None:
    """Refuse a job without its days, with the reason."""
    if args.from_ is None or args.to is None:
        raise ParameterError(_PRIVATE)


def check(args: argparse.Namespace) -> None:
    """Refuse parameters that do not go together, by the names of their flags."""
    options.require(args, "--time")
    shared.check(args)
    check_days(args)


def make_mechanism(args: argparse.Namespace, item_type: type) -> PeopleMechanism:
    """The mechanism that the flags ask for."""
    given = shared.parameters(args, planned_domain(args), item_type)
    return retention(every=args.every, first=args.from_, last=args.to, by=args.by is not None, **given)


def make_transform(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> Retention:
    """The same as a transform."""
    from headcount.transforms.people.questions import Retention

    given = shared.parameters(args, domain_of(args), item_type) | options.how_to_run(args, release, shards)
    return Retention(every=args.every, from_=args.from_, to=args.to, **shared.of_transform(args), **given)


def make_plan(args: argparse.Namespace, made: PeopleMechanism, item_type: type) -> Plan:
    """What the command says of itself, and the public parameters of it."""
    return shared.plan(made, "retention", _NOTE.format(every=args.every), {"periods": len(made.table.sizes)})


def explain(args: argparse.Namespace, made: PeopleMechanism) -> str:
    """The promise and what it costs, in words, before anything is read."""
    noise, first = made.table.noise(), 0
    lines = []
    for number, size in enumerate(made.table.sizes, start=1):
        stddev, half = noise.stddev[first], noise.half[first]
        first += size
        lines.append(
            f"cohort {number}, of {size} {args.every}{'s' * (size > 1)}: standard deviation {stddev:,.4g}; 95 % are within "
            f"{half:,.4g} users"
        )
    return shared.explained(made, lines, _NOTE.format(every=args.every))


def show(report: Mapping[str, Any], rows: Rows) -> str:
    """The triangle: cohorts below each other, ages beside each other."""
    return shared.shown(
        report,
        rows,
        _table,
        "of the users of each cohort, how many are there by age; the files have the 95 % intervals",
    )


def _table(rows: Sequence[shared.Row]) -> list[str]:
    by_cohort: dict[str, list[str]] = {}
    for row in rows:
        value = row["share"]
        told = "" if value in (None, "") or int(row["age"]) == 0 else f" {100 * float(value):.0f} %"
        by_cohort.setdefault(str(row["cohort"]), []).append(f"{shared.number(row['count'])}{told}")
    width = max(map(len, by_cohort.values()))
    heads = ["cohort", *map(str, range(width))]
    return shared.lined_up(
        heads, [[cohort, *cells, *[""] * (width - len(cells))] for cohort, cells in by_cohort.items()]
    )


_CALL = """Of the users who came first in each day, week or month, how many come back in each later one.

Guarantee: user-level epsilon-differential privacy under `relation`; with delta for Gaussian noise, or where values of
`by` are named.

    headcount.retention(frame, user="user_id", time="viewed_at", from_="2026-10-05", to="2026-11-15", epsilon=1)

Parameters:
The result has the columns of `by`, and cohort, age, count, noise_stddev, low, high, share, share_low, share_high.
"""

COMMAND = JobCommand(
    name="retention",
    call=_CALL,
    add_arguments=add_arguments,
    example=(
        "headcount retention --input visits.parquet --user user_id --time viewed_at --every week \\\n"
        "      --from 2026-11-01 --to 2026-11-30 --epsilon 1 --delta 1e-8 --output retention/"
    ),
    elsewhere={"--item": "retention counts users by their first period: give --by COLUMN to tell people apart"},
    check=check,
    make_mechanism=make_mechanism,
    make_plan=make_plan,
    explain=explain,
    make_transform=make_transform,
    source=shared.source,
    show=show,
)
