"""What releases of a data set add up to, and whether one more keeps the limit.

A limit (epsilon, delta) is kept if all releases together are (epsilon, delta)-differentially private: their composed delta at
the limit's epsilon is at most the limit's (`accounting.totals`). What a release asks may depend on earlier outputs. What it
costs, and how many there are, must not, unless the data set is adaptive: then the total is that of zCDP, which allows it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headcount.mechanisms.accounting.budget import digits_down, digits_up, sum_up
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.ledger.records import SPENT, Dataset, Entry

if TYPE_CHECKING:
    from headcount.mechanisms.accounting import totals

_MOST_MORE = 1000  # releases of which it is told how many fit in


@dataclasses.dataclass(frozen=True)
class Total:
    """What some releases promise together: by adding up, and composed at the delta of the limit."""

    releases: int
    sum_epsilon: float
    sum_delta: float
    epsilon: float

    def description(self, delta: float) -> str:
        """As it is printed."""
        if not self.releases:
            return "nothing is spent"
        number = "1 release" if self.releases == 1 else f"{self.releases:,} releases"
        together = f"epsilon = {_up(self.epsilon)}" if math.isfinite(self.epsilon) else "no epsilon"
        return (
            f"{number}: {together} at delta = {delta:g} together; added up, epsilon = {_up(self.sum_epsilon)} at "
            f"delta = {_up(self.sum_delta)}"
        )


def spent(entries: Iterable[Entry], span: str | None = None) -> list[Guarantee]:
    """The guarantees of the entries that count, of one month or year or of all time."""
    counted = (entry for entry in entries if entry.state in SPENT)
    return [entry.request.guarantee for entry in counted if span is None or entry.span == span]


def total(guarantees: Iterable[Guarantee], dataset: Dataset) -> Total:
    """What these releases of a data set promise together, with an epsilon for the delta of its limit."""
    return Room(dataset, [*guarantees]).total


class Room:
    """A limit, and what is spent of it: what that is together, and what is left beside it. It is worked out once for all that
    is asked."""

    def __init__(self, dataset: Dataset, spent: Sequence[Guarantee]) -> None:
        self._dataset, self._spent = dataset, spent

    @functools.cached_property
    def _together(self) -> totals.Spent | None:
        from headcount.mechanisms.accounting.totals import Spent  # which needs NumPy, as flags do not

        return Spent(self._spent, self._dataset.adaptive) if self._spent else None

    @functools.cached_property
    def total(self) -> Total:
        """What is spent, with an epsilon for the delta of the limit."""
        if self._together is None:
            return Total(0, 0.0, 0.0, 0.0)
        epsilon, delta = (sum_up(getattr(each, name) for each in self._spent) for name in ("epsilon", "delta"))
        return Total(len(self._spent), epsilon, delta, self._together.epsilon(self._dataset.limit_delta))

    def fits(self, *more: Guarantee) -> bool:
        """Whether the limit holds with these releases beside what is spent."""
        if self._together is None:
            return Room(self._dataset, more).fits()
        return self._together.delta(self._dataset.limit_epsilon, more) <= self._dataset.limit_delta

    def left(self) -> float:
        """The largest epsilon of a release at delta = 0 that still fits in: to three digits, and rounded down."""
        dataset = self._dataset
        relation, high = Relation.parse(dataset.relation), dataset.limit_epsilon

        def fits(epsilon: float) -> bool:
            return self.fits(Guarantee(epsilon, 0.0, relation, (), dataset.unit))

        if fits(high):
            return high
        # What adds up to the limit fits in, unless costs may be chosen on the way.
        sums = (high - self.total.epsilon, high - self.total.sum_epsilon)
        low = next((each for each in sums if each > 0 and fits(each)), 0.0)
        while high - low > 1e-3 * high and high > 1e-3 * dataset.limit_epsilon:
            middle = (low + high) / 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def more_like(self, like: Guarantee) -> int:
        """How many more releases like this one fit in."""
        low, high = 0, 1
        while high <= _MOST_MORE and self.fits(*[like] * high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fits(*[like] * middle) else (low, middle)
        return low

    def description(self) -> str:
        """What is left, as it is printed: one release without a delta, and how many like the last one."""
        words = f"epsilon = {_down(self.left())} for one release at delta = 0"
        if not self._spent:
            return words
        number = self.more_like(self._spent[-1])
        releases = "1 release" if number == 1 else f"{number:,} releases" if number else "no release"
        return f"{words}, or {releases} like the last one"


class ExceededError(Exception):
    """A release with which the limit would not hold: raised while the ledger is locked, and put into words after that."""

    def __init__(self, dataset: Dataset, span: str, spent: Sequence[Guarantee], more: Guarantee) -> None:
        super().__init__(dataset.name)
        self._dataset, self._span, self._spent, self._more = dataset, span, spent, more

    def refusal(self) -> ParameterError:
        """What is said of it, which takes longer to compute than others should wait for."""
        dataset, room, more = self._dataset, Room(self._dataset, self._spent), self._more
        before, after = room.total, total([*self._spent, more], dataset)
        asked = f"epsilon = {_up(more.epsilon)} and delta = {_up(more.delta)}"
        made = f"epsilon = {_up(after.epsilon)}" if math.isfinite(after.epsilon) else "no epsilon at all at this delta"
        return ParameterError(
            f"data set {dataset.name!r} has a limit of {dataset.limit_description()}; "
            f"{'in ' + self._span + ' ' if self._span else ''}epsilon = {_up(before.epsilon)} of it is spent, and with this "
            f"release ({asked}) it would be {made}: nothing was read; what is left: {room.description()}"
        )


def refuse_above(dataset: Dataset, span: str, spent: Sequence[Guarantee], more: Guarantee) -> None:
    """Refuse a release with which the limit would not hold."""
    if not Room(dataset, spent).fits(more):
        raise ExceededError(dataset, span, spent, more)


def _down(value: float) -> str:
    return f"{digits_down(value, 3):.3g}"


def _up(value: float) -> str:
    return f"{digits_up(value, 4):.4g}"
