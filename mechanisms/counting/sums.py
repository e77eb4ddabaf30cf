"""Sums by item: partial sums of bounded batches, cut by a hash of the item, and merged with the lanes of their noise.

All is exact, in integers that never wrap, and the same for any order of the rows and any number of shards: so the digest of the
merged sums stands for the whole bounded histogram, however it was computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.cut import cut_by_item
from headcount.mechanisms.batches.domain import arrow_type
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.packing import concat, unpack
from headcount.mechanisms.batches.run_sums import sum_by_code
from headcount.mechanisms.batches.shards import unite
from headcount.mechanisms.errors import InputError
from headcount.mechanisms.randomness.lane_ids import item_lane_ids, lane_sum
from headcount.mechanisms.randomness.subkeys import lane_key


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
    return cut_by_item(items, shards).one_row_each(sums)


def zero_sums(items: Names, shards: int) -> Iterator[tuple[int, bytes]]:
    """Chunks that name items and add nothing: items that are public by now are released also if nobody's sample has them."""
    return split_sums(items, {"sum": np.zeros(len(items), dtype=np.int64)}, shards)


def add_sums(chunks: Iterable[bytes]) -> tuple[Names, np.ndarray]:
    """The items (or buckets) of one shard and their sums, from chunks as `split_sums` made them."""
    return _added([unpack(chunk)[0] for chunk in chunks])


def _added(parts: list[dict[str, pa.Array]]) -> tuple[Names, np.ndarray]:
    items, code = unite([part["item"] for part in parts])
    return items, sum_by_code(code, np.concatenate([np.asarray(part["sum"]) for part in parts]), len(items))


def merge_sums(
    chunks: Iterable[bytes], noise_subkey: bytes, item_type: type, named: bool = False
) -> tuple[pa.RecordBatch, int]:
    """Adds up the chunks of one item shard: a batch item, sum, lane_hi, lane_lo, and its part of the digest.

    `named` says that all items are public by now, and so have a chunk of `zero_sums`, which alone holds sums of 0: any other
    item would be released without a threshold, and is refused.
    """
    parts = [unpack(chunk)[0] for chunk in chunks]
    items, sums = _added(parts)
    if named:
        zeros = [part["item"].filter(pc.equal(part["sum"], 0)) for part in parts]
        if not pc.all(pc.is_in(items, value_set=pa.concat_arrays(zeros)), min_count=0).as_py():
            raise RuntimeError("an item that was not named reached the noise")  # a bug, and never to be released
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
    return extra if histogram is None else concat([histogram, extra])


def _with_lanes(items: Names, sums: np.ndarray, ids: np.ndarray) -> pa.RecordBatch:
    lanes = {"lane_hi": pa.array(ids[:, 0]), "lane_lo": pa.array(ids[:, 1])}
    return pa.RecordBatch.from_pydict({"item": items, "sum": pa.array(sums)} | lanes)
