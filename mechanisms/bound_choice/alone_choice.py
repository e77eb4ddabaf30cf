"""The private choice whether counts of a public list stand alone: nearly everything of everybody, and no totals.

Where keys are few and their counts large beside the noise, a norm that leaves next to nobody out needs no calibration, and all
that is drawn for one makes counts worse. One draw more finds that out, and the norm, after that of the cap c: among norms R for
counts that stand alone, and not to, for which `clip_choice` draws its bounds.

    stand alone at R.    loss = users above R + 2 noise(R) / c        weight = noise(R)^-3
    do not.              loss = events / (items * c)                  weight = the least of those

noise is the expected size of that in a count. Whoever is above R may be missing from a count, by c at most: so counts stand
alone where these users and twice the noise are together below the mean count. The weight tells norms apart that nobody
is above.

Guarantee: the draw has a bounded range, is epsilon-differentially private with delta 0 for either relation, and adds up with
those of `clip_choice`. Proof: docs/proofs/bound-choice.md, "Counts that stand alone".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, sum_up
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bound_choice.clip_choice import ClipBound, ClipCandidate, ClipChoice
from headcount.mechanisms.bounding.clipping import limit_per_item, squared_norms
from headcount.mechanisms.choice.exponential import em_exponents, log_weight, select
from headcount.mechanisms.choice.norm_bins import in_bins, tails
from headcount.mechanisms.randomness.lanes import Lanes


def alone_norms(
    candidates: Sequence[ClipCandidate], caps: Sequence[int], sharper: Mapping[str, float]
) -> tuple[tuple[ClipCandidate, ...], ...]:
    """The norms of counts that stand alone under each cap: those of all candidates, with a cost of `sharper` by theirs for each
    kind of noise, as totals have no part of it. Laplace noise ends where it is more than Gaussian noise for all that one can
    have."""
    found = []
    for cap in caps:
        norms = [
            dataclasses.replace(each, cost=each.cost * Fraction(round(sharper[each.noise] * 1024), 1024))
            for each in candidates
            if each.max_per_item == cap
        ]
        most = max(each.cost for each in norms if each.noise == "gaussian")  # at a norm that nobody can be above
        found.append(tuple(each for each in norms if each.cost <= most))
    return tuple(found)


@dataclasses.dataclass(frozen=True)
class AloneChoice(ClipChoice):
    """The choice of the bounds, and before it whether counts stand alone. `alone` has the norms R for that by cap, in the order
    of `caps`."""

    alone: tuple[tuple[ClipCandidate, ...], ...] = ()
    alone_budget: Budget = Budget(1)

    name = "alone or kept"

    @property
    def budget(self) -> Budget:
        """What all cost, added up."""
        return Budget(sum_up((super().budget.epsilon, self.alone_budget.epsilon)))

    @property
    def entries(self) -> int:
        """The length of the table: with the users above each norm R and the events under each cap, before the number of
        items."""
        return super().entries + sum(len(norms) + 1 for norms in self.alone)

    def user_table(self, shard: Shard) -> list[int]:
        """What the shard's users add. Norms for Gaussian noise are l2, and come first; the others are l1."""
        *table, items = super().user_table(shard)
        for norms in self.alone:
            capped = limit_per_item(shard, norms[0].max_per_item)
            for p, kind in ((2, "gaussian"), (1, "laplace")):
                grid = [each.bound**p for each in norms if each.noise == kind]
                power = squared_norms(capped) if p == 2 else capped.totals()
                table += tails(in_bins(grid, np.searchsorted(grid, power)))
            table.append(int(capped.totals().sum()))
        return [*table, items]

    def alone_exponents(self, table: Sequence[int], place: int = 0) -> list[Fraction]:
        """The exponents of the norms R under the cap of this place, and last of counts that do not stand alone."""
        norms, cap = self.alone[place], self.caps[place]
        first = super().entries - 1 + sum(len(each) + 1 for each in self.alone[:place])
        *above, events = table[first : first + len(norms) + 1]
        losses = [n + tuning.ALONE_NOISE_PRICE * each.cost / cap for n, each in zip(above, norms, strict=True)]
        losses.append(Fraction(events, cap * max(1, table[-1])))
        weights = [log_weight(float(each.cost), tuning.LARGE_BOUND_PENALTY) for each in norms]
        exponents = em_exponents(losses, self.relation.users, self.alone_budget.epsilon_fraction)
        return [loss + weight for loss, weight in zip(exponents, [*weights, max(weights)], strict=True)]

    def choose(self, table: Sequence[int], lanes: Lanes) -> ClipBound:
        """The private choice; counts that stand alone have no bound of totals."""
        place = self.cap_place(table, lanes)
        drawn, norms = select(self.alone_exponents(table, place), lanes), self.alone[place]
        if drawn == len(norms):
            return self.choose_under(place, table, lanes)
        norm, cap = norms[drawn], self.caps[place]
        return ClipBound(norm.bound, cap, norm.noise, 0, table[-1], cap=cap)

    def parameters(self) -> Mapping[str, Any]:
        """What defines the choice, in canonical form."""
        alone = [[dataclasses.astuple(c) for c in each] for each in self.alone]
        return {**super().parameters(), "alone": alone, "part of alone": repr(self.alone_budget.epsilon)}

    def details(self) -> Mapping[str, str | int | float]:
        """What a reader of the guarantee should know of it."""
        return {**super().details(), "for counts that stand alone": sum(map(len, self.alone))}
