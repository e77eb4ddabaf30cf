"""Rows whose keys are partly public as series: one for each named key, over its one public column of times or whole numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headcount.pipelines.reports.groups import groups_of, summarized
from headcount.pipelines.reports.summary import (
    SIZES,
    aligned,
    cell,
    counted,
    has_ranges,
    missing,
    much_left_out,
    number_in,
    ranges_of,
    summarize,
    title,
)
from headcount.pipelines.sinks.capped import called
from headcount.pipelines.sinks.meanings import total_metrics

MOST_ROWS = 1_000_000  # that are read to tell of series
SHOWN = 10  # lines on the terminal


@dataclasses.dataclass(frozen=True)
class SeriesOf:
    """The columns of a key that was named, the column that its series goes over, and the number that keys are ranked by."""

    keys: tuple[str, ...]
    over: str
    size: str


@dataclasses.dataclass(frozen=True)
class Series:
    """One named key, and its rows in the order of the column that the series goes over."""

    names: tuple[Any, ...]
    rows: Sequence[Mapping[str, Any]]


def series_of(report: Mapping[str, Any]) -> SeriesOf | None:
    """What the series of a release are; None if it has none."""
    parameters = report.get("details", {}).get("parameters", {})
    public = [] if "top" in parameters else parameters.get("public_columns", [])
    keys, columns = report.get("keys", []), report["columns"]
    sizes = [name for name in (*SIZES, *total_metrics(columns)) if name in columns]
    if len(public) != 1 or not sizes or not 0 < report["rows"] <= MOST_ROWS:
        return None
    over, _, given = str(public[0]).partition("=")
    named = tuple(key for key in keys if key != over)
    return SeriesOf(named, over, sizes[0]) if ".." in given and over in keys and named else None


def largest_series(rows: pa.Table, of: SeriesOf, number: int) -> tuple[list[Series], int]:
    """The series with the largest numbers in all, and how many there are."""
    sums = rows.select([*of.keys, of.size]).group_by([*of.keys], use_threads=False).aggregate([(of.size, "sum")])
    ranked = sums.sort_by([(f"{of.size}_sum", "descending"), *((key, "ascending") for key in of.keys)])
    found = []
    for names in zip(*(ranked.column(key).slice(0, number).to_pylist() for key in of.keys), strict=True):
        own = rows
        for key, name in zip(of.keys, names, strict=True):
            own = own.filter(pc.equal(own.column(key), name))
        found.append(Series(names, own.sort_by(of.over).to_pylist()))
    return found, ranked.num_rows


def summary_of(report: Mapping[str, Any], rows: Callable[[], pa.Table], bars: bool = False) -> str:
    """All that is to be said of the rows on a terminal: a line for each of the largest series, where they are series, and
    whole groups, where the largest of each were kept."""
    of, of_groups = series_of(report), groups_of(report)
    if of_groups is not None:
        return summarized(report, of_groups, rows().to_pylist(), bars)
    return summarize(report, bars) if of is None else _summarized(report, of, rows())


def _summarized(report: Mapping[str, Any], of: SeriesOf, rows: pa.Table) -> str:
    found, number = largest_series(rows, of, SHOWN)
    asked, each = title(report), len(pc.unique(rows.column(of.over)))
    ranges = f", with {ranges_of(report)}" if has_ranges(report) else ""
    which = f"; the {SHOWN} largest" if number > len(found) else ""
    named = "1 key was" if number == 1 else f"{number:,} keys were"
    head = f"{asked[:1].lower()}{asked[1:]}: {named} named, with {each:,} rows each, one for each {of.over}{which}{ranges}:"
    begin = "" if of.size in SIZES else f"{of.size}_"
    ends = [f"{begin}{end}" for end in ("low", "high") if f"{begin}{end}" in report["columns"]]
    heads = [
        *of.keys,
        f"mean {called(report, of.size).replace('_', ' ')}",
        *(["low", "high"] if ends else []),
        "least",
        "on",
        "most",
        "on",
    ]
    lines = [_line(series, of, ends) for series in found]
    table = aligned([heads, *lines], [*(isinstance(name, str) for name in found[0].names), *[False] * 7][: len(heads)])
    told = (
        f"{heads[len(of.keys)]} is that of all {each:,} rows of a key, and its low to high that of theirs; least and most are "
        "single rows, whose own ranges are in the files"
    )
    return "\n".join([head, *much_left_out(report), "", *table, "", told, *counted(report), *missing(report)])


def _line(series: Series, of: SeriesOf, ends: Sequence[str]) -> list[str]:
    """A key, the mean of its rows, with the mean of their ends, and the least and the most of them.

    The error of a mean is never above the mean of the errors, however rows go together: so its ends are on the safe side.
    """
    ranked = sorted(series.rows, key=lambda row: row[of.size])
    mean, *around = (sum(row[name] for row in ranked) / len(ranked) for name in (of.size, *ends))
    words = [number_in(mean, *around), *(cell(end, False) for end in around)] if around else [cell(mean, False)]
    single = [text for row in (ranked[0], ranked[-1]) for text in (cell(row[of.size], False), cell(row[of.over], True))]
    return [*(cell(name, True) for name in series.names), *words, *single]
