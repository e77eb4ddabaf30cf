"""What a job reads, for whatever runs it: as a collection of a pipeline, or as batches in this process."""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from headcount.mechanisms.columns.keys import Keys
from headcount.mechanisms.columns.person_rows import PersonRows
from headcount.mechanisms.columns.row_schema import RowSchema, asked
from headcount.pipelines.flags import options
from headcount.pipelines.sources import events
from headcount.pipelines.sources.columns import Columns, place_of

if TYPE_CHECKING:
    import apache_beam as beam

_LEAST_BYTES = 8  # of a row, where files do not tell how many rows they have


class Source:
    """What a job reads; made once everything about it that can be refused was refused.

    `required` flags must be given. `keyed` says whether the job draws noise, from the key of a release; else what it reads has
    its noise already. `digested` says whether the rows may be others under the same id, which a ledger must see. `keys` are
    what is counted, where that is known. `size` is about the bytes of the input, without compression.
    """

    required: tuple[str, ...] = ("--input", "--output")
    keyed = False
    digested = True
    item_type: type = str
    keys: Keys | None = None
    size = 0

    def __init__(self, args: argparse.Namespace, remote: bool) -> None:
        raise NotImplementedError

    def read(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """The input of the job's transform."""
        raise NotImplementedError

    def batches(self) -> Iterator[pa.RecordBatch] | None:
        """The same in this process, yet to be read; None if only a pipeline can read it."""
        return None

    def contributions(self) -> int:
        """About how many contributions become of the rows, for what must hold them in memory."""
        return 0

    @property
    def days(self) -> int:
        """In how many windows of days each row is."""
        return 1 if self.keys is None else max(1, self.keys.days)

    def expected_rows(self) -> int | None:
        """About how many rows there are, where that is cheap to tell: for the operator's terminal alone."""
        return None

    def description(self) -> str:
        """What is read, in words for whoever looks before it is."""
        return ""

    @classmethod
    def check_again(cls, args: argparse.Namespace) -> None:
        """Refuse an input that reading would change, where a release is only made again to compare it."""


class Events(Source):
    """Files of events, of which a job takes users, items and counts; a stream takes the `time` of rows, too, and other files
    that come later, by a `reader` of its own."""

    required: tuple[str, ...] = ("--input", "--user", "--item", "--output")
    keyed = True
    time: str | None = None
    reader: Callable[[events.Inputs, Columns, events.ColumnTypes], beam.PTransform] | None = None

    def __init__(self, args: argparse.Namespace, remote: bool) -> None:
        inputs = events.expand_inputs(args.input, args.input_format, args.delimiter)
        self._args, self._inputs = args, inputs.absolute() if remote else inputs
        asked = self._asked(args)
        self._columns = asked if self.time is None else dataclasses.replace(asked, time=self.time)
        self._types = events.column_types(self._inputs, self._columns)
        self.size = self._inputs.decoded(self._types)
        if self._columns.keys:
            self.keys = self._types.keys(self._columns)
            self.item_type = self.keys.item_type

    def _asked(self, args: argparse.Namespace) -> Columns:
        return options.columns(args)

    def expected_rows(self) -> int | None:
        """About how many rows the files have, by the largest of them."""
        return events.expected_rows(self._inputs)

    def contributions(self) -> int:
        """About how many contributions become of the rows, and rather too many where files do not tell: a row may be in several
        windows of days, and of a list each element is one."""
        rows = self.expected_rows() or self.size // _LEAST_BYTES
        if self._columns.explode is not None:
            rows = max(rows, self.size)
        return rows * self.days

    def description(self) -> str:
        """The files, and the types of the columns."""
        number, types = len(self._inputs.files), self._types.schema
        read = ", ".join(f"{name} ({type_})" for name, type_ in zip(types.names, types.types, strict=True))
        return f"reads {number:,} {'file' if number == 1 else 'files'} of {self._inputs.format}: {read}"

    def read(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Checked contributions."""
        from headcount.transforms.core.contributions import Contributions

        made = Contributions(**options.rows(self._args), schema=self._types.schema)
        return self._events(pipeline) | "Contributions" >> made

    def _events(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Batches with the columns of the files."""
        from headcount.pipelines.sources.read import ReadEvents

        return pipeline | "Read" >> (self.reader or ReadEvents)(self._inputs, self._columns, self._types)

    def batches(self) -> Iterator[pa.RecordBatch] | None:
        """Checked contributions."""
        read = (
            batch for task in self._inputs.tasks() for batch in events.read_batches(task, self._columns, self._types)
        )
        return (made for batch in read for made in self._contributed(batch))

    def _contributed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows, place = self._rows, place_of(batch)
        for part in rows.parts(batch):
            yield rows.batch(part, place)
            if place.first_row is not None:
                place = dataclasses.replace(place, first_row=place.first_row + part.num_rows)

    @functools.cached_property
    def _rows(self) -> RowSchema | PersonRows:
        return asked(**options.rows(self._args)).of_schema(self._types.schema)
