"""A pipeline of somebody who embeds Headcount: its sink writes down all that it ever sees, then fails the first times.

For test_flink_faults.py, which runs it on a cluster that starts a failed job again. `--noise fresh` is the mistake that
Headcount avoids: noise that is drawn anew whenever a step is run again.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import uuid
from collections.abc import Iterable, Iterator
from typing import NoReturn

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions

from headcount.transforms import Budget, Histogram, KeyFile, Release

FAILURES = 2  # the cluster starts a job again three times


@beam.typehints.with_input_types(tuple[str, int])
@beam.typehints.with_output_types(tuple[int, tuple[str, float]])
class FreshNoise(beam.DoFn):
    """Noise from the operating system, as good as any but for the fact that a repeated step draws it again."""

    def process(self, element: tuple[str, int]) -> Iterator[tuple[int, tuple[str, float]]]:
        item, count = element
        yield 0, (item, float(count + secrets.randbelow(1 << 20)))


class Record(beam.DoFn):
    """Appends each count to a file of this worker's, and fails at the end of its bundle unless others did so before."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def setup(self) -> None:
        self._file = open(f"{self._directory}/seen-{uuid.uuid4().hex}", "a", buffering=1)

    def process(self, element: tuple[str, float]) -> None:
        item, count = element
        self._file.write(f"{item}\t{count!r}\n")

    def finish_bundle(self) -> None:
        for number in range(FAILURES):
            try:
                os.close(os.open(f"{self._directory}/failed-{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            _fail(number)

    def teardown(self) -> None:
        self._file.close()


def _fail(number: int) -> NoReturn:
    raise RuntimeError(f"the sink fails for the {number + 1}. time, as it was told to")


def _rows() -> Iterable[tuple[str, str]]:
    random = np.random.default_rng(7)
    users, items = random.integers(0, 1000, 8000), random.integers(0, 25, 8000)
    return [(f"u{user}", f"i{item}") for user, item in zip(users, items, strict=True)]


def main(argv: list[str]) -> None:
    """Run it, with Beam's flags besides our own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seen", required=True)
    parser.add_argument("--key-file", required=True)
    parser.add_argument("--noise", choices=("headcount", "fresh"), required=True)
    args, flags = parser.parse_known_args(argv)
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        rows = pipeline | beam.Create(_rows())
        if args.noise == "headcount":
            release = Release(KeyFile(args.key_file), "r1")
            counts = rows | Histogram(Budget(2, 1e-4), of="events", method="one-stage", bound=5, release=release)
            pairs = counts | "Pair" >> beam.Map(lambda row: (row.item, row.bounded_count))
        else:
            noisy = rows | beam.Values() | beam.combiners.Count.PerElement() | beam.ParDo(FreshNoise())
            pairs = noisy | "Barrier" >> beam.GroupByKey() | "Pair" >> beam.FlatMap(lambda group: list(group[1]))
        pairs | beam.ParDo(Record(args.seen))


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # Python's own end may wait for ever for a thread of Beam's client
