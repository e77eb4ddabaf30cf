"""`headcount count-release`: the largest counts of items that nobody knew, without a bound on a user's items."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from headcount.mechanisms import tuning
from headcount.mechanisms.bounding.steps import MAX_BOUND
from headcount.mechanisms.count_release.frames import LARGEST_FRAME
from headcount.mechanisms.count_release.release import CountRelease, count_release
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.command import JobCommand
from headcount.pipelines.flags import groups, numbers, options
from headcount.pipelines.flags.flag import add
from headcount.pipelines.reports.plan import Plan

if TYPE_CHECKING:
    from headcount.transforms.count_release import PrivateCountRelease

_TYPICAL = (10, 100, 1000, 10_000)  # numbers of items that --explain speaks of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    groups.add_input(parser)
    group = groups.add_budget(parser, rho=groups.HALF_OF_DELTA)
    group.add_argument(
        "--relative-error",
        type=numbers.number,
        default=0.1,
        metavar="E",
        help="how far from the true one most counts may be, as a part of it (default: %(default)s)",
    )
    add_k_bar(group)
    group.add_argument(
        "--max-per-item",
        type=numbers.whole_number(most=MAX_BOUND),
        metavar="C",
        help="count events, at most this many of one user on an item (default: count users)",
    )
    add(
        group,
        "--noise-reduction",
        action="store_true",
        help="spend less on counts that are exact enough, for more of them",
        rare=True,
    )
    add(
        group,
        "--strict-target",
        action="store_true",
        help="keep to a small --relative-error even where measuring a count costs more than finding its item",
        rare=True,
    )
    add(
        group,
        "--start-epsilon",
        type=numbers.number,
        default=tuning.FIRST_EPSILON,
        metavar="E",
        help="the epsilon of the first draws, which should find nothing; too low costs little (default: %(default)s)",
        rare=True,
    )
    groups.add_quality(parser)
    groups.add_output(parser)
    groups.add_release(parser)


def add_k_bar(group: argparse._ArgumentGroup) -> None:
    """How many items are looked at."""
    add(
        group,
        "--k-bar",
        type=numbers.whole_number(most=LARGEST_FRAME),
        default=tuning.ITEMS_LOOKED_AT,
        metavar="N",
        help="look at the N items with the most users (default: %(default)s)",
        rare=True,
    )


def make_mechanism(args: argparse.Namespace, item_type: type) -> CountRelease:
    """The mechanism that the flags ask for."""
    return count_release(**_parameters(args, item_type))


def make_transform(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> PrivateCountRelease:
    """The same as a transform."""
    from headcount.transforms.count_release import PrivateCountRelease

    how = options.quality(args) | options.how_to_run(args, release, shards)
    return PrivateCountRelease(**_parameters(args, item_type), **how).with_decision()


def _parameters(args: argparse.Namespace, item_type: type) -> dict[str, Any]:
    return {
        **options.of_factory(count_release, args),
        "budget": options.make_zcdp_or_budget(args),
        **options.typed(args, item_type),
    }


def make_plan(args: argparse.Namespace, made: CountRelease, item_type: type) -> Plan:
    """What the command says of itself, and the public parameters of it."""
    return Plan(made.guarantee(), {"rho": made.zcdp.rho})


def explain(args: argparse.Namespace, plan: CountRelease) -> str:
    """The promise and what it buys, in words, before anything is read."""
    lines = [plan.guarantee().description(), ""]
    for items in _TYPICAL:
        level = plan.level_for(items) if items <= plan.k_bar else None
        if level is None:
            continue
        lines.append(
            f"if it finds {items:,} items, then those with more than some {float(level.threshold):,.0f} users, and counts"
            f" have noise of standard deviation {float(level.sigma * plan.max_per_item):,.4g} or somewhat more"
        )
    if len(lines) == 2:
        lines.append("this budget does not buy 10 items: raise it")
    lines.append(
        f"an item beyond the {plan.k_bar:,} with the most users is never released; a user counts for all of its items"
    )
    return "\n".join(lines)


_CALL = """The users of each item, for as many of the largest items as the budget buys; users count for all of their items.

Guarantee: user-level (epsilon, delta)-differential privacy under `relation`, or delta-approximate rho-zCDP.

    headcount.count_release(frame, user="user_id", item="page", rho=0.5, delta=1e-6)

Parameters:
The result has the columns of `item`, and bounded_count, noise_stddev, low, high.
"""

COMMAND = JobCommand(
    name="count-release",
    call=_CALL,
    add_arguments=add_arguments,
    example=(
        "headcount count-release --input visits.parquet --user user_id --item query \\\n"
        "      --rho 0.5 --delta 1e-6 --output largest/"
    ),
    check=options.check_zcdp_or_budget,
    make_mechanism=make_mechanism,
    make_plan=make_plan,
    explain=explain,
    make_transform=make_transform,
)
