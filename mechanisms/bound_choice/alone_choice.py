"""The private choice whether counts of a public list stand alone: nearly everything of everybody, and no totals.

Where keys are few and their counts large beside the noise, a norm that leaves next to nobody out needs no calibration, and all
that is drawn for one makes counts worse. Two more draws find that out, after that of the cap c:

    R: a norm that few users are above.           P(R) is proportional to noise(R)^-u exp(-e1 #{users above R})
    alone or not, by the events that R keeps.     loss = -worth at R, or -items * noise(R)

noise is the standard deviation of a count, and counts stand alone where their mean is above it. If they do not, what
`clip_choice` draws follows, and knows of both.

Guarantee: each is a draw of bounded range, epsilon-differentially private with delta 0, for either relation, and their ranges
add up with those of `clip_choice`. Proof: docs/proofs/bound-choice.md, "Counts that stand alone".
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
from headcount.mechanisms.bound_choice.clip_choice import PARTS, ClipBound, ClipCandidate, ClipChoice
from headcount.mechanisms.bounding.clipping import limit_per_item, squared_norms
from headcount.mechanisms.choice.exponential import em_exponents, log_weight, select
from headcount.mechanisms.choice.norm_bins import in_bins, tails
from headcount.mechanisms.randomness.lanes import Lanes


def alone_norms(
    candidates: Sequence[ClipCandidate], caps: Sequence[int], sharper: float, laplace: float
) -> tuple[tuple[ClipCandidate, ...], ...]:
    """The norms of counts that stand alone under each cap: those of Gaussian candidates, with a standard deviation of `sharper`
    by their cost, as totals have no part of the precision. Laplace noise, with the one of `laplace`, may be less where users
    count once on one item at most."""
    found = []
    for cap in caps:
        norms = [
            dataclasses.replace(each, cost=each.cost * Fraction(round(sharper * 1024), 1024))
            for each in candidates
            if (each.max_per_item, each.noise) == (cap, "gaussian")
        ]
        if cap == 1 and laplace < norms[0].cost:
            norms[0] = ClipCandidate(1, 1, "laplace", Fraction(round(laplace * 1024), 1024))
        found.append(tuple(norms))
    return tuple(found)


@dataclasses.dataclass(frozen=True)
class AloneChoice(ClipChoice):
    """The choice of the bounds, and before it whether counts stand alone. `alone` has the norms R for that by cap, in the order
    of `caps`; their cost is a standard deviation, and each is the bound of a Gaussian candidate, too."""

    alone: tuple[tuple[ClipCandidate, ...], ...] = ()
    norm_budget: Budget = Budget(1)
    alone_budget: Budget = Budget(1)

    name = "alone or kept"

    @property
    def budget(self) -> Budget:
        """What all cost, added up."""
        return Budget(sum_up((super().budget.epsilon, self.norm_budget.epsilon, self.alone_budget.epsilon)))

    @property
    def entries(self) -> int:
        """The length of the table: with the users above each norm R, before the number of items."""
        return super().entries + sum(map(len, self.alone))

    def user_table(self, shard: Shard) -> list[int]:
        """What the shard's users add."""
        *table, items = super().user_table(shard)
        for norms in self.alone:
            squared = squared_norms(limit_per_item(shard, norms[0].max_per_item))
            grid = [each.bound**2 for each in norms]
            table += tails(in_bins(grid, np.searchsorted(grid, squared)))
        return [*table, items]

    def alone_norm_exponents(self, table: Sequence[int], place: int = 0) -> list[Fraction]:
        """The exponents of the norms R under the cap of this place."""
        norms, first = self.alone[place], super().entries - 1 + sum(map(len, self.alone[:place]))
        losses = em_exponents(table[first : first + len(norms)], 1, self.norm_budget.epsilon_fraction)
        return [
            loss + log_weight(float(each.cost), tuning.LARGE_BOUND_PENALTY)
            for loss, each in zip(losses, norms, strict=True)
        ]

    def alone_exponents(self, table: Sequence[int], norm: ClipCandidate) -> list[Fraction]:
        """The exponents of counts that stand alone at this norm, and of counts that do not."""
        way = norm.bound, norm.max_per_item, "gaussian"
        place = next(n for n, c in enumerate(self.candidates) if (c.bound, c.max_per_item, c.noise) == way)
        losses = [-Fraction(table[place], PARTS), -table[-1] * norm.cost]
        most = self.most(self.candidates[place], table[-1])
        return em_exponents(losses, most, self.alone_budget.epsilon_fraction)

    def choose(self, table: Sequence[int], lanes: Lanes) -> ClipBound:
        """The private choice; counts that stand alone have no bound of totals."""
        place = self.cap_place(table, lanes)
        norm = self.alone[place][select(self.alone_norm_exponents(table, place), lanes)]
        if select(self.alone_exponents(table, norm), lanes) == 0:
            cap = self.caps[place]
            return ClipBound(norm.bound, cap, norm.noise, 0, table[-1], cap=cap)
        return self.choose_under(place, table, lanes)

    def parameters(self) -> Mapping[str, Any]:
        """What defines the choice, in canonical form."""
        parts = [repr(part.epsilon) for part in (self.norm_budget, self.alone_budget)]
        return {**super().parameters(), "alone": [[dataclasses.astuple(c) for c in each] for each in self.alone]} | {
            "parts of alone": parts
        }

    def details(self) -> Mapping[str, str | int | float]:
        """What a reader of the guarantee should know of it."""
        return {**super().details(), "for counts that stand alone": sum(map(len, self.alone))}
