"""Whether counts of an event on two neighbours refute p <= ratio q + beside: one exact test of both probabilities together.

The counts are binomial: K of n with probability p where the event is to be likelier, and J of n with q on the other neighbour.
Seen were k and j. The test asks how likely K - ratio J is to be at least k - ratio j, for the worst p and q that the statement
allows. To bound p and q one by one, each with half of the level, would add up both deviations; here they add up as those of
independent numbers do.

Guarantee: if the statement holds, it is refuted with a probability of at most the level.

Proof. An exact interval holds q, but with a share of the level (Berger, Boos 1994); what is left of it is for the worst q in
the interval. That is cut into cells. K - ratio J grows with p and falls with q, so that no point of a cell is worse than p of
its upper end and q of its lower end. Values of J that are too rare to be summed over count as if all of them went beyond what
was seen.

Lower bounds come from tests one after another, of a number that grows by steps from 0, until one refutes nothing. To get beyond
what is true, the test of the first number that holds must refute it. So all tests together have the level of one.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from headcount.pipelines.audits.evidence import Seen, at_least, at_most

Numbers = npt.NDArray[np.float64]

# Parts of the level: for the interval of q, and for values of J that are left out. And the cells: so many at first, and those
# of them that refute nothing are cut into so many more. Any numbers are sound.
_INTERVAL, _RARE, _CELLS, _FINER = 0.05, 1e-4, 20, 10
_STEPS = 100  # of a lower bound, up to what is stated


@dataclasses.dataclass(frozen=True)
class Joint:
    """What was seen of an event, for tests at one level."""

    seen: Seen
    level: float

    def refutes(self, ratio: float, beside: float) -> bool:
        """Whether p <= ratio q + beside is refuted."""
        likely, most = self._likely(self._ends, self._chances, ratio, beside), self.level * (1 - _INTERVAL)
        cells = zip(self._ends, self._ends[1:], likely <= most, strict=False)
        return all(done or self._refutes_finer(low, high, ratio, beside, most) for low, high, done in cells)

    def _refutes_finer(self, low: float, high: float, ratio: float, beside: float, most: float) -> bool:
        """Whether all parts of a cell refute it."""
        ends = np.linspace(low, high, _FINER + 1)
        return bool((self._likely(ends, self._chances_of(ends), ratio, beside) <= most).all())

    def _likely(self, ends: Numbers, chances: Numbers, ratio: float, beside: float) -> Numbers:
        """For each cell between two of the ends, how likely what was seen, or beyond it, is at most: by the chances of J."""
        values, runs = self._values, self.seen.runs
        p = np.clip(ratio * ends[1:, None] + beside, 0.0, 1.0)
        # How large K is at least, for each value of J; rounded so that rounding refutes less.
        least = np.ceil(self.seen.more + ratio * (values - self.seen.less) - 1e-6)
        within = np.clip(least, 1, runs)
        tail = np.where(least <= runs, special.betainc(within, runs - within + 1, p), 0.0)  # P(K >= least)
        return np.sum(chances * np.where(least <= 0, 1.0, tail), axis=1) + 2 * _RARE * self.level

    @functools.cached_property
    def _ends(self) -> Numbers:
        """The ends of the first cells of an interval of q."""
        part, seen = self.level * _INTERVAL / 2, self.seen
        return np.linspace(at_least(seen.less, seen.runs, part), at_most(seen.less, seen.runs, part), _CELLS + 1)

    def _chances_of(self, ends: Numbers) -> Numbers:
        """How likely each value of J is at the lower ends of cells."""
        return stats.binom.pmf(self._values, self.seen.runs, ends[:-1, None])

    @functools.cached_property
    def _chances(self) -> Numbers:
        """The same of the first cells, which every test begins with."""
        return self._chances_of(self._ends)

    @functools.cached_property
    def _values(self) -> Numbers:
        """The values of J that are not rare in any cell."""
        rare, runs = self.level * _RARE, self.seen.runs
        first, last = stats.binom.ppf(rare, runs, self._ends[0]), stats.binom.isf(rare, runs, self._ends[-1])
        return np.arange(max(first, 0), last + 1)


def epsilon_at_least(seen: Seen, epsilon: float, delta: float, level: float) -> float:
    """A lower bound of epsilon in p <= e^epsilon q + delta, at this delta. It is stated to be the one that is given."""
    joint = Joint(seen, level)
    return _climbed(lambda each: joint.refutes(math.exp(each), delta), epsilon / _STEPS)


def delta_at_least(seen: Seen, epsilon: float, delta: float, level: float) -> float:
    """A lower bound of delta in the same, at this epsilon."""
    joint = Joint(seen, level)
    return _climbed(lambda each: joint.refutes(math.exp(epsilon), each), delta / _STEPS)


def _climbed(refutes: Callable[[float], bool], step: float) -> float:
    """The last of the multiples of a step that are refuted one after another, from 0; 0 if the first is not."""
    number = 0
    while refutes(number * step):
        number += 1
    return max(number - 1, 0) * step
