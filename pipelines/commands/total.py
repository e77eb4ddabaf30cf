"""`headcount total`: how many users and events there are, of all rows or of given items."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.bounding.steps import MAX_BOUND
from headcount.mechanisms.calibration import expected_error
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.auto import AutoHistogramMechanism
from headcount.mechanisms.histogram.papers.debiased import MOST_USERS, CountPlan, capped_slope, debiased_count
from headcount.mechanisms.histogram.total import OF, TotalPlan, total
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.command import JobCommand
from headcount.pipelines.commands.bound_options import bound_or_auto
from headcount.pipelines.flags import groups, numbers, options
from headcount.pipelines.flags.flag import add
from headcount.pipelines.reports.plan import Plan
from headcount.pipelines.sources.domain import domain_of, planned_domain

if TYPE_CHECKING:
    from headcount.mechanisms.batches.domain import Domain, PartDomain
    from headcount.mechanisms.domains.domain_files import DomainFile
    from headcount.pipelines.jobs.source import Source
    from headcount.transforms.papers.debiased_count import DebiasedCount
    from headcount.transforms.total import Total

METHODS = ("bounded", "debiased")
# Flags of one method, which are None if they are not given.
_OF_ONE_METHOD = {
    "of": "bounded",
    "bound": "bounded",
    "max_per_item": "debiased",
    "users": "debiased",
    "users_share": "debiased",
    "max_items": "debiased",
    "largest_mean": "debiased",
    "noise": "debiased",
}
_NOTES = {
    "users": "every user counts once: their number is right up to its noise",
    "events": "of each user at most `bound` events count, and those beyond are missing: with a chance of 97.5 % "
    "there are `low` or more; how many more, no private number can tell, as they may be one user's",
    "debiased": "the estimate assumes that users' counts are Poisson with similar means; where a few users have much of all "
    "events it is nearly as low as the capped total, and stddev does not say so",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    groups.add_input(parser, item_needed=False)
    group = groups.add_budget(parser)
    group.add_argument(
        "--of", choices=OF, help="what to count (default: both, where the users take a tenth of epsilon)"
    )
    groups.add_domain(group, "only rows with these items count, which must be public (default: all rows)")
    group.add_argument(
        "--bound",
        type=bound_or_auto,
        metavar="auto|C",
        help="events of one user that count at most (up to 1000000000); auto chooses it privately (default: auto)",
    )
    group.add_argument(
        "--method",
        choices=METHODS,
        default=METHODS[0],
        help="bounded counts what is within the bound; debiased is the paper's estimate of the totals of each item of "
        "--domain, for users whose counts are Poisson with similar means (default: %(default)s)",
    )
    group.add_argument(
        "--max-per-item",
        type=numbers.whole_number(most=MAX_BOUND),
        metavar="C",
        help="of debiased: events of one user on an item that count at most (up to 1000000000)",
    )
    group.add_argument(
        "--users",
        type=numbers.whole_number(most=MOST_USERS),
        metavar="N",
        help="of debiased: the number of all users, if it is public; needed with --relation replace (default: counted with "
        "noise)",
    )
    add(
        group,
        "--users-share",
        type=numbers.number,
        metavar="S",
        help="of debiased: the share of epsilon for counting the users, without --users (default: 0.1)",
        rare=True,
    )
    group.add_argument(
        "--max-items",
        type=numbers.whole_number(most=MAX_BOUND),
        metavar="K",
        help="of debiased: how many of the items one user counts for at most (default: all of them)",
    )
    add(
        group,
        "--largest-mean",
        type=numbers.number,
        metavar="M",
        help="of debiased: events per user on an item that an estimate may reach, on average (default: twice the cap)",
        rare=True,
    )
    group.add_argument(
        "--noise",
        choices=("auto", "laplace", "gaussian"),
        help="of debiased: auto takes the one with the lower standard deviation (default: auto)",
    )
    groups.add_output(parser)
    groups.add_release(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse parameters that do not go together, by the names of their flags."""
    options.require(args, "--epsilon")
    for name, method in _OF_ONE_METHOD.items():
        if getattr(args, name) is not None and args.method != method:
            flag = options.as_flag(name)
            raise ParameterError(f"{flag} {getattr(args, name)} is of no use to --method {args.method}: leave it out")
    if args.method == "bounded":
        if args.bound is not None and args.of == "users":
            raise ParameterError(f"--bound {args.bound} is for events, got --of users: leave one of them out")
        if args.item is not None and args.domain is None:
            raise ParameterError(
                f"--item {args.item[0]} is of no use without --domain, as all rows count: leave it out"
            )
        return
    options.require(args, "--domain", "--max-per-item")
    if args.users is None and args.relation == Relation.REPLACE.value:
        raise ParameterError(
            f"--relation {args.relation} needs --users, the public number of all users, also of those without the item"
        )
    if args.users is not None and args.users_share is not None:
        raise ParameterError(f"--users-share {args.users_share} is of no use with --users: leave one of them out")


def make_mechanism(args: argparse.Namespace, item_type: type) -> TotalPlan | CountPlan:
    """The mechanism that the flags ask for."""
    given = _parameters(args, item_type, planned_domain(args))
    return total(**given) if args.method == "bounded" else debiased_count(**given)


def make_transform(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> Total | DebiasedCount:
    """The same as a transform."""
    from headcount.transforms.papers.debiased_count import DebiasedCount
    from headcount.transforms.total import Total

    given = _parameters(args, item_type, domain_of(args)) | options.how_to_run(args, release, shards)
    if args.method != "bounded":
        return DebiasedCount(**given)
    transform = Total(**given)
    return transform.with_decision() if isinstance(transform.mechanism.events, AutoHistogramMechanism) else transform


def _parameters(
    args: argparse.Namespace, item_type: type, domain: Domain | PartDomain | DomainFile | None
) -> dict[str, Any]:
    shared = {"budget": options.make_budget(args)} | options.typed(args, item_type)
    if args.method == "bounded":
        return shared | {"of": args.of or OF, "domain": domain, "bound": args.bound or "auto"}
    return options.of_factory(debiased_count, args) | shared | {"items": domain, "noise": args.noise or "auto"}


def make_plan(args: argparse.Namespace, made: TotalPlan | CountPlan, item_type: type) -> Plan:
    """What the command says of itself, and the public parameters of it."""
    if isinstance(made, TotalPlan):
        of = [name for name, _ in made.parts()]
        parameters = {
            "max_item_bytes": None if made.domain is None else args.max_item_bytes,
            "of": " and ".join(of),
            "items": None if made.domain is None else len(made.domain),
            "bound": (args.bound or "auto") if "events" in of else None,
        }
        return Plan(made.guarantee(), parameters, "totals", "; ".join(_NOTES[name] for name in of))
    parameters = {
        "items": len(made.items),
        "max_items": made.max_items,
        "largest_mean": made.largest_mean,
        "noise": made.noise.kind,
    }
    return Plan(
        made.guarantee(), parameters, summary={"assumption": _NOTES["debiased"]} | expected_error.correlated(made.noise)
    )


def explain(args: argparse.Namespace, made: TotalPlan | CountPlan) -> str:
    """The promise and what it costs, in words, before anything is read."""
    lines = [made.guarantee().description(), ""]
    if isinstance(made, TotalPlan):
        for of, part in made.parts():
            if isinstance(part, AutoHistogramMechanism):
                from headcount.pipelines.studies import typical

                plan = part.auto.decided(part.auto.choice.ends()[0]).plan
                each = expected_error.expected_error(plan)
                lines.append(f"{of}: noise of standard deviation {each.stddev:,.4g} times the bound that is chosen")
                lines += ["", *typical.description(made, "events"), ""]
            else:
                each = expected_error.expected_error(part.plan)
                lines.append(
                    f"{of}: noise of standard deviation {each.stddev:,.4g}; 95 % are within {each.half_width:,.4g}"
                )
            lines.append(_NOTES[of])
        return "\n".join(lines)
    error = expected_error.expected_error(made.noise)
    cap = made.max_per_item
    means = sorted({min(mean, made.largest_mean) for mean in (cap / 4, cap / 2, cap)})
    factors = 1 / capped_slope(np.array(means), cap)
    widened = ", ".join(f"{factor:.3g} at {mean:,g}" for mean, factor in zip(means, factors, strict=True))
    lines += [
        f"noise: {made.noise.kind}, standard deviation {error.stddev:,.4g};"
        f" 95 % of the noisy totals are within {error.half_width:,.4g} of the capped total",
        *expected_error.correlated(made.noise).values(),
        f"debiasing multiplies that, by the events per user on an item: {widened}",
        _NOTES["debiased"],
    ]
    if made.max_items < len(made.items):
        lines.append(f"what a user did on more than {made.max_items} of the items does not count, and is not estimated")
    return "\n".join(lines)


def source(args: argparse.Namespace) -> type[Source] | None:
    """What the job reads: users and counts alone, where all rows count."""
    if args.domain is not None:
        return None
    from headcount.pipelines.jobs.readers import EveryRow

    return EveryRow


_CALL = """How many users and how many events there are, in all or on the items of a public `domain`.

Guarantee: user-level epsilon-differential privacy under `relation`.

    headcount.total(frame, user="user_id", epsilon=1)

Parameters:
The result has a row for each of `of`: of, bound, bounded_count, noise_stddev, low, high.
"""

COMMAND = JobCommand(
    name="total",
    call=_CALL,
    add_arguments=add_arguments,
    example="headcount total --input visits.parquet --user user_id --epsilon 1 --output total/",
    check=check,
    make_mechanism=make_mechanism,
    make_plan=make_plan,
    explain=explain,
    make_transform=make_transform,
    source=source,
)
