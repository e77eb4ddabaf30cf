"""The steps that sample and threshold shares: sums by item, the sample of them, and the barrier behind it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa

from headcount.mechanisms.accounting.calibration import NoisePlan
from headcount.mechanisms.batches.domain import arrow_type
from headcount.mechanisms.batches.packing import from_ipc, to_ipc
from headcount.mechanisms.counting.evidence import Evidence, Origin
from headcount.mechanisms.counting.released import by_file
from headcount.mechanisms.counting.sums import merge_sums, sum_items
from headcount.mechanisms.counting.users import EVERYBODY, EVERYBODY_STEPS, number_of_users, one_row_per_user
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.sampled.heavy_hitters import BOUNDED_USERS, NOISY_USERS
from headcount.mechanisms.sampled.histogram import SampledHistogramMechanism, SampleKey, sample_sums, sampled_batch
from headcount.mechanisms.sampled.quantiles import Hierarchy
from headcount.transforms.bounding import Bounded
from headcount.transforms.core.barrier import beyond_barrier, sorted_by_item
from headcount.transforms.core.contributions import ContributionBatch
from headcount.transforms.core.noise import Noise, Summing, sum_by_item
from headcount.transforms.core.release import full_label, in_expansion_service
from headcount.transforms.core.user_shards import item_shards


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
    return json.dumps(["collection", rows.producer.full_label, rows.tag, *columns])


def check_sample(named: object) -> str | None:
    """The name of a sample, or None."""
    if named is not None and (not isinstance(named, str) or not named):
        raise ParameterError(f"sample must be a name, as a text that is not empty, got {named!r}", "sample")
    return named


class Sampled(beam.PTransform):
    """Bounded batches -> (file, released rows item, count, noise_stddev, sampled), sorted, beyond a barrier.

    Items are those of the histogram, or the nodes of a tree over its leaves.
    """

    def __init__(
        self, plan: SampledHistogramMechanism | Hierarchy, key: SampleKey, shards: int, output_files: int
    ) -> None:
        super().__init__()
        self._plan, self._key, self._output_files = plan, key, output_files
        self._shards = item_shards(shards)

    def expand(self, bounded: beam.PCollection) -> beam.PCollection:
        histogram = self._plan.histogram if isinstance(self._plan, Hierarchy) else self._plan
        summed = sum_by_item(bounded, self._shards, summing(self._plan))
        merged = (
            summed.sums  # (item shard, packed sums)
            | "GroupByItemShard" >> beam.GroupByKey()
            | "Merge"
            >> beam.ParDo(_Merge(self._key, histogram.item_type))
            .with_output_types(bytes)  # a digest has 128 bits: more than Beam's coder of integers takes
            .with_outputs("digests", main="histogram")
        )
        sampled = merged.histogram | "Sample" >> beam.ParDo(
            _Sample(self._key, histogram, self._output_files),
            beam.pvalue.AsList(merged.digests),
            beam.pvalue.AsList(summed.origins),
        ).with_output_types(tuple[int, bytes])
        empty = sampled_batch(
            pa.array([], arrow_type(histogram.item_type)), np.zeros(0, dtype=np.int64), histogram.plan
        )
        return sorted_by_item(beyond_barrier(sampled, empty, self._output_files))


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


def summing(plan: SampledHistogramMechanism | Hierarchy) -> Summing:
    """How sums are made of bounded batches: by item, or by every node above a leaf."""
    return plan.sum_nodes if isinstance(plan, Hierarchy) else sum_items


class _Merge(beam.DoFn):
    """(item shard, chunks) -> Arrow stream of the merged sums with their lanes, and their part of the digest beside."""

    def __init__(self, key: SampleKey, item_type: type) -> None:
        self._key, self._item_type = key, item_type

    def setup(self) -> None:
        self._subkey = self._key.fetch()

    def process(self, group: tuple[int, Iterable[bytes]]) -> Iterator[bytes | beam.pvalue.TaggedOutput]:
        histogram, digest = merge_sums(group[1], self._subkey, self._item_type)
        yield beam.pvalue.TaggedOutput("digests", digest)
        yield to_ipc(histogram)


class _Sample(beam.DoFn):
    def __init__(self, key: SampleKey, histogram: SampledHistogramMechanism, output_files: int) -> None:
        self._key, self._histogram, self._output_files = key, histogram, output_files

    def setup(self) -> None:
        self._subkey = self._key.fetch()

    def process(self, sums: bytes, digests: list[int], origins: list[Origin]) -> Iterator[tuple[int, bytes]]:
        evidence = Evidence.of(digests, origins)
        evidence.check(self._histogram.bound)
        plan, least = self._histogram.plan, self._histogram.least
        yield from by_file(sample_sums(from_ipc(sums), plan, least, self._subkey, evidence), self._output_files)
