"""The types that a key column may have, and its values as integers or texts that stand for them one to one.

Types come from schemas, never from rows. Integers, booleans, dates, times and bins are integers inside; strings, decimals and
UUIDs are texts.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.batches.decimals import decimal_bins, decimal_names
from headcount.mechanisms.columns import times
from headcount.mechanisms.columns.key_column import INT, KeyColumn
from headcount.mechanisms.errors import InputError

CONVERT = "convert it first, for instance to text"


@dataclasses.dataclass(frozen=True)
class Field:
    """A key column, the type that was found, and the time zone of its units of time."""

    column: KeyColumn
    found: pa.DataType
    zone: str = times.UTC

    @property
    def name(self) -> str:
        """What the column is called in the output."""
        return self.column.name

    @property
    def shown(self) -> pa.DataType:
        """The type of the column in the output: the one that was found, where a text is no better for all who read it."""
        if self.column.time_unit is not None:
            return times.shown_type(self.column.time_unit, self.zone)
        if self.column.unit == INT:
            return pa.int64()
        if self.column.edges or self._is_text:
            return pa.string()
        return self.found

    @property
    def kind(self) -> type:
        """Whether values are integers or texts inside: int or str."""
        return int if self.column.unit or self.column.edges or not self._is_text else str

    @property
    def _is_text(self) -> bool:
        return is_string(self.found) or pa.types.is_decimal(self.found) or is_uuid(self.found)

    def values(self, array: pa.Array, place: Place) -> pa.Array:
        """The values inside: int64 or string (also as a dictionary), null where the column is; of windows, the first one."""
        name = self.column.source
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if isinstance(array, pa.DictionaryArray):
            if array.dictionary.null_count == 0:
                made = self.values(array.dictionary, place)
                return (
                    pa.DictionaryArray.from_arrays(array.indices, made)
                    if self.kind is str
                    else made.take(array.indices)
                )
            array = array.dictionary_decode()
        if pa.types.is_null(array.type):
            return array.cast(pa.int64() if self.kind is int else pa.string())
        if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
            array = array.cast(pa.string())
        if self.column.time_unit is not None:
            return times.floored(array, self.column.time_unit, self.zone, name, place)
        if self.column.unit == INT:
            return _integers(array, name, place)
        if self.column.edges:
            return _bins(array, self.column.edges, name, place)
        return as_texts(array) if self.kind is str else as_int64(times.checked(array, name, place))

    def shown_values(self, values: pa.Array) -> pa.Array:
        """The column as it is shown, of its values inside."""
        if self.column.edges:
            return pa.array(self.column.bins, pa.string()).take(values)
        return values.cast(self.shown) if self.kind is str else _from_int64(values, self.shown)


def field_of(column: KeyColumn, found: pa.DataType, where: str, zone: str = times.UTC) -> Field:
    """The field of a column of this type, or an InputError that says what to do; `where` begins its message."""
    plain = found.value_type if pa.types.is_dictionary(found) else found
    if isinstance(plain, pa.BaseExtensionType) and not is_uuid(plain):
        plain = plain.storage_type
    problem = _problem(column, plain)
    if problem is not None:
        raise InputError(f"{where}column {column.source!r} is {_word(plain)}; {problem}")
    return Field(column, plain, zone)


def _problem(column: KeyColumn, found: pa.DataType) -> str | None:
    """What is wrong with a column of this type; None if nothing is."""
    name = column.source
    if pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found):
        return f"give --explode {name} (explode={name!r}), so that a row counts for each of the list"
    if pa.types.is_struct(found):
        first = found.field(0).name if found.num_fields else "FIELD"
        return f"it is an object: name one of its fields, for instance {name}.{first}"
    if pa.types.is_map(found) or pa.types.is_union(found) or pa.types.is_nested(found):
        return CONVERT
    if pa.types.is_null(found):
        return None
    text, number = is_string(found), pa.types.is_integer(found) or pa.types.is_floating(found)
    if column.time_unit is not None:
        if column.unit == "hour" and pa.types.is_date(found):
            return "dates have no hour; give day, week, month or year"
        return None if text or times.is_time(found) else f"{name}:{column.unit} is for dates and times"
    if column.unit == INT:
        return None if text or pa.types.is_integer(found) else f"{name}:{INT} is for whole numbers and texts of them"
    if column.edges:
        return None if text or number or pa.types.is_decimal(found) else "bins are for numbers"
    if pa.types.is_floating(found):
        return f"put it into bins, by their edges: {name}:0,18,30,65"
    numeric = pa.types.is_boolean(found) or pa.types.is_decimal(found)
    temporal = pa.types.is_temporal(found) and not pa.types.is_interval(found)
    return None if text or number or numeric or temporal or is_uuid(found) else CONVERT


def is_string(found: pa.DataType) -> bool:
    """Whether a column of this type holds texts."""
    return pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found)


def is_uuid(found: pa.DataType) -> bool:
    """Whether a column of this type holds UUIDs."""
    return isinstance(found, pa.UuidType)


def _word(found: pa.DataType) -> str:
    text = str(found)
    return text if len(text) <= 60 else text[:57] + "..."


def as_int64(array: pa.Array) -> pa.Array:
    """Integers, booleans, dates and times as int64, one to one; large unsigned ones as negative numbers."""
    found = array.type
    if pa.types.is_uint64(found):
        return array.view(pa.int64())
    if pa.types.is_date32(found) or pa.types.is_time32(found):
        array = array.view(pa.int32())
    elif pa.types.is_temporal(found):
        return array.view(pa.int64())
    return array.cast(pa.int64())


def _from_int64(values: pa.Array, shown: pa.DataType) -> pa.Array:
    if pa.types.is_date32(shown) or pa.types.is_time32(shown):
        return values.cast(pa.int32()).view(shown)
    if pa.types.is_uint64(shown) or pa.types.is_temporal(shown):
        return values.view(shown)
    return values.cast(shown)


def as_texts(array: pa.Array) -> pa.Array:
    """Strings, decimals and UUIDs as texts, one to one."""
    found = array.type
    if pa.types.is_decimal(found):
        return decimal_names(array)
    if is_uuid(found):
        return _uuids(array.storage)
    return array


def _uuids(array: pa.Array) -> pa.Array:
    """UUIDs as everybody writes them, in five groups of small letters."""
    raw = np.frombuffer(array.buffers()[1], np.uint8)[16 * array.offset : 16 * (array.offset + len(array))]
    digits = np.frombuffer(raw.tobytes().hex().encode(), np.uint8).reshape(-1, 32)
    written = np.full((len(array), 36), ord("-"), np.uint8)
    for start, stop, to in ((0, 8, 0), (8, 12, 9), (12, 16, 14), (16, 20, 19), (20, 32, 24)):
        written[:, to : to + stop - start] = digits[:, start:stop]
    ends = np.arange(len(array) + 1, dtype=np.int32) * 36
    texts = pa.StringArray.from_buffers(len(array), pa.py_buffer(ends.tobytes()), pa.py_buffer(written.tobytes()))
    return pc.if_else(array.is_valid(), texts, None) if array.null_count else texts


def _integers(array: pa.Array, name: str, place: Place) -> pa.Array:
    """Whole numbers, or texts of such, as int64."""
    if pa.types.is_string(array.type):
        # One spelling for each number, as leading zeros or a plus would make two names of one.
        wrong = pc.index(pc.match_substring_regex(array, r"^(0|-?[1-9][0-9]*)$"), False).as_py()
        if wrong >= 0:
            raise place.error(
                name, "holds a text that is no whole number; leave out :int to take texts as they are", wrong
            )
    try:
        return array.cast(pa.int64())
    except pa.ArrowInvalid:
        raise place.error(name, "holds a number beyond 64 bits; leave out :int to take texts as they are") from None


def _bins(array: pa.Array, edges: tuple[int | float, ...], name: str, place: Place) -> pa.Array:
    """The number of each value's bin, as int64; what is no number (NaN) is null.

    An edge is the number that is written: 0.1 is a tenth. Whole numbers and decimals reach it or do not, exactly. For floats,
    and texts of numbers, it is the float of their size that is next to it, so that a float of 0.1 lies in the bin from 0.1 on.
    """
    if pa.types.is_string(array.type):
        try:
            array = array.cast(pa.float64())
        except pa.ArrowInvalid:
            row = next(k for k in range(len(array)) if not _reads(array.slice(k, 1)))
            raise place.error(name, "holds a text that is no number", row) from None
    absent = np.asarray(array.is_null())
    if pa.types.is_decimal(array.type):
        bins = decimal_bins(array, edges)
    elif pa.types.is_integer(array.type):
        values = np.asarray(array.fill_null(0))
        # x >= edge if and only if x >= the next whole number: exact, also beyond what floats can tell apart.
        info = np.iinfo(values.dtype)
        whole = [max(math.ceil(edge), int(info.min)) for edge in edges]
        bins = np.searchsorted(np.array([e for e in whole if e <= info.max], values.dtype), values, side="right")
    else:
        values = array.to_numpy(zero_copy_only=False)
        absent = absent | np.isnan(values)
        bins = np.searchsorted(_nearest(edges, values.dtype), values, side="right")
    return pa.array(bins.astype(np.int64), mask=absent if absent.any() else None)


def _nearest(edges: tuple[int | float, ...], size: np.dtype) -> np.ndarray:
    """The floats of a size that are next to edges. What is below all of them but minus infinity is the least of them."""
    with np.errstate(over="ignore"):
        nearest = np.array(edges, np.float64).astype(size)
    return np.maximum(nearest, np.finfo(size).min)


def _reads(text: pa.Array) -> bool:
    try:
        text.cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True
