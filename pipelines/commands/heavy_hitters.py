"""`headcount heavy-hitters`: the items that a given share of all users have, from a sample and without noise."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.sampled.auto import AutoSampled, heavy_hitters
from headcount.mechanisms.sampled.heavy_hitters import CountedHitters
from headcount.mechanisms.sampled.histogram import MOST_USERS
from headcount.pipelines.command import JobCommand
from headcount.pipelines.commands import sampled
from headcount.pipelines.flags import groups, numbers, options
from headcount.pipelines.flags.flag import add
from headcount.pipelines.reports.plan import Plan

if TYPE_CHECKING:
    from headcount.transforms.sampled.release import HeavyHitters


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    groups.add_input(parser)
    group = groups.add_budget(parser)
    add(
        group,
        "--phi",
        needed=True,
        type=numbers.number,
        metavar="S",
        help="report the items that at least this share of all users have",
    )
    group.add_argument(
        "--users",
        type=numbers.whole_number(most=MOST_USERS),
        metavar="N",
        help="the number of all users, if it is public (default: count them, with noise)",
    )
    add(
        group,
        "--users-share",
        type=numbers.number,
        metavar="S",
        help="the part of epsilon for counting the users, without --users (default: 0.1)",
        rare=True,
    )
    sampled.add_max_items(group)
    groups.add_output(parser)
    groups.add_release(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse parameters that do not go together, by the names of their flags."""
    options.require(args, "--epsilon", "--phi")
    sampled.check(args)
    if args.users is None and args.relation == Relation.REPLACE.value:
        raise ParameterError(f"--relation {args.relation} needs --users, the public number of all users")
    if args.users is not None and args.users_share is not None:
        raise ParameterError(f"--users-share {args.users_share} is of no use with --users: leave one of them out")


def make_mechanism(args: argparse.Namespace, item_type: type) -> sampled.Mechanism:
    """The mechanism that the flags ask for."""
    return heavy_hitters(**_parameters(args, item_type))


def make_transform(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> HeavyHitters:
    """The same as a transform."""
    from headcount.transforms.sampled.release import HeavyHitters

    how = options.how_to_run(args, release, shards)
    transform = HeavyHitters(**_parameters(args, item_type), **how, sample=sampled.sample_name(args))
    return transform.with_decision() if isinstance(transform.mechanism, AutoSampled) else transform


def _parameters(args: argparse.Namespace, item_type: type) -> dict[str, Any]:
    return options.of_factory(heavy_hitters, args) | sampled.given(args, item_type)


def make_plan(args: argparse.Namespace, made: sampled.Mechanism, item_type: type) -> Plan:
    """What the command says of itself, and the public parameters of it."""
    return sampled.plan_of(args, made, make_note(args, made))


def make_note(args: argparse.Namespace, made: sampled.Mechanism) -> str:
    """What a reader must know: whose items count, and if items that are asked for may stay hidden."""
    lines = [sampled.whose_items(args)]
    if isinstance(made, AutoSampled | CountedHitters) and isinstance(made.users, NoisePlan):
        lines.append(f"users are counted with noise of standard deviation {made.users.stddev:,.4g}")
    if isinstance(made, AutoSampled):
        fewest = min(made.choice.w50.values())
        lines.append(f"items of fewer than {fewest:,} users stay hidden for the most part, whatever their share")
    elif args.users is None or args.phi * args.users < made.plan.w95:
        lines.append(
            f"items of fewer than {made.plan.w95:,} users may stay hidden, whatever their share: one of {made.plan.w50:,} is "
            f"shown with a chance of 50 %, and one of {made.plan.w95:,} with 95 %"
        )
    return "\n".join(lines)


def explain(args: argparse.Namespace, made: sampled.Mechanism) -> str:
    """The promise and what it costs, in words, before anything is read."""
    return sampled.explain(args, made, make_note(args, made))


_CALL = """The items that a given share of all users have, from a secret sample and without noise.

Guarantee: user-level (epsilon, delta)-differential privacy under `relation`.

    headcount.heavy_hitters(frame, user="user_id", item="page", phi=0.01, users=1_000_000, epsilon=1, delta=1e-8)

Parameters:
The result has the columns of `item`, and count, noise_stddev, low, high, sampled.
"""

COMMAND = JobCommand(
    name="heavy-hitters",
    call=_CALL,
    add_arguments=add_arguments,
    example=(
        "headcount heavy-hitters --input visits.parquet --user user_id --item query --phi 0.05 \\\n"
        "      --epsilon 1 --delta 1e-8 --output frequent/"
    ),
    check=check,
    make_mechanism=make_mechanism,
    make_plan=make_plan,
    explain=explain,
    make_transform=make_transform,
)
