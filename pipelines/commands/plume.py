"""`headcount plume`: items are named first, and then the named ones are counted."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from headcount.mechanisms.count_release.plume import PlumeRelease
from headcount.mechanisms.partitions.rounds import ZCDP_STRATEGIES
from headcount.mechanisms.partitions.select import in_items
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines import numbers, options
from headcount.pipelines.command import Command
from headcount.pipelines.commands.bound_options import bound_or_auto
from headcount.pipelines.jobs import report
from headcount.pipelines.jobs.run import Plan, run_job
from headcount.transforms.plume import Plume


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
    group.add_argument(
        "--relative-error",
        type=numbers.number,
        metavar="E",
        help="leave out noisy counts that may be off by more than this part of them (default: leave out none)",
    )
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
        relative_error=args.relative_error,
        **options.how_to_run(args, release, item_type, shards),
    )


def make_plan(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> Plan:
    """What the command does to the events, and the public parameters of it."""
    transform = make_transform(args, release, item_type, shards)
    parameters = options.shared_parameters(args, item_type) | {
        "rho": transform.mechanism.zcdp.rho,
        "max_items": args.max_items,
        "max_counted_items": args.max_counted_items,
        "alpha": args.alpha,
        "selection": args.selection,
        "relative_error": args.relative_error,
    }
    chosen = transform.mechanism.choice is not None
    return Plan(transform.with_decision() if chosen else transform, transform.guarantee(), parameters)


def explain(plan: PlumeRelease) -> str:
    """The promise and what it costs, in words, before anything is read; where the bounds are chosen, at both ends."""
    lines = [plan.guarantee().words()]
    if plan.choice is None:
        lines += ["", *report.expected_words(plan.plan().plan)]
    else:
        for end in plan.choice.ends():
            expected = report.expected_words(plan.plan(end).plan)
            lines += ["", f"if at most {in_items(end.bound)} per user is chosen:", *expected]
    lines += ["", "a user's items beyond these bounds do not count, which lowers the counts besides"]
    return "\n".join(lines)


def run(args: argparse.Namespace, beam_flags: Sequence[str]) -> int:
    """Run the command, or only explain what it would promise."""
    options.make_zcdp_or_budget(args)
    if args.explain:
        print(explain(make_transform(args, None, options.item_type(args) or str, None).mechanism))
        return 0
    return run_job(args, beam_flags, COMMAND.name, lambda *found: make_plan(args, *found))


COMMAND = Command(
    name="plume",
    help="Name items that enough users have, then count the users of each, with a bound on a user's items.",
    add_arguments=add_arguments,
    run=run,
    example=(
        "headcount plume --input 'events-*.parquet' --user user_id --item query \\\n"
        "      --rho 0.5 --delta 1e-6 --max-items 20 --output out/"
    ),
    takes_beam_flags=True,
)
