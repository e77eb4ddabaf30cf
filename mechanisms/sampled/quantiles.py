"""Quantiles and range counts by sample and threshold (the paper, sections on quantiles), over a public grid of leaves.

Each user counts with one value: that of one of its rows, each as likely as the others, so that a value in 99 of 100 rows
counts in 99 of 100 draws. (One of its distinct leaves would make one odd row as likely as all others together.) Whatever the
rows, a user has one leaf, once. Two mechanisms:

* `QuantileSearch` finds one quantile by bisection: in each round, the users left and right of the middle are sampled, and
  the larger-than-wanted side is taken. A user is in one of two counts in each of `rounds` rounds.
* `Hierarchy` samples every node of a tree over the leaves once; any number of quantiles and ranges can be read off what is
  shown. A user is in one node on each of `levels` levels.

Guarantee: (epsilon, delta)-differential privacy per user, by composing the rounds or levels. That needs a fresh sample for
each: with one sample for two levels, the difference of a parent and its known child shows a sampled user for certain, and
delta is at least the sampling rate. Here every lane holds its node, or the number of its round.
Proof: docs/proofs/sampled.md.

All that follows from what is shown is post-processing (`sampled_tree`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from fractions import Fraction

import numpy as np
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.packing import pack, unpack
from headcount.mechanisms.batches.run_sums import sum_by_code
from headcount.mechanisms.bounding.steps import RandClipStep, Step, promise_of
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.checks import check_share, check_whole
from headcount.mechanisms.counting.evidence import Evidence, Origin
from headcount.mechanisms.counting.noisy import bounded_batches, sums_of
from headcount.mechanisms.counting.sums import merge_sums, split_sums
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.randomness.binomial import binomial
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.randomness.lane_ids import decision_lane_ids
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.subkeys import block_key, lane_key, subkey
from headcount.mechanisms.sampled.histogram import (
    CHOICES,
    ONE_SAMPLE,
    SampledHistogramMechanism,
    SampleKey,
    sample_steps,
    sample_subkey,
)
from headcount.mechanisms.sampled.leaves import MOST_LEAVES, Leaves
from headcount.mechanisms.sampled.plan import SamplePlan, calibrate_sample
from headcount.mechanisms.sampled.tree import WITHIN, SampledTree, quantile_rows

#: One event of each user, a uniform draw by rows and their counts: one leaf, once.
ONE_LEAF: tuple[Step, ...] = (RandClipStep(1),)


@dataclasses.dataclass(frozen=True)
class QuantileSearch:
    """One quantile by bisection, as a value. Contributions are (user, leaf) rows, leaves as `leaves.index` gives them."""

    plan: SamplePlan
    leaves: Leaves
    quantile: Fraction
    name = "Quantile"
    steps = ONE_LEAF

    def __post_init__(self) -> None:
        if self.leaves.count & (self.leaves.count - 1):
            raise ParameterError(
                f"a search halves the leaves: their number must be a power of 2, got {self.leaves.count}"
            )
        _check_compositions(self.plan, "rounds", self.rounds)

    @property
    def bound(self) -> Bound:
        """What the steps promise of every user, and the plan is made for."""
        return _bound()

    @property
    def rounds(self) -> int:
        """How often the leaves can be halved."""
        return self.leaves.count.bit_length() - 1

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        steps = sample_steps(self.plan, _bound(), "rounds")
        plan = self.plan
        return Guarantee(plan.epsilon, plan.delta, plan.relation, steps, losses=plan.losses())

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released row quantile, value, low, high, rank_stddev; all but the first are NaN if nothing at all was shown."""
        label = self.name if label is None else label
        bounded = bounded_batches(batches, ONE_LEAF, release, f"{label}/Bounded")
        key = self.subkey(release.key_source.fetch(), release.id, f"{label}/Sampled")
        return self.search(*sums_of(bounded), key)

    def subkey(self, key: bytes, release_id: str, label: str) -> bytes:
        """The subkey of the step that searches: each search is a release of its own, also of the same values."""
        parameters = {"plan": self.plan.to_json(), "leaves": self.leaves.to_json(), "quantile": self.quantile}
        return subkey(key, release_id, label, parameters)

    def search(self, chunks: list[bytes], origins: Iterable[Origin], key: bytes) -> pa.RecordBatch:
        """The whole search, on all sums of the leaves. Round r samples with the lanes 2r and 2r + 1, whose key depends on all
        the leaves' sums, so that they determine what is counted in it.

        `rank_stddev` is as in `SampledTree.quantiles`, by the shares that were seen at both ends of the last leaf; `low` and
        `high` are the nearest middles at which the seen share differed from the wanted one by WITHIN standard deviations.
        """
        below, digest = np.zeros(self.leaves.count + 1, dtype=np.int64), 0
        if chunks:
            histogram, digest = merge_sums(chunks, key, int)
            below = np.append(0, np.cumsum(_dense(histogram, self.leaves.count)))
        evidence = Evidence.of([digest], origins)
        evidence.check(_bound())
        data = digest.to_bytes(16, "little")
        lanes = Lanes(block_key(key, data), decision_lane_ids(lane_key(key), data, 2 * self.rounds))
        q, noise = float(self.quantile), float(1 - self.plan.rate)
        first, last, low, high = 0, self.leaves.count, 0, self.leaves.count
        before, after, spread = 0.0, 1.0, math.nan  # the shares of the users before the first leaf, and up to the last
        for r in range(self.rounds):
            middle = (first + last) // 2
            both = np.array([below[middle], below[-1] - below[middle]])
            left, right = self._shown(binomial(lanes, both, self.plan.rate, [2 * r, 2 * r + 1]))
            if left + right == 0:
                break
            sampled = left + right
            share, hidden = left / sampled, 0 if left and right else self.plan.threshold / sampled
            spread = math.sqrt(q * (1 - q) * noise / sampled + hidden**2 / 3)
            if left < self.quantile * sampled:
                first, before = middle, share
            else:
                last, after = middle, share
            if share < q - WITHIN * spread:
                low = max(low, middle)
            elif share > q + WITHIN * spread:
                high = min(high, middle)
        if math.isnan(spread):
            return quantile_rows([(q, math.nan, math.nan, math.nan, math.nan)])
        value, low_value, high_value = (float(self.leaves.edge(at)) for at in (Fraction(first + last, 2), low, high))
        return quantile_rows([(q, value, low_value, high_value, math.hypot(spread, max(q - before, after - q)))])

    def _shown(self, sampled: np.ndarray) -> tuple[int, int]:
        left, right = (s if s >= self.plan.threshold else 0 for s in sampled.tolist())
        return left, right


def quantile_search(
    budget: Budget,
    quantile: float,
    lo: int | float,
    hi: int | float,
    *,
    rounds: int = 10,
    relation: Relation = Relation.ADD_REMOVE,
) -> QuantileSearch:
    """One quantile of the users' values, to (hi - lo) / 2^rounds; values outside lo .. hi count as its ends."""
    rounds = check_whole("rounds", rounds, 1, MOST_LEAVES.bit_length() - 1)
    leaves = Leaves(lo, hi, 1 << rounds)
    return QuantileSearch(calibrate_sample(budget, "w50", relation, rounds), leaves, check_share("quantile", quantile))


@dataclasses.dataclass(frozen=True)
class Hierarchy:
    """A sampled tree over branching^levels leaves as a value. Contributions are (user, leaf) rows.

    Node v of level l (1 .. levels) has the leaves v b^(levels-l) .. (v+1) b^(levels-l) - 1. It is item offset(l) + v of a
    histogram in which every user has `levels` items, one for each level.
    """

    plan: SamplePlan
    leaves: Leaves
    branching: int
    levels: int
    name = "Quantiles"
    steps = ONE_LEAF

    def __post_init__(self) -> None:
        if self.leaves.count != self.branching**self.levels:
            raise ParameterError(
                f"a tree has branching ** levels leaves, got {self.leaves.count} for {self.branching} ** {self.levels}"
            )
        _check_compositions(self.plan, "levels", self.levels)

    @property
    def histogram(self) -> SampledHistogramMechanism:
        """The histogram of all nodes."""
        return SampledHistogramMechanism(self.name, self.plan, 1, self.plan.threshold, int)

    def offset(self, level: int) -> int:
        """The number of the level's first node."""
        return sum(self.branching**above for above in range(1, level))

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        steps = sample_steps(self.plan, _bound(), "levels")
        plan = self.plan
        return Guarantee(plan.epsilon, plan.delta, plan.relation, steps, losses=plan.losses())

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released nodes, which `tree` reads; `label` names the sample."""
        key = SampleKey(self, release, label or ONE_SAMPLE)
        bounded = list(bounded_batches(batches, ONE_LEAF, key.choices, CHOICES))
        chunks = [chunk for batch in bounded for _, chunk in self.sum_nodes(batch, 1)]
        return self.histogram.sampled_counts(chunks, map(Origin.of, bounded), key.fetch())

    def subkey(self, key: bytes, release_id: str, sample: str) -> bytes:
        """The subkey of the sample of that name. What is read off the tree is no part of it."""
        tree = {"leaves": self.leaves.to_json(), "branching": self.branching, "levels": self.levels}
        return sample_subkey(key, release_id, sample, self.plan, tree)

    def sum_nodes(self, batch: pa.RecordBatch, shards: int) -> Iterator[tuple[int, bytes]]:
        """Sums a bounded batch of leaves by node, for every level, and cuts the sums into chunks by a hash of the node."""
        item = batch.column("item")
        leaf = np.asarray(item.cast(item.type.value_type) if isinstance(item, pa.DictionaryArray) else item)
        sums = _by_leaf(leaf, np.asarray(batch.column("count")), self.leaves.count)
        nodes, counts = [], []
        for level in range(self.levels, 0, -1):
            present = np.flatnonzero(sums)
            nodes.append(present + self.offset(level))
            counts.append(sums[present])
            sums = sums.reshape(-1, self.branching).sum(axis=1)
        return split_sums(pa.array(np.concatenate(nodes)), {"sum": np.concatenate(counts)}, shards)

    def tree(self, rows: pa.RecordBatch) -> SampledTree:
        """The released rows of the nodes' histogram as a tree."""
        item, sampled = np.asarray(rows.column("item")), np.asarray(rows.column("sampled"))
        every = np.zeros(self.offset(self.levels + 1), dtype=np.int64)
        every[item] = sampled
        shown = [every[self.offset(level) : self.offset(level + 1)] for level in range(1, self.levels + 1)]
        return SampledTree(self.plan, self.leaves, self.branching, tuple(shown))


def quantile_hierarchy(
    budget: Budget,
    lo: int | float,
    hi: int | float,
    *,
    levels: int = 10,
    branching: int = 2,
    relation: Relation = Relation.ADD_REMOVE,
) -> Hierarchy:
    """A tree over branching^levels equal parts of lo .. hi; values outside count as its ends."""
    most = MOST_LEAVES.bit_length() - 1
    levels = check_whole("levels", levels, 1, most)
    branching = check_whole("branching", branching, 2, MOST_LEAVES)
    if branching**levels > MOST_LEAVES:
        raise ParameterError(f"branching ** levels must be at most {MOST_LEAVES}, got {branching} ** {levels}")
    return Hierarchy(
        calibrate_sample(budget, "w50", relation, levels), Leaves(lo, hi, branching**levels), branching, levels
    )


def add_leaves(chunks: Iterable[bytes]) -> bytes:
    """The sums of some chunks of `sum_items`, added up by leaf, as one chunk."""
    parts = [unpack(chunk)[0] for chunk in chunks]
    leaf, sums = (np.concatenate([np.asarray(part[name]) for part in parts]) for name in ("item", "sum"))
    leaves, code = np.unique(leaf, return_inverse=True)
    return pack({"item": pa.array(leaves), "sum": pa.array(sum_by_code(code, sums, len(leaves)))})


def _check_compositions(plan: SamplePlan, name: str, number: int) -> None:
    """Every user is in each of the samples: a plan for fewer promises too much."""
    if plan.compositions < number:
        raise ParameterError(f"the plan is for {plan.compositions} {name}, got {number}: choose one for as many")


def _bound() -> Bound:
    return promise_of(ONE_LEAF, Bound(), "")


def _dense(histogram: pa.RecordBatch, count: int) -> np.ndarray:
    return _by_leaf(np.asarray(histogram.column("item")), np.asarray(histogram.column("sum")), count)


def _by_leaf(leaf: np.ndarray, sums: np.ndarray, count: int) -> np.ndarray:
    if leaf.dtype != np.int64 or (len(leaf) and not 0 <= int(leaf.min()) <= int(leaf.max()) < count):
        raise InputError(f"items are not the leaves 0 to {count - 1} of the mechanism's grid; make them by its leaves")
    return sum_by_code(leaf, sums, count)
