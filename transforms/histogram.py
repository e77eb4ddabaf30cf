"""Private histograms as transforms (paper 000, Algorithms 1 and 3): `UnboundedHistogram`, `BoundedHistogram`, `NoisyCounts`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa

from headcount.mechanisms.budget import Budget
from headcount.mechanisms.calibration import NoisePlan, calibrate_public_domain, calibrate_unknown_domain, public_noise
from headcount.mechanisms.contribution_bound import Bound
from headcount.mechanisms.domain import arrow_type, in_shard, only_domain, public_domain
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.guarantee import Guarantee
from headcount.mechanisms.histogram import (
    Evidence,
    Histogram,
    Origin,
    add_noise,
    bounded_histogram,
    by_partition,
    check_bounded,
    counts_batch,
    merge_sums,
    noise_subkey,
    sorted_counts,
    sum_items,
    unbounded_histogram,
    with_absent,
)
from headcount.mechanisms.keys import Release
from headcount.mechanisms.names import Names
from headcount.mechanisms.packing import from_ipc, to_ipc
from headcount.mechanisms.relation import Relation
from headcount.transforms.bounding import Bounded, check_shards
from headcount.transforms.contributions import ContributionBatch, as_contributions, check_whole
from headcount.transforms.counts import NoisyCount, NoisyIntCount
from headcount.transforms.releases import full_label, release_for


class _Noise(beam.PTransform):
    """Sum by item, noise, threshold and barrier of bounded batches, for a plan that is calibrated already."""

    def __init__(
        self,
        plan: NoisePlan,
        domain: Names | None,
        item_type: type,
        release: Release | None,
        shards: int,
        partitions: int | None,
    ) -> None:
        super().__init__()
        if partitions is not None and (isinstance(partitions, bool) or not 1 <= partitions <= 10_000):
            raise ParameterError(f"partitions must be an integer from 1 to 10000, got {partitions!r}")
        self._plan, self._domain, self._item_type = plan, domain, item_type
        self._release, self._partitions = release, partitions
        self._shards = max(min(shards, 16), shards // 4)  # sums are smaller than contributions

    def expand(self, bounded: beam.PCollection) -> beam.PCollection:
        check_whole(bounded)
        release = release_for(bounded.pipeline, self._release)
        noise = _NoiseKey(self._plan, self._domain, release, full_label(bounded))
        partitions = self._partitions or self._shards
        if self._domain is not None:
            bounded = bounded | "OnlyDomain" >> beam.ParDo(_OnlyDomain(self._domain)).with_output_types(
                ContributionBatch
            )
        summed = (
            bounded  # record batches, bounded
            | "SumByItem"
            >> beam.ParDo(_SumByItem(self._shards))
            .with_output_types(tuple[int, bytes], origins=Origin)
            .with_outputs("origins", main="sums")
        )
        sums = summed.sums  # (item shard, packed sums)
        if self._domain is not None:  # every item shard gets a turn, since items that nobody holds are released too
            every = bounded.pipeline | "EveryShard" >> beam.Create(
                [(shard, b"") for shard in range(self._shards)], reshuffle=False
            )
            sums = (sums, every) | "WithEveryShard" >> beam.Flatten()
        merged = (
            sums
            | "GroupByItemShard" >> beam.GroupByKey()  # (item shard, Arrow streams)
            | "Merge"
            >> beam.ParDo(_Merge(noise, self._item_type, self._shards))
            .with_output_types(bytes)  # a digest has 128 bits: more than Beam's coder of integers takes
            .with_outputs("digests", main="histogram")
        )
        empty = counts_batch(pa.array([], arrow_type(self._item_type)), np.zeros(0), self._plan.stddev)
        every_partition = bounded.pipeline | "EveryPartition" >> beam.Create(
            [(partition, to_ipc(empty)) for partition in range(partitions)], reshuffle=False
        )
        released = merged.histogram | "AddNoise" >> beam.ParDo(
            _AddNoise(noise, partitions), beam.pvalue.AsList(merged.digests), beam.pvalue.AsList(summed.origins)
        ).with_output_types(tuple[int, bytes])
        # The barrier: all that reads the noisy counts hangs on the far side of this GroupByKey, so that a repeated noise
        # step can reach no consumer twice. Nothing may be taken from `released` itself.
        counts = (
            (released, every_partition)
            | "WithEveryPartition" >> beam.Flatten()
            | "Barrier" >> beam.GroupByKey()  # (partition, Arrow streams)
            | "SortByItem" >> beam.MapTuple(_sorted_partition).with_output_types(tuple[int, pa.RecordBatch])
        )
        if self._partitions is not None:
            return counts
        row = NoisyIntCount if self._item_type is int else NoisyCount
        return counts | "ToRows" >> beam.FlatMap(_to_rows, row).with_output_types(row)


class NoisyCounts(beam.PTransform):
    """Noisy counts by item of contributions that a bounding transform has bounded by `bound`.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`, if the input is bounded as `bound` says,
    which is checked: unbounded input, another bound, or two bounded collections flattened together are refused. Without
    a `domain`, only items with a positive bounded sum get noise, and those below the threshold stay hidden.
    """

    def __init__(
        self,
        budget: Budget,
        bound: Bound,
        domain: Iterable[str] | Iterable[int] | None = None,
        noise: str = "auto",
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type = str,
        shards: int | None = None,
        partitions: int | None = None,
    ) -> None:
        super().__init__()
        relation = Relation.parse(relation)
        names = None if domain is None else public_domain(domain, item_type)
        if names is None:
            self.plan = calibrate_unknown_domain(budget, bound, relation, noise)
        else:
            self.plan = calibrate_public_domain(budget, bound, relation, public_noise(noise))
        self._noise = _Noise(self.plan, names, item_type, release, check_shards(shards), partitions)
        self._histogram = Histogram("NoisyCounts", (), self.plan, names, item_type)

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self._histogram.guarantee()

    def expand(self, bounded: beam.PCollection) -> beam.PCollection:
        # What comes from other hands is looked at again; the histograms wire bounding and noise together themselves.
        checked = bounded | "CheckBounded" >> beam.Map(_check_bounded).with_output_types(ContributionBatch)
        return checked | "NoisyCounts" >> self._noise


class _PrivateHistogram(beam.PTransform):
    """Contributions, bounding and noise of one `Histogram`."""

    def __init__(
        self, histogram: Histogram, release: Release | None, shards: int | None, partitions: int | None
    ) -> None:
        super().__init__()
        self._histogram = histogram
        self._release = release
        self._shards = check_shards(shards)
        self._partitions = partitions
        self.plan = histogram.plan

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self._histogram.guarantee()

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        release = release_for(rows.pipeline, self._release)  # one for both steps
        h = self._histogram
        contributions = as_contributions(rows)
        if h.domain is not None:
            contributions = contributions | "OnlyDomain" >> beam.ParDo(_OnlyDomain(h.domain)).with_output_types(
                ContributionBatch
            )
        return (
            contributions
            | "Bounded" >> Bounded(h.steps, release, self._shards)
            | "NoisyCounts" >> _Noise(h.plan, h.domain, h.item_type, release, self._shards, self._partitions)
        )


class UnboundedHistogram(_PrivateHistogram):
    """How often users did each item, for items that are not known before (paper 000, Algorithm 3, corrected).

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`. Each user counts with a uniform sample of
    at most `bound` events, at most `max_per_item` of them on one item; items below the threshold stay hidden. The result
    is `NoisyCount` rows (`NoisyIntCount` with `item_type=int`), or with `partitions=N` one element (k, record batch) for
    each k < N, sorted by item. Rows or `Contributions` go in.
    """

    def __init__(
        self,
        budget: Budget,
        bound: int,
        max_per_item: int | None = None,
        noise: str = "auto",
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type = str,
        shards: int | None = None,
        partitions: int | None = None,
    ) -> None:
        histogram = unbounded_histogram(budget, bound, max_per_item, noise, Relation.parse(relation), item_type)
        super().__init__(histogram, release, shards, partitions)


class BoundedHistogram(_PrivateHistogram):
    """How often users did each item of a public domain, with all of them in the result (paper 000, Algorithm 1).

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`; delta is 0 with Laplace noise. Rows
    outside the domain are dropped first; then each user's counts are scaled down to a norm of `bound` (l1 for Laplace, l2
    for Gaussian noise). The result is as for `UnboundedHistogram`. The domain travels with the job's graph, so keep it
    below some hundred thousand items on a remote runner.
    """

    def __init__(
        self,
        budget: Budget,
        domain: Iterable[str] | Iterable[int],
        bound: int,
        noise: str = "laplace",
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type = str,
        shards: int | None = None,
        partitions: int | None = None,
    ) -> None:
        histogram = bounded_histogram(budget, domain, bound, noise, Relation.parse(relation), item_type)
        super().__init__(histogram, release, shards, partitions)


class _NoiseKey:
    """All that a noise step holds; the subkey is derived on the worker, from the key that it fetches there."""

    def __init__(self, plan: NoisePlan, domain: Names | None, release: Release, label: str) -> None:
        self.plan, self.domain = plan, domain
        self._release, self._label = release, label

    def subkey(self) -> bytes:
        """The step's subkey."""
        key = self._release.key_source.fetch()
        return noise_subkey(key, self._release.id, self._label, self.plan, self.domain)


class _OnlyDomain(beam.DoFn):
    def __init__(self, domain: Names) -> None:
        self._domain = domain

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield only_domain(batch, self._domain)


class _SumByItem(beam.DoFn):
    def __init__(self, shards: int) -> None:
        self._shards = shards

    def process(self, batch: pa.RecordBatch) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        yield beam.pvalue.TaggedOutput("origins", Origin.of(batch))
        yield from sum_items(batch, self._shards)


class _Merge(beam.DoFn):
    """(item shard, chunks) -> Arrow stream of the merged sums with their lanes, and their part of the digest beside."""

    def __init__(self, noise: _NoiseKey, item_type: type, shards: int) -> None:
        self._noise = noise
        self._item_type = item_type
        self._shards = shards

    def setup(self) -> None:
        self._subkey = self._noise.subkey()

    def process(self, group: tuple[int, Iterable[bytes]]) -> Iterator[bytes | beam.pvalue.TaggedOutput]:
        shard, chunks = group
        held = [chunk for chunk in chunks if chunk]
        histogram = None
        if held:
            histogram, digest = merge_sums(held, self._subkey, self._item_type)
            yield beam.pvalue.TaggedOutput("digests", digest)
        if self._noise.domain is not None:
            histogram = with_absent(histogram, in_shard(self._noise.domain, shard, self._shards), self._subkey)
        if histogram is not None:
            yield to_ipc(histogram)


class _AddNoise(beam.DoFn):
    def __init__(self, noise: _NoiseKey, partitions: int) -> None:
        self._noise = noise
        self._partitions = partitions

    def setup(self) -> None:
        self._subkey = self._noise.subkey()

    def process(self, histogram: bytes, digests: list[int], origins: list[Origin]) -> Iterator[tuple[int, bytes]]:
        evidence = Evidence.of(digests, origins)
        evidence.check(self._noise.plan)
        counts = add_noise(from_ipc(histogram), self._noise.plan, self._subkey, evidence)
        yield from by_partition(counts, self._partitions)


def _check_bounded(element: object) -> pa.RecordBatch:
    if not isinstance(element, pa.RecordBatch):
        raise InputError(
            "NoisyCounts takes the batches of a bounding transform; put RandClip, or LimitItems and LimitPerItem, before it"
        )
    return check_bounded(element)


def _sorted_partition(partition: int, chunks: Iterable[bytes]) -> tuple[int, pa.RecordBatch]:
    return partition, sorted_counts(chunks)


def _to_rows(partition: tuple[int, pa.RecordBatch], row: type) -> Iterator[NamedTuple]:
    _, counts = partition
    columns = (counts.column(name).to_pylist() for name in ("item", "count", "stddev"))
    return map(row, *columns)
