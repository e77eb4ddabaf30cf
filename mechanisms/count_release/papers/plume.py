"""Plume (Amin, Gillenwater, Joseph, Kulesza, Vassilvitskii, 2022): name items first, then count the named ones.

Items are named by rounds of selection (`partitions`), in which each user has a part with `max_items` of its items. Then
all rows of the named items come back, each user counts for `max_counted_items` of them, a uniform choice, and every
named item gets the number of its users with Gaussian noise. Naming takes the share alpha of rho, and all of delta.

Guarantee: delta-approximate rho-zCDP for the relation, per user, and therefore the (epsilon, delta) that `guarantee()` states.
Proof: the named items are delta-approximate (alpha rho)-zCDP. Given them, one user moves m' = max_counted_items counts by at
most 1 each (2m' if a user is replaced, half of them down). Discrete Gaussian noise of sigma on the integers costs the squared
distance over 2 sigma^2 (Canonne, Kamath, Steinke 2020): the rest of rho. Both add up.
Proof: docs/proofs/count-release.md.

What differs from Rogers's account of it: noise is for the l2 distance sqrt(m') and not m', which makes 632 of 44.7 at m' = 200
and rho = 0.1. Every named item gets a noisy count, also if no user's sample has it, since leaving it out would tell of those
users. And the bounds are given, or chosen privately by a share of rho, never percentiles of the data.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, Zcdp, check_parts, check_promise, zcdp_for_names
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.losses import Draw, Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import arrow_type
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.batches.threads import Parts
from headcount.mechanisms.batches.user_shards import users_of
from headcount.mechanisms.bound_choice.joint import JointChoice
from headcount.mechanisms.bounding.steps import (
    LimitItemsStep,
    LimitPerItemStep,
    Step,
    check_bound,
    promise_of,
)
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.expected_error import users_needed
from headcount.mechanisms.calibration.noise import make_plan
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.checks import check_above_0
from headcount.mechanisms.choice.protocol import ChosenBound, check_relation
from headcount.mechanisms.choice.run import choose_of
from headcount.mechanisms.counting.noisy import bounded_users, noisy_counts
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.partitions.rounds import Round, zcdp_rounds
from headcount.mechanisms.partitions.select import in_items, named_in_rounds, selection_steps
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.randomness.noise import LARGEST_SCALE

_SIGMA_GRID = 2**10  # standard deviations are multiples of 1 / this


@dataclasses.dataclass(frozen=True)
class PlumePlan:
    """The numbers of one release, and what they promise: rounds of naming, and the noise of the counts."""

    rounds: tuple[Round, ...]
    plan: NoisePlan
    guarantee: Guarantee

    @property
    def steps(self) -> tuple[Step, ...]:
        """What bounds a user's contribution to the counts of named items."""
        return counted_steps(self.counted)

    @property
    def counted(self) -> int:
        """The named items that one user counts for at most."""
        assert self.plan.bound.l0 is not None
        return self.plan.bound.l0

    def description(self) -> str:
        """What was chosen, in one line."""
        return f"chosen: {in_items(self.counted)} per user"

    def report_fields(self) -> Mapping[str, Any]:
        """What was chosen, as a part of a report."""
        return {"chosen": {"max_items": self.counted}}

    def summary(self) -> Mapping[str, Any]:
        """What a reader of the rows asks first: how many users an item needs."""
        return users_needed(each.plan for each in self.rounds)


@dataclasses.dataclass(frozen=True)
class PlumeRelease:
    """A whole release as a value: `plume` makes and checks one. Bounds of None are chosen, and are one and the same.

    `promise` is what the zCDP budget means in epsilon and delta.
    """

    zcdp: Zcdp
    promise: Budget
    max_items: int | None
    max_counted_items: int | None
    alpha: Fraction
    selection: str
    relation: Relation
    item_type: type
    name = "Plume"

    def __post_init__(self) -> None:
        check_promise(self.zcdp, self.promise)
        costs, rest = self._parts()
        check_parts(rest, *self._shares(rest))
        if self.choice is not None and costs is not None:
            check_relation(self.choice, self.relation)
            check_parts(self.zcdp, costs, rest)
            if self.choice.budget.delta > 0 or self.choice.budget.epsilon_fraction**2 > 8 * Fraction(repr(costs.rho)):
                raise ParameterError(f"a choice that costs {self.choice.budget!r} does not fit into {costs!r}")

    @property
    def most_rounds(self) -> int:
        """The rounds in which items are named."""
        return tuning.ROUNDS if self.selection == "sips" else 1

    @cached_property
    def choice(self) -> JointChoice | None:
        """The choice of the bounds, where they are not given.

        A draw of `exponential.select` whose exponents have a range of epsilon is (epsilon^2 / 8)-zCDP. It is made for naming
        as many items as can be, one count of each user on an item.
        """
        costs, rest = self._parts()
        if costs is None:
            return None
        epsilon = math.nextafter(math.sqrt(8 * costs.rho), 0)
        while Fraction(repr(epsilon)) ** 2 > 8 * Fraction(repr(costs.rho)):
            epsilon = math.nextafter(epsilon, 0)
        naming, _ = self._shares(rest)
        made_for = Zcdp(naming.rho).to_budget(naming.delta)
        return JointChoice(Budget(epsilon), made_for, self.relation, "items", "gaussian", max_per_item=1, distinct=True)

    def plan(self, chosen: ChosenBound | None = None) -> PlumePlan:
        """All numbers, for the bounds that are given or chosen."""
        items, counted = self.max_items, self.max_counted_items
        if chosen is not None:
            items = counted = chosen.bound
        if items is None or counted is None:
            raise ParameterError("the bounds of this release are to be chosen first")
        _, rest = self._parts()
        naming, counting = self._shares(rest)
        rounds = zcdp_rounds(naming.rho, naming.delta, items, self.relation, self.selection)
        noise = self._noise(counting.rho, counted)
        names = selection_steps(self.selection, Zcdp(naming.rho, naming.delta).to_budget(naming.delta), rounds)
        counts = MechanismStep(
            "noise of the counts",
            Zcdp(counting.rho).to_budget(self.zcdp.delta).epsilon,
            self.zcdp.delta,
            {"a user adds at most": noise.bound.description(), **noise.step("").details},
        )
        return PlumePlan(rounds, noise, self._whole(*names, counts))

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        if self.choice is None:
            return self.plan().guarantee
        promise = Zcdp(self._parts()[1].rho, self.zcdp.delta).to_budget(self.zcdp.delta)
        details = {"calibrated for": "the bounds that are chosen", "items named by": self.selection}
        return self._whole(MechanismStep("names and counts", promise.epsilon, promise.delta, details))

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows item, bounded_count, noise_stddev, low, high, sorted by item, of contribution batches."""
        return self.run_decided(batches, release, label)[0]

    def run_decided(
        self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None
    ) -> tuple[pa.RecordBatch, PlumePlan | None]:
        """The same, and what follows from the bounds, if they were chosen."""
        label, users = self.name if label is None else label, users_of(batches)
        chosen = None
        if self.choice is not None:
            chosen = choose_of(users, self.choice, release, f"{label}/ChooseBound")
        plan = self.plan(chosen)
        return self.counts(users, plan, release, label), None if chosen is None else plan

    def counts(self, users: Parts[Shard], plan: PlumePlan, release: Release, label: str) -> pa.RecordBatch:
        """The same of users in shards, for a plan."""
        named = named_in_rounds(users, plan.rounds, release, f"{label}/NamedItems", self.item_type)
        rows = users.map(lambda shard: shard.with_items(named))
        bounded, where = bounded_users(rows, plan.steps, release, f"{label}/Counted"), f"{label}/NoisyCounts"
        return noisy_counts(bounded, plan.plan, release, where, item_type=self.item_type, named=named)

    def _parts(self) -> tuple[Zcdp | None, Zcdp]:
        """What a choice may cost, and the rest."""
        if self.max_items is not None:
            return None, self.zcdp
        costs, rest = self.zcdp.split(tuning.CHOICE_SHARE_FOR_PLUME, 1 - tuning.CHOICE_SHARE_FOR_PLUME, delta=(0, 1))
        return costs, rest

    def _shares(self, rest: Zcdp) -> tuple[Zcdp, Zcdp]:
        """The shares of naming and of counting."""
        naming, counting = rest.split(float(self.alpha), float(1 - self.alpha), delta=(1, 0))
        return naming, counting

    def _noise(self, rho: float, counted: int) -> NoisePlan:
        bound = promise_of(counted_steps(counted), Bound(), "")
        sigma = math.sqrt(self.relation.users * counted / (2 * rho)) * (1 + 1e-9)  # beyond the rounding of this line
        scale = Fraction(math.ceil(sigma * _SIGMA_GRID), _SIGMA_GRID)
        if scale.numerator >= LARGEST_SCALE:
            raise ParameterError(
                f"rho = {self.zcdp.rho} with {counted} counted items per user needs more noise than can be sampled: raise rho"
            )
        return make_plan("gaussian", bound.grid, scale, None, self.promise, self.relation, bound)

    def _whole(self, *steps: MechanismStep) -> Guarantee:
        promise = self.promise
        words = f"{self.zcdp.delta:g}-approximate {self.zcdp.rho:.8g}-zCDP"
        first = [MechanismStep("all together", promise.epsilon, promise.delta, {"by": words})]
        if self.choice is not None:
            epsilon = self.choice.budget.epsilon
            first.append(MechanismStep("choice of the bounds", epsilon, 0.0, self.choice.details()))
        return Guarantee(promise.epsilon, promise.delta, self.relation, (*first, *steps), losses=self._losses())

    def _losses(self) -> Losses:
        """Those of the choice, of the noise of naming, and of that of counting, which is on the integers: its zCDP."""
        naming, counting = self._shares(self._parts()[1])
        draws = [] if self.choice is None else [Draw(self.choice.budget.epsilon)]
        mu = math.sqrt(2 * naming.rho) * (1 + 1e-12)
        return Losses.of(*draws, mu=mu, rho=counting.rho, hiding=naming.delta)


def counted_steps(counted: int) -> tuple[Step, ...]:
    """What bounds a user's contribution to the counts of named items: each once, and a limited number of them."""
    return LimitPerItemStep(1), LimitItemsStep(counted)


def plume(
    budget: Zcdp | Budget,
    *,
    max_items: int | Literal["auto"] = "auto",
    max_counted_items: int | Literal["auto"] | None = None,
    alpha: float = 0.5,
    selection: str = "gaussian",
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> PlumeRelease:
    """Plume, with at most `max_items` items of a user in naming, and `max_counted_items` in counting.

    The budget is a `Zcdp`, or a `Budget`, of which half of delta goes to naming and half to the conversion. By default the
    second bound is as the first, and "auto" chooses both. `selection` is "gaussian", "weighted-gaussian" or "sips".
    """
    zcdp, promise = zcdp_for_names(budget)
    arrow_type(item_type)
    if max_counted_items is None:
        max_counted_items = max_items
    items = _given("max_items", max_items)
    counted = _given("max_counted_items", max_counted_items)
    if (items is None) != (counted is None):
        raise ParameterError(
            f"max_items and max_counted_items are chosen together, got {max_items!r} and "
            f"{max_counted_items!r}: give both, or 'auto' for both"
        )
    made = PlumeRelease(zcdp, promise, items, counted, check_above_0("alpha", alpha, 1), selection, relation, item_type)
    if made.choice is None:
        made.plan()  # refuses what cannot be calibrated
    else:
        for end in made.choice.ends():
            made.plan(end)
    return made


def _given(name: str, bound: int | str) -> int | None:
    return None if bound == "auto" else check_bound(name, bound)
