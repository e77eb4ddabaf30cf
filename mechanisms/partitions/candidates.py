"""One way to name items, as a candidate of a private choice: how much it counts of a user, and how sums become its score."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from headcount.mechanisms import tuning
from headcount.mechanisms.partitions.rounds import STRATEGIES, Round
from headcount.mechanisms.partitions.select import ChosenStrategy
from headcount.mechanisms.partitions.selection_curve import fourth_root


class _Shape(NamedTuple):
    """How sums become a score: where an item begins to be worth something, where it is worth no more, and what of the
    rest comes back in rounds, in eighths."""

    start: int
    end: int
    back: int


# A curve names items below half of its median hardly ever, and so does Laplace noise on one item of each user, which stands
# beside curves; other noise is worth more with less.
_NOISE, _CURVE = _Shape(*tuning.NOISE_WORTH), _Shape(*tuning.SELECTION_WORTH)

# Thresholds are multiples of 2**-10, and sums of 2**-40: a share of 2**-30 times a root of 2**-10.
THRESHOLD_BITS = 10


@dataclasses.dataclass(frozen=True)
class StrategyCandidate:
    """One way to name items: its threshold, that of the last round, in units of 2**-10, and what its score is multiplied by."""

    strategy: str
    items: int
    threshold: int
    worth: Fraction = Fraction(1)
    rounds: int = 0

    @classmethod
    def of(cls, strategy: str, rounds: Sequence[Round], worth: Fraction = Fraction(1)) -> StrategyCandidate:
        """The candidate that these rounds, calibrated as the caller will run them, are."""
        last = rounds[-1].plan
        assert last.threshold is not None
        # Whole noise reaches a whole threshold as often as continuous noise one that is lower by half a step.
        threshold = math.ceil(Fraction(2 * last.threshold - 1, 2 << last.grid) * 2**THRESHOLD_BITS)
        return cls(strategy, rounds[-1].max_items, threshold, worth)

    @property
    def weighed(self) -> bool:
        """Whether items weigh 1/sqrt(d), or for a curve 1/d^(1/4), or count one."""
        return STRATEGIES[self.strategy] in ("l2", "law")

    @property
    def shape(self) -> _Shape:
        """How its sums become a score."""
        return _CURVE if self.strategy in ("law", "laplace") else _NOISE

    @property
    def in_rounds(self) -> bool:
        """Whether weight on items that are named early comes back."""
        return self.strategy == "sips" or self.rounds > 1

    @property
    def others(self) -> float:
        """What of a user's part of other items comes back in rounds, where all items are kept; as in `expected_weights`."""
        return 0.5 if self.strategy == "law" else 1.0

    def weight_of_all(self, bits: int) -> tuple[int, int]:
        """What K items of a user weigh together, in units of 2**-bits, rounded down and up: sqrt(K), K^(3/4), or K."""
        if STRATEGIES[self.strategy] == "law":
            fourth = self.items**3 << 4 * bits
            return fourth_root(fourth), fourth_root(fourth - 1) + 1
        square = (self.items if self.weighed else self.items**2) << 2 * bits
        return math.isqrt(square), math.isqrt(square - 1) + 1

    @property
    def chosen(self) -> ChosenStrategy:
        """What is told, if it is this one."""
        return ChosenStrategy(self.strategy, self.items, self.rounds)
