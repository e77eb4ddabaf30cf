"""`headcount forecast`: what each method would give at each epsilon, on made-up users; without any data."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.command import Rows, Tool, add_json, say
from headcount.pipelines.commands.outputs.complete import read_complete, reading
from headcount.pipelines.commands.studies.rehearse import epsilons
from headcount.pipelines.flags import numbers, options
from headcount.pipelines.flags.flag import add
from headcount.pipelines.studies import from_release
from headcount.pipelines.studies.bar import Bar
from headcount.pipelines.studies.forecast import foresee, looked_at
from headcount.pipelines.studies.from_levels import LevelsRelease
from headcount.pipelines.studies.methods import Method, Promised, method_of
from headcount.pipelines.studies.outlook import CSV, PAGE, Forecast
from headcount.pipelines.studies.populations import assumed
from headcount.pipelines.studies.populations.models import MOST_EVENTS, Believed
from headcount.pipelines.studies.rehearsal import check_folder

DELTA = 1e-8
_NUMBERS = ("users", "events_per_user", "items", "skew")
_MOST_ITEMS, _MOST_USERS = 10_000_000, 1e12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    group = parser.add_argument_group("what users are like: an earlier release, or what you assume; no data is read")
    group.add_argument(
        "--like",
        metavar="OUT",
        help="an earlier release (its --output), of histogram, plume or count-release: its rows tell of items and users",
    )
    group.add_argument("--shape", metavar="OUT", help="a release of headcount shape; needs --events-per-user")
    group.add_argument(
        "--users",
        type=numbers.number,
        metavar="N",
        help="how many users there are, such as 1e6 (with --like: so many of them; default: as many as it fits)",
    )
    group.add_argument(
        "--events-per-user", type=numbers.number, metavar="X", help="how many events a user has on average"
    )
    group.add_argument(
        "--items",
        type=sizes,
        metavar="N[,N...]",
        help="how many different items there are; for a --method with --levels, how many nodes each level has, from the widest "
        "to the finest, such as 20,300,5000 (default: each level has as many times those of the one above)",
    )
    group.add_argument(
        "--skew",
        type=numbers.number,
        metavar="A",
        help="the item of rank r occurs as r^-A: 0 if all occur alike, about 1 for words, pages and queries",
    )
    group = parser.add_argument_group("what to forecast")
    group.add_argument("--epsilon", type=epsilons, metavar="E[,E...]", help="the epsilons, such as 0.5,1,2")
    group.add_argument(
        "--delta", type=numbers.number, metavar="D", help=f"default: that of the earlier release, or {DELTA}"
    )
    add(
        group,
        "--relation",
        choices=[relation.value for relation in Relation],
        help="what a neighbouring input is (default: that of the earlier release, or add-remove)",
        rare=True,
    )
    group.add_argument(
        "--method",
        action="append",
        metavar="WORDS",
        help="a command with its own flags, such as 'histogram --bound 20', plume or 'partitions --strategy sips --max-items "
        "30'; may be repeated (default: as the earlier release, or histogram)",
    )
    group = parser.add_argument_group("what to write")
    add(
        group,
        "--output",
        metavar="DIR",
        help="the folder of forecast.csv and forecast.html (default: none)",
        python=False,
    )
    add(group, "--overwrite", action="store_true", help="replace those of an earlier forecast", python=False)
    add_json(group)


def sizes(text: str) -> tuple[float, ...]:
    """Reads numbers with commas between them."""
    return tuple(numbers.number(part.strip()) for part in text.split(",") if part.strip())


def check(args: argparse.Namespace) -> None:
    """Refuse what cannot be forecast, before anything is made up."""
    options.require(args, "--epsilon")
    if not args.epsilon:
        raise ParameterError("--epsilon must be a number, or several with commas between them, got none")
    given = [name for name in _NUMBERS if getattr(args, name) is not None]
    ways = [name for name in ("like", "shape") if getattr(args, name) is not None]
    if len(ways) == 2:
        raise ParameterError("--like and --shape are both given: leave one out")
    allowed = {"like": [], "shape": ["events_per_user"]}.get(ways[0], []) if ways else list(_NUMBERS)
    for name in given:
        if name not in allowed and (name, *ways) != ("users", "like"):
            raise ParameterError(f"{options.as_flag(name)} is assumed, and --{ways[0]} tells it: leave one out")
    for name in allowed:
        if name not in given:
            other = "" if ways else ", or an earlier release by --like"
            raise ParameterError(f"{options.as_flag(name)} is needed: give it{other}")
    for name, least, most in (
        ("users", 1, _MOST_USERS),
        ("events_per_user", 1, MOST_EVENTS),
        ("items", 1, _MOST_ITEMS),
        ("skew", 0, 10),
    ):
        value = getattr(args, name)
        for each in value if isinstance(value, tuple) else () if value is None else (value,):
            if not (math.isfinite(each) and least <= each <= most):
                raise ParameterError(f"{options.as_flag(name)} must be from {least:,} to {most:,.0f}, got {each:g}")
    if args.items is not None and (not args.items or list(args.items) != sorted(args.items)):
        told = ", ".join(f"{each:g}" for each in args.items) or "none"
        raise ParameterError(
            f"--items must be one number, or for a key in levels one for each level, from the widest to the finest, got {told}"
        )


def forecast_of(args: argparse.Namespace, report: Mapping[str, Any], rows: Rows) -> Forecast:
    """The forecast, from the report and the rows of the release that is given, or from the numbers that are."""
    like = from_release.read_release(report, rows) if args.like is not None else None
    promised = Promised(0.0, DELTA) if like is None else like.promised
    usual = method_of(("histogram",)) if like is None else like.method
    methods = [_method(words) for words in args.method] if args.method else [usual]
    promises = [
        Promised(
            epsilon,
            promised.delta if args.delta is None else args.delta,
            promised.relation if args.relation is None else args.relation,
        )
        for epsilon in sorted(args.epsilon)
    ]
    for each in promises:
        options.make_budget(argparse.Namespace(**each._asdict()))
    depth = _depth(methods, args.items or ())
    with Bar(sys.stderr, 1) as bar:
        bar.step("making up users")
        basis, notes, believed = _believed(args, report, rows, like, depth)
    believed = looked_at(believed)
    with Bar(sys.stderr, len(believed) * len(methods) * len(promises)) as bar:
        outlooks = foresee(believed, methods, promises, bar.step)
    if all(each.refused is not None for each in outlooks):
        raise ParameterError(str(outlooks[0].refused))
    return Forecast(basis, tuple(notes), tuple(outlooks))


def _believed(
    args: argparse.Namespace,
    report: Mapping[str, Any],
    rows: Rows,
    like: from_release.PublishedRelease | LevelsRelease | None,
    depth: int,
) -> tuple[str, list[str], Sequence[Believed]]:
    """What a forecast is founded on, in words, what is assumed beside, and the populations; with trees of this depth."""
    if like is not None:
        believed, notes = like.populations()
        tree = believed[0][0].tree
        if depth and depth != (0 if tree is None else tree.depth):
            raise ParameterError(
                f"--method has a key of {depth} levels, and --like must be a release of such a key, to tell of them: give one, "
                "or state what you assume by --users, --events-per-user, --items and --skew"
            )
        if args.users is not None:
            believed = [(population.of_size(args.users), belief) for population, belief in believed]
        name = f"headcount {report['command']}, epsilon {like.promised.epsilon:g}"
        basis = f"like an earlier release ({name}, {like.description()})"
        told = f"{basis}; {args.users:,.0f} users, as given" if args.users is not None else _with_users(basis, believed)
        return told, notes, believed
    above, skew = (args.items or ())[:-1], 1.0 if args.skew is None else args.skew
    if args.shape is not None:
        believed = assumed.from_shape(report, list(rows), args.events_per_user)
        basis = f"as many users of each item as a released shape tells; {args.events_per_user:g} events per user"
    else:
        given = (args.users, args.events_per_user, int(args.items[-1]), args.skew)
        believed = assumed.from_numbers(*given)
        basis = "assumed: {:,.0f} users, {:g} events each on average, {:,} items, skew {:g}".format(*given)
    if depth < 2:
        return basis, [assumed.WORDS], believed
    trees = assumed.in_trees(believed, depth, [int(each) for each in above], skew)
    assert trees[0][0].tree is not None
    levels = ", ".join(f"{size:,}" for size in trees[0][0].tree.sizes())
    return f"{basis}; nodes of each level: {levels}", [assumed.WORDS, assumed.TREE_WORDS], trees


def _depth(methods: Sequence[Method], items: Sequence[float]) -> int:
    """The number of levels of the keys of all methods that have some; 0 if none has."""
    found = sorted({number for method in methods if (number := len(method.levels()))})
    if len(found) > 1:
        raise ParameterError(
            f"--method has keys of {found[0]} levels and of {found[-1]}: forecast one of these at a time"
        )
    if len(items) > 1 and len(items) != (found or [0])[0]:
        levels = f"{found[0]} levels" if found else "no levels"
        raise ParameterError(
            f"--items has {len(items)} numbers, one for each level, and --method has a key of {levels}: give one number, or a "
            f"--method whose --levels have {len(items)} columns"
        )
    return found[0] if found else 0


def _with_users(basis: str, believed: Sequence[Believed]) -> str:
    sizes = [population.size for population, _ in believed]
    low, high = (f"{float(f'{size:.2g}'):,.0f}" for size in (min(sizes), max(sizes)))
    return f"{basis}; it fits {low} users" if low == high else f"{basis}; it fits {low} to {high} users"


def _method(words: str) -> Method:
    try:
        return method_of(tuple(shlex.split(words)))
    except ValueError as error:
        raise ParameterError(f"--method {words!r} cannot be read: {error}") from None


def released(args: argparse.Namespace) -> tuple[Mapping[str, Any], Rows]:
    """The report and the rows of the release that is given; empty without one."""
    folder = args.like or args.shape
    if folder is None:
        return {}, []
    found = read_complete(folder)
    with reading(found.directory, "; headcount verify tells which of its files is not as it was"):
        return found.report, list(found.outcome().rows())


def forecast(args: argparse.Namespace) -> None:
    """Forecast, print, and write what is asked for."""
    check(args)
    if args.output is not None:
        check_folder(args.output, args.overwrite, (CSV, PAGE))
    made = forecast_of(args, *released(args))
    say(made.json() if args.json else made.text())
    if args.output is not None:
        wrote = "\n".join(["", *(f"wrote {path}" for path in made.save(args.output, overwrite=True))])
        print(wrote, file=sys.stderr if args.json else sys.stdout)


COMMAND = Tool(
    name="forecast",
    add_arguments=add_arguments,
    do=forecast,
    example="headcount forecast --like out/ --epsilon 0.5,1,2",
)
