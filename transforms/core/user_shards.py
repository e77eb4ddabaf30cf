"""Contributions brought together by user, in shards: the one shuffle that bounding and choosing need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow

from headcount.mechanisms.batches.chunk_store import Keeper
from headcount.mechanisms.batches.user_shards import HotShards, split_by_user
from headcount.mechanisms.checks import check_whole
from headcount.mechanisms.randomness.windows import Windows
from headcount.transforms.core.ahead import Ahead
from headcount.transforms.core.windows import ApartFromClock, Ticks, in_window

DEFAULT_SHARDS = 64  # where the size of the input is not known: enough for some 2 GB of distinct (user, item) pairs
_MOST_WINDOWS = 4  # windows of which a worker holds chunks back: each may take 64 MB


def check_shards(shards: int | None) -> int:
    """The number of shards to use: the one given, or the default."""
    if shards is None:
        return DEFAULT_SHARDS
    return check_whole("shards", shards, 1, 1 << 16)


class UserShards(beam.PTransform):
    """Contributions -> (shard, chunks): all rows of a user are in one shard, chosen by a hash of the user.

    In `windows`, a shard has those of one window. Rows beyond the public windows are dropped, without a word: their number
    is a secret, as all of the data. A tick of each window goes through the same shuffle (`windows.every`).
    """

    def __init__(self, shards: int, windows: Windows | None = None) -> None:
        super().__init__()
        self._shards, self._windows = shards, windows

    def expand(self, contributions: beam.PCollection) -> beam.PCollection:
        split = _SplitByUser(self._shards, keeper_of(contributions), self._windows)
        chunks = contributions | "SplitByUser" >> beam.ParDo(split).with_output_types(tuple[int, bytes])
        if self._windows is None:
            return chunks | "GroupByShard" >> beam.GroupByKey()  # (shard, Arrow streams)
        ticks = chunks | "Ticks" >> Ticks(self._windows)
        grouped = (chunks, ticks) | "WithTicks" >> beam.Flatten() | "GroupByShard" >> beam.GroupByKey()
        return grouped | "ApartFromClock" >> ApartFromClock(self._windows)


def keeper_of(collection: beam.PCollection) -> Keeper:
    """What keeps chunks in this process, on a runner that says that all its workers are here, and while it runs. In a stream
    nothing is kept: it has no end at which chunks would go."""
    return Keeper(getattr(collection.pipeline.runner, "store", None) if collection.is_bounded else None)


def item_shards(shards: int) -> int:
    """How many shards of items there are for this number of shards of users: sums are smaller than contributions."""
    return max(min(shards, 16), shards // 2)


class _SplitByUser(Ahead):
    """Record batches -> (shard, chunk); chunks of a shard that has far more than the others are put together first."""

    def __init__(self, shards: int, keep: Keeper, windows: Windows | None) -> None:
        self._shards, self._keep, self._windows = shards, keep, windows

    def start_bundle(self) -> None:
        super().start_bundle()
        self._hot: dict[BoundedWindow, HotShards] = {}

    def process(self, batch: pa.RecordBatch, window: BoundedWindow = beam.DoFn.WindowParam) -> Iterator[Any]:
        if self._windows is not None and not self._windows.has(window.start, window.end):
            return
        for own, chunks in self._begun(window, batch):  # the chunks of one batch
            yield from self._added(own, chunks)

    def compute(self, batch: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
        return split_by_user(batch, self._shards)

    def finish_bundle(self) -> Iterator[Any]:
        for own, chunks in self._rest():
            yield from self._added(own, chunks)
        for own in list(self._hot):
            yield from self._given_up(own)

    def _added(self, window: BoundedWindow, chunks: list[tuple[int, bytes]]) -> Iterator[Any]:
        hot = self._hot.pop(window, None) or HotShards(self._shards)
        yield from self._kept(window, hot.add(chunks))
        self._hot[window] = hot  # the last one that was used
        if len(self._hot) > _MOST_WINDOWS:
            yield from self._given_up(next(iter(self._hot)))

    def _given_up(self, window: BoundedWindow) -> Iterator[Any]:
        """What was held back of a window."""
        yield from self._kept(window, self._hot.pop(window).rest())

    def _kept(self, window: BoundedWindow, chunks: Iterable[tuple[int, bytes]]) -> Iterator[Any]:
        return (in_window((shard, self._keep(chunk)), window) for shard, chunk in chunks)
