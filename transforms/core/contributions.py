"""`Contributions`: the one way in. Rows of many kinds become checked batches of (user, item, count)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow
from apache_beam.typehints import typehints
from apache_beam.utils.windowed_value import WindowedValue

from headcount.mechanisms.accounting.windows import USER
from headcount.mechanisms.batches.contributions import MAX_ITEM_BYTES, Place
from headcount.mechanisms.batches.frames import frame_reader, is_frame
from headcount.mechanisms.batches.python_values import column_of, field_at
from headcount.mechanisms.batches.shards import CONTRIBUTIONS
from headcount.mechanisms.columns.keys import Keys
from headcount.mechanisms.columns.preparation import preparation
from headcount.mechanisms.columns.row_schema import RowSchema, asked
from headcount.mechanisms.columns.value_ranges import ValueRange
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.transforms.core.coders import RecordBatchCoder
from headcount.transforms.core.windows import check_windowing, in_window
from headcount.transforms.keyed.created import keep_here
from headcount.transforms.keyed.elements import ROWS, key_parts, no_field, schema_for

_ROWS = 1 << 16  # rows that are put together into one batch


class _ForBatches(type):
    """The type of a hint for record batches: Beam's checks of elements take each of these for one."""

    def __instancecheck__(cls, element: Any) -> bool:
        return isinstance(element, pa.RecordBatch)


class ContributionBatch(pa.RecordBatch, metaclass=_ForBatches):
    """The element type of a collection of checked batches: a type hint only, the objects are plain `pa.RecordBatch`es.

    It also tells what the names of items stand for: the key columns, and whether their types were known; and which values rows
    carry.
    """

    keys: ClassVar[Keys] = Keys.plain(str)
    known: ClassVar[bool] = False
    values: ClassVar[tuple[ValueRange, ...]] = ()


beam.coders.registry.register_coder(ContributionBatch, RecordBatchCoder)


@functools.cache
def batches_of(keys: Keys, known: bool, values: tuple[ValueRange, ...] = ()) -> type[ContributionBatch]:
    """The element type of batches with these keys and values."""
    made = type(ContributionBatch.__name__, (ContributionBatch,), {"keys": keys, "known": known, "values": values})
    beam.coders.registry.register_coder(made, RecordBatchCoder)
    return made


def is_contributions(rows: beam.PCollection) -> bool:
    """Whether `Contributions` has made the collection."""
    return _is_checked(rows.element_type)


def as_contributions(rows: beam.PCollection) -> beam.PCollection:
    """The collection itself if `Contributions` made it, else what `Contributions` makes of its rows."""
    return rows if is_contributions(rows) else rows | "Contributions" >> Contributions()


def contributed(rows: beam.PCollection) -> type[ContributionBatch]:
    """The element type that the collection has, or will have, as contributions."""
    return rows.element_type if is_contributions(rows) else Contributions().contributed(rows)


def reading_of(rows: beam.PCollection) -> str:
    """How the rows of a collection of contributions were read: by the `Contributions` that made it, or those that were bounded
    or filtered since. Of several put together, and of other rows, nothing is known: their pipeline has read them."""
    part = rows.producer
    while part is not None:
        if isinstance(part.transform, Contributions):
            return part.transform.reading
        if len(part.inputs) == 1 and isinstance(part.inputs[0], beam.PCollection) and is_contributions(part.inputs[0]):
            return reading_of(part.inputs[0])
        part = part.parent
    return ""


class Contributions(beam.PTransform):
    """Turns rows into contribution batches, the input of every other transform (which apply it by themselves).

    Elements may be frames (Arrow batches and tables, pandas, Polars, or what has Arrow's C stream), dicts, `beam.Row`s, named
    tuples, dataclasses, or plain tuples `(user, item)` or `(user, item, count)`, where the item of several key columns is a
    tuple of them: one kind per collection. A row, and a user on one item, count 10^9 times at most.

    Types come from `schema`, or from the element type of the collection (hints of tuples, fields of rows, the frames of a
    `beam.Create`). A key of one column that tells neither may hold strings or integers; several such columns hold strings.

    Parameters:
        user: the column of the users, or the path of a nested one ("user.id").
        item: the key column, or a list of several: "page", ["country", "viewed_at:day", "age:0,18,30,65"].
        count: the column that says how often a row happened (default: None, once).
        drop_null: drop rows without a user, key or count (default: False, refuse them).
        max_item_bytes: rows with a longer key are dropped (default: 4096).
        explode: a key column of lists, each element of which makes a row (default: None).
        time_zone: of hours, days, weeks, months and years (default: "UTC").
        protect: who is promised something: a "user" with all that it did (default), or a "user-day", "user-week" or
            "user-month", which is weaker: a user's bound is then one of each window, and what a transform promises to each user
            it promises to each such unit (`transform.guarantee().per("user-day")`).
        time: the column of times or dates that windows come from; never the clock (default: None).
        values: columns of numbers that rows carry, with the public ranges that these are cut to, for `Aggregate`: texts like
            "price:0:100" (default: none). "share:bought=event=buy" is whether a row meets a condition.
        where: a condition on one row, such as "country = de and price > 5": only rows for which it is true are counted, and
            nothing else of the others is looked at (default: None, all).
        join: a public table whose columns are put beside each row's before all else, `where` too: a frame, or the path of a
            .csv or .parquet file. It has one row for each key. It must be public, and never be made of the private data: its
            rows would tell who is in that (default: None).
        on: the column by which a row finds its own in `join`; one that finds none has nulls there (default: None).
        schema: an Arrow schema with the columns that are named (default: None).
    """

    def __init__(
        self,
        user: str = "user",
        item: str | Sequence[str] = "item",
        count: str | None = None,
        *,
        drop_null: bool = False,
        max_item_bytes: int = MAX_ITEM_BYTES,
        explode: str | None = None,
        time_zone: str = "UTC",
        protect: str = USER,
        time: str | None = None,
        values: Sequence[str | ValueRange] = (),
        where: str | None = None,
        join: Any = None,
        on: str | None = None,
        schema: pa.Schema | None = None,
    ) -> None:
        super().__init__()
        self._row_schema = asked(
            user,
            item,
            count,
            drop_null=drop_null,
            max_item_bytes=max_item_bytes,
            explode=explode,
            time_zone=time_zone,
            protect=protect,
            time=time,
            values=values,
            prepare=preparation(where, join, on, time_zone=time_zone),
        )
        self._known = schema is not None
        if schema is not None:
            self._row_schema = self._row_schema.of_schema(schema, "schema: ")

    @property
    def reading(self) -> str:
        """How rows are read."""
        return self._row_schema.reading

    def contributed(self, rows: beam.PCollection) -> type[ContributionBatch]:
        """The element type of what is made of a collection: it tells the key columns."""
        row_schema = self._schema_for(rows)
        return batches_of(row_schema.shown, row_schema.keys is not None, row_schema.values)

    def expand(self, rows: beam.PCollection) -> beam.PCollection[ContributionBatch]:
        check_windowing(rows)
        keep_here(rows)
        row_schema = self._schema_for(rows)
        return rows | "ToBatches" >> beam.ParDo(_ToBatches(row_schema)).with_output_types(self.contributed(rows))

    def _schema_for(self, rows: beam.PCollection) -> RowSchema:
        return self._row_schema if self._known else schema_for(self._row_schema, rows)


class _ToBatches(beam.DoFn):
    """Passes batches on at once and gathers single rows, up to a batch full or the end of the bundle."""

    def __init__(self, row_schema: RowSchema) -> None:
        self._row_schema = row_schema
        # All but the counts: whether a row of a dict or a tuple has one is seen when it comes.
        self._fields = tuple(name for name in row_schema.columns if name != row_schema.count)

    def start_bundle(self) -> None:
        self._kind: str | None = None
        self._rows = 0
        self._held: dict[BoundedWindow, _Held] = {}
        self._last: tuple[BoundedWindow, _Held] | None = None

    def process(self, element: Any, window: BoundedWindow = beam.DoFn.WindowParam) -> Iterable[Any]:
        kind = _kind(element)
        if self._kind not in (None, kind):
            raise InputError(
                f"one collection holds elements of different kinds, {self._kind} and {kind}; give it one kind"
            )
        self._kind = kind
        if kind == "frame":
            yield from self._from_frame(element)
            return
        if self._last is None or window is not self._last[0]:  # most rows are in the window of the one before
            self._last = window, self._held.setdefault(window, _Held(self._fields))
        self._append(self._last[1], element, kind)
        self._rows += 1
        if self._rows >= _ROWS:
            yield from self._flush()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from self._flush()

    def _append(self, held: _Held, row: Any, kind: str) -> None:
        row_schema = self._row_schema
        count: list[Any] = []
        try:
            if kind == "tuple":
                user, key, *count = row
                if len(count) > 1:
                    raise ValueError
                for name in row_schema.beside:
                    raise no_field(name)
                parts = dict(zip(row_schema.sources, self._parts(key), strict=True)) | {row_schema.user: user}
                for name, values in held.columns.items():
                    values.append(parts[name])
            else:
                for name, values in held.columns.items():
                    values.append(field_at(row, name))
                if row_schema.count is not None:
                    count = [_count_at(row, row_schema.count)]
        except (KeyError, AttributeError, ValueError):
            raise InputError(self._wanted()) from None
        held.rows += 1
        held.counts += count
        if held.counts and len(held.counts) < held.rows:
            raise InputError("some rows have a count and some have none; give every row one, or none")

    def _wanted(self) -> str:
        """What is wrong with a row that lacks a field."""
        return (
            f"a row lacks one of the fields {', '.join(map(repr, self._row_schema.columns))}; name yours in "
            "Contributions(user=..., item=..., count=...), or give (user, item) or (user, item, count) tuples"
        )

    def _parts(self, key: Any) -> tuple[Any, ...]:
        """The key columns of a tuple's key."""
        sources = self._row_schema.sources
        if len(sources) == 1:
            if isinstance(key, tuple):
                raise key_parts(len(key))
            return (key,)
        if not isinstance(key, tuple) or len(key) != len(sources):
            raise key_parts(len(key) if isinstance(key, tuple) else 1, sources)
        return key

    def _flush(self) -> Iterator[WindowedValue]:
        """A batch of what is held of each window."""
        every, self._held, self._last, self._rows = self._held, {}, None, 0
        for window, held in every.items():
            yield in_window(self._of_rows(held), window)

    def _of_rows(self, held: _Held) -> pa.RecordBatch:
        row_schema, place, columns = self._row_schema, self._place({}), held.columns
        if held.counts:
            row_schema = dataclasses.replace(row_schema, count=row_schema.count or place.count)
            columns[place.count] = held.counts
        return self._batch(
            {name: column_of(values, name, place) for name, values in columns.items()}, place, row_schema
        )

    def _from_frame(self, frame: Any) -> Iterator[pa.RecordBatch]:
        if isinstance(frame, pa.RecordBatch | pa.Table):
            metadata = frame.schema.metadata or {}
            if CONTRIBUTIONS in metadata:  # checked already, and its counts are where they belong
                if self._row_schema.prepare:
                    raise prepared_before()
                yield from self._again(frame)
                return
        else:
            metadata = {}
        place = self._place(metadata)
        for batch in [frame] if isinstance(frame, pa.RecordBatch) else frame_reader(frame, self._row_schema.columns):
            for part in self._row_schema.parts(batch):
                yield self._batch(self._row_schema.columns_of(part, place), place, self._row_schema)
                if place.first_row is not None:
                    place = dataclasses.replace(place, first_row=place.first_row + part.num_rows)

    def _again(self, checked: pa.RecordBatch | pa.Table) -> Iterator[pa.RecordBatch]:
        yield from checked.to_batches() if isinstance(checked, pa.Table) else [checked]

    def _batch(self, columns: Mapping[str, pa.Array], place: Place, row_schema: RowSchema) -> pa.RecordBatch:
        return row_schema.contributions(columns, place)

    def _place(self, metadata: Mapping[bytes, bytes]) -> Place:
        first = metadata.get(b"headcount.first_row")
        return Place(
            file=metadata.get(b"headcount.file", b"").decode(),
            first_row=None if first is None else int(first),
            user=self._row_schema.user,
            item=(*self._row_schema.sources, "item")[0],
            count=self._row_schema.count or "count",
        )


class _Held:
    """Single rows of one window that wait for a batch: how many, their values by column, and their counts."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self.rows = 0
        self.columns: dict[str, list[Any]] = {name: [] for name in fields}
        self.counts: list[Any] = []


def prepared_before() -> InputError:
    """The error that contributions have lost the columns that rows are chosen by."""
    return InputError(
        "where and join are for rows: give them to the Contributions that these contributions were made by"
    )


def _is_checked(hint: Any) -> bool:
    if isinstance(hint, typehints.UnionConstraint) and all(map(_is_checked, hint.union_types)):
        raise ParameterError(
            "collections with different key columns, or types of them, were put together: count them one by one"
        )
    return isinstance(hint, type) and issubclass(hint, ContributionBatch)


def _count_at(row: Any, path: str) -> Any:
    """The count of a row, which a dict may lack."""
    try:
        return field_at(row, path)
    except KeyError:
        return None


def _kind(element: Any) -> str:
    """The kind of an element; libraries of frames are not imported for it."""
    if isinstance(element, dict):
        return "dict"
    if isinstance(element, tuple):
        return "named tuple" if hasattr(element, "_fields") else "tuple"
    if isinstance(element, beam.Row):
        return "row"
    if dataclasses.is_dataclass(element) and not isinstance(element, type):
        return "dataclass"
    if is_frame(element):
        return "frame"
    raise InputError(f"elements of type {type(element).__name__} are no rows; give Arrow batches, frames, {ROWS}")
