"""Sampled histograms and heavy hitters, with items per user that are given or chosen privately first.

Guarantee: user-level (epsilon, delta)-differential privacy for the whole budget. A choice takes a tenth of epsilon, counting
users their share of it, and the sample gets the rest with all of delta. All look at the same data, so their costs add up
(basic composition). Proof: docs/proofs/sampled.md.

The choice and the number of users are drawn from the sample's name and what the choice is made of, and from nothing that is
done with the sample: so whatever reads one sample, with the same budget, relation and objective, reads one choice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Literal

import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, check_budget, check_parts
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.losses import Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import arrow_type
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.checks import check_share, check_whole
from headcount.mechanisms.choice.protocol import ChosenBound, Decision, choice_losses
from headcount.mechanisms.choice.run import choice_subkey, choose_bound, default_share
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.sampled.heavy_hitters import HITTERS, CountedHitters, hitters_of, users_noise
from headcount.mechanisms.sampled.histogram import (
    HISTOGRAM,
    MOST_USERS,
    ONE_SAMPLE,
    SampledHistogramMechanism,
    SampleKey,
    sampled_items,
)
from headcount.mechanisms.sampled.items_choice import ItemsChoice
from headcount.mechanisms.sampled.plan import Objective, calibrate_sample

#: The label under which the items per user are chosen, from the key of the choice.
CHOSEN = "ChooseItems"

MaxItems = int | Literal["auto"]


@dataclasses.dataclass(frozen=True)
class DecidedSample(Decision[ChosenBound]):
    """The items per user that were chosen, and the sample that they lead to."""

    sample: SampledHistogramMechanism

    def description(self) -> str:
        """What was chosen, in one line."""
        items = self.sample.max_items
        return f"chosen: each user counts for {'one' if items == 1 else f'at most {items:,}'} of its distinct items"

    def summary(self) -> Mapping[str, Any]:
        """About how many users an item needs to be shown."""
        return self.sample.summary()

    def report_fields(self) -> Mapping[str, Any]:
        """What was chosen, as a part of a report."""
        plan = self.sample.plan
        chosen = {"max_items": self.sample.max_items, "rate": float(plan.rate), "threshold": plan.threshold}
        return {"chosen": chosen | {"shown with probability 0.5 from": plan.w50, "with 0.95 from": plan.w95}}


@dataclasses.dataclass(frozen=True)
class AutoSampled:
    """A sampled histogram as a value, with a choice in place of the items per user; or heavy hitters of it, if there is `phi`.

    `users` is then their number, or they are counted with this noise. Relation and the sample's budget are those of the choice.
    """

    name: str
    budget: Budget
    choice: ItemsChoice
    item_type: type
    phi: Fraction | None = None
    users: int | NoisePlan | None = None

    def __post_init__(self) -> None:
        counted = [Budget(self.users.epsilon)] if isinstance(self.users, NoisePlan) else []
        check_parts(self.budget, self.choice.budget, *counted, self.choice.release_budget)

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        rest = self.choice.release_budget
        details = {"calibrated for": "the items per user that are chosen"}
        steps = [MechanismStep("sample and threshold", rest.epsilon, rest.delta, details)]
        if isinstance(self.users, NoisePlan):
            steps.append(self.users.step("number of users"))
        return self._whole(*steps)

    def decided(self, chosen: ChosenBound) -> DecidedSample:
        """All that follows from the choice."""
        choice = self.choice
        sample = sampled_items(choice.release_budget, chosen.bound, choice.objective, choice.relation, self.item_type)
        if self.phi is not None and self.users is not None:
            sample = hitters_of(sample, self.phi, self.users, self.budget.epsilon)
        return DecidedSample(chosen, self._whole(*sample.guarantee().mechanisms), sample)

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows item, count, noise_stddev, low, high, sampled, sorted by item, of contribution batches; `label`
        names the sample."""
        return self.run_decided(batches, release, label)[0]

    def run_decided(
        self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None
    ) -> tuple[pa.RecordBatch, DecidedSample]:
        """The same, and what was chosen."""
        batches, key = list(batches), SampleKey(self, release, label or ONE_SAMPLE).choices
        decided = self.decided(choose_bound(batches, self.choice, key, CHOSEN))
        sample = decided.sample
        users = sample.number(batches, key) if isinstance(sample, CountedHitters) else None
        return sample.reported(sample.shown(batches, release, label), users), decided

    def subkey(self, key: bytes, release_id: str, sample: str) -> bytes:
        """What the choice, and the number of users, are drawn from: the sample's name, and all that defines the choice."""
        return choice_subkey(key, release_id, f"{CHOSEN} of {sample}", self.choice)

    def _whole(self, *steps: MechanismStep) -> Guarantee:
        costs = self.choice.budget
        first = MechanismStep("choice of the items per user", costs.epsilon, costs.delta, self.choice.details())
        rest = self.choice.release_budget
        losses = choice_losses(self.choice) + Losses.of_promise(
            rest.epsilon, rest.delta
        )  # however many items are chosen
        if isinstance(self.users, NoisePlan):
            losses += self.users.losses()
        return Guarantee(self.budget.epsilon, self.budget.delta, self.choice.relation, (first, *steps), losses=losses)


def sampled_histogram(
    budget: Budget,
    *,
    max_items: MaxItems = "auto",
    objective: Objective = "w95",
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> SampledHistogramMechanism | AutoSampled:
    """The number of users of each item, for items that come from the data, without noise.

    A user counts once for each of at most `max_items` of its distinct items, a uniform choice. "auto" chooses how many, by a
    tenth of epsilon.
    """
    if max_items != "auto":
        return sampled_items(budget, max_items, objective, relation, item_type)
    costs, _, rest = _split(budget, True, Fraction(0))
    assert costs is not None
    return AutoSampled(HISTOGRAM, budget, _choice(costs, rest, objective, relation, item_type), item_type)


def heavy_hitters(
    budget: Budget,
    phi: float,
    *,
    users: int | None = None,
    max_items: MaxItems = "auto",
    objective: Objective = "w95",
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
    users_share: float | None = None,
) -> SampledHistogramMechanism | AutoSampled:
    """The items that a share `phi` of all `users` have, by their sampled number: a higher threshold on the sample that
    `sampled_histogram` has for the same budget, items, objective and relation.

    So they and any number of shares together are one release, if release and sample are the same. `users` is public, or None:
    then users are counted, by `users_share` of epsilon (default: a tenth), and the sample is that of the rest of the budget.
    The exact number of the data's users is not public.
    """
    share, own, known = check_share("phi", phi, "share"), Fraction(0), users
    if users is not None:
        known = check_whole("users", users, 1, MOST_USERS)
        if users_share is not None:
            raise ParameterError(f"users_share is of no use where users is given, got {users_share!r}: leave one out")
    elif Relation.parse(relation) is Relation.REPLACE:
        raise ParameterError(
            "replacing a user leaves the number of users as it is, so that it must be public: give users, the number of all "
            "users"
        )
    else:
        own = check_share("users_share", tuning.USERS_SHARE if users_share is None else users_share, "share")
    costs, counted, rest = _split(budget, max_items == "auto", own)
    everybody = known if counted is None else users_noise(counted)
    assert everybody is not None
    if max_items != "auto":
        sample = sampled_items(rest, max_items, objective, relation, item_type)
        return hitters_of(sample, share, everybody, budget.epsilon)
    assert costs is not None
    choice = _choice(costs, rest, objective, relation, item_type)
    return AutoSampled(HITTERS, budget, choice, item_type, share, everybody)


def _split(budget: Budget, choosing: bool, users: Fraction) -> tuple[Budget | None, Budget | None, Budget]:
    """What a choice may cost, what counting users may, and what is left for the sample, which gets all of delta."""
    check_budget(budget)
    shares = {"choice": default_share("error") if choosing else Fraction(0), "users": users}
    rest = 1 - sum(shares.values())
    if rest <= 0:
        raise ParameterError(
            f"users_share must leave some of epsilon for the sample, beside {float(shares['choice'])} for the choice of the "
            f"items per user, got {float(users)}: give less, or max_items",
            "users_share",
        )
    weights = {name: float(share) for name, share in (shares | {"sample": rest}).items() if share}
    delta = tuple(float(name == "sample") for name in weights)
    parts = dict(zip(weights, budget.split(*weights.values(), delta=delta), strict=True))
    return parts.get("choice"), parts.get("users"), parts["sample"]


def _choice(costs: Budget, rest: Budget, objective: Objective, relation: Relation, item_type: type) -> ItemsChoice:
    """The choice for a sample of the rest of the budget."""
    arrow_type(item_type)
    calibrate_sample(rest, objective)  # refuses what no sample can have, before anything runs
    return ItemsChoice(costs, rest, Relation.parse(relation), objective=objective)
