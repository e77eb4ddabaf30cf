"""`headcount sampled`: how many users have each item, from a sample and without noise."""

from __future__ import annotations

import argparse
import json
import math

from headcount.mechanisms.bounding.steps import MAX_BOUND
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.sampled.plan import laplace_w50
from headcount.pipelines import numbers, options
from headcount.pipelines.command import JobCommand
from headcount.pipelines.jobs.run import Plan
from headcount.transforms.sampled import HeavyHitters, SampledHistogram

_TYPICAL = (100, 1000, 10_000, 100_000)  # numbers of users that --explain speaks of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    options.add_input(parser)
    add_max_items(options.add_budget(parser))
    options.add_quality(parser)
    options.add_output(parser)
    options.add_release(parser)


def add_max_items(group: argparse._ArgumentGroup) -> None:
    """What all commands that sample users by item have."""
    group.add_argument(
        "--max-items",
        type=numbers.whole_number(most=MAX_BOUND),
        default=1,
        metavar="N",
        help="for how many of its items one user counts at most, a uniform choice (default: %(default)s)",
    )
    group.add_argument(
        "--objective",
        choices=("w95", "w50"),
        default="w95",
        help="choose rate and threshold for the rarest items that are shown with a chance of 95 %% or 50 %% "
        "(default: %(default)s)",
    )


def check(args: argparse.Namespace) -> None:
    """Refuse parameters that do not go together, by the names of their flags."""
    options.require(args, "--epsilon")
    if args.delta == 0:
        raise ParameterError("--delta must be positive, as which items there are cannot be hidden for certain, got 0.0")


def sample_name(args: argparse.Namespace) -> str:
    """What tells the sample of a job from others of the same input, under one release id: the columns, and which rows count.

    What is read off the sample is no part of it, nor is the command: jobs that ask for other things read the same one.
    """
    return json.dumps([args.user, args.item, args.count, args.max_item_bytes])


def make_transform(
    args: argparse.Namespace, release: Release | None, item_type: type, shards: int | None
) -> SampledHistogram:
    """The transform that the flags ask for."""
    return SampledHistogram(
        options.make_budget(args),
        max_items=args.max_items,
        objective=args.objective,
        **options.quality(args),
        **options.how_to_run(args, release, item_type, shards),
        sample=sample_name(args),
    )


def parameters(args: argparse.Namespace, transform: SampledHistogram | HeavyHitters) -> dict[str, str | int | float]:
    """The public parameters of a sample by item."""
    plan = transform.mechanism.plan
    return {
        "max_items": args.max_items,
        "objective": args.objective,
        "rate": float(plan.rate),
        "threshold": plan.threshold,
    }


def make_plan(args: argparse.Namespace, transform: SampledHistogram, item_type: type) -> Plan:
    """What the command does to the events, and the public parameters of it."""
    public = options.shared_parameters(args, item_type) | parameters(args, transform) | options.quality(args)
    note = options.chosen_items(args.max_items)
    return Plan(transform, transform.guarantee(), public, note=note, told=told(transform))


def told(transform: SampledHistogram | HeavyHitters) -> dict[str, int]:
    """About how many users an item needs to be shown."""
    made = transform.mechanism
    return {"users_needed": max(made.plan.w50, math.ceil(made.least / made.plan.rate))}


def explain(args: argparse.Namespace, transform: SampledHistogram | HeavyHitters, note: str | None = None) -> str:
    """The promise and what it costs, in words, before anything is read."""
    made = transform.mechanism
    plan, items = made.plan, made.max_items
    noisy = laplace_w50(options.make_budget(args), plan.relation, items)
    lines = [
        made.guarantee().words(),
        "",
        f"sampled with a rate of {float(plan.rate):.4g}, shown from {made.least} sampled users on: an item of {plan.w50:,}"
        f" users is shown with a chance of 50 %, one of {plan.w95:,} with 95 %",
        f"for comparison: with Laplace noise and a threshold, at the same promise, an item of {noisy:,} users is shown with a"
        " chance of 50 %, and counts have noise",
    ]
    if made.least > plan.threshold:
        lines[2] = (
            f"sampled with a rate of {float(plan.rate):.4g}, reported from {made.least:,} sampled users on, that is from about"
            f" {made.least / float(plan.rate):,.0f} users; the promise would allow {plan.threshold}"
        )
    errors = [f"{float(plan.stddev(users)):,.0f} at {users:,} users" for users in _TYPICAL if users >= plan.w50]
    lines.append(f"standard deviation of an estimate: {', '.join(errors)}" if errors else "only large items are shown")
    return "\n".join([*lines, note or options.chosen_items(items)])


COMMAND = JobCommand(
    name="sampled",
    help="Estimate how many users have each item from a sample, without noise: no item is shown that nobody has.",
    add_arguments=add_arguments,
    example=(
        "headcount sampled --input 'events-*.parquet' --user user_id --item query \\\n"
        "      --epsilon 1 --delta 1e-8 --output out/"
    ),
    check=check,
    make_transform=make_transform,
    make_plan=make_plan,
    explain=explain,
)
