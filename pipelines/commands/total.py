"""`headcount total`: the totals of a few given items, with the bias of the cap on each user taken out."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

import numpy as np

from headcount.mechanisms.accounting import expected_error
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.bounding.steps import MAX_BOUND
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.debiased import MOST_USERS, capped_slope
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines import numbers, options
from headcount.pipelines.command import JobCommand
from headcount.pipelines.jobs.run import Plan
from headcount.transforms.debiased_count import DebiasedCount

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    options.add_input(parser)
    group = options.add_budget(parser)
    group.add_argument(
        "--of", action="append", metavar="ITEM", help="the item to count, which must be public; may be repeated"
    )
    group.add_argument(
        "--max-per-item",
        type=numbers.whole_number(most=MAX_BOUND),
        metavar="C",
        help="events of one user on an item that count at most (up to 1000000000)",
    )
    group.add_argument(
        "--users",
        type=numbers.whole_number(most=MOST_USERS),
        metavar="N",
        help="the number of all users, if it is public; needed with --relation replace (default: counted with noise)",
    )
    group.add_argument(
        "--users-share",
        type=numbers.number,
        metavar="S",
        help="the share of epsilon for counting the users, without --users (default: 0.1)",
    )
    group.add_argument(
        "--max-items",
        type=numbers.whole_number(most=MAX_BOUND),
        metavar="K",
        help="how many of the items one user counts for at most (default: all of them)",
    )
    group.add_argument(
        "--largest-mean",
        type=numbers.number,
        metavar="M",
        help="events per user on an item that an estimate may reach, on average (default: twice the cap)",
    )
    group.add_argument(
        "--noise",
        choices=("auto", "laplace", "gaussian"),
        default="auto",
        help="auto takes the one with the lower standard deviation (default: %(default)s)",
    )
    options.add_output(parser)
    options.add_release(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse parameters that do not go together, by the names of their flags."""
    options.require(args, "--epsilon", "--of", "--max-per-item")
    if args.users is None and args.relation == Relation.REPLACE.value:
        raise ParameterError(
            f"--relation {args.relation} needs --users, the public number of all users, also of those without the item"
        )
    if args.users is not None and args.users_share is not None:
        raise ParameterError(f"--users-share {args.users_share} is of no use with --users: leave one of them out")


def make_transform(
    args: argparse.Namespace, release: Release | None, item_type: type, shards: int | None
) -> DebiasedCount:
    """The transform that the flags ask for."""
    return DebiasedCount(
        options.make_budget(args),
        read_items(args.of, item_type, args.max_item_bytes),
        max_per_item=args.max_per_item,
        users=args.users,
        users_share=args.users_share,
        max_items=args.max_items,
        largest_mean=args.largest_mean,
        noise=args.noise,
        **options.how_to_run(args, release, item_type, shards),
    )


def read_items(given: Sequence[str], item_type: type, max_item_bytes: int) -> list[str] | list[int]:
    """The items of --of, as strings or, for an integer column, as integers; each once."""
    for number, item in enumerate(given):
        if item in given[:number]:
            raise ParameterError(f"--of {item!r} is given twice")
        if _bytes(item) > max_item_bytes:
            raise ParameterError(f"--of {item!r} is longer than {max_item_bytes} bytes: such rows are dropped")
        if item_type is int and not (_INTEGER.fullmatch(item) and -(2**63) <= int(item) < 2**63):
            raise ParameterError(f"--of must be a whole number of 64 bits, as the item column holds, got {item!r}")
    return [int(item) for item in given] if item_type is int else list(given)


def _bytes(item: str) -> int:
    try:
        return len(item.encode())
    except UnicodeEncodeError:
        raise ParameterError(f"--of must be text in UTF-8, got {item!r}") from None


def make_plan(args: argparse.Namespace, transform: DebiasedCount, item_type: type) -> Plan:
    """What the command does to the events, and the public parameters of it."""
    parameters = options.shared_parameters(args, item_type) | {
        "items": len(transform.mechanism.items),
        "max_per_item": args.max_per_item,
        "users": args.users,
        "users_share": args.users_share,
        "max_items": transform.mechanism.max_items,
        "largest_mean": transform.mechanism.largest_mean,
        "noise": transform.mechanism.noise.kind,
    }
    told = {
        "assumption": "count assumes that the number of events of each user on an item is Poisson, the same for all users"
    }
    return Plan(transform, transform.guarantee(), parameters, told=told)


def explain(args: argparse.Namespace, transform: DebiasedCount) -> str:
    """The promise and what it costs, in words, before anything is read."""
    plan = transform.mechanism
    error = expected_error.expected_error(plan.noise)
    means = sorted(
        {min(mean, plan.largest_mean) for mean in (plan.max_per_item / 4, plan.max_per_item / 2, plan.max_per_item)}
    )
    factors = 1 / capped_slope(np.array(means), plan.max_per_item)
    widened = ", ".join(f"{factor:.3g} at {mean:,g}" for mean, factor in zip(means, factors, strict=True))
    lines = [
        plan.guarantee().words(),
        "",
        f"noise: {plan.noise.kind}, standard deviation {error.stddev:,.4g};"
        f" 95 % of the noisy totals are within {error.half_width:,.4g} of the capped total",
        f"debiasing multiplies that, by the events per user on an item: {widened}",
        "the estimate is right for users whose counts are Poisson with similar means; the more they differ, the lower it is",
    ]
    if plan.max_items < len(plan.items):
        lines.append(f"what a user did on more than {plan.max_items} of the items does not count, and is not estimated")
    return "\n".join(lines)


COMMAND = JobCommand(
    name="total",
    help="Count a few given items, and take out the bias of bounding what one user counts for.",
    add_arguments=add_arguments,
    example=(
        "headcount total --input 'events-*.parquet' --user user_id --item query --of weather \\\n"
        "      --max-per-item 2 --epsilon 1 --output out/"
    ),
    check=check,
    make_transform=make_transform,
    make_plan=make_plan,
    explain=explain,
)
