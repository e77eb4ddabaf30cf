"""The steps that sample and threshold shares: sums by item, the sample of them, and the barrier behind it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow

from headcount.mechanisms.batches.packing import from_ipc, to_ipc
from headcount.mechanisms.batches.shards import unpack_shard
from headcount.mechanisms.bounding.steps import bound_shard, provenance, step_subkeys
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.counting.evidence import Evidence, Origin
from headcount.mechanisms.counting.released import by_file
from headcount.mechanisms.counting.sums import merge_sums, sum_items
from headcount.mechanisms.counting.users import EVERYBODY, EVERYBODY_STEPS, number_of_users, one_row_per_user
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.sampled.auto import AutoSampled
from headcount.mechanisms.sampled.heavy_hitters import BOUNDED_USERS, NOISY_USERS
from headcount.mechanisms.sampled.histogram import (
    CHOICES,
    Drawn,
    SampledHistogramMechanism,
    SampleKey,
    nothing_shown,
    sample_sums,
)
from headcount.mechanisms.sampled.quantiles import Hierarchy
from headcount.transforms.bounding import Bounded
from headcount.transforms.core.barrier import beyond_barrier, sorted_by_item
from headcount.transforms.core.coders import typed
from headcount.transforms.core.contributions import ContributionBatch
from headcount.transforms.core.noise import Noise, Summing, sum_by_item
from headcount.transforms.core.release import full_label, in_expansion_service, producer_label
from headcount.transforms.core.user_shards import item_shards
from headcount.transforms.core.windows import window_keys


def sample_name(rows: beam.PCollection, named: str | None, *columns: str) -> str:
    """What tells the sample of these columns of a collection from others under its release: the given name, or the collection.

    So steps on one collection read one sample, whatever they are called, and two collections never share random bits: if they
    did, equal results would tell that there is nobody by whom they differ. A collection is known by the step that made it; an
    expansion service does not know that, and goes by the step that samples.
    """
    if named is not None:
        return named
    if in_expansion_service():
        return json.dumps(["step", full_label(rows)])
    return json.dumps(["collection", producer_label(rows), rows.tag, *columns])


def check_sample(named: object) -> str | None:
    """The name of a sample, or None."""
    if named is not None and (not isinstance(named, str) or not named):
        raise ParameterError(f"sample must be a name, as a text that is not empty, got {named!r}", "sample")
    return named


class Sampled(beam.PTransform):
    """Bounded batches -> (file, rows item, sampled of what is shown), sorted, beyond a barrier.

    Items are those of the histogram, or the nodes of a tree over its leaves. A histogram that the job decides on is one element
    `decided`, and `plan` then says what it is chosen from.
    """

    def __init__(
        self,
        plan: SampledHistogramMechanism | Hierarchy | AutoSampled,
        key: SampleKey,
        shards: int,
        output_files: int,
        decided: beam.PCollection[SampledHistogramMechanism] | None = None,
    ) -> None:
        super().__init__()
        self._plan, self._key, self._output_files, self._decided = plan, key, output_files, decided
        self._shards = item_shards(shards)

    def expand(self, bounded: beam.PCollection) -> beam.PCollection:
        item_type = int if isinstance(self._plan, Hierarchy) else self._plan.item_type
        drawn = self._plan if self._decided is None else beam.pvalue.AsSingleton(self._decided)
        summed = sum_by_item(bounded, self._shards, summing(self._plan))
        merged = (
            summed.sums  # (item shard, packed sums)
            | "GroupByItemShard" >> beam.GroupByKey()
            | "Merge"
            >> beam.ParDo(_Merge(self._key, item_type), drawn)
            .with_output_types(bytes)  # a digest has 128 bits: more than Beam's coder of integers takes
            .with_outputs("digests", main="histogram")
        )
        typed(merged)
        sampled = merged.histogram | "Sample" >> beam.ParDo(
            _Sample(self._key, self._output_files),
            drawn,
            beam.pvalue.AsList(merged.digests),
            beam.pvalue.AsList(summed.origins),
        ).with_output_types(tuple[int, bytes])
        return sorted_by_item(beyond_barrier(sampled, nothing_shown(item_type), self._output_files))


class BoundAsSampled(beam.PTransform):
    """Packed shards of users, bounded as the sample that was decided on bounds them."""

    def __init__(self, decided: beam.PCollection[SampledHistogramMechanism], key: SampleKey, shards: int) -> None:
        super().__init__()
        self._decided, self._key, self._shards = decided, key, shards

    def expand(self, packed: beam.PCollection) -> beam.PCollection[pa.RecordBatch]:
        bound = _Bound(self._key, full_label(packed), self._shards)
        decided = beam.pvalue.AsSingleton(self._decided)
        return packed | "Bound" >> beam.ParDo(bound, decided).with_output_types(ContributionBatch)


class NumberOfUsers(beam.PTransform):
    """Contributions -> the noisy number of all users, as one integer, beyond a barrier; drawn from the sample's own key."""

    def __init__(self, plan: NoisePlan, key: SampleKey, shards: int) -> None:
        super().__init__()
        self._plan, self._key, self._shards = plan, key, shards

    def expand(self, contributions: beam.PCollection) -> beam.PCollection[int]:
        return (
            contributions  # record batches
            | "OneRowPerUser" >> beam.Map(one_row_per_user).with_output_types(ContributionBatch)
            | "Bounded" >> Bounded(EVERYBODY_STEPS, self._key.choices, self._shards, BOUNDED_USERS)
            | "Noise"
            >> Noise(self._plan, EVERYBODY, str, self._key.choices, 1, 1, drawn_as=NOISY_USERS)  # (0, one count)
            | "Number" >> beam.MapTuple(_number).with_output_types(int)
        )


def _number(file: int, counts: pa.RecordBatch) -> int:
    return number_of_users(counts)


def summing(plan: SampledHistogramMechanism | Hierarchy | AutoSampled) -> Summing:
    """How sums are made of bounded batches: by item, or by every node above a leaf."""
    return plan.sum_nodes if isinstance(plan, Hierarchy) else sum_items


class _Keyed(beam.DoFn):
    """Fetches the key on the worker; the sample's subkey follows from what is drawn."""

    def __init__(self, key: SampleKey) -> None:
        self._where = key

    def setup(self) -> None:
        self._keys = window_keys(self._where.release)

    def subkey(self, drawn: Drawn, window: BoundedWindow) -> bytes:
        """The subkey of the sample that is drawn in a window."""
        own = self._keys(window)
        return drawn.subkey(own.key, own.id, self._where.sample)


class _Bound(_Keyed):
    def __init__(self, key: SampleKey, label: str, shards: int) -> None:
        super().__init__(key)
        self._label, self._shards = label, shards

    def process(
        self,
        packed: tuple[int, bytes],
        drawn: SampledHistogramMechanism,
        window: BoundedWindow = beam.DoFn.WindowParam,
    ) -> Iterator[pa.RecordBatch]:
        number, shard = packed
        release_id = self._keys(window).id
        subkeys = step_subkeys(self.subkey(drawn, window), release_id, CHOICES, drawn.steps)
        # The choice is part of where the batch comes from: shards that were bounded differently never meet in one sample.
        origin = provenance(f"{self._label} at {drawn.max_items}", release_id, self._shards)
        yield bound_shard(unpack_shard(shard), drawn.steps, subkeys, origin).to_batch(number)


class _Merge(_Keyed):
    """(item shard, chunks) -> Arrow stream of the merged sums with their lanes, and their part of the digest beside."""

    def __init__(self, key: SampleKey, item_type: type) -> None:
        super().__init__(key)
        self._item_type = item_type

    def process(
        self, group: tuple[int, Iterable[bytes]], drawn: Drawn, window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[bytes | beam.pvalue.TaggedOutput]:
        histogram, digest = merge_sums(group[1], self.subkey(drawn, window), self._item_type)
        yield beam.pvalue.TaggedOutput("digests", digest)
        yield to_ipc(histogram)


class _Sample(_Keyed):
    def __init__(self, key: SampleKey, output_files: int) -> None:
        super().__init__(key)
        self._output_files = output_files

    def process(
        self,
        sums: bytes,
        drawn: SampledHistogramMechanism | Hierarchy,
        digests: list[int],
        origins: list[Origin],
        window: BoundedWindow = beam.DoFn.WindowParam,
    ) -> Iterator[tuple[int, bytes]]:
        histogram = drawn.histogram if isinstance(drawn, Hierarchy) else drawn
        evidence = Evidence.of(digests, origins)
        evidence.check(histogram.bound)
        shown = sample_sums(from_ipc(sums), histogram.plan, histogram.least, self.subkey(drawn, window), evidence)
        yield from by_file(shown, self._output_files)
