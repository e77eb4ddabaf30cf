"""`headcount plume`: items are named first, and then the named ones are counted."""

from __future__ import annotations

import argparse

from headcount.mechanisms.partitions.rounds import ZCDP_STRATEGIES
from headcount.mechanisms.partitions.select import in_items
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines import numbers, options
from headcount.pipelines.command import JobCommand
from headcount.pipelines.commands.bound_options import bound_or_auto
from headcount.pipelines.jobs import report
from headcount.pipelines.jobs.run import Plan
from headcount.transforms.count_release import Plume


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    options.add_input(parser)
    group = options.add_budget(parser)
    options.add_rho(group)
    group.add_argument(
        "--max-items",
        type=bound_or_auto,
        default="auto",
        metavar="auto|M",
        help="items of one user that have a part in naming at most; auto chooses it privately (default: %(default)s)",
    )
    group.add_argument(
        "--max-counted-items",
        type=bound_or_auto,
        metavar="M",
        help="named items that one user counts for at most (default: as --max-items)",
    )
    group.add_argument(
        "--alpha", type=numbers.number, default=0.5, metavar="A", help="share of rho for naming (default: %(default)s)"
    )
    group.add_argument(
        "--selection", choices=ZCDP_STRATEGIES, default="gaussian", help="how items are named (default: %(default)s)"
    )
    options.add_quality(parser)
    options.add_output(parser)
    options.add_release(parser)


def make_transform(args: argparse.Namespace, release: Release | None, item_type: type, shards: int | None) -> Plume:
    """The transform that the flags ask for."""
    return Plume(
        options.make_zcdp_or_budget(args),
        max_items=args.max_items,
        max_counted_items=args.max_counted_items,
        alpha=args.alpha,
        selection=args.selection,
        **options.quality(args),
        **options.how_to_run(args, release, item_type, shards),
    )


def make_plan(args: argparse.Namespace, transform: Plume, item_type: type) -> Plan:
    """What the command does to the events, and the public parameters of it."""
    parameters = options.shared_parameters(args) | {
        "rho": transform.mechanism.zcdp.rho,
        "max_items": args.max_items,
        "max_counted_items": args.max_counted_items,
        "alpha": args.alpha,
        "selection": args.selection,
        **options.quality(args),
    }
    chosen = transform.mechanism.choice is not None
    told = {} if chosen else transform.mechanism.plan().told()
    return Plan(transform.with_decision() if chosen else transform, transform.guarantee(), parameters, told=told)


def explain(args: argparse.Namespace, transform: Plume) -> str:
    """The promise and what it costs, in words, before anything is read; where the bounds are chosen, at both ends."""
    plan = transform.mechanism
    lines = [plan.guarantee().words()]
    if plan.choice is None:
        lines += ["", *report.expected_words(plan.plan().plan)]
    else:
        for end in plan.choice.ends():
            expected = report.expected_words(plan.plan(end).plan)
            lines += ["", f"if at most {in_items(end.bound)} per user is chosen:", *expected]
    lines += ["", "a user's items beyond these bounds do not count, which lowers the counts besides"]
    return "\n".join(lines)


COMMAND = JobCommand(
    name="plume",
    add_arguments=add_arguments,
    example=(
        "headcount plume --input 'events-*.parquet' --user user_id --item query \\\n"
        "      --rho 0.5 --delta 1e-6 --max-items 20 --output out/"
    ),
    check=options.check_zcdp_or_budget,
    make_transform=make_transform,
    make_plan=make_plan,
    explain=explain,
)
