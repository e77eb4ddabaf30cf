"""`headcount funnel`: how many users come to each step of a path, in order of time."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.mechanisms.people.ask import funnel
from headcount.mechanisms.people.release import PeopleMechanism
from headcount.mechanisms.people.shares import deviations
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.command import JobCommand, Rows
from headcount.pipelines.commands.people import shared
from headcount.pipelines.flags import groups, options, people
from headcount.pipelines.flags.flag import add
from headcount.pipelines.reports.plan import Plan
from headcount.pipelines.sources.domain import domain_of, planned_domain

if TYPE_CHECKING:
    from headcount.transforms.people.questions import Funnel

_NOTE = (
    "a user counts once, for the longest prefix of the steps that it did in order of time; rows of equal time count in the "
    "order of the steps, and a row is used for one step at most"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    people.add_input(parser, "the value at the row where the path begins counts")
    group = parser.add_argument_group("what to ask")
    add(
        group,
        "--step",
        needed=True,
        python='conditions on rows, in the order of the path: ["page=/", "page=/cart", "page=/paid"]',
        action="append",
        metavar="CONDITION",
        help="a condition on a row, such as page=/cart or 'price > 5 and country = de'; repeated, in the order of the path",
    )
    group.add_argument(
        "--within",
        metavar="SPAN",
        help="how long the whole path may take from its first step: 7d, 36h, 90m, 30s or 2w (default: any time)",
    )
    people.add_noise(groups.add_budget(parser))
    groups.add_output(parser)
    groups.add_release(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse parameters that do not go together, by the names of their flags."""
    options.require(args, "--time", "--step")
    shared.check(args)
    people.person_rows(args)  # refuses a condition that is none


def make_mechanism(args: argparse.Namespace, item_type: type) -> PeopleMechanism:
    """The mechanism that the flags ask for."""
    given = shared.parameters(args, planned_domain(args), item_type)
    return funnel(steps=args.step, within=args.within, by=args.by is not None, **given)


def make_transform(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> Funnel:
    """The same as a transform."""
    from headcount.transforms.people.questions import Funnel

    given = shared.parameters(args, domain_of(args), item_type) | options.how_to_run(args, release, shards)
    return Funnel(steps=args.step, within=args.within, **shared.of_transform(args), **given)


def make_plan(args: argparse.Namespace, made: PeopleMechanism, item_type: type) -> Plan:
    """What the command says of itself, and the public parameters of it."""
    return shared.plan(made, "funnel", _NOTE)


def explain(args: argparse.Namespace, made: PeopleMechanism) -> str:
    """The promise and what it costs, in words, before anything is read."""
    noise, steps = made.table.noise(), made.question.sizes[0]
    lines = []
    for step, condition in enumerate(args.step, start=1):
        draws = steps - step + 1
        stddev = float(np.sqrt(draws * noise.own[0]))
        half = float(noise.half[0]) if draws == 1 else deviations(noise.kurtosis / draws) * stddev
        lines.append(f"step {step}, {condition}: standard deviation {stddev:,.4g}; 95 % are within {half:,.4g} users")
    return shared.explained(made, lines, _NOTE)


def show(report: Mapping[str, Any], rows: Rows) -> str:
    """The steps in their order."""
    return shared.shown(report, rows, _table, "how many users came to each step, with 95 % intervals")


def _table(rows: Sequence[shared.Row]) -> list[str]:
    heads = ["step", "users", "low", "high", "of the first", "of the step before"]
    cells = [
        [
            f"{row['step']}  {row['condition']}",
            *(shared.number(row[name]) for name in ("count", "low", "high")),
            shared.share(row, "share_of_first"),
            shared.share(row, "share_of_before"),
        ]
        for row in rows
    ]
    return shared.lined_up(heads, cells)


_CALL = """How many users come to each step of a path, in order of time, and which share of them.

Guarantee: user-level epsilon-differential privacy under `relation`; with delta for Gaussian noise, or where values of
`by` are named.

    headcount.funnel(frame, user="user_id", time="viewed_at", step=["page=/", "page=/cart", "page=/paid"], epsilon=1)

Parameters:
The result has the columns of `by`, and step, condition, count, noise_stddev, low, high; and share_of_first and
share_of_before, each with _low and _high.
"""

COMMAND = JobCommand(
    name="funnel",
    call=_CALL,
    add_arguments=add_arguments,
    example=(
        "headcount funnel --input visits.parquet --user user_id --time viewed_at \\\n"
        "      --step page=/ --step page=/cart --step 'price > 0' --within 7d --epsilon 1 --output funnel/"
    ),
    elsewhere={
        "--item": "a funnel counts steps: give them by --step, and --by COLUMN to tell people apart",
        "--steps": "give --step once for each step",
    },
    check=check,
    make_mechanism=make_mechanism,
    make_plan=make_plan,
    explain=explain,
    make_transform=make_transform,
    source=shared.source,
    show=show,
)
