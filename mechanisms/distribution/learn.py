"""Learning a distribution over public symbols from users who hold many samples of it each.

Treating a user's samples together, the error falls with 1 / sqrt(m), which no way of adding noise to counts does. The data
are looked at through one statistic (`tables`): how many users have each symbol how often. `plan` says what is done
to it and what it costs; a private number of samples per user comes from `samples_choice`.

Guarantee: the result is (epsilon, delta)-differentially private for the relation, per user, whatever the data. "dense" and
"sparse" *assume* that all users' samples are drawn from one distribution: where they are not, estimates are biased, and no less
private. The baselines estimate the mean of users who differ, and ask how much they do (`spread`).
Proof: docs/proofs/distribution.md.

The estimates are projected onto the simplex, which is post-processing (the paper's do not add up to one). Each row tells the
mean absolute error to expect of it, from the distributions of sampling and noise at the estimate: an estimate itself, and no
bound. That of "dense" and "sparse" grows by what their estimates fall short of one in sum, which tells how far users are from
being alike.

Buckets: users with 2^g to 2^(g+1) - 1 samples are a data set of their own, for every g. A user who is added is in one of
them, so that each may spend all of the budget; one who is replaced may be in two, so that each gets half of it. Results are
averaged by their expected errors.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, check_budget, check_parts
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.losses import Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import Domain, only_domain, public_domain
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.calibration.intervals import as_noise_tells
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.checks import check_whole, wrong
from headcount.mechanisms.choice.protocol import ChosenBound, Decision, check_relation, choice_losses
from headcount.mechanisms.choice.run import choose_bound, split_budget
from headcount.mechanisms.counting.evidence import Evidence, Origin
from headcount.mechanisms.counting.noisy import add_noise, bounded_batches
from headcount.mechanisms.distribution import spread
from headcount.mechanisms.distribution.binomial_choice import MOST_USERS
from headcount.mechanisms.distribution.plan import ROBUST, DistributionPlan, plan_distribution
from headcount.mechanisms.distribution.samples_choice import RULES, SamplesChoice
from headcount.mechanisms.distribution.small import large_share, small_probabilities
from headcount.mechanisms.distribution.tables import (
    MOST_SAMPLES,
    ValueCounts,
    check_samples,
    merge_values,
    split_values,
)
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.randomness.lane_ids import item_lane_ids, lane_sum
from headcount.mechanisms.randomness.subkeys import lane_key, subkey

BUCKETS = tuple(2**g for g in range(MOST_SAMPLES.bit_length()) if 2**g <= MOST_SAMPLES)

_ONE_NUMBER = pa.array(["users"])


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What one plan gives: a probability for each symbol, not yet on the simplex; the number of users that it is for, as far
    as that is known, and the noise in it; and the correlation of two samples of one user, as far as it was asked."""

    plan: DistributionPlan
    probability: np.ndarray
    users: int
    users_stddev: float
    correlation: np.ndarray | float = 0.0

    def errors(self, p: np.ndarray) -> np.ndarray:
        """The mean absolute error to expect of each symbol's estimate if the probabilities were p.

        It is told for three standard deviations fewer users: where these may be none, nothing is known, and it is 1.
        """
        own = self.plan.errors(p, math.floor(self.users - 3 * self.users_stddev), self.correlation)
        if self.plan.method in ROBUST:
            return own
        return np.clip(tuning.MISSED_OF_REST * (1 - float(self.probability.sum())) * p, own, 1.0)


@dataclasses.dataclass(frozen=True)
class Steps:
    """Where the randomness of a plan's steps comes from: their labels, the release, and the domain that they work on."""

    plan: DistributionPlan
    domain: Domain
    release_id: str
    label: str

    def subkey(self, key: bytes, step: str, **chosen: Any) -> bytes:
        """The subkey of one step; `chosen` is what it got to know at run time."""
        parameters = {"plan": self.plan.parameters(), "domain": self.domain.digest}
        return subkey(key, self.release_id, f"{self.label}/{step}", parameters, chosen)

    def digest(self, table: ValueCounts, key: bytes) -> int:
        """What stands for the tables in all later randomness: the same for any sharding of symbols or users."""
        held = table.take(np.flatnonzero(np.diff(table.offsets)))
        return lane_sum(held.lane_ids(self.subkey(key, "Tables")))

    def users(self, samples: int, evidence: Evidence, key: bytes) -> int:
        """The number of users: as given, or from the noise. `samples` is how many there are of all symbols together, which is
        m for each user; so a user more, or another one, moves their number by at most 1."""
        plan = self.plan.users
        if isinstance(plan, NoisePlan):
            number = np.array([samples // self.plan.samples])
            return round(float(self._noisy(_ONE_NUMBER, number, plan, evidence, key, "Users")[0]))
        return 0 if plan is None else plan

    def drawn(self, table: ValueCounts, users: int, evidence: Evidence, key: bytes) -> np.ndarray:
        """What is released of each symbol: for "dense" the choice of p, for "sparse" the noisy number of the users who have
        it, for the baselines that of its samples."""
        if self.plan.method == "dense":
            return self.chosen(table, users, evidence, key)
        assert self.plan.noise is not None
        sums = table.holders() if self.plan.method == "sparse" else table.totals()
        return self._noisy(table.symbols, sums, self.plan.noise, evidence, key, "Noise")

    def spread(self, sums: np.ndarray, evidence: Evidence, key: bytes) -> np.ndarray:
        """The noisy `pairs` of all groups, from those of all symbols."""
        assert self.plan.spread is not None
        return self._noisy(spread.NAMES, sums, self.plan.spread, evidence, key, "Spread")

    def chosen(
        self, table: ValueCounts, users: int, evidence: Evidence, key: bytes, large: int | None = None
    ) -> np.ndarray:
        """The private choice of p for each symbol of the table."""
        subkey = self.subkey(key, "Choices", users=users, large=large)
        return self.plan.choice(users, large).estimates(table, subkey, evidence.digest)

    def _noisy(
        self, names: Names, sums: np.ndarray, noise: NoisePlan, evidence: Evidence, key: bytes, step: str
    ) -> np.ndarray:
        subkey = self.subkey(key, step)
        ids = item_lane_ids(lane_key(subkey), names, sums)
        lanes = {"lane_hi": pa.array(ids[:, 0]), "lane_lo": pa.array(ids[:, 1])}
        batch = pa.RecordBatch.from_pydict({"item": names, "sum": pa.array(sums), **lanes})
        return np.asarray(add_noise(batch, noise, subkey, evidence).column("bounded_count"))


def large_symbols(drawn: np.ndarray, users: int, plan: DistributionPlan) -> np.ndarray:
    """The places of the symbols that `small_probabilities` is not for, where p is to be chosen in "sparse"."""
    if plan.method != "sparse":
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(drawn >= max(users, 1) * large_share(plan.samples))


def learn(batches: Iterable[pa.RecordBatch], steps: Steps, release: Release) -> Estimate:
    """One plan on contribution batches of the domain's symbols, without Beam."""
    plan, key = steps.plan, release.key_source.fetch()
    bounded = list(bounded_batches(batches, plan.steps, release, f"{steps.label}/Bounded"))
    table = merge_values([chunk for batch in bounded for _, chunk in split_values(batch, 1)], steps.domain.sorted_names)
    evidence = Evidence.of([steps.digest(table, key)], map(Origin.of, bounded))
    evidence.check(plan.bound)
    return estimate(table, steps, evidence, key)


def estimate(table: ValueCounts, steps: Steps, evidence: Evidence, key: bytes) -> Estimate:
    """One plan on the tables of all symbols."""
    plan = steps.plan
    users = steps.users(int(table.totals().sum()), evidence, key)
    drawn = steps.drawn(table, users, evidence, key)
    large = large_symbols(drawn, users, plan)
    chosen = steps.chosen(table.take(large), users, evidence, key, len(large)) if len(large) else np.zeros(0)
    noisy_pairs = None
    if plan.spread is not None:
        noisy_pairs = steps.spread(spread.pairs(table, spread.groups_of(drawn)), evidence, key)
    return estimated(plan, users, drawn, chosen, noisy_pairs)


def estimated(
    plan: DistributionPlan, users: int, drawn: np.ndarray, chosen: np.ndarray, noisy_pairs: np.ndarray | None = None
) -> Estimate:
    """The estimate from what the steps of a plan released; `chosen` is for the `large_symbols`. Post-processing."""
    stddev = plan.users.stddev if isinstance(plan.users, NoisePlan) else 0.0
    if plan.method == "dense":
        return Estimate(plan, drawn, users, stddev)
    if plan.method == "sparse":
        p = small_probabilities(drawn, plan.samples, max(users, 1))
        p[large_symbols(drawn, users, plan)] = chosen
        return Estimate(plan, p, users, stddev)
    assert plan.noise is not None
    total = float(drawn.sum())
    if plan.users is not None:  # public
        total = float(plan.samples * users)
    else:
        users, stddev = round(total / plan.samples), plan.noise.stddev * math.sqrt(plan.symbols) / plan.samples
    p = drawn / max(total, 1.0)
    if noisy_pairs is None:
        return Estimate(plan, p, users, stddev)
    groups, noise = spread.groups_of(drawn), plan.noise.stddev / max(total, 1.0)
    return Estimate(plan, p, users, stddev, spread.correlations(noisy_pairs, p, groups, plan.samples, users, noise))


def on_simplex(values: np.ndarray) -> np.ndarray:
    """The nearest probabilities, in Euclidean distance: all are lowered by the same amount, and what is negative is 0."""
    ordered = np.sort(values)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(ordered) + 1)
    last = int(np.flatnonzero(ordered > excess)[-1])
    projected = np.maximum(values - excess[last], 0.0)
    return projected / projected.sum()


def combined(symbols: Names, estimates: list[Estimate]) -> pa.RecordBatch:
    """The released rows item, probability, error of one estimate, or of several by their expected errors."""
    first = [on_simplex(each.probability) for each in estimates]
    errors = np.array([each.errors(p) for each, p in zip(estimates, first, strict=True)])
    # One that knows nothing may be any number, over next to no samples: it has no weight beside those that know something.
    known = (errors < 1).any(axis=1)
    precision = np.where(known | ~known.any(), 1 / errors.sum(axis=1) ** 2, 0.0)
    weight = precision / precision.sum()
    mean = on_simplex(sum(w * each.probability for w, each in zip(weight, estimates, strict=True)))
    squares = sum(w**2 * each.errors(mean) ** 2 for w, each in zip(weight, estimates, strict=True))
    error = np.sqrt(squares)
    # So fine that probabilities still add up to 1, as far as anybody would look.
    probability, error = as_noise_tells(error / 1000, mean, error)
    return pa.RecordBatch.from_pydict({"item": symbols, "probability": probability, "error": error})


def l1_error(rows: pa.RecordBatch) -> float:
    """The mean l1 distance from the true distribution to expect of all rows together: the sum of their errors, at most 2."""
    return min(2.0, float(np.asarray(rows.column("error")).sum()))


@dataclasses.dataclass(frozen=True)
class DecidedDistribution(Decision[ChosenBound]):
    """The samples per user that were chosen, and the plans for them."""

    plans: tuple[DistributionPlan, ...]

    def description(self) -> str:
        """What was chosen, in one line."""
        return f"chosen: {self.chosen.bound:,} samples per user, by the method {self.plans[0].method}"

    def report_fields(self) -> Mapping[str, Any]:
        """What was chosen, as a part of a report."""
        return {"chosen": {"samples_per_user": self.chosen.bound, "method": self.plans[0].method}}


@dataclasses.dataclass(frozen=True)
class DistributionRelease:
    """A whole distribution as a value: `learn_distribution` makes and checks one. `samples` is m, a rule of
    `samples_per_user`, or "buckets"."""

    budget: Budget
    symbols: Domain
    item_type: type
    samples: int | str
    users: int | None
    method: str
    hypothesis: str
    relation: Relation
    name = "LearnDistribution"

    def __post_init__(self) -> None:
        _, rest = self._parts()
        if self.choice is not None:
            check_relation(self.choice, self.relation)
            check_parts(self.budget, self.choice.budget, rest)

    @cached_property
    def choice(self) -> SamplesChoice | None:
        """The choice of the samples per user, where they are not given."""
        if self.samples not in RULES:
            return None
        own, rest = self._parts()
        assert own is not None
        return SamplesChoice(own, rest, self.relation, str(self.samples))

    def plans(self, chosen: ChosenBound | None = None) -> tuple[DistributionPlan, ...]:
        """The numbers, for the samples that are given or chosen; several for buckets."""
        _, rest = self._parts()
        if self.samples == "buckets":
            part, relation = rest, self.relation
            if relation is Relation.REPLACE:
                part, _ = rest.split(1, 1, delta=(1, 1)) if rest.delta else rest.split(1, 1)
            return tuple(self._plan(part, m, 2 * m if m < BUCKETS[-1] else None) for m in BUCKETS)
        if chosen is None and self.choice is not None:
            raise ParameterError("the samples per user of this release are to be chosen first")
        return (self._plan(rest, int(self.samples) if chosen is None else chosen.bound, None),)

    def steps(self, plan: DistributionPlan, release: Release, label: str) -> Steps:
        """The steps of one of the plans."""
        where = label if plan.below is None and self.samples != "buckets" else f"{label}/From{plan.samples}"
        return Steps(plan, self.symbols, release.id, where)

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        if self.choice is not None:
            _, rest = self._parts()
            details = self._method_details() | {"calibrated for": "the samples per user that are chosen"}
            return self._whole(MechanismStep("distribution", rest.epsilon, rest.delta, details))
        if self.samples == "buckets":
            words = f"users with {BUCKETS[0]}, {BUCKETS[1]} to {BUCKETS[2] - 1}, ... samples"
            share = "all of the budget" if self.relation is Relation.ADD_REMOVE else "half of the budget"
            details = self._method_details() | {"each of": words, "gets": share}
            return self._whole(
                MechanismStep("distribution in buckets", self.budget.epsilon, self.budget.delta, details)
            )
        return self._whole(*self.plans()[0].mechanism_steps())

    def decided(self, chosen: ChosenBound) -> DecidedDistribution:
        """All that follows from the choice of the samples per user."""
        plans = self.plans(chosen)
        return DecidedDistribution(chosen, self._whole(*plans[0].mechanism_steps()), plans)

    def _method_details(self) -> dict[str, str | int | float]:
        details: dict[str, str | int | float] = {"method": self.method}
        return details if self.hypothesis == "ks" else {**details, "choices by": self.hypothesis}

    def _whole(self, *steps: MechanismStep) -> Guarantee:
        if self.choice is not None:
            own = self.choice.budget
            first = MechanismStep("choice of the samples per user", own.epsilon, own.delta, self.choice.details())
            steps = (first, *steps)
        given = isinstance(self.samples, int)
        delta = 0.0 if given and self.plans()[0].method == "laplace" else self.budget.delta
        _, rest = self._parts()  # what follows a choice, or is in buckets, is known by its promise alone
        losses = self.plans()[0].losses() if given else Losses.of_promise(rest.epsilon, rest.delta)
        losses += Losses() if self.choice is None else choice_losses(self.choice)
        return Guarantee(self.budget.epsilon, delta, self.relation, steps, losses=losses)

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows item, probability, error, sorted by item, of contribution batches."""
        return self.run_decided(batches, release, label)[0]

    def run_decided(
        self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None
    ) -> tuple[pa.RecordBatch, DecidedDistribution | None]:
        """The same, and what was chosen, if the samples per user were."""
        label = self.name if label is None else label
        held, decided = [only_domain(batch, self.symbols) for batch in batches], None
        if self.choice is not None:
            decided = self.decided(choose_bound(held, self.choice, release, f"{label}/ChooseSamples"))
        plans = self.plans() if decided is None else decided.plans
        learned = [learn(held, self.steps(plan, release, label), release) for plan in plans]
        return combined(self.symbols.sorted_names, learned), decided

    def _plan(self, budget: Budget, samples: int, below: int | None) -> DistributionPlan:
        return plan_distribution(
            budget, len(self.symbols), samples, self.relation, self.users, self.method, self.hypothesis, below
        )

    def _parts(self) -> tuple[Budget | None, Budget]:
        """What the choice of the samples per user may cost, and the rest."""
        if self.samples not in RULES:
            return None, self.budget
        return split_budget(self.budget, tuning.CHOICE_SHARE_FOR_SAMPLES, "samples")


def learn_distribution(
    budget: Budget,
    domain: Iterable[str] | Iterable[int],
    *,
    samples_per_user: int | Literal["auto", "median", "buckets"] = "auto",
    method: str = "auto",
    users: int | None = None,
    hypothesis: str = "ks",
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> DistributionRelease:
    """The distribution of the domain's symbols, from users with `samples_per_user` samples or more; others are left out.

    "auto" and "median" choose that number privately; "buckets" learns from users of all sizes, apart. `users` is the number
    of users with that many samples, if it is public; else it is counted with noise where the method needs it. `hypothesis` is
    how the methods "dense" and "sparse" choose: "ks", or "phs" (the paper's), which says nothing for fewer users than
    `DistributionPlan.least_users`. If `users` are fewer, that is refused; if the noisy number is, the errors of all rows are 1.
    """
    check_budget(budget)
    symbols = public_domain(domain, item_type)
    samples: int | str = samples_per_user
    rules = (*RULES, "buckets")
    if samples not in rules:
        if isinstance(samples, str):
            raise wrong("samples_per_user", f"must be an integer or one of {rules}", samples_per_user)
        samples = check_samples("samples_per_user", samples)
    if users is not None:
        users = check_whole("users", users, 1, MOST_USERS)
        if isinstance(samples, str):
            raise ParameterError(
                f"users is the number of those with enough samples, which is not known for samples_per_user = {samples!r}: "
                "give an integer for that, or leave users out"
            )
    made = DistributionRelease(budget, symbols, item_type, samples, users, method, hypothesis, relation)
    probe = made.plans(None if made.choice is None else made.choice.ends()[0])[0]  # refuses what cannot be calibrated
    if isinstance(probe.users, int) and probe.users < probe.least_users():
        least = f"must be at least {probe.least_users()} for the hypothesis 'phs' and this budget, got {users}"
        raise ParameterError(f"users {least}: take 'ks'", "users")
    return made
