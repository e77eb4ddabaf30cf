"""Released counts: their columns, how they are cut into output files, and their order.

All of it is post-processing. Rows are cut by a hash of the item and sorted by item, so that nothing shows how they were
sharded.

`count` is only ever an estimate of the true number. A noisy number of what was left after bounding is a `bounded_count`.
`noise_stddev` is the standard deviation of the noise in the first of them that a row has. `low` to `high` hold the number
without noise with a chance of 95 %, also of those items that reach a threshold. Neither speaks of what bounding took away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.names import Names, hash64, shard_of
from headcount.mechanisms.batches.packing import concat, from_ipc, to_ipc
from headcount.mechanisms.calibration.intervals import DEVIATIONS, as_noise_tells, half_width, outward, shown_ends
from headcount.mechanisms.calibration.noise_plan import NoisePlan

# From here on, released rows travel compressed: they meet in one group per output file. Less is not worth the time.
_MANY_ROWS = 4096


def counts_batch(item: Names, bounded_count: np.ndarray, plan: NoisePlan) -> pa.RecordBatch:
    """Noisy counts of bounded contributions as a batch item, bounded_count, noise_stddev, low, high, for the plan's noise."""
    half = half_width(plan) * 2.0**-plan.grid
    if plan.threshold is None or plan.kind == "law" or plan.bound.scaled:  # weights, and a law, are for names alone
        ends = outward(bounded_count - half, bounded_count + half)
    else:
        ends = shown_ends(plan, bounded_count)
    return _bounded(item, bounded_count, np.full(len(item), plan.stddev), ends)


def normal_counts_batch(item: Names, bounded_count: np.ndarray, noise_stddev: np.ndarray) -> pa.RecordBatch:
    """The same for noise of these standard deviations that is Gaussian, or a mean of such."""
    half = DEVIATIONS * noise_stddev
    return _bounded(item, bounded_count, noise_stddev, outward(bounded_count - half, bounded_count + half))


def empty_counts(item: pa.DataType) -> pa.RecordBatch:
    """No noisy counts of items of this type."""
    return normal_counts_batch(pa.array([], item), np.zeros(0), np.zeros(0))


def _bounded(
    item: Names, bounded_count: np.ndarray, noise_stddev: np.ndarray, ends: tuple[np.ndarray, np.ndarray]
) -> pa.RecordBatch:
    numbers = {"bounded_count": bounded_count, "noise_stddev": noise_stddev, "low": ends[0], "high": ends[1]}
    return _batch(item, numbers)


def estimates_batch(
    item: Names,
    count: np.ndarray,
    noise_stddev: np.ndarray,
    bounded_count: np.ndarray,
    most: np.ndarray | float = np.inf,
    ends: tuple[np.ndarray, np.ndarray] | None = None,
) -> pa.RecordBatch:
    """Estimates as a batch item, count, noise_stddev, low, high, bounded_count; none of them is above `most`.

    `ends` are those of its interval; without them, that of noise that is about Gaussian.
    """
    low, high = (count - DEVIATIONS * noise_stddev, count + DEVIATIONS * noise_stddev) if ends is None else ends
    low, high = outward(low, np.minimum(high, most))
    (noise_stddev,) = as_noise_tells(noise_stddev, noise_stddev)
    numbers = {"count": count, "noise_stddev": noise_stddev, "low": low, "high": high, "bounded_count": bounded_count}
    return _batch(item, numbers)


def empty_estimates(item: pa.DataType) -> pa.RecordBatch:
    """No estimates of items of this type."""
    return estimates_batch(pa.array([], item), np.zeros(0), np.zeros(0), np.zeros(0))


def _batch(item: Names, numbers: dict[str, np.ndarray]) -> pa.RecordBatch:
    columns = {name: pa.array(column, pa.float64()) for name, column in numbers.items()}
    return pa.RecordBatch.from_pydict({"item": item, **columns})


def cut(counts: pa.RecordBatch, output_files: int) -> Iterator[pa.RecordBatch]:
    """Cuts released rows into output files by a hash of the item: public, and the same for any sharding."""
    home = shard_of(hash64(counts.column("item")), output_files)
    return (counts.filter(pa.array(home == file)) for file in range(output_files))


def by_file(counts: pa.RecordBatch, output_files: int) -> Iterator[tuple[int, bytes]]:
    """The rows of each output file, as a pipeline sends them on."""
    for file, rows in enumerate(cut(counts, output_files)):
        yield file, to_ipc(rows, compress=rows.num_rows > _MANY_ROWS)


def sorted_counts(chunks: Iterable[bytes]) -> pa.RecordBatch:
    """The rows of one output file, sorted by item: in this order nothing shows how they were sharded."""
    counts = concat([from_ipc(chunk) for chunk in chunks])
    return counts.take(pc.sort_indices(counts.column("item")))
