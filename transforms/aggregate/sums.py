"""The noisy sums of an aggregate as a transform: users bounded on named keys, sums by key, noise, and the barrier behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow

from headcount.mechanisms.aggregate.bounding import bounded_batch
from headcount.mechanisms.aggregate.ranges import in_range
from headcount.mechanisms.aggregate.stages import AggregatePlan
from headcount.mechanisms.aggregate.sums import measure_subkeys, merge_measures, noisy_measures, sum_measures
from headcount.mechanisms.batches.domain import Domain, arrow_type, in_shard
from headcount.mechanisms.batches.packing import from_ipc, to_ipc
from headcount.mechanisms.batches.value_rows import unpack_values
from headcount.mechanisms.bounding.steps import provenance, step_subkeys
from headcount.mechanisms.counting.evidence import Evidence, Origin
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.ahead import Ahead
from headcount.transforms.core.barrier import barrier, sorted_by_item, with_beside
from headcount.transforms.core.coders import typed
from headcount.transforms.core.noise import NamedBatches, names_in, sum_by_item
from headcount.transforms.core.release import full_label
from headcount.transforms.core.user_shards import item_shards
from headcount.transforms.core.windows import WindowKey, release_in, window_keys


class NoisySumsOfNamed(beam.PTransform):
    """Packed shards of users -> (0, noisy sums of all that was named), beyond a barrier."""

    def __init__(
        self,
        plan: beam.PCollection,
        named: beam.pvalue.AsList | Domain,
        release: Release,
        shards: int,
        item_type: type,
    ) -> None:
        super().__init__()
        self._plan, self._named = plan, named
        self._release, self._shards, self._item_type = release, shards, item_type

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        bound = _Bound(self._release, f"{full_label(rows)}/Bounded", self._shards)
        noise = _Noise(self._plan, self._named, self._release, self._shards, self._item_type)
        plan = beam.pvalue.AsSingleton(self._plan)
        bounding = beam.ParDo(bound, plan).with_output_types(pa.RecordBatch)
        return with_beside(rows, "Bounded", bounding, self._shards) | "NoisySums" >> noise


class _Bound(Ahead):
    """Packed shards -> what each user adds to the sums of its named keys. The key is fetched on the worker."""

    def __init__(self, release: Release, label: str, number: int) -> None:
        self._release, self._label, self._number = release, label, number

    def setup(self) -> None:
        self._keys = window_keys(self._release)

    def process(
        self, packed: tuple[int, bytes], plan: AggregatePlan, window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[pa.RecordBatch]:
        yield from self.ahead(window, packed, plan, self._keys(window))

    def compute(self, packed: tuple[int, bytes], plan: AggregatePlan, own: WindowKey) -> Iterator[pa.RecordBatch]:
        number, data = packed
        subkeys = step_subkeys(own.key, own.id, self._label, plan.measures.steps)
        # As with every bound that is decided: shards that were bounded differently never meet in one noise step.
        chosen = (*plan.kept, *(of.text() for of in plan.ranges))
        origin = provenance(f"{self._label} at {chosen}", own.id, self._number)
        shard = in_range(unpack_values(data), plan.metrics.values)
        yield bounded_batch(shard, plan.measures, subkeys, origin, number)


class _Noise(beam.PTransform):
    """Bounded batches -> (0, noisy sums of all that was named), beyond a barrier."""

    def __init__(
        self,
        plan: beam.PCollection,
        named: beam.pvalue.AsList | Domain,
        release: Release,
        shards: int,
        item_type: type,
    ) -> None:
        super().__init__()
        self._plan, self._named, self._release = plan, named, release
        self._shards, self._item_type = item_shards(shards), item_type

    def expand(self, bounded: beam.PCollection) -> beam.PCollection:
        plan, key = beam.pvalue.AsSingleton(self._plan), _Keyed(self._release, full_label(bounded))
        summed = sum_by_item(bounded, self._shards, sum_measures, every_shard=True)
        merged = with_beside(
            summed.sums | "GroupByItemShard" >> beam.GroupByKey(),  # (item shard, packed sums)
            "Merge",
            beam.ParDo(_Merge(key, self._item_type, self._shards), plan, self._named)
            .with_output_types(bytes)  # a digest has 128 bits: more than Beam's coder of integers takes
            .with_outputs("digests", main="sums"),
            self._shards,
        )
        drawing = beam.ParDo(
            _AddNoise(key), plan, beam.pvalue.AsList(merged.digests), beam.pvalue.AsList(summed.origins)
        ).with_output_types(tuple[int, bytes])
        typed(merged)
        noisy = with_beside(merged.sums, "AddNoise", drawing, self._shards)
        return sorted_by_item(barrier(noisy))


class _Keyed:
    """Where the randomness of the sums comes from; the subkeys are derived on the worker, from the key fetched there."""

    def __init__(self, release: Release, label: str) -> None:
        self._release, self._label = release, label

    def subkeys(self, plan: AggregatePlan, window: BoundedWindow) -> list[bytes]:
        """The subkey of each measure in a window."""
        own = release_in(self._release, window)
        return measure_subkeys(own.key_source.fetch(), own.id, self._label, plan.measures, plan.metrics.texts())


class _Merge(beam.DoFn):
    """(item shard, chunks) -> Arrow stream of the sums of all named keys with their lanes, and their digest beside."""

    def __init__(self, key: _Keyed, item_type: type, shards: int) -> None:
        self._keyed, self._item_type, self._shards = key, item_type, shards

    def process(
        self,
        group: tuple[int, Iterable[bytes]],
        plan: AggregatePlan,
        named: NamedBatches | Domain,
        window: BoundedWindow = beam.DoFn.WindowParam,
    ) -> Iterator[bytes | beam.pvalue.TaggedOutput]:
        shard, chunks = group
        public = named if isinstance(named, Domain) else names_in(named, arrow_type(self._item_type))
        here = in_shard(public, shard, self._shards)
        held = [chunk for chunk in chunks if chunk]
        sums, digest = merge_measures(held, here, plan.measures, self._keyed.subkeys(plan, window))
        yield beam.pvalue.TaggedOutput("digests", digest)
        yield to_ipc(sums)


class _AddNoise(beam.DoFn):
    def __init__(self, key: _Keyed) -> None:
        self._keyed = key

    def process(
        self,
        sums: bytes,
        plan: AggregatePlan,
        digests: list[int],
        origins: list[Origin],
        window: BoundedWindow = beam.DoFn.WindowParam,
    ) -> Iterator[tuple[int, bytes]]:
        evidence, subkeys = Evidence.of(digests, origins), self._keyed.subkeys(plan, window)
        yield 0, to_ipc(noisy_measures(from_ipc(sums), plan.measures, subkeys, evidence, plan.metrics))
