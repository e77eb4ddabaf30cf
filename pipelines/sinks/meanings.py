"""What the columns of released rows mean, in plain words: for report.json, which whoever gets the rows may read alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from headcount.mechanisms.columns.fields import Field
from headcount.mechanisms.columns.keys import Keys
from headcount.mechanisms.columns.level_keys import ALL, LEVEL, OTHER
from headcount.pipelines.sinks.capped import at_most

_NOISE = "not what bounding or an assumption did to it"


def _share(name: str, of: str) -> dict[str, str]:
    return {
        name: f"their share of {of}",
        f"{name}_low": "the lower end of its 95 % interval",
        f"{name}_high": "the upper end of its 95 % interval",
    }


_ANY = {
    "item": "the item",
    "count": "an estimate of the true number",
    "bounded_count": (
        "the number that was left after limiting how much each user counts, with noise: the true number may be far above it"
    ),
    "noise_stddev": f"the standard deviation of the noise in the number beside it; {_NOISE}",
    "low": f"the lower end of the range of the noise, which holds 95 % of it; {_NOISE}",
    "high": f"the upper end of the range of the noise, which holds 95 % of it; {_NOISE}",
    "sampled": "how many of the item's users were in the secret sample",
    "rank": "the place of the item by the number of its users; 1 has the most",
    "quantile": "the share of users whose value is below",
    "value": "the value",
    "rank_stddev": "the standard deviation of the share of users that are really below the value",
    "probability": "how likely the item is",
    "error": "how far off the number is to be expected, on average",
    "property": "what the value says of all items together",
    "items": "how many items have that count",
    "of": "what is counted: users, or events",
    "bound": "how much one user may count in all",
    "max_items": "how many of a user's items count in full",
    "max_per_item": "how much one user may count on one item; 0 is no such limit",
    "noise": "the kind of noise that the bound was chosen for",
    "report": "what one user sends, noise included",
    LEVEL: f"what the row is a row of: the key column up to which it has values; {ALL} is all rows together",
    OTHER: "whether the row is what is other under the node above: what has a value in its level that was not named",
}
_OF_PEOPLE = {
    "noise_stddev": "the standard deviation of the noise in count, which is all that is uncertain of it",
    "low": "the lower end of the 95 % interval of count",
    "high": "the upper end of the 95 % interval of count",
}
# Where the same word is for something else, by a column that only such rows have.
_BESIDE = {
    "condition": _OF_PEOPLE
    | {
        "step": "the number of the step, from 1",
        "condition": "the condition of the step",
        "count": "the users who came to the step, after all steps before it; with noise",
        **_share("share_of_first", "the users of the first step"),
        **_share("share_of_before", "the users of the step before"),
    },
    "least": _OF_PEOPLE
    | {
        "events": "how many events a user has",
        "least": "the least number of events of the bin",
        "most": "the largest one; none, if the bin has no end",
        "count": "the users with so many events, with noise",
        **_share("share", "the users of all bins"),
    },
    "window": _OF_PEOPLE
    | {
        "day": "the day, which windows end with",
        "window": "how many days a window has, that day among them",
        "count": "the users who are there on one of these days, with noise",
        **_share("share", "the users of the longest window"),
    },
    "age": _OF_PEOPLE
    | {
        "cohort": "the first day of the period in which users came first, of the data that was given",
        "age": "how many periods later",
        "count": "the users of the cohort who are there in that period, with noise",
        **_share("share", "the users of the cohort"),
    },
    "items": {
        "count": "a number of users (or of events, where those are counted)",
        "error": "about how far the counts of these items are from the truth, added up",
    },
    "property": {
        "value": "the value of the property",
        "noise_stddev": "the standard deviation of the noise in the value",
    },
}
_RANGES = {
    "low": "where the range begins",
    "high": "where the range ends",
    "count": "an estimate of the users in the range",
}
_OFF = "for the noise and for how far the assumption about what was left out may be off"
_INTERVAL = {
    "low": f"the lower end of the 95 % interval, {_OFF}",
    "high": f"the upper end of the 95 % interval, {_OFF}",
}


def meanings(
    columns: Sequence[str],
    keys: Mapping[str, str] = MappingProxyType({}),
    report: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, str]:
    """{column: what it means} of rows with these columns, in their order; those that only a program reads are left out. `keys`
    are what the columns of the key mean, and `report` is that of the rows: what is counted, and how much of one user."""
    known = {**_ANY, **_metric_meanings(columns, [*keys], report), **keys}
    for column in columns:
        known |= _BESIDE.get(column, {}) if column not in keys else {}
    if report.get("command") == "histogram" and "details" in report:
        known |= _histogram_meanings(columns, [*keys], report["details"])
    if columns[:2] == ["low", "high"]:
        known |= _RANGES
    known |= keys
    return {column: known[column] for column in columns if column in known}


def has_intervals(columns: Mapping[str, str], of: str = "") -> bool:
    """Whether low to high of rows, or of a metric of theirs, is for the true number and not for the noise alone: as their
    report says, which an earlier version may have written."""
    return _OFF in columns.get(f"{of}low", "")


def _histogram_meanings(columns: Collection[str], keys: Sequence[str], details: Mapping[str, Any]) -> dict[str, str]:
    """What is counted, in the numbers that were given or chosen: of one user at most c on one item, and at most B in all."""
    of, chosen = details["parameters"]["of"], details.get("chosen", {})
    left = f"the {of} of the item that were left after limiting how much each user counts, with noise"
    cap = chosen.get("max_per_item") or details["parameters"].get("max_per_item")
    most_of_one = f", {at_most(cap, keys, details)}" if cap and of == "events" else ""
    if "count" not in columns:
        return {"bounded_count": f"{left}{most_of_one}: the true number may be far above it"}
    most = chosen.get("totals_bound", 0)
    if LEVEL in columns:
        counted = _of_node(of, cap and at_most(cap, keys[-1:], details), details["parameters"].get("home", False))
    elif of == "users":
        counted = "users of the item" + (f"; at most {most:,} items of one user count in all" if most else "")
    elif cap:
        counted = f"events of the item, {at_most(cap, keys, details)}" + (
            f", and at most {most:,} of a user in all" if most else ""
        )
    else:
        counted = "events of the item" + (f"; at most {most:,} of one user count in all" if most else "")
    return {
        "count": f"an estimate of the {counted}",
        "bounded_count": left,
        **_INTERVAL,
    }


def _of_node(of: str, most: str | None, home: bool) -> str:
    if of == "events":
        return f"events of the node{f', {most}' if most else ''}; the numbers of a node's children add up to its own"
    if home:
        return "users of the node, each where it has the most rows; the numbers of a node's children add up to its own"
    return (
        "users of the node; one user may be in several children, so that their numbers may add up to more than its own"
    )


# Metrics of keys, by how their columns begin; `count` stands for how many rows of one user on one item count.
_METRICS = {
    "users": "an estimate of the true number of users",
    "events": "an estimate of the number of events, {count}",
    "bounded_users": "the users that were left after limiting on how many items each counts, with noise",
    "bounded_events": "the events that were left after limiting how much each user counts, with noise",
    "sum_": "an estimate of the sum of the values, each cut to its range, of the rows that count, {count}",
    "bounded_sum_": "the sum of the values that were left after limiting how much each user counts, with noise",
    "mean_": "the mean of the values, each cut to its range, of a sample of each user's rows",
    "variance_": "the variance of the values, each cut to its range, of a sample of each user's rows",
}
_SHARE = "of the users of the item, the share with a row that meets the condition {condition}, of a sample of each user's items"
_RATIO = (
    "the sum of one column by the sum of another, {sums}, each value cut to its range, of a sample of each user's rows; its "
    "range is null where the second sum may be 0"
)
_ENDS_OF_TOTALS = {"low": f"the lower end of its range, {_OFF}", "high": f"the upper end of its range, {_OFF}"}
_QUANTILE = (
    "the value that as many of the rows as its name says (p90: 90 %) do not exceed, each cut to its range, of a sample of each "
    "user's rows"
)
# The parts of a quantile beside it, whose noise is in its rank.
_OF_QUANTILES = {
    "rank_stddev": "the standard deviation of the share of rows that are really below the quantile beside it, by the noise",
    "low": f"the lower end of the range of the noise, which holds the quantile but for 5 % of it; {_NOISE}",
    "high": f"the upper end of the range of the noise, which holds the quantile but for 5 % of it; {_NOISE}",
}


def is_metric(column: str, columns: Collection[str]) -> bool:
    """Whether a column is a metric, with its noise and its interval beside."""
    parts = ("noise_stddev", "low", "high")
    return all(f"{column}_{part}" in columns for part in parts) or is_quantile(column, columns)


def is_quantile(column: str, columns: Collection[str]) -> bool:
    """Whether a column is a quantile of values by key."""
    return all(f"{column}_{part}" in columns for part in _OF_QUANTILES)


def total_metrics(columns: Collection[str]) -> list[str]:
    """The metrics that are totals of an item, in the order in which items are ranked by them: events, users, then sums."""
    sums = [name for name in columns if name.startswith(("sum_", "bounded_sum_"))]
    names = ("events", "bounded_events", "users", "bounded_users", *sums)
    return [name for name in names if name in columns and is_metric(name, columns)]


def _metric_meanings(columns: Sequence[str], keys: Sequence[str], report: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    details = report.get("details", {})
    parameters, cap = details.get("parameters", {}), details.get("chosen", {}).get("max_per_item")
    shares, ratios = (_named(parameters.get(kind)) for kind in ("share", "ratio"))
    leaf = [*keys][-1:] if LEVEL in columns else [*keys]
    count = at_most(cap, leaf, details) if cap else "a limited number of a user on one item"
    for column in columns:
        if is_quantile(column, columns):
            found |= {column: _QUANTILE}
            found |= {f"{column}_{part}": words for part, words in _OF_QUANTILES.items()}
        elif is_metric(column, columns):
            names = [begin for begin in _METRICS if column == begin or (begin[-1] == "_" and column.startswith(begin))]
            found |= {column: _METRICS[names[-1]].format(count=count)} if names else {}
            found |= {column: _SHARE.format(condition=shares[column])} if column in shares else {}
            found |= {column: _RATIO.format(sums=ratios[column])} if column in ratios else {}
            ends = _ENDS_OF_TOTALS if column.startswith(("users", "events", "sum_")) else {}
            found |= {f"{column}_{part}": (_ANY | ends)[part] for part in ("noise_stddev", "low", "high")}
    return found


def _named(given: str | Sequence[str] | None) -> dict[str, str]:
    """{name: what it is} of the shares or ratios that were asked for, as texts like bought=event=buy."""
    texts = [given] if isinstance(given, str) else given or ()
    return {name.strip(): what.strip() for name, _, what in (text.partition("=") for text in texts)}


def key_meanings(keys: Keys) -> tuple[tuple[str, str], ...]:
    """(column, what it means) of the columns of the key, in their order."""
    what = "the item" if len(keys.fields) == 1 else "a part of the item"
    if keys.optional:
        what = "a level of the key, empty in rows above it and in what is other there"
    return tuple((field.name, f"{what}: {_meaning(field)}") for field in keys.fields)


def _meaning(field: Field) -> str:
    source, unit = f"column {field.column.source!r} of the input", field.column.unit
    if field.column.edges:
        return f"{source} in bins; [a, b) is from a on and below b"
    if unit in ("week", "month"):
        first = "the Monday" if unit == "week" else "the first day"
        return f"{source} by its {unit}, as {first} of it, in the time zone {field.zone}"
    if field.column.days:
        return f"{source} in windows of {field.column.days} days, each by its last day, in the time zone {field.zone}"
    return f"{source} by its {unit}, in the time zone {field.zone}" if field.column.time_unit else source
