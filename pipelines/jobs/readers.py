"""What jobs read of files of events in another way than users, items and counts: all rows as one, values as leaves, people."""

from __future__ import annotations

import argparse
import dataclasses

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.columns.keys import Keys
from headcount.mechanisms.columns.row_schema import user_keys
from headcount.mechanisms.counting.users import all_as_one
from headcount.mechanisms.sampled.axis import Axis
from headcount.mechanisms.sampled.leaves import Leaves
from headcount.pipelines.flags import options
from headcount.pipelines.flags.people import person_rows
from headcount.pipelines.flags.protection import window
from headcount.pipelines.jobs.run import Events
from headcount.pipelines.sources import events
from headcount.pipelines.sources.columns import Columns, ValueColumn, place_of
from headcount.transforms.core.contributions import ContributionBatch
from headcount.transforms.people.wiring import PeopleRows


class EveryRow(Events):
    """Files of events of which users and counts are read alone: all rows are of one item."""

    required = ("--input", "--user", "--output")

    def _asked(self, args: argparse.Namespace) -> Columns:
        return _users(args)

    def _contributions(self, batches: beam.PCollection) -> beam.PCollection:
        args = self._args
        schema = self._types.schema
        found = dict(zip(schema.names, schema.types, strict=True))
        users = user_keys(args.user, self._columns.window, found, args.time_zone)
        made = beam.Map(_every_row, users, args.count, args.drop_null)
        return batches | "Contributions" >> made.with_output_types(ContributionBatch)


def _users(args: argparse.Namespace) -> Columns:
    """The columns of users, counts and windows."""
    prepare = options.preparation(args)
    return Columns(args.user, count=args.count, zone=args.time_zone, window=window(args), prepare=prepare)


def _every_row(batch: pa.RecordBatch, users: Keys, count: str | None, drop_null: bool) -> pa.RecordBatch:
    user = users.fields[0].name
    place = place_of(batch, user, user, count or "count")
    names = users.encode({name: batch.column(name) for name in users.sources}, place)
    counts = None if count is None else batch.column(count)
    return contribution_batch(names, all_as_one(batch).column("item"), counts, drop_null=drop_null, place=place)


class Values(Events):
    """Files of events whose items are values, which are read as the numbers of their leaves."""

    required = ("--input", "--user", "--value", "--output")
    axis: Axis
    leaves: Leaves

    def __init__(self, args: argparse.Namespace, remote: bool) -> None:
        super().__init__(options.values_as_items(args), remote)

    def _asked(self, args: argparse.Namespace) -> Columns:
        values = ValueColumn(args.value, self.axis, self.leaves, args.drop_null)
        return dataclasses.replace(_users(args), values=values)

    @classmethod
    def over(cls, axis: Axis, leaves: Leaves) -> type[Values]:
        """The source for values on this grid."""
        return type(cls.__name__, (cls,), {"axis": axis, "leaves": leaves})


class People(Events):
    """Files of events for questions about people: users with times, steps, and values that people are told apart by."""

    required = ("--input", "--user", "--output")

    def _asked(self, args: argparse.Namespace) -> Columns:
        rows = person_rows(args)
        asked = Columns(rows.user, rows.items, rows.count, zone=rows.time_zone, time=rows.at, conditions=rows.steps)
        return dataclasses.replace(asked, prepare=rows.prepare)

    def read(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Checked contributions, which carry what the question needs."""
        rows = person_rows(self._args).of_schema(self._types.schema)
        return (
            pipeline
            | "Read" >> events.ReadEvents(self._inputs, self._columns, self._types)
            | "Contributions" >> PeopleRows(rows)
        )
