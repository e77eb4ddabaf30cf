"""How many distinct items there are, where users have several: every item of every user counts, at a weight.

A user with d items gives each of them the weight min(1, K / d), so that all of its weights add up to K at most. An item counts
min(1, its weights), and the answer is the sum over items: F(K). It never exceeds the number of distinct items, and is that
number where every item has a user of at most K items, or enough others. What it can miss are items of nobody but users of more
than K items. How many these are, no private answer can tell: one user may have any number of items that nobody else has. So
`low` is a lower limit whatever the data are; `high` is an upper one only where no user has more than K items, and is not given
where K was chosen.

K is given or chosen, out of powers of two. Let N(K) be the number of users with more than K items, and M(K) the lower one of
N(K) and F(K) / K; it falls with K. Where M(K) is R, about R users may have items that are missed, and the noise is about 1 / R
of the answer, or less. The exponential mechanism chooses by the distance |M(K) - R|, with R = 4 / epsilon of the choice. Each
doubling of K has 1/e of the weight besides, since the noise doubles too.

Guarantee: user-level epsilon-differential privacy, delta 0, for either relation. Proof: a user who is added raises F(K) by at
most the sum of its weights, hence by 0 to K, as min(1, .) never rises by more than what is added to it. If a user is replaced,
F(K) falls by 0 to K and then rises by 0 to K: by at most K in all. So the noise is for a distance of K under both relations.
N(K) and F(K) / K move by at most 1, and so do M(K) and |M(K) - R|: the range is at most 2 (`em_exponents`; weights that depend
on nothing but K do not change it). Choice and noise add up to the budget. Weights are whole numbers of 2**-30, rounded down for
each user before any sum; F is rounded down to 2**-10 before the noise, which is made for exactly K in these units.
Proof: docs/proofs/shape.md.

After Knop, Steinke: "Counting Distinct Elements Under Person-Level Differential Privacy" (2023). Their F is the largest that
any weights reach, a maximal flow over all of the data; here the weights of a user are equal, so that one pass computes it.
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

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, check_budget, check_parts
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.losses import Draw, Laplace, Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bounding.steps import check_bound
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import calibrate_public_domain
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.choice.base import TableChoice
from headcount.mechanisms.choice.exponential import em_exponents, select
from headcount.mechanisms.choice.run import choose_bound, default_share, split_budget
from headcount.mechanisms.partitions.expected_weights import FRACTION_BITS, merged_weights, split_weights
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.noise import discrete_laplace

#: `low` and `high` miss by their noise at most this often, together.
MISSED = 0.05

_GRID_BITS = 10  # of F, when it gets its noise


class NoisyDistinct(NamedTuple):
    """What is drawn: the bound, and F of it with noise, in units of 2**-10. Public, since it is paid for."""

    max_items: int
    units: int


@dataclasses.dataclass(frozen=True)
class DistinctItemsMechanism(TableChoice):
    """The number of distinct items as a value: a choice of a bound, unless `max_items` is given, and one noise.

    It keeps the protocol of a `Choice`, whose table has N(K) of every candidate, and then F(K) in units of 2**-30.
    """

    budget: Budget
    choosing: Budget | None
    release_budget: Budget
    relation: Relation
    max_items: int | None
    name = "DistinctItems"
    by_item = True
    bounded_range = False  # there is noise, too, by later words of the same lane

    def __post_init__(self) -> None:
        check_parts(self.budget, *([] if self.choosing is None else [self.choosing]), self.release_budget)

    @cached_property
    def candidate_grid(self) -> tuple[int, ...]:
        """The bounds that there are to choose from: one, if it is given."""
        return tuning.ITEMS_OF_DISTINCT if self.max_items is None else (self.max_items,)

    @property
    def entries(self) -> int:
        """The length of the table."""
        return 2 * len(self.candidate_grid)

    def plan(self, max_items: int) -> NoisePlan:
        """The noise for a bound, in units of 2**-10; for either relation, as the proof says."""
        moved = Bound(l1=max_items << _GRID_BITS)
        return calibrate_public_domain(self.release_budget, moved, Relation.ADD_REMOVE, "laplace")

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        rest = self.release_budget
        if self.max_items is None:
            assert self.choosing is not None
            first = MechanismStep("choice of the bound", self.choosing.epsilon, 0.0, self.details())
            noise: dict[str, str | int | float] = {
                "noise": "discrete Laplace",
                "calibrated for": "the bound that is chosen",
            }
        else:
            first = MechanismStep("bounding", 0.0, 0.0, {"a user adds at most": f"weights of {self.max_items} in all"})
            noise = {"noise": "discrete Laplace", "stddev": self.stddev(self.max_items)}
        steps = (first, MechanismStep("distinct items", rest.epsilon, 0.0, noise))
        return Guarantee(self.budget.epsilon, 0.0, self.relation, steps, losses=self._losses())

    def _losses(self) -> Losses:
        """Those of the choice, and of the noise for whatever bound it takes: a multiple of one item's steps."""
        if self.choosing is None:
            return self.plan(self.candidate_grid[0]).losses()
        return Losses.of(Draw(self.choosing.epsilon), Laplace(self.release_budget.epsilon, 1 << _GRID_BITS))

    def stddev(self, max_items: int) -> float:
        """The standard deviation of the noise, in items."""
        return self.plan(max_items).stddev / (1 << _GRID_BITS)

    def user_table(self, shard: Shard) -> list[int]:
        """N(K) of the shard's users."""
        rows = np.sort(shard.rows_per_user())
        above = len(rows) - np.searchsorted(rows, np.array(self.candidate_grid), side="right")
        return [*above.tolist(), *[0] * len(self.candidate_grid)]

    def item_chunks(self, shard: Shard, shards: int) -> Iterator[tuple[int, bytes]]:
        """What the users of a shard give to their items, by item shard."""
        return split_weights(shard, shards)

    def item_table(self, chunks: Iterable[bytes]) -> list[int]:
        """F(K) of the items of one shard."""
        found = [0] * len(self.candidate_grid)
        for sums in merged_weights(chunks, self.candidate_grid, 1):
            for step, bound in enumerate(self.candidate_grid):
                # A user beyond the step has a share below 2**30 / K, so that K times the sum of them fits 64 bits.
                beyond = bound * (sums.shares[:, -1] - sums.shares[:, step])
                whole = (sums.users[:, step] > 0) | (beyond >= 1 << FRACTION_BITS)
                found[step] += int(np.where(whole, 1 << FRACTION_BITS, beyond).sum())
        return [*[0] * len(self.candidate_grid), *found]

    def exponents(self, table: Sequence[int]) -> list[Fraction]:
        """The exponents of the bounds: each is chosen with a probability proportional to exp(-exponent)."""
        assert self.choosing is not None
        epsilon = self.choosing.epsilon_fraction
        rank = math.ceil(tuning.USERS_ABOVE_BOUND / epsilon)
        losses = [
            abs(min(Fraction(above), Fraction(found, bound << FRACTION_BITS)) - rank)
            for bound, above, found in zip(self.candidate_grid, table, table[len(self.candidate_grid) :], strict=False)
        ]
        return [step + exponent for step, exponent in enumerate(em_exponents(losses, 2, epsilon))]

    def choose(self, table: Sequence[int], lanes: Lanes) -> NoisyDistinct:
        """The private choice of the bound, unless it is given, and F of it with noise."""
        step = 0 if self.max_items is not None else select(self.exponents(table), lanes)
        bound, found = self.candidate_grid[step], table[len(self.candidate_grid) + step]
        noise = int(discrete_laplace(lanes, self.plan(bound).scale)[0])
        return NoisyDistinct(bound, (found >> (FRACTION_BITS - _GRID_BITS)) + noise)

    def ends(self) -> tuple[NoisyDistinct, NoisyDistinct]:
        """The smallest and the largest bound."""
        return NoisyDistinct(self.candidate_grid[0], 0), NoisyDistinct(self.candidate_grid[-1], 0)

    def parameters(self) -> Mapping[str, Any]:
        """What defines the mechanism, in canonical form."""
        return {"ladder": self.candidate_grid, "plans": [self.plan(bound).to_json() for bound in self.candidate_grid]}

    def details(self) -> Mapping[str, str | int | float]:
        """What a reader of the guarantee should know of the choice."""
        return {
            "items per user": f"{self.candidate_grid[0]} to {self.candidate_grid[-1]}",
            "candidates": len(self.candidate_grid),
        }

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The one released row of contribution batches."""
        return self.run_decided(batches, release, label)[0]

    def run_decided(
        self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None
    ) -> tuple[pa.RecordBatch, DistinctAnswer]:
        """The same, and the row in words."""
        label = self.name if label is None else label
        drawn = choose_bound(batches, self, release, f"{label}/Noisy")
        return self.rows(drawn), self.decided(drawn)

    def rows(self, drawn: NoisyDistinct) -> pa.RecordBatch:
        """The row count, noise_stddev, low, high, max_items of what was drawn. Post-processing."""
        unit = 1 << _GRID_BITS
        plan = self.plan(drawn.max_items)
        width = float(plan.scale) * math.log(1 / MISSED) / unit
        count = drawn.units / unit
        row = {
            "count": round(max(count, 0.0)),
            "noise_stddev": plan.stddev / unit,
            "low": math.floor(max(count - width, 0.0)),
            "high": None if self.max_items is None else math.ceil(max(count, 0.0) + width),
            "max_items": drawn.max_items,
        }
        return pa.RecordBatch.from_pylist([row], SCHEMA)

    def decided(self, drawn: NoisyDistinct) -> DistinctAnswer:
        """The row in words, for a report."""
        return DistinctAnswer(self.guarantee(), self.rows(drawn).to_pylist()[0])


SCHEMA = pa.schema(
    {
        "count": pa.int64(),
        "noise_stddev": pa.float64(),
        "low": pa.int64(),
        "high": pa.int64(),
        "max_items": pa.int64(),
    }
)


@dataclasses.dataclass(frozen=True)
class DistinctAnswer:
    """The number of distinct items, for a report."""

    guarantee: Guarantee
    row: Mapping[str, Any]

    def description(self) -> str:
        """The answer, and what it can miss."""
        row = self.row
        limits = f"at least {row['low']:,}" if row["high"] is None else f"{row['low']:,} to {row['high']:,}"
        return (
            f"distinct items: about {row['count']:,}, {limits} (95 %)\n"
            f"items that only users with more than {row['max_items']:,} items have may be missing; how many cannot be told "
            "privately"
        )

    def report_fields(self) -> dict[str, Any]:
        """The same for a machine."""
        return {"distinct_items": dict(self.row)}


def distinct_items(
    budget: Budget, *, max_items: int | None = None, relation: Relation = Relation.ADD_REMOVE
) -> DistinctItemsMechanism:
    """How many distinct items there are. A user of more than `max_items` gives each a part of its weight (default: None, the
    bound is chosen with a tenth of epsilon). Where no user has more, `high` is an upper limit."""
    check_budget(budget)
    whole = Budget(budget.epsilon)
    if max_items is not None:
        made = DistinctItemsMechanism(whole, None, whole, relation, check_bound("max_items", max_items))
    else:
        choosing, rest = split_budget(whole, default_share("error"), "em")
        made = DistinctItemsMechanism(whole, choosing, rest, relation, None)
    made.plan(made.candidate_grid[-1])  # refuses what cannot be calibrated
    return made
