"""`headcount sampled`: how many users have each item, from a sample and without noise."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from headcount.mechanisms.bounding.steps import MAX_BOUND
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.sampled.auto import AutoSampled, sampled_histogram
from headcount.mechanisms.sampled.histogram import SampledHistogramMechanism
from headcount.mechanisms.sampled.plan import laplace_w50
from headcount.pipelines.command import JobCommand
from headcount.pipelines.flags import groups, numbers, options
from headcount.pipelines.reports.plan import Plan

if TYPE_CHECKING:
    from headcount.transforms.sampled.release import SampledHistogram

Mechanism = AutoSampled | SampledHistogramMechanism

_TYPICAL = (100, 1000, 10_000, 100_000)  # numbers of users that --explain speaks of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    groups.add_input(parser)
    add_max_items(groups.add_budget(parser))
    groups.add_quality(parser)
    groups.add_output(parser)
    groups.add_release(parser)


def add_max_items(group: argparse._ArgumentGroup) -> None:
    """What all commands that sample users by item have."""
    group.add_argument(
        "--max-items",
        type=numbers.whole_number_or("auto", most=MAX_BOUND),
        default="auto",
        metavar="N",
        help="for how many of its distinct items one user counts at most, a uniform choice; auto chooses the number privately, "
        "by a tenth of epsilon (default: %(default)s)",
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
    options.require_delta(args, options.NAMING)


def sample_name(args: argparse.Namespace) -> str:
    """What tells the sample of a job from others of the same input, under one release id: the columns, and which rows count.

    What is read off the sample is no part of it, nor is the command: jobs that ask for other things read the same one.
    """
    made = [] if args.explode is None and args.time_zone == "UTC" else [args.explode, args.time_zone]
    windows = [] if args.protect == "user" else [args.protect, args.time]
    prepare = options.preparation(args)
    prepared = [prepare.said] if prepare else []
    read = [args.user, options.one_or_all(args.item), args.count, args.max_item_bytes]
    return json.dumps([*read, *made, *windows, *prepared])


def make_mechanism(args: argparse.Namespace, item_type: type) -> Mechanism:
    """The mechanism that the flags ask for."""
    return sampled_histogram(**given(args, item_type))


def make_transform(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> SampledHistogram:
    """The same as a transform."""
    from headcount.transforms.sampled.release import SampledHistogram

    how = options.quality(args) | options.how_to_run(args, release, shards)
    transform = SampledHistogram(**given(args, item_type), **how, sample=sample_name(args))
    return transform.with_decision() if isinstance(transform.mechanism, AutoSampled) else transform


def given(args: argparse.Namespace, item_type: type) -> dict[str, Any]:
    """The parameters of every sample by item."""
    shared = options.of_factory(sampled_histogram, args) | {"budget": options.make_budget(args)}
    return shared | options.typed(args, item_type)


def make_plan(args: argparse.Namespace, made: Mechanism, item_type: type) -> Plan:
    """What the command says of itself, and the public parameters of it."""
    return plan_of(args, made, whose_items(args))


def plan_of(args: argparse.Namespace, made: Mechanism, note: str) -> Plan:
    """The plan of a job that samples by item. If the items per user are chosen, rate and threshold are, too."""
    if isinstance(made, AutoSampled):
        return Plan(made.guarantee(), {}, note=note, drawn_as=sample_name(args))
    public = {"rate": float(made.plan.rate), "threshold": made.plan.threshold}
    return Plan(made.guarantee(), public, note=note, summary=made.summary(), drawn_as=sample_name(args))


def whose_items(args: argparse.Namespace) -> str:
    """What a reader must know of the counts: who counts for what, and what the interval is of."""
    if args.max_items == "auto":
        counts = "for each of its distinct items, up to the number that was chosen"
    elif args.max_items == 1:
        counts = "for one of its distinct items"
    else:
        counts = f"for each of at most {args.max_items:,} of its distinct items"
    return (
        f"each user counts once {counts}, however many rows it has on it; which ones, if it has more, is drawn at random, and "
        "their counts are too low by that (see --max-items)\n"
        "count estimates the users for whom an item counts, given that it is shown; low to high has their number in 95 % of "
        "cases or more"
    )


def explain(args: argparse.Namespace, made: Mechanism, note: str | None = None) -> str:
    """The promise and what it costs, in words, before anything is read."""
    lines = [made.guarantee().description(), ""]
    if isinstance(made, AutoSampled):
        from headcount.pipelines.studies import typical

        lines += [*typical.description(made, "users"), ""]
    else:
        lines += _expected(args, made)
    return "\n".join([*lines, note or whose_items(args)])


def _expected(args: argparse.Namespace, made: SampledHistogramMechanism) -> list[str]:
    """How many users an item needs, and how exact their number is, in words."""
    plan = made.plan
    noisy = laplace_w50(options.make_budget(args), plan.relation, made.max_items)
    if made.least > plan.threshold:
        shown = (
            f"sampled with a rate of {float(plan.rate):.4g}, reported from {made.least:,} sampled users on, that is from about"
            f" {made.least / float(plan.rate):,.0f} users; the promise would allow {plan.threshold}"
        )
    else:
        shown = (
            f"sampled with a rate of {float(plan.rate):.4g}, shown from {made.least} sampled users on: an item of {plan.w50:,}"
            f" users is shown with a chance of 50 %, one of {plan.w95:,} with 95 %"
        )
    errors = [f"{float(plan.stddev(users)):,.0f} at {users:,} users" for users in _TYPICAL if users >= plan.w50]
    return [
        shown,
        f"for comparison: with Laplace noise and a threshold, at the same promise, an item of {noisy:,} users is shown with a"
        " chance of 50 %, and counts have noise",
        f"standard deviation of an estimate: {', '.join(errors)}" if errors else "only large items are shown",
    ]


_CALL = """The users of each item, from a secret sample and without noise: no item is shown that nobody has.

Guarantee: user-level (epsilon, delta)-differential privacy under `relation`.

    headcount.sampled(frame, user="user_id", item="page", epsilon=1, delta=1e-8)

Parameters:
The result has the columns of `item`, and count, noise_stddev, low, high, sampled.
"""

COMMAND = JobCommand(
    name="sampled",
    call=_CALL,
    add_arguments=add_arguments,
    example=(
        "headcount sampled --input visits.parquet --user user_id --item query \\\n"
        "      --epsilon 1 --delta 1e-8 --output sampled/"
    ),
    check=check,
    make_mechanism=make_mechanism,
    make_plan=make_plan,
    explain=explain,
    make_transform=make_transform,
)
