"""Private histograms (paper 000, Algorithms 1 and 3): sums by item, noise, and a threshold where items are unknown.

Guarantee: with contributions bounded as the `NoisePlan` says, the released counts are (epsilon, delta)-differentially
private for the plan's relation, per user. Two corrections to the paper matter here. Noise goes only to items with a
positive *bounded* sum, since one user's many other items would each get a chance to pass the threshold (Algorithm 3 as
printed); and the plan's threshold is the one for discrete noise. Noise lanes hang on the item, its sum and a digest of
the whole bounded histogram, so a repeated run repeats the noise and a changed input changes all of it.

The functions are the steps of the Beam pipeline; `bounded_batches` and `noisy_counts` run them in a row without Beam, and
a pipeline with the same key, id and labels gives exactly their rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches import (
    MOST_COUNT,
    PART,
    bound_of,
    gather,
    split_by_user,
    sum_by_code,
    unite,
)
from headcount.mechanisms.budget import Budget
from headcount.mechanisms.calibration import NoisePlan, calibrate_public_domain, calibrate_unknown_domain, public_noise
from headcount.mechanisms.contribution_bound import Bound
from headcount.mechanisms.domain import arrow_type, domain_digest, only_domain, public_domain
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.keys import Release, block_key, lane_key, subkey
from headcount.mechanisms.lane_ids import item_lane_ids, lane_sum
from headcount.mechanisms.names import Names, hash64, shard_of
from headcount.mechanisms.noise import discrete_gaussian, discrete_laplace, truncated_laplace
from headcount.mechanisms.packing import from_ipc, pack, to_ipc, unpack
from headcount.mechanisms.randomness import Lanes
from headcount.mechanisms.relation import Relation
from headcount.mechanisms.steps import (
    ClipNormStep,
    LimitPerItemStep,
    RandClipStep,
    Step,
    bound_shard,
    check_bound,
    check_kept,
    not_kept,
    promise_of,
    provenance,
    step_subkeys,
)

MIXED_USERS = "users are strings in some rows and integers in others; give them one type"

# From here on, released rows travel compressed: they meet in one group per output file. Less is not worth the time.
_MANY_ROWS = 4096


@dataclasses.dataclass(frozen=True)
class Origin:
    """One bounded batch: what bounds it, which part of the bounded collection it is, and the type of its users."""

    bound: Bound
    part: str
    users: str

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Origin:
        """The origin of a batch that a bounding step made."""
        bound = bound_of(batch)
        if bound == Bound():
            raise InputError(
                "contributions reached the noise bounded by nothing; put RandClip, or LimitItems and LimitPerItem, "
                "before it"
            )
        user = batch.schema.field("user").type
        users = str(user.value_type if pa.types.is_dictionary(user) else user)
        return cls(bound, (batch.schema.metadata or {})[PART].decode(), users)


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What the noise step must know of the whole bounded histogram before it draws.

    `digest` stands for the histogram: the sum of all lane ids mod 2**128, the same however items are sharded. `origins`
    are those of all batches in it.
    """

    digest: int
    origins: tuple[Origin, ...]

    @classmethod
    def of(cls, digests: Iterable[int], origins: Iterable[Origin]) -> Evidence:
        """The evidence of all item shards and all batches together."""
        return cls(sum(digests) % 2**128, tuple(origins))

    def check(self, bound: Bound) -> None:
        """Refuses a histogram in which a user may count more than the `bound` that the mechanism was calibrated for."""
        if len({origin.bound.label for origin in self.origins}) > 1:
            raise InputError(
                "contributions that were bounded separately reached one noise step, where a user may count twice; "
                "flatten first, then bound"
            )
        if len({origin.part for origin in self.origins}) < len(self.origins):
            raise InputError("a bounded collection arrives twice, so that every user would count twice; use it once")
        if len({origin.users for origin in self.origins}) > 1:
            raise InputError(MIXED_USERS)
        for origin in self.origins:
            if not origin.bound.within(bound):
                raise InputError(
                    f"the noise was calibrated for contributions bounded by {bound.describe()}, but they are "
                    f"bounded by {origin.bound.describe()}; give the noise step the bound of the step before it"
                )


@dataclasses.dataclass(frozen=True)
class Histogram:
    """A whole private histogram as a value: the bounding steps, the noise for what they promise, and the domain.

    `run` is the mechanism without Beam; the transforms wire the same parts into a pipeline.
    """

    name: str
    steps: tuple[Step, ...]
    plan: NoisePlan
    domain: Names | None
    item_type: type

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return Guarantee(self.plan.epsilon, self.plan.delta, self.plan.relation, mechanism_steps(self.plan))

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows item, count, stddev, sorted by item, of contribution batches."""
        label = self.name if label is None else label
        if self.domain is not None:
            batches = [only_domain(batch, self.domain) for batch in batches]
        bounded = bounded_batches(batches, self.steps, release, f"{label}/Bounded")
        return noisy_counts(bounded, self.plan, release, f"{label}/NoisyCounts", self.domain, self.item_type)


def unbounded_histogram(
    budget: Budget,
    bound: int,
    max_per_item: int | None = None,
    noise: str = "auto",
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> Histogram:
    """Algorithm 3, corrected: items come from the data, and those that too few users hold stay hidden.

    Each user counts with at most `max_per_item` events on one item, and of these with a uniform sample of at most `bound`.
    """
    steps = unknown_domain_steps(bound, max_per_item)
    plan = calibrate_unknown_domain(budget, promised(steps), relation, noise)
    arrow_type(item_type)
    return Histogram("UnboundedHistogram", steps, plan, None, item_type)


def bounded_histogram(
    budget: Budget,
    domain: Iterable[str] | Iterable[int],
    bound: int,
    noise: str = "laplace",
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
    max_per_item: int | None = None,
) -> Histogram:
    """Algorithm 1: every item of a public domain is released, also those that nobody holds.

    Each user's counts are cut to `max_per_item` on each item, then scaled down to a norm of `bound`: l1 for Laplace noise,
    l2 for Gaussian. With a `max_per_item` of 1 it is users that are counted, and not events.
    """
    steps = public_domain_steps(bound, noise, max_per_item)
    plan = calibrate_public_domain(budget, promised(steps), relation, public_noise(noise))
    return Histogram("BoundedHistogram", steps, plan, public_domain(domain, item_type), item_type)


def unknown_domain_steps(bound: int, max_per_item: int | None) -> tuple[Step, ...]:
    """How contributions to items that come from the data are bounded: by a sample, so that counts stay whole.

    The cap comes first: events that it drops would else use up the sample. Both orders promise the same.
    """
    if max_per_item is None:
        return (RandClipStep(bound),)
    if check_bound("max_per_item", max_per_item) > bound:
        raise ParameterError(f"max_per_item must not exceed the bound {bound}, got {max_per_item!r}")
    return LimitPerItemStep(max_per_item), RandClipStep(bound)


def public_domain_steps(bound: int, noise: str, max_per_item: int | None = None) -> tuple[Step, ...]:
    """How contributions to public items are bounded: cut on each item, then scaled down in the norm that the noise asks for.

    The cut comes first, so that many events on one item leave the others what they are. It may thus exceed the bound.
    """
    scaled = ClipNormStep(bound, 1 if public_noise(noise) == "laplace" else 2)
    if max_per_item is None:
        return (scaled,)
    return LimitPerItemStep(check_bound("max_per_item", max_per_item)), scaled


def promised(steps: tuple[Step, ...]) -> Bound:
    """What the steps promise, labelled by what they are: noise after other steps is other noise, even for an equal bound."""
    return promise_of(steps, Bound(), repr(steps))


def mechanism_steps(plan: NoisePlan) -> tuple[MechanismStep, ...]:
    """The parts of the guarantee of a histogram with this plan."""
    bounding = MechanismStep("bounding", 0.0, 0.0, {"a user adds at most": plan.bound.words()})
    return bounding, MechanismStep.of_plan("noise" if plan.threshold is None else "noise and threshold", plan)


def noise_subkey(key: bytes, release_id: str, label: str, plan: NoisePlan, domain: Names | None) -> bytes:
    """The subkey of a noise step, from its label, its plan and a digest of the public domain."""
    return subkey(key, release_id, label, {"plan": plan.to_json(), "domain": domain_digest(domain)})


def check_bounded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, if every user in it keeps the bound that it carries; for batches that passed through other hands."""
    Origin.of(batch)
    if batch.num_rows:
        shard, count = gather(chunk for _, chunk in split_by_user(batch, 1)), np.asarray(batch.column("count"))
        check_kept(shard)
        # No bounding step leaves a user more than MOST_COUNT on an item: what `gather` has cut, it must not have promised.
        if int(count.max()) > MOST_COUNT or int(count.sum()) != int(shard.count.sum()):
            raise not_kept(shard.bound)
    return batch


def sum_items(batch: pa.RecordBatch, shards: int) -> Iterator[tuple[int, bytes]]:
    """Sums a bounded batch by item and cuts the positive sums into (shard, Arrow stream) chunks by a hash of the item."""
    item = batch.column("item")
    if not isinstance(item, pa.DictionaryArray):
        item = item.dictionary_encode()
    codes = np.asarray(item.indices).astype(np.int64)
    sums = sum_by_code(codes, np.asarray(batch.column("count")), len(item.dictionary))
    present = np.flatnonzero(sums)
    return split_sums(item.dictionary.take(pa.array(present)), {"sum": sums[present]}, shards)


def split_sums(items: Names, sums: Mapping[str, np.ndarray], shards: int) -> Iterator[tuple[int, bytes]]:
    """Cuts columns of numbers, one row per item, into (shard, Arrow stream) chunks by a hash of the item."""
    home = shard_of(hash64(items), shards)
    order = np.argsort(home, kind="stable")
    items, columns = items.take(pa.array(order)), {name: values[order] for name, values in sums.items()}
    cuts = np.searchsorted(home[order], np.arange(shards + 1))
    for shard in np.flatnonzero(np.diff(cuts)):
        rows = slice(cuts[shard], cuts[shard + 1])
        numbers = {name: pa.array(values[rows]) for name, values in columns.items()}
        yield int(shard), pack({"item": items[rows], **numbers})


def zero_sums(items: Names, shards: int) -> Iterator[tuple[int, bytes]]:
    """Chunks that name items and add nothing: items that are public by now are released also if nobody's sample has them."""
    return split_sums(items, {"sum": np.zeros(len(items), dtype=np.int64)}, shards)


def add_sums(chunks: Iterable[bytes]) -> tuple[Names, np.ndarray]:
    """The items (or buckets) of one shard and their sums, from chunks as `split_sums` made them."""
    parts = [unpack(chunk)[0] for chunk in chunks]
    items, code = unite([part["item"] for part in parts])
    return items, sum_by_code(code, np.concatenate([np.asarray(part["sum"]) for part in parts]), len(items))


def merge_sums(chunks: Iterable[bytes], noise_subkey: bytes, item_type: type) -> tuple[pa.RecordBatch, int]:
    """Adds up the chunks of one item shard: a batch item, sum, lane_hi, lane_lo, and its part of the digest."""
    items, sums = add_sums(chunks)
    if items.type != arrow_type(item_type):
        raise InputError(f"items are of type {items.type}, not {arrow_type(item_type)}; set item_type to match")
    ids = item_lane_ids(lane_key(noise_subkey), items, sums)
    return _with_lanes(items, sums, ids), lane_sum(ids)


def with_absent(histogram: pa.RecordBatch | None, domain: Names, noise_subkey: bytes) -> pa.RecordBatch:
    """Adds the domain's items that nobody holds, with a sum of zero and lanes of their own."""
    absent = domain
    if histogram is not None:
        absent = domain.filter(pc.invert(pc.is_in(domain, value_set=histogram.column("item"))))
    zero = np.zeros(len(absent), dtype=np.int64)
    extra = _with_lanes(absent, zero, item_lane_ids(lane_key(noise_subkey), absent, zero))
    return extra if histogram is None else pa.concat_batches([histogram, extra])


def add_noise(histogram: pa.RecordBatch, plan: NoisePlan, noise_subkey: bytes, evidence: Evidence) -> pa.RecordBatch:
    """The released rows item, count, stddev of one item shard: noise on every row, then the plan's threshold.

    Sum and noise are integers on the plan's grid. Without a public domain the count is rounded to an integer, after the
    threshold, which is post-processing.
    """
    shift = plan.grid - plan.bound.grid
    # Cut, not refused: a failure would tell of many users, and a cut sum moves by no more than the sum does. It takes 2**40
    # users even at an epsilon of 1000: each adds C at most, sigma is C/50 or more, and a step of the grid sigma/2**11 or more.
    sums = np.minimum(np.asarray(histogram.column("sum")), 2**61 >> shift)
    ids = np.stack([np.asarray(histogram.column("lane_hi")), np.asarray(histogram.column("lane_lo"))], axis=1)
    lanes = Lanes(block_key(noise_subkey, evidence.digest.to_bytes(16, "little")), ids)
    value = (sums << shift) + noise_of(plan, lanes)
    item = histogram.column("item")
    if plan.threshold is None:
        count = value * 2.0**-plan.grid
    else:
        released = np.flatnonzero(value >= plan.threshold)
        item, value = item.take(pa.array(released)), value[released]
        half = (1 << plan.grid) >> 1
        count = ((value + half) >> plan.grid).astype(np.float64)
    return counts_batch(item, count, plan.stddev)


def noise_of(plan: NoisePlan, lanes: Lanes) -> np.ndarray:
    """The noise of a plan for each lane, in units of its grid."""
    if plan.kind == "truncated-geometric" and plan.threshold is not None:
        return truncated_laplace(lanes, plan.scale, plan.threshold - 1)
    return (discrete_laplace if plan.kind == "laplace" else discrete_gaussian)(lanes, plan.scale)


def counts_batch(item: Names, count: np.ndarray, stddev: float) -> pa.RecordBatch:
    """Released counts as a batch item, count, stddev."""
    columns = {"item": item, "count": pa.array(count), "stddev": pa.array(np.full(len(count), stddev))}
    return pa.RecordBatch.from_pydict(columns)


def by_partition(counts: pa.RecordBatch, partitions: int) -> Iterator[tuple[int, bytes]]:
    """Cuts released rows into output partitions by a hash of the item: public, and the same for any sharding."""
    home = shard_of(hash64(counts.column("item")), partitions)
    for partition in range(partitions):
        rows = counts.filter(pa.array(home == partition))
        yield partition, to_ipc(rows, compress=rows.num_rows > _MANY_ROWS)


def sorted_counts(chunks: Iterable[bytes]) -> pa.RecordBatch:
    """The rows of one output partition, sorted by item: in this order nothing shows how they were sharded."""
    counts = pa.concat_batches([from_ipc(chunk) for chunk in chunks])
    return counts.take(pc.sort_indices(counts.column("item")))


def noisy_counts(
    batches: Iterable[pa.RecordBatch],
    plan: NoisePlan,
    release: Release,
    label: str,
    domain: Names | None = None,
    item_type: type = str,
    named: Names | None = None,
) -> pa.RecordBatch:
    """Sum by item, noise and threshold of bounded batches, sorted by item: what `NoisyCounts` releases.

    `named` are items that an earlier step has made public, each of which gets a noisy count; no others may be in the batches.
    """
    key = noise_subkey(release.key_source.fetch(), release.id, label, plan, domain)
    if domain is not None:
        batches = [only_domain(batch, domain) for batch in batches]
    batches = [check_bounded(batch) for batch in batches]
    chunks = [chunk for batch in batches for _, chunk in sum_items(batch, 1)]
    if named is not None:
        chunks += [chunk for _, chunk in zero_sums(named, 1)]
    histogram, digest = merge_sums(chunks, key, item_type) if chunks else (None, 0)
    evidence = Evidence.of([digest], map(Origin.of, batches))
    evidence.check(plan.bound)
    if domain is not None:
        histogram = with_absent(histogram, domain, key)
    if histogram is None:
        return counts_batch(pa.array([], arrow_type(item_type)), np.zeros(0), plan.stddev)
    return sorted_counts([to_ipc(add_noise(histogram, plan, key, evidence))])


def bounded_batches(
    batches: Iterable[pa.RecordBatch], steps: Sequence[Step], release: Release, label: str
) -> list[pa.RecordBatch]:
    """The contributions with the steps applied to every user: what a bounding transform gives."""
    chunks = [chunk for batch in batches for _, chunk in split_by_user(batch, 1)]
    if not chunks:
        return []
    subkeys = step_subkeys(release.key_source.fetch(), release.id, label, steps)
    return [bound_shard(gather(chunks), steps, subkeys, provenance(label, release.id, 1)).to_batch()]


def _with_lanes(items: Names, sums: np.ndarray, ids: np.ndarray) -> pa.RecordBatch:
    lanes = {"lane_hi": pa.array(ids[:, 0]), "lane_lo": pa.array(ids[:, 1])}
    return pa.RecordBatch.from_pydict({"item": items, "sum": pa.array(sums)} | lanes)
