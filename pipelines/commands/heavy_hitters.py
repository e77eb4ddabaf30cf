"""`headcount heavy-hitters`: the items that a given share of all users have, from a sample and without noise."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.sampled.heavy_hitters import CountedHitters
from headcount.mechanisms.sampled.histogram import MOST_USERS
from headcount.pipelines import numbers, options
from headcount.pipelines.command import Command
from headcount.pipelines.commands import sampled
from headcount.pipelines.jobs.run import Plan, run_job
from headcount.transforms.sampled import HeavyHitters


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    options.add_input(parser)
    group = options.add_budget(parser)
    group.add_argument(
        "--phi", type=numbers.number, metavar="S", help="the share of all users from which on an item is reported"
    )
    group.add_argument(
        "--users",
        type=numbers.whole_number(most=MOST_USERS),
        metavar="N",
        help="the number of all users, if it is public (default: count them, with noise)",
    )
    group.add_argument(
        "--users-share",
        type=numbers.number,
        metavar="S",
        help="the part of epsilon for counting the users, without --users (default: 0.1)",
    )
    sampled.add_max_items(group)
    options.add_output(parser)
    options.add_release(parser)


def make_transform(
    args: argparse.Namespace, release: Release | None, item_type: type, shards: int | None
) -> HeavyHitters:
    """The transform that the flags ask for."""
    return HeavyHitters(
        options.make_budget(args),
        args.phi,
        users=args.users,
        max_items=args.max_items,
        objective=args.objective,
        **options.how_to_run(args, release, item_type, shards),
        sample=sampled.sample_name(args),
        users_share=args.users_share,
    )


def make_plan(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> Plan:
    """What the command does to the events, and the public parameters of it."""
    transform = make_transform(args, release, item_type, shards)
    own = {"phi": args.phi, "users": args.users, "users_share": args.users_share}
    own |= sampled.parameters(args, transform)
    shared = options.shared_parameters(args, item_type)
    return Plan(transform, transform.guarantee(), shared | own, note=make_note(args, transform))


def make_note(args: argparse.Namespace, transform: HeavyHitters) -> str:
    """What a reader must know: whose items count, and if items that are asked for may stay hidden."""
    note, plan = options.chosen_items(args.max_items), transform.mechanism.plan
    if isinstance(transform.mechanism, CountedHitters):
        return (
            f"{note}\nusers are counted with noise of standard deviation {transform.mechanism.users.stddev:,.4g}; items of "
            f"fewer than {plan.w95:,} users may stay hidden, whatever their share"
        )
    wanted = args.phi * args.users
    if wanted >= plan.w95:
        return note
    return (
        f"{note}\nitems of phi * users = {wanted:,.0f} users may stay hidden: at this promise one of {plan.w50:,} users is "
        f"shown with a chance of 50 %, and one of {plan.w95:,} with 95 %"
    )


def run(args: argparse.Namespace, beam_flags: Sequence[str]) -> int:
    """Run the command, or only explain what it would promise."""
    options.require(args, "--epsilon", "--phi")
    sampled.check(args)
    if args.users is None and args.relation == Relation.REPLACE.value:
        raise ParameterError(f"--relation {args.relation} needs --users, the public number of all users")
    if args.users is not None and args.users_share is not None:
        raise ParameterError(f"--users-share {args.users_share} is of no use with --users: leave one of them out")
    if args.explain:
        transform = make_transform(args, None, options.item_type(args) or str, None)
        print(sampled.explain(transform.mechanism, options.make_budget(args), make_note(args, transform)))
        return 0
    return run_job(args, beam_flags, COMMAND.name, lambda *found: make_plan(args, *found))


COMMAND = Command(
    name="heavy-hitters",
    help="Report the items that a given share of all users have, from a sample and without noise.",
    add_arguments=add_arguments,
    run=run,
    example=(
        "headcount heavy-hitters --input 'events-*.parquet' --user user_id --item query --phi 0.01 --users 1000000 \\\n"
        "      --epsilon 1 --delta 1e-8 --output out/"
    ),
    takes_beam_flags=True,
)
