"""The flags by which a job goes on an account, and what is refused of them before anything is opened."""

from __future__ import annotations

import argparse
import sys

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import looks_like_key
from headcount.pipelines.flags.flag import add

AUTO = "auto"  # in place of a release id: one that follows from what is released


def add_account(parser: argparse.ArgumentParser, reserves: bool = True) -> None:
    """Whose account a release goes on; what only looks there `reserves` nothing."""
    group = parser.add_argument_group("whose account it goes on")
    add_ledger(group)
    add(group, "--dataset", reported=False, metavar="NAME", help="the data set in it (see: headcount ledger create)")
    if not reserves:
        return
    add(
        group,
        "--clock-checked",
        reported=False,
        action="store_true",
        help="the clock of this machine is right, though the newest entry of the data set is long ago: without this, a limit "
        "for each month refuses a time of 100 days after it, and one for each year a time of 400 days",
        rare=True,
    )


def add_ledger(group: argparse._ActionsContainer, required: bool = False) -> None:
    """Where the ledger is."""
    add(
        group,
        "--ledger",
        reported=False,
        metavar="URL",
        required=required,
        help="the ledger that keeps the account of releases: sqlite:///FILE or postgresql://USER@HOST/DATABASE",
    )


def release_id(text: str) -> str:
    """Reads an id; a key in its place would stand in messages and in the report."""
    if looks_like_key(text):
        raise argparse.ArgumentTypeError(
            "must be an id, and this looks like a key (64 hexadecimal digits): give the id of the release, and never a key"
        )
    return text


def check(args: argparse.Namespace) -> None:
    """Refuse flags that do not go together."""
    if (args.ledger is None) != (args.dataset is None):
        given, missing = ("--ledger", "--dataset") if args.dataset is None else ("--dataset", "--ledger")
        raise ParameterError(f"{given} needs {missing}: the one says where the account is kept, the other whose it is")
    if getattr(args, "clock_checked", False) and args.ledger is None:
        raise ParameterError(
            "--clock-checked is for a ledger, whose limits may be for each month or year: give --ledger, too"
        )


def tell_of_replacing() -> None:
    """One line for a job that replaces an earlier output by other rows: whoever has seen both knows more."""
    print(
        "headcount: the earlier output is replaced by a new release, which spends its budget again; to write the same rows "
        "again, give the key and --release-id of the earlier one",
        file=sys.stderr,
    )
