"""A choice of a bound that is released by itself, for a release that comes later and has a budget of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import Domain, only_domain, public_domain
from headcount.mechanisms.bound_choice.by_name.methods import choose_public_domain, choose_unknown_domain
from headcount.mechanisms.choice.protocol import Choice, ChosenBound, Decision, choice_losses
from headcount.mechanisms.choice.run import choose_bound
from headcount.mechanisms.randomness.keys import Release


@dataclasses.dataclass(frozen=True)
class StandaloneChoice:
    """The choice as a value: of a bound for the items of a public `domain`, or for those that come from the data."""

    choice: Choice[ChosenBound]
    domain: Domain | None
    name = "ChooseBound"

    def guarantee(self) -> Guarantee:
        """What is promised of the choice alone."""
        budget = self.choice.budget
        step = MechanismStep("choice of the bound", budget.epsilon, budget.delta, self.choice.details())
        return Guarantee(budget.epsilon, budget.delta, self.choice.relation, (step,), losses=choice_losses(self.choice))

    def decided(self, chosen: ChosenBound) -> Decision[ChosenBound]:
        """The choice with its guarantee, for a report."""
        return Decision(chosen, self.guarantee())

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The choice on contribution batches, as the one row of `chosen_row`."""
        return self.run_decided(batches, release, label)[0]

    def run_decided(
        self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None
    ) -> tuple[pa.RecordBatch, Decision[ChosenBound]]:
        """The same, and the choice itself."""
        if self.domain is not None:
            batches = [only_domain(batch, self.domain) for batch in batches]
        chosen = choose_bound(batches, self.choice, release, self.name if label is None else label)
        return chosen_row(chosen), self.decided(chosen)


def chosen_row(chosen: ChosenBound) -> pa.RecordBatch:
    """A choice as the one row of an output: bound, max_per_item and noise."""
    return pa.RecordBatch.from_pylist([chosen._asdict()])


def standalone_choice(
    budget: Budget,
    release_budget: Budget,
    *,
    domain: Iterable[str] | Iterable[int] | None = None,
    method: str = "auto",
    objective: str = "error",
    noise: str = "auto",
    max_per_item: int | None = None,
    kappa: float = 2,
    sparsity: int | None = None,
    users: int = tuning.GUESSED_USERS,
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> StandaloneChoice:
    """The choice of a bound for a release of `release_budget`, with items of a public `domain` or of the data."""
    if domain is None:
        choice = choose_unknown_domain(budget, release_budget, relation, method, objective, noise, max_per_item, kappa)
        return StandaloneChoice(choice, None)
    names = public_domain(domain, item_type)
    choice = choose_public_domain(
        budget, release_budget, relation, len(names), noise, method, sparsity, users, max_per_item
    )
    return StandaloneChoice(choice, names)
