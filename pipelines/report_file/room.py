"""Whether the releases of one run all fit into what a ledger has left, before the first of them reads a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from headcount.mechanisms.accounting.budget import digits_up
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.ledger import spending
from headcount.pipelines.ledger.account import open_ledger
from headcount.pipelines.ledger.records import SPENT, now


class Cost(NamedTuple):
    """What one release of a run writes into the ledger."""

    release_id: str
    guarantee: Guarantee


def refuse_together(url: str, dataset: str, costs: Sequence[Cost]) -> str:
    """Refuse releases that do not all fit in; what is to be said of those that do. One that is in the ledger costs nothing.

    Each release still reserves its own: what others spend meanwhile is refused there.
    """
    ledger = open_ledger(url)
    found = ledger.dataset(dataset)
    span = found.span(now())
    entries = ledger.entries(dataset, None, SPENT)
    known = {entry.request.release_id for entry in entries}
    more = [cost.guarantee for cost in costs if cost.release_id not in known]
    for guarantee in more:
        found.refuse_other(guarantee)
    spent = spending.spent(entries, span)
    room, when = spending.Room(found, spent), f"in {span} " if span else ""
    before, after = room.total, spending.total([*spent, *more], found)
    if not room.fits(*more):
        raise ParameterError(
            f"data set {dataset!r} has a limit of {found.limit_description()}; {when}epsilon = {_up(before.epsilon)} of it is "
            f"spent, and with the {len(more)} releases of this run it would be {_up(after.epsilon)}: nothing was read; what is "
            f"left: {room.description()}"
        )
    there = (
        f"; {len(costs) - len(more)} of the {len(costs)} are in the ledger already" if len(more) < len(costs) else ""
    )
    return (
        f"data set {dataset}: {when}epsilon = {_up(before.epsilon)} of {found.limit_epsilon:g} is spent at delta = "
        f"{found.limit_delta:g}, and {_up(after.epsilon)} with this run{there}"
    )


def _up(epsilon: float) -> str:
    return f"{digits_up(epsilon, 4):.4g}" if math.isfinite(epsilon) else "no epsilon at all"
