"""`headcount quantiles`: quantiles of the users' values, or counts of users by ranges of them, without noise."""

from __future__ import annotations

import argparse
import datetime
import math
import re
from typing import TYPE_CHECKING, Any

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.sampled.axis import Value
from headcount.mechanisms.sampled.over_values import (
    SearchOverValues,
    TreeOverValues,
    search_over_values,
    tree_over_values,
)
from headcount.mechanisms.sampled.plan import SamplePlan, laplace_w50
from headcount.pipelines.command import JobCommand
from headcount.pipelines.commands import sampled
from headcount.pipelines.flags import groups, numbers, options
from headcount.pipelines.flags.flag import add
from headcount.pipelines.reports.plan import Plan

if TYPE_CHECKING:
    from headcount.pipelines.jobs.source import Source
    from headcount.transforms.sampled.quantiles import Quantile, Quantiles

METHODS = ("tree", "search")
_OF_ONE_METHOD = {
    "levels": "tree",
    "branching": "tree",
    "rounds": "search",
}  # flags, which are None if they are not given
_ONE_ROW = "each user counts with the value of one of its rows, each as likely as the others"
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    groups.add_input(parser, values=True)
    group = groups.add_budget(parser)
    add(
        group,
        "--lo",
        needed=True,
        kind="Value | str",
        type=value,
        metavar="V",
        help="the least value: a number, or a date or time in UTC, as 2030-01-31",
    )
    add(
        group,
        "--hi",
        needed=True,
        kind="Value | str",
        type=value,
        metavar="V",
        help="the largest value; what lies outside counts as the ends",
    )
    group.add_argument(
        "--quantile",
        type=numbers.number,
        action="append",
        metavar="Q",
        help="a quantile of the values, such as 0.5; may be repeated",
    )
    add(
        group,
        "--range",
        kind="tuple[Value, Value] | Sequence[tuple[Value, Value]]",
        type=value_range,
        action="append",
        metavar="A:B",
        help="in place of quantiles: the number of users with a value from A to below B; may be repeated. What is "
        "at --hi or above counts as just below it",
    )
    group.add_argument(
        "--method",
        choices=METHODS,
        default=METHODS[0],
        help="tree samples a tree over --lo to --hi once, for all that is asked; search halves --lo to --hi again and again, "
        "with a new sample each time, for one quantile (default: %(default)s)",
    )
    add(
        group,
        "--levels",
        type=numbers.whole_number(most=20),
        metavar="L",
        help="of the tree: --lo to --hi is divided into branching^L parts (default: 10)",
        rare=True,
    )
    add(
        group,
        "--branching",
        type=numbers.whole_number(2, 1 << 20),
        metavar="B",
        help="of the tree: parts of each part on the next level (default: 2)",
        rare=True,
    )
    add(
        group,
        "--rounds",
        type=numbers.whole_number(most=20),
        metavar="R",
        help="of the search: how often --lo to --hi is halved (default: 10)",
        rare=True,
    )
    groups.add_output(parser)
    groups.add_release(parser)


def value(text: str) -> Value:
    """A number, a date or a time."""
    try:
        return int(text) if _WHOLE.fullmatch(text) else float(text)
    except ValueError:
        pass
    for read in (datetime.date.fromisoformat, datetime.datetime.fromisoformat):
        try:
            return read(text)
        except ValueError:
            continue
    raise argparse.ArgumentTypeError(f"must be a number, or a date or time such as 2030-01-31, got {text!r}")


def value_range(text: str) -> tuple[Value, Value]:
    """Two values with a colon between them; times have colons of their own."""
    for colon in re.finditer(":", text):
        try:
            return value(text[: colon.start()]), value(text[colon.end() :])
        except argparse.ArgumentTypeError:
            continue
    raise argparse.ArgumentTypeError(f"must be two values with a colon between them, as 18:25, got {text!r}")


def check(args: argparse.Namespace) -> None:
    """Refuse parameters that do not go together, by the names of their flags."""
    options.require(args, "--epsilon", "--lo", "--hi")
    options.require_delta(args, "a value that one user alone has cannot be hidden for certain")
    sampled.check(args)
    if args.quantile is None and args.range is None:
        raise ParameterError("missing --quantile or --range")
    if args.quantile is not None and args.range is not None:
        raise ParameterError(
            "--quantile and --range give different rows, so that a job takes one of them: a second job on the same input with "
            "the same key, --release-id and other flags reads the other off the same sample, at no further cost"
        )
    for flag, method in _OF_ONE_METHOD.items():
        number = getattr(args, flag)
        if number is not None and args.method != method:
            raise ParameterError(f"--{flag} {number} is of no use to --method {args.method}: leave it out")
    if args.method == "search" and (args.range is not None or len(args.quantile) > 1):
        asked = "--range" if args.range is not None else f"{len(args.quantile)} times --quantile"
        raise ParameterError(
            f"--method search finds one --quantile, got {asked}: take --method tree, which reads off any"
        )


def make_mechanism(args: argparse.Namespace, item_type: type) -> SearchOverValues | TreeOverValues:
    """The mechanism that the flags ask for."""
    given = _parameters(args)
    return search_over_values(**given) if args.method == "search" else tree_over_values(**given)


def make_transform(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> Quantile | Quantiles:
    """The same as a transform of contributions whose items are the numbers of leaves."""
    from headcount.transforms.sampled.quantiles import Quantile, Quantiles

    given = _parameters(args) | options.how_to_run(args, release, shards)
    if args.method == "search":
        return Quantile(**given).of_leaves()
    return Quantiles(**given, sample=_sample_name(args)).of_leaves()


def _parameters(args: argparse.Namespace) -> dict[str, Any]:
    given = {"budget": options.make_budget(args), "lo": args.lo, "hi": args.hi}
    given |= {"relation": Relation.parse(args.relation)}
    given |= {flag: getattr(args, flag) for flag in _OF_ONE_METHOD if getattr(args, flag) is not None}
    if args.method == "search":
        return given | {"q": args.quantile[0]}
    return given | {"quantiles": args.quantile or [], "ranges": args.range or []}


def _sample_name(args: argparse.Namespace) -> str | None:
    """The name of the sample that the tree is read off; a search is a release of its own."""
    return None if args.method == "search" else sampled.sample_name(options.values_as_items(args))


def make_plan(args: argparse.Namespace, made: SearchOverValues | TreeOverValues, item_type: type) -> Plan:
    """What the command says of itself, and the public parameters of it."""
    asked = "quantiles" if args.quantile else "ranges"
    plan = sample_plan(made)
    if isinstance(made, SearchOverValues):
        size = {"rounds": made.search.rounds}
    else:
        size = {"levels": made.tree.levels, "branching": made.tree.branching}
    parameters = {
        "values": made.axis.kind,
        "lo": str(args.lo),
        "hi": str(args.hi),
        "range": [f"{low}:{high}" for low, high in args.range] if args.range else None,
        **size,
        "rate": float(plan.rate),
        "threshold": plan.threshold,
    }
    return Plan(made.guarantee(), parameters, files=asked, note=_ONE_ROW, drawn_as=_sample_name(args))


def sample_plan(made: SearchOverValues | TreeOverValues) -> SamplePlan:
    """How users are sampled."""
    return made.search.plan if isinstance(made, SearchOverValues) else made.tree.plan


def explain(args: argparse.Namespace, made: SearchOverValues | TreeOverValues) -> str:
    """The promise and what it costs, in words, before anything is read."""
    plan, leaves = sample_plan(made), made.leaves
    found = f"{plan.w50:,} users is shown with a chance of 50 %, one of {plan.w95:,} with 95 %"
    of_a_million = math.sqrt(float((1 - plan.rate) / plan.rate) / 10**6) / 2
    if isinstance(made, SearchOverValues):
        lines = [
            f"halved {made.search.rounds} times, down to one of {leaves.count:,} equal parts",
            f"sampled again with a rate of {float(plan.rate):.4g} in every round, shown from {plan.threshold} sampled users on:"
            f" a half of {found}",
            f"the share of 1,000,000 users that is taken to be below a middle has a standard deviation of {of_a_million:.2g}"
            " at most in each round",
        ]
    else:
        noisy = laplace_w50(options.make_budget(args), plan.relation, plan.compositions)
        lines = [
            f"{leaves.count:,} equal parts, on {made.tree.levels} levels",
            f"sampled with a rate of {float(plan.rate):.4g} on every level, shown from {plan.threshold} sampled users on: a"
            f" part of {found}",
            f"for comparison: with Laplace noise and a threshold, at the same promise, a part of {noisy:,} users is shown with"
            " a chance of 50 %",
            f"the rank of a median of 1,000,000 users has a standard deviation of {of_a_million:.2g} at most, by the sampling",
        ]
    return "\n".join(
        [made.guarantee().description(), "", *lines, "values within one part cannot be told apart", _ONE_ROW]
    )


def source(args: argparse.Namespace) -> type[Source]:
    """What the job reads: values, as the numbers of their leaves."""
    from headcount.pipelines.jobs.readers import Values

    made = make_mechanism(args, int)
    return Values.over(made.axis, made.leaves)


_CALL = """Quantiles of the users' values, or counts of users by ranges of values, from a secret sample and without noise.

Guarantee: user-level (epsilon, delta)-differential privacy under `relation`; a user counts with one of its rows.

    headcount.quantiles(frame, user="user_id", value="age", lo=0, hi=120, quantile=[0.25, 0.5], epsilon=1, delta=1e-8)

Parameters:
The result has quantile, value, low, high, rank_stddev; or of ranges low, high, count, noise_stddev.
"""

COMMAND = JobCommand(
    name="quantiles",
    call=_CALL,
    add_arguments=add_arguments,
    example=(
        "headcount quantiles --input visits.parquet --user user_id --value age --lo 0 --hi 120 \\\n"
        "      --quantile 0.25 --quantile 0.5 --epsilon 1 --delta 1e-8 --output ages/"
    ),
    elsewhere={
        "--item": "quantiles are of all rows; those of each item are of headcount aggregate: "
        "--item COLUMN --quantile 0.5:COLUMN:LOW:HIGH"
    },
    check=check,
    make_mechanism=make_mechanism,
    make_plan=make_plan,
    explain=explain,
    make_transform=make_transform,
    source=source,
)
