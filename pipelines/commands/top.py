"""`headcount top`: the items with the most users, in order and without counts."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from headcount.mechanisms import tuning
from headcount.mechanisms.columns.key_column import parse_column
from headcount.mechanisms.count_release.frames import LARGEST_FRAME
from headcount.mechanisms.count_release.top_items import TopItemsMechanism
from headcount.mechanisms.count_release.top_names import METHODS, NamedTopMechanism, top_items
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.command import JobCommand
from headcount.pipelines.flags import groups, numbers, options
from headcount.pipelines.flags.flag import add
from headcount.pipelines.reports.plan import Plan

if TYPE_CHECKING:
    from headcount.transforms.count_release import TopItems


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    groups.add_input(parser)
    group = groups.add_budget(parser)
    add(
        group,
        "--k",
        needed=True,
        type=numbers.whole_number(most=LARGEST_FRAME),
        metavar="K",
        help="how many items to name at most",
    )
    add(
        group,
        "--overall",
        action="store_true",
        help="with several --item: name the K combinations with the most users in all; for the largest of each country and the "
        "like, see headcount histogram --top",
    )
    group.add_argument(
        "--method",
        choices=METHODS,
        help="draw from all items, or name items first and draw from these, which finds more of a long top "
        f"(default: draws up to --k {tuning.MOST_DRAWN}, names from {tuning.MOST_DRAWN + 1} on)",
    )
    add(
        group,
        "--k-bar",
        type=numbers.whole_number(most=LARGEST_FRAME),
        metavar="N",
        help=f"draw from the N items with the most users, for --method draws (default: {tuning.ITEMS_LOOKED_AT})",
        rare=True,
    )
    groups.add_output(parser)
    groups.add_release(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse parameters that do not go together, by the names of their flags."""
    options.require(args, "--epsilon", "--k")
    options.require_delta(args, options.NAMING)
    _check_overall(args)
    if args.k_bar is not None and args.method != "draws" and (args.method or args.k > tuning.MOST_DRAWN):
        why = f"got {args.method}" if args.method else f"--k {args.k} goes by names"
        raise ParameterError(f"--k-bar {args.k_bar} is for --method draws, and {why}: leave it out, or give draws")
    if args.method == "draws" or args.k_bar is not None:
        most = tuning.ITEMS_LOOKED_AT if args.k_bar is None else args.k_bar
        if args.k > most:
            raise ParameterError(f"--k must not exceed --k-bar {most}, got {args.k}")


def _check_overall(args: argparse.Namespace) -> None:
    """Ask which top is meant, where a key has several columns: it could be one of each group as well."""
    columns = args.item or []
    if len(columns) > 1 and not args.overall:
        first = parse_column(columns[0]).name
        raise ParameterError(
            f"--k {args.k} with several --item has two meanings: give --overall for the {args.k} combinations with the most "
            f"users in all, or take headcount histogram with --top {args.k} --per {first} for the {args.k} largest of each "
            f"{first}, with their counts"
        )
    if args.overall and len(columns) < 2:
        raise ParameterError("--overall says which top of several --item is meant, and there is one: leave it out")


def make_mechanism(args: argparse.Namespace, item_type: type) -> TopItemsMechanism | NamedTopMechanism:
    """The mechanism that the flags ask for."""
    return top_items(**_parameters(args, item_type))


def make_transform(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> TopItems:
    """The same as a transform."""
    from headcount.transforms.count_release import TopItems

    transform = TopItems(**_parameters(args, item_type), **options.how_to_run(args, release, shards))
    return transform.with_decision() if isinstance(transform.mechanism, NamedTopMechanism) else transform


def _parameters(args: argparse.Namespace, item_type: type) -> dict[str, Any]:
    given = options.of_factory(top_items, args) | {"budget": options.make_budget(args)}
    return given | options.typed(args, item_type)


def make_plan(args: argparse.Namespace, made: TopItemsMechanism | NamedTopMechanism, item_type: type) -> Plan:
    """What the command says of itself, and the public parameters of it."""
    by_draws = isinstance(made, TopItemsMechanism)
    own = {"method": METHODS[0 if by_draws else 1], "k_bar": made.k_bar if by_draws else None}
    own |= {"overall": args.overall or None}
    told = {"users_needed": math.ceil(made.threshold)} if isinstance(made, TopItemsMechanism) else {}
    return Plan(made.guarantee(), own, files="top", summary=told)


def explain(args: argparse.Namespace, plan: TopItemsMechanism | NamedTopMechanism) -> str:
    """The promise and what it buys, in words, before anything is read."""
    lines = [plan.guarantee().description(), ""]
    if isinstance(plan, TopItemsMechanism):
        lines.append(
            f"items with more than some {float(plan.threshold):,.0f} users may be named, or that many more than the item of"
            f" rank {plan.k_bar + 1:,} has"
        )
    else:
        from headcount.pipelines.studies import typical

        lines += typical.description(plan.selection, "names")
    lines.append(
        f"two items are ranked rightly with a chance of 95 % if their users differ by {2.95 / float(plan.epsilon):,.0f}"
    )
    return "\n".join(lines)


_CALL = """The items with the most users, in order and without counts.

Guarantee: user-level (epsilon, delta)-differential privacy under `relation`.

    headcount.top(frame, user="user_id", item="page", k=20, epsilon=1, delta=1e-8)

Parameters:
The result has rank, and the columns of `item`.
"""

COMMAND = JobCommand(
    name="top",
    call=_CALL,
    add_arguments=add_arguments,
    example=(
        "headcount top --input visits.parquet --user user_id --item query --k 20 \\\n"
        "      --epsilon 1 --delta 1e-8 --output top/"
    ),
    check=check,
    make_mechanism=make_mechanism,
    make_plan=make_plan,
    explain=explain,
    make_transform=make_transform,
)
