"""What one job on windows takes, against a job for each of them.

    python benchmarks/windows.py --rows 700000 --windows 7

The windows of a generated collection have the same number of rows. Both ways count the same rows in this process, with the same
ids, and must give the same result. Shown is the least processor time of the repeats, which a busy machine changes little.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from _shared import OUT, write_csv
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from headcount.mechanisms import write_key_file
from headcount.transforms import Budget, Contributions, Histogram, KeyFile, Release, SelectPartitions, Total, Windows

DAY, BATCH, SHARDS = 86_400, 100_000, 8
BUDGET = Budget(1, 1e-8)
SCHEMA = pa.schema({"user": pa.int64(), "item": pa.string()})
JOBS: dict[str, Callable[[Release], beam.PTransform]] = {
    "histogram, one stage": lambda release: Histogram(
        BUDGET, method="one-stage", bound=10, release=release, shards=SHARDS
    ),
    "histogram": lambda release: Histogram(BUDGET, release=release, shards=SHARDS),
    "partitions": lambda release: SelectPartitions(BUDGET, release=release, shards=SHARDS),
    "total": lambda release: Total(Budget(1), release=release, shards=SHARDS),
}
frames: dict[int, list[pa.RecordBatch]] = {}  # by the end of their window; steps in this process see them
found: list[tuple[int, Any]] = []


class _Stamped(beam.DoFn):
    def process(self, end: int) -> Iterator[TimestampedValue]:
        for batch in frames[end]:
            yield TimestampedValue(batch, end - 1)


class _Keep(beam.DoFn):
    def process(self, row: Any, window: Any = beam.DoFn.WindowParam) -> None:
        found.append((0 if isinstance(window, beam.window.GlobalWindow) else int(window.end), row))


def generated(rows: int, seed: int) -> list[pa.RecordBatch]:
    """Visits of users, a tenth as many as rows, to items by a heavy tail."""
    random = np.random.default_rng(seed)
    users = pa.array(random.integers(0, max(1, rows // 10), rows))
    items = pa.array((random.pareto(1, rows) * 10).astype(np.int64) % 100_000)
    return pa.table({"user": users, "item": items.cast(pa.string())}).to_batches(BATCH)


def timed(make: Callable[[Release], beam.PTransform], release: Release, ends: list[int]) -> tuple[float, list[Any]]:
    """Processor seconds of a job on the rows of some windows, and (end, row) of all its rows."""
    found.clear()
    start = time.process_time()
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        rows = pipeline | beam.Create(ends) | beam.ParDo(_Stamped()).with_output_types(pa.RecordBatch)
        if release.windows is not None:
            rows = rows | beam.WindowInto(FixedWindows(DAY))
        rows | Contributions(schema=SCHEMA) | "Count" >> make(release) | beam.ParDo(_Keep())
    return time.process_time() - start, sorted(found)


def compared(make: Callable[[Release], beam.PTransform], key: KeyFile, rows: int, windows: int) -> tuple[float, float]:
    """Processor seconds of one job on all windows, and of a job for each."""
    public = Windows("2026-11-01", DAY, windows)
    release = Release(key, "windows", windows=public)
    ends = [start + DAY for start in public.starts()]
    frames.update({end: generated(rows // windows, end) for end in ends})
    once, together = timed(make, release, ends)
    apart, single = 0.0, []
    for end in ends:
        seconds, own = timed(make, release.of_window(end), [end])
        apart += seconds
        single += [(end, row) for _, row in own]
    assert together and together == sorted(single), "a window must give the rows of a job of its own"
    return once, apart


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--windows", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    table = []
    with tempfile.TemporaryDirectory() as folder:
        key = write_key_file(Path(folder) / "key")
        for name, make in JOBS.items():
            runs = [compared(make, key, args.rows, args.windows) for _ in range(args.repeats)]
            once, apart = (min(run[k] for run in runs) for k in (0, 1))
            seconds = {"seconds": f"{once:.2f}", "seconds apart": f"{apart:.2f}", "ratio": f"{once / apart:.2f}"}
            table.append({"job": name, "rows": str(args.rows), "windows": str(args.windows)} | seconds)
            print(f"{name}: {once:.2f} s in windows, {apart:.2f} s apart, ratio {once / apart:.2f}", flush=True)
    write_csv(table, OUT / "windows.csv")


if __name__ == "__main__":
    import windows  # by its name: steps of __main__ are copied, with all that they see

    windows.main()
