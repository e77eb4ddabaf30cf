"""The non-private count that people write today: the other side of the benchmarks of whole jobs.

python benchmarks/plain_count.py FILE OUTPUT [COLUMN [FLAGS OF BEAM ...]]
"""

from __future__ import annotations

import sys

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions


def main(path: str, output: str, item: str = "item", *flags: str) -> None:
    """Counts the rows of each item of a Parquet file with Beam's stock transforms, locally unless the flags say where."""
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner", *flags])) as pipeline:
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
