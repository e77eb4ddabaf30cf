"""The flags of a bound that is given, chosen, or was chosen before, for the commands that have one."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from headcount.mechanisms.bound_choice.by_name.methods import METHODS
from headcount.mechanisms.bound_choice.joint import OBJECTIVES
from headcount.mechanisms.bounding.steps import MAX_BOUND, check_bound
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.flags import groups, numbers
from headcount.pipelines.flags.earlier import earlier_report
from headcount.pipelines.flags.flag import add


def add_choice(group: argparse._ArgumentGroup, partly: bool = False) -> None:
    """What a bound is chosen for, and how."""
    group.add_argument(
        "--objective",
        choices=OBJECTIVES,
        help="what the bound is chosen for: error, counts close to the truth in total, or items, as many of them "
        "as possible (default: error; not for estimates)",
    )
    add(
        group,
        "--bound-method",
        choices=("auto", *METHODS),
        default="auto",
        help="how it is chosen, if not for estimates (default: %(default)s, which is joint, or with --domain the one that its "
        "size favours; dp-gd, output-perturbation and m-quantile, and em and gem without --domain, are methods of the paper "
        "that auto never takes)",
        rare=True,
    )
    group.add_argument(
        "--max-per-item",
        type=numbers.whole_number(most=MAX_BOUND),
        metavar="c",
        help="events of one user that count at most on one item (default: chosen with the bound, or none)",
    )
    group.add_argument(
        "--noise",
        choices=("auto", "laplace", "gaussian"),
        default="auto",
        help="auto takes the better one (default: %(default)s)",
    )
    groups.add_domain(group, "the items to count, if they are public; all of them are released", partly=partly)


def check_choice(args: argparse.Namespace) -> None:
    """Refuse flags of `add_choice` that do not go together."""
    if args.domain is not None and args.objective is not None:
        raise ParameterError(f"--objective {args.objective} is of no use with --domain: leave it out")


bound_or_auto = numbers.whole_number_or("auto", most=MAX_BOUND)  # the value of --bound


class ChoiceFromRelease(NamedTuple):
    """What an earlier job of `headcount choose-bound` chose, for whom, and its release id."""

    bound: int
    max_per_item: int | None
    noise: str
    relation: str
    public_domain: bool
    release_id: str


def add_bound_from(group: argparse._ArgumentGroup) -> None:
    """A bound that was chosen before."""
    add(
        group,
        "--bound-from",
        reported=False,
        kind="Path | Mapping[str, Any]",
        type=choice_from_release,
        metavar="FILE",
        help="in place of --bound, --max-per-item and --noise: what headcount choose-bound chose, by its report.json",
    )


def choice_from_release(path: str) -> ChoiceFromRelease:
    """The choice in the report of `headcount choose-bound`."""
    try:
        return choice_in(earlier_report(path, path, "a file that can be read"))
    except ParameterError:
        raise argparse.ArgumentTypeError(
            f"must be the report.json of an output of headcount choose-bound, got {path!r}"
        ) from None


def choice_in(report: Any) -> ChoiceFromRelease:
    """The choice that a report of `headcount choose-bound` holds."""
    try:
        if report["command"] != "choose-bound":
            raise ValueError
        details = report["details"]
        chosen, cap = details["chosen"], details["chosen"].get("max_per_item")
        check_bound("bound", chosen["bound"])
        check_bound("max_per_item", cap or 1)
        return ChoiceFromRelease(
            chosen["bound"],
            cap,
            chosen["noise"],
            details["guarantee"]["relation"],
            details["parameters"]["public_domain"],
            report["release_id"],
        )
    except (TypeError, KeyError, ValueError, AttributeError):
        raise ParameterError("bound_from must be a report of choose-bound", "bound_from") from None


def with_choice_from_release(args: argparse.Namespace) -> argparse.Namespace:
    """The arguments with the bound, cap and noise of --bound-from, if it is given; refuses those of another promise."""
    found: ChoiceFromRelease | None = args.bound_from
    if found is None:
        return args
    if args.method != "one-stage":
        raise ParameterError(
            f"--bound-from is for --method one-stage, got --method {args.method}: give that, or no file"
        )
    if args.of == "users" and found.max_per_item != 1:
        raise ParameterError("--bound-from holds a choice for events, and users are counted: add --of events")
    for flag, given in (("--bound", args.bound), ("--max-per-item", args.max_per_item), ("--noise", args.noise)):
        if given not in (None, "auto"):
            raise ParameterError(f"{flag} {given} is in the file of --bound-from: leave one of them out")
    if found.relation != args.relation:
        raise ParameterError(
            f"--bound-from holds a choice under --relation {found.relation}, got --relation {args.relation}: choose one for it"
        )
    if found.public_domain != (args.domain is not None):
        with_or_without = "with" if found.public_domain else "without"
        raise ParameterError(
            f"--bound-from holds a choice {with_or_without} --domain, whose bound means something else: choose one for this"
        )
    chosen = {"bound": found.bound, "max_per_item": found.max_per_item, "noise": found.noise}
    return argparse.Namespace(**vars(args) | chosen)
