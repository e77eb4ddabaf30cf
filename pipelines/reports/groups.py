"""Rows of which the largest of each group were kept, as groups: on a terminal and on a page."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headcount.pipelines.reports.summary import (
    SIZES,
    counted,
    has_ranges,
    missing,
    much_left_out,
    ranges_of,
    table,
    title,
)
from headcount.pipelines.terminal import name

MOST_ROWS = 1000  # that are looked at
SHOWN = 20  # rows on the terminal, of whole groups


@dataclasses.dataclass(frozen=True)
class GroupsOf:
    """The key columns that rows are grouped by, and the number that they are ranked by in each group, of which `top` are."""

    per: tuple[str, ...]
    size: str
    top: int


@dataclasses.dataclass(frozen=True)
class Group:
    """The values of a group's columns, and its rows, the largest first."""

    names: tuple[Any, ...]
    rows: Sequence[Mapping[str, Any]]


def groups_of(report: Mapping[str, Any]) -> GroupsOf | None:
    """What the groups of a release are; None if it has none."""
    parameters, columns = report.get("details", {}).get("parameters", {}), report["columns"]
    size = next((each for each in SIZES if each in columns), None)
    per = parameters.get("per", [])
    if not per or size is None or not 0 < report["rows"] <= MOST_ROWS or any(each not in columns for each in per):
        return None
    return GroupsOf(tuple(per), size, parameters["top"])


def grouped(rows: Iterable[Mapping[str, Any]], of: GroupsOf) -> list[Group]:
    """The groups, the one with the largest row first."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[each] for each in of.per), []).append(row)
    made = [Group(names, sorted(held, key=lambda row: -row[of.size])) for names, held in found.items()]
    return sorted(made, key=lambda group: (-group.rows[0][of.size], tuple(map(str, group.names))))


def summarized(report: Mapping[str, Any], of: GroupsOf, rows: Iterable[Mapping[str, Any]], bars: bool) -> str:
    """All that is to be said of the rows on a terminal: the groups with the largest rows, each whole."""
    groups, asked = grouped(rows, of), title(report)
    shown, number = [*groups[0].rows], 1
    while number < len(groups) and len(shown) + len(groups[number].rows) <= SHOWN:
        shown += groups[number].rows
        number += 1
    which = f"; {number:,} of {len(groups):,} groups" if number < len(groups) else ""
    ranges = f", with {ranges_of(report)}" if has_ranges(report) else ""
    per = " and ".join(map(name, of.per))
    head = (
        f"{asked[:1].lower()}{asked[1:]}: {report['rows']:,} rows, the {of.top:,} largest of each {per}{which}{ranges}:"
    )
    keys = [*of.per, *(key for key in report["keys"] if key not in of.per)]
    lines = table(report, shown, keys, bars)
    return "\n".join([head, *much_left_out(report), "", *lines, "", *counted(report), *missing(report)])
