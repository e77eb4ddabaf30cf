"""What a forecast says: as lines for a terminal, as a table, as CSV and as a page."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from headcount.pipelines.pages import charts, layout
from headcount.pipelines.pages.axes import Axis
from headcount.pipelines.reports.summary import aligned
from headcount.pipelines.studies.forecast import MEANINGS, Expected, Outlook
from headcount.pipelines.studies.rehearsal import write_files

#: What stands above a forecast.
HEAD = "a forecast: whole releases on made-up users, without any data of yours; it costs no epsilon"

CSV, PAGE = "forecast.csv", "forecast.html"

#: What no forecast can know.
UNKNOWN = (
    "the ranges say how far such made-up users differ, and not how far yours are from all of them",
    "not known: how many items lie below what was shown, beyond about half of its threshold",
    "not known: how a user's items go together, and whether some items are those of a few users who do much",
    "not known: what the most active users do beyond what counted; if it is much, counts are lower than the truth by more",
)

_COLUMNS = {
    "items": "items",
    "median_error": "half within",
    "error_90": "90 % within",
    "held": "intervals hold",
    "half_width": "half width",
    "covered": "events shown",
    "other": "other",
    "users_needed": "users needed",
}


# What the columns that are shown mean.
_NOTES = {
    "median_error": "half within, 90 % within: how far counts of shown items are from the true ones, as a share of these",
    "held": "intervals hold: the share of the items shown whose interval, low to high, holds the true number",
    "half_width": "half width: half of the intervals, low to high, reach this far to either side, or less",
    "covered": "events shown: the share of all events that are of items shown",
    "other": "other: the share of what a level counts that is in none of its rows with a name",
    "users_needed": "users needed: about how many users an item needs to be shown",
}


@dataclasses.dataclass(frozen=True)
class Forecast:
    """Outlooks by method and epsilon, and what they are founded on: `basis`, and what was assumed (`notes`), in words.

    Printed, it is what the terminal shows; in a notebook, curves and a table.
    """

    basis: str
    notes: tuple[str, ...]
    outlooks: tuple[Outlook, ...]

    def __repr__(self) -> str:
        return self.text()

    def text(self) -> str:
        """All of it, for a terminal."""
        cells = self._cells()
        texts = [name in ("method", "level") for name in cells[0]]
        lines = [HEAD, self.basis, "", *aligned(cells, texts), "", *self._notes()]
        return "\n".join(lines)

    def records(self) -> Iterator[dict[str, Any]]:
        """Every outlook as a row of plain values."""
        for each in self.outlooks:
            row: dict[str, Any] = {"method": each.method.name, **each.promised._asdict(), "level": each.level}
            for name in MEANINGS:
                found = each.expected.get(name)
                ends = (None, None, None) if found is None else dataclasses.astuple(found)
                row |= dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
            yield row | {"decision": each.decision, "refused": each.refused}

    @property
    def table(self) -> pa.Table:
        """The same as an Arrow table."""
        rows = list(self.records())
        texts = dict.fromkeys(("method", "relation", "level", "decision", "refused"), pa.string())
        return pa.Table.from_pylist(rows, pa.schema(list(({name: pa.float64() for name in rows[0]} | texts).items())))

    def to_pandas(self) -> Any:
        """The same as a pandas frame; it needs pandas."""
        return self.table.to_pandas()

    def csv(self) -> str:
        """The same as CSV."""
        rows, written = list(self.records()), io.StringIO()
        writer = csv.DictWriter(written, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return written.getvalue()

    def json(self) -> str:
        """The same as JSON."""
        told = {"basis": self.basis, "notes": list(self._notes()), "forecasts": list(self.records())}
        return json.dumps(told, indent=2, allow_nan=False)

    def html(self) -> bytes:
        """The same as a page with curves."""
        return layout.render("forecast.html", **self._drawn())

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> list[str]:
        """Write forecast.csv and forecast.html into a folder; the paths of what was written."""
        return write_files(os.fspath(folder), overwrite, {CSV: self.csv().encode(), PAGE: self.html()})

    def _repr_html_(self) -> str:
        return layout.render_fragment("forecast.html", **self._drawn())

    def _drawn(self) -> dict[str, Any]:
        heads, *rows = self._cells()
        told = {"head": HEAD, "basis": self.basis, "notes": self._notes()}
        return told | {"charts": _curves(self.outlooks), "heads": heads, "rows": rows}

    def _cells(self) -> list[list[str]]:
        """The numbers as texts, under their names: each with its range."""
        columns = [name for name in _COLUMNS if any(name in each.expected for each in self.outlooks)]
        levels = ["level"] if any(each.level is not None for each in self.outlooks) else []
        lines = [["epsilon", "method", *levels, *(_COLUMNS[name] for name in columns)]]
        for each in sorted(self.outlooks, key=lambda each: each.promised.epsilon):
            values = [shown(name, each.expected.get(name)) for name in columns]
            if each.refused is not None:
                values = ["refused", *[""] * (len(columns) - 1)]
            level = [each.level or ""] if levels else []
            lines.append([f"{each.promised.epsilon:g}", each.method.name, *level, *values])
        return lines

    def _notes(self) -> list[str]:
        told = {name for each in self.outlooks for name in each.expected}
        notes = [
            "each number with a range: most releases of such made-up users lie in it, and yours may lie outside",
            *(note for name, note in _NOTES.items() if name in told),
        ]
        refused = dict.fromkeys(f"{each.method.name} refused: {each.refused}" for each in self.outlooks if each.refused)
        assumed = dict.fromkeys(each.assumed for each in self.outlooks if each.assumed)
        return [*notes, *self.notes, *assumed, *UNKNOWN, *refused]


def shown(name: str, found: Expected | None) -> str:
    """A number with its range as it is shown."""
    if found is None:
        return "-"
    if name in ("items", "users_needed", "half_width"):
        return f"{_round(found.mean)} ({_round(found.low)} to {_round(found.high)})"
    mean, low, high = (100 * min(value, 1e4) for value in dataclasses.astuple(found))
    digits = 1 if mean < 9.95 else 0
    return f"{mean:.{digits}f} % ({low:.{digits}f} to {min(high, 100) if name == 'covered' else high:.{digits}f})"


def _round(value: float) -> str:
    """A number of which only the first digits are worth anything."""
    digits = len(str(int(value))) - 3
    return f"{round(value, -digits if digits > 0 else 0):,.0f}"


def _curves(outlooks: Sequence[Outlook]) -> list[tuple[charts.Drawn, str]]:
    """Items and errors by epsilon, one line for each method, with its range."""
    drawn = []
    ticks = tuple(sorted({each.promised.epsilon for each in outlooks}))
    for name, axis in (
        ("items", Axis("items shown", log=True)),
        ("median_error", Axis("half of the counts are within", percent=True)),
    ):
        found: dict[str, charts.Line] = {}
        for each in sorted(outlooks, key=lambda each: each.promised.epsilon):
            expected = each.expected.get(name)
            if expected is not None:
                label = each.method.name if each.level is None else f"{each.method.name}: {each.level}"
                line = found.setdefault(label, charts.Line(label, [], []))
                epsilon = each.promised.epsilon
                points, band = (
                    [*line.points, (epsilon, expected.mean)],
                    [*line.band, (epsilon, expected.low, expected.high)],
                )
                found[label] = charts.Line(line.name, points, band)
        if found:
            across = Axis("epsilon", log=True, ticks=ticks)
            drawn.append((charts.lines([*found.values()], across, axis, f"{axis.label} by epsilon"), MEANINGS[name]))
    return drawn
