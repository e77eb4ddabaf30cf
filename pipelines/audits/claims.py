"""What a release states, in the three forms in which outcomes on two neighbours can refute it.

* `OfEpsilon`: (epsilon, delta)-differential privacy. For every event P(event | one) <= e^epsilon P(event | other) + delta. From
  a test of both probabilities together (`joint`) follows how large epsilon is at least, at the stated delta.
* `OfDelta`: the same, and how large delta is at least, at the stated epsilon. For mechanisms that hide by not being seen, whose
  worst event has no probability at all on the other side.
* `OfLosses`: the account of losses that a release states for those who compose it (`accounting.losses`). Whoever guesses which
  of two neighbours was read is right with probability (1 + D) / 2 at most, where D is the divergence of the account at 0. From
  the guesses that were right follows a lower bound of D. Found is the account in which every loss is smaller by one factor, so
  that its D is just that, and its epsilon at the stated delta is told. If the account says no more than epsilon (`Laplace` in
  one step), this assumes nothing. Of Gaussian noise it finds a mu (Nasr et al. 2023), of a draw a range.

Guesses on the two neighbours are independent and have two probabilities of being right. So many right ones or more, if that is
one more than is expected or beyond, are at most as likely as if each had the mean of both (Hoeffding 1956, Theorem 4). So an
exact interval of one binomial count holds for the mean.
"""

from __future__ import annotations

import dataclasses
import math

from headcount.mechanisms.accounting.losses import Draw, Laplace, Losses, OneOf, Part
from headcount.mechanisms.accounting.pld_sums import Together
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.audits.evidence import Seen, at_least, at_most
from headcount.pipelines.audits.joint import delta_at_least, epsilon_at_least

# So often the factor of an account is halved in, and the largest that is looked for.
_HALVINGS, _LARGEST = 20, 8.0


@dataclasses.dataclass(frozen=True)
class OfEpsilon:
    """An epsilon at a delta, by the probabilities of one event."""

    epsilon: float
    delta: float

    def shown(self, seen: Seen, level: float) -> float:
        """A lower bound of epsilon."""
        return epsilon_at_least(seen, self.epsilon, self.delta, level)

    def merit(self, seen: Seen, level: float) -> float:
        """The same by two intervals, each with half of the level: smaller, and below 0 where nothing is shown."""
        low = at_least(seen.more, seen.runs, level / 2) - self.delta
        return math.log(low / at_most(seen.less, seen.runs, level / 2)) if low > 0 else -math.inf

    @property
    def most(self) -> float:
        """The epsilon that is stated."""
        return self.epsilon


@dataclasses.dataclass(frozen=True)
class OfDelta:
    """A delta at an epsilon, alike."""

    epsilon: float
    delta: float

    def shown(self, seen: Seen, level: float) -> float:
        """A lower bound of delta."""
        return delta_at_least(seen, self.epsilon, self.delta, level)

    def merit(self, seen: Seen, level: float) -> float:
        """The same by two intervals, alike."""
        low, high = at_least(seen.more, seen.runs, level / 2), at_most(seen.less, seen.runs, level / 2)
        return low - math.exp(self.epsilon) * high

    @property
    def most(self) -> float:
        """The delta that is stated."""
        return self.delta


@dataclasses.dataclass(frozen=True)
class OfLosses:
    """An account of losses, by guesses. Its epsilon is told at this delta."""

    losses: Losses
    delta: float

    def shown(self, seen: Seen, level: float) -> float:
        """A lower bound of epsilon: that of an account that is smaller by a factor."""
        divergence, low, high = self.merit(seen, level), 0.0, _LARGEST
        if divergence <= self.losses.hiding:
            return 0.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = Together(scaled(self.losses, middle)).delta(0.0) < divergence
            low, high = (middle, high) if below else (low, middle)
        return self._epsilon(low)

    def merit(self, seen: Seen, level: float) -> float:
        """A lower bound of the divergence at 0."""
        return 2 * at_least(seen.more + seen.runs - seen.less, 2 * seen.runs, level) - 1

    @property
    def most(self) -> float:
        """The epsilon of the account."""
        return self._epsilon(1.0)

    def _epsilon(self, factor: float) -> float:
        """The epsilon of the account with so much of every loss: at the delta or, if all of that is for hiding, at 0 beside."""
        losses = scaled(self.losses, factor)
        if self.delta > losses.hiding:
            return Together(losses).epsilon(self.delta)
        return sum(times * (part.range if isinstance(part, Draw) else _pure(part)) for part, times in losses.parts)


def _pure(part: Part) -> float:
    return part.epsilon if isinstance(part, Laplace) else math.inf


def scaled(losses: Losses, factor: float) -> Losses:
    """An account of the same parts, of which each has so much of its losses. What it hides with stays as it is."""

    def part_of(part: Part) -> Part:
        if isinstance(part, Draw):
            return Draw(part.range * factor)
        if isinstance(part, Laplace):
            return Laplace(part.epsilon * factor, part.steps)
        if isinstance(part, OneOf):
            return OneOf(tuple(scaled(way, factor) for way in part.ways))
        raise ParameterError("a curve of losses has no scale; look at its delta")

    if factor <= 0:
        return Losses(hiding=losses.hiding)
    parts = tuple((part_of(part), times) for part, times in losses.parts)
    return dataclasses.replace(losses, mu=losses.mu * factor, rho=losses.rho * factor**2, parts=parts)
