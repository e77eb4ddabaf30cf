"""The public table whose cells are counted, its noise, and the noisy cells.

Guarantee: a user is in at most `most` cells of one row of the table, once each, whatever its rows are (`OneRowStep`,
`LimitItemsStep` and `LimitPerItemStep` see to that, and change nothing in a record that is made as it should be). The noise of
each row is calibrated by itself, for min(most, its cells) of them, at the whole budget. Where one user is added or removed, one
row of the table changes, so that the cost is that of one row. Where one is replaced, two rows may change, one by what left and
one by what came; or one row, by both. Laplace noise is for twice the l1 norm in each, Gaussian noise for twice the squared l2
norm, and the halves of two rows add up to the whole.

Gaussian noise on a row of d cells that a user may all be in has a draw that the row shares (`calibration.shared_noise`): half
of the standard deviation, for many cells. Each row for each value of `by` has its own. Proof: docs/proofs/people.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import MechanismStep
from headcount.mechanisms.accounting.losses import Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import domain_digest
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bounding.steps import LimitItemsStep, LimitPerItemStep, Step
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.intervals import half_width
from headcount.mechanisms.calibration.noise import NOISES, calibrate_public_domain
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.checks import check_one_of
from headcount.mechanisms.counting.evidence import Evidence, Origin
from headcount.mechanisms.counting.noisy import noise_of, promised
from headcount.mechanisms.counting.sums import merge_sums, with_absent
from headcount.mechanisms.randomness.lane_ids import decision_lane_ids
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.noise import discrete_gaussian
from headcount.mechanisms.randomness.subkeys import block_key, lane_key, subkey

KURTOSIS_OF_LAPLACE = 3.0


@dataclasses.dataclass(frozen=True)
class OneRowStep:
    """Keeps the cells of a user that lie in the same row of the table as its first one. Items are the numbers of cells."""

    sizes: tuple[int, ...]
    name = "OneRow"

    def apply(self, shard: Shard, subkey: bytes) -> Shard:
        """The shard with every user in one row."""
        cells = sum(self.sizes)
        by, cell = np.divmod(np.asarray(shard.items), cells)
        row = by * len(self.sizes) + np.searchsorted(np.cumsum(self.sizes), cell, side="right")
        each = shard.rows_per_user()
        # Of users without rows, nothing is looked up.
        first = np.zeros(len(each), dtype=np.int64)
        first[each > 0] = row[shard.item[shard.offsets[:-1][each > 0]]]
        kept = np.flatnonzero(row[shard.item] == np.repeat(first, each))
        return shard.keep(kept, shard.count[kept])

    def promise(self, before: Bound) -> Bound:
        """What was promised before."""
        return before


@dataclasses.dataclass(frozen=True)
class CellNoise:
    """The noise of each cell: the variance of its own draw and of the one that its row shares, and what holds 95 % of both."""

    own: np.ndarray
    shared: np.ndarray
    half: np.ndarray
    kurtosis: float

    @property
    def stddev(self) -> np.ndarray:
        """That of each cell."""
        return np.sqrt(self.own + self.shared)


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of cells of these `sizes`, of which a user is in `most` at most, and the noise of each row."""

    sizes: tuple[int, ...]
    most: int
    plans: tuple[NoisePlan, ...]

    @property
    def cells(self) -> int:
        """Of all rows."""
        return sum(self.sizes)

    @property
    def steps(self) -> tuple[Step, ...]:
        """What bounds a user."""
        kept: tuple[Step, ...] = (LimitItemsStep(self.most), LimitPerItemStep(1))
        return (OneRowStep(self.sizes), *kept) if self.most > 1 else kept

    def noise(self) -> CellNoise:
        """The noise of the cells."""
        each = [
            (plan.stddev**2 - plan.shared_stddev**2, plan.shared_stddev**2, half_width(plan) * 2.0**-plan.grid)
            for plan in self.plans
        ]
        own, shared, half = (np.repeat(np.array(column), self.sizes) for column in zip(*each, strict=True))
        laplace = self.plans[0].kind == "laplace"
        return CellNoise(own, shared, half, KURTOSIS_OF_LAPLACE if laplace else 0.0)

    def losses(self) -> Losses:
        """What composition needs: of several rows, what dominates each of them, and two halves where a user is replaced."""
        plan = self.plans[0]
        each = [part.losses() for part in self.plans]
        if len(each) == 1:
            return each[0]
        if plan.kind == "gaussian" and all(part.mu and not part.rho for part in each):
            return Losses(mu=max(part.mu for part in each))
        return Losses.of_promise(plan.epsilon, plan.delta)

    def mechanism_steps(self) -> tuple[MechanismStep, ...]:
        """The parts of a guarantee."""
        told = "1 cell, once" if self.most == 1 else f"{self.most} cells of one row, once each"
        bounding = MechanismStep("bounding", 0.0, 0.0, {"a user adds at most": told})
        if len(self.plans) == 1:
            return bounding, self.plans[0].step("noise")
        plan = self.plans[0]
        scales = " / ".join(f"{float(each.scale / 2**each.grid):.8g}" for each in self.plans)
        details: dict[str, str | int | float] = {"noise": f"discrete {plan.kind.capitalize()}", "scales by row": scales}
        if any(each.shared is not None for each in self.plans):
            details["shared by each row"] = " / ".join(f"{each.shared_stddev:.8g}" for each in self.plans)
        details["stddev by row"] = " / ".join(f"{each.stddev:.8g}" for each in self.plans)
        return bounding, MechanismStep("noise", plan.epsilon, plan.delta, details)


def make_table(budget: Budget, sizes: Sequence[int], most: int, relation: Relation, noise: str) -> Table:
    """The table with noise for this budget: of "auto", Laplace, or Gaussian where that is less on average and delta allows it.

    Laplace noise takes no delta.
    """
    check_one_of("noise", noise, NOISES)
    kinds = [noise] if noise != "auto" else ["laplace", "gaussian"] if budget.delta > 0 and most > 1 else ["laplace"]
    made = []
    for kind in kinds:
        plans = {size: _plan(budget, size, most, relation, kind) for size in set(sizes)}
        made.append(Table(tuple(sizes), most, tuple(plans[size] for size in sizes)))
    return min(made, key=lambda table: float(np.mean(table.noise().own + table.noise().shared)))


def _plan(budget: Budget, size: int, most: int, relation: Relation, kind: str) -> NoisePlan:
    bound = promised((LimitItemsStep(min(most, size)), LimitPerItemStep(1)))
    # Of a user who is replaced, a row of one cell may be only one of two that change: so none is taken to be alone.
    items = size if relation is Relation.ADD_REMOVE else None
    return calibrate_public_domain(budget, bound, relation, kind, items)


def table_subkey(key: bytes, release_id: str, label: str, table: Table, question: str, public: Names) -> bytes:
    """The key of the noise: of what was asked, of every plan, and of the public list of the values of `by`."""
    plans = [plan.to_json() for plan in table.plans]
    return subkey(key, release_id, label, {"plans": plans, "question": question, "by": domain_digest(public)})


def noisy_cells(
    chunks: Iterable[bytes], origins: Iterable[Origin], table: Table, by: int, noise_subkey: bytes
) -> np.ndarray:
    """The noisy counts of all cells, for each of the `by` values: a table of as many rows, of sums of bounded batches.

    `origins` say where the batches come from. A changed input changes all noise, as in every histogram.
    """
    chunks = list(chunks)
    histogram, digest = merge_sums(chunks, noise_subkey, int) if chunks else (None, 0)
    evidence = Evidence.of([digest], origins)
    evidence.check(promised(table.steps))
    every = pa.array(np.arange(by * table.cells), pa.int64())
    histogram = with_absent(histogram, every, noise_subkey)
    order = np.argsort(np.asarray(histogram.column("item")))
    sums = np.asarray(histogram.column("sum"))[order].reshape(by, table.cells)
    ids = np.stack([np.asarray(histogram.column(name))[order] for name in ("lane_hi", "lane_lo")], axis=1)
    ids = ids.reshape(by, table.cells, 2)
    drawn = block_key(noise_subkey, evidence.digest.to_bytes(16, "little"))
    made = np.empty((by, table.cells))
    start = 0
    for row, (size, plan) in enumerate(zip(table.sizes, table.plans, strict=True)):
        here = slice(start, start := start + size)
        noise = noise_of(plan, Lanes(drawn, np.ascontiguousarray(ids[:, here].reshape(-1, 2)))).reshape(by, size)
        if plan.shared is not None:
            lanes = decision_lane_ids(lane_key(noise_subkey), b"shared by row %d" % row, by)
            noise = noise + discrete_gaussian(Lanes(drawn, lanes), plan.shared.scale)[:, None]
        value = (np.minimum(sums[:, here], 2**61 >> plan.grid) << plan.grid) + noise
        made[:, here] = value * 2.0**-plan.grid
    return made
