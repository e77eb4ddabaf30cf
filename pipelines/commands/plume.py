"""`headcount plume`: items are named first, and then the named ones are counted."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from headcount.mechanisms.count_release.papers.plume import PlumeRelease, plume
from headcount.mechanisms.partitions.rounds import ZCDP_STRATEGIES
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.command import JobCommand
from headcount.pipelines.commands.bound_options import bound_or_auto
from headcount.pipelines.flags import groups, numbers, options
from headcount.pipelines.flags.flag import add
from headcount.pipelines.reports import report
from headcount.pipelines.reports.plan import Plan

if TYPE_CHECKING:
    from headcount.transforms.papers.plume import Plume


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    groups.add_input(parser)
    group = groups.add_budget(parser, rho=groups.HALF_OF_DELTA)
    group.add_argument(
        "--max-items",
        type=bound_or_auto,
        default="auto",
        metavar="auto|M",
        help="items of one user that take part in naming, at most; auto chooses it privately (default: %(default)s)",
    )
    add(
        group,
        "--max-counted-items",
        type=bound_or_auto,
        metavar="M",
        help="named items that one user counts for at most (default: as --max-items)",
        rare=True,
    )
    add(
        group,
        "--alpha",
        type=numbers.number,
        default=0.5,
        metavar="A",
        help="share of rho for naming (default: %(default)s)",
        rare=True,
    )
    add(
        group,
        "--selection",
        choices=ZCDP_STRATEGIES,
        default="gaussian",
        help="how items are named (default: %(default)s)",
        rare=True,
    )
    groups.add_quality(parser)
    groups.add_output(parser)
    groups.add_release(parser)


def make_mechanism(args: argparse.Namespace, item_type: type) -> PlumeRelease:
    """The mechanism that the flags ask for."""
    return plume(**_parameters(args, item_type))


def make_transform(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> Plume:
    """The same as a transform."""
    from headcount.transforms.papers.plume import Plume

    how = options.quality(args) | options.how_to_run(args, release, shards)
    transform = Plume(**_parameters(args, item_type), **how)
    return transform if transform.mechanism.choice is None else transform.with_decision()


def _parameters(args: argparse.Namespace, item_type: type) -> dict[str, Any]:
    return {
        **options.of_factory(plume, args),
        "budget": options.make_zcdp_or_budget(args),
        **options.typed(args, item_type),
    }


def make_plan(args: argparse.Namespace, made: PlumeRelease, item_type: type) -> Plan:
    """What the command says of itself, and the public parameters of it."""
    told = made.plan().summary() if made.choice is None else {}
    return Plan(made.guarantee(), {"rho": made.zcdp.rho}, summary=told)


def explain(args: argparse.Namespace, plan: PlumeRelease) -> str:
    """The promise and what it costs, in words, before anything is read; where the bounds are chosen, on typical data."""
    lines = [plan.guarantee().description()]
    if plan.choice is None:
        lines += ["", *report.expected_error_lines(plan.plan().plan)]
    else:
        from headcount.pipelines.studies import typical

        lines += ["", *typical.description(plan, "users")]
    lines += ["", "a user's items beyond these bounds do not count, which also lowers the counts"]
    return "\n".join(lines)


_CALL = """The users of each item, with items named first and then counted; a bound on a user's items.

Guarantee: user-level delta-approximate rho-zCDP under `relation`; an epsilon is converted.

    headcount.plume(frame, user="user_id", item="page", rho=0.5, delta=1e-6, max_items=20)

Parameters:
The result has the columns of `item`, and bounded_count, noise_stddev, low, high.
"""

COMMAND = JobCommand(
    name="plume",
    call=_CALL,
    add_arguments=add_arguments,
    example=(
        "headcount plume --input visits.parquet --user user_id --item query \\\n"
        "      --rho 0.5 --delta 1e-6 --max-items 20 --output plume/"
    ),
    check=options.check_zcdp_or_budget,
    make_mechanism=make_mechanism,
    make_plan=make_plan,
    explain=explain,
    make_transform=make_transform,
)
