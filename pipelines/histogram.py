"""`headcount histogram`: how often each item occurs, from files of events to a committed output."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from headcount.mechanisms.calibration import NoisePlan
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness import Release
from headcount.mechanisms.relation import Relation
from headcount.mechanisms.steps import MAX_BOUND
from headcount.pipelines import options, report
from headcount.pipelines.command import Command
from headcount.pipelines.domain import read_domain
from headcount.pipelines.job import Plan, run_job
from headcount.transforms.histogram import BoundedHistogram, UnboundedHistogram


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    options.add_input(parser)
    group = options.add_budget(parser)
    group.add_argument(
        "--bound",
        type=options.whole_number(most=MAX_BOUND),
        metavar="C",
        help="events of one user that count at most (up to 1000000000); with --domain, the norm that they are scaled to",
    )
    group.add_argument(
        "--max-per-item",
        type=options.whole_number(),
        metavar="c",
        help="events of one user that count at most on one item",
    )
    group.add_argument(
        "--noise",
        choices=("auto", "laplace", "gaussian"),
        default="auto",
        help="auto takes the one with the lower threshold, and laplace with --domain (default: %(default)s)",
    )
    group.add_argument(
        "--domain",
        metavar="FILE",
        help="the items to count, one per line, if they are public; all of them are released",
    )
    options.add_output(parser)
    options.add_release(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse parameters that do not go together, by the names of their flags."""
    options.require(args, "--epsilon", "--bound")
    budget = options.make_budget(args)
    if args.domain is not None and args.max_per_item is not None:
        raise ParameterError(f"--max-per-item {args.max_per_item} is of no use with --domain: leave it out")
    if args.max_per_item is not None and args.max_per_item > args.bound:
        raise ParameterError(f"--max-per-item must not exceed --bound {args.bound}, got {args.max_per_item}")
    if args.domain is None and budget.delta == 0:
        raise ParameterError(
            "--delta must be positive if the items are not known beforehand, got 0.0: give it, or --domain"
        )


def make_transform(
    args: argparse.Namespace, release: Release | None, item_type: type, shards: int | None
) -> UnboundedHistogram | BoundedHistogram:
    """The transform that the flags ask for."""
    common = {
        "bound": args.bound,
        "relation": Relation.parse(args.relation),
        "release": release,
        "item_type": item_type,
        "shards": shards,
        "partitions": args.output_files,
    }
    budget = options.make_budget(args)
    if args.domain is None:
        return UnboundedHistogram(budget, max_per_item=args.max_per_item, noise=args.noise, **common)
    items = read_domain(args.domain, item_type, args.max_item_bytes)
    return BoundedHistogram(budget, items, noise=args.noise, **common)


def make_plan(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> Plan:
    """What the command does to the events, and the public parameters of it."""
    transform = make_transform(args, release, item_type, shards)
    noise: NoisePlan = transform.plan
    parameters = {
        "user": args.user,
        "item": args.item,
        "count": args.count,
        "item_type": item_type.__name__,
        "drop_null": args.drop_null,
        "max_item_bytes": args.max_item_bytes,
        "epsilon": args.epsilon,
        "delta": args.delta,
        "relation": args.relation,
        "bound": args.bound,
        "max_per_item": args.max_per_item,
        "noise": noise.kind,
        "public_domain": args.domain is not None,
        "format": args.format,
        "output_files": args.output_files,
    }
    return Plan(transform, transform.guarantee(), parameters)


def run(args: argparse.Namespace, beam_flags: Sequence[str]) -> int:
    """Run the command, or only explain what it would promise."""
    check(args)
    if args.explain:
        transform = make_transform(args, None, options.item_type(args) or str, None)
        print(report.explain(transform.guarantee(), transform.plan))
        return 0
    return run_job(args, beam_flags, COMMAND.name, lambda *found: make_plan(args, *found))


COMMAND = Command(
    name="histogram",
    help="Count how often each item occurs, without giving any user away.",
    add_arguments=add_arguments,
    run=run,
    example=(
        "headcount histogram --input 'events-*.parquet' --user user_id --item query \\\n"
        "      --epsilon 1 --delta 1e-8 --bound 10 --output out/"
    ),
    takes_beam_flags=True,
)
