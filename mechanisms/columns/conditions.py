"""Conditions on one row, as people write them: `country = de and price > 5`. They say which rows are counted.

A condition compares columns with values: `=` (or `==`), `!=` (or `<>`), `<`, `<=`, `>`, `>=`, `in (a, b)`, `not in (a, b)`,
`is null` and `is not null`, joined by `and`, `or`, `not` and parentheses. A value is a number, a date or time, true, false, or
a text. A text needs quotes ('...' or "...", a quote inside twice) only where it holds a space, a comma, a parenthesis or a
quote, so `page=/cart` is one. A column whose name does is written in backticks.

Nulls are as in SQL: a comparison with one is neither true nor false, and only rows for which the condition is true are kept.
What is no number (NaN) counts as null, as in values. What a value means follows from the type of its column
(`condition_values`), and whether a row is kept depends on that row alone.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.columns.condition_values import (
    IS_NULL,
    NOT_NULL,
    ORDERS,
    Literal,
    check_values,
    compared,
    is_number,
    may_hold,
)
from headcount.mechanisms.columns.times import UTC, check_zone
from headcount.mechanisms.errors import ParameterError

_LONGEST, _DEEPEST = 10_000, 50  # characters, and parentheses inside one another
_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"""[^\s()=!<>,'"`]+""")
_WORD = re.compile(r"""[^\s(),'"`]+""")
_OPERATOR = re.compile(r"==|=|!=|<>|<=|>=|<|>")
_QUOTED = re.compile(r"""'((?:[^']|'')*)'|"((?:[^"]|"")*)\"""")
_BACKTICKED = re.compile(r"`((?:[^`]|``)+)`")
_KEYWORDS = ("and", "or", "not", "in", "is", "null")
_SPELLED = {"==": "=", "<>": "!="}
_OPPOSITE = {"=": "!=", "<": ">=", ">": "<=", "in": "not in", IS_NULL: NOT_NULL}
_OPPOSITE |= {there: here for here, there in _OPPOSITE.items()}


@dataclasses.dataclass(frozen=True)
class _Comparison:
    """A column, what it is compared by, and the values; none with `is null`."""

    column: str
    by: str
    values: tuple[Literal, ...] = ()

    def text(self) -> str:
        values = list(map(_value_text, self.values))
        told = f"({', '.join(values)})" if self.by in ("in", "not in") else "".join(values)
        return " ".join(filter(None, (_name_text(self.column), self.by, told)))


@dataclasses.dataclass(frozen=True)
class _Joined:
    """Parts of which all (`and`) or one (`or`) must hold."""

    by: str
    parts: tuple[_Part, ...]

    def text(self) -> str:
        return f" {self.by} ".join(
            f"({part.text()})" if isinstance(part, _Joined) else part.text() for part in self.parts
        )


@dataclasses.dataclass(frozen=True)
class _Not:
    """What must not hold; where it is null, so is this."""

    part: _Part

    def text(self) -> str:
        return f"not ({self.part.text()})"


_Part = _Comparison | _Joined | _Not


@dataclasses.dataclass(frozen=True)
class ColumnRange:
    """What is known of a column of some rows without reading them: no value lies outside of `low` to `high`, which are an array
    of these two and of the column's type; None where that is not known, or there is no value."""

    ends: pa.Array | None
    some_null: bool = True
    all_null: bool = False


@dataclasses.dataclass(frozen=True)
class Condition:
    """A condition on the columns of a row. `zone` is that of dates and times in it that tell none."""

    root: _Part
    zone: str = UTC
    parameter: str = "where"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at, each once, by their names or paths."""
        return tuple(dict.fromkeys(part.column for part in _comparisons(self.root)))

    @property
    def text(self) -> str:
        """The condition in one spelling."""
        return self.root.text()

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns that are compared with numbers by their order: where a file has no types, they hold numbers."""
        ordered = [part for part in _comparisons(self.root) if part.by in ORDERS]
        return tuple(dict.fromkeys(part.column for part in ordered if is_number(part.values[0])))

    def check(self, types: Mapping[str, pa.DataType]) -> None:
        """Refuses values that columns of these types cannot be compared with; a null type is one that is not known."""
        for part in _comparisons(self.root):
            try:
                check_values(types[part.column], part.by, part.values, self.zone)
            except ParameterError as error:
                raise ParameterError(
                    f"{self.parameter} {self.text!r}: {part.text()!r}, where column {part.column!r} is "
                    f"{types[part.column]}: {error}",
                    self.parameter,
                ) from None

    def mask(self, columns: Mapping[str, pa.Array], place: Place) -> pa.BooleanArray:
        """Which rows are kept: those for which the condition is true. Where it is null, as for a null that is compared, the row
        is not kept, as with SQL's WHERE."""
        self.check({path: columns[path].type for path in self.columns})
        return pc.fill_null(self._holds(self.root, columns, place), False)

    def possible(self, ranges: Mapping[str, ColumnRange]) -> bool:
        """Whether it may be true of some row of those that ranges tell of; without a range of a column, nothing is known."""
        return self._possible(self.root, ranges)

    def _holds(self, part: _Part, columns: Mapping[str, pa.Array], place: Place) -> pa.Array:
        if isinstance(part, _Comparison):
            return compared(columns[part.column], part.by, part.values, self.zone, part.column, place)
        if isinstance(part, _Not):
            return pc.invert(self._holds(part.part, columns, place))
        join: Callable[[pa.Array, pa.Array], pa.Array] = pc.and_kleene if part.by == "and" else pc.or_kleene
        first, *others = part.parts
        held = self._holds(first, columns, place)
        for other in others:
            held = join(held, self._holds(other, columns, place))
        return held

    def _possible(self, part: _Part, ranges: Mapping[str, ColumnRange]) -> bool:
        if isinstance(part, _Not):
            return self._possible(_opposite(part.part), ranges)
        if isinstance(part, _Joined):
            each = (self._possible(one, ranges) for one in part.parts)
            return all(each) if part.by == "and" else any(each)
        known = ranges.get(part.column)
        if known is None:
            return True
        if part.by == IS_NULL:
            return known.some_null
        if known.all_null:
            return False
        return part.by == NOT_NULL or known.ends is None or may_hold(known.ends, part.by, part.values, self.zone)


def parse_condition(text: str, *, zone: str = UTC, parameter: str = "where") -> Condition:
    """The condition that a text says, or a ParameterError that names the `parameter` and shows where the mistake is."""
    if not isinstance(text, str):
        raise ParameterError(f"{parameter} is a condition given as a text, got a {type(text).__name__}", parameter)
    if len(text) > _LONGEST:
        raise ParameterError(f"{parameter} has {len(text):,} characters; give at most {_LONGEST:,}", parameter)
    reader = _Reader(text, parameter)
    root = reader.joined("or", 0)
    reader.skip()
    if reader.at < len(text):
        closing = text[reader.at] == ")"
        raise reader.error(
            "no parenthesis is open here"
            if closing
            else "'and' or 'or' is needed before what follows; a text with spaces, commas or parentheses needs quotes"
        )
    return Condition(root, check_zone(zone), parameter)


class _Reader:
    """Reads a condition from its first character on."""

    def __init__(self, text: str, parameter: str) -> None:
        self.text, self.parameter, self.at = text, parameter, 0

    def joined(self, by: str, depth: int) -> _Part:
        """Parts joined by `or`, each of parts joined by `and`."""
        parts = [self._inner(by, depth)]
        while self._keyword(by):
            parts.append(self._inner(by, depth))
        return parts[0] if len(parts) == 1 else _Joined(by, tuple(parts))

    def skip(self) -> None:
        """Goes to what is no space."""
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def error(self, problem: str) -> ParameterError:
        """A refusal that shows where the mistake is."""
        rest = self.text[self.at : self.at + 20] + ("..." if len(self.text) > self.at + 20 else "")
        place = f"at character {self.at + 1}, {rest!r}" if rest else "at its end"
        return ParameterError(f"{self.parameter} {self.text!r}: {place}: {problem}", self.parameter)

    def _inner(self, by: str, depth: int) -> _Part:
        return self.joined("and", depth) if by == "or" else self._part(depth)

    def _part(self, depth: int) -> _Part:
        if depth > _DEEPEST:
            raise self.error(f"more than {_DEEPEST} parentheses inside one another")
        if self._keyword("not"):
            return _Not(self._part(depth + 1))
        if self._symbol("("):
            part = self.joined("or", depth + 1)
            if not self._symbol(")"):
                raise self.error("a parenthesis ')' is missing")
            return part
        return self._comparison()

    def _comparison(self) -> _Comparison:
        column = self._column()
        if self._keyword("is"):
            by = NOT_NULL if self._keyword("not") else IS_NULL
            if not self._keyword("null"):
                raise self.error("'null' is needed here, as in: country is null")
            return _Comparison(column, by)
        negated = self._keyword("not")
        if self._keyword("in"):
            return _Comparison(column, "not in" if negated else "in", self._list())
        found = None if negated else _OPERATOR.match(self.text, self.at)
        if found is None:
            raise self.error(
                f"after the column {column!r} a comparison is needed: =, !=, <, <=, >, >=, in (...), is null; a name with "
                "other signs is written in backticks"
            )
        self.at = found.end()
        by, value = _SPELLED.get(found[0], found[0]), self._value()
        return _Comparison(column, by, (value if by in ORDERS else Literal(value.text),))

    def _column(self) -> str:
        self.skip()
        found = _BACKTICKED.match(self.text, self.at)
        if found:
            self.at = found.end()
            self.skip()
            return found[1].replace("``", "`")
        found = _NAME.match(self.text, self.at)
        if found is None or found[0].lower() in _KEYWORDS:
            raise self.error("the name of a column is needed here, as in: country = de")
        self.at = found.end()
        self.skip()
        return found[0]

    def _list(self) -> tuple[Literal, ...]:
        if not self._symbol("("):
            raise self.error("a list in parentheses is needed here, as in: country in (de, fr)")
        values = [self._value()]
        while self._symbol(","):
            values.append(self._value())
        if not self._symbol(")"):
            raise self.error("',' or ')' is needed here; a text with spaces, commas or parentheses needs quotes")
        return tuple(dict.fromkeys(Literal(value.text) for value in values))

    def _value(self) -> Literal:
        self.skip()
        quoted = _QUOTED.match(self.text, self.at)
        if quoted:
            self.at = quoted.end()
            single = quoted[1] is not None
            return Literal(quoted[1].replace("''", "'") if single else quoted[2].replace('""', '"'), True)
        found = _WORD.match(self.text, self.at)
        if found is not None and found[0].lower() == "null":
            raise self.error("no value equals null: write 'is null' or 'is not null'")
        if found is None or found[0].lower() in _KEYWORDS or found[0][0] in "=<>!":
            open_quote = self.text[self.at : self.at + 1] in ("'", '"') and self.at < len(self.text)
            raise self.error(
                "this quote is never closed" if open_quote else "a value is needed here, as in: country = de"
            )
        self.at = found.end()
        return Literal(found[0])

    def _keyword(self, word: str) -> bool:
        """Whether this word comes next; then it is passed."""
        self.skip()
        found = _NAME.match(self.text, self.at)
        if found is None or found[0].lower() != word:
            return False
        self.at = found.end()
        return True

    def _symbol(self, sign: str) -> bool:
        self.skip()
        if not self.text.startswith(sign, self.at):
            return False
        self.at += 1
        return True


def _comparisons(part: _Part) -> list[_Comparison]:
    if isinstance(part, _Comparison):
        return [part]
    inner = (part.part,) if isinstance(part, _Not) else part.parts
    return [each for one in inner for each in _comparisons(one)]


def _opposite(part: _Part) -> _Part:
    """What is true just where a part is false, without `not` at its top."""
    if isinstance(part, _Not):
        return part.part
    if isinstance(part, _Comparison):
        return dataclasses.replace(part, by=_OPPOSITE[part.by])
    return _Joined("or" if part.by == "and" else "and", tuple(map(_opposite, part.parts)))


def _name_text(name: str) -> str:
    plain = _NAME.fullmatch(name) and name.lower() not in _KEYWORDS
    return name if plain else "`" + name.replace("`", "``") + "`"


def _value_text(value: Literal) -> str:
    """A value with quotes where it needs them, or where they say that it is a text."""
    plain = _WORD.fullmatch(value.text) and value.text.lower() not in _KEYWORDS and value.text[0] not in "=<>!"
    return value.text if plain and not value.quoted else "'" + value.text.replace("'", "''") + "'"
