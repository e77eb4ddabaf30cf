"""Columns of numbers that rows carry, and the public ranges that these are cut to: whole numbers as soon as they are read."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.batches.decimals import decimal_floats
from headcount.mechanisms.batches.shards import MISSING
from headcount.mechanisms.checks import check_number
from headcount.mechanisms.errors import InputError, ParameterError

#: A value is a whole number of half ranges / 2**VALUE_BITS, counted from the middle of its range.
VALUE_BITS = 20

_LARGEST = 1e15  # ends of ranges: middles and squares of halves keep their digits
_AUTO, _SIGNED = "auto", "-auto:auto"
_DECIMAL = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


@dataclasses.dataclass(frozen=True)
class ValueRange:
    """A column of numbers, and the public range that its values are cut to."""

    column: str
    low: float
    high: float

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, check_number(name, getattr(self, name)))
        if not self.low < self.high or max(abs(self.low), abs(self.high)) > _LARGEST:
            raise ParameterError(
                f"the range of {self.column!r} must have a low end below its high end, both within {_LARGEST:g}, got "
                f"{self.low:g} to {self.high:g}"
            )

    @property
    def midpoint(self) -> float:
        """The middle of the range."""
        return (self.low + self.high) / 2

    @property
    def half(self) -> float:
        """Half the width of the range."""
        return (self.high - self.low) / 2

    @property
    def largest(self) -> float:
        """The largest size of a value."""
        return max(abs(self.low), abs(self.high))

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns that it is made of."""
        return (self.column,)

    @property
    def number_sources(self) -> tuple[str, ...]:
        """Those of them that hold numbers, where a file has no types."""
        return self.sources

    def of_columns(self, columns: Mapping[str, pa.Array], place: Place | None = None) -> pa.Array:
        """The values of rows, of their columns by name, as `fixed_point` makes them."""
        return self.fixed_point(columns[self.column], place)

    def check_types(self, types: Mapping[str, pa.DataType], where: str = "") -> None:
        """Refuses a column that cannot hold values; one without a type may."""
        if self.column in types and not is_number_type(types[self.column]):
            raise InputError(f"{where}column {self.column!r} is {types[self.column]}; values must be numbers")

    def fixed_point(self, column: pa.Array, place: Place | None = None) -> pa.Array:
        """Numbers, cut to the range, as int64 from -2**VALUE_BITS at its low end to 2**VALUE_BITS at its high one.

        What is no number (NaN) is null, as what is missing is.
        """
        numbers = real_numbers(column, self.column, place or Place())
        real = np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)
        missing = np.isnan(real)
        inside = np.clip(np.where(missing, self.midpoint, real), self.low, self.high)
        steps = np.rint((inside - self.midpoint) / self.half * 2**VALUE_BITS).astype(np.int64)
        # Rounding may lead out of the range, and then by one step at most.
        return pa.array(np.clip(steps, -(2**VALUE_BITS), 2**VALUE_BITS), mask=missing)

    def text(self) -> str:
        """The range in one form only, as a part of randomness."""
        return f"{self.column}:{self.low!r}:{self.high!r}"


@dataclasses.dataclass(frozen=True)
class AutoRange(ValueRange):
    """A column of numbers whose range is chosen privately: 0 to U, or -U to U where `low` is -1. Until then U counts as 1."""

    low: float = 0.0
    high: float = 1.0

    def fixed_point(self, column: pa.Array, place: Place | None = None) -> pa.Array:
        """Numbers as int64 in the order of the numbers: the bits of a float64, of which nothing is lost before the choice."""
        numbers = real_numbers(column, self.column, place or Place())
        real = np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64) + 0.0  # there is one 0
        return pa.array(_swapped(real.view(np.int64)), mask=np.isnan(real))

    def numbers(self, whole: np.ndarray) -> np.ndarray:
        """The numbers of which `fixed_point` made these; NaN for one that is missing."""
        return _swapped(whole).view(np.float64)

    def chosen(self, end: float) -> ChosenRange:
        """The range with this end."""
        return ChosenRange(self.column, self.low * end, end, self)

    def text(self) -> str:
        """The range in one form only, as a part of randomness."""
        return f"{self.column}:{_SIGNED if self.low < 0 else _AUTO}"


@dataclasses.dataclass(frozen=True)
class ChosenRange(ValueRange):
    """The range that was chosen. It is no other, also where one with the same ends was given."""

    of: AutoRange

    def from_auto(self, whole: np.ndarray) -> np.ndarray:
        """Fixed point for this range of what came in for the choice."""
        return np.asarray(pc.fill_null(self.fixed_point(pa.array(self.of.numbers(whole))), MISSING))


def _swapped(bits: np.ndarray) -> np.ndarray:
    """The bits of floats as integers of the same order, and back: those of negative ones are counted from the other end."""
    return np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)


def value_columns(
    ranges: Iterable[ValueRange], columns: Mapping[str, pa.Array], place: Place | None = None
) -> list[pa.Array]:
    """The values of a contribution batch, one for each of the ranges, of columns of numbers by their names."""
    return [of.of_columns(columns, place) for of in ranges]


def is_number_type(kind: pa.DataType) -> bool:
    """Whether a column of this type can hold values; text is looked at later."""
    if pa.types.is_dictionary(kind):
        return is_number_type(kind.value_type)
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return plain or is_text(kind) or pa.types.is_null(kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is one of texts."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def real_numbers(column: pa.Array, name: str, place: Place) -> pa.Array:
    """A column of numbers, or of texts of them, as float64."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if not is_number_type(column.type):
        raise place.error(name, f"is of type {column.type}; values must be numbers")
    if is_text(column.type):
        return text_numbers(column, name, place)
    return decimal_floats(column) if pa.types.is_decimal(column.type) else column.cast(pa.float64(), safe=False)


def text_numbers(column: pa.Array, name: str, place: Place) -> pa.Array:
    """Texts of decimal numbers as float64, correctly rounded."""
    column = valid_text(column, name, place)
    wrong = pc.index(pc.match_substring_regex(column, _DECIMAL), False).as_py()
    if wrong >= 0:
        raise place.error(name, "is not a decimal number", wrong)
    return column.cast(pa.float64())


def valid_text(column: pa.Array, name: str, place: Place) -> pa.Array:
    """A column of text as strings, if it is text at all."""
    try:
        column.validate(full=True)
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        raise place.error(name, "is damaged, or holds text that is no valid UTF-8") from None


def parse_range_or_auto(parameter: str, text: str) -> ValueRange:
    """The range of a text like `price:0:100`, or one to be chosen: `price:auto`, and `price:-auto:auto` with both signs."""
    for words, low in ((_SIGNED, -1.0), (_AUTO, 0.0)):
        column = text.removesuffix(f":{words}")
        if column and column != text:
            if ":" in column and re.match(_DECIMAL, column.rpartition(":")[2]):
                raise ParameterError(
                    f"{parameter} needs both ends of a range, or none of them, got {text!r}: auto alone, such as price:auto, "
                    "chooses a range from 0 on",
                    parameter,
                )
            return AutoRange(column, low)
    return parse_range(parameter, text, ", or let it be chosen privately with price:auto")


def parse_range(parameter: str, text: str, otherwise: str = "") -> ValueRange:
    """The range of a text like `price:0:100`. An error also says what else can be done."""
    column, *ends = text.rsplit(":", 2)
    try:
        low, high = map(float, ends)
    except ValueError:
        raise ParameterError(
            f"{parameter} needs a column and the range of its values, such as price:0:100, got {text!r}: values are cut to the "
            "range and noise is made for it, as one value could else be of any size; take it from what you know of the column, "
            f"and not from the data{otherwise}",
            parameter,
        ) from None
    if not column or not all(map(math.isfinite, (low, high))):
        raise ParameterError(f"{parameter} needs a column and two finite ends of its range, got {text!r}", parameter)
    return ValueRange(column, low, high)
