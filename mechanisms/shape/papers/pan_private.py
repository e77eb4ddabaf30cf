"""Counters that hold even if their memory is seen (the paper, pan-private model): noise is in them before the first event.

There are B counters, one for each bucket (or item of a listed domain). Each begins with discrete Laplace noise, and each
event adds one to one of them; the shape follows as in `anonymized`, or `hashed` where items were hashed.

Guarantee: epsilon-differential privacy per *event*, not per user, under adding, removing or (REPLACE) changing one event, to
whoever sees what the mode allows:
- protect "either": the memory at one moment, or the output; not both. Two views of the same noise differ by exact counts.
- protect "both": the memory at one moment, and the output, which has fresh noise on top. The two views are as good as
  (h1 + Z1, h2 + Z2), where h1 are the events before the intrusion and h2 those after it: an event is in one of them only, so
  that epsilon is paid once. Then the estimate must undo two noises (`anonymized.best_shape`), one more for each
  `PanPrivateState.announce_intrusion`, which adds fresh noise so that the memory may be seen once more.
In mode "l2" with hashed items (Corollary 3) an event adds one to a second counter, too, that of a second hash into `ranks`
further counters (`hashed.rank_buckets`), and all noise has twice the scale, since an event moves two counters.
Proof: docs/proofs/shape.md.

A checkpoint of the state that is stored where others can read it is an intrusion. The noise comes from the operating system
and is kept only as part of the counters: a seed, or noise that a release key can make again, would let whoever sees the
memory take it off. All B counters exist from the start, since a counter that appears with its first event tells of it.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Literal, get_args

import numpy as np
import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import laplace_scale
from headcount.mechanisms.checks import check_one_of
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.randomness.system import laplace
from headcount.mechanisms.shape.anonymized import Estimate, check_estimate
from headcount.mechanisms.shape.hashed import BucketMode, crowded, rank_buckets, summed_shape
from headcount.mechanisms.shape.tallies import Tally, check_cells, make_tally

#: All counters are held in memory.
MOST_COUNTERS = 10**9

_REASON = "all counters must exist, with their noise, before the first event"


@dataclasses.dataclass(eq=False)
class PanPrivateState:
    """What is in memory, all of it: the noisy counters, how often noise was added to each, and whether they were released."""

    counters: np.ndarray  # int64
    scale: Fraction
    noises: int
    released: bool = False

    def count(self, buckets: np.ndarray, events: np.ndarray | int = 1) -> None:
        """One event, or a number of them, in each of these buckets; a bucket may come several times."""
        buckets = np.asarray(buckets, dtype=np.int64)
        if self.released:
            raise InputError("these counters were released; an event added now would be seen without noise: start anew")
        if buckets.size and not 0 <= int(buckets.min()) <= int(buckets.max()) < len(self.counters):
            raise InputError(f"a bucket is not between 0 and {len(self.counters) - 1}; hash items with buckets_of")
        np.add.at(self.counters, buckets, events)

    def announce_intrusion(self) -> None:
        """Fresh noise on every counter, after their content was seen or a copy of it was stored where it can be seen.

        Never before: noise that is in the copy, too, does not hide what comes after it.
        """
        self.counters += laplace(len(self.counters), self.scale)
        self.noises += 1


@dataclasses.dataclass(frozen=True)
class PanPrivateMechanism:
    """Pan-private counting as a value: it makes the state, and the shape from it."""

    epsilon: float
    relation: Relation
    buckets: int
    scale: Fraction
    protect: Literal["both", "either"]
    mode: BucketMode = "l1"
    ranks: int = 0  # counters of the second hash, if there is one
    estimate: Estimate = "auto"
    name = "PanPrivateCounts"

    @property
    def cells(self) -> int:
        """All counters; those of the second hash come after those of the first."""
        return self.buckets + self.ranks

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs: to each event."""
        seen = (
            "the memory at one moment and the output"
            if self.protect == "both"
            else "the memory at one moment or the output"
        )
        noise: dict[str, str | int | float] = {"noise": "discrete Laplace", "scale": float(self.scale)}
        noise |= {"counters": self.cells, "may be seen": seen}
        step = MechanismStep("noise before the first event", self.epsilon, 0.0, noise)
        return Guarantee(self.epsilon, 0.0, self.relation, (step,), unit="event")

    def start(self) -> PanPrivateState:
        """The state before the first event. Make it once and keep it: a second one has other noise."""
        return PanPrivateState(laplace(self.cells, self.scale), self.scale, 1)

    def shape(self, state: PanPrivateState, samples: int | None = None) -> pa.RecordBatch:
        """The released rows count, items, error; once only. `samples` is about how many events there were, a public number, if
        items were hashed to buckets: then collisions are taken out."""
        if state.released:
            raise InputError(
                "these counters were released already; a second output with other noise would tell more: keep the first"
            )
        if len(state.counters) != self.cells or state.scale != self.scale:
            raise ParameterError(f"the state was made for other counters than {self.cells} of the scale {self.scale}")
        values, noises = state.counters, state.noises
        if self.protect == "both":
            values, noises = values + laplace(self.cells, self.scale), noises + 1
        state.released = True
        p = math.exp(-1 / float(self.scale))
        ranks = make_tally(values[self.buckets :]) if self.ranks else None
        return summed_shape(make_tally(values[: self.buckets]), ranks, p, samples, noises, self.mode, self.estimate)

    def notes(self, shape: Tally) -> tuple[str, ...]:
        """What a released shape tells of public numbers that do not fit the data."""
        return crowded(shape, self.buckets)


def pan_private_counts(
    budget: Budget,
    *,
    buckets: int,
    protect: Literal["both", "either"] = "both",
    relation: Relation = Relation.ADD_REMOVE,
    mode: BucketMode = "l1",
    hashed: bool = True,
    estimate: Estimate = "auto",
) -> PanPrivateMechanism:
    """Counters for events of this number of buckets, which is public, each event in one of them. Items are `hashed` to buckets,
    about four for each event, or have one each: in mode "l2" the first need further counters for their ranks."""
    size = check_cells("buckets", buckets, _REASON)
    check_one_of("mode", mode, get_args(BucketMode), ": the curator's mode needs the events themselves")
    ranks = rank_buckets(-(-size // tuning.BUCKETS_PER_USER)) if mode == "l2" and hashed else 0
    if size + ranks > MOST_COUNTERS:
        further = f" and {ranks} for the ranks of mode 'l2'" if ranks else ""
        raise ParameterError(
            f"at most {MOST_COUNTERS} counters fit into memory, got {size}{further}: hash to fewer buckets"
        )
    check_one_of("protect", protect, ("both", "either"))
    moved = 2 if ranks else 1
    scale = laplace_scale(budget, moved, Bound(l0=moved, l1=moved, linf=1), relation)
    return PanPrivateMechanism(budget.epsilon, relation, size, scale, protect, mode, ranks, check_estimate(estimate))
