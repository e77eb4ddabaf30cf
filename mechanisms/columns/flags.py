"""Whether a row meets a condition, as a value that rows carry: 1 if it does, and 0 if not, or if the condition is null."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.columns.conditions import Condition, parse_condition
from headcount.mechanisms.columns.times import UTC
from headcount.mechanisms.columns.value_ranges import VALUE_BITS, AutoRange, ValueRange, parse_range_or_auto
from headcount.mechanisms.errors import InputError, ParameterError

_FLAG = "share:"
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Flag(ValueRange):
    """A condition by a name, which is `column`, as a value from 0 to 1."""

    condition: Condition

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns that it is made of."""
        return self.condition.columns

    @property
    def number_sources(self) -> tuple[str, ...]:
        """Those of them that are compared with numbers by their order."""
        return self.condition.numbers

    def of_columns(self, columns: Mapping[str, pa.Array], place: Place | None = None) -> pa.Array:
        """2**VALUE_BITS for rows that meet the condition, and its negative for others."""
        met = self.condition.mask(columns, place or Place())
        return pc.if_else(met, pa.scalar(2**VALUE_BITS), pa.scalar(-(2**VALUE_BITS)))

    def check_types(self, types: Mapping[str, pa.DataType], where: str = "") -> None:
        """Refuses columns that the condition cannot be about; of one without a type nothing is known."""
        try:
            self.condition.check({path: types.get(path, pa.null()) for path in self.sources})
        except ParameterError as error:
            raise InputError(f"{where}{error}") from None

    def text(self) -> str:
        """The condition in one form only, as a part of randomness."""
        return f"{self.column}={self.condition.text} in {self.condition.zone}"


def parse_carried(parameter: str, text: str, zone: str = UTC) -> ValueRange:
    """What rows carry, by a text: a range such as `price:0:100` or `price:auto`, or a flag such as `share:bought=event=buy`."""
    flag = text.removeprefix(_FLAG)
    return parse_flag(parameter, flag, zone) if flag != text and "=" in flag else parse_range_or_auto(parameter, text)


def carried_text(of: ValueRange) -> str:
    """A text that `parse_carried` makes this of."""
    if isinstance(of, Flag):
        return f"{_FLAG}{of.column}={of.condition.text}"
    return of.text() if isinstance(of, AutoRange) else f"{of.column}:{of.low:g}:{of.high:g}"


def parse_flag(parameter: str, text: str, zone: str = UTC) -> Flag:
    """The flag of a text like `bought=event=buy`; `zone` is that of dates and times in the condition."""
    name, condition = parse_named(parameter, text, "and a condition, such as bought=event=buy")
    return Flag(name, 0.0, 1.0, parse_condition(condition, zone=zone, parameter=parameter))


def parse_named(parameter: str, text: str, example: str) -> tuple[str, str]:
    """The name of a column, and what stands behind its `=`; an error says what else is needed, with an example."""
    name, equals, rest = text.partition("=")
    if not equals or not _NAME.fullmatch(name.strip()):
        raise ParameterError(
            f"{parameter} needs a name of letters, digits and underscores, {example}, got {text!r}", parameter
        )
    return name.strip(), rest
