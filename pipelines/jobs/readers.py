"""What jobs read of files of events in another way than users, items and counts: all rows as one, values as leaves, people."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.columns.keys import Keys
from headcount.mechanisms.columns.person_rows import PersonRows
from headcount.mechanisms.columns.row_schema import user_keys
from headcount.mechanisms.counting.users import all_as_one
from headcount.mechanisms.sampled.axis import Axis
from headcount.mechanisms.sampled.leaves import Leaves
from headcount.pipelines.flags import options
from headcount.pipelines.flags.people import person_rows
from headcount.pipelines.flags.protection import window
from headcount.pipelines.jobs.source import Events
from headcount.pipelines.sources.columns import Columns, ValueColumn, place_of

if TYPE_CHECKING:
    import apache_beam as beam


class EveryRow(Events):
    """Files of events of which users and counts are read alone: all rows are of one item."""

    required = ("--input", "--user", "--output")

    def _asked(self, args: argparse.Namespace) -> Columns:
        return _users(args)

    def read(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Checked contributions."""
        import apache_beam as beam

        from headcount.transforms.core.contributions import ContributionBatch

        made = beam.Map(_every_row, self._users, self._args.count, self._args.drop_null)
        return self._events(pipeline) | "Contributions" >> made.with_output_types(ContributionBatch)

    def _contributed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield _every_row(batch, self._users, self._args.count, self._args.drop_null)

    @cached_property
    def _users(self) -> Keys:
        schema = self._types.schema
        found = dict(zip(schema.names, schema.types, strict=True))
        users = user_keys(self._args.user, self._columns.window, found, self._args.time_zone)
        assert users is not None  # all types are known
        return users


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
        from headcount.transforms.people.wiring import PeopleRows

        return self._events(pipeline) | "Contributions" >> PeopleRows(self._rows)

    @cached_property
    def _rows(self) -> PersonRows:
        return person_rows(self._args).of_schema(self._types.schema)
