"""`headcount top`: the items with the most users, in order and without counts."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from headcount.mechanisms.count_release.frames import LARGEST_FRAME
from headcount.mechanisms.count_release.top_items import TopItemsMechanism, top_items
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines import numbers, options
from headcount.pipelines.command import JobCommand
from headcount.pipelines.commands.count_release import add_k_bar
from headcount.pipelines.jobs.plan import Plan

if TYPE_CHECKING:
    from headcount.transforms.count_release import TopItems


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    options.add_input(parser)
    group = options.add_budget(parser)
    group.add_argument(
        "--k", type=numbers.whole_number(most=LARGEST_FRAME), metavar="K", help="how many items to name at most"
    )
    add_k_bar(group)
    options.add_output(parser)
    options.add_release(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse parameters that do not go together, by the names of their flags."""
    options.require(args, "--epsilon", "--k")
    options.require_delta(args, options.NAMING)
    if args.k > args.k_bar:
        raise ParameterError(f"--k must not exceed --k-bar {args.k_bar}, got {args.k}")


def make_mechanism(args: argparse.Namespace, item_type: type) -> TopItemsMechanism:
    """The mechanism that the flags ask for."""
    return top_items(**_parameters(args, item_type))


def make_transform(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> TopItems:
    """The same as a transform."""
    from headcount.transforms.count_release import TopItems

    return TopItems(**_parameters(args, item_type), **options.how_to_run(args, release, shards))


def _parameters(args: argparse.Namespace, item_type: type) -> dict[str, Any]:
    budget = options.make_budget(args)
    return {"budget": budget, "k": args.k, "k_bar": args.k_bar, **options.typed(args, item_type)}


def make_plan(args: argparse.Namespace, made: TopItemsMechanism, item_type: type) -> Plan:
    """What the command says of itself, and the public parameters of it."""
    parameters = options.shared_parameters(args) | {"k": args.k, "k_bar": args.k_bar}
    told = {"users_needed": math.ceil(made.threshold)}
    return Plan(made.guarantee(), parameters, files="top", told=told)


def explain(args: argparse.Namespace, plan: TopItemsMechanism) -> str:
    """The promise and what it buys, in words, before anything is read."""
    lines = [
        plan.guarantee().words(),
        "",
        f"items with more than some {float(plan.threshold):,.0f} users may be named, or that many more than the item of rank"
        f" {plan.k_bar + 1:,} has",
        f"two items are ranked rightly with a chance of 95 % if their users differ by {2.95 / float(plan.epsilon):,.0f}",
    ]
    return "\n".join(lines)


COMMAND = JobCommand(
    name="top",
    add_arguments=add_arguments,
    example=(
        "headcount top --input visits.parquet --user user_id --item query --k 20 \\\n"
        "      --epsilon 1 --delta 1e-8 --output top/"
    ),
    check=check,
    make_mechanism=make_mechanism,
    make_plan=make_plan,
    explain=explain,
    make_transform=make_transform,
)
