"""The non-private count that people write today: the other side of the throughput benchmark."""

from __future__ import annotations

import sys

import apache_beam as beam


def main(path: str, output: str, item: str = "item") -> None:
    """Counts the rows of each item of a Parquet file with Beam's stock transforms."""
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        (
            pipeline
            | "Read" >> beam.io.ReadFromParquet(path, columns=[item])
            | "Item" >> beam.Map(lambda row: row[item])
            | "Count" >> beam.combiners.Count.PerElement()
            | "Format" >> beam.MapTuple(lambda name, count: f"{name},{count}")
            | "Write" >> beam.io.WriteToText(output)
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
