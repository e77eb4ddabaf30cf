"""Batches of contributions on their way to the shard of their user, and the shard that they become.

A contribution batch has the columns `user`, `item` (string or int64, plain or dictionary-encoded) and, unless every
count is one, `count` (int64, at least one); once bounded, its schema says by what. Rows are regrouped and equal (user, item)
pairs added up, and nothing is lost but what a user has beyond MOST_COUNT on one item; so a shard depends on the rows alone, not
on how they were batched. Rows may carry numbers in the columns `value0`, `value1` and so on (int64), with MISSING for one that
a row lacks. Then rows are equal only if these are, too; `gather` passes over them, and `value_rows` has them.

No count makes a job fail, since a failure would tell. A row counts MOST_COUNT times at most, and so does a user on one item.
Cutting commutes with adding up (of non-negative numbers, the cut sum of cut sums is the cut sum of all), so it matters neither
where rows meet first nor in which order. And 2**33 such counts add up to less than 2**63. So sums of the pairs of one shard,
which leave int64 with 64 GB of counts and no less, are made without a look at what they hold. And the sum of an item over all
shards, which leaves it with 2**33 users, more than there are people, stops at INT64_MAX (`run_sums.sum_by_code`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.distinct import distinct, sorting
from headcount.mechanisms.batches.domain import Held
from headcount.mechanisms.batches.names import Names, as_names, in_one_size
from headcount.mechanisms.batches.packing import pack, unpack
from headcount.mechanisms.batches.run_sums import begins_run, run_sums
from headcount.mechanisms.batches.threads import in_threads
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.errors import InputError

#: What a row counts at most, and what a user counts on one item: a public ceiling, at which numbers are cut in silence.
MOST_COUNT = 10**9
#: In place of a number that a row lacks: no range of values has it.
MISSING = -(2**63)

# Bytes of a name, on average, from which rows are not united with a copy for each of them.
_LONG = 64

# What the columns of numbers that rows carry are called, before their running number.
_VALUE = "value"

#: The columns of a chunk, and its metadata.
Columns: TypeAlias = tuple[Mapping[str, pa.Array], Mapping[bytes, bytes]]

# Marks in a batch's schema: that it is checked; what bounds it; and which part of the bounded collection it is.
CONTRIBUTIONS, BOUND, PART = b"headcount.contributions", b"headcount.bound", b"headcount.part"


@dataclasses.dataclass(frozen=True)
class Shard:
    """All rows of some users, each (user, item) pair once: user u has the rows offsets[u] .. offsets[u + 1] - 1.

    `items` are distinct and in canonical order, `item` indexes them, and each user's rows ascend in it. So a user's rows
    have one order, whatever order they came in. No count exceeds MOST_COUNT: what is made of a shard relies on it.
    """

    users: Names
    items: Names
    offsets: np.ndarray  # int64, one more than users
    item: np.ndarray  # int64, one per row
    count: np.ndarray  # int64, one per row
    bound: Bound = Bound()  # what earlier steps promise of every user's rows

    def totals(self) -> np.ndarray:
        """The number of events of each user."""
        return run_sums(self.count, self.offsets[:-1])

    def rows_per_user(self) -> np.ndarray:
        """The number of distinct items of each user."""
        return np.diff(self.offsets)

    def keep(self, rows: np.ndarray, count: np.ndarray) -> Shard:
        """The same users with only the given rows (ascending) and their new counts; a user may be left with none."""
        if len(rows) == len(self.item):
            return dataclasses.replace(self, count=count)
        before = np.zeros(len(self.item) + 1, dtype=np.int64)  # how many rows are kept before each
        before[1:][rows] = 1
        offsets = np.cumsum(before, out=before)[self.offsets]
        return dataclasses.replace(self, offsets=offsets, item=self.item[rows], count=count)

    def of_users(self, users: np.ndarray) -> Shard:
        """These users alone, in this order, with all of their rows."""
        rows = self.rows_per_user()[users]
        offsets = np.append(0, np.cumsum(rows))
        kept = np.arange(offsets[-1]) + np.repeat(self.offsets[users] - offsets[:-1], rows)
        return dataclasses.replace(
            self, users=self.users.take(users), offsets=offsets, item=self.item[kept], count=self.count[kept]
        )

    def with_items(self, names: Names) -> Shard:
        """The same users with their rows of these items only."""
        return self.placed(names)[0]

    def placed(self, names: Names) -> tuple[Shard, np.ndarray]:
        """The same, and the place of each of the shard's items among the names; any for those that have no rows any more."""
        place, known = Held(names.cast(self.items.type)).places(self.items)
        return self._rows_where(known), place

    def without_items(self, names: Names) -> Shard:
        """The same users without their rows of these items."""
        return self._rows_where(pc.invert(Held(names.cast(self.items.type)).holds(self.items)))

    def _rows_where(self, kept: pa.BooleanArray) -> Shard:
        if pc.all(kept, min_count=0).as_py():
            return self
        rows = np.flatnonzero(np.asarray(kept)[self.item])
        return self.keep(rows, self.count[rows])

    def compact(self) -> Shard:
        """The same rows, without users and items that have none."""
        rows = self.rows_per_user()
        used = np.zeros(len(self.items), dtype=bool)
        used[self.item] = True
        return dataclasses.replace(
            self,
            users=self.users.filter(pa.array(rows > 0)),
            items=self.items.filter(pa.array(used)),
            offsets=np.append(0, np.cumsum(rows[rows > 0])),
            item=(np.cumsum(used) - 1)[self.item],
        )

    def to_batch(self, part: int = 0) -> pa.RecordBatch:
        """The rows as a contribution batch that carries its bound, and its number among the parts of the collection."""
        user = np.repeat(np.arange(len(self.users), dtype=np.int32), self.rows_per_user())
        columns = {
            "user": coded(user, self.users),
            "item": coded(self.item.astype(np.int32), self.items),
            "count": pa.array(self.count),
        }
        marks = {CONTRIBUTIONS: b"1", BOUND: self.bound.to_json().encode(), PART: str(part).encode()}
        return pa.RecordBatch.from_pydict(columns, metadata=marks)


def bound_of(batch: pa.RecordBatch) -> Bound:
    """What the batch promises of every user's contribution: nothing, unless a bounding step made it."""
    return bound_in(batch.schema.metadata or {})


def bound_in(metadata: Mapping[bytes, bytes]) -> Bound:
    """The bound in a batch's or chunk's metadata."""
    return Bound.from_json(metadata[BOUND]) if BOUND in metadata else Bound()


def checked_counts(batch: pa.RecordBatch) -> np.ndarray | None:
    """The counts of a batch's rows; None if all are one."""
    counts = np.asarray(batch.column("count")) if "count" in batch.schema.names else None
    if counts is not None and len(counts) and int(counts.min()) < 1:
        raise InputError("a contribution batch holds a count below 1; make such batches with Contributions")
    return counts


def only_bound(batch: pa.RecordBatch) -> dict[bytes, bytes]:
    return {name: value for name, value in (batch.schema.metadata or {}).items() if name == BOUND}


def value_names(names: Iterable[str]) -> list[str]:
    """Those of a batch's or chunk's columns that are numbers which rows carry."""
    return [name for name in names if name.startswith(_VALUE)]


def value_name(number: int) -> str:
    """The column of the numbers of this place, from 0."""
    return f"{_VALUE}{number}"


def stands_out(part: int, whole: int, shards: int) -> bool:
    """Whether one shard has much more than its share of a whole: four times that, or half of what belongs elsewhere."""
    return part * shards > min(4 * whole, whole + (shards - 1) * whole / 2)


def gather(chunks: Iterable[bytes]) -> Shard:
    """Unites the chunks of one shard: one list of users, one of items in canonical order, each pair once."""
    return _gathered(united(map(unpack, chunks)))


def one_shard(batches: Iterable[pa.RecordBatch]) -> Shard | None:
    """All users of contribution batches as one shard; None without a row."""
    parts = columns_of(batches)
    return _gathered(united(parts)) if parts else None


def columns_of(batches: Iterable[pa.RecordBatch]) -> list[Columns]:
    """Of each batch that has rows what a chunk with all of them would hold."""
    return [_columns_of(batch) for batch in batches if batch.num_rows]


def _columns_of(batch: pa.RecordBatch) -> Columns:
    checked_counts(batch)
    columns = {name: batch.column(name) for name in batch.schema.names}
    for name in ("user", "item"):
        if isinstance(columns[name], pa.DictionaryArray):
            columns[name] = recoded(columns[name], np.asarray(columns[name].indices))
        elif columns[name].nbytes > _LONG * batch.num_rows:
            columns[name] = columns[name].dictionary_encode()  # so that each is held once
    return columns, only_bound(batch)


def _gathered(rows: Rows) -> Shard:
    user, item, count, _ = consolidate(rows.user, rows.item, rows.count)
    return Shard(
        users=rows.users,
        items=rows.items,
        offsets=np.searchsorted(user, np.arange(len(rows.users) + 1)).astype(np.int64),
        item=item,
        count=np.ones(len(user), dtype=np.int64) if count is None else count,
        bound=bound_in(rows.bound),
    )


def pack_shard(shard: Shard, beside: Mapping[str, pa.Array] | None = None) -> bytes:
    """The whole shard in few bytes, for a step that comes later, with columns `beside` that `unpack_shard` passes over."""
    columns = {"users": shard.users, "items": shard.items, "rows": pa.array(shard.rows_per_user())}
    columns |= {"item": pa.array(shard.item), "count": pa.array(shard.count)}
    return pack(columns | dict(beside or {}), {BOUND: shard.bound.to_json().encode()})


def unpack_shard(data: bytes) -> Shard:
    """Inverse of `pack_shard`."""
    return shard_of_columns(*unpack(data))


def shard_of_columns(columns: Mapping[str, pa.Array], metadata: Mapping[bytes, bytes]) -> Shard:
    """The shard whose columns these are, as `pack_shard` names them."""
    rows, item, count = (np.asarray(columns[name]) for name in ("rows", "item", "count"))
    return Shard(columns["users"], columns["items"], np.append(0, np.cumsum(rows)), item, count, bound_in(metadata))


def repack(chunks: Iterable[bytes]) -> bytes:
    """The chunks of one shard as one: each pair once, and names that repeat themselves as codes.

    It costs what `gather` costs, so it is for shards whose group would else be too large.
    """
    rows = united(map(unpack, chunks))
    user, item, count, values = consolidate(rows.user, rows.item, rows.count, rows.values)
    columns = {"user": coded(user, rows.users)}
    if 2 * len(rows.items) <= len(item):
        columns["item"] = coded(item, rows.items)
    else:
        columns["item"] = rows.items.take(pa.array(item))
    if count is not None:
        columns["count"] = pa.array(count)
    columns |= {value_name(number): pa.array(column) for number, column in enumerate(values)}
    return pack(columns, rows.bound)


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of several chunks: distinct names in canonical order, and the index (int32) of each row's name among them."""

    users: Names
    user: np.ndarray
    items: Names
    item: np.ndarray
    count: np.ndarray | None  # None: one each
    bound: Mapping[bytes, bytes]
    values: tuple[np.ndarray, ...] = ()  # the numbers that rows carry


def united(chunks: Iterable[Columns]) -> Rows:
    """The rows of unpacked chunks in their order, and the bound that they all carry, as metadata."""
    parts = list(chunks)
    if len({bound_in(metadata) for _, metadata in parts}) > 1:
        raise InputError(
            "contributions that were bounded by different steps were flattened into one collection; "
            "flatten first, then bound"
        )
    columns = [[held[name] for held, _ in parts] for name in ("user", "item")]
    few = sum(map(len, columns[0])) < 1 << 12  # rows, which are united before a thread takes them
    (users, user), (items, item) = map(_unite, columns) if few else in_threads(_unite, columns)
    count = None
    if any("count" in held for held, _ in parts):
        count = np.concatenate([_counts(held) for held, _ in parts])
    carried = {tuple(value_names(held)) for held, _ in parts}
    if len(carried) > 1:
        raise InputError("rows with other values were flattened into one collection; give all rows the same columns")
    values = tuple(np.concatenate([np.asarray(held[name]) for held, _ in parts]) for name in carried.pop())
    return Rows(users, user, items, item, count, parts[0][1], values)


def consolidate(
    user: np.ndarray, item: np.ndarray, count: np.ndarray | None, values: tuple[np.ndarray, ...] = ()
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, tuple[np.ndarray, ...]]:
    """Sorts rows by (user, item) and adds up the counts of equal pairs, at most MOST_COUNT; None stands for counts of one.
    Where rows carry values, these come next in the order, and equal rows have equal values."""
    packed = (user.astype(np.int64) << 32) | item  # codes are below 2**31
    if count is None and not values:
        packed.sort()
    else:
        order = _by_pair(user, item)
        if values:
            order = _by_value(order, packed, values)
        packed, values = packed[order], tuple(column[order] for column in values)
        if count is not None:
            count = count[order]
            np.minimum(count, MOST_COUNT, out=count)  # a batch may come from other hands than those of Contributions
    first = begins_run(packed, *values)
    if not first.all():
        starts = np.flatnonzero(first)
        cut = count is not None or len(packed) > MOST_COUNT  # rows of one each are no more than all rows
        count = np.diff(np.append(starts, len(packed))) if count is None else run_sums(count, starts)
        packed, count = packed[starts], np.minimum(count, MOST_COUNT, out=count) if cut else count
        values = tuple(column[starts] for column in values)
    return packed >> 32, packed & 0xFFFFFFFF, count, values


def _by_pair(user: np.ndarray, item: np.ndarray) -> np.ndarray:
    """Positions that sort rows by (user, item)."""
    users, items = (int(code.max(initial=0)) + 1 for code in (user, item))
    return sorting(user.astype(np.int64) * items + item, users * items)


def _by_value(order: np.ndarray, pairs: np.ndarray, values: tuple[np.ndarray, ...]) -> np.ndarray:
    """The same order of pairs, where rows of one pair ascend in their values. Most pairs have one row, which is where it is."""
    first = begins_run(pairs[order])
    among = np.flatnonzero(~(first & np.append(first[1:], True)))
    rows = order[among]
    order[among] = rows[np.lexsort((*(column[rows] for column in reversed(values)), pairs[rows]))]
    return order


def unite(columns: list[pa.Array]) -> tuple[Names, np.ndarray]:
    """The distinct names of several columns in canonical order, and the index of each row's name among them."""
    names, code = _unite(columns)
    return names, code.astype(np.int64)


def _unite(columns: list[pa.Array]) -> tuple[Names, np.ndarray]:
    """The same with indices of 32 bits, which must be widened before they are reckoned with."""
    values = [column.dictionary if isinstance(column, pa.DictionaryArray) else column for column in columns]
    if len({value.type for value in values}) > 1:
        raise InputError("users or items are strings in some rows and integers in others; give them one type")
    names, code = distinct(pa.concat_arrays(values))
    parts, start = [], 0
    for column, value in zip(columns, values, strict=True):
        known = code[start : start + len(value)]
        parts.append(known[np.asarray(column.indices)] if isinstance(column, pa.DictionaryArray) else known)
        start += len(value)
    return names, np.concatenate(parts)


def _counts(columns: Mapping[str, pa.Array]) -> np.ndarray:
    return np.asarray(columns["count"]) if "count" in columns else np.ones(len(columns["user"]), dtype=np.int64)


def recoded(column: pa.DictionaryArray, codes: np.ndarray) -> pa.DictionaryArray:
    """Some of the codes of a column, with no more names than they use."""
    used = np.zeros(len(column.dictionary), dtype=bool)
    used[codes] = True
    found = np.flatnonzero(used)
    place = np.empty(len(used), dtype=np.int32)
    place[found] = np.arange(len(found), dtype=np.int32)
    return coded(place[codes], as_names(in_one_size(column.dictionary).take(pa.array(found))))


def coded(codes: np.ndarray, names: Names) -> pa.DictionaryArray:
    """A column of codes that were made here, and so need not be checked."""
    return pa.DictionaryArray.from_arrays(pa.array(codes), names, safe=False)


def no_users(item_type: pa.DataType) -> Shard:
    """A shard without users."""
    nothing = np.zeros(0, dtype=np.int64)
    return Shard(pa.array([], pa.string()), pa.array([], item_type), np.zeros(1, dtype=np.int64), nothing, nothing)
