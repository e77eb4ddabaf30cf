"""A private histogram whose bound is chosen privately first: the user gives a budget, and nothing else.

Guarantee: user-level (epsilon, delta)-differential privacy for the whole budget. The choice takes a stated share of it, and
the release gets the rest; both look at the same data, so their costs add up (basic composition).
Proof: docs/proofs/histogram.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget, Zcdp, check_parts
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.losses import Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import Domain, arrow_type, only_domain, public_domain
from headcount.mechanisms.bound_choice.by_name.methods import choose_public_domain, choose_unknown_domain
from headcount.mechanisms.bounding.clipping import LEAST_STEPS
from headcount.mechanisms.bounding.steps import Step
from headcount.mechanisms.calibration.expected_error import correlated, users_needed
from headcount.mechanisms.calibration.noise import (
    any_bound_losses,
    calibrate_public_domain,
    calibrate_unknown_domain,
)
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.choice.protocol import Choice, ChosenBound, Decision, check_relation, choice_losses
from headcount.mechanisms.choice.run import choose_bound, default_share, split_budget
from headcount.mechanisms.counting.noisy import mechanism_steps, promised
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.fixed import (
    NAME,
    HistogramMechanism,
    public_domain_steps,
    unknown_domain_steps,
)
from headcount.mechanisms.randomness.keys import Release


@dataclasses.dataclass(frozen=True)
class Decided(Decision[ChosenBound]):
    """What was chosen, and the noise that it leads to."""

    plan: NoisePlan

    def summary(self) -> Mapping[str, Any]:
        """What a reader of the rows asks first: how many users an item needs."""
        return users_needed([self.plan]) | correlated(self.plan)


@dataclasses.dataclass(frozen=True)
class AutoRelease:
    """A choice, and the release that follows it: both under one relation, and together for no more than the budget.

    `items` is the size of a public domain, or None where it is not told.
    """

    budget: Budget
    choice: Choice[ChosenBound]
    release_budget: Budget
    relation: Relation
    public: bool
    items: int | None = None

    def __post_init__(self) -> None:
        check_relation(self.choice, self.relation)
        check_parts(self.budget, self.choice.budget, self.release_budget)

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        what = "noise" if self.public else "noise and threshold"
        details = {"calibrated for": "the bound that is chosen"}
        return self._whole(MechanismStep(what, self.release_budget.epsilon, self.release_budget.delta, details))

    def steps(self, chosen: ChosenBound) -> tuple[Step, ...]:
        """The bounding at the chosen bound."""
        if self.public:
            return public_domain_steps(chosen.bound, chosen.noise, chosen.max_per_item or None)
        return unknown_domain_steps(chosen.bound, chosen.max_per_item or None)

    def decided(self, chosen: ChosenBound) -> Decided:
        """All that follows from the choice."""
        bound = promised(self.steps(chosen))
        if self.public:
            plan = calibrate_public_domain(self.release_budget, bound, self.relation, chosen.noise, self.items)
        else:
            plan = calibrate_unknown_domain(self.release_budget, bound, self.relation, chosen.noise)
        spent = (choice_losses(self.choice) + plan.losses()).zcdp()
        return Decided(chosen, self._whole(*mechanism_steps(plan), spent=spent), plan)

    def _whole(self, *steps: MechanismStep, spent: Zcdp | None = None) -> Guarantee:
        choice, budget = self.choice, self.budget
        first = MechanismStep("choice of the bound", choice.budget.epsilon, choice.budget.delta, choice.details())
        losses = choice_losses(choice) + self._losses()
        return Guarantee(budget.epsilon, budget.delta, self.relation, (first, *steps), losses=losses, spent=spent)

    def _losses(self) -> Losses:
        """Those of the release, whichever bound and noise are chosen."""
        least, _ = self.choice.ends()
        kinds = ("laplace", "gaussian") if least.noise == "auto" else (least.noise,)
        steps = LEAST_STEPS if self.public else 0
        users = self.relation.apart(self.public and self.items == 1)
        return Losses.one_of(*(any_bound_losses(self.release_budget, users, kind, steps) for kind in kinds))


@dataclasses.dataclass(frozen=True)
class AutoHistogramMechanism:
    """A whole private histogram as a value, like `HistogramMechanism`, with a choice in place of the bound."""

    name: str
    auto: AutoRelease
    domain: Domain | None
    item_type: type

    def __post_init__(self) -> None:
        if self.auto.public != (self.domain is not None):
            raise ParameterError(
                "noise without a threshold is for a public domain, and with one for items that come from the data: got "
                f"public = {self.auto.public} {'without' if self.domain is None else 'with'} a domain"
            )

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self.auto.guarantee()

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows item, bounded_count, noise_stddev, low, high, sorted by item, of contribution batches."""
        return self.run_decided(batches, release, label)[0]

    def run_decided(
        self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None
    ) -> tuple[pa.RecordBatch, Decided]:
        """The same, and what was chosen."""
        label, batches = self.name if label is None else label, list(batches)
        held = batches if self.domain is None else [only_domain(batch, self.domain) for batch in batches]
        decided = self.auto.decided(choose_bound(held, self.auto.choice, release, f"{label}/ChooseBound"))
        steps = self.auto.steps(decided.chosen)
        made = HistogramMechanism(self.name, steps, decided.plan, self.domain, self.item_type)
        return made.run(batches, release, label), decided


def auto_unbounded_histogram(
    budget: Budget,
    *,
    objective: str = "error",
    method: str = "auto",
    share: float | Fraction | None = None,
    max_per_item: int | None = None,
    noise: str = "auto",
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> AutoHistogramMechanism:
    """Algorithm 3 with a bound, and unless given a cap on one item and the noise, that are chosen for the objective."""
    costs, rest = split_budget(budget, default_share(objective) if share is None else share, method)
    choice = choose_unknown_domain(costs, rest, relation, method, objective, noise, max_per_item)
    arrow_type(item_type)
    return AutoHistogramMechanism(NAME, AutoRelease(budget, choice, rest, relation, False), None, item_type)


def auto_bounded_histogram(
    budget: Budget,
    domain: Iterable[str] | Iterable[int],
    *,
    method: str = "auto",
    share: float | Fraction | None = None,
    noise: str = "laplace",
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
    max_per_item: int | None = None,
) -> AutoHistogramMechanism:
    """Algorithm 1 with a bound that is chosen for the lowest error, for counts that are cut to `max_per_item` first."""
    names = public_domain(domain, item_type)
    costs, rest = split_budget(budget, default_share("error") if share is None else share, method)
    choice = choose_public_domain(costs, rest, relation, len(names), noise, method, max_per_item=max_per_item)
    auto = AutoRelease(budget, choice, rest, relation, True, len(names))
    return AutoHistogramMechanism(NAME, auto, names, item_type)
