"""What is done to rows before anything else: columns of a public table are put beside them, then some are left out.

Both look at one row at a time, so they cost no epsilon: a user's rows become other rows of that user alone. That needs a table
that is public: its rows would tell who is in the data if it was made of it. A join comes first, so that a condition may use the
columns of the table.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.batches.frames import frame_reader, is_frame, table_of
from headcount.mechanisms.batches.names import string_buffers
from headcount.mechanisms.columns.conditions import Condition, parse_condition
from headcount.mechanisms.columns.fields import as_int64, as_texts, is_string, is_uuid
from headcount.mechanisms.columns.public_files import TRAVELS_BYTES, Given, absolute, read_local, stamp, table_columns
from headcount.mechanisms.columns.times import UTC
from headcount.mechanisms.errors import InputError, ParameterError

MOST_KEYS = 10_000_000

_FEW_TEXTS = 1 << 16  # distinct ones of a column: then rows share them as codes
_PUBLIC = "the table must be public, and never made of the private data: its rows would tell who is in it"

_Columns = Mapping[str, pa.Array]
_loaded: dict[str, dict[str, pa.Array]] = {}
_loading = threading.Lock()


class PublicTable:
    """A public table with one row for each key, in its column `on`; `types` are those of its other columns.

    A small one travels with a job. A large one in a file stays there: a worker reads it once, and refuses it if it has changed.
    """

    def __init__(self, columns: _Columns, on: str, given: Given, load: Callable[[], _Columns] | None = None) -> None:
        """Refuses a table without a key in each row, or with one twice. `load` reads the columns again, elsewhere."""
        held = {name: _plain(column) for name, column in columns.items()}
        if on not in held:
            raise given.error(f"has no column {on!r}, which on names; it has {', '.join(map(repr, held)) or 'none'}")
        key = held[on]
        if not (is_string(key.type) or pa.types.is_integer(key.type)):
            raise given.error(f"has the key {on!r} of type {key.type}; keys are texts or whole numbers")
        if len(key) > MOST_KEYS:
            raise given.error(f"has {len(key):,} rows; a table of more than {MOST_KEYS:,} cannot be joined")
        if key.null_count:
            raise given.error(f"has no key {on!r}", pc.index(key.is_null(), True).as_py())
        if pc.count_distinct(key).as_py() < len(key):
            places = pc.index_in(key, value_set=key)  # of the first of each
            again = np.flatnonzero(np.asarray(places) != np.arange(len(key)))
            raise given.error(f"has a key {on!r} that an earlier row has; one row for each is needed", int(again[0]))
        kept = {name: column for name, column in held.items() if name == on or _is_plain(column.type)}
        self.on, self.key_type = on, key.type
        self.types = {name: column.type for name, column in kept.items() if name != on}
        self.digest = _digest(kept, on)
        size = sum(column.nbytes for column in kept.values())
        self._load = load if size > TRAVELS_BYTES else None
        self._held: dict[str, pa.Array] | None = _ready(kept, on)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicTable) and (self.on, self.digest) == (other.on, other.digest)

    def __hash__(self) -> int:
        return hash((self.on, self.digest))

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | ({} if self._load is None else {"_held": None})

    @property
    def _columns(self) -> dict[str, pa.Array]:
        """All columns, loaded if this process has not done so."""
        if self._held is None:
            assert self._load is not None
            with _loading:
                if self.digest not in _loaded:
                    _loaded[self.digest] = _ready(self._load(), self.on)
            self._held = _loaded[self.digest]
        return self._held

    def beside(self, key: pa.Array, names: Iterable[str]) -> dict[str, pa.Array]:
        """The columns of these names for rows with these keys, null where the table has no such key, or the row none."""
        held = self._columns
        keys = held[self.on]
        if isinstance(key, pa.DictionaryArray):
            rows = pc.index_in(_alike(key.dictionary, keys.type), value_set=_alike(keys, key.dictionary.type))
            rows = rows.take(key.indices)
        else:
            rows = pc.index_in(_alike(key, keys.type), value_set=_alike(keys, key.type))
        return {name: held[name].take(rows) for name in names}


@dataclasses.dataclass(frozen=True)
class Preparation:
    """The table that is joined to rows, and the condition by which rows are kept; either may be None.

    `texts` are the columns of rows whose type nothing tells: integers, true and false in them are taken as texts.
    """

    join: PublicTable | None = None
    where: Condition | None = None
    texts: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return self.join is not None or self.where is not None

    @property
    def said(self) -> dict[str, str | None]:
        """What it does, for the key of a release of such rows."""
        return {
            "where": None if self.where is None else self.where.text,
            "join": None if self.join is None else self.join.digest,
            "on": None if self.join is None else self.join.on,
        }

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at, by itself."""
        on = () if self.join is None else (self.join.on,)
        return tuple(dict.fromkeys((*on, *(() if self.where is None else self.where.columns))))

    def read(self, names: Iterable[str]) -> tuple[str, ...]:
        """The columns that rows must have for these: those that the table does not have, and what is looked at."""
        return tuple(name for name in dict.fromkeys((*names, *self.columns)) if name not in self.tabled)

    @property
    def tabled(self) -> Mapping[str, pa.DataType]:
        """The columns that come from the table, and their types."""
        return {} if self.join is None else self.join.types

    def check_user(self, user: str | None) -> None:
        """Refuses users from a table: who is protected is told by the rows."""
        if user in self.tabled:
            raise ParameterError(
                f"the column {user!r} of the users is in the table of join: users are told by rows", "join"
            )

    def of_types(self, found: Mapping[str, pa.DataType], where: str = "") -> tuple[Preparation, dict[str, pa.DataType]]:
        """The same for rows of these types, some of which may be missing, and the types of the columns there will be."""
        types = {name: type_ for name, type_ in found.items() if not pa.types.is_null(type_)}
        made = dataclasses.replace(self, texts=frozenset(self.read(())) - types.keys())
        if self.join is not None:
            _check_keys(self.join, types.get(self.join.on), where)
            types |= self.join.types
        if self.where is not None:
            self.where.check({name: types.get(name, pa.string()) for name in self.where.columns})
        return made, types

    def refuse_twice(self, names: Iterable[str], wanted: Iterable[str], where: str = "") -> None:
        """Refuses a column that is wanted and that both rows, whose columns these are, and the table have."""
        both = self.tabled.keys() & set(names) & {*wanted, *self.columns}
        if both:
            raise InputError(f"{where}column {min(both)!r} is in the rows and in the table of join: rename one of them")

    def prepared(self, columns: _Columns, names: Iterable[str], place: Place) -> tuple[_Columns, Place]:
        """The columns of these names, of those of rows and of the table, without the rows that are left out.

        What is left out is not looked at again: a user may be null there, and a value anything.
        """
        if not self:
            return columns, place
        made = {name: _texts(each, name, place) if name in self.texts else each for name, each in columns.items()}
        wanted = tuple(names)
        if self.join is not None:
            made |= self.join.beside(made[self.join.on], self.tabled.keys() & {*wanted, *self.columns})
        if self.where is None:
            return {name: made[name] for name in wanted}, place
        keep = self.where.mask(made, place)
        made = {name: made[name] for name in wanted}
        if keep.true_count == len(keep):
            return made, place
        # Rows have other numbers now.
        return {name: filtered(each, keep) for name, each in made.items()}, dataclasses.replace(place, first_row=None)


def preparation(
    where: str | Condition | None = None,
    join: Any = None,
    on: str | None = None,
    *,
    time_zone: str = UTC,
    read: Callable[[str], bytes] = read_local,
) -> Preparation:
    """What these words ask for. `join` is a path, which `read` reads, a frame, columns by their names, or a PublicTable."""
    condition = parse_condition(where, zone=time_zone) if isinstance(where, str) else where
    if (join is None) != (on is None) and not isinstance(join, PublicTable):
        raise ParameterError(
            "join needs a column by which rows find theirs in the table: give on (--on)"
            if on is None
            else f"on {on!r} needs a table that has this column, too: give join (--join)",
            "join" if on is None else "on",
        )
    return Preparation(public_table(join, str(on), read) if join is not None else None, condition)


def public_table(join: Any, on: str, read: Callable[[str], bytes] = read_local) -> PublicTable:
    """The table of a file of Parquet or CSV, of a frame, or of columns by their names."""
    if isinstance(join, PublicTable):
        return join
    if isinstance(join, str | os.PathLike):
        path = os.fspath(join)
        content = _content(path, read)
        return PublicTable(_file_columns(path, content), on, _given(path), _Load(absolute(path), stamp(content), read))
    if is_frame(join):
        table = frame_reader(join).read_all()
    elif isinstance(join, Mapping):
        table = table_of(join)
    else:
        raise ParameterError(
            f"join must be the path of a .csv or .parquet file, or a frame, got a {type(join).__name__}", "join"
        )
    return PublicTable({name: table.column(name) for name in table.schema.names}, on, Given("join", "row", "join"))


@dataclasses.dataclass(frozen=True)
class _Load:
    """What reads a table again, elsewhere: a file with other bytes is refused."""

    path: str
    stamp: str
    read: Callable[[str], bytes]

    def __call__(self) -> _Columns:
        try:
            content = self.read(self.path)
        except (OSError, ValueError):
            raise InputError(
                f"join {self.path!r} cannot be read by a worker: a large table must lie where all workers can read it"
            ) from None
        if stamp(content) != self.stamp:
            raise InputError(f"join {self.path!r} has changed since the job began: run the job again")
        return _file_columns(self.path, content)


def _content(path: str, read: Callable[[str], bytes]) -> bytes:
    try:
        return read(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no such file, or not readable"
        raise ParameterError(f"join {path!r} cannot be read: {reason}", "join") from error


def _file_columns(path: str, content: bytes) -> _Columns:
    columns = table_columns(path, content, None, _given(path))
    if columns is None:
        raise ParameterError(f"join must be a .csv or .parquet file, got {path!r}; {_PUBLIC}", "join")
    return columns


def _given(path: str) -> Given:
    return Given(f"join {path!r}", "row", "join")


def _plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array, without codes."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    whole = whole.dictionary_decode() if isinstance(whole, pa.DictionaryArray) else whole
    return whole.cast(pa.string()) if is_string(whole.type) else whole


def _is_plain(found: pa.DataType) -> bool:
    """Whether a column of this type has one value in a row."""
    plain = is_string(found) or is_uuid(found) or pa.types.is_boolean(found) or pa.types.is_temporal(found)
    number = pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_decimal(found)
    return (plain or number) and not pa.types.is_interval(found)


def _ready(columns: _Columns, on: str) -> dict[str, pa.Array]:
    """The columns of a table as rows take them: texts as codes, where there are few of them."""
    made = {name: _plain(column) for name, column in columns.items()}
    for name, column in made.items():
        if name != on and pa.types.is_string(column.type):
            coded = column.dictionary_encode()
            made[name] = coded if len(coded.dictionary) <= _FEW_TEXTS else column
    return made


def _check_keys(table: PublicTable, found: pa.DataType | None, where: str) -> None:
    """Refuses rows whose keys are of another kind than those of the table."""
    plain = found.value_type if found is not None and pa.types.is_dictionary(found) else found
    if plain is None or any(kind(plain) and kind(table.key_type) for kind in (is_string, pa.types.is_integer)):
        return
    raise InputError(
        f"{where}column {table.on!r} is {plain}, and {table.key_type} in the table of join: give a table whose keys have that "
        "type (all columns of a .csv file are texts)"
    )


def _alike(keys: pa.Array, other: pa.DataType) -> pa.Array:
    """Keys of rows, or of a table, in the one type that both are compared by."""
    if pa.types.is_integer(keys.type) and pa.types.is_integer(other):
        unsigned = pa.types.is_uint64(keys.type) or pa.types.is_uint64(other)
        return keys.cast(pa.string() if unsigned else pa.int64())
    return keys.cast(pa.string())


def _texts(column: pa.Array, name: str, place: Place) -> pa.Array:
    """A column whose type nothing tells as texts."""
    found = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if is_string(found):
        return column
    if not (pa.types.is_null(found) or pa.types.is_integer(found) or pa.types.is_boolean(found)):
        raise place.error(
            name, f"is {found}, and nothing told its type where the job was put together: give schema=pa.schema([...])"
        )
    return _plain(column).cast(pa.string())


def filtered(column: pa.Array, keep: pa.Array) -> pa.Array:
    """The rows of a column that are kept, of any type: Arrow itself filters no views."""
    return (column.cast(pa.string()) if pa.types.is_string_view(column.type) else column).filter(keep)


def _digest(columns: _Columns, on: str) -> str:
    """A digest of what a table holds, whatever file or frame it is in, and in whatever order its rows and columns are."""
    order = pc.sort_indices(columns[on])
    digest = hashlib.blake2b(len(order).to_bytes(8, "little"), digest_size=32, person=b"headcount.join")
    for name in sorted(columns):
        column = columns[name].take(order)
        for part in (name.encode(), str(column.type).encode(), *_parts(column)):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _parts(column: pa.Array) -> list[bytes]:
    """The bytes of a column, in one form: which values are there, and what they are."""
    there = np.packbits(np.asarray(column.is_valid())).tobytes()
    found = column.type
    if pa.types.is_floating(found):
        real = np.asarray(column.cast(pa.float64()).fill_null(0.0)) + 0.0
        return [there, np.where(np.isnan(real), np.nan, real).astype("<f8").tobytes()]
    if is_string(found) or pa.types.is_decimal(found) or is_uuid(found):
        ends, text = string_buffers(as_texts(column).fill_null(""))
        return [there, np.diff(ends).astype("<i8").tobytes(), text[ends[0] : ends[-1]].tobytes()]
    return [there, np.asarray(as_int64(column).fill_null(0)).astype("<i8").tobytes()]
