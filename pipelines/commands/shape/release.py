"""`headcount shape`: how many items have which number of users, and what follows from it."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headcount.mechanisms import tuning
from headcount.mechanisms.bounding.steps import MAX_BOUND
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.shape.anonymized import AnonymizedHistogramMechanism, noise_parameter
from headcount.mechanisms.shape.answered import AnsweredShape
from headcount.mechanisms.shape.auto import MODES, shape_histogram
from headcount.mechanisms.shape.distinct import DistinctItemsMechanism, distinct_items
from headcount.mechanisms.shape.estimators import (
    MOST_SAMPLES,
    CoverageQuestion,
    EntropyQuestion,
    Question,
    SupportQuestion,
)
from headcount.mechanisms.shape.hashed import HashedHistogram
from headcount.mechanisms.shape.isotonic import step_kernel
from headcount.mechanisms.shape.papers.pan_private import PanPrivateMechanism
from headcount.mechanisms.shape.papers.shuffled import Shuffled
from headcount.mechanisms.shape.properties import CentralProperty, central_property
from headcount.pipelines.command import JobCommand, Rows
from headcount.pipelines.commands.shape import models
from headcount.pipelines.flags import groups, numbers, options
from headcount.pipelines.flags.flag import add
from headcount.pipelines.reports.plan import Plan

if TYPE_CHECKING:
    import apache_beam as beam

    from headcount.pipelines.jobs.source import Source

_Central = AnonymizedHistogramMechanism | HashedHistogram
_Mechanism = AnsweredShape[_Central | Shuffled | PanPrivateMechanism] | DistinctItemsMechanism | CentralProperty

_BAR = 40
_TYPICAL_BOUNDS = (1, 8, 64, 512)  # that --explain speaks of
_PROPERTIES = (models.DISTINCT, "entropy", "support-size", "support-coverage")
_NOTES = {
    "shuffle": "each user has reported one item, and all numbers are of these reports",
    "pan-private": "all numbers are of events, and not of users: the promise is to each event",
}
# Flags that say how events are read.
_OF_EVENTS = (
    "user item count explode time_zone protect time windows drop_null where on max_item_bytes max_items".split()
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    groups.add_input(parser)
    group = groups.add_budget(parser)
    add(
        group,
        "--model",
        choices=models.MODELS,
        default="central",
        help="who is trusted: central reads the events of users; shuffle reads their messages (see: headcount randomize); "
        "pan-private reads a file of counters, which it releases (see: headcount counters) (default: %(default)s)",
        python=False,
    )
    group.add_argument(
        "--domain-size",
        type=numbers.whole_number(),
        metavar="D",
        help="how many items there could be, or a number that the distinct items will not exceed; public, never counted",
    )
    group.add_argument(
        "--buckets",
        type=numbers.whole_number(),
        metavar="B",
        help="in place of --domain-size: hash items into this many buckets, about four for each user; public, never counted",
    )
    add(
        group,
        "--mode",
        choices=MODES,
        default="auto",
        help="auto takes central, which sorts counts before the noise, or l1 if there are buckets or more than ten million "
        "items; l2 keeps every single count near its true one (default: %(default)s)",
        rare=True,
    )
    group.add_argument(
        "--max-items",
        type=numbers.whole_number(most=MAX_BOUND),
        metavar="K",
        help="items of one user that count at most (default: 1); for distinct-items: a user with more gives each a part of its "
        "weight (default: chosen privately)",
    )
    models.add_estimate(group)
    add(
        group,
        "--coverage",
        type=numbers.whole_number(most=MOST_SAMPLES),
        metavar="M",
        help="say how many distinct items M samples (users' items) would have (default: twice as many as there are)",
        rare=True,
    )
    group.add_argument(
        "--property",
        choices=_PROPERTIES,
        help="answer this one question, with noise on the exact answer in place of a shape; distinct-items is of all that "
        "users have, the others of --max-items each; support-size needs --most",
    )
    add(
        group,
        "--most",
        type=numbers.whole_number(most=MOST_SAMPLES),
        metavar="M",
        help="for support-size: every item is taken to have at least one in M of all samples",
        rare=True,
    )
    add(
        group,
        "--samples",
        type=numbers.whole_number(most=MOST_SAMPLES),
        metavar="N",
        help="a public number, never counted: with --property that of users' items in all (default: counted with a tenth of "
        "epsilon); in the pan-private model about how many events there were, needed with --salt",
        rare=True,
    )
    models.add_users(group)
    add(
        group,
        "--reports",
        type=numbers.whole_number(),
        metavar="R",
        help="in the shuffle model: how many users did send, if far more than --users",
        rare=True,
        python=False,
    )
    add(
        group,
        "--salt",
        metavar="TEXT",
        help="in the other two models: the public text by which items were hashed to the buckets",
        python=False,
    )
    models.add_may_be_seen(group)
    groups.add_output(parser)
    groups.add_release(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse parameters that do not go together, by the names of their flags."""
    options.require(args, "--epsilon")
    models.check(args)
    if args.model != "central":
        return
    if args.property is not None:
        _check_property(args)
        return
    for flag in ("samples", "most"):
        if getattr(args, flag) is not None:
            raise ParameterError(f"--{flag} is for --property, got {getattr(args, flag)}: leave it out")
    if args.domain_size is None and args.buckets is None:
        raise ParameterError(
            "give --domain-size or --buckets, a public number: how many items the data has is private, and those that nobody "
            "has need noise, too; a number that the data will not exceed is as good"
        )
    if args.domain_size is not None and args.buckets is not None:
        raise ParameterError(
            f"give one of --domain-size and --buckets, got --domain-size {args.domain_size} and --buckets {args.buckets}"
        )
    if args.buckets is not None and args.mode == "central":
        raise ParameterError(
            f"--mode central needs no --buckets, got {args.buckets}: give --domain-size, the largest number of distinct items "
            "that is of interest"
        )


def _check_property(args: argparse.Namespace) -> None:
    given = {"--domain-size": args.domain_size, "--buckets": args.buckets}
    given |= {"--mode": None if args.mode == "auto" else args.mode}
    given |= {"--estimate": None if args.estimate == "auto" else args.estimate}
    given |= {"--coverage": args.coverage if args.property != "support-coverage" else None}
    given |= {"--most": args.most if args.property != "support-size" else None}
    given |= {"--samples": args.samples if args.property == models.DISTINCT else None}
    for flag, value in given.items():
        if value is not None:
            raise ParameterError(f"{flag} {value} says nothing for --property {args.property}: leave it out")
    if args.property == "support-size":
        options.require(args, "--most")


def make_mechanism(args: argparse.Namespace, item_type: type) -> _Mechanism:
    """The mechanism that the flags ask for."""
    if args.model == "shuffle":
        return AnsweredShape(models.make_shuffled(args), models.questions(args))
    if args.model == "pan-private":
        return AnsweredShape(models.make_counters(args), models.questions(args))
    given = models.central_parameters(args)
    if args.property is None:
        return AnsweredShape(shape_histogram(**given), models.questions(args))
    if args.property == models.DISTINCT:
        return distinct_items(**given)
    asked: Question = EntropyQuestion()
    if args.property == "support-size":
        asked = SupportQuestion(args.most)
    elif args.property == "support-coverage":
        asked = CoverageQuestion(args.coverage)
    return central_property(question=asked, **given)


def make_transform(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> beam.PTransform:
    """The same as a transform."""
    from headcount.pipelines.commands.shape import wired

    return wired.make_transform(args, release, shards)


def make_plan(args: argparse.Namespace, made: _Mechanism, item_type: type) -> Plan:
    """What the command says of itself, and the public parameters of it."""
    if args.model != "central":  # which reads no events
        parameters = dict.fromkeys(_OF_EVENTS) | {"mode": models.bucket_mode(args)}
        return Plan(made.guarantee(), parameters, files="shape", note=_NOTES[args.model])
    of_a_shape: dict[str, Any] = {"mode": None, "estimate": None}  # which says nothing of a property
    if isinstance(made, DistinctItemsMechanism):
        return Plan(made.guarantee(), of_a_shape, files="property")
    items = {"max_items": models.max_items(args)}
    note = options.chosen_items(models.max_items(args))
    if isinstance(made, AnsweredShape):
        assert isinstance(made.source, _Central)
        return Plan(made.guarantee(), items | {"mode": _mode(made.source)}, files="shape", note=note)
    return Plan(made.guarantee(), of_a_shape | items, files="property", note=note)


def _mode(plan: _Central) -> str:
    return ("l1" if plan.ranks is None else "l2") if isinstance(plan, HashedHistogram) else plan.mode


def explain(args: argparse.Namespace, made: _Mechanism) -> str:
    """The promise and what it costs, in words, before anything is read."""
    lines = [made.guarantee().description(), ""]
    if isinstance(made, DistinctItemsMechanism):
        return "\n".join([*lines, *_explained_distinct(made), "no item is named"])
    if isinstance(made, CentralProperty):
        return "\n".join([*lines, options.chosen_items(made.max_items), "no item is named"])
    plan = made.source
    if isinstance(plan, Shuffled):
        known = _distinct_stddev(float(plan.p), plan.buckets)
        lines.append(
            f"every one of {plan.cells:,} buckets gets some {plan.messages_per_bucket:,.0f} messages of "
            f"noise; the number of distinct items is known to within some {known:,.0f}"
        )
        return "\n".join([*lines, _NOTES["shuffle"], "no item is named"])
    if isinstance(plan, PanPrivateMechanism):
        lines.append(f"every one of {plan.cells:,} counters has noise of scale {float(plan.scale):,.4g}")
        return "\n".join([*lines, _NOTES["pan-private"], "no item is named"])
    mode = _mode(plan)
    if mode == "central":
        lines.append(
            f"counts are sorted, and each gets noise of standard deviation {plan.plan.stddev:,.4g}, which the order averages "
            "away where many items have about the same count; the number of distinct items is known to within some "
            f"{tuning.SORTED_MISPLACED * plan.plan.stddev**2 + 1:,.0f}"
        )
    else:
        cells = plan.buckets if isinstance(plan, HashedHistogram) else plan.domain_size
        lines.append(
            f"every one of {cells:,} cells gets noise of standard deviation {plan.plan.stddev:,.4g}; the number of distinct "
            f"items is known to within some {_distinct_stddev(noise_parameter(plan.plan), cells):,.0f}"
        )
    return "\n".join([*lines, options.chosen_items(plan.max_items), "no item is named"])


def _explained_distinct(plan: DistinctItemsMechanism) -> list[str]:
    """What the noise of a number of distinct items is, and what it may miss."""
    typical = _TYPICAL_BOUNDS if plan.max_items is None else (plan.max_items,)
    noise = ", ".join(f"{plan.stddev(bound):,.4g} at {bound:,}" for bound in typical)
    chosen = " that is chosen" if plan.max_items is None else ""
    return [
        f"noise: standard deviation, by the items per user{chosen}: {noise}",
        "all items of all users count; a user with more items than that gives each a part of its weight, so that what only "
        "such users have may be missing: the answer is a lower limit, and no upper one can be private",
    ]


def _distinct_stddev(p: float, cells: int) -> float:
    """The stddev of the number of cells with one or more, over the noise of cells that are all empty."""
    below, at = step_kernel(p)  # of noisy values 0 and 1; f is 1 beyond
    zero = (1 - p) / (1 + p)
    return math.sqrt(cells * (zero * below**2 + zero * p * at**2 + p**2 / (1 + p)))


def plot(details: Mapping[str, Any]) -> str:
    """The shape that the details of a report tell, as bars on a logarithmic scale."""
    bins = details["shape"]
    unit = "events" if details.get("parameters", {}).get("model") == "pan-private" else "users"
    lines = [f"{unit:>19}  {'items':>14}  {'error':>12}"]
    most = max((math.log1p(bin["items"]) for bin in bins), default=1.0)
    for bin in bins:
        span = f"{bin['from']:,}" if bin["from"] == bin["to"] else f"{bin['from']:,} - {bin['to']:,}"
        bar = "#" * max(1, round(_BAR * math.log1p(bin["items"]) / most))
        lines.append(f"{span:>19}  {bin['items']:>14,}  {bin['error']:>12,.0f}  {bar}")
    lines.append(
        f"items by the number of their {unit} (logarithmic bars); error: about how far their counts are off, added up"
    )
    return "\n".join(lines)


def show(report: Mapping[str, Any], rows: Rows) -> str:
    """The shape, if the job was asked for one."""
    return plot(report["details"]) if "shape" in report["details"] else ""


def source(args: argparse.Namespace) -> type[Source] | None:
    """What the job reads, where that is not events."""
    from headcount.pipelines.commands.shape import wired

    return wired.SOURCES.get(args.model)


_CALL = """How many items have which number of users, their entropy and their number, without naming any.

Guarantee: user-level epsilon-differential privacy under `relation`.

    headcount.shape(frame, user="user_id", item="page", epsilon=1, domain_size=1_000_000)
    headcount.shape(frame, user="user_id", item="page", epsilon=1, property="distinct-items")

Parameters:
The result has count, items, error; its report has what follows from them. That of a property has one row.
"""

COMMAND = JobCommand(
    name="shape",
    call=_CALL,
    add_arguments=add_arguments,
    example=(
        "headcount shape --input visits.parquet --user user_id --item query \\\n"
        "      --epsilon 1 --domain-size 1000000 --output shape/"
    ),
    check=check,
    make_mechanism=make_mechanism,
    make_plan=make_plan,
    explain=explain,
    make_transform=make_transform,
    source=source,
    show=show,
)
