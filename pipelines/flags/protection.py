"""Who is protected: the flags, and the words on it that the terminal, `--explain` and the report have in common."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

from headcount.mechanisms.accounting.windows import USER, WINDOWS, window_description, window_of
from headcount.pipelines.flags.flag import add
from headcount.pipelines.flags.numbers import whole_number

if TYPE_CHECKING:
    from headcount.mechanisms.accounting.guarantee import Guarantee
    from headcount.mechanisms.columns.key_column import KeyColumn

_USUAL = {"day": 30, "week": 52, "month": 12}  # windows that words speak of where none are given


class Protection(NamedTuple):
    """Who is protected, and of how many windows of one user the words speak; in which column, and zone, their times are."""

    unit: str = USER
    windows: int | None = None
    time: str | None = None  # the column by which windows are told apart
    zone: str = "UTC"

    def of(self, guarantee: Guarantee) -> Guarantee:
        """The same promise, to whom it is made."""
        return guarantee if self.unit == USER else guarantee.per(self.unit)

    def description(self, guarantee: Guarantee) -> str | None:
        """What the unit means for a user with several; None where all that a user did is protected."""
        window = window_of(self.unit)
        if window is None:
            return None
        told = window_description(self.of(guarantee), self.windows or _USUAL[window])
        by = (
            ""
            if self.time is None
            else f". The {window} of a row is that of column {self.time!r} in the zone {self.zone}"
        )
        return f"{told}{by}. Where users are counted, a user counts once for each {window}"


def add_protection(group: argparse._ArgumentGroup) -> None:
    """The flags."""
    group.add_argument(
        "--protect",
        choices=tuple(WINDOWS),
        default=USER,
        help="who is promised something: a user with all that it did, or what a user did in one day, week or month, which is "
        "weaker (default: %(default)s)",
    )
    group.add_argument("--time", metavar="COLUMN", help="when a row was, for --protect user-day and the like")
    add(
        group,
        "--windows",
        type=whole_number(most=10**6),
        metavar="N",
        help="say what is promised in total to a user who is there in N days, weeks or months (default: 30, 52, 12)",
        rare=True,
    )


def protection(args: argparse.Namespace) -> Protection:
    """Who is protected, by the flags; everybody's whole data, for a command without them."""
    zone = getattr(args, "time_zone", None) or "UTC"
    return Protection(getattr(args, "protect", USER), getattr(args, "windows", None), getattr(args, "time", None), zone)


def window(args: argparse.Namespace) -> KeyColumn | None:
    """The column of times by which users are protected, if they are by windows."""
    from headcount.mechanisms.columns.row_schema import window_column  # which needs Arrow, as flags do not

    return window_column(args.protect, args.time) if hasattr(args, "protect") else None
