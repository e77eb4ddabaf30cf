"""The stages of counts in levels, in numbers: those of an estimated histogram, in parts of `tree.UNIT`."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from functools import cached_property

from headcount.mechanisms import tuning
from headcount.mechanisms.bound_choice.clip_choice import ClipBound, ClipCandidate, ClipChoice
from headcount.mechanisms.bounding.steps import MAX_BOUND
from headcount.mechanisms.histogram.names import NamesPlan
from headcount.mechanisms.histogram.stages import StagePlan, Stages
from headcount.mechanisms.levels.tree import UNIT, weights_of


@dataclasses.dataclass(frozen=True)
class CapChoice(ClipChoice):
    """The choice of the events of one user on one leaf, by itself."""

    name = "cap"


@dataclasses.dataclass(frozen=True)
class LevelStages(Stages):
    """Stages whose counts and totals are a user's vector over all levels. What counts of one user on one leaf, where events are
    counted, is chosen before the vector is made, by `cap_choice`. `depth` is the number of key columns."""

    depth: int = 2

    @cached_property
    def cap_choice(self) -> ClipChoice | None:
        """The choice of the events of one user on one leaf; None if it is given, or users are counted."""
        account = self.account
        if account.cap_choice is None:
            return None
        return CapChoice(None, None, account.budget, self.relation, (), (), tuning.CAPS, account.cap_choice)

    @cached_property
    def clip_choice(self) -> ClipChoice | None:
        """The choice of the norms of a user's vector of counts, and of its vector of totals; None if nothing is left out."""
        account = self.account
        if account.counts_choice is None:
            return None
        # Users are compared by the sum of their vector, to which a row of one leaf adds all weights.
        norms = tuple(norm * self._weights for norm in tuning.NORMS_OF_TOTALS if norm * UNIT <= MAX_BOUND)
        chosen = (account.counts_choice, account.totals_choice, account.budget, self.relation)
        return ClipChoice(*chosen, self._candidates(), norms)

    @property
    def _weights(self) -> int:
        return sum(weights_of(self.depth))

    def plan(self, names: NamesPlan | None, chosen: ClipBound | None) -> StagePlan:
        """All numbers, for what was chosen. The totals of a user with a sum of n times all weights have a norm of n UNIT at
        most."""
        if chosen is not None:
            chosen = chosen._replace(totals_bound=chosen.totals_bound // self._weights * UNIT)
        return super().plan(names, chosen)

    def _candidates(self) -> tuple[ClipCandidate, ...]:
        unit = Fraction(round(self._mean_noise(self.account.counts_mu, 0.0) * 1024), 1024)
        bounds = [norm * UNIT for norm in tuning.BOUNDS_OF_ESTIMATES]
        return tuple(ClipCandidate(bound, 0, "gaussian", unit * bound) for bound in bounds)
