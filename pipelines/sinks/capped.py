"""What a number of events is called where people read it: by how many of a user count on one item.

All that shows rows asks here, and nothing else has words for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headcount.mechanisms.columns.level_keys import LEVEL
from headcount.pipelines.terminal import name

# Columns of events, by the command whose rows have them; an aggregate has sums besides.
_EVENTS = {
    "histogram": {"count": "events", "bounded_count": "bounded events"},
    "count-release": {"bounded_count": "bounded events"},
    "aggregate": {"events": "events", "bounded_events": "bounded events"},
}
_SUMS = ("sum_", "bounded_sum_")


def cap_of(report: Mapping[str, Any]) -> int:
    """How many events of a user count on one item, as was given or chosen; 0 if that is not limited, or users are counted."""
    details = report.get("details", {})
    given, chosen = details.get("parameters", {}), details.get("chosen", {})
    if report.get("command") not in _EVENTS or given.get("of") == "users":
        return 0
    return int(chosen.get("max_per_item") or given.get("max_per_item") or 0)


def at_most(cap: int, keys: Sequence[str], details: Mapping[str, Any]) -> str:
    """How many count, in words, for rows with these key columns: of a user, or of a user in one day if that is the unit."""
    words = [name(key) for key in keys] or ["item"]
    whose = " in one ".join(["a user", *_window(details)])
    return f"at most {cap:,} of {whose} on one {' and '.join(filter(None, (', '.join(words[:-1]), words[-1])))}"


def capped(report: Mapping[str, Any]) -> str:
    """The same of a release whose rows have events or sums; nothing where it has no limit."""
    columns, cap = report.get("columns", {}), cap_of(report)
    keys = report.get("keys", [])[-1:] if LEVEL in columns else report.get("keys", [])  # events are cut on the leaves
    has_some = any(called(report, each) != each for each in columns)
    return at_most(cap, keys, report.get("details", {})) if cap and has_some else ""


def called(report: Mapping[str, Any], column: str) -> str:
    """What a column is called over its numbers: its name, or what it counts of one user."""
    given, command = report.get("details", {}).get("parameters", {}), report.get("command")
    if command not in _EVENTS or given.get("of") == "users" or column in report.get("keys", []):
        return column
    cap, leaf = cap_of(report), [name(key) for key in report["keys"][-1:]] if LEVEL in report.get("columns", {}) else []
    whose = " and ".join(["a user", *_window(report["details"]), *leaf])
    if command == "aggregate" and column.startswith(_SUMS) and not column.endswith(("_stddev", "_low", "_high")):
        return f"{column}, at most {cap:,} rows {whose}" if cap else column
    what = _EVENTS[str(command)].get(column)
    if what is None or (command == "count-release" and not cap):
        return column
    return f"{what}, at most {cap:,} {whose}" if cap else what


def _window(details: Mapping[str, Any]) -> list[str]:
    """The window in which a user is told apart, such as a day, if users are told apart in each."""
    return details.get("guarantee", {}).get("unit", "user").split("-")[1:]
