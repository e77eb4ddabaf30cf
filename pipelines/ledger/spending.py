"""What releases of a data set add up to, and whether one more keeps the limit.

A limit (epsilon, delta) is kept if all releases together are (epsilon, delta)-differentially private: their composed delta at
the limit's epsilon is at most the limit's (`accounting.totals`). What a release asks may depend on earlier outputs. What it
costs, and how many there are, must not, unless the data set is adaptive: then the total is that of zCDP, which allows it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from headcount.mechanisms.accounting.budget import sum_up
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.ledger.records import SPENT, Dataset, Entry


@dataclasses.dataclass(frozen=True)
class Total:
    """What some releases promise together: by adding up, and composed at the delta of the limit."""

    releases: int
    sum_epsilon: float
    sum_delta: float
    epsilon: float

    def words(self, delta: float) -> str:
        """As it is printed."""
        if not self.releases:
            return "nothing is spent"
        number = "1 release" if self.releases == 1 else f"{self.releases:,} releases"
        together = f"epsilon = {_up(self.epsilon)}" if math.isfinite(self.epsilon) else "no epsilon"
        return (
            f"{number}: {together} at delta = {delta:g} together; added up, epsilon = {_up(self.sum_epsilon)} at "
            f"delta = {_up(self.sum_delta)}"
        )


def total(guarantees: Iterable[Guarantee], dataset: Dataset) -> Total:
    """What these releases of a data set promise together, with an epsilon for the delta of its limit."""
    from headcount.mechanisms.accounting.totals import total_epsilon

    given = list(guarantees)
    if not given:
        return Total(0, 0.0, 0.0, 0.0)
    epsilon = total_epsilon(given, dataset.limit_delta, dataset.adaptive)
    return Total(len(given), sum_up(each.epsilon for each in given), sum_up(each.delta for each in given), epsilon)


def spent(entries: Iterable[Entry], span: str | None = None) -> list[Guarantee]:
    """The guarantees of the entries that count, of one month or year or of all time."""
    counted = (entry for entry in entries if entry.state in SPENT)
    return [entry.request.guarantee for entry in counted if span is None or entry.span == span]


def left(dataset: Dataset, spent: Total) -> float:
    """An epsilon that surely fits in at delta = 0: what is spent at the limit's delta, and this, add up to the limit."""
    return max(0.0, dataset.limit_epsilon - spent.epsilon)


def refuse_above(dataset: Dataset, span: str, spent: Sequence[Guarantee], more: Guarantee) -> None:
    """Refuse a release with which the limit would not hold."""
    from headcount.mechanisms.accounting.totals import total_delta

    if total_delta([*spent, more], dataset.limit_epsilon, dataset.adaptive) <= dataset.limit_delta:
        return
    before, after = (total(each, dataset) for each in (spent, [*spent, more]))
    asked = f"epsilon = {_up(more.epsilon)} and delta = {_up(more.delta)}"
    made = f"epsilon = {_up(after.epsilon)}" if math.isfinite(after.epsilon) else "no epsilon at all at this delta"
    raise ParameterError(
        f"data set {dataset.name!r} has a limit of {dataset.limit_words()}; {'in ' + span + ' ' if span else ''}"
        f"epsilon = {_up(before.epsilon)} of it is spent, epsilon = {left(dataset, before):.4g} is left, and with this release "
        f"({asked}) it would be {made}: nothing was read"
    )


def _up(value: float) -> str:
    """Four digits, never below the value."""
    text = f"{value:.4g}"
    if float(text) >= value or not math.isfinite(value):
        return text
    step = 10.0 ** (math.floor(math.log10(abs(value))) - 3)
    return f"{float(text) + step:.4g}"
