"""Small lines on a page: one for each of the largest keys that were named, over the public column of its series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from headcount.pipelines.pages import charts, texts
from headcount.pipelines.pages.charts import Spark
from headcount.pipelines.pages.parts import INTERVAL_LINE, NOISE_LINE, TOTAL_LINE, Part
from headcount.pipelines.pages.rows import Rows
from headcount.pipelines.reports.series import Series, SeriesOf, series_of
from headcount.pipelines.reports.summary import SIZES, counted, in_range, much_left_out
from headcount.pipelines.sinks.capped import called
from headcount.pipelines.sinks.meanings import has_intervals, total_metrics

Report = Mapping[str, Any]


def parts(report: Report, rows: Rows, metrics: Sequence[str]) -> list[Part]:
    """The largest series, once for each of the metrics, or for the one number that rows have; none if rows are no series."""
    of = series_of(report)
    if of is None or not rows.series:
        return []
    over = sorted({row[of.over] for series in rows.series for row in series.rows})
    return [_part(report, rows, of, size, over) for size in metrics or [of.size]]


def _part(report: Report, rows: Rows, of: SeriesOf, size: str, over: Sequence[Any]) -> Part:
    begin = "" if size in SIZES else f"{size}_"
    drawn = [
        _spark(series, of, size, begin, {value: place for place, value in enumerate(over)}) for series in rows.series
    ]
    what, columns = called(report, size).replace("_", " "), report["columns"]
    number = len(rows.series)
    of_all = texts.several(rows.named, "key")
    heading = (
        f"The {number:,} largest of {of_all}"
        if rows.named > number
        else "The one key"
        if number == 1
        else f"All {of_all}"
    )
    heading = f"{heading}, by {of.over}"
    if begin:
        heading = f"{what[:1].upper()}{what[1:]}: {heading[:1].lower()}{heading[1:]}"
    line = NOISE_LINE
    if has_intervals(columns, begin):
        line = TOTAL_LINE if begin else INTERVAL_LINE
    words = [*counted(report), *much_left_out(report)]
    if begin:
        words = [
            *([columns[size]] if size in columns else []),
            *much_left_out(report) * (size in total_metrics([*columns])),
        ]
    caption = (
        f"Each line goes from {texts.name(over[0])} to {texts.name(over[-1])}, on a scale of its own that begins at 0. The "
        f"band around it {line} All rows are in the files, zeros too."
    )
    return Part(heading, words, drawn=charts.sparks(drawn, [*of.keys, "least", "most"], len(over)), caption=caption)


def _spark(series: Series, of: SeriesOf, size: str, begin: str, places: Mapping[Any, int]) -> Spark:
    known = [row for row in series.rows if row[size] is not None and math.isfinite(row[size])]
    points = [
        (places[row[of.over]], float(row[size]), _end(row.get(f"{begin}low")), _end(row.get(f"{begin}high")))
        for row in known
    ]
    names = tuple(map(texts.name, series.names))
    if not known:
        return Spark(names, points, ("unknown", "unknown"), f"{size} is not known")
    ranked = sorted(known, key=lambda row: row[size])
    least, most = (_on(row, of, size, begin) for row in (ranked[0], ranked[-1]))
    return Spark(
        names, points, (least, most), f"{size.replace('_', ' ')} by {of.over}: the least is {least}, the most {most}"
    )


def _on(row: Mapping[str, Any], of: SeriesOf, size: str, begin: str) -> str:
    """A number, worded by its range, and where it stands."""
    number = in_range(row[size], row.get(f"{begin}low"), row.get(f"{begin}high"), texts.number)
    return f"{number} on {texts.name(row[of.over])}"


def _end(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
