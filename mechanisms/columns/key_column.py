"""One key column as people ask for it: `COLUMN`, `COLUMN:day` and the like, or `COLUMN:0,18,30,65`.

The same text on the command line, in YAML and in Python.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Sequence

from headcount.mechanisms.errors import ParameterError

UNITS = ("hour", "day", "week", "month", "year")
INT = "int"  # texts of whole numbers, as text files hold them
WINDOWS = {"last7": 7, "last28": 28}  # days of a window that ends with each day
SYNTAX = (
    "COLUMN, COLUMN:hour (or day, week, month, year), COLUMN:last7 (or last28), COLUMN:int, or COLUMN:0,18,30,65 (bins)"
)

_EDGE = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_EDGES = re.compile(rf"{_EDGE}(?:,{_EDGE})*")
_COLON = re.compile(r"(?<!\\):")
_MOST_EDGES = 1000

Edge = int | float


@dataclasses.dataclass(frozen=True)
class KeyColumn:
    """A column of the input, given by its name or the path of a nested field, and what is made of its values.

    With a `unit` of UNITS, times are the hour, day, week, month or year that they lie in; with one of WINDOWS, they are the
    days with which the windows end that they lie in; with INT, texts are the whole numbers that they spell. With `edges`,
    numbers are the bin that they lie in: below the first, from one to below the next, or from the last on.
    """

    source: str
    unit: str | None = None
    edges: tuple[Edge, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.source, str) or not self.source:
            told = repr(self.source) if isinstance(self.source, str) else f"a {type(self.source).__name__}"
            raise ParameterError(f"the name of a column is a text that is not empty, got {told}")
        if any(low >= high for low, high in zip(self.edges, self.edges[1:], strict=False)):
            raise ParameterError(f"the bins of column {self.source!r} must begin at ascending numbers")
        if len(self.edges) > _MOST_EDGES:
            raise ParameterError(f"column {self.source!r} has {len(self.edges)} bins; give {_MOST_EDGES} edges at most")

    @property
    def name(self) -> str:
        """What the column is called in the output."""
        return f"{self.source}_{self.unit}" if self.unit in (*UNITS, *WINDOWS) else self.source

    @property
    def days(self) -> int:
        """How many windows a row is in, each of that many days: 0 where a row has one key."""
        return WINDOWS.get(self.unit or "", 0)

    @property
    def time_unit(self) -> str | None:
        """The unit of time of its values; None where they are no times by a unit."""
        return "day" if self.days else self.unit if self.unit in UNITS else None

    @property
    def spec(self) -> str:
        """The text that asks for it."""
        source = self.source.replace(":", "\\:")
        made = self.unit or ",".join(map(repr, self.edges))
        return f"{source}:{made}" if made else source

    @property
    def bins(self) -> list[str]:
        """The labels of the bins, in their order."""
        edges = list(map(repr, self.edges))
        between = [f"[{low}, {high})" for low, high in zip(edges, edges[1:], strict=False)]
        return [f"< {edges[0]}", *between, f">= {edges[-1]}"]


def parse_column(spec: str) -> KeyColumn:
    r"""The key column that a text asks for; `\:` is a colon of the name itself."""
    if not isinstance(spec, str):
        raise ParameterError(f"a key column is given as a text ({SYNTAX}), got a {type(spec).__name__}", "item")
    *source, made = _COLON.split(spec) if _COLON.search(spec) else [spec, ""]
    name = ":".join(source).replace("\\:", ":")
    if len(source) > 1 or (made and made not in (*UNITS, *WINDOWS, INT) and not _EDGES.fullmatch(made)):
        raise ParameterError(
            f"{spec!r} is no key column: give {SYNTAX}; a colon in the name of a column is written \\:", "item"
        )
    if not made:
        return KeyColumn(name)
    if made in (*UNITS, *WINDOWS, INT):
        return KeyColumn(name, made)
    if not all(math.isfinite(float(text)) for text in made.split(",")):
        raise ParameterError(f"the bins of column {name!r} must begin at numbers of 64 bits, got {made}", "item")
    return KeyColumn(name, edges=tuple(map(_edge, made.split(","))))


def split_columns(specs: str) -> list[str]:
    """The texts of several key columns with commas between them: a number behind a comma is an edge of the bins before it."""
    found: list[str] = []
    for part in specs.split(","):
        if found and re.fullmatch(_EDGE, part):
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


def parse_columns(specs: str | Iterable[str]) -> tuple[KeyColumn, ...]:
    """One or several key columns, none of which has the name of another in the output."""
    columns = tuple(map(parse_column, [specs] if isinstance(specs, str) else specs))
    if not columns:
        raise ParameterError("no key column was given: name at least one", "item")
    check_distinct(columns)
    rolling = [column.spec for column in columns if column.days]
    if len(rolling) > 1:
        raise ParameterError(
            f"{' and '.join(rolling)} are windows that overlap, and a key has one of these: count them one by one",
            "item",
        )
    return columns


def check_distinct(columns: Sequence[KeyColumn]) -> None:
    """Refuses two columns of one name."""
    names = [column.name for column in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ParameterError(
            f"{twice[0]!r} is given as a key column {names.count(twice[0])} times: give it once", "item"
        )


def _edge(text: str) -> Edge:
    value = float(text)
    return int(text) if re.fullmatch(r"[+-]?[0-9]+", text) else int(value) if value.is_integer() else value
