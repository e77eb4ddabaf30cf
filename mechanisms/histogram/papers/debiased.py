"""Totals of given items with the bias of the cap taken out (the paper, Algorithm 5 and its extension to several items).

Each user counts with at most `max_per_item` events of an item, and the capped total S gets noise. If users' counts are Poisson
of mean l, then S is about n h(l), where n is the number of *all* users and h(l) = E min(Poisson(l), cap); so n h^-1(S / n)
estimates the total without the cap. This is post-processing, and costs no privacy.

Guarantee: the results are (epsilon, delta)-differentially private for the relation, per user. Where n is not given it is
counted with noise, by a stated share of epsilon: that one user more also makes n larger by one.
Proof: docs/proofs/histogram.md.

What differs from the paper: n is private where users are added or removed (and never the number of users who have the item, for
which S / n would always be near the cap). The result is limited to 0 .. n * largest_mean, where the paper's is not defined for
S < 0 or S >= n * cap. And several items share one budget by the distance of the whole vector, in place of a budget for each.
Between neighbours at most min(users * max_items, items) totals differ, each by at most the cap (users is 1, or 2 if one is
replaced): hence one item needs no more noise for replacement.

`CountPlan.run` is the mechanism without Beam, and a pipeline with the same key, id and label gives exactly its rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, check_budget, check_parts
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import Domain, only_domain, public_domain
from headcount.mechanisms.bounding.steps import (
    MAX_BOUND,
    LimitItemsStep,
    LimitPerItemStep,
    Step,
    check_bound,
    promise_of,
)
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import NOISES, calibrate_public_domain
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.checks import check_one_of, check_share, check_whole, is_real, wrong
from headcount.mechanisms.counting.noisy import bounded_batches, noisy_counts
from headcount.mechanisms.counting.released import estimates_batch
from headcount.mechanisms.counting.users import EVERYBODY, EVERYBODY_STEPS, number_of_users, one_row_per_user
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release

MOST_USERS = 10**18
_HALVINGS = 100  # of an interval of floats: after these it has no inside


@dataclasses.dataclass(frozen=True)
class CountPlan:
    """A whole debiased count as a value: what is counted, the noise, and how the cap is taken out again.

    `noise` is for the capped totals. Its bound limits the difference of two neighbours' totals under `relation`, so that
    it is calibrated as if a user with that contribution were added. `users` is the number of users, if it is public, or
    the noise with which it is counted.
    """

    items: Domain
    item_type: type
    max_per_item: int
    max_items: int
    largest_mean: float
    noise: NoisePlan
    users: int | NoisePlan
    epsilon: float
    relation: Relation
    name = "DebiasedCount"

    def __post_init__(self) -> None:
        counted = [self.users.epsilon] if isinstance(self.users, NoisePlan) else []
        check_parts(Budget(self.epsilon), *map(Budget, [self.noise.epsilon, *counted]))

    @property
    def steps(self) -> tuple[Step, ...]:
        """What bounds a user's contribution to the capped totals."""
        return (LimitItemsStep(self.max_items), LimitPerItemStep(self.max_per_item))

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        where = "on one item" if self.max_items == 1 else f"on each of {self.max_items} items"
        if isinstance(self.users, NoisePlan):
            users = self.users.step("number of users")
        else:
            users = MechanismStep("number of users", 0.0, 0.0, {"public": self.users})
        steps = (
            MechanismStep("bounding", 0.0, 0.0, {"a user adds at most": f"{self.max_per_item} events {where}"}),
            self.noise.step("noise"),
            users,
            MechanismStep("debiasing", 0.0, 0.0, {"by": "Poisson counts", "largest mean per user": self.largest_mean}),
        )
        losses = self.noise.losses()
        if isinstance(self.users, NoisePlan):
            losses += self.users.losses()
        return Guarantee(self.epsilon, self.noise.delta, self.relation, steps, losses=losses)

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows (`estimates_batch`), sorted by item, of contribution batches of all items."""
        label, batches = label or self.name, list(batches)
        held = [only_domain(batch, self.items) for batch in batches]
        bounded = bounded_batches(held, self.steps, release, f"{label}/Bounded")
        where = f"{label}/NoisyCounts/NoisyCounts"
        counts = noisy_counts(bounded, self.noise, release, where, self.items, self.item_type)
        users = self.users
        if isinstance(users, NoisePlan):
            everybody = [one_row_per_user(batch) for batch in batches]
            bounded = bounded_batches(everybody, EVERYBODY_STEPS, release, f"{label}/BoundedUsers")
            where = f"{label}/NoisyUsers/NoisyCounts"
            users = number_of_users(noisy_counts(bounded, users, release, where, EVERYBODY))
        return self.debiased(counts, users)

    def debiased(self, counts: pa.RecordBatch, users: int) -> pa.RecordBatch:
        """Noisy capped totals, and a number of users that may be noisy, as estimates of the totals without the cap.

        `noise_stddev` becomes that of the estimate, to first order in the noise of both (delta method): with total N(S, n) and
        mean l, dN/dS = 1 / h'(l) and dN/dn = l - h(l) / h'(l). As N lies in 0 .. n * largest_mean, its standard deviation
        is at most half of that, which limits it where the slope h'(l) vanishes.
        """
        users, bounded = max(users, 1), np.asarray(counts.column("bounded_count"))
        capped = bounded / users
        mean = uncapped_mean(capped, self.max_per_item, self.largest_mean)
        slope = np.maximum(capped_slope(mean, self.max_per_item), 1e-100)  # never 0; so small, the limit holds anyway
        users_stddev = self.users.stddev if isinstance(self.users, NoisePlan) else 0.0
        by_total = np.asarray(counts.column("noise_stddev")) / slope
        by_users = users_stddev * (mean - capped_mean(mean, self.max_per_item) / slope)
        most = users * self.largest_mean
        stddev = np.minimum(np.hypot(by_total, by_users), most / 2)
        return estimates_batch(counts.column("item"), users * mean, stddev, bounded, most)


def debiased_count(
    budget: Budget,
    items: str | int | Iterable[str] | Iterable[int],
    *,
    max_per_item: int,
    users: int | None = None,
    users_share: float | None = None,
    max_items: int | None = None,
    largest_mean: float | None = None,
    noise: str = "auto",
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> CountPlan:
    """Algorithm 5: the totals of one or more given items, with the bias of the cap taken out.

    Each user counts with at most `max_per_item` events of an item, and with `max_items` of the items (default: all of them), a
    uniform choice. `users` is the number of all users if it is public; else it is counted, by `users_share` of epsilon. An
    estimated mean per user is at most `largest_mean` (default: twice the cap). 'auto' takes the noise of lower stddev.
    """
    check_budget(budget)
    names = public_domain([items] if isinstance(items, str | int) else items, item_type)
    max_per_item = check_bound("max_per_item", max_per_item)
    max_items = len(names) if max_items is None else min(check_bound("max_items", max_items), len(names))
    number: int | NoisePlan
    if users is None:
        if relation is Relation.REPLACE:
            raise ParameterError(
                "replacing a user leaves the number of users as it is, so that it must be public: give users, the number "
                "of all users, also of those without the item"
            )
        share = check_share("users_share", tuning.USERS_SHARE if users_share is None else users_share)
        weights = (share.numerator, share.denominator - share.numerator)
        users_part, part = budget.split(*weights, delta=(0, 1))
        users_bound = promise_of(EVERYBODY_STEPS, Bound(), "")
        number = calibrate_public_domain(users_part, users_bound, relation, "laplace")
    else:
        if users_share is not None:
            raise ParameterError(f"users_share is of no use where users is given, got {users_share!r}: leave one out")
        number, part = check_whole("users", users, 1, MOST_USERS), budget
    distance = Bound(l0=min(relation.users * max_items, len(names)), linf=max_per_item)
    mean = 2.0 * max_per_item if largest_mean is None else _largest_mean(largest_mean)
    # A draw that is shared is for users added or removed: then the distance is what one of them has, and never negative.
    plan = _quietest(part, distance, noise, len(names) if relation is Relation.ADD_REMOVE else None)
    return CountPlan(names, item_type, max_per_item, max_items, mean, plan, number, budget.epsilon, relation)


def capped_mean(mean: np.ndarray, cap: int) -> np.ndarray:
    """h(l) = E min(X, cap) for X Poisson of mean l, which is l P[X <= cap - 2] + cap P[X >= cap]."""
    from scipy import special  # slow to import, and only needed at the very end of a job

    below = special.gammaincc(cap - 1, mean) if cap > 1 else 0.0  # P[X <= k] is gammaincc(k + 1, l)
    return mean * below + cap * special.gammainc(cap, mean)


def capped_slope(mean: np.ndarray, cap: int) -> np.ndarray:
    """h'(l) = P[X < cap] for X Poisson of mean l: positive and falling, so that h increases and is concave."""
    from scipy import special

    return special.gammaincc(cap, mean)


def uncapped_mean(capped: np.ndarray, cap: int, largest: float) -> np.ndarray:
    """The l in 0 .. largest with h(l) = capped, or the nearer end where there is none; finite for whatever is given."""
    top = capped_mean(np.array([largest]), cap)[0]
    low = np.clip(capped, 0.0, largest)  # h(l) <= l
    high = np.full(len(capped), largest)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        beyond = capped_mean(middle, cap) > capped
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    return np.where(capped >= top, largest, low)


def _quietest(budget: Budget, distance: Bound, noise: str, items: int | None) -> NoisePlan:
    """The noise for a vector whose neighbours differ by `distance`: the given one, or that of the lower stddev."""
    check_one_of("noise", noise, NOISES)
    kinds = [noise]
    if noise == "auto":
        kinds = ["laplace", "gaussian"] if budget.delta > 0 else ["laplace"]
    plans = [calibrate_public_domain(budget, distance, Relation.ADD_REMOVE, kind, items) for kind in kinds]
    return min(plans, key=lambda plan: plan.stddev)


def _largest_mean(mean: float) -> float:
    if not is_real(mean) or not 0 < mean <= 2 * MAX_BOUND:
        raise wrong("largest_mean", f"must be a number above 0 and up to {2 * MAX_BOUND}", mean)
    return float(mean)
