"""What changed, as lines for a terminal, as tables, as CSV and JSON, and as a page with lines and bands."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from headcount.mechanisms.columns.level_keys import LEVEL, OTHER
from headcount.pipelines.over_time.changes import HIDDEN, NOISE, UNTESTED, Change, Found
from headcount.pipelines.over_time.kind import asked
from headcount.pipelines.over_time.numbers import SHARES
from headcount.pipelines.over_time.page import LISTED, Worded, changes_fragment, changes_page
from headcount.pipelines.reports import tree_rows
from headcount.pipelines.reports.summary import aligned, cell, number_in
from headcount.pipelines.studies.rehearsal import write_files
from headcount.pipelines.terminal import name as worded

CSV, ROWS, PAGE = "changes.csv", "rows.csv", "changes.html"
_SHOWN = 20  # changes that a terminal lists
_DRAWN = 10  # rows whose lines a notebook has
# Where the changes are that are not listed: for who reads a terminal, a page, or what a call gave.
_IN_TERMINAL = "give --output, which writes all, or --json"
_IN_PAGE = f"{CSV} beside this page has all"
_IN_PYTHON = "`real` has all, and `save(folder)` writes them"
# Columns of a change, or of a row, that a column of a key may have the name of.
_OWN = (
    "number from to before before_low before_high after after_low after_high change change_low change_high verdict "
    "least_rate why release value low high"
).split()
_HEADS = ("from", "to", "before", "after", "change", "low to high", "")


class Changes:
    """Releases of one kind side by side, and what changed between them. It is made of released files alone, and costs nothing.

    Printed, it is what the terminal shows; in a notebook, a table and lines with bands.
    """

    def __init__(self, found: Found) -> None:
        self.found = found

    @cached_property
    def changes(self) -> list[Change]:
        """All changes of rows that one of two releases shows."""
        return [*self.found.changes()]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every change as a row of plain values: the key, the number, both releases with their intervals, and the verdict."""
        return [*map(self._record, self.changes)]

    @property
    def real(self) -> list[dict[str, Any]]:
        """The rows that are real changes, the surest first."""
        return [*map(self._record, self.real_changes)]

    @cached_property
    def real_changes(self) -> list[Change]:
        """The changes that are more than noise, the surest first."""
        return sorted((each for each in self.changes if each.is_real), key=lambda each: each.least_rate or 0.0)

    @property
    def table(self) -> pa.Table:
        """The same as `rows`, as an Arrow table."""
        return pa.Table.from_pylist(self.rows)

    def to_pandas(self) -> Any:
        """The same as a pandas frame; it needs pandas."""
        return self.table.to_pandas()

    def side_by_side(self) -> Iterator[dict[str, Any]]:
        """The rows of all releases: a line for each row, number and release that shows it."""
        for panel in self.found.panels:
            for row, key in enumerate(panel.names):
                for at, side in enumerate(panel.sides):
                    if panel.shown(at)[row]:
                        value, low, high = (float(part[at][row]) for part in (panel.value, panel.low, panel.high))
                        named = {**self._named(key), "number": panel.number.name, "release": side.name}
                        yield named | {"value": value, "low": _known(low), "high": _known(high)}

    def text(self, more: str = _IN_TERMINAL) -> str:
        """What a terminal shows; `more` says where changes are that it does not list."""
        lines = [self.heading(), self.verdict(), ""]
        shown = self.shown(_SHOWN)
        if shown:
            heads, *cells = self.cells(shown)
            texts = heads.index("before")
            lines += [*aligned([heads, *cells], [at < texts or head == "" for at, head in enumerate(heads)]), ""]
        return "\n".join([*lines, *self.words(len(shown), more)])

    def heading(self) -> str:
        """What is put side by side."""
        sides, what = self.found.sides, asked(self.found.sides)
        rows = _some(len(self.found.panels[0].names), "row")
        return f"{what[:1].lower()}{what[1:]}: {len(sides)} releases, {sides[0].name} to {sides[-1].name}, of {rows}"

    def verdict(self) -> str:
        """How many changes are real, and how sure that is."""
        real, tested = len(self.real_changes), self.found.tested
        called = "no change is real" if not real else "1 change is real" if real == 1 else f"{real:,} changes are real"
        rate = f"{100 * self.found.false_alarms:g} %"
        sure = f"the chance of any false alarm among all of them is at most {rate}"
        return f"{called}, of {tested:,} that were tested; {sure}"

    def words(self, shown: int, more: str) -> list[str]:
        """What else is to be said, a sentence each."""
        kinds = {kind: sum(each.verdict == kind for each in self.changes) for kind in (NOISE, HIDDEN, UNTESTED)}
        lines = []
        left = len(self.real_changes) - shown
        if left > 0:
            lines.append(f"{_some(left, 'more real change')}: {more}")
        if kinds[NOISE]:
            lines.append(
                f"{_some(kinds[NOISE], 'change')} within the noise: there may be none, or one too small to see"
            )
        if kinds[HIDDEN]:
            lines.append(
                f"{_some(kinds[HIDDEN], 'change')} not told, as one of the two releases does not show the row: that is no 0, "
                "and neither a rise nor a fall"
            )
        whys = dict.fromkeys(each.why for each in self.changes if each.verdict == UNTESTED)
        lines += [f"not tested: {why}" for why in whys]
        lines.append(
            "change is after less before, with its 95 % interval, by the noise of both releases and what was left out"
        )
        if len(self.found.sides) > 2:
            lines.append("tested are all releases that follow each other, and the first with the last")
        return [*lines, "real is a change of the number in the data, whatever it came from", *self.found.notes]

    def shown(self, most: int) -> list[Change]:
        """The changes that are listed: real ones, and of two releases also others, the largest first."""
        real = self.real_changes[:most]
        others = [each for each in self.changes if not each.is_real] if len(self.found.sides) == 2 else []
        return [*real, *others[: max(0, most // 2 - len(real))]]

    def cells(self, changes: Iterable[Change]) -> list[list[str]]:
        """Changes as texts, under their headings."""
        several = len(self.found.panels) > 1
        heads = [*self.heads(), *(["number"] if several else []), *_HEADS]
        lines = [heads]
        for each in changes:
            before, after = ("not shown" if side is None else number_in(*side) for side in (each.before, each.after))
            change = "" if each.change is None else _signed(each.change)
            ends = "" if each.ends is None else " to ".join(map(_signed, _outward(each)))
            names = ["" if part in (None, "") else worded(part, 40) for part in self.words_of(each.row)]
            number = [each.number] if several else []
            lines.append([*names, *number, each.first, each.second, before, after, change, ends, each.verdict])
        return lines

    def heads(self) -> list[str]:
        """The columns that tell rows apart, as a reader needs them."""
        own = self.found.sides[0].identity
        return [key for key in own if key not in (LEVEL, OTHER)] if LEVEL in own else [*own]

    def words_of(self, row: tuple[Any, ...]) -> list[Any]:
        """The same of a row: in levels, each node is called by its own word."""
        named = dict(zip(self.found.sides[0].identity, row, strict=True))
        heads = self.heads()
        return [(tree_rows.in_order([named], heads)[0] if LEVEL in named else named)[head] for head in heads]

    def json(self) -> str:
        """All of it for a program."""
        releases = [
            {
                "name": side.name,
                "release_id": side.report["release_id"],
                **{part: side.report[part] for part in ("period", "date") if part in side.report},
                "promise": side.report["promise"],
                "rows": side.report["rows"],
            }
            for side in self.found.sides
        ]
        told = {
            "releases": releases,
            "false_alarms": self.found.false_alarms,
            "tested": self.found.tested,
            "notes": [self.verdict(), *self.words(len(self.real_changes), "")],
            "changes": self.rows,
            "rows": [*self.side_by_side()],
        }
        return json.dumps(told, indent=2, allow_nan=False)

    def html(self) -> bytes:
        """All of it as a page."""
        return changes_page(self.found, self.real_changes, self._worded(LISTED, _IN_PAGE))

    def _worded(self, most: int, more: str) -> Worded:
        listed = self.shown(most)
        return Worded(self.verdict(), self.cells(listed), self.heads(), self.words_of, self.words(len(listed), more))

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> list[str]:
        """Write changes.csv, rows.csv and changes.html into a folder; the paths of what was written."""
        contents = {CSV: _csv(self.rows), ROWS: _csv([*self.side_by_side()]), PAGE: self.html()}
        return write_files(os.fspath(folder), overwrite, contents)

    def __repr__(self) -> str:
        return self.text(_IN_PYTHON)

    def _repr_html_(self) -> str:
        return changes_fragment(self.found, self.real_changes, self._worded(_SHOWN, _IN_PYTHON), _DRAWN)

    @property
    def _keys(self) -> tuple[str, ...]:
        return tuple(f"{key}_key" if key in _OWN else key for key in self.found.sides[0].identity)

    def _named(self, row: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(self._keys, row, strict=True))

    def _record(self, each: Change) -> dict[str, Any]:
        made = {**self._named(each.row), "number": each.number, "from": each.first, "to": each.second}
        for when, side in (("before", each.before), ("after", each.after)):
            value, low, high = (None, None, None) if side is None else map(_known, side)
            made |= {when: value, f"{when}_low": low, f"{when}_high": high}
        low, high = each.ends or (None, None)
        made |= {"change": each.change, "change_low": low, "change_high": high}
        return made | {"verdict": each.verdict, "least_rate": each.least_rate, "why": each.why or None}


def _known(value: float) -> float | None:
    return value if value == value else None


def _outward(each: Change) -> tuple[float, float]:
    """The ends of a change, rounded outward to whole numbers where the numbers themselves are whole."""
    low, high = each.ends or (0.0, 0.0)
    whole = each.change is not None and each.change.is_integer() and each.number not in SHARES
    return (math.floor(low), math.ceil(high)) if whole else (low, high)


def _signed(value: float) -> str:
    text = cell(value, False)
    return f"+{text}" if value > 0 else text


def _some(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    written = io.StringIO()
    if rows:
        writer = csv.DictWriter(written, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return written.getvalue().encode()
