"""`Contributions`: the one door in. Rows of many kinds become checked batches of (user, item, count)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.trigger import DefaultTrigger
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from headcount.mechanisms.batches.contributions import IDS, MAX_ITEM_BYTES, Place, column_of, contribution_batch
from headcount.mechanisms.batches.shards import CONTRIBUTIONS
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.transforms.core.coders import RecordBatchCoder

_ROWS = 1 << 16  # rows that are put together into one batch


@dataclasses.dataclass(frozen=True)
class _Columns:
    """Which fields hold what, and what to do with odd rows."""

    user: str
    item: str
    count: str | None
    drop_null: bool
    max_item_bytes: int


class ContributionBatch(pa.RecordBatch):
    """The element type of a collection of checked batches: a type hint only, the objects are plain `pa.RecordBatch`es."""


beam.coders.registry.register_coder(ContributionBatch, RecordBatchCoder)


def check_whole(rows: beam.PCollection) -> None:
    """Refuses a collection that may come in pieces: each would be one more release of the same users."""
    if not isinstance(rows.windowing.windowfn, GlobalWindows):
        raise ParameterError(
            "Headcount counts over the whole collection, but this one is windowed; apply "
            "beam.WindowInto(GlobalWindows()) first"
        )
    if not isinstance(rows.windowing.triggerfn, DefaultTrigger):
        raise ParameterError("Headcount counts a collection once, but this one has a trigger; leave the trigger out")
    if not rows.is_bounded:
        raise ParameterError("Headcount needs a bounded collection; this one is unbounded (streaming)")


def as_contributions(rows: beam.PCollection) -> beam.PCollection:
    """The collection itself if `Contributions` made it, else what `Contributions` makes of its rows."""
    return rows if rows.element_type is ContributionBatch else rows | "Contributions" >> Contributions()


class Contributions(beam.PTransform):
    """Turns rows into contribution batches, the input of every other transform (which apply it by themselves).

    Elements may be Arrow record batches or tables, pandas frames, dicts, `beam.Row`s, named tuples, or plain `(user, item)`
    or `(user, item, count)` tuples: one kind per collection. Ids are strings or integers; a count says how often the row
    happened, and is 1 if no `count` column is named; a row, and a user on one item, count 10^9 times at most. Null users or
    items are refused unless `drop_null`; rows with an item name of more than `max_item_bytes` bytes are dropped.
    """

    def __init__(
        self,
        user: str = "user",
        item: str = "item",
        count: str | None = None,
        drop_null: bool = False,
        max_item_bytes: int = MAX_ITEM_BYTES,
    ) -> None:
        super().__init__()
        named = [name for name in (user, item, count) if name is not None]
        if len(set(named)) < len(named):
            raise ParameterError(f"user, item and count must be different columns, got {', '.join(map(repr, named))}")
        if isinstance(max_item_bytes, bool) or not isinstance(max_item_bytes, int) or max_item_bytes < 1:
            raise ParameterError(f"max_item_bytes must be a positive integer, got {max_item_bytes!r}", "max_item_bytes")
        self._columns = _Columns(user, item, count, drop_null, max_item_bytes)

    def expand(self, rows: beam.PCollection) -> beam.PCollection[ContributionBatch]:
        check_whole(rows)
        return rows | "ToBatches" >> beam.ParDo(_ToBatches(self._columns)).with_output_types(ContributionBatch)


class _ToBatches(beam.DoFn):
    """Passes batches on at once and gathers single rows, up to a batch full or the end of the bundle."""

    def __init__(self, columns: _Columns) -> None:
        self._columns = columns

    def start_bundle(self) -> None:
        self._kind: str | None = None
        self._users: list[Any] = []
        self._items: list[Any] = []
        self._counts: list[Any] = []

    def process(self, element: Any) -> Iterable[pa.RecordBatch]:
        kind = _kind(element)
        if self._kind not in (None, kind):
            raise InputError(
                f"one collection holds elements of different kinds, {self._kind} and {kind}; give it one kind"
            )
        self._kind = kind
        if kind == "batch":
            yield from self._from_arrow(element)
            return
        if kind == "frame":
            yield from self._from_arrow(_frame_to_arrow(element))
            return
        self._append(element, kind)
        if len(self._users) >= _ROWS:
            yield self._flush()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._users:
            yield WindowedValue(self._flush(), GlobalWindow().max_timestamp(), [GlobalWindow()])

    def _append(self, row: Any, kind: str) -> None:
        c = self._columns
        try:
            if kind == "dict":
                values = [row.get(c.user), row.get(c.item)] + ([row.get(c.count)] if c.count else [])
                if not {c.user, c.item} <= row.keys():
                    raise KeyError
            elif kind == "tuple":
                values = list(row)
                if len(values) not in (2, 3):
                    raise KeyError
            else:
                values = [getattr(row, name) for name in (c.user, c.item, c.count) if name is not None]
        except (KeyError, AttributeError):
            wanted = ", ".join(repr(name) for name in (c.user, c.item, c.count) if name is not None)
            raise InputError(
                f"a row has not the fields {wanted}; name them in Contributions(user=..., item=..., count=...), or give "
                "(user, item) or (user, item, count) tuples"
            ) from None
        self._users.append(values[0])
        self._items.append(values[1])
        if len(values) == 3:
            self._counts.append(values[2])
        if self._counts and len(self._counts) < len(self._users):
            raise InputError("some rows have a count and some have none; give every row one, or none")

    def _flush(self) -> pa.RecordBatch:
        place = self._place({})
        user = column_of(self._users, place.user, place)
        item = column_of(self._items, place.item, place)
        count = column_of(self._counts, place.count, place, counts=True) if self._counts else None
        self._users, self._items, self._counts = [], [], []
        return self._batch(user, item, count, place)

    def _from_arrow(self, data: pa.RecordBatch | pa.Table) -> Iterator[pa.RecordBatch]:
        metadata = data.schema.metadata or {}
        if CONTRIBUTIONS in metadata:  # checked already, and its counts are where they belong
            yield data
            return
        c = self._columns
        place = self._place(metadata)
        for name in (c.user, c.item, c.count):
            if name is not None and name not in data.schema.names:
                known = ", ".join(repr(known) for known in data.schema.names)
                raise place.error(name, f"is missing; the columns are {known}")
        batches = data.to_batches(max_chunksize=1 << 20) if isinstance(data, pa.Table) else [data]
        for batch in batches:
            count = batch.column(c.count) if c.count else None
            yield self._batch(batch.column(c.user), batch.column(c.item), count, place)
            if place.first_row is not None:
                place = dataclasses.replace(place, first_row=place.first_row + batch.num_rows)

    def _batch(self, user: pa.Array, item: pa.Array, count: pa.Array | None, place: Place) -> pa.RecordBatch:
        c = self._columns
        return contribution_batch(
            user, item, count, drop_null=c.drop_null, max_item_bytes=c.max_item_bytes, place=place
        )

    def _place(self, metadata: dict[bytes, bytes]) -> Place:
        c = self._columns
        first = metadata.get(b"headcount.first_row")
        return Place(
            file=metadata.get(b"headcount.file", b"").decode(),
            first_row=None if first is None else int(first),
            user=c.user,
            item=c.item,
            count=c.count or "count",
        )


def _kind(element: Any) -> str:
    """The kind of an element; pandas is recognised without importing it."""
    if isinstance(element, pa.RecordBatch | pa.Table):
        return "batch"
    if isinstance(element, dict):
        return "dict"
    if isinstance(element, tuple):
        return "named tuple" if hasattr(element, "_fields") else "tuple"
    if isinstance(element, beam.Row):
        return "row"
    if type(element).__module__.split(".")[0] == "pandas" and hasattr(element, "columns"):
        return "frame"
    raise InputError(
        f"elements of type {type(element).__name__} are no rows; give Arrow batches, pandas frames, dicts, beam.Rows, named "
        "tuples, or (user, item) or (user, item, count) tuples"
    )


def _frame_to_arrow(frame: Any) -> pa.Table:
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError):
        raise InputError(f"a pandas frame has a column of mixed or unknown type; {IDS}") from None
