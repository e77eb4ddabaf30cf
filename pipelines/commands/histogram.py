"""`headcount histogram`: how many users each item has, or how often it occurs, from files of events to a committed output."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from headcount.mechanisms.calibration.expected_error import correlated, users_needed
from headcount.mechanisms.columns.key_column import parse_columns
from headcount.mechanisms.columns.row_schema import asked
from headcount.mechanisms.counting.largest import Largest
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.auto import AutoHistogramMechanism
from headcount.mechanisms.histogram.estimates import EstimatesMechanism
from headcount.mechanisms.histogram.factory import CALIBRATIONS, METHODS, OF, histogram
from headcount.mechanisms.histogram.fixed import HistogramMechanism
from headcount.mechanisms.levels.factory import AnyHistogram, histogram_or_levels
from headcount.mechanisms.partitions.selection_curve import MOST_CURVE_ITEMS
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.command import FIRST_EXAMPLE, JobCommand
from headcount.pipelines.commands.bound_options import (
    add_bound_from,
    add_choice,
    bound_or_auto,
    check_choice,
    with_choice_from_release,
)
from headcount.pipelines.flags import groups, numbers, options
from headcount.pipelines.flags.flag import add
from headcount.pipelines.flags.like import add_like, with_earlier_cap
from headcount.pipelines.reports import report
from headcount.pipelines.reports.plan import Plan
from headcount.pipelines.sources.domain import domain_of, is_named, partly_note, planned_domain, stated

if TYPE_CHECKING:
    from headcount.mechanisms.batches.domain import Domain, PartDomain
    from headcount.mechanisms.domains.domain_files import DomainFile
    from headcount.transforms.histogram import Histogram


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    groups.add_input(parser, item_needed=False)
    group = groups.add_budget(parser)
    group.add_argument(
        "--of",
        choices=OF,
        default="users",
        help="what is counted: users, each once on an item, or events (default: %(default)s)",
    )
    group.add_argument(
        "--method",
        choices=METHODS,
        default="estimates",
        help="estimates of the true counts, or one-stage: noisy counts of what the bound leaves (default: %(default)s)",
    )
    group.add_argument(
        "--calibrate",
        choices=CALIBRATIONS,
        help="totals tell how much the bound left out; none spends nothing on them, and gives bounded counts (default: totals; "
        "for --method estimates)",
    )
    group.add_argument(
        "--bound",
        type=bound_or_auto,
        default="auto",
        metavar="auto|C",
        help="how much of one user counts at most (up to 1000000000): with --method one-stage and without --domain, events; "
        "otherwise the norm that its counts are scaled down to; auto chooses it privately (default: %(default)s)",
    )
    group.add_argument(
        "--max-items",
        type=numbers.whole_number(most=MOST_CURVE_ITEMS),
        metavar="K",
        help="items of one user that name items, at most (up to 10000), where items come from the data: a user of fewer loses "
        "little by a large K (default: chosen privately, for 8.5 %% of epsilon; for --method estimates)",
    )
    groups.add_levels(group)
    groups.add_home(group)
    add(
        group,
        "--bound-share",
        type=numbers.number,
        metavar="S",
        help="share of epsilon that choosing the bound takes, for --method one-stage (default: 0.1, or 0.05 with --objective "
        "items)",
        rare=True,
    )
    add_bound_from(group)
    add_choice(group, partly=True)
    add_like(group)
    groups.add_top(groups.add_quality(parser))
    groups.add_output(parser)
    groups.add_release(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse parameters that do not go together, by the names of their flags. Levels are the items from here on."""
    options.require(args, "--epsilon")
    options.settle_levels(args)
    args = with_earlier_cap(with_choice_from_release(args))
    options.make_budget(args)
    check_choice(args)
    if args.of == "users" and args.max_per_item not in (None, 1):
        raise ParameterError(
            f"--max-per-item {args.max_per_item} is for events, and users are counted, each once on an item: add --of events"
        )
    if args.levels is not None and any(each is not None for each in (*options.quality(args).values(), args.top)):
        raise ParameterError(
            "rows in levels add up, which they would not if some were left out: leave out --max-relative-error, "
            "--suppress-below and --top, and filter the rows"
        )
    largest = Largest(args.top, tuple(args.per or ()))
    if args.max_items is not None:
        at_once = args.noise == "laplace" and args.max_items > 1
        for flag, other in (("--method one-stage", args.method == "one-stage"), ("--noise laplace", at_once)):
            if other:
                raise ParameterError(
                    f"--max-items {args.max_items} is for names that are found before counts, got {flag}: leave one out"
                )
        if not is_named(args):
            raise ParameterError(
                f"--max-items {args.max_items} says how items are named, and those of a public list are known: leave one out"
            )
    if args.item is not None:
        largest.check_columns(asked(args.user or "user", args.item).shown)
    if args.method == "estimates":
        for flag, given in (("--objective", args.objective), ("--bound-share", args.bound_share)):
            if given is not None:
                raise ParameterError(f"{flag} {given} is for --method one-stage: give that, or leave {flag} out")
        if args.bound_method != "auto":
            raise ParameterError(
                f"--bound-method {args.bound_method} is for --method one-stage: give that, or leave --bound-method out"
            )
    elif args.bound != "auto":
        for flag, given in (("--objective", args.objective), ("--bound-share", args.bound_share)):
            if given is not None:
                raise ParameterError(f"{flag} {given} is for --bound auto, got --bound {args.bound}: leave one out")
        if args.bound_method != "auto":
            raise ParameterError(
                f"--bound-method {args.bound_method} is for --bound auto, got --bound {args.bound}: leave one out"
            )
        if args.domain is None and args.max_per_item is not None and args.max_per_item > args.bound:
            raise ParameterError(f"--max-per-item must not exceed --bound {args.bound}, got {args.max_per_item}")
    if is_named(args):
        options.require_delta(args, options.NAMING, ", or give the items by --domain")


def make_mechanism(args: argparse.Namespace, item_type: type) -> AnyHistogram:
    """The mechanism that the flags ask for."""
    return histogram_or_levels(**_parameters(args, item_type, planned_domain(args)))


def make_transform(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> Histogram:
    """The same as a transform."""
    from headcount.transforms.histogram import Histogram

    how = options.quality(args) | {"top": args.top, "per": args.per, "levels": bool(args.levels)}
    how |= options.how_to_run(args, release, shards)
    transform = Histogram(**_parameters(args, item_type, domain_of(args)) | how)
    return transform if isinstance(transform.mechanism, HistogramMechanism) else transform.with_decision()


def _parameters(
    args: argparse.Namespace, item_type: type, domain: Domain | PartDomain | DomainFile | None
) -> dict[str, Any]:
    args = with_earlier_cap(with_choice_from_release(args))
    return {
        **options.of_factory(histogram, args),
        "budget": options.make_budget(args),
        "domain": domain,
        "levels": len(args.item) if args.levels else 0,
        "home": args.home,
        **options.typed(args, item_type),
    }


def make_plan(args: argparse.Namespace, made: AnyHistogram, item_type: type) -> Plan:
    """What the command says of itself, and the public parameters of it."""
    args = with_earlier_cap(with_choice_from_release(args))
    one_stage = isinstance(made, AutoHistogramMechanism)
    parameters = {
        "calibrate": args.calibrate or "totals" if isinstance(made, EstimatesMechanism) else None,
        "home": args.home or None,
        "bound": args.bound,
        "max_per_item": args.max_per_item,
        "noise": made.plan.kind if isinstance(made, HistogramMechanism) else args.noise,
        "objective": (args.objective or "error") if one_stage and args.domain is None else None,
        "bound_method": args.bound_method if one_stage else None,
        "bound_from": None if args.bound_from is None else args.bound_from.release_id,
        "like": None if args.like is None else args.like.release_id,
        **stated(made.domain),
    }
    told = users_needed([made.plan]) | correlated(made.plan) if isinstance(made, HistogramMechanism) else {}
    return Plan(made.guarantee(), parameters, note=partly_note(made.domain), summary=told)


def explain(args: argparse.Namespace, made: AnyHistogram) -> str:
    """The promise and what it costs, in words, before anything is read; where something is chosen, on typical data."""
    if isinstance(made, HistogramMechanism):
        return report.explain(made.guarantee(), made.plan)
    lines = [made.guarantee().description().rstrip(), ""]
    if isinstance(made, EstimatesMechanism):
        lines += made.stages.expected_error_lines()
    if not isinstance(made, EstimatesMechanism) or made.stages.chooses:
        from headcount.pipelines.studies import typical

        levels = [column.name for column in parse_columns(args.item)] if args.levels else []
        lines += typical.description(made, args.of, levels)
    return "\n".join([*lines, "", report.BOUNDED] if isinstance(made, AutoHistogramMechanism) else lines)


_CALL = """How many users each item has, or how often it occurs: estimates of the true numbers, with 95 % intervals.

Guarantee: user-level (epsilon, delta)-differential privacy under `relation`, as the report of the result says in words.

    headcount.histogram(frame, user="user_id", item=["country", "page"], epsilon=1, delta=1e-8)
    headcount.histogram(frame, user="user_id", levels=["country", "region", "city"], epsilon=1, delta=1e-8)

Parameters:
The result has the columns of `item`, and count, noise_stddev, low, high and bounded_count ("one-stage": no count, and low
to high is the range of the noise).
"""

COMMAND = JobCommand(
    name="histogram",
    call=_CALL,
    add_arguments=add_arguments,
    example=FIRST_EXAMPLE,
    check=check,
    make_mechanism=make_mechanism,
    make_plan=make_plan,
    explain=explain,
    make_transform=make_transform,
    takes_windows=True,
)
