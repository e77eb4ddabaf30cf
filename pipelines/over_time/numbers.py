"""The numbers of releases side by side: one table for each, with a line for each row and a column for each release."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headcount.mechanisms.calibration.differences import LAPLACE_DEVIATIONS, Numbers
from headcount.mechanisms.calibration.intervals import DEVIATIONS
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.over_time.kind import Side
from headcount.pipelines.sinks.meanings import has_intervals, is_metric, is_quantile, total_metrics

#: The shares of questions about people.
SHARES = ("share", "share_of_first", "share_of_before")
_CAP = "rows on one item"
_NOT_TESTED = "the noise of a quantile is in its rank, so that no test follows from its range"


@dataclasses.dataclass(frozen=True)
class Number:
    """A column of numbers, the columns beside it, and why it is not tested, if it is not."""

    name: str
    begin: str  # of the names of its ends
    ratio: bool = False
    untested: str = ""


@dataclasses.dataclass(frozen=True)
class Panel:
    """One number of all releases: `names` are the rows', and NaN stands for a row that a release does not show."""

    number: Number
    sides: Sequence[Side]
    names: Sequence[tuple[Any, ...]]
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    stddev: np.ndarray
    bound: np.ndarray  # on one user, where rows state one

    def shown(self, at: int) -> np.ndarray:
        """Which rows a release shows."""
        return ~np.isnan(self.value[at])

    def numbers(self, at: int, rows: np.ndarray) -> Numbers:
        """Some rows of a release, for a test."""
        value, low, high, stddev = (part[at][rows] for part in (self.value, self.low, self.high, self.stddev))
        assumed = has_intervals(self.sides[at].report["columns"], self.number.begin)
        return Numbers(value, low, high, np.nan_to_num(stddev), assumed, self._curved(at, value, low, high, stddev))

    def _curved(
        self, at: int, value: np.ndarray, low: np.ndarray, high: np.ndarray, stddev: np.ndarray
    ) -> np.ndarray | float:
        """See `Numbers`: by how much an interval is wider than its noise; where that is not stated, what it is at most."""
        if not self.number.ratio:
            return 0.0
        half = np.maximum((high - low) / 2, 1e-9)
        if self.number.name in SHARES:
            return (half / np.maximum(np.minimum(value, 1 - value), 1e-9)) ** 2
        deviations = DEVIATIONS if self.sides[at].is_normal else LAPLACE_DEVIATIONS
        return np.maximum(1 - (deviations * stddev / half) ** 2, 0.0)

    def unlike(self, before: int, after: int) -> str:
        """Why the number is of another thing in one of two releases, if it is."""
        a, b = (limits(self.sides[at], self.number) for at in (before, after))
        for what in a:
            if a[what] != b[what]:
                flag = ": make one with --like the other, or with its --max-per-item" if what == _CAP else ""
                return f"{what} of one user count: {_most(a[what])} before and {_most(b[what])} after{flag}"
        return ""


def numbers_of(sides: Sequence[Side], asked: Sequence[str] | None) -> list[Number]:
    """The numbers of these releases, or those that are asked for."""
    columns = [*sides[0].report["columns"]]
    keys = sides[0].identity
    metrics = [each for each in columns if each not in keys and is_metric(each, columns)]
    found = []
    for name in metrics:
        untested = _NOT_TESTED if is_quantile(name, columns) else ""
        found.append(Number(name, f"{name}_", name not in total_metrics(columns), untested))
    if not metrics:
        found = [Number(name, "") for name in ("count", "bounded_count") if name in columns and "low" in columns][:1]
        found += [Number(name, f"{name}_", True) for name in SHARES if f"{name}_low" in columns]
    known = [number.name for number in found]
    for name in asked or ():
        if name not in known:
            raise ParameterError(f"--metric must be one of {', '.join(known)}, got {name!r}", "metric")
    return [number for number in found if asked is None or number.name in asked]


def limits(side: Side, number: Number) -> Mapping[str, Any]:
    """What the number itself depends on: how much of one user it is of, where that is a part of what it means."""
    given = side.parameters
    if number.name.startswith("bounded_") and side.report["command"] != "total":  # whose rows state it
        # Items of a user name those of a histogram, and limit no count.
        own = () if side.report["command"] == "histogram" else ("max_items",)
        return {name.replace("_", " "): given.get(name) for name in ("bound", *own, "max_per_item")}
    of_events = number.name == "count" and given.get("of") == "events"
    if of_events or number.name == "events" or number.name.startswith("sum_"):
        return {_CAP: given.get("max_per_item")}
    return {}


def panel(sides: Sequence[Side], number: Number) -> Panel:
    """The table of one number; rows with the largest numbers first, as the last release that shows them has them."""
    columns = {"value": number.name, "low": f"{number.begin}low", "high": f"{number.begin}high"}
    columns |= {"stddev": f"{number.begin}noise_stddev", "bound": "bound"}
    found = [_rows(side, columns) for side in sides]
    largest: dict[tuple[Any, ...], float] = {}
    for rows in found:
        largest |= {name: row["value"] for name, row in rows.items()}
    names = [*largest]
    if sides[0].report.get("keys"):
        names.sort(key=lambda name: (-largest[name], [str(part) for part in name]))

    def table(part: str) -> np.ndarray:
        return np.array([[rows.get(name, {}).get(part, np.nan) for name in names] for rows in found], np.float64)

    return Panel(number, sides, names, *(table(part) for part in columns))


def _rows(side: Side, columns: Mapping[str, str]) -> dict[tuple[Any, ...], dict[str, float]]:
    """The numbers of each row by its name; a number that is not known makes the row one that is not shown."""
    table = side.rows
    if not table.num_rows:
        return {}
    names = zip(*(table.column(key).to_pylist() for key in side.identity), strict=True)
    parts = {part: _floats(table, column) for part, column in columns.items()}
    rows = (dict(zip(parts, each, strict=True)) for each in zip(*parts.values(), strict=True))
    return {name: row for name, row in zip(names, rows, strict=True) if not np.isnan(row["value"])}


def _floats(table: pa.Table, column: str) -> list[float]:
    if column not in table.column_names:
        return [np.nan] * table.num_rows
    return [np.nan if each is None else float(each) for each in table.column(column).to_pylist()]


def _most(value: Any) -> str:
    return f"at most {value:,}" if isinstance(value, int) and value else "all" if value in (0, None) else str(value)
