"""Noise as a transform: sums by item, noise and threshold, and the barrier behind them, for bounded contributions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.accounting.calibration import NoisePlan
from headcount.mechanisms.batches.domain import arrow_type, in_shard
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.packing import from_ipc, to_ipc
from headcount.mechanisms.counting.evidence import Evidence, Origin
from headcount.mechanisms.counting.noisy import add_noise, noise_subkey
from headcount.mechanisms.counting.quality import EVERY_ROW, Quality
from headcount.mechanisms.counting.released import by_file, empty_counts
from headcount.mechanisms.counting.sums import merge_sums, sum_items, with_absent, zero_sums
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.barrier import beyond_barrier, sorted_by_item
from headcount.transforms.core.contributions import check_whole
from headcount.transforms.core.domain import OnlyDomain
from headcount.transforms.core.release import full_label, release_for
from headcount.transforms.core.rows import KeepGood
from headcount.transforms.core.user_shards import item_shards

Summing = Callable[[pa.RecordBatch, int], Iterable[tuple[int, bytes]]]


class SumByItem(beam.DoFn):
    """Bounded batches -> (item shard, packed sums), and where each batch comes from beside."""

    def __init__(self, shards: int, summing: Summing = sum_items) -> None:
        self._shards, self._summing = shards, summing

    def process(self, batch: pa.RecordBatch) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        yield beam.pvalue.TaggedOutput("origins", Origin.of(batch))
        yield from self._summing(batch, self._shards)


def sum_by_item(
    bounded: beam.PCollection, shards: int, summing: Summing = sum_items, label: str = "SumByItem"
) -> beam.pvalue.DoOutputsTuple:
    """`sums`, (item shard, packed sums) of bounded batches, and `origins`, where the batches come from."""
    return bounded | label >> beam.ParDo(SumByItem(shards, summing)).with_output_types(
        tuple[int, bytes], origins=Origin
    ).with_outputs("origins", main="sums")


class Planned(Protocol):
    """What a job has decided, with the noise that follows from it."""

    @property
    def plan(self) -> NoisePlan:
        """The noise."""


class Noise(beam.PTransform):
    """Sum by item, noise, threshold and barrier of bounded batches, for a plan that is calibrated, or will be decided: gives
    (file, noisy counts) for each of the output files, as many as item shards unless they are given.

    `named` are (k, record batch) with items that an earlier step has made public, each of which gets a noisy count; no others
    may be in the bounded batches.
    """

    def __init__(
        self,
        plan: NoisePlan | beam.PCollection[Planned],
        domain: Names | None,
        item_type: type,
        release: Release | None,
        shards: int,
        output_files: int | None,
        named: beam.PCollection | None = None,
        drawn_as: str | None = None,
        quality: Quality = EVERY_ROW,
    ) -> None:
        super().__init__()
        self._plan, self._domain, self._item_type = plan, domain, item_type
        self._release, self._output_files, self._named = release, output_files, named
        self._shards = item_shards(shards)
        # The label of what is drawn, if not the transform's own: where steps with other labels must draw the same.
        self._drawn_as = drawn_as
        self._quality = quality

    def expand(self, bounded: beam.PCollection) -> beam.PCollection:
        check_whole(bounded)
        release = release_for(bounded.pipeline, self._release)
        noise = _NoiseKey(self._domain, release, self._drawn_as or full_label(bounded))
        plan = self._plan if isinstance(self._plan, NoisePlan) else beam.pvalue.AsSingleton(self._plan)
        output_files = self._output_files or self._shards
        if self._domain is not None:
            bounded = bounded | "OnlyDomain" >> OnlyDomain(self._domain)
        summed = sum_by_item(bounded, self._shards)
        sums = summed.sums  # (item shard, packed sums)
        if self._domain is not None:  # every item shard gets a turn, since items that nobody holds are released too
            every = bounded.pipeline | "EveryShard" >> beam.Create(
                [(shard, b"") for shard in range(self._shards)], reshuffle=False
            )
            sums = (sums, every) | "WithEveryShard" >> beam.Flatten()
        if self._named is not None:
            named = self._named | "ZeroSums" >> beam.FlatMap(_zero_sums, self._shards).with_output_types(
                tuple[int, bytes]
            )
            # Grouped before they meet: Beam's local runner holds a Flatten back until all readers of what it is made from are
            # done, and a later stage that reads the same users would wait for this one for ever.
            sums = (
                sums
                | "GroupSums" >> beam.GroupByKey()
                | "SumsOfShard" >> beam.FlatMapTuple(_chunks_of_shard).with_output_types(tuple[int, bytes])
            )
            sums = (sums, named) | "WithNamed" >> beam.Flatten()
        merged = (
            sums
            | "GroupByItemShard" >> beam.GroupByKey()  # (item shard, Arrow streams)
            | "Merge"
            >> beam.ParDo(_Merge(noise, self._item_type, self._shards, self._named is not None), plan)
            .with_output_types(bytes)  # a digest has 128 bits: more than Beam's coder of integers takes
            .with_outputs("digests", main="histogram")
        )
        empty = empty_counts(arrow_type(self._item_type))
        released = merged.histogram | "AddNoise" >> beam.ParDo(
            _AddNoise(noise, output_files), plan, beam.pvalue.AsList(merged.digests), beam.pvalue.AsList(summed.origins)
        ).with_output_types(tuple[int, bytes])
        return sorted_by_item(beyond_barrier(released, empty, output_files)) | "KeepGood" >> KeepGood(self._quality)


class _NoiseKey:
    """Where a noise step's randomness comes from; the subkey is derived on the worker, from the key that it fetches there."""

    def __init__(self, domain: Names | None, release: Release, label: str) -> None:
        self.domain = domain
        self._release, self._label = release, label

    def fetched(self) -> Callable[[NoisePlan], bytes]:
        """Fetches the key, and gives what derives the step's subkey for a plan."""
        key = self._release.key_source.fetch()
        return functools.cache(lambda plan: noise_subkey(key, self._release.id, self._label, plan, self.domain))


class _Merge(beam.DoFn):
    """(item shard, chunks) -> Arrow stream of the merged sums with their lanes, and their part of the digest beside."""

    def __init__(self, noise: _NoiseKey, item_type: type, shards: int, named: bool) -> None:
        self._noise = noise
        self._item_type = item_type
        self._shards, self._named = shards, named

    def setup(self) -> None:
        self._subkey = self._noise.fetched()

    def process(
        self, group: tuple[int, Iterable[bytes]], decided: NoisePlan | Planned
    ) -> Iterator[bytes | beam.pvalue.TaggedOutput]:
        shard, chunks = group
        subkey = self._subkey(_plan(decided))
        held = [chunk for chunk in chunks if chunk]
        histogram = None
        if held:
            histogram, digest = merge_sums(held, subkey, self._item_type, self._named)
            yield beam.pvalue.TaggedOutput("digests", digest)
        if self._noise.domain is not None:
            histogram = with_absent(histogram, in_shard(self._noise.domain, shard, self._shards), subkey)
        if histogram is not None:
            yield to_ipc(histogram)


class _AddNoise(beam.DoFn):
    def __init__(self, noise: _NoiseKey, output_files: int) -> None:
        self._noise = noise
        self._output_files = output_files

    def setup(self) -> None:
        self._subkey = self._noise.fetched()

    def process(
        self, histogram: bytes, decided: NoisePlan | Planned, digests: list[int], origins: list[Origin]
    ) -> Iterator[tuple[int, bytes]]:
        plan = _plan(decided)
        evidence = Evidence.of(digests, origins)
        evidence.check(plan.bound)
        counts = add_noise(from_ipc(histogram), plan, self._subkey(plan), evidence)
        yield from by_file(counts, self._output_files)


def _plan(decided: NoisePlan | Planned) -> NoisePlan:
    return decided if isinstance(decided, NoisePlan) else decided.plan


def _zero_sums(file: tuple[int, pa.RecordBatch], shards: int) -> Iterator[tuple[int, bytes]]:
    _, named = file
    return zero_sums(named.column("item"), shards)


def _chunks_of_shard(shard: int, chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    return ((shard, chunk) for chunk in chunks)
