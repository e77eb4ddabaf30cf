"""Released counts: their columns, how they are cut into output files, and their order.

All of it is post-processing. Rows are cut by a hash of the item and sorted by item, so that nothing shows how they were
sharded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.names import Names, hash64, shard_of
from headcount.mechanisms.batches.packing import from_ipc, to_ipc

# From here on, released rows travel compressed: they meet in one group per output file. Less is not worth the time.
_MANY_ROWS = 4096


def counts_batch(item: Names, count: np.ndarray, stddev: float) -> pa.RecordBatch:
    """Released counts as a batch item, count, stddev."""
    columns = {"item": item, "count": pa.array(count), "stddev": pa.array(np.full(len(count), stddev))}
    return pa.RecordBatch.from_pydict(columns)


def estimates_batch(
    item: Names, estimate: np.ndarray, noise_stddev: np.ndarray, width: float, bounded: np.ndarray
) -> pa.RecordBatch:
    """Released estimates as a batch item, count, noise_stddev, low, high, bounded_count.

    `low` and `high` are `width` standard deviations from the estimate, rounded outwards to whole counts, and not below 0.
    """
    half = width * noise_stddev
    columns = {
        "item": item,
        "count": pa.array(np.rint(estimate)),
        "noise_stddev": pa.array(noise_stddev),
        "low": pa.array(np.maximum(0.0, np.floor(estimate - half))),
        "high": pa.array(np.ceil(estimate + half)),
        "bounded_count": pa.array(bounded),
    }
    return pa.RecordBatch.from_pydict(columns)


def by_file(counts: pa.RecordBatch, output_files: int) -> Iterator[tuple[int, bytes]]:
    """Cuts released rows into output files by a hash of the item: public, and the same for any sharding."""
    home = shard_of(hash64(counts.column("item")), output_files)
    for file in range(output_files):
        rows = counts.filter(pa.array(home == file))
        yield file, to_ipc(rows, compress=rows.num_rows > _MANY_ROWS)


def sorted_counts(chunks: Iterable[bytes]) -> pa.RecordBatch:
    """The rows of one output file, sorted by item: in this order nothing shows how they were sharded."""
    counts = pa.concat_batches([from_ipc(chunk) for chunk in chunks])
    return counts.take(pc.sort_indices(counts.column("item")))
