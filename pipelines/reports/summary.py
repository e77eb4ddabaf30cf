"""What the terminal says of the rows of a job, from its finished report: how many, the largest of them, what is missing.

A report holds nothing exact of the input, and so neither do these words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headcount.mechanisms.calibration.intervals import half_range
from headcount.mechanisms.columns.level_keys import LEVEL
from headcount.mechanisms.partitions.select import in_items
from headcount.pipelines.reports import tree_rows
from headcount.pipelines.sinks.capped import called, cap_of, capped
from headcount.pipelines.sinks.meanings import has_intervals, is_metric, total_metrics
from headcount.pipelines.terminal import name, one_line

# What rows without a key are, by a column that only such rows have; others are told by the decision of their job alone.
_ROWS = {"condition": "step", "least": "bin", "age": "cell", "window": "number"}
_ROWS |= {"quantile": "quantile", "of": "total", "low": "range"}
SIZES = ("count", "bounded_count", "probability")
_BESIDE = {"noise_stddev": "+-", "error": "error"}
_NAME = 40  # letters of an item in a table
_CONDITION = 120  # letters of a condition in a title
_WIDE = 120  # letters of a line of a table; what is wider goes into another one below
_MUCH = 0.2  # of the events: what is left out beyond it is told before the numbers
_LISTED = 4  # metrics that a title names
BAR = 24  # letters of the longest bar
_NOISE = "the range of the noise"

# What a command answers, where its name does not say it.
_TITLES = {
    "actives": "How many users are active{by}",
    "activity": "How many users have how many events{by}",
    "funnel": "How many users came to each step{by}",
    "retention": "How many users of each cohort came back{by}",
    "choose-bound": "How much one user may count",
    "count-release": "The largest counts of {of} by {keys}",
    "distribution": "How likely each {keys} is",
    "heavy-hitters": "Each {keys} that many users have",
    "partitions": "Each {keys} that enough users have",
    "plume": "Counts of users by {keys}",
    "quantiles": "The values of {value} over all users",
    "sampled": "Counts of users by {keys}",
    "shape": "What all items have in common, without naming any",
    "top": "Each {keys} with the most users, in order",
}


def title(report: Mapping[str, Any]) -> str:
    """What a release answers, in a few words, and of which rows."""
    return ", ".join(filter(None, (_answered(report), capped(report), rows_counted(report))))


def rows_counted(report: Mapping[str, Any]) -> str:
    """Which rows a release is of; nothing, where it is of all."""
    where = report.get("details", {}).get("parameters", {}).get("where")
    return "" if where is None else f"of rows where {name(where, _CONDITION)}"


def _answered(report: Mapping[str, Any]) -> str:
    command, parameters = report["command"], report.get("details", {}).get("parameters", {})
    keys = _and([*map(name, report.get("keys", []))]) or "item"
    if command == "histogram":
        return f"Counts of {name(parameters.get('of', 'events'))} by {keys}"
    if command == "aggregate":
        metrics = [column for column in report["columns"] if is_metric(column, report["columns"])]
        listed = _and(metrics) if len(metrics) <= _LISTED else f"{len(metrics)} numbers"
        return f"{listed[:1].upper()}{listed[1:]} by {keys}"
    if command == "total":
        of = _and([name(row["of"]) for row in report["shown"] if "of" in row])
        return f"Totals by {keys}" if report.get("keys") else f"How many {of} there are"
    known = _TITLES.get(command, "A private release by headcount {command}")
    by = f", by {keys}" if report.get("keys") else ""
    of = "events" if cap_of(report) > 1 else "users"
    return known.format(keys=keys, by=by, value=name(parameters.get("value", "")), command=name(command), of=of)


def is_list(report: Mapping[str, Any]) -> bool:
    """Whether the rows are a list that a reader looks through, and no single answer."""
    return _unit(report) is not None


def summarize(report: Mapping[str, Any], bars: bool = False) -> str:
    """All that is to be said of the rows, with bars if asked for; nothing, if they are no list that a reader looks through."""
    keys, unit = report.get("keys", []), _unit(report)
    if unit is None:
        return ""
    lines = [heading(report)] if report["rows"] else nothing(report, unit)
    if report["rows"]:
        lines += [*much_left_out(report), "", *table(report, report["shown"], keys, bars), "", *counted(report)]
    lines += missing(report)
    return "\n".join(lines).rstrip("\n")


def heading(report: Mapping[str, Any]) -> str:
    """The line above the rows that a report shows: what they are, how many came out, and which of them follow."""
    columns, number, shown = report["columns"], report["rows"], len(report["shown"])
    asked = title(report) if "command" in report else ""
    came = f"{_some(number, _unit(report) or 'row')} came out"
    which = ""
    if number > shown:
        largest = any(size in columns for size in SIZES) or total_metrics(columns)
        which = f"; the {shown} largest" if largest else f"; the first {shown}"
    ranges = f", with {ranges_of(report)}" if has_ranges(report) else ""
    return f"{asked[:1].lower()}{asked[1:]}{': ' if asked else ''}{came}{which}{ranges}:"


def has_ranges(report: Mapping[str, Any]) -> bool:
    """Whether every number of the rows has a range; rows that are ranges themselves have none."""
    columns = [*report["columns"]]
    return columns[:1] != ["low"] and ("low" in columns or any(is_metric(column, columns) for column in columns))


def ranges_of(report: Mapping[str, Any]) -> str:
    """What the ranges of the rows are: those of estimates have more than the noise."""
    columns = report["columns"]
    if has_intervals(columns):
        return "95 % intervals"
    return "ranges" if any(has_intervals(columns, f"{each}_") for each in columns) else _NOISE


def much_left_out(report: Mapping[str, Any]) -> list[str]:
    """What must be known before any number is read, where more than a fifth of what is counted is an estimate."""
    if report.get("share_left_out", 0) <= _MUCH:
        return []
    noise = ranges_of(report) == _NOISE
    what = f"{_NOISE} does not hold it" if noise else "low to high is wider for it"
    return [f"{_left_out(report)}: that is estimated, and {what}"]


def counted(report: Mapping[str, Any]) -> list[str]:
    """What an estimate of the rows is of, and how much of one user it counts at most."""
    columns = report["columns"]
    if has_intervals(columns):
        word = "count" if called(report, "count") == "count" else "each number"
        return [f"{word} is {columns['count']}", *_beyond(report)]
    of_rows = [each for each in columns if each == "events" or each.startswith("sum_")]
    return [f"{each} is {columns[each]}" for each in of_rows if has_intervals(columns, f"{each}_")] + _beyond(report)


def _beyond(report: Mapping[str, Any]) -> list[str]:
    """That a limit leaves events out of all numbers, and which release it was taken from."""
    earlier, cap = report.get("details", {}).get("parameters", {}).get("like"), cap_of(report)
    words = capped(report)
    if not words:
        return []
    events = {"events", "bounded_events"} & report["columns"].keys() or report["command"] != "aggregate"
    taken = [] if earlier is None else [f"{cap:,} of a user is what release {name(earlier)} counts, too (--like)"]
    whole = "; headcount total counts it, too" if events else ""
    return [f"what is beyond {words.removeprefix('at most ')} is in none of these numbers{whole}", *taken]


def missing(report: Mapping[str, Any]) -> list[str]:
    """What the numbers of a report do not hold, and what they take for granted, a sentence each; but for `much_left_out`."""
    columns, shown = report["columns"], report["shown"]
    lines = [f"{_some(part['rows'], 'row')} left out because {part['because']}" for part in report.get("left_out", [])]
    if report["rows"] and report.get("share_left_out", 1) <= _MUCH:
        lines.append(_left_out(report))
    limited = [row for row in shown if row.get("of") != "users"]  # each of whom counts, once
    if "bounded_count" in columns and "count" not in columns and limited:
        lines.append("bounded_count is what was left after limiting each user: the true numbers may be far above it")
    if "assumption" in report and report["rows"]:
        lines.append(report["assumption"])
    if "correlated" in report and report["rows"]:
        lines.append(report["correlated"])
    if _only_above(report):
        lines += not_named(report, "no node was named")
    return lines


def _counted(report: Mapping[str, Any]) -> str:
    """What the share that was left out is of: events, or users where these alone are counted."""
    parameters = report.get("details", {}).get("parameters", {})
    if report.get("command") == "aggregate":
        return "events" if parameters.get("events") or parameters.get("sum") else "users"
    return str(parameters.get("of", "events"))


def nothing(report: Mapping[str, Any], unit: str = "item") -> list[str]:
    """What to do where nothing came out."""
    if any(part["rows"] for part in report.get("left_out", [])):
        return ["no row came out: all were left out"]
    if unit != "item":
        return [f"no {unit} came out: there are too few users for it at this epsilon and delta"]
    return not_named(report)


def not_named(report: Mapping[str, Any], what: str = "no item came out") -> list[str]:
    """What was tried where no name was found, and what would find some: of the promise, the flags and what was chosen alone."""
    details = report.get("details", {})
    parameters = details.get("parameters", {})
    chosen = details.get("chosen", parameters)
    most = _items_that_name(chosen.get("names", chosen))
    tried = f"names were looked for with {in_items(most)} of a user at most, and " if most else ""
    spent = ("epsilon" if "epsilon" in parameters else "rho", "delta")
    promise = " and ".join(f"{each} = {parameters[each]:g}" for each in spent if parameters.get(each))
    lines = [f"{what}: {tried}none has enough users{' at ' if promise else ''}{promise}"]
    if "users_needed" in report:
        lines[0] += f"; an item needs about {report['users_needed']:,} users here, if each counts once"
        lines[0] += ", and more of users who have many items" if most and most > 1 else ""
    user, item = (parameters.get(name) for name in ("user", "by" if "by" in parameters else "item"))
    columns = [item] if isinstance(item, str) else item or []
    levels, flag = parameters.get("levels"), "--by " if "by" in parameters else "--item "
    items = " ".join(f"{flag}{each}" for each in columns) if not levels else f"--levels {','.join(levels)}"
    ones = "the one" if len(columns) == 1 else "the ones"
    lines.append(f"- is --user {user} the column that tells users apart, and {items} {ones} to count?")
    if most and report.get("command") in ("histogram", "partitions"):
        given = "another --max-items" if parameters.get("max_items") else "--max-items, in place of a draw,"
        lines.append(f"- {given} may name more: 100 where users have dozens of items each, 1 where each has one")
    elif not most and isinstance(chosen.get("bound", chosen.get("max_items")), int):
        bound = chosen.get("bound", chosen.get("max_items"))
        if bound > 1:
            lines.append(f"- a user counts for up to {bound:,} here: a lower bound needs fewer users of an item")
    coarser = "or a coarser item" if len(columns) < 2 else "fewer columns, or coarser ones"
    lines.append(f"- a larger --epsilon or --delta needs fewer users too; so does a longer period, {coarser}")
    if report.get("command") in ("histogram", "aggregate") and not levels:
        lines.append("- where the items are public, a list of them needs no names: --domain FILE")
    whole = [each for each in columns if not re.search(r"(?<!\\):", each)]
    if whole:
        by_day = f"{'' if levels else flag}{whole[0]}:day"
        lines.append(f"- if {whole[0]} holds times, count them by the day (or hour, week, month, year): {by_day}")
    return lines


def _items_that_name(way: Mapping[str, Any]) -> int | None:
    """With how many items of a user names were looked for; None where nothing says so."""
    most = way.get("max_items") if "strategy" in way else None
    return most if isinstance(most, int) else None


def _only_above(report: Mapping[str, Any]) -> bool:
    """Whether rows in levels are those of all and of what is other alone: then no node was named."""
    if LEVEL not in report["columns"] or report["rows"] > len(report["shown"]):
        return False
    return all(row["other"] or all(row[key] is None for key in report["keys"]) for row in report["shown"])


def table(
    report: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    keys: Sequence[str] = (),
    bars: bool = False,
    only: Sequence[str] | None = None,
) -> list[str]:
    """Rows as aligned lines: the columns of the key, its number and its range, or what there is in place of these, or `only`
    some columns; behind them a bar for the number, if asked for: then each metric has a table of its own, with its range."""
    columns = [*report["columns"]] if only is None else only
    if LEVEL in columns and keys:
        rows = tree_rows.in_order(rows, keys)
    metrics = [column for column in columns if keys and is_metric(column, columns)]
    if bars and metrics:
        return [line for metric in metrics for line in ("", *_one_metric(report, metric, rows, keys))][1:]
    if metrics:
        return _metrics(report, metrics, rows, keys)
    if keys:
        names = [each for each in ("rank", *keys, *SIZES) if each in columns]
        names = [each for each in names if each != "bounded_count" or "count" not in columns]
        names += [each for each in ("low", "high") if each in columns] or [each for each in _BESIDE if each in columns]
    else:
        names = list(columns)
    ranged = has_ranges({"columns": columns})
    cells = [
        [_BESIDE.get(each, called(report, each)) if keys else each for each in names],
        *([_cell_of(row, each, each in keys, bool(keys), ranged) for each in names] for row in rows),
    ]
    lines = aligned(cells, [isinstance(rows[0][each], str) for each in names])
    size = next((each for each in names if each in SIZES), None) if bars and keys else None
    if size is None:
        return lines
    return _with_bars(lines, [row[size] for row in rows])


def _cell_of(row: Mapping[str, Any], column: str, is_key: bool, keyed: bool, ranged: bool) -> str:
    """One cell of a row: a number that has a range is worded by it, and the noise of one that has none is its half."""
    if ranged and column in (*SIZES, "value"):
        return number_in(row[column], row["low"], row["high"])
    if keyed and column == "noise_stddev":
        return cell(half_range(row[column]), False)
    return cell(row[column], is_key)


def in_range(value: Any, low: Any, high: Any, shown: Callable[[Any], str]) -> str:
    """A number as `shown`, but as about its first digit where its range is wider than the number itself."""
    if not all(isinstance(each, int | float) for each in (value, low, high)) or high - low <= abs(value):
        return shown(value)
    first = type(value)(float(f"{value:.1g}"))
    return f"about {shown(first if low <= first <= high else value)}"


def _metrics(
    report: Mapping[str, Any], metrics: Sequence[str], rows: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> list[str]:
    """The keys with all metrics, each with its range, in as many tables below each other as the width of a line needs."""
    tables: list[tuple[list[str], list[str]]] = []
    for metric in metrics:
        beside = [*tables[-1][0], metric] if tables else [metric]
        lines = _beside(report, beside, rows, keys)
        if tables and max(map(len, lines)) <= _WIDE:
            tables[-1] = beside, lines
        else:
            tables.append(([metric], _beside(report, [metric], rows, keys)))
    return [line for _, lines in tables for line in ("", *lines)][1:]


def _beside(
    report: Mapping[str, Any], metrics: Sequence[str], rows: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> list[str]:
    """The keys with these metrics and their ranges, beside each other."""
    head = [*keys, *(part for metric in metrics for part in (called(report, metric), "low to high"))]
    cells = [[*(cell(row[key], True) for key in keys), *_ranged(row, metrics)] for row in rows]
    texts = [isinstance(rows[0][key], str) for key in keys]
    return aligned([head, *cells], [*texts, *[False] * (len(head) - len(keys))])


def _ranged(row: Mapping[str, Any], metrics: Sequence[str]) -> list[str]:
    """The metrics of a row, each with its range."""
    found = []
    for metric in metrics:
        low, high = (row[f"{metric}_{end}"] for end in ("low", "high"))
        found += [number_in(row[metric], low, high), f"{cell(low, False)} to {cell(high, False)}"]
    return found


def _one_metric(
    report: Mapping[str, Any], metric: str, rows: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> list[str]:
    """The keys with one metric, its range and a bar."""
    cells = []
    for row in rows:
        low, high = (row[f"{metric}_{end}"] for end in ("low", "high"))
        numbers = [number_in(row[metric], low, high), cell(low, False), cell(high, False)]
        cells.append([*(cell(row[key], True) for key in keys), *numbers])
    texts = [isinstance(rows[0][key], str) for key in keys] + 3 * [False]
    return _with_bars(
        aligned([[*keys, called(report, metric), "low", "high"], *cells], texts), [row[metric] for row in rows]
    )


def number_in(value: Any, low: Any, high: Any) -> str:
    """A number with a range, as a cell."""
    return in_range(value, low, high, lambda number: cell(number, False))


def _with_bars(lines: Sequence[str], values: Sequence[float]) -> list[str]:
    """A heading and lines, with bars for their numbers."""
    most = max(values)
    return [lines[0], *(f"{line}  {bar(value, most)}".rstrip() for line, value in zip(lines[1:], values, strict=True))]


def aligned(cells: Sequence[Sequence[str]], texts: Sequence[bool]) -> list[str]:
    """Lines of cells in columns: those of texts begin, and all others end, below each other."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for line in cells:
        padded = [
            cell.ljust(width) if text else cell.rjust(width)
            for cell, width, text in zip(line, widths, texts, strict=True)
        ]
        lines.append(f"  {'  '.join(padded)}".rstrip())
    return lines


def bar(value: float, most: float) -> str:
    """A bar for a number beside the largest one; none for what is not above 0."""
    return "#" * max(1, round(BAR * value / most)) if value > 0 else ""


def cell(value: Any, is_key: bool) -> str:
    """A name, or a number, as a cell."""
    if isinstance(value, str) or is_key:
        text = one_line(str(value))
        return text if len(text) <= _NAME else f"{text[: _NAME - 1]}…"
    if value is None:
        return "unknown"
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{round(value):,}"
    return f"{value:.4g}"


def _unit(report: Mapping[str, Any]) -> str | None:
    """What one row is, in a word; None if rows are no list."""
    if report.get("keys"):
        return "node" if LEVEL in report["columns"] else "item"
    return next((word for column, word in _ROWS.items() if column in report["columns"]), None)


def _left_out(report: Mapping[str, Any]) -> str:
    what = "what is counted" if cap_of(report) > 1 else f"the {_counted(report)}"
    return f"the bound left out about {100 * report['share_left_out']:.0f} % of {what} of the items shown"


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def _some(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
