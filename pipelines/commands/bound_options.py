"""The flags of a bound that is given or chosen, for the commands that have one."""

from __future__ import annotations

import argparse

from headcount.mechanisms.bound_choice.joint import OBJECTIVES
from headcount.mechanisms.bound_choice.methods import METHODS
from headcount.mechanisms.bounding.steps import MAX_BOUND
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines import numbers


def add_choice(group: argparse._ArgumentGroup) -> None:
    """What a bound is chosen for, and how."""
    group.add_argument(
        "--objective",
        choices=OBJECTIVES,
        help="what the bound is chosen for: error, counts close to the truth in total, or items, as many of them as can "
        "be (default: error; not for estimates)",
    )
    group.add_argument(
        "--bound-method",
        choices=("auto", *METHODS),
        default="auto",
        help="how it is chosen, if not for estimates (default: %(default)s, which is joint, or with --domain the one that its "
        "size favours)",
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
    group.add_argument(
        "--domain",
        metavar="FILE",
        help="the items to count, one per line, if they are public; all of them are released",
    )


def check_choice(args: argparse.Namespace) -> None:
    """Refuse flags of `add_choice` that do not go together."""
    if args.domain is not None and args.objective is not None:
        raise ParameterError(f"--objective {args.objective} is of no use with --domain: leave it out")


bound_or_auto = numbers.whole_number_or("auto", most=MAX_BOUND)  # the value of --bound
