"""What a page shows of the rows of a release: bars, cards, names or a table, by the columns that they have."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headcount.mechanisms.calibration.intervals import half_range
from headcount.mechanisms.columns.level_keys import LEVEL
from headcount.pipelines.pages import charts, people, series, texts
from headcount.pipelines.pages.axes import Axis
from headcount.pipelines.pages.charts import Bar
from headcount.pipelines.pages.parts import INTERVAL_LINE, NOISE_LINE, TOTAL_LINE, Branch, Part
from headcount.pipelines.pages.rows import Rows, noise_column, size_column
from headcount.pipelines.reports import tree_rows
from headcount.pipelines.reports.groups import MOST_ROWS, grouped, groups_of
from headcount.pipelines.reports.summary import counted, in_range, much_left_out, nothing
from headcount.pipelines.sinks.capped import called
from headcount.pipelines.sinks.meanings import has_intervals, is_metric, total_metrics

FIRST, SHOWN = 20, 50  # rows as bars: at once, and with those that are folded
FEW = 10  # the same for each of several metrics, at once
NAMED = 200  # names without numbers
NODES = 1000  # of a key in levels
GROUPS = 20  # of which the largest rows are shown
IN_ORDER = 62  # bars by day, hour and the like stand in the order of time, if there are no more
CLOSE = 0.1  # of a number: what a reader may take for exact
_GUIDES = [(1.0, "100 %"), (0.1, "10 %"), (0.01, "1 %")]
_WORDS = {"noise_stddev": "noise", "error": "error", "interval": "error"}
_RANGE, _INTERVAL = "range of the noise", "95 % interval"
_TYPICAL = {
    "noise_stddev": "its standard deviation",
    "error": "how far off it is on average",
    "interval": "about a quarter of the width of its interval",
}
_OPENS = "a node opens those below it; beside each is its 95 % interval"
_TIME = re.compile(r" by its (?:last day|minute|hour|day|week|month|year)\b")

Report = Mapping[str, Any]


def needed(report: Report) -> int:
    """How many of the largest rows a page shows at most."""
    if LEVEL in report["columns"]:
        return NODES
    if people.is_about(report):
        return people.MOST_ROWS
    if groups_of(report) is not None:
        return MOST_ROWS
    return max(SHOWN, IN_ORDER, NAMED) if report.get("keys") else SHOWN


def parts(report: Report, rows: Rows) -> list[Part]:
    """All that is shown of the rows, the most important first."""
    columns = [*report["columns"]]
    if report["rows"] == 0:
        return [Part("Nothing came out", [line.removeprefix("- ") for line in nothing(report)])]
    if people.is_about(report):
        return people.parts(report, rows.largest)
    if report.get("keys"):
        if LEVEL in columns:
            return _levels(report, rows)
        metrics = [name for name in columns if is_metric(name, columns)]
        drawn = series.parts(report, rows, metrics)
        if size_column(columns) is not None:
            found = _counted(report, rows)
            return [*(drawn or _groups(report, rows) or found[:1]), *found[1:]]
        if metrics:
            return drawn or [_metric(report, rows, name) for name in metrics]
        return [_named(report, rows) if {*columns} <= {"rank", *report["keys"]} else _listed(report, rows)]
    if "shape" in report["details"]:
        return _shape(report)
    for column, shown in _BY_COLUMN.items():
        if column in columns:
            return [shown(report, rows)]
    return [_one_row(report, rows) if report["rows"] == 1 else _listed(report, rows)]


def is_time(report: Report, key: str) -> bool:
    """Whether a column of the key is a day, an hour or the like."""
    return _TIME.search(report["columns"].get(key, "")) is not None


def _counted(report: Report, rows: Rows) -> list[Part]:
    """The largest counts, or probabilities, with their intervals; then how they and their noise go together."""
    columns, keys, number = [*report["columns"]], report["keys"], report["rows"]
    size, noise = size_column(columns), noise_column(columns)
    assert size is not None
    by_time = len(keys) == 1 and is_time(report, keys[0]) and number <= IN_ORDER
    shown = sorted(rows.largest, key=lambda row: str(row[keys[0]])) if by_time else rows.largest[:SHOWN]
    heads = [*keys, called(report, size).replace("_", " ")]
    if has_intervals(report["columns"]):
        heads.append(_INTERVAL)
        caption = f"The thin line on a bar {INTERVAL_LINE}"
    elif "low" in columns:
        heads.append(_RANGE)
        caption = f"The thin line on a bar {NOISE_LINE}"
    elif noise == "noise_stddev":
        heads.append("± noise")
        caption = f"The thin line on a bar {NOISE_LINE}"
    elif noise is not None:
        heads.append(_WORDS[noise])
        caption = "The thin line on a bar is the error to expect."
    else:
        caption = ""
    made = [_bar(row, keys, size, noise) for row in shown]
    first = len(made) if by_time else FIRST
    drawn = charts.bars(made, heads, shown=slice(0, first))
    rest = charts.bars(made, heads, shown=slice(first, None))
    folded = (f"The next {len(made) - first:,}", rest) if len(made) > first else None
    heading = f"All {texts.several(number, 'item')}" if number > 1 else "The one item"
    heading = f"The {len(shown):,} largest of {texts.several(number, 'item')}" if number > len(shown) else heading
    heading += ", in order of time" * by_time
    words = [*counted(report), *much_left_out(report)]
    first_part = Part(heading, words, drawn=drawn, folded=folded, caption=caption)
    return [first_part, *_noise(rows, size, "interval" if has_intervals(report["columns"]) else noise)]


def _groups(report: Report, rows: Rows) -> list[Part]:
    """The largest rows of each group, the group with the largest row first; none if rows are in no groups."""
    of = groups_of(report)
    if of is None:
        return []
    groups, keys = grouped(rows.largest, of), [key for key in report["keys"] if key not in of.per]
    heads = [
        *keys,
        called(report, of.size).replace("_", " "),
        _INTERVAL if has_intervals(report["columns"]) else _RANGE,
    ]
    line = INTERVAL_LINE if has_intervals(report["columns"]) else NOISE_LINE
    caption = f"The thin line on a bar {line} Each group has a scale of its own."
    made = [
        Part(
            ", ".join(f"{column} {texts.name(value)}" for column, value in zip(of.per, group.names, strict=True)),
            drawn=charts.bars([_bar(row, keys, of.size, None) for row in group.rows[:SHOWN]], heads),
        )
        for group in groups[:GROUPS]
    ]
    which = f": {GROUPS:,} of {texts.several(len(groups), 'group')}" if len(groups) > GROUPS else ""
    heading = f"The {of.top:,} largest of each {' and '.join(of.per)}{which}"
    return [Part(heading, [*counted(report), *much_left_out(report)], caption=caption), *made]


def _levels(report: Report, rows: Rows) -> list[Part]:
    """The nodes of a key in levels, of which each opens those below it."""
    columns, number, shown = [*report["columns"]], report["rows"], rows.largest
    which = f"the {len(shown):,} largest of {texts.several(number, 'node')}" if number > len(shown) else "all nodes"
    if size_column(columns) is None:
        metrics = [name for name in columns if is_metric(name, columns)]
        return [
            Part(
                f"{_heading(report, metric)}: {which}",
                [_OPENS],
                tree=_tree(report, shown, metric, f"{metric}_"),
            )
            for metric in metrics
        ]
    words = [*counted(report), *much_left_out(report), _OPENS]
    tree = _tree(report, shown, "count", "")
    return [Part(f"{which[:1].upper()}{which[1:]}", words, tree=tree), *_noise(rows, "count", "interval")]


def _tree(report: Report, rows: Sequence[Mapping[str, Any]], size: str, ends: str) -> list[Branch]:
    most = max(row[size] for row in rows)
    return [
        _branch(node, most, (size, f"{ends}low", f"{ends}high"), 0)
        for node in tree_rows.roots(rows, report["keys"], size)
    ]


def _branch(node: tree_rows.Node, most: float, columns: tuple[str, str, str], depth: int) -> Branch:
    value, low, high = (node.row[column] for column in columns)
    below = [_branch(each, most, columns, depth + 1) for each in node.children]
    shown, ends = in_range(value, low, high, texts.number), f"{texts.number(low)} to {texts.number(high)}"
    return Branch(texts.name(node.word), shown, ends, max(0.0, value) / max(most, 1e-9), below, depth == 0)


def _metric(report: Report, rows: Rows, metric: str) -> Part:
    """One metric of the items, the largest of them first, with its intervals; what is no total as points."""
    columns, keys, shown = [*report["columns"]], report["keys"], rows.largest[:SHOWN]
    made = [_bar(row, keys, metric, None, f"{metric}_") for row in shown]
    totals = total_metrics(columns)
    dots = metric not in totals or any(bar.low is not None and bar.low < 0 for bar in made)
    estimated = has_intervals(report["columns"], f"{metric}_")
    heads = [*keys, called(report, metric).replace("_", " "), "range" if estimated else _RANGE]
    drawn = charts.bars(made, heads, dots=dots, shown=slice(0, FEW))
    rest = charts.bars(made, heads, dots=dots, shown=slice(FEW, None))
    number = report["rows"]
    of = texts.several(number, "item") if number == len(shown) else f"{len(shown):,} of {number:,} items"
    order = f", by {totals[0].replace('_', ' ')}" if totals else ""
    where = "through a point" if dots else "on a bar"
    caption = f"The thin line {where} {TOTAL_LINE if estimated else NOISE_LINE}"
    return Part(
        f"{_heading(report, metric)}: {of}{order}",
        [
            *([report["columns"][metric]] if metric in report["columns"] else []),
            *much_left_out(report) * (metric in totals),
        ],
        drawn=drawn,
        folded=(f"The next {len(made) - FEW:,}", rest) if len(made) > FEW else None,
        caption=caption,
    )


def _heading(report: Report, metric: str) -> str:
    words = called(report, metric).replace("_", " ")
    return f"{words[:1].upper()}{words[1:]}"


def _bar(row: Mapping[str, Any], names: Sequence[str], size: str, noise: str | None, begin: str = "") -> Bar:
    """One row, with its range, whose columns may `begin` with the name of a metric, or with its noise or error around it."""
    shown = texts.percent if size == "probability" else texts.number
    named, value = tuple(texts.name(row[name]) for name in names), row[size]
    low, high = row.get(f"{begin}low"), row.get(f"{begin}high")
    if low is not None and high is not None:
        return Bar(named, in_range(value, low, high, shown), value, low, high, f"{shown(low)} to {shown(high)}")
    if noise is None:
        return Bar(named, shown(value), value)
    around = half_range(row[noise]) if noise == "noise_stddev" else row[noise]
    beside = f"± {shown(around)}" if noise == "noise_stddev" else shown(around)
    return Bar(named, shown(value), value, value - around, value + around, beside)


def _noise(rows: Rows, size: str, noise: str | None) -> list[Part]:
    """How far off the numbers of all items may be, as a cloud on logarithmic scales."""
    if not rows.is_whole:
        alone = "This page has the rows of report.json alone, since there are very many; all of them are in the files"
        return [Part("All other items", [alone])]
    known = rows.points[np.isfinite(rows.points).all(axis=1)]
    drawable = known[(known > 0).all(axis=1)]
    if noise is None or len(drawable) < 2:
        return []
    of, word = "probability" if size == "probability" else "count", _WORDS[noise]
    close, number = int((known[:, 1] <= CLOSE * known[:, 0]).sum()), len(known)
    words = [
        f"For {close:,} of {texts.several(number, 'item')} the typical {word} is at most 10 % of the {of}; "
        f"the larger a {of} is, the less its {word} matters"
    ]
    if len(drawable) < number:
        words.append(
            f"{number - len(drawable):,} of them have a {of} of 0 or below, which has no place in the picture."
        )
    (low, high), (least, most) = (map(texts.number, charts.ends(drawable[:, side])) for side in (0, 1))
    alt = f"Items by their {of}, from {low} to {high}, and by its typical {word}, from {least} to {most}."
    across, up = (Axis(name, log=True, percent=size == "probability") for name in (of, f"typical {word}"))
    caption = (
        f"Each point is an item; the typical {word} is {_TYPICAL[noise]}. Both scales are logarithmic: each step is ten times "
        f"the one before. Along a dashed line the {word} is that share of the {of}."
    )
    plural = "probabilities" if of == "probability" else "counts"
    return [
        Part(
            f"How far off the {plural} may be",
            words,
            drawn=charts.cloud(known, across, up, alt, _GUIDES),
            caption=caption,
        )
    ]


def _named(report: Report, rows: Rows) -> Part:
    """Names without numbers, in the order of the files, or by their rank."""
    number, shown = report["rows"], rows.largest[:NAMED]
    names = [
        (texts.number(row["rank"]) if "rank" in row else "", [texts.name(row[key]) for key in report["keys"]])
        for row in shown
    ]
    heading = f"{texts.several(number, 'item')}, by the number of their users" if "rank" in report["columns"] else ""
    if not heading:
        heading = texts.several(number, "item")
        heading += f"; these are the first {len(shown):,}" if number > len(shown) else ""
    return Part(heading, names=names)


def _ranges(report: Report, rows: Rows) -> Part:
    """How many users there are in each range of values."""
    named = ((f"{texts.number(row['low'])} to {texts.number(row['high'])}", row) for row in rows.largest)
    numbers = ({"range": range, **{name: row[name] for name in ("count", "noise_stddev")}} for range, row in named)
    made = [_bar(row, ["range"], "count", "noise_stddev") for row in numbers]
    caption = f"The thin line on a bar {NOISE_LINE}"
    return Part("Users by ranges of values", drawn=charts.bars(made, ["range", "users", "± noise"]), caption=caption)


def _quantiles(report: Report, rows: Rows) -> Part:
    """Values below which given shares of users are, as points with their intervals; as a table, if values are times."""
    shown = [row for row in rows.largest if row["value"] is not None]
    shares = [texts.percent(row["quantile"]) for row in shown]
    ends = [f"{texts.number(row['low'])} to {texts.number(row['high'])}" for row in shown]
    heads = ["users below", "value", _RANGE]
    if any(isinstance(row[name], str) for row in shown for name in ("value", "low", "high")):
        cells = zip(shares, (texts.number(row["value"]) for row in shown), ends, strict=True)
        return Part("Quantiles", heads=heads, rows=[[*row] for row in cells])
    made = [
        Bar((share,), _in_range(row, "value"), row["value"], row["low"], row["high"], end)
        for row, share, end in zip(shown, shares, ends, strict=True)
    ]
    caption = (
        "Each point is the value below which that share of users is; the line through it is the range of the noise."
    )
    return Part("Quantiles", drawn=charts.bars(made, heads, dots=True), caption=caption)


def _totals(report: Report, rows: Rows) -> Part:
    """How many there are in all, one card each."""
    cards = [
        (
            f"{row['of']}, at most {texts.number(row['bound'])} of each user" if row["of"] == "events" else row["of"],
            _in_range(row, "bounded_count"),
            f"{_RANGE}: {texts.number(row['low'])} to {texts.number(row['high'])}",
        )
        for row in rows.largest
    ]
    return Part("In all", cards=cards)


def _in_range(row: Mapping[str, Any], column: str) -> str:
    """The number of a row, by its range."""
    return in_range(row[column], row["low"], row["high"], texts.number)


def _properties(report: Report, rows: Rows) -> Part:
    return Part("All items together", cards=[_property(row) for row in rows.largest])


def _property(row: Mapping[str, Any]) -> tuple[str, str, str]:
    what = f"{row['property']} among {texts.number(row['samples'])} samples" if "samples" in row else row["property"]
    return what, texts.number(row["value"]), f"± {texts.number(half_range(row['noise_stddev']))}"


def _distinct(report: Report, rows: Rows) -> Part:
    """One number with its interval, which may be open above."""
    (row,) = rows.largest
    low, high = texts.number(row["low"]), row["high"]
    more = f"at least {low} (95 %)" if high is None else f"{_RANGE}: {low} to {texts.number(high)}"
    return Part("All items together", cards=[("distinct items", texts.number(row["count"]), more)])


def _shape(report: Report) -> list[Part]:
    """What is known of all items together; then how many of them have which number of users."""
    details = report["details"]
    unit = "event" if details["parameters"].get("model") == "pan-private" else "user"
    made = [
        Bar(
            (_span(part["from"], part["to"], unit),),
            f"{part['items']:,}",
            part["items"],
            beside=texts.number(part["error"]),
        )
        for part in details["shape"]
    ]
    drawn = charts.bars(made, [f"{unit}s of an item", "items", "error in sum"], log=True)
    caption = (
        "The bars are logarithmic, so that many and few can be seen beside each other. The error is about how far the counts "
        "of these items are from the truth, added up."
    )
    counted = "events that were counted" if unit == "event" else "users' items that were counted"
    known = [(counted, texts.number(details["samples"]), "")] if "samples" in details else []
    return [
        Part("All items together", cards=[*known, *map(_property, details.get("properties", []))]),
        Part(f"How many items have how many {unit}s", drawn=drawn, caption=caption),
    ]


def _span(first: int, last: int, unit: str) -> str:
    return texts.several(first, unit) if first == last else f"{first:,} to {texts.several(last, unit)}"


def _one_row(report: Report, rows: Rows) -> Part:
    """Each number of the one row, and what it means."""
    (row,) = rows.largest
    meanings = report["columns"].items()
    return Part(
        "The result", cards=[(name.replace("_", " "), texts.number(row[name]), what) for name, what in meanings]
    )


def _listed(report: Report, rows: Rows) -> Part:
    """The first rows as they are."""
    columns, number, shown = [*report["columns"]], report["rows"], rows.largest[:SHOWN]
    heading = f"The first {len(shown):,} of {number:,} rows" if number > len(shown) else texts.several(number, "row")
    return Part(heading, heads=columns, rows=[[texts.number(row[name]) for name in columns] for row in shown])


# Rows without keys, by a column that only such rows have.
_BY_COLUMN: Mapping[str, Callable[[Report, Rows], Part]] = {
    "quantile": _quantiles,
    "of": _totals,
    "property": _properties,
    "max_items": _distinct,
    "count": _ranges,
}
