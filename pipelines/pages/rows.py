"""The rows of an output as a page needs them: the largest of them whole, and of all of them the number and its noise."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headcount.mechanisms.calibration.intervals import DEVIATIONS
from headcount.pipelines.reports.outcome import Outcome
from headcount.pipelines.reports.series import MOST_ROWS, Series, largest_series, series_of
from headcount.pipelines.reports.summary import SIZES
from headcount.pipelines.sinks.finished import first_rows, largest
from headcount.pipelines.sinks.formats import decode, decode_parquet, times_as_text, typed
from headcount.pipelines.sinks.meanings import has_intervals
from headcount.pipelines.storage import stores

SERIES = 12  # that a page draws
_NOISES = ("noise_stddev", "error")


@dataclasses.dataclass(frozen=True)
class Rows:
    """The largest rows, or the first where there is nothing to rank them by, as a report shows them.

    `points` has (number, noise) of every row that has both, or for estimates (number, error), by the interval; `is_whole` says
    whether all rows were read.
    """

    largest: Sequence[Mapping[str, Any]]
    points: np.ndarray
    is_whole: bool
    series: Sequence[Series] = ()  # the largest, where keys are partly public
    named: int = 0  # how many of these there are


def size_column(columns: Iterable[str]) -> str | None:
    """The column with the number that rows are about, if they have one beside their keys."""
    return next((name for name in SIZES if name in columns), None)


def noise_column(columns: Iterable[str]) -> str | None:
    """The column with the standard deviation of that number, or its error."""
    return next((name for name in _NOISES if name in columns), None)


def read_rows(outcome: Outcome, number: int) -> Rows:
    """The largest rows of a complete output, and the points of all; of a very large one, what its report shows."""
    report = outcome.report or {}
    columns, keys = [*report["columns"]], report.get("keys", [])
    if report["rows"] > MOST_ROWS:
        return Rows(report["shown"], np.empty((0, 2)), False)
    size = size_column(columns)
    numbers_of = [size, "low", "high"] if has_intervals(report["columns"]) else [size, noise_column(columns)]
    top, points = [], [np.empty((0, 2))]
    for path in outcome.files:
        rows, numbers = _file(stores.read(path), outcome.format, report, number, numbers_of)
        top.append(rows)
        points.append(numbers)
    found = largest(itertools.chain(*top), columns, keys, number)
    of = series_of(report)
    series, named = ([], 0) if of is None else largest_series(outcome.table(), of, SERIES)
    return Rows(found, np.concatenate(points), True, series, named)


def rows_of(table: pa.Table, report: Mapping[str, Any], number: int) -> Rows:
    """The largest rows of a table in memory; without points."""
    shown, keys, of = times_as_text(table), report.get("keys", []), series_of(report)
    found = largest(first_rows(shown, keys, number).to_pylist(), [*report["columns"]], keys, number)
    series, named = ([], 0) if of is None or not report["rows"] else largest_series(shown, of, SERIES)
    return Rows(found, np.empty((0, 2)), True, series, named)


def _file(
    content: bytes, format: str, report: Mapping[str, Any], number: int, numbers_of: Sequence[str | None]
) -> tuple[list[dict[str, Any]], np.ndarray]:
    """The largest rows of one file, and the points of all."""
    keys = report.get("keys", [])
    if format == "parquet":
        table = decode_parquet(content)
        points = [np.asarray(table.column(name).cast("float64")) for name in numbers_of if name is not None]
        return first_rows(table, keys, number).to_pylist(), _points(points)
    rows = [*typed(decode(content, format), report["shown"])]
    values = [np.array([_real(row[name]) for row in rows], np.float64) for name in numbers_of if name is not None]
    return largest(rows, [*report["columns"]], keys, number), _points(values)


def _points(columns: Sequence[np.ndarray]) -> np.ndarray:
    if len(columns) == 3:
        number, low, high = columns
        columns = number, (high - low) / (2 * DEVIATIONS)
    return np.column_stack(columns) if len(columns) == 2 else np.empty((0, 2))


def _real(value: Any) -> float:
    return float("nan") if value is None else float(value)
