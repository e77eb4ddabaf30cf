"""What the courses of an estimated histogram cost: choices that decide on the way, and whichever of the ways follows."""

from __future__ import annotations

import math
from typing import NamedTuple

from headcount.mechanisms.accounting.losses import Draw, Laplace, Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.bounding.clipping import LEAST_STEPS
from headcount.mechanisms.histogram.account import Account
from headcount.mechanisms.partitions.curve_budget import CurvePart


class Courses(NamedTuple):
    """All courses of an account; `at_once` are the losses of naming and counting in one step, where that is a way."""

    account: Account
    relation: Relation
    laws: CurvePart | None
    at_once: Losses

    def planned(self) -> Losses:
        """What composition needs to know before anything runs."""
        account = self.account
        ways = [self._way(pure) for pure, there in ((False, account.gaussian), (True, account.pure)) if there]
        if not account.pure_alone or account.counts_choice is None:
            return self._first() + Losses.one_of(*ways)
        kept = Losses.of(Draw(account.counts_choice.epsilon)) + Losses.one_of(*ways)
        return self._before_alone() + Losses.one_of(kept, self._laplace(account.pure_alone))

    def taken(self, pure: bool, alone: bool = False) -> Losses:
        """What the course costs that was taken. Counts that stand alone with Gaussian noise cost no more than others."""
        if alone and pure:
            return self._before_alone() + self._laplace(self.account.pure_alone)
        return self._first() + self._way(pure)

    def _before_alone(self) -> Losses:
        return Losses.of(*(Draw(each.epsilon) for each in self.account.alone_choices))

    def _first(self) -> Losses:
        """The choice that decides on the way: where items are named, two draws."""
        return Losses.of(*(Draw(each.epsilon) for each in self.account.first_choices))

    def _way(self, pure: bool) -> Losses:
        """All that one of the ways may cost after that choice, with choices of its own: as in `Account.delta`."""
        account, named = self.account, self.account.named
        choices = [account.totals_choice, account.cap_choice if named else None]
        choices += [account.counts_choice if named and not pure else None]
        choices += [*account.ranges_choices, account.users_choice]
        draws = [Draw(choice.epsilon) for choice in choices if choice is not None]
        if not pure:
            mu = math.sqrt(account.names_mu**2 + account.counts_mu**2 + account.totals_mu**2) * (1 + 1e-12)
            by_law = {} if self.laws is None else {"rho": self.laws.rho, "order": self.laws.order}
            return Losses.of(*draws, mu=mu, hiding=account.hiding, **by_law)
        return (
            Losses.of(*draws) + self._laplace(0.0 if named else account.pure_counts, account.pure_totals) + self.at_once
        )

    def _laplace(self, *parts: float) -> Losses:
        """What Laplace noise of these parts costs, whatever its bound is."""
        steps = self.relation.users * LEAST_STEPS
        return Losses.of(*(Laplace.in_more_steps(part, steps) for part in parts if part > 0))
