"""`headcount quantiles`: quantiles of the users' values, or counts of users by ranges of them, without noise."""

from __future__ import annotations

import argparse
import datetime
import math
import re
from typing import Any

from headcount.mechanisms.batches.contributions import MAX_ITEM_BYTES
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.keys.columns import KeyColumn
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.sampled.axis import Value
from headcount.mechanisms.sampled.plan import laplace_w50
from headcount.mechanisms.sampled.quantiles import QuantileSearch
from headcount.pipelines import numbers, options
from headcount.pipelines.command import JobCommand
from headcount.pipelines.commands import sampled
from headcount.pipelines.jobs.run import Events, Plan
from headcount.pipelines.sources.columns import Columns, ValueColumn
from headcount.transforms.quantiles import Quantile, Quantiles

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
    options.add_input(parser, values=True)
    group = options.add_budget(parser)
    group.add_argument(
        "--lo", type=value, metavar="V", help="the least value: a number, or a date or time in UTC, as 2030-01-31"
    )
    group.add_argument("--hi", type=value, metavar="V", help="the largest value; what lies outside counts as the ends")
    group.add_argument(
        "--quantile",
        type=numbers.number,
        action="append",
        metavar="Q",
        help="a quantile of the values, such as 0.5; may be repeated",
    )
    group.add_argument(
        "--range",
        type=value_range,
        action="append",
        metavar="A:B",
        help="in place of quantiles: the number of users with a value from A up to, but not with, B; may be repeated. What is "
        "at --hi or above counts as just below it",
    )
    group.add_argument(
        "--method",
        choices=METHODS,
        default=METHODS[0],
        help="tree samples a tree over --lo to --hi once, for all that is asked; search halves --lo to --hi again and again, "
        "with a new sample each time, for one quantile (default: %(default)s)",
    )
    group.add_argument(
        "--levels",
        type=numbers.whole_number(most=20),
        metavar="L",
        help="of the tree: --lo to --hi is divided into branching^L parts (default: 10)",
    )
    group.add_argument(
        "--branching",
        type=numbers.whole_number(2, 1 << 20),
        metavar="B",
        help="of the tree: parts of each part on the next level (default: 2)",
    )
    group.add_argument(
        "--rounds",
        type=numbers.whole_number(most=20),
        metavar="R",
        help="of the search: how often --lo to --hi is halved (default: 10)",
    )
    options.add_output(parser)
    options.add_release(parser)


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


def make_transform(
    args: argparse.Namespace, release: Release | None, item_type: type, shards: int | None
) -> Quantile | Quantiles:
    """The transform that the flags ask for."""
    how: dict[str, Any] = {"relation": args.relation, "release": release, "shards": shards}
    how["output_files"] = args.output_files
    how |= {flag: getattr(args, flag) for flag in _OF_ONE_METHOD if getattr(args, flag) is not None}
    budget = options.make_budget(args)
    if args.method == "search":
        (quantile,) = args.quantile
        return Quantile(budget, quantile, args.lo, args.hi, **how)
    name = sampled.sample_name(_as_items(args))
    return Quantiles(budget, args.quantile or [], args.lo, args.hi, ranges=args.range or [], sample=name, **how)


def make_plan(args: argparse.Namespace, transform: Quantile | Quantiles, item_type: type) -> Plan:
    """What the command does to the events, and the public parameters of it."""
    asked = "quantiles" if args.quantile else "ranges"
    plan = transform.mechanism
    if isinstance(plan, QuantileSearch):
        size = {"rounds": plan.rounds}
    else:
        size = {"levels": plan.levels, "branching": plan.branching}
    parameters = options.shared_parameters(_as_items(args)) | {
        "item": None,
        "max_item_bytes": None,
        "value": args.value,
        "values": transform.axis.kind,
        "lo": str(args.lo),
        "hi": str(args.hi),
        asked: len(args.quantile or args.range),
        "method": args.method,
        **size,
        "rate": float(plan.plan.rate),
        "threshold": plan.plan.threshold,
    }
    return Plan(transform.of_leaves(), transform.guarantee(), parameters, files=asked, note=_ONE_ROW)


def explain(args: argparse.Namespace, transform: Quantile | Quantiles) -> str:
    """The promise and what it costs, in words, before anything is read."""
    plan, leaves = transform.mechanism.plan, transform.mechanism.leaves
    found = f"{plan.w50:,} users is shown with a chance of 50 %, one of {plan.w95:,} with 95 %"
    of_a_million = math.sqrt(float((1 - plan.rate) / plan.rate) / 10**6) / 2
    if isinstance(transform.mechanism, QuantileSearch):
        lines = [
            f"halved {transform.mechanism.rounds} times, down to one of {leaves.count:,} equal parts",
            f"sampled anew with a rate of {float(plan.rate):.4g} in every round, shown from {plan.threshold} sampled users on:"
            f" a half of {found}",
            f"the share of 1,000,000 users that is taken to be below a middle has a standard deviation of {of_a_million:.2g}"
            " at most in each round",
        ]
    else:
        noisy = laplace_w50(options.make_budget(args), plan.relation, plan.compositions)
        lines = [
            f"{leaves.count:,} equal parts, on {transform.mechanism.levels} levels",
            f"sampled with a rate of {float(plan.rate):.4g} on every level, shown from {plan.threshold} sampled users on: a"
            f" part of {found}",
            f"for comparison: with Laplace noise and a threshold, at the same promise, a part of {noisy:,} users is shown with"
            " a chance of 50 %",
            f"the rank of a median of 1,000,000 users has a standard deviation of {of_a_million:.2g} at most, by the sampling",
        ]
    return "\n".join(
        [transform.guarantee().words(), "", *lines, "values within one part cannot be told apart", _ONE_ROW]
    )


def _as_items(args: argparse.Namespace) -> argparse.Namespace:
    """The same arguments for what knows items only, which the values stand in for."""
    item = None if args.value is None else [KeyColumn(args.value).spec]
    as_items = {"item": item, "explode": None, "time_zone": "UTC", "max_item_bytes": MAX_ITEM_BYTES}
    return argparse.Namespace(**vars(args) | as_items)


class Values(Events):
    """Files of events whose items are values, which are read as the numbers of their leaves."""

    required = ("--input", "--user", "--value", "--output")

    def __init__(self, args: argparse.Namespace, remote: bool) -> None:
        super().__init__(_as_items(args), remote)

    def _asked(self, args: argparse.Namespace) -> Columns:
        transform = make_transform(args, None, int, None)
        values = ValueColumn(args.value, transform.axis, transform.mechanism.leaves, args.drop_null)
        return Columns(args.user, count=args.count, values=values)


COMMAND = JobCommand(
    name="quantiles",
    add_arguments=add_arguments,
    example=(
        "headcount quantiles --input 'visits-*.parquet' --user user_id --value age --lo 0 --hi 120 \\\n"
        "      --quantile 0.25 --quantile 0.5 --epsilon 1 --delta 1e-8 --output out/"
    ),
    check=check,
    make_transform=make_transform,
    make_plan=make_plan,
    explain=explain,
    source=lambda args: Values,
)
