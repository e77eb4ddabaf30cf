"""Contributions brought together by user, in shards: the one shuffle that bounding and choosing need."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from headcount.mechanisms.batches.chunk_store import Keeper
from headcount.mechanisms.batches.hot_shards import HotShards
from headcount.mechanisms.batches.shards import split_by_user
from headcount.mechanisms.checks import check_whole
from headcount.transforms.core.ahead import Ahead

DEFAULT_SHARDS = 64  # where the size of the input is not known: enough for some 2 GB of distinct (user, item) pairs


def check_shards(shards: int | None) -> int:
    """The number of shards to use: the one given, or the default."""
    if shards is None:
        return DEFAULT_SHARDS
    return check_whole("shards", shards, 1, 1 << 16)


class UserShards(beam.PTransform):
    """Contributions -> (shard, chunks): all rows of a user are in one shard, chosen by a hash of the user."""

    def __init__(self, shards: int) -> None:
        super().__init__()
        self._shards = shards

    def expand(self, contributions: beam.PCollection) -> beam.PCollection:
        return (
            contributions  # record batches
            | "SplitByUser"
            >> beam.ParDo(_SplitByUser(self._shards, keeper_of(contributions))).with_output_types(tuple[int, bytes])
            | "GroupByShard" >> beam.GroupByKey()  # (shard, Arrow streams)
        )


def keeper_of(collection: beam.PCollection) -> Keeper:
    """What keeps chunks in this process, on a runner that says that all its workers are here, and while it runs."""
    return Keeper(getattr(collection.pipeline.runner, "store", None))


def item_shards(shards: int) -> int:
    """How many shards of items there are for this number of shards of users: sums are smaller than contributions."""
    return max(min(shards, 16), shards // 2)


class _SplitByUser(Ahead):
    """Record batches -> (shard, chunk); chunks of a shard that has far more than the others are put together first."""

    def __init__(self, shards: int, keep: Keeper) -> None:
        self._shards, self._keep = shards, keep

    def start_bundle(self) -> None:
        super().start_bundle()
        self._hot = HotShards(self._shards)

    def process(self, batch: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
        for shard, chunk in self._hot.add(self.ahead(batch)):  # the chunks of one batch
            yield shard, self._keep(chunk)

    def compute(self, batch: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
        return split_by_user(batch, self._shards)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        last = self._hot.add(windowed.value for windowed in super().finish_bundle())
        for shard, chunk in itertools.chain(last, self._hot.rest()):
            yield WindowedValue((shard, self._keep(chunk)), GlobalWindow().max_timestamp(), [GlobalWindow()])
