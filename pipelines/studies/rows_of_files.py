"""Files of events as contributions in this process, for what is no job: with the columns, checks and refusals of one."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import pyarrow as pa

from headcount.mechanisms.columns.keys import Keys
from headcount.mechanisms.columns.row_schema import asked
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.flags import options
from headcount.pipelines.jobs.run import on_beam
from headcount.pipelines.sources import events
from headcount.pipelines.sources.columns import place_of
from headcount.pipelines.storage.stores import is_local


def read_contributions(args: argparse.Namespace, patterns: Sequence[str]) -> tuple[Iterator[pa.RecordBatch], Keys]:
    """Contribution batches that are yet to be read, and what their items stand for, by the flags of `groups.add_columns`."""
    if not all(map(is_local, patterns)):
        on_beam([])  # whose options other files are found by
    inputs = events.expand_inputs(patterns, args.input_format, args.delimiter)
    if inputs.format == "bigquery":
        raise ParameterError(f"{inputs.files[0].path} is a table, and this command reads files: export it first")
    columns = options.columns(args)
    types = events.column_types(inputs, columns)
    row_schema = asked(**options.rows(args)).of_schema(types.schema)

    def batches() -> Iterator[pa.RecordBatch]:
        for task in inputs.tasks():
            for batch in events.read_batches(task, columns, types):
                yield row_schema.batch(batch, place_of(batch))

    return batches(), row_schema.shown
