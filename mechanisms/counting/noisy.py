"""Noise and threshold on sums by item: what every histogram of this house ends with, and its steps in a row, without Beam.

Guarantee: if each user contributes within the `Bound` that the `NoisePlan` was calibrated for, the released counts are
(epsilon, delta)-differentially private for the plan's relation, per user; the proofs are those of `calibration` and
`thresholds`. `Evidence.check` refuses sums that are bounded otherwise, before anything is drawn.
Proof: docs/proofs/histogram.md.

Noise goes only to items with a positive *bounded* sum, or to all items of a public domain. On every item of the raw data each
of one user's many items would have its own chance to pass the threshold. Noise lanes depend on the item, its sum and a digest
of the whole bounded histogram: a repeated run repeats the noise, and a changed input changes all of it.

The functions are the steps of the Beam pipeline. `bounded_batches` and `noisy_counts` run them in a row, and a pipeline with
the same key, id and labels gives exactly their rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from headcount.mechanisms.accounting.guarantee import MechanismStep
from headcount.mechanisms.batches.cut import brought_together, item_shards_here
from headcount.mechanisms.batches.domain import Domain, arrow_type, only_domain
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.packing import to_ipc
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.batches.threads import Parts, side_by_side
from headcount.mechanisms.batches.user_shards import users_of
from headcount.mechanisms.bounding.steps import (
    Step,
    bound_shard,
    check_kept,
    promise_of,
    provenance,
    step_subkeys,
)
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.counting.evidence import Evidence, Origin
from headcount.mechanisms.counting.released import counts_batch, empty_counts, sorted_counts
from headcount.mechanisms.counting.sums import merge_sums, sum_items, with_absent, zero_sums
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.randomness.lane_ids import decision_lane_ids
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.noise import by_curve, discrete_gaussian, discrete_laplace, truncated_laplace
from headcount.mechanisms.randomness.subkeys import block_key, lane_key, subkey


def promised(steps: tuple[Step, ...]) -> Bound:
    """What the steps promise, labelled by what they are: noise after other steps is other noise, even for an equal bound."""
    return promise_of(steps, Bound(), repr(steps))


def mechanism_steps(plan: NoisePlan) -> tuple[MechanismStep, ...]:
    """The parts of the guarantee of a histogram with this plan."""
    bounding = MechanismStep("bounding", 0.0, 0.0, {"a user adds at most": plan.bound.description()})
    return bounding, plan.step("noise" if plan.threshold is None else "noise and threshold")


def noise_subkey(key: bytes, release_id: str, label: str, plan: NoisePlan, domain: Domain | None) -> bytes:
    """The subkey of a noise step, from its label, its plan and a digest of the public domain."""
    digest = None if domain is None else domain.digest
    return subkey(key, release_id, label, {"plan": plan.to_json(), "domain": digest})


def add_noise(histogram: pa.RecordBatch, plan: NoisePlan, noise_subkey: bytes, evidence: Evidence) -> pa.RecordBatch:
    """The released rows of one item shard (`counts_batch`): noise on every row, then the plan's threshold.

    Sum and noise are integers on the plan's grid. Without a public domain the count is rounded to an integer, after the
    threshold, which is post-processing.
    """
    shift = plan.grid - plan.bound.grid
    # Cut, not refused: a failure would tell of many users, and a cut sum moves by no more than the sum does. It takes 2**40
    # users even at an epsilon of 1000: each adds C at most, sigma is C/50 or more, and a step of the grid sigma/2**11 or more.
    sums = np.minimum(np.asarray(histogram.column("sum")), 2**61 >> shift)
    ids = np.stack([np.asarray(histogram.column("lane_hi")), np.asarray(histogram.column("lane_lo"))], axis=1)
    drawn = block_key(noise_subkey, evidence.digest.to_bytes(16, "little"))
    value = (sums << shift) + noise_of(plan, Lanes(drawn, ids)) + shared_draw(plan, noise_subkey, drawn)
    item = histogram.column("item")
    if plan.threshold is None:
        count = value * 2.0**-plan.grid
    else:
        released = np.flatnonzero(value >= plan.threshold)
        if plan.kind == "law":  # which names nothing but names
            value = np.minimum(value, plan.threshold)
        item, value = item.take(pa.array(released)), value[released]
        half = (1 << plan.grid) >> 1
        count = ((value + half) >> plan.grid).astype(np.float64)
    return counts_batch(item, count, plan)


def noise_of(plan: NoisePlan, lanes: Lanes) -> np.ndarray:
    """The noise of a plan for each lane, in units of its grid."""
    if plan.kind == "truncated-geometric" and plan.threshold is not None:
        return truncated_laplace(lanes, plan.scale, plan.threshold - 1)
    if plan.kind == "law" and plan.threshold is not None:
        return plan.threshold - by_curve(lanes, plan.law)
    return (discrete_laplace if plan.kind == "laplace" else discrete_gaussian)(lanes, plan.scale)


def shared_draw(plan: NoisePlan, noise_subkey: bytes, drawn: bytes) -> int:
    """The draw that all items of a release share, from a lane of its own; 0 if the plan has none.

    It depends on the step's subkey and on the key of its words, which holds the digest of the whole histogram. So every worker
    comes to the same draw, and a changed input changes it.
    """
    if plan.shared is None:
        return 0
    lane = Lanes(drawn, decision_lane_ids(lane_key(noise_subkey), b"shared by all items", 1))
    return int(discrete_gaussian(lane, plan.shared.scale)[0])


def check_items(plan: NoisePlan, items: int | None) -> None:
    """Refuses more items than a shared draw was calibrated for, and items that are not public."""
    if plan.shared is not None and (items is None or items > plan.shared.items):
        raise RuntimeError(
            "noise that is shared by a public domain reached other items"
        )  # a bug, and never to be released


def noisy_counts(
    bounded: Parts[pa.RecordBatch],
    plan: NoisePlan,
    release: Release,
    label: str,
    domain: Domain | None = None,
    item_type: type = str,
    named: Names | None = None,
) -> pa.RecordBatch:
    """Sum by item, noise and threshold of bounded batches, sorted by item: what `NoisyCounts` releases.

    `named` are items that an earlier step has made public, each of which gets a noisy count; no others may be in the batches.
    """
    key = noise_subkey(release.key_source.fetch(), release.id, label, plan, domain)
    public = named if domain is None else domain
    check_items(plan, None if public is None else len(public))
    if domain is not None:
        bounded = bounded.map(lambda batch: only_domain(batch, domain))
    shards = item_shards_here(bounded) if domain is None else 1
    chunks, origins = _cut_sums(bounded, shards)
    if named is not None:
        chunks += zero_sums(named, shards)
    merged = side_by_side(lambda held: merge_sums(held, key, item_type, named is not None), brought_together(chunks))
    histograms = [histogram for histogram, _ in merged]
    evidence = Evidence.of([digest for _, digest in merged], origins)
    evidence.check(plan.bound)
    if domain is not None:
        histograms = [with_absent(histograms[0] if histograms else None, domain.names, key)]
    if not histograms:
        return empty_counts(arrow_type(item_type))
    return sorted_counts(side_by_side(lambda histogram: to_ipc(add_noise(histogram, plan, key, evidence)), histograms))


def sums_of(bounded: Parts[pa.RecordBatch]) -> tuple[list[bytes], list[Origin]]:
    """Chunks of the sums by item of bounded batches, and where these come from."""
    chunks, origins = _cut_sums(bounded, 1)
    return [chunk for _, chunk in chunks], origins


def _cut_sums(bounded: Parts[pa.RecordBatch], shards: int) -> tuple[list[tuple[int, bytes]], list[Origin]]:
    """The same, cut into shards of items."""
    found = bounded.each(lambda batch: (list(sum_items(batch, shards)), Origin.of(batch)))
    return [chunk for chunks, _ in found for chunk in chunks], [origin for _, origin in found]


def bounded_batches(
    batches: Iterable[pa.RecordBatch], steps: Sequence[Step], release: Release, label: str
) -> Parts[pa.RecordBatch]:
    """The contributions with the steps applied to every user: what a bounding transform gives."""
    return bounded_users(users_of(batches), steps, release, label)


def bounded_users(users: Parts[Shard], steps: Sequence[Step], release: Release, label: str) -> Parts[pa.RecordBatch]:
    """The same of users in shards."""
    subkeys = step_subkeys(release.key_source.fetch(), release.id, label, steps)
    label = provenance(label, release.id, len(users))

    def bounded(numbered: tuple[int, Shard]) -> pa.RecordBatch:
        part, shard = numbered
        made = bound_shard(shard, steps, subkeys, label)
        check_kept(made)
        return made.to_batch(part)

    return users.numbered().map(bounded)
