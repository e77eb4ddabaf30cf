"""`headcount histogram`: how often each item occurs, from files of events to a committed output."""

from __future__ import annotations

import argparse

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.fixed import HistogramMechanism
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines import numbers, options
from headcount.pipelines.command import JobCommand
from headcount.pipelines.commands.bound_options import (
    add_bound_from,
    add_choice,
    bound_or_auto,
    check_choice,
    with_earlier_choice,
)
from headcount.pipelines.jobs import report
from headcount.pipelines.jobs.run import Plan
from headcount.pipelines.sources.domain import read_domain
from headcount.transforms.histogram import Histogram


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    options.add_input(parser)
    group = options.add_budget(parser)
    group.add_argument(
        "--bound",
        type=bound_or_auto,
        default="auto",
        metavar="auto|C",
        help="events of one user that count at most (up to 1000000000); with --domain, the norm that they are scaled to; "
        "auto chooses it privately (default: %(default)s)",
    )
    group.add_argument(
        "--bound-share",
        type=numbers.number,
        metavar="S",
        help="share of epsilon that choosing the bound takes (default: 0.1, or 0.05 with --objective items)",
    )
    add_bound_from(group)
    add_choice(group)
    options.add_output(parser)
    options.add_release(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse parameters that do not go together, by the names of their flags."""
    options.require(args, "--epsilon")
    args = with_earlier_choice(args)
    budget = options.make_budget(args)
    check_choice(args)
    if args.bound != "auto":
        for flag, given in (("--objective", args.objective), ("--bound-share", args.bound_share)):
            if given is not None:
                raise ParameterError(f"{flag} {given} is for --bound auto, got --bound {args.bound}: leave one out")
        if args.bound_method != "auto":
            raise ParameterError(
                f"--bound-method {args.bound_method} is for --bound auto, got --bound {args.bound}: leave one out"
            )
        if args.domain is None and args.max_per_item is not None and args.max_per_item > args.bound:
            raise ParameterError(f"--max-per-item must not exceed --bound {args.bound}, got {args.max_per_item}")
    if args.domain is None and budget.delta == 0:
        raise ParameterError(
            "--delta must be positive if the items are not known beforehand, got 0.0: give it, or --domain"
        )


def make_transform(args: argparse.Namespace, release: Release | None, item_type: type, shards: int | None) -> Histogram:
    """The transform that the flags ask for."""
    args = with_earlier_choice(args)
    domain = None if args.domain is None else read_domain(args.domain, item_type, args.max_item_bytes)
    return Histogram(
        options.make_budget(args),
        domain=domain,
        bound=args.bound,
        max_per_item=args.max_per_item,
        noise=args.noise,
        objective=args.objective or "error",
        bound_method=args.bound_method,
        bound_share=args.bound_share,
        **options.how_to_run(args, release, item_type, shards),
    )


def make_plan(args: argparse.Namespace, transform: Histogram, item_type: type) -> Plan:
    """What the command does to the events, and the public parameters of it."""
    args = with_earlier_choice(args)
    made = transform.mechanism
    chosen = not isinstance(made, HistogramMechanism)
    parameters = options.shared_parameters(args, item_type) | {
        "bound": args.bound,
        "max_per_item": args.max_per_item,
        "noise": made.plan.kind if isinstance(made, HistogramMechanism) else args.noise,
        "objective": (args.objective or "error") if chosen and args.domain is None else None,
        "bound_method": args.bound_method if chosen else None,
        "bound_share": args.bound_share,
        "bound_from": None if args.bound_from is None else args.bound_from.release_id,
        "public_domain": args.domain is not None,
    }
    return Plan(transform.with_decision() if chosen else transform, transform.guarantee(), parameters)


def explain(args: argparse.Namespace, transform: Histogram) -> str:
    """The promise and what it costs, in words, before anything is read."""
    made = transform.mechanism
    return report.explain(transform.guarantee(), made.plan if isinstance(made, HistogramMechanism) else made.auto)


COMMAND = JobCommand(
    name="histogram",
    help="Count how often each item occurs, without giving any user away.",
    add_arguments=add_arguments,
    example=(
        "headcount histogram --input 'events-*.parquet' --user user_id --item query \\\n"
        "      --epsilon 1 --delta 1e-8 --output out/"
    ),
    check=check,
    make_transform=make_transform,
    make_plan=make_plan,
    explain=explain,
)
