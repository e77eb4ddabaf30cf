"""Sums by bucket of very many small elements, put together before they are shuffled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from headcount.mechanisms.batches.contributions import IDS, Place
from headcount.mechanisms.batches.packing import pack, unpack
from headcount.mechanisms.batches.python_values import column_of
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.shape.buckets import cells_of

_ELEMENTS = 1 << 18  # elements that are put together


def check_salt(salt: str | None) -> str | None:
    """The salt, if it is a public text or there is none."""
    if salt is not None and not isinstance(salt, str):
        raise ParameterError(f"salt must be a public text, got {salt!r}", "salt")
    return salt


class Hashing:
    """From items to buckets: by a public salt or, without one, an item is the number of its bucket."""

    def __init__(self, buckets: int, salt: str | None, ranks: int = 0) -> None:
        self._buckets, self._salt, self._ranks = buckets, salt, ranks

    def buckets(self, items: list[Any] | pa.Array) -> np.ndarray:
        """The bucket of each item; with `ranks` a row of two, see `mechanisms.buckets.cells_of`."""
        names = items if isinstance(items, pa.Array) else column_of(items, "item", Place())
        if names.null_count:
            raise InputError("an item is null; leave such elements out")
        if names.type not in (pa.string(), pa.int64()):
            raise InputError(f"items are of type {names.type}; {IDS}")
        if self._salt is not None:
            return cells_of(names, self._salt, self._buckets, self._ranks)
        if not pa.types.is_int64(names.type):
            raise InputError(
                f"without a salt, items are the numbers of their buckets, 0 to {self._buckets - 1}: give one"
            )
        return np.asarray(names)


class SumByBucket(beam.DoFn):
    """Elements, or record batches of them, -> (bucket shard, packed buckets and sums); subclasses say what is added to which
    bucket."""

    def __init__(self, buckets: int, shards: int = 1) -> None:
        self._buckets, self._shards = buckets, shards

    def arrays(self, elements: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        """Buckets, and what is added to each."""
        raise NotImplementedError

    def batch_arrays(self, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        """The same, for a batch of elements."""
        raise NotImplementedError

    def start_bundle(self) -> None:
        self._elements: list[Any] = []

    def process(self, element: Any) -> Iterator[tuple[int, bytes]]:
        if isinstance(element, pa.RecordBatch):
            yield from self._chunks(*self.batch_arrays(element))
            return
        self._elements.append(element)
        if len(self._elements) >= _ELEMENTS:
            yield from self._flush()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._elements:
            for chunk in self._flush():
                yield WindowedValue(chunk, GlobalWindow().max_timestamp(), [GlobalWindow()])

    def _flush(self) -> Iterator[tuple[int, bytes]]:
        elements, self._elements = self._elements, []
        yield from self._chunks(*self.arrays(elements))

    def _chunks(self, bucket: np.ndarray, amount: np.ndarray) -> Iterator[tuple[int, bytes]]:
        if len(bucket) and not 0 <= int(bucket.min()) <= int(bucket.max()) < self._buckets:
            raise InputError(f"a bucket is not between 0 and {self._buckets - 1}: all take part with the same buckets")
        distinct, place = np.unique(bucket, return_inverse=True)
        sums = np.zeros(len(distinct), dtype=np.int64)
        np.add.at(sums, place, amount)
        for shard in range(self._shards):
            own = distinct % self._shards == shard
            if own.any():
                yield shard, pack({"bucket": pa.array(distinct[own]), "sum": pa.array(sums[own])})


def read_sums(chunk: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Buckets and sums of what `SumByBucket` packed."""
    columns, _ = unpack(chunk)
    return np.asarray(columns["bucket"]), np.asarray(columns["sum"])
