"""Noise as a transform: sums by item, noise and threshold, and the barrier behind them, for bounded contributions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow

from headcount.mechanisms.batches.chunk_store import Keeper
from headcount.mechanisms.batches.domain import Domain, arrow_type, in_shard
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.packing import from_ipc, to_ipc
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.counting.evidence import Evidence, Origin
from headcount.mechanisms.counting.noisy import add_noise, check_items, noise_subkey
from headcount.mechanisms.counting.quality import EVERY_ROW, Quality
from headcount.mechanisms.counting.released import by_file, empty_counts
from headcount.mechanisms.counting.sums import merge_sums, sum_items, with_absent, zero_sums
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.ahead import Ahead
from headcount.transforms.core.barrier import barrier, beyond_barrier, sorted_by_item, with_beside
from headcount.transforms.core.coders import typed
from headcount.transforms.core.contributions import reading_of
from headcount.transforms.core.domain import OnlyDomain
from headcount.transforms.core.release import full_label, release_for
from headcount.transforms.core.rows import KeepGood
from headcount.transforms.core.user_shards import item_shards, keeper_of
from headcount.transforms.core.windows import check_bounded_in, every, window_keys

Summing = Callable[[pa.RecordBatch, int], Iterable[tuple[int, bytes]]]
NamedBatches = list[tuple[int, pa.RecordBatch]]
_MOST_SUBKEYS = 64  # that a step remembers: in windows there is one for each


class SumByItem(beam.DoFn):
    """Bounded batches -> (item shard, packed sums), and where each batch comes from beside; a batch of nobody comes from
    nowhere. With `every_shard` each batch has something for each item shard, if only an empty chunk."""

    def __init__(self, shards: int, summing: Summing, every_shard: bool, keep: Keeper) -> None:
        self._shards, self._summing, self._every_shard, self._keep = shards, summing, every_shard, keep

    def process(self, batch: pa.RecordBatch) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        if batch.num_rows:
            yield beam.pvalue.TaggedOutput("origins", Origin.of(batch))
            yield from ((shard, self._keep(chunk)) for shard, chunk in self._summing(batch, self._shards))
        if self._every_shard:
            yield from ((shard, b"") for shard in range(self._shards))


def sum_by_item(
    bounded: beam.PCollection,
    shards: int,
    summing: Summing = sum_items,
    label: str = "SumByItem",
    every_shard: bool = False,
) -> beam.pvalue.DoOutputsTuple:
    """`sums`, (item shard, packed sums) of bounded batches, and `origins`, where the batches come from."""
    summing_up = SumByItem(shards, summing, every_shard, keeper_of(bounded))
    summed = bounded | label >> beam.ParDo(summing_up).with_output_types(tuple[int, bytes]).with_outputs(
        "origins", main="sums"
    )
    return typed(summed, origins=Origin)


class Planned(Protocol):
    """What a job has decided, with the noise that follows from it."""

    @property
    def plan(self) -> NoisePlan:
        """The noise."""


class Noise(beam.PTransform):
    """Sum by item, noise, threshold and barrier of bounded batches, for a plan that is calibrated, or will be decided: gives
    (file, noisy counts) for each of the output files, as many as item shards unless they are given.

    `named` are items that are public, each of which gets a noisy count: a domain, or the list, as a side input, of (k, record
    batch) that an earlier step has released; no others may be in the bounded batches. There must be a batch then, if only one
    of nobody.
    """

    def __init__(
        self,
        plan: NoisePlan | beam.PCollection,
        domain: Domain | None,
        item_type: type,
        release: Release | None,
        shards: int,
        output_files: int | None,
        named: beam.pvalue.AsList | Domain | None = None,
        drawn_as: str | None = None,
        quality: Quality = EVERY_ROW,
        every_file: bool = True,
        plan_of: Callable[[Any], NoisePlan] | None = None,
    ) -> None:
        super().__init__()
        self._plan, self._domain, self._item_type = plan, domain, item_type
        self._release, self._output_files, self._named = release, output_files, named
        self._shards = item_shards(shards)
        # The label of what is drawn, if not the transform's own: where steps with other labels must draw the same.
        self._drawn_as = drawn_as
        self._quality = quality
        # A later step of the same release does without files that have no rows.
        self._every_file = every_file
        # The noise of what is decided, if that has not the attribute `plan`.
        self._plan_of = plan_of

    def expand(self, bounded: beam.PCollection) -> beam.PCollection:
        release = release_for(bounded, self._release, reading_of(bounded))
        check_bounded_in(bounded, release)
        noise = _NoiseKey(self._domain, release, self._drawn_as or full_label(bounded), self._plan_of or _plan)
        plan = self._plan if isinstance(self._plan, NoisePlan) else beam.pvalue.AsSingleton(self._plan)
        output_files = self._output_files or self._shards
        if self._domain is not None:
            bounded = bounded | "OnlyDomain" >> OnlyDomain(self._domain)
        summed = sum_by_item(bounded, self._shards, every_shard=self._named is not None)
        sums = summed.sums  # (item shard, packed sums)
        if self._domain is not None:  # every item shard gets a turn, since items that nobody holds are released too
            every_shard = every(bounded, "EveryShard", [(shard, b"") for shard in range(self._shards)])
            sums = (sums, every_shard) | "WithEveryShard" >> beam.Flatten()
        merged = with_beside(
            sums | "GroupByItemShard" >> beam.GroupByKey(),  # (item shard, Arrow streams)
            "Merge",
            beam.ParDo(_Merge(noise, self._item_type, self._shards), plan, self._named)
            .with_output_types(bytes)  # a digest has 128 bits: more than Beam's coder of integers takes
            .with_outputs("digests", main="histogram"),
            self._shards,
        )
        typed(merged)
        empty = empty_counts(arrow_type(self._item_type))
        drawing = beam.ParDo(
            _AddNoise(noise, output_files), plan, beam.pvalue.AsList(merged.digests), beam.pvalue.AsList(summed.origins)
        ).with_output_types(tuple[int, bytes])
        released = with_beside(merged.histogram, "AddNoise", drawing, self._shards)
        files = beyond_barrier(released, empty, output_files) if self._every_file else barrier(released)
        return sorted_by_item(files) | "KeepGood" >> KeepGood(self._quality)


class _NoiseKey:
    """Where a noise step's plan and randomness come from; the subkey is derived on the worker, from the key fetched there."""

    def __init__(
        self, domain: Domain | None, release: Release, label: str, plan_of: Callable[[Any], NoisePlan]
    ) -> None:
        self.domain, self.plan_of = domain, plan_of
        self._release, self._label = release, label

    def fetched(self) -> Callable[[NoisePlan, BoundedWindow], bytes]:
        """What fetches the key, and derives the step's subkey for a plan in a window."""
        keys = window_keys(self._release)

        @functools.lru_cache(maxsize=_MOST_SUBKEYS)
        def subkey(plan: NoisePlan, window: BoundedWindow) -> bytes:
            own = keys(window)
            return noise_subkey(own.key, own.id, self._label, plan, self.domain)

        return subkey


class _Merge(Ahead):
    """(item shard, chunks) -> Arrow stream of the merged sums with their lanes, and their part of the digest beside."""

    def __init__(self, noise: _NoiseKey, item_type: type, shards: int) -> None:
        self._noise = noise
        self._item_type, self._shards = item_type, shards

    def setup(self) -> None:
        self._subkey = self._noise.fetched()

    def process(
        self,
        group: tuple[int, Iterable[bytes]],
        decided: Any,
        named: NamedBatches | Domain | None,
        window: BoundedWindow = beam.DoFn.WindowParam,
    ) -> Iterator[bytes | beam.pvalue.TaggedOutput]:
        shard, chunks = group
        # A runner may fetch chunks, which only this thread can do.
        yield from self.ahead(window, (shard, list(chunks)), decided, named, window)

    def compute(
        self, group: tuple[int, list[bytes]], decided: Any, named: NamedBatches | Domain | None, window: BoundedWindow
    ) -> Iterator[bytes | beam.pvalue.TaggedOutput]:
        shard, chunks = group
        plan = self._noise.plan_of(decided)
        subkey = self._subkey(plan, window)
        domain = named if isinstance(named, Domain) else self._noise.domain
        check_items(plan, None if domain is None else len(domain))
        held = [chunk for chunk in chunks if chunk]
        if named:
            public = named if isinstance(named, Domain) else names_in(named, arrow_type(self._item_type))
            here = in_shard(public, shard, self._shards)
            held += [chunk for _, chunk in zero_sums(here, 1)]
        histogram = None
        if held:
            histogram, digest = merge_sums(held, subkey, self._item_type, named is not None)
            yield beam.pvalue.TaggedOutput("digests", digest)
        if self._noise.domain is not None:
            histogram = with_absent(histogram, in_shard(self._noise.domain, shard, self._shards), subkey)
        if histogram is not None:
            yield to_ipc(histogram)


class _AddNoise(Ahead):
    """Merged sums -> (file, noisy counts)."""

    def __init__(self, noise: _NoiseKey, output_files: int) -> None:
        self._noise = noise
        self._output_files = output_files

    def setup(self) -> None:
        self._subkey = self._noise.fetched()

    def process(
        self,
        histogram: bytes,
        decided: Any,
        digests: list[int],
        origins: list[Origin],
        window: BoundedWindow = beam.DoFn.WindowParam,
    ) -> Iterator[tuple[int, bytes]]:
        yield from self.ahead(window, histogram, decided, digests, origins, window)

    def compute(
        self, histogram: bytes, decided: Any, digests: list[int], origins: list[Origin], window: BoundedWindow
    ) -> Iterator[tuple[int, bytes]]:
        plan = self._noise.plan_of(decided)
        evidence = Evidence.of(digests, origins)
        evidence.check(plan.bound)
        counts = add_noise(from_ipc(histogram), plan, self._subkey(plan, window), evidence)
        yield from by_file(counts, self._output_files)


def _plan(decided: NoisePlan | Planned) -> NoisePlan:
    return decided if isinstance(decided, NoisePlan) else decided.plan


def names_in(named: NamedBatches, kind: pa.DataType) -> Names:
    """The items of all batches, which are of this type; there may be none."""
    return pa.concat_arrays([pa.array([], kind), *(batch.column("item").cast(kind) for _, batch in named)])
