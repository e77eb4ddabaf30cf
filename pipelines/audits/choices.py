"""Many private choices between two candidates, one after another, and what they are charged together."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

from scipy import optimize

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.composition import Parts, composed_delta
from headcount.mechanisms.accounting.losses import Draw, Losses
from headcount.mechanisms.choice import exponential
from headcount.mechanisms.randomness.keys import KeySource
from headcount.mechanisms.randomness.lane_ids import decision_lane_ids
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.subkeys import block_key, lane_key, subkey
from headcount.pipelines.audits.claims import OfLosses


@dataclasses.dataclass(frozen=True)
class Choices:
    """Draws of bounded range `size` by the exponential mechanism: the user's absence makes one candidate worse by one."""

    number: int
    size: Fraction
    delta: float
    runs: int = 2000
    most: float = 1.0
    by: str = "losses"
    why: str = ""

    @property
    def command(self) -> str:
        """What the audit calls it."""
        return "choices"

    def prepared(self, with_one: bool) -> Drawn:
        """The draws on one of the two neighbours."""
        return Drawn(self, exponential.em_exponents([0, 0 if with_one else 1], 1, self.size))


@dataclasses.dataclass(frozen=True)
class Drawn:
    """The exponents of both candidates on one of two neighbours."""

    choices: Choices
    exponents: list[Fraction]

    def stated(self) -> Budget:
        """What all draws together are charged, as the account of a release composes choices."""
        ranges, delta = [float(self.choices.size)] * self.choices.number, self.choices.delta
        most = sum(ranges)
        epsilon = optimize.brentq(lambda each: composed_delta(each, ranges, Parts()) - delta, 1e-6, most)
        return Budget(epsilon, delta)

    def claim(self) -> OfLosses:
        """The same, by the losses of all draws."""
        draw = Draw(float(self.choices.size))
        return OfLosses(Losses.of(*[draw] * self.choices.number), self.choices.delta)

    def score(self, source: KeySource, name: str) -> float:
        """How often the first candidate was taken."""
        key = subkey(source.fetch(), name, "Audit", {})
        ids = decision_lane_ids(lane_key(key), repr(self.exponents).encode(), self.choices.number)
        lanes = (Lanes(block_key(key), ids[number : number + 1]) for number in range(len(ids)))
        return float(sum(exponential.select(self.exponents, lane) == 0 for lane in lanes))
