"""Private Count Release (Rogers: "Private Count Release: A Simple and Scalable Approach for Private Data Analytics", 2024).

Items come from the data, and a user counts for all items that it has: there is no limit on their number. The largest
counts are found one by one, by draws of the Unknown Domain Gumbel mechanism (`frames`), and each that is found gets
Gaussian noise. A draw that finds nothing raises epsilon by sqrt(2), which lowers the threshold. It ends when the budget
does, so that data with large counts give many of them.

Guarantee: delta-approximate rho-zCDP for the relation, per user, for every choice of the other parameters, and therefore the
(epsilon, delta) that `guarantee()` states. Everything is paid for by a `ZcdpFilter` before it looks at the data. A draw costs
what `frames` proves of it, and noise of stddev sigma on the integers 1 / (2 sigma^2), as one user moves the number of an item's
users by at most 1 (Canonne, Kamath, Steinke 2020, Theorem 4). If a user may count up to `max_per_item` times, what is released
is the sum of these, with noise of sigma times that number. This is for replaced users, too: the count of one item then moves by
no more than if a user is added. Whatever decides on the next draw (epsilon, threshold, sigma, and when to end) follows from
public parameters and from what was drawn before. Proof: docs/proofs/count-release.md.

What differs from the paper: its loop tests for epsilon^2 / 4 and then spends more than that if the relative error is small.
Here the true cost is reserved. (At a relative error of 0.01 the paper spends up to 24 times its budget.) The base is that of
the whole histogram throughout; recomputed on the frame without what was found, it falls to 0 on one of two neighbours only. The
delta of a draw is that of the whole divided by a number of draws that is never exceeded. And an exhausted frame does not end
the loop, since when it ends is published.

`noise_reduction` is the paper's Brownian one: a count is measured with much noise first, and again with less until it is within
the relative error. f + B(t) at falling times t has the distribution of running means, weighted by precision, of independent
measurements. So each of these is one discrete Gaussian, an ordinary spend, and they cost together half of the precision of
their mean. Only that mean and its stddev are released.

`CountRelease.run` is the mechanism without Beam, and a pipeline with the same key, id and label gives exactly its rows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, Zcdp, zcdp_for_names
from headcount.mechanisms.accounting.filters import ZcdpFilter
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.losses import Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import arrow_type
from headcount.mechanisms.bounding.steps import LimitPerItemStep, Step, check_bound
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.checks import check_decimal
from headcount.mechanisms.count_release.frames import Frame, check_frame, draw_cost, frame_of, on_grid, threshold
from headcount.mechanisms.count_release.rounds import Level, LevelSpent, Rounds, Target
from headcount.mechanisms.counting.noisy import bounded_batches
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.randomness.noise import LARGEST_SCALE
from headcount.mechanisms.randomness.subkeys import subkey

_SIGMA_GRID = 2**10  # standard deviations are multiples of 1 / this
_DELTA_UNITS = 2**100  # deltas of one draw are multiples of 1 / this


@dataclasses.dataclass(frozen=True)
class Released:
    """What was spent on what, and the guarantee. All of it is public."""

    guarantee: Guarantee
    budget: Zcdp
    levels: tuple[LevelSpent, ...]
    rho: float
    delta: float

    def description(self) -> str:
        """The outcome in one line."""
        items, rounds = (sum(getattr(level, name) for level in self.levels) for name in ("items", "rounds"))
        return f"released {items:,} items in {rounds:,} rounds, rho {self.rho:.6g} of {self.budget.rho:g}"

    def report_fields(self) -> Mapping[str, Any]:
        """The ledger, as a part of a report."""
        totals = {
            "rho": self.rho,
            "delta": self.delta,
            "rho_budget": self.budget.rho,
            "delta_budget": self.budget.delta,
        }
        return {"ledger": [level._asdict() for level in self.levels], "spent": totals}

    def summary(self) -> Mapping[str, Any]:
        """What a reader of the rows asks first: how many users an item needs, at the last level."""
        return {"users_needed": math.ceil(self.levels[-1].threshold)} if self.levels else {}


class Outcome(NamedTuple):
    """The released rows item, bounded_count, noise_stddev, low, high, sorted by item, and what they cost."""

    counts: pa.RecordBatch
    released: Released


@dataclasses.dataclass(frozen=True)
class CountRelease:
    """A whole private count release as a value: `count_release` makes and checks one.

    `promise` is what the zCDP budget means in epsilon and delta.
    """

    zcdp: Zcdp
    promise: Budget
    relative_error: Fraction
    k_bar: int
    max_per_item: int
    noise_reduction: bool
    strict_target: bool
    start_epsilon: Fraction
    relation: Relation
    item_type: type
    name = "PrivateCountRelease"

    @property
    def steps(self) -> tuple[Step, ...]:
        """What bounds a user's contribution to one item; that to all of them has no bound."""
        return (LimitPerItemStep(self.max_per_item),)

    @property
    def bound(self) -> Bound:
        """What the input must be bounded by."""
        return Bound(linf=self.max_per_item)

    @property
    def round_delta(self) -> Fraction:
        """The delta of one draw: all draws that there can be never exceed the whole."""
        return Fraction(
            int(Fraction(repr(self.zcdp.delta)) * _DELTA_UNITS / (self.k_bar + tuning.SPARE_ROUNDS)), _DELTA_UNITS
        )

    def level(self, epsilon: Fraction) -> Level:
        """The numbers of rounds with this epsilon; epsilon and delta are exact, T and sigma rounded up.

        sigma makes `relative_error` of T a given number of standard deviations. Unless the target is strict, it is so large
        that the count costs no more than the draw; for a small relative error that is more, and the target is missed.
        """
        far = threshold(epsilon, self.k_bar, self.round_delta, self.relation)
        sigma = self.relative_error / tuning.DEVIATIONS_OF_TARGET * far
        if not self.strict_target:
            sigma = max(sigma, 2 / (self.relation.users * epsilon))
        units = math.ceil(sigma * _SIGMA_GRID)
        parts = tuning.MEASUREMENT_PARTS if self.noise_reduction else (1,)
        measured = tuple(Fraction(math.isqrt(units**2 * part - 1) + 1, _SIGMA_GRID) for part in parts)
        rho, delta = draw_cost(epsilon, self.relation), self.round_delta
        return Level(epsilon, far, Fraction(units, _SIGMA_GRID), measured, rho, delta)

    def next_level(self, level: Level) -> Level:
        """The level after a draw that found nothing."""
        return self.level(on_grid(level.epsilon * Fraction(math.sqrt(2))))

    def level_for(self, items: int) -> Level | None:
        """The last level at which this number of rounds fits into the budget; None if they do not even fit at the first."""
        level, last = self.level(self.start_epsilon), None
        while items * level.rho <= Fraction(repr(self.zcdp.rho)):
            level, last = self.next_level(level), level
        return last

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        first = self.level(self.start_epsilon)
        details: dict[str, str | int | float] = {
            "by": f"{self.zcdp.delta:g}-approximate {self.zcdp.rho:.8g}-zCDP",
            "candidates": self.k_bar,
            "delta of a round": float(self.round_delta),
            "first epsilon": float(first.epsilon),
            "first threshold": float(first.threshold),
            "first stddev": float(first.sigma * self.max_per_item),
            "relative error": float(self.relative_error),
        }
        steps = (
            MechanismStep(
                "bounding", 0.0, 0.0, {"a user adds at most": f"{self.max_per_item} to each of any number of items"}
            ),
            MechanismStep("rounds of selection and noise", self.promise.epsilon, self.promise.delta, details),
        )
        losses = Losses(rho=self.zcdp.rho, hiding=self.zcdp.delta)
        return Guarantee(self.promise.epsilon, self.promise.delta, self.relation, steps, losses=losses)

    def subkey(self, key: bytes, release_id: str, label: str) -> bytes:
        """The subkey of the loop, from its label and all public parameters."""
        parameters = {
            "rho": repr(self.zcdp.rho),
            "delta": repr(self.zcdp.delta),
            "relative_error": self.relative_error,
            "k_bar": self.k_bar,
            "max_per_item": self.max_per_item,
            "noise_reduction": self.noise_reduction,
            "strict_target": self.strict_target,
            "start_epsilon": self.start_epsilon,
            "relation": self.relation.value,
        }
        return subkey(key, release_id, label, parameters)

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows item, bounded_count, noise_stddev, low, high, sorted by item, of contribution batches."""
        return self.run_decided(batches, release, label).counts

    def run_decided(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> Outcome:
        """The same with what it cost."""
        label = self.name if label is None else label
        bounded = bounded_batches(batches, self.steps, release, f"{label}/Bounded")
        frame = frame_of(bounded, self.bound, self.k_bar, self.item_type)
        return self.release(frame, self.subkey(release.key_source.fetch(), release.id, label))

    def release(self, frame: Frame, subkey: bytes) -> Outcome:
        """The loop: levels one after another, until not even one round of the next fits the budget."""
        budget = ZcdpFilter(self.zcdp)
        rounds = Rounds(
            frame, subkey, budget, Target(self.relative_error, tuning.DEVIATIONS_OF_TARGET, self.max_per_item)
        )
        level, levels = self.level(self.start_epsilon), []
        while (spent := rounds.run(level)) is not None:
            levels.append(spent)
            level = self.next_level(level)
        rho, delta = map(float, budget.spent)
        promise = self.guarantee()
        if rho > 0:  # a filter's sums lie on a grid that floats may miss by a little
            used = Zcdp(min(rho * (1 + 1e-15), self.zcdp.rho), min(delta * (1 + 1e-15), self.zcdp.delta))
            promise = dataclasses.replace(promise, spent=used)
        return Outcome(rounds.counts(), Released(promise, self.zcdp, tuple(levels), rho, delta))


def count_release(
    budget: Zcdp | Budget,
    *,
    relative_error: float = 0.1,
    k_bar: int = tuning.ITEMS_LOOKED_AT,
    max_per_item: int | None = None,
    noise_reduction: bool = False,
    strict_target: bool = False,
    start_epsilon: float = tuning.FIRST_EPSILON,
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> CountRelease:
    """Private Count Release: as many of the largest counts as the budget buys, each with its stddev.

    The budget is a `Zcdp`, or a `Budget`, of which half of delta goes to the draws and half to the conversion. The noise is
    such that most counts are within `relative_error` of the true one. `k_bar` items at most are looked at, and so released.
    What is counted are users, or with `max_per_item` events, up to that number of a user on an item. (Noise then grows with
    `max_per_item`, while the threshold is still one of users: the relative error of small sums is larger.)
    `start_epsilon` should give a threshold above the largest count; too low a value costs little.
    """
    zcdp, promise = zcdp_for_names(budget)
    made = CountRelease(
        zcdp,
        promise,
        check_decimal("relative_error", relative_error, Fraction(1, 10**4), 1),
        check_frame(k_bar),
        1 if max_per_item is None else check_bound("max_per_item", max_per_item),
        bool(noise_reduction),
        bool(strict_target),
        on_grid(check_decimal("start_epsilon", start_epsilon, Fraction(1, 10**6), 10)),
        Relation.parse(relation),
        item_type,
    )
    arrow_type(item_type)
    if made.round_delta == 0:
        raise ParameterError(f"delta = {zcdp.delta!r} is too small for k_bar = {made.k_bar} rounds: raise it")
    if max(made.level(made.start_epsilon).measured) * made.max_per_item > LARGEST_SCALE:
        raise ParameterError(
            f"max_per_item = {made.max_per_item} needs more noise than can be sampled: lower it, or raise start_epsilon"
        )
    return made
