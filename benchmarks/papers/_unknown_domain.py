"""The paper on bounding contribution, section 7.2: Table 1 and Figure 3, the unknown domain."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
from _quality import bounded_sums, item_totals, plan_for, seed, table_of, worth

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bound_choice.by_name.methods import choose_unknown_domain
from headcount.mechanisms.bound_choice.expected_sums import FRACTION_BITS, CandidateGrid, merged_sums, split_sums
from headcount.mechanisms.bound_choice.papers.volume import VolumeChoice
from headcount.mechanisms.choice.exponential import probabilities

GRID = tuple(range(10, 1501, 10))
CHOICE = Budget(0.1)
RELATION = Relation.ADD_REMOVE


@dataclasses.dataclass(frozen=True)
class Curve:
    """For each bound of the paper's grid: the relative error, and V in the same units."""

    bounds: tuple[int, ...]
    error: np.ndarray
    volume: np.ndarray

    @property
    def ratio(self) -> np.ndarray:
        """How far V lies above the error."""
        return self.volume / self.error


@dataclasses.dataclass(frozen=True)
class Auto:
    """The joint choice over all its candidates: relative errors, in expectation over its draw and of the best of them."""

    error: float
    best: float
    likeliest: str

    @property
    def ratio(self) -> float:
        """How far it is from the best in hindsight."""
        return self.error / self.best


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of Table 1: relative errors; `private` are Algorithm 4 by mechanism and kappa.

    `best` is over the paper's grid and both quantiles.
    """

    best: float
    private: dict[str, float]
    median: float
    quantile: float
    curve: Curve
    auto: Auto | None = None


def measure(shards: Sequence[Shard], users: int, joint: bool = True) -> Row:
    """The columns of the table at the paper's budgets, (1, 1/2n) for the release and 0.1 for the choice.

    `users` is n, which counts those without events too. Without `joint` only the paper's own columns are filled.
    """
    totals = np.concatenate([shard.totals() for shard in shards])
    events, most = int(totals.sum()), int(totals.max())
    release = Budget(1.0, 1 / (2 * users))
    everybody = np.append(totals, np.zeros(users - len(totals), dtype=np.int64))
    half, nine = (max(1, round(float(np.quantile(everybody, q)))) for q in (0.5, 0.9))
    errors = expected_errors(shards, {*GRID, half, nine}, release, most)
    error = np.array([errors[bound] for bound in GRID])
    private, tables = {}, {}
    for kappa in (2, 4) if joint else (2,):
        for name in ("em", "gem"):
            choice = VolumeChoice(CHOICE, release, RELATION, name, Fraction(kappa), GRID)
            if kappa not in tables:
                tables[kappa] = table_of(choice, shards)
            private[f"{name} {kappa}"] = float(probabilities(choice.exponents(tables[kappa])) @ error)
    volume = 2 - np.array([score / (events << FRACTION_BITS) for score in tables[2]])
    row = Row(min(errors.values()), private, errors[half], errors[nine], Curve(GRID, error, volume))
    return dataclasses.replace(row, auto=measure_auto(shards, release, most)) if joint else row


def measure_auto(shards: Sequence[Shard], release: Budget, most: int) -> Auto:
    """The joint choice, with samples that the shipped step draws."""
    choice = choose_unknown_domain(CHOICE, release, RELATION)
    chances = probabilities(choice.exponents(table_of(choice, shards)))
    true, errors = item_totals(shards), {}
    for bound, group in itertools.groupby(choice.candidates, key=lambda c: c.bound):
        own = list(group)
        caps = list(dict.fromkeys(c.cap for c in own))
        sums = dict(bounded_sums(shards, min(bound, most), caps, seed(0)))
        for c in own:
            plan = plan_for(release, c.bound, c.cap, c.noise, RELATION)
            errors[c] = worth(plan, true, sums[c.cap]).error / true.sum()
    top = int(np.argmax(chances))
    c = choice.candidates[top]
    likeliest = f"({c.bound}, {c.cap or '-'}, {c.noise}) {chances[top]:.2f}"
    expected = sum(chance * errors[c] for chance, c in zip(chances.tolist(), choice.candidates, strict=True))
    return Auto(expected, min(errors.values()), likeliest)


def expected_errors(shards: Sequence[Shard], bounds: Iterable[int], release: Budget, most: int) -> dict[int, float]:
    """The relative error at each bound with Laplace noise and no cap, by the expected sums of the items."""
    bounds = sorted(bounds)
    beyond = max(most, bounds[-1]) + 1  # here the sums are the true ones
    grid = CandidateGrid((*bounds, beyond))
    chunks = [chunk for shard in shards for _, chunk in split_sums(shard, grid, 1)]
    parts = merged_sums(chunks, grid, grid.least(0))
    sums = np.concatenate([part.whole + part.fraction / 2.0**FRACTION_BITS for part in parts], axis=1)
    found = {}
    for place, bound in enumerate(bounds):
        plan = plan_for(release, bound, None, "laplace", RELATION)
        found[bound] = worth(plan, sums[-1], sums[place]).error / float(sums[-1].sum())
    return found
