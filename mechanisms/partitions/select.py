"""Which items may be named: private selection of partitions, by eight strategies.

A round of selection takes each user's distinct items, less those that earlier rounds have named, and of these a uniform sample
of at most K. Each gets a weight (`weights`), the sums by item get noise, and the items whose noisy sum reaches the threshold
are named.

    laplace, gaussian     each kept item counts one; noise and threshold as for the histogram of an unknown domain
    truncated-geometric   each counts one; the optimal noise for one item (Desfontaines, Voss, Gipson, Mandayam, "Differentially
                          private partition selection", 2022), at (epsilon/K, delta/K)
    weighted-gaussian     a user's d items weigh 1/sqrt(d) each: Gaussian noise for an l2 norm of 1, whatever K is
    weighted-laplace      they weigh 1/d each: Laplace noise for an l1 norm of 1
    sips                  rounds of weighted-gaussian on the items not named yet (Swanberg, Desfontaines, Haney, "DP-SIPS:
                          A simpler, more scalable mechanism for differentially private partition selection", 2023)
    law                   a user's d items weigh one by the fourth root of d, and an item of a total weight is named by a coin:
                          no noise, as nothing but names is released (`selection_curve`); in rounds, too
    auto                  a curve is chosen privately first, with its K (`auto`)

Guarantee: user-level (epsilon, delta)-differential privacy of the set of named items, under the relation; the proofs stand at
the calibrations (`rounds`). Sums are dropped: nothing but names is released. The items that a round has named are public,
so that the next one may leave them out; it draws its samples anew, from lanes of its own.
Proof: docs/proofs/partitions.md.

Interface for other modules:

    Round(max_items, weights, plan)                                        one round as a value
    rounds_of(budget, strategy, max_items, rounds, relation)               rounds that together are (epsilon, delta)
    zcdp_rounds(rho, delta, max_items, relation, selection)                rounds that together are zCDP
    named_in_rounds(users, rounds, release, label, item_type)                   the items that they name, sorted: without Beam
    transforms.partitions.NamedItems(rounds, release, shards, item_type, partitions)   the same on packed shards of users
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import arrow_type
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.packing import to_ipc
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.batches.threads import Parts
from headcount.mechanisms.batches.user_shards import users_of
from headcount.mechanisms.counting.noisy import bounded_users, noisy_counts
from headcount.mechanisms.counting.released import sorted_counts
from headcount.mechanisms.partitions.rounds import Round, rounds_losses, rounds_of
from headcount.mechanisms.partitions.rounds import zcdp_rounds as zcdp_rounds
from headcount.mechanisms.randomness.keys import Release


def named_in_rounds(
    users: Parts[Shard], rounds: Sequence[Round], release: Release, label: str, item_type: type = str
) -> Names:
    """The items that the rounds name, sorted: what `NamedItems` of the same label gives."""
    return counts_in_rounds(users, rounds, release, label, item_type).column("item")


def counts_in_rounds(
    users: Parts[Shard], rounds: Sequence[Round], release: Release, label: str, item_type: type = str
) -> pa.RecordBatch:
    """The same with the noisy sums by which the items were named: the guarantee holds for them, too.

    Curves have no noisy sums, and give their median in place of one.
    """
    named: list[pa.RecordBatch] = []
    for number, each in enumerate(rounds, 1):
        where = f"{label}/Round{number}"
        before = pa.concat_arrays([pa.array([], arrow_type(item_type)), *(batch.column("item") for batch in named)])
        left = users.map(functools.partial(_without, before))
        bounded = bounded_users(left, each.steps, release, f"{where}/Bounded")
        named.append(noisy_counts(bounded, each.plan, release, f"{where}/NoisyCounts", item_type=item_type))
    return sorted_counts(map(to_ipc, named))


def _without(named: Names, shard: Shard) -> Shard:
    return shard.without_items(named)


@dataclasses.dataclass(frozen=True)
class Selection:
    """A whole private selection as a value: the rounds that name items. `run` is the mechanism without Beam."""

    strategy: str
    budget: Budget
    rounds: tuple[Round, ...]
    relation: Relation
    item_type: type
    name = "SelectPartitions"

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        steps = selection_steps(self.strategy, self.budget, self.rounds)
        losses = rounds_losses(self.strategy, self.budget, self.rounds)
        return Guarantee(self.budget.epsilon, self.budget.delta, self.relation, steps, losses=losses)

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The named items of contribution batches, sorted, as the one column `item`."""
        label = self.name if label is None else label
        names = named_in_rounds(users_of(batches), self.rounds, release, f"{label}/NamedItems", self.item_type)
        return pa.RecordBatch.from_pydict({"item": names})


def select_partitions(
    budget: Budget,
    *,
    strategy: str,
    max_items: int,
    rounds: int = tuning.ROUNDS,
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> Selection:
    """The selection by a strategy that is given, with at most `max_items` items of each user in a round."""
    arrow_type(item_type)
    made = rounds_of(budget, strategy, max_items, rounds, relation)
    return Selection(strategy, budget, made, relation, item_type)


def in_items(number: int) -> str:
    """A number of items in words."""
    return "1 item" if number == 1 else f"{number:,} items"


class ChosenStrategy(NamedTuple):
    """The strategy and the items per user that were chosen; public, since the choice is paid for.

    `rounds` is for curves: where it is 0, the strategy says how many there are.
    """

    strategy: str
    max_items: int
    rounds: int = 0

    def description(self) -> str:
        """The choice in one line."""
        return f"chosen: {self.short_description()}"

    def short_description(self) -> str:
        """What was chosen, as a part of a sentence."""
        rounds = {0: "", 1: " in one round"}.get(self.rounds, f" in {self.rounds} rounds")
        return f"{self.strategy}{rounds} with at most {in_items(self.max_items)} of each user"

    def report_fields(self) -> Mapping[str, Any]:
        """The choice as a part of a report."""
        return {"chosen": {name: value for name, value in self._asdict().items() if value}}


_WEIGHTS_IN_WORDS = {
    "count": "each counting one",
    "events": "one event",
    "l2": "each weighing 1/sqrt of their number",
    "l1": "each weighing 1 by their number",
    "law": "each weighing one by the fourth root of their number",
}
_NOISE_IN_WORDS = {
    "laplace": "discrete Laplace",
    "gaussian": "discrete Gaussian",
    "truncated-geometric": "discrete Laplace below the threshold",
}


def selection_steps(strategy: str, budget: Budget, rounds: Sequence[Round]) -> tuple[MechanismStep, ...]:
    """The parts of the guarantee of these rounds; scales and thresholds are given round by round, in counts."""
    first, plans = rounds[0], [each.plan for each in rounds]
    kept = {"a user adds at most": f"{in_items(first.max_items)}, {_WEIGHTS_IN_WORDS[first.weights]}"}
    scales = [float(plan.scale / 2**plan.grid) for plan in plans]
    limits = [float(plan.threshold_in_counts or 0) for plan in plans]
    if len(rounds) > 1:
        kept["in each of"] = f"{len(rounds)} rounds, without the items named before"
    if first.plan.kind == "law":
        halves = " / ".join(f"{limit:.8g}" for limit in limits)
        curve: dict[str, str | int | float] = {"strategy": strategy, "an even chance at a weight of": halves}
        return MechanismStep("bounding", 0.0, 0.0, kept), MechanismStep("coins", budget.epsilon, budget.delta, curve)
    details: dict[str, str | int | float] = {"strategy": strategy, "noise": _NOISE_IN_WORDS[first.plan.kind]}
    details["grid"] = f"2^-{first.plan.grid}" if first.plan.grid else "1"
    if len(rounds) == 1:
        details |= {"scale": scales[0], "threshold": limits[0]}
    else:
        details |= {"scales": " / ".join(f"{scale:.8g}" for scale in scales)}
        details |= {"thresholds": " / ".join(f"{limit:.8g}" for limit in limits)}
    return (
        MechanismStep("bounding", 0.0, 0.0, kept),
        MechanismStep("noise and threshold", budget.epsilon, budget.delta, details),
    )
