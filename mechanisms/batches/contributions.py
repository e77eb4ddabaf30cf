"""The one way in: columns of users, items and counts, checked and widened into contribution batches.

Ids are strings or int64 (dictionaries, large strings and smaller integers are widened), counts are int64. What is
wrong is refused with the file, column and row number, where known, and never with a value. A count above MOST_COUNT (10^9)
is not wrong: it counts as MOST_COUNT.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.names import string_buffers
from headcount.mechanisms.batches.shards import CONTRIBUTIONS, MISSING, MOST_COUNT, value_name
from headcount.mechanisms.errors import InputError

MAX_ITEM_BYTES = 4096
CONVERT = "; convert it first, for instance to text"
IDS = f"users and items must be strings or integers{CONVERT}"


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a batch comes from, for messages: its file, the number of its first row, and what its columns are called."""

    file: str = ""
    first_row: int | None = None
    user: str = "user"
    item: str = "item"
    count: str = "count"

    def error(self, column: str, problem: str, row: int | None = None) -> InputError:
        """An error about a column, at a row of the batch if one is given."""
        parts = [f"{self.file}: " if self.file else "", f"column {column!r}"]
        if row is not None and self.first_row is not None:
            parts.append(f", row {self.first_row + row}")
        return InputError(f"{''.join(parts)}: {problem}")


def contribution_batch(
    user: pa.Array,
    item: pa.Array,
    count: pa.Array | None = None,
    *,
    values: Sequence[pa.Array] = (),
    drop_null: bool = False,
    max_item_bytes: int = MAX_ITEM_BYTES,
    place: Place | None = None,
) -> pa.RecordBatch:
    """A contribution batch of the given columns, or an InputError.

    `values` are columns of numbers that rows carry, int64 (`shards` says what they are for). A row may lack one, and is still
    there for all else.

    Rows without a user, item or count are refused, or dropped with `drop_null`. Rows with a count of zero, and rows
    whose item has a longer name than `max_item_bytes`, are dropped one by one: refusing the job for one such name would
    tell that its user is there. For the same reason a count is cut at MOST_COUNT: were there no ceiling, sums could leave 64
    bits, and whether they do would depend on everybody's rows.
    """
    place = place or Place()
    user, item = _ids(user, place.user, place), _ids(item, place.item, place)
    columns = {"user": user, "item": item}
    names = {"user": place.user, "item": place.item, "count": place.count}
    if count is not None:
        columns["count"] = _integers(count, place.count, place)
    keep: pa.Array | None = None
    for key, column in columns.items():
        if column.null_count:
            if not drop_null:
                row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
                raise place.error(
                    names[key], "is null; fill it in, or drop such rows with drop_null (--drop-null)", row
                )
            keep = _both(keep, column.is_valid())
    columns |= {value_name(number): pc.fill_null(column, MISSING) for number, column in enumerate(values)}
    long = _too_long(item, max_item_bytes)
    if long is not None:
        keep = _both(keep, pc.invert(long))
    if "count" in columns:
        count = columns["count"]
        least, most = (end.as_py() or 0 for end in pc.min_max(count).values())  # nulls are passed over
        if least < 0:
            negative = pc.index(pc.less(count, 0), True).as_py()
            raise place.error(place.count, "is negative; counts are whole numbers from 0", negative)
        if least == 0:
            keep = _both(keep, pc.greater(count, 0))
        if most > MOST_COUNT:
            columns["count"] = pc.min_element_wise(count, pa.scalar(MOST_COUNT), skip_nulls=False)
    batch = pa.RecordBatch.from_pydict(columns, metadata={CONTRIBUTIONS: b"1"})
    batch = batch if keep is None else batch.filter(keep)
    if "count" in columns and pc.all(pc.equal(batch.column("count"), 1)).as_py():
        batch = batch.drop_columns("count")  # one event per row: half the bytes to shuffle, and a faster sort
    return batch


def _ids(column: pa.Array, name: str, place: Place) -> pa.Array:
    """The column as string or int64, plain or dictionary-encoded."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    try:
        column.validate()
        if not _is_ascii(column):
            column.validate(full=True)  # text may be no UTF-8, and a damaged dictionary may be too short
    except pa.ArrowInvalid:
        raise place.error(name, "is damaged, or holds text that is no valid UTF-8") from None
    if isinstance(column, pa.DictionaryArray):
        if column.dictionary.null_count:
            return _ids(column.dictionary_decode(), name, place)
        values = _ids(column.dictionary, name, place)
        return pa.DictionaryArray.from_arrays(column.indices.cast(pa.int32()), values)
    kind = column.type
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_integer(kind):
        return _integers(column, name, place)
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise place.error(name, f"is of type {kind}; {IDS}")
    return column.cast(pa.string())


def _is_ascii(column: pa.Array) -> bool:
    """Whether these are strings, without nulls, that are sure to be sound: Arrow would look at each of them."""
    if not pa.types.is_string(column.type) or column.null_count or len(column) == 0:
        return False
    ends, text = string_buffers(column)
    first, last = int(ends[0]), int(ends[-1])
    if not 0 <= first <= last <= len(text) or not (ends[1:] >= ends[:-1]).all():
        return False
    return int(text[first:last].max(initial=0)) < 128


def _integers(column: pa.Array, name: str, place: Place) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_null(column.type):
        return column.cast(pa.int64())
    if not pa.types.is_integer(column.type):
        raise place.error(name, f"is of type {column.type}; it must hold integers")
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        raise place.error(name, "holds a number beyond 2**63 - 1") from None


def _too_long(item: pa.Array, limit: int) -> pa.Array | None:
    """Which rows have an item of more than `limit` bytes; None if no row has."""
    names = item.dictionary if isinstance(item, pa.DictionaryArray) else item
    if not pa.types.is_string(names.type):
        return None
    long = pc.greater(pc.binary_length(names), limit)
    if not pc.any(long).as_py():
        return None
    return pc.fill_null(long.take(item.indices) if isinstance(item, pa.DictionaryArray) else long, False)


def _both(keep: pa.Array | None, also: pa.Array) -> pa.Array:
    also = pc.fill_null(also, False)
    return also if keep is None else pc.and_(keep, also)
