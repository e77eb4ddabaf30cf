"""`headcount partitions`: which items may be named at all, from files of events to a committed output."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headcount.mechanisms import tuning
from headcount.mechanisms.bounding.steps import MAX_BOUND
from headcount.mechanisms.calibration import expected_error
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.partitions.auto import AutoSelection, partitions
from headcount.mechanisms.partitions.rounds import MOST_ROUNDS, STRATEGIES, Round
from headcount.mechanisms.partitions.select import Selection
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.command import JobCommand
from headcount.pipelines.flags import groups, numbers, options
from headcount.pipelines.flags.flag import add
from headcount.pipelines.reports.plan import Plan

if TYPE_CHECKING:
    from headcount.transforms.partitions import SelectPartitions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    groups.add_input(parser)
    group = groups.add_budget(parser)
    group.add_argument(
        "--strategy",
        choices=("auto", *STRATEGIES),
        default="auto",
        help="how items are selected; auto takes law, and chooses its items per user and rounds privately, unless --max-items "
        "gives them; the others are methods of the papers that auto never takes (default: %(default)s)",
    )
    group.add_argument(
        "--max-items",
        type=numbers.whole_number(most=MAX_BOUND),
        metavar="K",
        help="items of one user that count at most (up to 10000; up to 1048576 where another strategy weighs items, else to "
        "1000000000; default: chosen privately)",
    )
    add(
        group,
        "--rounds",
        type=numbers.whole_number(most=MOST_ROUNDS),
        metavar="R",
        help=f"rounds of sips and of law (default: {tuning.ROUNDS})",
        rare=True,
    )
    groups.add_output(parser)
    groups.add_release(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse parameters that do not go together, by the names of their flags."""
    options.require(args, "--epsilon")
    options.make_budget(args)
    options.require_delta(args, options.NAMING)
    if args.strategy != "auto" and args.max_items is None:
        raise ParameterError(f"--strategy {args.strategy} needs --max-items: give it, or leave both out")
    if args.rounds is not None and args.strategy not in ("auto", "sips", "law"):
        raise ParameterError(
            f"--rounds {args.rounds} is for --strategy sips or law, got {args.strategy}: leave one out"
        )


def make_mechanism(args: argparse.Namespace, item_type: type) -> Selection | AutoSelection:
    """The mechanism that the flags ask for."""
    return partitions(**_parameters(args, item_type))


def make_transform(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> SelectPartitions:
    """The same as a transform."""
    from headcount.transforms.partitions import SelectPartitions

    transform = SelectPartitions(**_parameters(args, item_type), **options.how_to_run(args, release, shards))
    return transform if isinstance(transform.mechanism, Selection) else transform.with_decision()


def _parameters(args: argparse.Namespace, item_type: type) -> dict[str, Any]:
    return {
        **options.of_factory(partitions, args),
        "budget": options.make_budget(args),
        "rounds": tuning.ROUNDS if args.rounds is None else args.rounds,
        **options.typed(args, item_type),
    }


def make_plan(args: argparse.Namespace, made: Selection | AutoSelection, item_type: type) -> Plan:
    """What the command says of itself, and the public parameters of it."""
    told = expected_error.users_needed(each.plan for each in made.rounds) if isinstance(made, Selection) else {}
    return Plan(made.guarantee(), {}, files="items", summary=told)


def explain(args: argparse.Namespace, selection: Selection | AutoSelection) -> str:
    """The promise and what it costs, in words, before anything is read; where the strategy is chosen, on typical data."""
    lines = [selection.guarantee().description()]
    if isinstance(selection, Selection):
        lines += ["", *_expected(selection.rounds)]
    else:
        from headcount.pipelines.studies import typical

        lines += ["", *typical.description(selection, "names")]
    lines += [
        "",
        "how often a user has an item does not matter; which of a user's items count, if not all do, is left to chance",
    ]
    return "\n".join(lines)


def _expected(rounds: Sequence[Round]) -> list[str]:
    """How many users an item needs, in words."""
    lines = []
    for number, each in enumerate(rounds, 1):
        even, sure = (expected_error.rarest(each.plan, chance) for chance in (0.5, 0.999))
        where = f"round {number}: " if len(rounds) > 1 else ""
        items = each.max_items
        if each.weights != "count" and items > 1:
            share = items ** {"l2": 1 / 2, "law": 1 / 4}.get(each.weights, 1)
            more = f" if they have no others, of {math.ceil(even * share):,} if each counts for {items:,}"
        else:
            more = ""
        lines.append(
            f"{where}an item of {even:,} users is named with a chance of 50 %{more}; one of {sure:,} with 99.9 %"
        )
    return lines


_CALL = """The items that enough users have, and nothing but their names.

Guarantee: user-level (epsilon, delta)-differential privacy under `relation` of the set of names.

    headcount.partitions(frame, user="user_id", item="page", epsilon=1, delta=1e-8)

Parameters:
The result has the columns of `item`.
"""

COMMAND = JobCommand(
    name="partitions",
    call=_CALL,
    add_arguments=add_arguments,
    example=(
        "headcount partitions --input visits.parquet --user user_id --item query \\\n"
        "      --epsilon 1 --delta 1e-8 --output items/"
    ),
    check=check,
    make_mechanism=make_mechanism,
    make_plan=make_plan,
    explain=explain,
    make_transform=make_transform,
)
