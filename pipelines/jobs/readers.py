"""What jobs read of files of events in another way than users, items and counts: all rows as one, or values as leaves."""

from __future__ import annotations

import argparse

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.batches.contributions import Place, contribution_batch
from headcount.mechanisms.counting.users import all_as_one
from headcount.mechanisms.sampled.axis import Axis
from headcount.mechanisms.sampled.leaves import Leaves
from headcount.pipelines import options
from headcount.pipelines.jobs.run import Events, Name
from headcount.pipelines.sources import events
from headcount.pipelines.sources.columns import ValueColumn
from headcount.transforms.core.contributions import ContributionBatch


class EveryRow(Events):
    """Files of events of which users and counts are read alone: all rows are of one item."""

    required = ("--input", "--user", "--output")

    def __init__(self, args: argparse.Namespace, remote: bool) -> None:
        inputs = events.expand_inputs(args.input, args.input_format, args.delimiter)
        self._args, self._inputs = args, inputs.absolute() if remote else inputs
        self._types = events.user_types(self._inputs, args.user, args.count)
        self.size = self._inputs.decoded(self._types)

    def read(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Checked contributions."""
        args = self._args
        columns = ["user", "item"] if args.count is None else ["user", "item", "count"]
        return (
            pipeline
            | "Read" >> events.ReadEvents(self._inputs, None, args.user, args.count, self._types)
            | "Name" >> beam.ParDo(Name(columns))  # batches whose items are the users once more
            | "Contributions"
            >> beam.Map(_every_row, args.user, args.count, args.drop_null).with_output_types(ContributionBatch)
        )


def _every_row(batch: pa.RecordBatch, user: str, count: str | None, drop_null: bool) -> pa.RecordBatch:
    found = batch.schema.metadata
    place = Place(
        found[b"headcount.file"].decode(errors="replace"),
        int(found[b"headcount.first_row"]),
        user,
        user,
        count or "count",
    )
    counts = None if count is None else batch.column("count")
    return contribution_batch(
        batch.column("user"), all_as_one(batch).column("item"), counts, drop_null=drop_null, place=place
    )


class Values(Events):
    """Files of events whose items are values, which are read as the numbers of their leaves."""

    required = ("--input", "--user", "--value", "--output")

    axis: Axis
    leaves: Leaves

    def __init__(self, args: argparse.Namespace, remote: bool) -> None:
        column = ValueColumn(args.value, self.axis, self.leaves, args.drop_null)
        super().__init__(argparse.Namespace(**vars(options.values_as_items(args)) | {"item": column}), remote)

    @classmethod
    def over(cls, axis: Axis, leaves: Leaves) -> type[Values]:
        """The source for values on this grid."""
        return type(cls.__name__, (cls,), {"axis": axis, "leaves": leaves})
