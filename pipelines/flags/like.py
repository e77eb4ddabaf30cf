"""How many events of a user count on one item, taken from an earlier release: numbers of one c can be compared over time.

It costs nothing, as that release has paid for c and published it. Nothing else is taken over: of releases that are compared,
noise and bounds may differ, and c may not.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, NamedTuple

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.flags import options
from headcount.pipelines.flags.account import release_id
from headcount.pipelines.flags.earlier import earlier_report
from headcount.pipelines.flags.flag import add
from headcount.pipelines.flags.protection import protection
from headcount.pipelines.sinks.capped import cap_of
from headcount.pipelines.sinks.finished import SEAL, changed_note
from headcount.pipelines.storage import stores

_REPORT = "report.json"
_SAME = ("user", "item", "explode", "count")  # what events on one item are: c is of these


class EarlierCap(NamedTuple):
    """How many events of a user an earlier release counts on one item, of which columns, for which unit, and its release id."""

    cap: int
    columns: Mapping[str, Any]
    unit: str
    release_id: str


def add_like(group: argparse._ArgumentGroup) -> None:
    """The flag of commands that count events."""
    add(
        group,
        "--like",
        reported=False,
        kind="Path | Mapping[str, Any]",
        python="in place of max_per_item: the folder or report of an earlier release whose c is taken, so that both compare",
        type=earlier_cap,
        metavar="OUT",
        help="in place of --max-per-item: the output of an earlier release whose c is taken, so that both can be compared",
    )


def earlier_cap(path: str) -> EarlierCap:
    """That of a complete output, by its folder or its report.json."""
    place = path if path.endswith(".json") else stores.join(path, _REPORT)
    try:
        return cap_in(earlier_report(place, path, "an output that is complete"))
    except ParameterError as error:
        raise argparse.ArgumentTypeError(f"{str(error).removeprefix('like ')}, got {path!r}") from None


def cap_in(report: Any) -> EarlierCap:
    """The same of a report, which must be as its job wrote it."""
    try:
        cap, details, known = cap_of(report), report["details"], release_id(report["release_id"])
        given, unit = details["parameters"], str(details["guarantee"]["unit"])
        found = EarlierCap(cap, {name: given.get(name) for name in _SAME}, unit, known)
        changed = changed_note(report) if SEAL in report else None
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError, argparse.ArgumentTypeError):
        raise ParameterError("like must be an output of Headcount", "like") from None
    if changed is not None:
        raise ParameterError(f"like must be a release as its job wrote it; this one is {changed}", "like")
    if cap < 1:
        raise ParameterError("like must be a release of events, of which a limited number of a user count", "like")
    return found


def with_earlier_cap(args: argparse.Namespace) -> argparse.Namespace:
    """The arguments with the c of --like as --max-per-item, if it is given; refuses one of other rows."""
    found: EarlierCap | None = args.like
    if found is None:
        return args
    if getattr(args, "of", "events") == "users":
        raise ParameterError("--like says how many events of a user count, and users are counted: add --of events")
    if args.max_per_item is not None:
        raise ParameterError(
            f"--max-per-item {args.max_per_item} says what --like takes from an earlier release: leave one of them out"
        )
    for name in _SAME:
        given = getattr(args, name)
        ours, theirs = options.one_or_all(given) if name == "item" else given, found.columns[name]
        if ours != theirs:
            raise ParameterError(
                f"--like is a release with {options.as_flag(name)} {_word(theirs)}, and this one has {_word(ours)}, so that a "
                "user's events on one item are other ones: leave --like out, or give a release of the same columns"
            )
    if protection(args).unit != found.unit:
        raise ParameterError(
            f"--like is a release that protects each {found.unit}, and this one each {protection(args).unit}, whose events "
            "are other ones: leave --like out, or give a release with the same --protect"
        )
    return argparse.Namespace(**vars(args) | {"max_per_item": found.cap})


def _word(value: Any) -> str:
    return "none" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
