"""Strategy and items per user of a selection as one private choice: the budget is all that has to be given.

For a candidate with K items per user and threshold t, and H the sum that an item is expected to have in a round, the loss is
minus a soft number of named items. That is the sum over items of clip((H - t/2)/t, 0, 1). A user of d distinct items keeps each
with probability min(1, K/d), and so adds to the H of each of them

    f = min(1, K/d)                         where items count one:     together min(d, K)
    f = min(1, K/d) / sqrt(min(d, K))       where they are weighed:    together at most sqrt(K)

Guarantee: epsilon-differential privacy, delta 0, by the generalised exponential mechanism. Slopes in H lie in [-1/t, 0], so one
user more lowers each loss by at most D = K/t, or sqrt(K)/t, and raises none: the one-sided form. Replacing a user is the
difference of two such moves. That f keeps these sums exactly is the work of `expected_weights`, which rounds down.

Candidates. Of the strategies that count one, that with the lowest threshold at each K: they differ in nothing else. Weights of
1/d are none: they give every K the same H, and the lowest threshold at K = 1, where they count one. Weights of 1/sqrt(d) stand
for sips, which names half as much again in its rounds where much is named, and a fifth less where little is. It has no soft
count of its own, as that would depend on what its first rounds name; so it gets four fifths of the soft count of one round.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headcount.mechanisms.accounting import thresholds
from headcount.mechanisms.accounting.budget import Budget, check_budget, check_delta_for_names, check_parts
from headcount.mechanisms.accounting.calibration import gaussian_scale
from headcount.mechanisms.accounting.expected_error import users_needed
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import arrow_type
from headcount.mechanisms.batches.shards import Shard, one_shard
from headcount.mechanisms.choice.exponential import gem_exponents, select
from headcount.mechanisms.choice.run import choose_bound, default_share, split_budget
from headcount.mechanisms.partitions.expected_weights import FRACTION_BITS, ItemWeights, merged_weights, split_weights
from headcount.mechanisms.partitions.rounds import (
    SIPS_ROUNDS,
    STRATEGIES,
    Round,
    check_rounds,
    rounds_of,
    weighted_bound,
)
from headcount.mechanisms.partitions.select import in_items, named_in_rounds, selection_steps
from headcount.mechanisms.partitions.weights import gaussian_hiding_threshold
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.randomness.lanes import Lanes

# No part of any proof: the numbers of items per user that are looked at.
MAX_ITEMS = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000)

# Nor this: the part of the soft count of one round that sips gets.
SIPS_WORTH = Fraction(4, 5)

# Thresholds are multiples of 2**-10, and sums of 2**-40: a share of 2**-30 times a root of 2**-10.
_THRESHOLD_BITS = 10
_PLAIN = 1 << 20  # thresholds below this are compared in 64 bits


class ChosenStrategy(NamedTuple):
    """The strategy and the items per user that were chosen; public, since the choice is paid for."""

    strategy: str
    max_items: int

    def words(self) -> str:
        """The choice in one line."""
        return f"chosen: {self.strategy} with at most {in_items(self.max_items)} of each user"

    def sections(self) -> Mapping[str, Any]:
        """The choice as a part of a report."""
        return {"chosen": self._asdict()}


@dataclasses.dataclass(frozen=True)
class StrategyCandidate:
    """One way to name items, with the threshold of its one-round form in units of 2**-10."""

    strategy: str
    items: int
    threshold: int

    @property
    def weighed(self) -> bool:
        """Whether items weigh 1/sqrt(d), or count one."""
        return STRATEGIES[self.strategy] == "l2"

    @property
    def worth(self) -> Fraction:
        """What its soft count is multiplied by."""
        return SIPS_WORTH if self.weighed else Fraction(1)


@dataclasses.dataclass(frozen=True)
class PartitionChoice:
    """The choice of strategy and items per user for a selection with `release_budget`."""

    budget: Budget
    release_budget: Budget
    relation: Relation

    name = "partitions"
    by_item = True
    draws = 1

    @cached_property
    def candidates(self) -> tuple[StrategyCandidate, ...]:
        """What can be chosen."""
        return make_candidates(self.release_budget, self.relation)

    @property
    def ladder(self) -> tuple[int, ...]:
        """The numbers of items per user among the candidates, ascending."""
        return tuple(sorted({candidate.items for candidate in self.candidates}))

    @property
    def entries(self) -> int:
        """The length of the table: one for each candidate."""
        return len(self.candidates)

    def user_table(self, shard: Shard) -> list[int]:
        """Zeros: users add to the table by their items alone."""
        return [0] * self.entries

    def item_chunks(self, shard: Shard, shards: int) -> Iterator[tuple[int, bytes]]:
        """What the users of a shard add to their items, by item shard."""
        return split_weights(shard, self.ladder, shards)

    def item_table(self, chunks: Iterable[bytes]) -> list[int]:
        """Minus the loss of each candidate over the items of one shard, in `unit`s."""
        rungs = [self.ladder.index(candidate.items) for candidate in self.candidates]
        # An item of n users has sums of at most n, and adds nothing where these are below half of the threshold.
        least = -(-min(candidate.threshold for candidate in self.candidates) // (2 << _THRESHOLD_BITS))
        table = [0] * self.entries
        for sums in merged_weights(chunks, self.ladder, least):
            for number, (rung, candidate) in enumerate(zip(rungs, self.candidates, strict=True)):
                table[number] += _soft_count(candidate, sums, rung)
        return table

    def unit(self, candidate: StrategyCandidate) -> Fraction:
        """What one stands for in the table."""
        return candidate.worth / (2 * candidate.threshold << FRACTION_BITS)

    def sensitivity(self, candidate: StrategyCandidate) -> Fraction:
        """By how much one user can change the loss."""
        squared = candidate.items if candidate.weighed else candidate.items**2
        most = math.isqrt((squared << 2 * _THRESHOLD_BITS) - 1) + 1  # rounded up
        return candidate.worth * most / candidate.threshold

    def exponents(self, table: Sequence[int]) -> list[Fraction]:
        """The exponents of the candidates: each is chosen with a probability proportional to exp(-exponent)."""
        losses = [-score * self.unit(candidate) for score, candidate in zip(table, self.candidates, strict=True)]
        sensitivities = [self.sensitivity(candidate) for candidate in self.candidates]
        one_sided = self.relation is Relation.ADD_REMOVE
        return gem_exponents(losses, sensitivities, self.budget.epsilon_fraction, one_sided)

    def choose(self, table: Sequence[int], lanes: Lanes) -> ChosenStrategy:
        """The private choice."""
        candidate = self.candidates[select(self.exponents(table), lanes)]
        return ChosenStrategy(candidate.strategy, candidate.items)

    def ends(self) -> tuple[ChosenStrategy, ChosenStrategy]:
        """The choices with the fewest and the most items per user."""
        ranked = sorted(self.candidates, key=lambda candidate: (candidate.items, candidate.weighed))
        fewest, most = (ChosenStrategy(candidate.strategy, candidate.items) for candidate in (ranked[0], ranked[-1]))
        return fewest, most

    def parameters(self) -> Mapping[str, Any]:
        """What defines the choice, in canonical form."""
        return {"candidates": [dataclasses.astuple(candidate) for candidate in self.candidates]}

    def details(self) -> Mapping[str, str | int | float]:
        """What a reader of the guarantee should know of it."""
        return {
            "strategies": ", ".join(sorted({candidate.strategy for candidate in self.candidates})),
            "items per user": f"{self.ladder[0]} to {self.ladder[-1]}",
            "candidates": self.entries,
        }


def make_candidates(budget: Budget, relation: Relation) -> tuple[StrategyCandidate, ...]:
    """All candidates, for a selection with this budget.

    Thresholds are public; those of Gaussian noise are estimates, of the threshold that hides own items alone. A choice is
    private whatever they are.
    """
    found = []
    for items in MAX_ITEMS:
        counting = {name: _threshold(budget, name, items, relation) for name in ("truncated-geometric", "laplace")}
        counting["gaussian"] = _gaussian_threshold(budget, "gaussian", items, relation)
        lowest = min(counting, key=lambda name: counting[name])
        found.append(StrategyCandidate(lowest, items, counting[lowest]))
        if items > 1:
            found.append(
                StrategyCandidate("sips", items, _gaussian_threshold(budget, "weighted-gaussian", items, relation))
            )
    return tuple(found)


def _threshold(budget: Budget, strategy: str, items: int, relation: Relation) -> int:
    (only,) = rounds_of(budget, strategy, items, SIPS_ROUNDS, relation)
    assert only.plan.threshold is not None
    # Whole noise reaches a whole threshold as often as continuous noise one that is lower by half a step.
    return math.ceil(Fraction(2 * only.plan.threshold - 1, 2 << only.plan.grid) * 2**_THRESHOLD_BITS)


def _gaussian_threshold(budget: Budget, strategy: str, items: int, relation: Relation) -> int:
    weights = STRATEGIES[strategy]
    squared = items if weights == "count" else 1
    grid, scale = gaussian_scale(budget, thresholds.GAUSSIAN_SHARE, squared, weighted_bound(items, weights), relation)
    rate = -math.log1p(-budget.delta)
    real = gaussian_hiding_threshold(items, weights, float(scale / 2**grid), rate)
    return math.ceil(real * 2**_THRESHOLD_BITS)


def _soft_count(candidate: StrategyCandidate, sums: ItemWeights, rung: int) -> int:
    """The sum over items of clip(2H - t, 0, 2t), in units of 2**-40.

    H = below + slope * beyond: users up to the rung count as they are, or by their roots. Of those beyond, each item is kept
    with probability K/d and then counts 1, or 1/sqrt(K), so that the share 1/d is multiplied by K, or by sqrt(K).
    """
    beyond = sums.shares[:, -1] - sums.shares[:, rung]
    if candidate.weighed:
        below, slope = sums.roots[:, rung], math.isqrt(candidate.items << 2 * _THRESHOLD_BITS)
    else:
        below, slope = sums.users[:, rung] << FRACTION_BITS, candidate.items << _THRESHOLD_BITS
    t = candidate.threshold << FRACTION_BITS
    # Floats tell what is far from the ramp on either side; the rest is computed exactly.
    about = below * 2.0**_THRESHOLD_BITS + beyond * float(slope)
    full = about > 1.6 * t
    ramp = np.flatnonzero((about > 0.4 * t) & ~full)
    low, high = below[ramp], beyond[ramp]
    if candidate.threshold >= _PLAIN << _THRESHOLD_BITS:
        low, high = low.astype(object), high.astype(object)
    above = 2 * ((low << _THRESHOLD_BITS) + high * slope) - t
    shown = np.clip(above, 0, 2 * t)
    # In two halves, since a sum over items does not fit 64 bits.
    return 2 * t * int(np.count_nonzero(full)) + (int((shown >> 32).sum()) << 32) + int((shown & 0xFFFFFFFF).sum())


@dataclasses.dataclass(frozen=True)
class DecidedSelection:
    """What was chosen, the rounds that it leads to, and the whole guarantee in its numbers. All of it is public."""

    chosen: ChosenStrategy
    rounds: tuple[Round, ...]
    guarantee: Guarantee

    def words(self) -> str:
        """What was chosen, in one line."""
        return self.chosen.words()

    def sections(self) -> Mapping[str, Any]:
        """What was chosen, as a part of a report."""
        return self.chosen.sections()

    def told(self) -> Mapping[str, Any]:
        """What a reader of the rows asks first: how many users an item needs."""
        return users_needed(each.plan for each in self.rounds)


@dataclasses.dataclass(frozen=True)
class AutoSelection:
    """A whole private selection as a value, like `Selection`, with a choice in place of strategy and items per user.

    What it takes its relation and the budget of its rounds from is the choice, so that these cannot differ.
    """

    budget: Budget
    choice: PartitionChoice
    sips_rounds: int
    item_type: type
    name = "SelectPartitions"

    def __post_init__(self) -> None:
        check_parts(self.budget, self.choice.budget, self.choice.release_budget)

    @property
    def relation(self) -> Relation:
        """What a neighbouring input is."""
        return self.choice.relation

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        rest = self.choice.release_budget
        details = {"calibrated for": "the strategy that is chosen"}
        return self._whole(MechanismStep("noise and threshold", rest.epsilon, rest.delta, details))

    def decided(self, chosen: ChosenStrategy) -> DecidedSelection:
        """All that follows from the choice."""
        rest = self.choice.release_budget
        rounds = self.sips_rounds if chosen.strategy == "sips" else SIPS_ROUNDS
        made = rounds_of(rest, chosen.strategy, chosen.max_items, rounds, self.relation)
        return DecidedSelection(chosen, made, self._whole(*selection_steps(chosen.strategy, rest, made)))

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The named items of contribution batches, sorted, as the one column `item`."""
        label, batches = self.name if label is None else label, list(batches)
        chosen = choose_bound(batches, self.choice, release, f"{label}/ChooseStrategy")
        rounds = self.decided(chosen).rounds
        names = named_in_rounds(one_shard(batches), rounds, release, f"{label}/NamedItems", self.item_type)
        return pa.RecordBatch.from_pydict({"item": names})

    def _whole(self, *steps: MechanismStep) -> Guarantee:
        costs = self.choice.budget
        first = MechanismStep("choice of the strategy", costs.epsilon, costs.delta, self.choice.details())
        return Guarantee(self.budget.epsilon, self.budget.delta, self.relation, (first, *steps))


def auto_partitions(
    budget: Budget,
    *,
    rounds: int = SIPS_ROUNDS,
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> AutoSelection:
    """The selection whose strategy and items per user are chosen for the most items, by a twentieth of epsilon."""
    arrow_type(item_type)
    check_budget(budget)
    check_delta_for_names(budget.delta)
    check_rounds(rounds)
    costs, rest = split_budget(budget, default_share("items"), "gem")
    return AutoSelection(budget, PartitionChoice(costs, rest, relation), rounds, item_type)
