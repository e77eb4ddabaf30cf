"""Released files as sides of a comparison: what each is called, and whether all are of one kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from headcount.mechanisms.columns.level_keys import LEVEL, OTHER
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.pipelines.flags.options import as_flag
from headcount.pipelines.reports.summary import title
from headcount.pipelines.terminal import name as worded

#: The commands whose numbers have intervals that a test can rest on.
COMMANDS = ("histogram", "aggregate", "total", "funnel", "retention", "activity", "actives")
# What tells the rows of a release apart beside the columns of its key, by a column that only such rows have.
_OWN = {
    LEVEL: (LEVEL, OTHER),
    "of": ("of",),
    "condition": ("step", "condition"),
    "least": ("events", "least", "most"),
    "age": ("cohort", "age"),
    "window": ("day", "window"),
}
# Parameters that releases of one kind may have of their own: of which rows they are, as those of another week, how precise
# numbers are, which of them are shown, and how they lie.
_MAY_DIFFER = (
    "epsilon delta rho relation noise bound max_items max_per_item calibrate format output_files max_item_bytes "
    "domain_digest join_digest public_columns from_ to suppress_below max_relative_error top where like"
).split()
# Those of them that a reader is told of.
_TOLD = (
    "where epsilon delta rho relation domain_digest join_digest from_ to noise suppress_below max_relative_error top"
).split()
_MOST_TOLD = 4  # values of a parameter that are listed


@dataclasses.dataclass(frozen=True)
class Side:
    """One release: what it is called here, where it lies, its report and its rows."""

    name: str
    place: str
    report: Mapping[str, Any]
    rows: pa.Table

    @cached_property
    def parameters(self) -> Mapping[str, Any]:
        """What its job was told, and what it chose: the latter where both say something."""
        details = self.report.get("details", {})
        chosen = {name: each for name, each in details.get("chosen", {}).items() if not isinstance(each, Mapping)}
        return {**details.get("parameters", {}), **chosen}

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that tell its rows apart."""
        columns, keys = self.report["columns"], self.report.get("keys", [])
        own = next((own for column, own in _OWN.items() if column in columns and column not in keys), ())
        if LEVEL in own:
            return (LEVEL, *keys, OTHER)
        return (*keys, *own)

    @cached_property
    def is_normal(self) -> bool:
        """Whether all noise is Gaussian, as the report states it."""
        steps = self.report.get("details", {}).get("guarantee", {}).get("mechanisms", [])
        kinds = [str(step["details"]["noise"]) for step in steps if "noise" in step.get("details", {})]
        return bool(kinds) and all("Gaussian" in kind for kind in kinds)


def check_one_kind(sides: Sequence[Side]) -> list[str]:
    """Refuse releases that are not of one kind; what is to be said of the ways in which they differ all the same."""
    first = sides[0]
    for side in sides:
        command = side.report["command"]
        if command not in COMMANDS:
            raise ParameterError(
                f"{side.place!r} is a release of headcount {worded(command)}, whose rows have no intervals for a test; "
                f"give releases of {', '.join(COMMANDS)}"
            )
    seen: dict[str, Side] = {}
    for side in sides:
        other = seen.setdefault(side.report["release_id"], side)
        if other is not side:
            raise ParameterError(
                f"{other.place!r} and {side.place!r} have one release id: they are the same release, or may have the same "
                "noise; give each release once, and every release an id of its own"
            )
    for side in sides[1:]:
        _check_pair(first, side)
    return [*_differing(sides)]


def _check_pair(first: Side, side: Side) -> None:
    def differ(what: str, before: Any, after: Any) -> InputError:
        return InputError(
            f"{first.place!r} and {side.place!r} are not of one kind: {what} {_word(before)} in the first and "
            f"{_word(after)} in the second"
        )

    pairs = {
        "the command is": [each.report["command"] for each in (first, side)],
        "the key is": [", ".join(each.report.get("keys", [])) or "none" for each in (first, side)],
        "who is protected is": [
            each.report.get("details", {}).get("guarantee", {}).get("unit") for each in (first, side)
        ],
    }
    for what, (before, after) in pairs.items():
        if before != after:
            raise differ(what, before, after)
    given = [each.report.get("details", {}).get("parameters", {}) for each in (first, side)]
    for name in sorted({*given[0], *given[1]} - {*_MAY_DIFFER}):
        before, after = (each.get(name) for each in given)
        if before != after:
            raise differ(f"{as_flag(name)} is", before, after)
    if first.report["command"] == "retention" and given[0].get("from_") != given[1].get("from_"):
        raise differ(
            "a cohort is of those who came first in the data that was given, and --from is",
            *(each.get("from_") for each in given),
        )
    columns = [[*each.report["columns"]] for each in (first, side)]
    if columns[0] != columns[1]:
        raise differ("the columns are", *(", ".join(each) for each in columns))


def _differing(sides: Sequence[Side]) -> list[str]:
    told = []
    for name in _TOLD:
        values = [side.report.get("details", {}).get("parameters", {}).get(name) for side in sides]
        if any(value != values[0] for value in values):
            flag, listed = as_flag(name), name.endswith("_digest")
            each = [*dict.fromkeys(_word(value) for value in values)]
            what = "is not the same in all" if listed or len(each) > _MOST_TOLD else f"is {', '.join(each)}"
            told.append(f"releases differ: {flag.removesuffix('-digest')} {what}")
    return told


def asked(sides: Sequence[Side]) -> str:
    """What all releases answer, in a few words; of which rows, and how much of a user, if that is the same in all."""
    return title(alike(sides))


def alike(sides: Sequence[Side]) -> dict[str, Any]:
    """The report of the first release, but for what titles say of rows that is not the same in all."""
    report = sides[0].report
    details = report.get("details", {})
    differ = {name for name in ("where", "max_per_item") if len({side.parameters.get(name) for side in sides}) > 1}
    common = {
        part: {name: value for name, value in details[part].items() if name not in differ}
        for part in ("parameters", "chosen")
        if part in details
    }
    return {**report, "details": {**details, **common}}


def _word(value: Any) -> str:
    if value is None:
        return "not given"
    return worded(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value), 60)


def names_of(periods: Sequence[Any], places: Sequence[str | None]) -> list[str]:
    """What releases are called: by their periods, if each has its own, else by where their folders differ, else by number."""
    if all(isinstance(each, str) for each in periods) and len({*periods}) == len(periods):
        return [worded(each, 40) for each in periods]
    numbers = [f"release {k}" for k in range(1, len(periods) + 1)]
    if any(place is None for place in places):
        return numbers
    paths = [[part for part in str(place).split("/") if part] for place in places]
    while all(len(path) > 1 and path[0] == paths[0][0] for path in paths):
        paths = [path[1:] for path in paths]
    while all(len(path) > 1 and path[-1] == paths[0][-1] for path in paths):
        paths = [path[:-1] for path in paths]
    found = ["/".join(path) for path in paths]
    return [worded(each, 40) for each in found] if len({*found}) == len(found) else numbers
