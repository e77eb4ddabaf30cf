"""How large an epsilon two samples of outcomes show: a lower bound at a stated delta, which holds with a stated confidence.

If a release is (epsilon, delta)-differentially private, then for every event P(event | one) <= e^epsilon P(event | other) +
delta. So any event whose probabilities break that shows a larger epsilon. The event is chosen on one half of the outcomes (the
trial) and counted on the other half, so that the choice is no part of the statistics. Both probabilities are bounded by
Clopper and Pearson's exact intervals for binomial counts.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy import stats

Scores = npt.NDArray[np.float64]

# Of all outcomes, those by which the event is chosen. More make a better choice, and leave fewer to count.
_TRIAL = 0.25
_THRESHOLDS = 64  # that are tried; any number is sound


@dataclasses.dataclass(frozen=True)
class Event:
    """Scores of at least this (or, `below`, of at most this), more likely `with_one` user more or without."""

    threshold: float
    below: bool
    with_one: bool

    def count(self, scores: Scores) -> int:
        """How many of the outcomes are in it."""
        return int(np.count_nonzero(scores <= self.threshold if self.below else scores >= self.threshold))

    def sides(self, without: Scores, with_one: Scores) -> tuple[Scores, Scores]:
        """The outcomes that have it more often, and the others."""
        return (with_one, without) if self.with_one else (without, with_one)


@dataclasses.dataclass(frozen=True)
class Found:
    """What was seen of the event: `epsilon` is at least this, with the confidence; 0 if nothing was shown."""

    epsilon: float
    event: Event
    seen: tuple[int, int]
    runs: int


def found(without: Scores, with_one: Scores, delta: float, confidence: float) -> Found:
    """The lower bound of epsilon that outcomes on two neighbours show."""
    cut = max(1, int(_TRIAL * len(without)))
    event = max(
        _events(without[:cut], with_one[:cut]), key=lambda each: _bound(each, without[:cut], with_one[:cut], delta)
    )
    return least(event, without[cut:], with_one[cut:], delta, confidence)


def least(event: Event, without: Scores, with_one: Scores, delta: float, confidence: float) -> Found:
    """The same for an event that was chosen without these outcomes."""
    more, less = event.sides(without, with_one)
    seen = event.count(more), event.count(less)
    level = (1 - confidence) / 2  # for each of the two probabilities
    low, high = _at_least(seen[0], len(more), level), _at_most(seen[1], len(less), level)
    epsilon = math.log((low - delta) / high) if low - delta > high else 0.0
    return Found(epsilon, event, seen, len(more))


def _events(without: Scores, with_one: Scores) -> Iterator[Event]:
    """Thresholds at quantiles of all outcomes, both ways."""
    values = np.unique(np.concatenate([without, with_one]))
    places = np.unique(np.linspace(0, len(values) - 1, _THRESHOLDS).round().astype(int))
    for threshold in values[places].tolist():
        for below in (False, True):
            for with_more in (False, True):
                yield Event(threshold, below, with_more)


def _bound(event: Event, without: Scores, with_one: Scores, delta: float) -> float:
    """What the event would show on as many outcomes as are counted later, if its frequencies were those of the trial."""
    more, less = event.sides(without, with_one)
    scale = (1 - _TRIAL) / _TRIAL
    runs = len(more) * scale
    low = _at_least(event.count(more) * scale, runs, 0.01) - delta
    high = _at_most(event.count(less) * scale, runs, 0.01)
    return math.log(low / high) if low > 0 else -math.inf


def _at_least(seen: float, runs: float, level: float) -> float:
    return float(stats.beta.ppf(level, seen, runs - seen + 1)) if seen > 0 else 0.0


def _at_most(seen: float, runs: float, level: float) -> float:
    return float(stats.beta.ppf(1 - level, seen + 1, runs - seen)) if seen < runs else 1.0
