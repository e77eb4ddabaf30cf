"""The selection that needs nothing but a budget: curve and items per user are chosen privately.

The candidates are the exact curve of one item, and curves in one round and in several for each other number K of items per
user. `scored` says what each is worth, and `limited` draws one. On the synthetic data, at epsilon 1 and delta 1e-8, no noise
named more. Guarantee: that of `curve_budget`, for the choice and the curve together. Proof: docs/proofs/partitions.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, check_budget, check_delta_for_names
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import arrow_type
from headcount.mechanisms.batches.user_shards import users_of
from headcount.mechanisms.calibration.expected_error import users_needed
from headcount.mechanisms.choice.protocol import Decision
from headcount.mechanisms.choice.run import choose_of, split_budget
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.partitions.candidates import StrategyCandidate
from headcount.mechanisms.partitions.curve_budget import CurveBudget, CurvePart
from headcount.mechanisms.partitions.limited import LimitedChoice
from headcount.mechanisms.partitions.rounds import (
    Round,
    check_rounds,
    curve_rounds,
    curve_sizes,
    last_round,
)
from headcount.mechanisms.partitions.scored import PartitionChoice
from headcount.mechanisms.partitions.select import (
    ChosenStrategy,
    Selection,
    named_in_rounds,
    select_partitions,
    selection_steps,
)
from headcount.mechanisms.randomness.keys import Release

#: The one curve that is made at the start of a release of which names are a part.
TYPICAL = ChosenStrategy("law", tuning.TYPICAL_ITEMS, 1)


def make_candidates(curves: CurveBudget, rounds: int = tuning.ROUNDS) -> tuple[StrategyCandidate, ...]:
    """All candidates of an automatic selection, in one round and in `rounds`, but for curves too large at this budget."""
    ways = [(items, number) for items in tuning.ITEMS_OF_SELECTION_ALONE for number in sorted({1, rounds})]
    return tuple(
        dataclasses.replace(StrategyCandidate.of("law", [last_round(curves, items, number)]), rounds=number)
        for items, number in [
            (1, 1),
            *(way for way in ways if curve_sizes(curves, *way) <= tuning.MOST_STATES_OF_CANDIDATE),
        ]
    )


def part_candidates(curves: CurvePart, rounds: int, one_item: bool) -> tuple[StrategyCandidate, ...]:
    """The same where names are a part of a release, with medians as they typically are; curves of `one_item` if asked for."""
    ways = [(items, number) for items in tuning.ITEMS_OF_SELECTION for number in (1, rounds)]
    ways += [(items, 1) for items in tuning.ITEMS_BETWEEN]
    ways = [way for way in sorted(ways) if curve_sizes(curves, *way) <= tuning.MOST_STATES_OF_CANDIDATE]
    middle = StrategyCandidate.of("law", [last_round(curves, TYPICAL.max_items, TYPICAL.rounds)]).threshold
    return tuple(
        StrategyCandidate(
            "law",
            items,
            round(middle * tuning.SELECTION_MEDIANS[items] * (tuning.SELECTION_MEDIAN_IN_ROUNDS if number > 1 else 1)),
            rounds=number,
        )
        for items, number in [*([(1, 1)] if one_item else []), *ways]
    )


@dataclasses.dataclass(frozen=True)
class DecidedSelection(Decision[ChosenStrategy]):
    """What was chosen, and the rounds that it leads to."""

    rounds: tuple[Round, ...]

    def summary(self) -> Mapping[str, Any]:
        """What a reader of the rows asks first: how many users an item needs."""
        return users_needed(each.plan for each in self.rounds)


@dataclasses.dataclass(frozen=True)
class AutoSelection:
    """A whole private selection as a value, like `Selection`, with a choice in place of strategy and items per user.

    `curves` have the whole budget, and what the choice and each of the candidates may cost of it.
    """

    curves: CurveBudget
    choice: LimitedChoice
    most_rounds: int
    item_type: type
    name = "SelectPartitions"

    def __post_init__(self) -> None:
        costs = self.choice.ranges
        if (costs, self.choice.relation) != (self.curves.choices, self.curves.relation):
            raise ParameterError(f"a choice for {costs!r} does not go with {self.curves!r}: make it anew")

    @property
    def relation(self) -> Relation:
        """What a neighbouring input is."""
        return self.curves.relation

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self._whole()

    def decided(self, chosen: ChosenStrategy) -> DecidedSelection:
        """All that follows from the choice."""
        made = curve_rounds(self.curves, chosen.max_items, chosen.rounds)
        steps = selection_steps(chosen.strategy, self.curves.alone, made)
        return DecidedSelection(chosen, self._whole(*steps), made)

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The named items of contribution batches, sorted, as the one column `item`."""
        return self.run_decided(batches, release, label)[0]

    def run_decided(
        self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None
    ) -> tuple[pa.RecordBatch, DecidedSelection]:
        """The same, and what was chosen."""
        label, users = self.name if label is None else label, users_of(batches)
        decided = self.decided(choose_of(users, self.choice, release, f"{label}/ChooseStrategy"))
        names = named_in_rounds(users, decided.rounds, release, f"{label}/NamedItems", self.item_type)
        return pa.RecordBatch.from_pydict({"item": names}), decided

    def _whole(self, *steps: MechanismStep) -> Guarantee:
        budget, costs = self.curves.budget, self.choice.budget
        words = {"by": "Renyi divergences of the choice and of the selection curve that is chosen"}
        whole = MechanismStep("all together", budget.epsilon, budget.delta, words)
        first = MechanismStep("choice of the strategy", costs.epsilon, costs.delta, self.choice.details())
        return Guarantee(budget.epsilon, budget.delta, self.relation, (whole, first, *steps))


def auto_partitions(
    budget: Budget,
    *,
    rounds: int = tuning.ROUNDS,
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
    rho: float = 0.0,
) -> AutoSelection:
    """The selection whose strategy and items per user are chosen for the most items, by draws of 3/200 and 1/20 of epsilon.

    With a `rho` it leaves so much of the budget to a zCDP mechanism that follows on the names (`curve_budget`).
    """
    arrow_type(item_type)
    check_budget(budget)
    check_delta_for_names(budget.delta)
    check_rounds(rounds)
    limit, costs = (
        split_budget(budget, share, "em")[0] for share in (tuning.NAMES_LIMIT_SHARE, tuning.NAMES_CHOICE_SHARE)
    )
    curves = CurveBudget(budget, relation, (limit.epsilon, costs.epsilon), rho)
    scored = PartitionChoice(costs, budget, relation, make_candidates(curves, rounds))
    return AutoSelection(curves, LimitedChoice(limit, scored), rounds, item_type)


def partitions(
    budget: Budget,
    *,
    strategy: str = "auto",
    max_items: int | None = None,
    rounds: int = tuning.ROUNDS,
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> Selection | AutoSelection:
    """The selection by a strategy that is given, which needs `max_items`, or by the one that "auto" takes: with as many items
    as are given, or chosen."""
    if strategy == "auto" and max_items is None:
        return auto_partitions(budget, rounds=rounds, relation=relation, item_type=item_type)
    strategy = "law" if strategy == "auto" else strategy
    if max_items is None:
        raise ParameterError(f"the strategy {strategy!r} needs max_items, how many items of a user count")
    return select_partitions(
        budget, strategy=strategy, max_items=max_items, rounds=rounds, relation=relation, item_type=item_type
    )
