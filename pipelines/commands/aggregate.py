"""`headcount aggregate`: users, events, shares of users, and sums, means, variances and quantiles of values by key."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from headcount.mechanisms.aggregate.measures import MOST_PER_ITEM
from headcount.mechanisms.aggregate.metrics import Metrics
from headcount.mechanisms.aggregate.release import AggregateMechanism, aggregate
from headcount.mechanisms.bounding.steps import MAX_BOUND
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.factory import CALIBRATIONS
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.command import JobCommand
from headcount.pipelines.flags import groups, numbers, options
from headcount.pipelines.flags.flag import add
from headcount.pipelines.flags.like import add_like, with_earlier_cap
from headcount.pipelines.flags.metrics import metrics
from headcount.pipelines.reports.plan import Plan
from headcount.pipelines.sources.domain import domain_of, is_named, partly_note, planned_domain, stated

if TYPE_CHECKING:
    from headcount.mechanisms.batches.domain import Domain, PartDomain
    from headcount.mechanisms.domains.domain_files import DomainFile
    from headcount.transforms.aggregate.release import Aggregate

_WHAT = {
    "sum": "the sum of a column's values",
    "mean": "their mean",
    "variance": "their variance, with the number of rows as divisor",
    "quantile": "their quantiles of the shares Q, such as 0.5,0.9:price:0:100",
}
_SHARES = {"quantile": "0.5,0.9:"}  # what stands before the column


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    groups.add_input(parser, item_needed=False)
    group = parser.add_argument_group("what to compute for each item, one or several")
    group.add_argument("--users", action="store_true", help="how many users have it")
    group.add_argument("--events", action="store_true", help="how many rows it has, at most --max-per-item of one user")
    for kind in _WHAT:
        add(
            group,
            f"--{kind}",
            python=f'{_WHAT[kind]}, with the public range that values are cut to, as "{_SHARES.get(kind, "")}price:0:100", '
            "or a list of several; take the range from what you know of the column, and not from the data; "
            '"price:auto" chooses one from 0 on privately, and "price:-auto:auto" one with negative numbers',
            action="append",
            metavar="Q,..:COLUMN:LOW:HIGH" if kind == "quantile" else "COLUMN:LOW:HIGH",
            help=f"{_WHAT[kind]}, which are cut to the public range LOW to HIGH; COLUMN:auto chooses a range from 0 on "
            "privately, and COLUMN:-auto:auto one with negative numbers; may be repeated",
        )
    add(
        group,
        "--share",
        python="of its users, the share with a row that meets a condition, with the name of its column, as "
        '"bought=event=buy", or a list of several',
        action="append",
        metavar="NAME=CONDITION",
        help="of its users, the share with a row that meets a condition, in a column of this name, such as bought=event=buy; "
        "conditions are as in SQL: price > 5 and country in (de, fr); may be repeated",
    )
    add(
        group,
        "--ratio",
        python="the sum of one column by the sum of another, with the name of its column and the public ranges that values are "
        'cut to, as "ctr=clicks:0:10/views:0:50", or a list of several',
        action="append",
        metavar="NAME=COLUMN:LOW:HIGH/COLUMN:LOW:HIGH",
        help="the sum of one column by the sum of another, whose values are cut to their public ranges, in a column of this "
        "name, such as ctr=clicks:0:10/views:0:50; ranges are given as for --sum; may be repeated",
    )
    group = groups.add_budget(parser, rho="")
    group.add_argument(
        "--max-items",
        type=numbers.whole_number_or("auto", most=MAX_BOUND),
        default="auto",
        metavar="auto|M",
        help="items of one user that count at most; auto chooses it privately (default: %(default)s)",
    )
    group.add_argument(
        "--max-per-item",
        type=numbers.whole_number(most=MOST_PER_ITEM),
        metavar="c",
        help=f"rows of one user that count at most on one item (up to {MOST_PER_ITEM}; default: chosen privately)",
    )
    add_like(group)
    group.add_argument(
        "--calibrate",
        choices=CALIBRATIONS,
        default="totals",
        help="totals tell how much the bounds left out of users, events and sums; none spends nothing on them, and gives what "
        "is left (default: %(default)s)",
    )
    groups.add_levels(group)
    groups.add_domain(group, "the items, if they are public; all of them are released", partly=True)
    groups.add_output(parser)
    groups.add_release(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse parameters that do not go together, by the names of their flags. Levels are the items from here on."""
    options.settle_levels(args)
    if is_named(args):
        options.require_delta(args, options.NAMING, ", or give the items by --domain")
    else:
        options.require_delta(args, "metrics have Gaussian noise")
    options.make_zcdp_or_budget(args)
    args = with_earlier_cap(args)
    if _metrics(args).only_users and args.max_per_item not in (None, 1):
        raise ParameterError(
            f"--max-per-item {args.max_per_item} says nothing of users, who count once on an item: leave it out"
        )


def _metrics(args: argparse.Namespace) -> Metrics:
    found = metrics(args)
    if found is None:
        raise ParameterError(
            "there is nothing to compute: give one of --users, --events, --sum, --mean, --variance, --quantile, --share or "
            "--ratio, such as --mean price:0:100"
        )
    return found


def make_mechanism(args: argparse.Namespace, item_type: type) -> AggregateMechanism:
    """The mechanism that the flags ask for."""
    return aggregate(**_parameters(args, item_type, planned_domain(args)))


def make_transform(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> Aggregate:
    """The same as a transform."""
    from headcount.transforms.aggregate.release import Aggregate

    how = options.how_to_run(args, release, shards) | {"levels": bool(args.levels)}
    transform = Aggregate(**_parameters(args, item_type, domain_of(args)) | how)
    return transform.with_decision() if transform.mechanism.decides else transform


def _parameters(
    args: argparse.Namespace, item_type: type, domain: Domain | PartDomain | DomainFile | None
) -> dict[str, Any]:
    args = with_earlier_cap(args)
    return {
        **options.of_factory(aggregate, args),
        "budget": options.make_zcdp_or_budget(args),
        "metrics": _metrics(args).each,
        "domain": domain,
        "levels": len(args.item) if args.levels else 0,
        **options.typed(args, item_type),
    }


def make_plan(args: argparse.Namespace, made: AggregateMechanism, item_type: type) -> Plan:
    """What the command says of itself, and the public parameters of it."""
    args = with_earlier_cap(args)
    taken = {"max_per_item": args.max_per_item, "like": None if args.like is None else args.like.release_id}
    return Plan(made.guarantee(), taken | stated(made.domain), files="metrics", note=partly_note(made.domain))


def explain(args: argparse.Namespace, made: AggregateMechanism) -> str:
    """The promise and what it costs, in words, before anything is read."""
    return "\n".join([made.guarantee().description().rstrip(), "", *made.stages.expected_error_lines()])


_CALL = """How many users and events each item has, shares of its users, and the sum, mean, variance and quantiles of values.

Guarantee: user-level (epsilon, delta)-differential privacy under `relation`, or delta-approximate rho-zCDP, as the report
of the result says in words.

    headcount.aggregate(
        frame, user="user_id", item="country", users=True, mean="price:0:100", epsilon=1, delta=1e-8
    )

Parameters:
The result has the columns of `item`, and for each metric its value (users, mean_price), and its noise_stddev, low and high
(mean_price_low). A share and a ratio have names of their own, a quantile is called p50_price, with p50_price_rank_stddev,
low and high. Totals that are not calibrated are called bounded_users, bounded_events and bounded_sum_price.
"""

COMMAND = JobCommand(
    name="aggregate",
    call=_CALL,
    add_arguments=add_arguments,
    example=(
        "headcount aggregate --input visits.parquet --user user_id --item country --users --mean price:0:100 \\\n"
        "      --epsilon 1 --delta 1e-8 --output metrics/"
    ),
    check=check,
    make_mechanism=make_mechanism,
    make_plan=make_plan,
    explain=explain,
    make_transform=make_transform,
    takes_windows=True,
)
