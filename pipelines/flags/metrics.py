"""What the flags of `headcount aggregate` ask of each item, and the columns of numbers that rows carry for it.

Nothing is imported before it is needed: flags need no Arrow.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headcount.mechanisms.aggregate.metrics import Metrics
    from headcount.mechanisms.columns.value_ranges import ValueRange


def metrics(args: argparse.Namespace) -> Metrics | None:
    """Users and events, then metrics of values; None if nothing is asked for, or the command has no such flags."""
    if not hasattr(args, "variance"):
        return None
    from headcount.mechanisms.aggregate.metrics import COUNTS, OF_VALUES, Metric, Metrics, parse_metrics

    counts = [Metric(kind) for kind in COUNTS if getattr(args, kind)]
    asked = [(kind, text) for kind in OF_VALUES for text in getattr(args, kind) or ()]
    of_values = [each for kind, text in asked for each in parse_metrics(kind, text, args.time_zone)]
    return Metrics.of([*counts, *of_values]) if counts or of_values else None


def values(args: argparse.Namespace) -> tuple[ValueRange, ...]:
    """The columns of numbers, each with its range once."""
    asked = metrics(args)
    return () if asked is None else asked.values
