"""A pipeline of somebody who embeds Headcount in a stream: frames come by a clock, and a sink writes down all that it sees.

For test_streams.py, which runs it on Prism and on Flink. On Flink it never ends by itself: a window that is there did not wait
for the end. On Prism a `TestStream` says what comes when.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.window import BoundedWindow, FixedWindows, TimestampedValue

from headcount.transforms import (
    Aggregate,
    Budget,
    Contributions,
    Histogram,
    KeyFile,
    Release,
    SelectPartitions,
    Total,
    Windows,
)
from headcount.transforms.core import base, contributions, windows

NUMBER, SIZE, EMPTY = 10, 3, 4  # windows, their seconds, and the number of the one without rows
PARTS = 3  # frames of a window, of which the last comes before those of the window before it are all there
LATE = 6  # the window of which a further frame comes too late, on Prism
ROWS = 400
SCHEMA = pa.schema([("user", pa.string()), ("item", pa.string()), ("price", pa.float64())])
DOMAIN = [f"i{k}" for k in range(30)]
_BUDGET = Budget(2, 1e-4)
_HOURS = 4 * 3600  # a stream that nobody ends

JOBS: dict[str, Callable[..., beam.PTransform]] = {
    "one stage": lambda **given: Histogram(_BUDGET, method="one-stage", bound=5, **given),
    "one stage, public domain": lambda **given: Histogram(_BUDGET, method="one-stage", bound=5, domain=DOMAIN, **given),
    "one stage, bound chosen": lambda **given: Histogram(_BUDGET, method="one-stage", **given),
    "partitions": lambda **given: SelectPartitions(_BUDGET, **given),
    "total": lambda **given: Total(Budget(1), **given),
    "histogram": lambda **given: Histogram(_BUDGET, **given),
    "aggregate": lambda **given: Aggregate(_BUDGET, ["users", "sum:price:0:10"], **given),
}


def frame(number: int, part: int) -> pa.RecordBatch:
    """A frame of a window; the same rows whenever it is asked for."""
    random = np.random.default_rng(1000 * (number + 1) + part)
    columns = {
        "user": [f"u{k}" for k in random.integers(0, 200, ROWS)],
        "item": [f"i{k}" for k in random.geometric(0.08, ROWS)],
        "price": random.random(ROWS) * 12,
    }
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def frames(number: int) -> list[pa.RecordBatch]:
    """All that comes in time of a window."""
    return [] if number == EMPTY else [frame(number, part) for part in range(PARTS)]


class _Frames(beam.DoFn):
    """The frames that come with a tick: two of its window, and the third of the one after it."""

    def __init__(self, windows: Windows, seen: str) -> None:
        self._windows, self._seen = windows, seen

    def process(self, tick: Any, at: Any = beam.DoFn.TimestampParam) -> Iterator[TimestampedValue]:
        number = int(float(at) - self._windows.start) // SIZE
        yield from arriving(self._windows, number, self._seen)


class _OfTestStream(beam.DoFn):
    def __init__(self, windows: Windows, seen: str) -> None:
        self._windows, self._seen = windows, seen

    def process(self, tick: bytes) -> Iterator[TimestampedValue]:
        if tick == b"late":
            yield TimestampedValue(frame(LATE, PARTS), self._windows.start + LATE * SIZE)
        else:
            yield from arriving(self._windows, int(tick), self._seen)


def arriving(windows: Windows, number: int, seen: str) -> Iterator[TimestampedValue]:
    """What comes in the time of a window, which may lie beyond the public ones."""
    note(seen, "came", windows.start + (number + 1) * SIZE, "")
    for late, parts in ((0, range(PARTS - 1)), (1, (PARTS - 1,))):
        if number + late != EMPTY:
            at = windows.start + (number + late) * SIZE
            yield from (TimestampedValue(frame(number + late, part), at + part) for part in parts)


def note(seen: str, job: str, end: int, rows: str) -> None:
    """A line in a file of this process."""
    with open(f"{seen}/seen-{os.getpid()}", "a") as file:
        file.write(json.dumps([time.time(), job, end, rows]) + "\n")


class _Note(beam.DoFn):
    def __init__(self, seen: str, job: str, end: int | None = None) -> None:
        self._seen, self._job, self._end = seen, job, end

    def process(self, file: tuple[int, pa.RecordBatch], window: BoundedWindow = beam.DoFn.WindowParam) -> None:
        note(self._seen, self._job, self._end or int(window.end), repr(file[1].to_pylist()))


def _test_stream(windows: Windows) -> TestStream:
    """The window before the first, and all public ones; after one of them comes a frame that is too late."""
    stream = TestStream(coder=beam.coders.BytesCoder()).advance_watermark_to(windows.start - SIZE)
    for number in range(-1, windows.number):
        stream.add_elements([b"%d" % number])
        stream.advance_watermark_to(windows.start + (number + 1) * SIZE)
        if number == LATE:
            stream.add_elements([b"late"])
    return stream.advance_watermark_to_infinity()


def built(pipeline: beam.Pipeline, args: argparse.Namespace) -> None:
    """The source, the jobs on its windows, and their sinks."""
    public = Windows(args.start, SIZE, NUMBER)
    if args.source == "test":
        source = pipeline | _test_stream(public) | beam.ParDo(_OfTestStream(public, args.seen))
    else:  # the tick before the first public window brings a frame of that
        clock = PeriodicImpulse(public.start - SIZE, public.last + _HOURS, SIZE)
        source = pipeline | clock | beam.ParDo(_Frames(public, args.seen))
    source.element_type = pa.RecordBatch
    lateness = {"allowed_lateness": 2 * SIZE} if args.mutation == "lateness" else {}
    rows = source | beam.WindowInto(FixedWindows(SIZE, public.start % SIZE), **lateness)
    release = Release(KeyFile(args.key_file), "r1", windows=public)
    for job in args.job:
        applied(rows, job, release) | f"Note {job}" >> beam.ParDo(_Note(args.seen, job))


def applied(rows: beam.PCollection, job: str, release: Release) -> beam.PCollection:
    """What a job makes of frames: (0, its rows) of each window."""
    values = ["price:0:10"] if job == "aggregate" else []
    contributions = rows | f"Contributions of {job}" >> Contributions(values=values, schema=SCHEMA)
    return contributions | job >> JOBS[job](release=release, shards=3, output_files=1)


def batch_jobs(jobs: list[str], start: int, key_file: str, seen: str) -> None:
    """A batch job for each window, with the id of that, on this machine."""
    public = Windows(start, SIZE, NUMBER)
    release = Release(KeyFile(key_file), "r1", windows=public)
    for number, begin in enumerate(public.starts()):
        end = begin + SIZE
        with beam.Pipeline(runner="FnApiRunner") as pipeline:
            rows = pipeline | beam.Create(frames(number) or [frame(0, 0).slice(0, 0)])
            for job in jobs:
                applied(rows, job, release.of_window(end)) | f"Note {job}" >> beam.ParDo(_Note(seen, job, end))


def main(argv: list[str]) -> None:
    """Run it, with Beam's flags besides our own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", action="append", required=True, choices=JOBS)
    parser.add_argument("--start", type=int, required=True)
    parser.add_argument("--seen", required=True)
    parser.add_argument("--key-file", required=True)
    parser.add_argument("--source", choices=("test", "clock"), required=True)
    parser.add_argument("--mutation", choices=("lateness",))
    args, flags = parser.parse_known_args(argv)
    with beam.Pipeline(options=PipelineOptions(flags, streaming=True)) as pipeline:
        if args.mutation == "lateness":
            windows.check_windowing = lambda rows: None
            base.check_windowing = contributions.check_windowing = windows.check_windowing
        built(pipeline, args)


if __name__ == "__main__":
    from tests.runners import streaming  # by its name, since workers import it

    streaming.main(sys.argv[1:])
    os._exit(0)  # Python's own end may wait for ever for a thread of Beam's client
