"""What the terminal says of the rows of a job, from its finished report: how many, the largest of them, what is missing.

A report holds nothing exact of the input, and so neither do these words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from headcount.pipelines.sinks.meanings import is_metric, total_metrics
from headcount.pipelines.terminal import one_line

# What rows without a key are, by a column that only such rows have; others are told by the decision of their job alone.
_ROWS = {"quantile": "quantile", "of": "total", "low": "range"}
SIZES = ("count", "bounded_count", "probability")
_BESIDE = {"noise_stddev": "+-", "error": "+-"}
_NAME = 40  # letters of an item in a table
_WIDE = 120  # letters of a table with the intervals of all metrics, beyond which they are left out
BAR = 24  # letters of the longest bar


def told(report: Mapping[str, Any], bars: bool = False) -> str:
    """All that is to be said of the rows, with bars if asked for; nothing, if they are no list that a reader looks through."""
    columns = list(report["columns"])
    keys = report.get("keys", [])
    unit = "item" if keys else next((word for column, word in _ROWS.items() if column in columns), None)
    if unit is None:
        return ""
    number, shown = report["rows"], report["shown"]
    lines = []
    if number == 0:
        lines += nothing(report, unit)
    elif number > len(shown):
        largest = any(name in columns for name in SIZES) or total_metrics(columns)
        lines.append(
            f"{number:,} {unit}s came out; the {f'{len(shown)} largest' if largest else f'first {len(shown)}'}:"
        )
    else:
        lines.append(f"{_some(number, unit)} came out:")
    if number:
        lines += ["", *table(columns, shown, keys, bars), ""]
    lines += missing(report)
    return "\n".join(lines).rstrip("\n")


def missing(report: Mapping[str, Any]) -> list[str]:
    """What the numbers of a report do not hold, and what they take for granted, a sentence each."""
    columns, shown = report["columns"], report["shown"]
    lines = [f"{_some(part['rows'], 'row')} left out because {part['because']}" for part in report.get("left_out", [])]
    if "share_left_out" in report and report["rows"]:
        lines.append(
            f"the bound left out about {100 * report['share_left_out']:.0f} % of the {_counted(report)} of the items shown"
        )
    limited = [row for row in shown if row.get("of") != "users"]  # each of whom counts, once
    if "bounded_count" in columns and "count" not in columns and limited:
        lines.append("bounded_count is what was left after limiting each user: the true numbers may be far above it")
    if "assumption" in report and report["rows"]:
        lines.append(report["assumption"])
    if "correlated" in report and report["rows"]:
        lines.append(report["correlated"])
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
    details = report.get("details", {})
    parameters = details.get("parameters", {})
    lines = ["no item came out: none has enough users"]
    if "users_needed" in report:
        lines[0] += f"; an item needs about {report['users_needed']:,} users here, if each counts once"
    user, item = (parameters.get(name) for name in ("user", "item"))
    columns = [item] if isinstance(item, str) else item or []
    items, ones = " ".join(f"--item {each}" for each in columns), "the one" if len(columns) == 1 else "the ones"
    lines.append(f"- is --user {user} the column that tells users apart, and {items} {ones} to count?")
    bound = details.get("chosen", parameters).get("bound", parameters.get("max_items"))
    if isinstance(bound, int) and bound > 1:
        lines.append(f"- a user counts for up to {bound:,} here: a lower bound needs fewer users of an item")
    lines.append("- a larger --epsilon or --delta needs fewer users too; so does a longer period, or a coarser item")
    whole = [each for each in columns if not re.search(r"(?<!\\):", each)]
    if whole:
        lines.append(
            f"- if {whole[0]} holds times, count them by the day (or hour, week, month, year): --item {whole[0]}:day"
        )
    return lines


def table(
    columns: Sequence[str], rows: Sequence[Mapping[str, Any]], keys: Sequence[str] = (), bars: bool = False
) -> list[str]:
    """Rows as aligned lines: the columns of the key, its number and its interval, or what there is in place of these; behind
    them a bar for the number, if asked for: then each metric has a table of its own, with its interval."""
    metrics = [name for name in columns if keys and is_metric(name, columns)]
    if bars and metrics:
        return [line for name in metrics for line in ("", *_one_metric(name, rows, keys))][1:]
    if metrics:
        return _metrics(metrics, rows, keys)
    if keys:
        names = [name for name in ("rank", *keys, *SIZES) if name in columns]
        names = [name for name in names if name != "bounded_count" or "count" not in columns]
        names += [name for name in ("low", "high") if name in columns] or [name for name in _BESIDE if name in columns]
    else:
        names = list(columns)
    cells = [
        [_BESIDE.get(name, name) for name in names],
        *([_cell(row[name], name in keys) for name in names] for row in rows),
    ]
    lines = aligned(cells, [isinstance(rows[0][name], str) for name in names])
    size = next((name for name in names if name in SIZES), None) if bars and keys else None
    if size is None:
        return lines
    return _with_bars(lines, [row[size] for row in rows])


def _metrics(metrics: Sequence[str], rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[str]:
    """The keys with all metrics, each with its interval if there is room for all of them; else it says where these are."""

    def lines(*parts: str) -> list[str]:
        heading = [*keys, *(part or name for name in metrics for part in parts)]
        texts = [isinstance(rows[0][key], str) for key in keys]
        cells = [[_cell(row[key], True) for key in keys] + _numbers(row, metrics, len(parts) > 1) for row in rows]
        return aligned([heading, *cells], [*texts, *[False] * (len(heading) - len(keys))])

    whole = lines("", "low to high")
    if max(map(len, whole)) <= _WIDE:
        return whole
    return [*lines(""), "", "every number has an interval, low to high, in its row: headcount show prints them"]


def _numbers(row: Mapping[str, Any], metrics: Sequence[str], ends: bool) -> list[str]:
    """The metrics of a row, with their intervals if asked for."""
    found = []
    for name in metrics:
        found.append(_cell(row[name], False))
        if ends:
            found.append(" to ".join(_cell(row[f"{name}_{end}"], False) for end in ("low", "high")))
    return found


def _one_metric(name: str, rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[str]:
    """The keys with one metric, its interval and a bar."""
    numbers = [name, f"{name}_low", f"{name}_high"]
    cells = [[_cell(row[key], True) for key in keys] + [_cell(row[each], False) for each in numbers] for row in rows]
    texts = [isinstance(rows[0][key], str) for key in keys] + 3 * [False]
    return _with_bars(aligned([[*keys, name, "low", "high"], *cells], texts), [row[name] for row in rows])


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


def _cell(value: Any, is_key: bool) -> str:
    if isinstance(value, str) or is_key:
        text = one_line(str(value))
        return text if len(text) <= _NAME else f"{text[: _NAME - 1]}…"
    if value is None:
        return "unknown"
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{round(value):,}"
    return f"{value:.4g}"


def _some(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
