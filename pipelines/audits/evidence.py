"""What two samples of outcomes show of a promise: a lower bound, which holds with a stated confidence.

An event is that the number which is looked at is above, or below, some threshold. It is chosen on a part of the outcomes (the
trial) and counted on the rest, so that the choice is no part of the statistics. `claims` says what follows from the counts.
One probability is bounded by Clopper and Pearson's exact interval for a binomial count, two together as `joint` says.

On the trial, many thresholds are about as good, and the best of them is so by chance. Chosen is the middle one of those that
are as good as the best but for one standard deviation.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy import special

Scores = npt.NDArray[np.float64]

# Of all outcomes, those by which the event is chosen, and how many these are at most. More make a better choice, and leave
# fewer to count. Any numbers are sound, here and below.
_TRIAL, _MOST = 0.2, 300
_THRESHOLDS = 64  # that are tried
_USUAL = 0.01  # the level at which events are compared
_MIDDLE, _ONE_DEVIATION = 0.5, 0.16  # levels of bounds that are one standard deviation apart


@dataclasses.dataclass(frozen=True)
class Seen:
    """How often an event was seen: in `more` of so many `runs` where it is to be likelier, and in `less` of as many others.

    Numbers need not be whole where events are only compared.
    """

    more: float
    less: float
    runs: float


class Claim(Protocol):
    """What is stated, in a form that counts of an event can refute."""

    @property
    def most(self) -> float:
        """What is stated: whatever is shown beyond it refutes the statement."""

    def shown(self, seen: Seen, level: float) -> float:
        """A lower bound of the same, 0 if nothing was shown. If the statement is right, this exceeds `most` with a probability
        of at most the level."""

    def merit(self, seen: Seen, level: float) -> float:
        """What is larger for an event that shows more."""


@dataclasses.dataclass(frozen=True)
class Event:
    """Scores of at least this (or, `below`, of at most this), more likely `with_one` user more or without."""

    threshold: float
    below: bool
    with_one: bool

    def count(self, scores: Scores) -> int:
        """How many of the outcomes are in it."""
        return int(np.count_nonzero(scores <= self.threshold if self.below else scores >= self.threshold))

    def seen(self, without: Scores, with_one: Scores) -> Seen:
        """How often it is in both."""
        more, less = (with_one, without) if self.with_one else (without, with_one)
        return Seen(self.count(more), self.count(less), len(more))


@dataclasses.dataclass(frozen=True)
class Found:
    """What was seen of the event, and what that shows: at least this; 0 if nothing."""

    shown: float
    event: Event
    seen: Seen


def found(without: Scores, with_one: Scores, claim: Claim, confidence: float) -> Found:
    """What outcomes on two neighbours, as many of both, show of a claim."""
    cut = max(1, min(_MOST, int(_TRIAL * len(without))))
    event = _chosen(without[:cut], with_one[:cut], claim, (len(without) - cut) / cut)
    seen = event.seen(without[cut:], with_one[cut:])
    return Found(claim.shown(seen, 1 - confidence), event, seen)


def at_least(seen: float, runs: float, level: float) -> float:
    """A lower bound of a probability, which fails with the level at most."""
    return float(special.betaincinv(seen, runs - seen + 1, level)) if seen > 0 else 0.0


def at_most(seen: float, runs: float, level: float) -> float:
    """An upper bound of the same kind."""
    return float(special.betaincinv(seen + 1, runs - seen, 1 - level)) if seen < runs else 1.0


def _chosen(without: Scores, with_one: Scores, claim: Claim, grown: float) -> Event:
    """The event that would show most on so many times as many outcomes, if its frequencies were those of the trial."""

    def merit(event: Event) -> float:
        seen = event.seen(without, with_one)
        return claim.merit(Seen(seen.more * grown, seen.less * grown, seen.runs * grown), _USUAL)

    merits = {event: merit(event) for event in _events(without, with_one)}
    best = max(merits, key=lambda event: merits[event])
    seen = best.seen(without, with_one)
    enough = merits[best] - (claim.merit(seen, _MIDDLE) - claim.merit(seen, _ONE_DEVIATION))
    if not math.isfinite(enough):
        return best
    alike = [event for event in merits if (event.below, event.with_one) == (best.below, best.with_one)]
    near = [event for event in alike if merits[event] >= enough]
    return near[len(near) // 2]


def _events(without: Scores, with_one: Scores) -> Iterator[Event]:
    """Thresholds at quantiles of all outcomes, both ways."""
    values = np.unique(np.concatenate([without, with_one]))
    places = np.unique(np.linspace(0, len(values) - 1, _THRESHOLDS).round().astype(int))
    for threshold in values[places].tolist():
        for below in (False, True):
            for with_more in (False, True):
                yield Event(threshold, below, with_more)
