"""The page of changes: what is real, a line with its band for each of the largest rows, and the releases."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from headcount.pipelines.over_time.changes import Change, Found
from headcount.pipelines.over_time.kind import alike, asked
from headcount.pipelines.over_time.numbers import Panel
from headcount.pipelines.pages import charts, layout, texts
from headcount.pipelines.pages.charts import Spark
from headcount.pipelines.pages.parts import Part
from headcount.pipelines.sinks.capped import called

LISTED = 200  # changes in a table
_LINES = 50  # rows that are drawn


@dataclasses.dataclass(frozen=True)
class Worded:
    """What a page says beside its lines: how many changes are real, changes as texts under their headings, the headings of
    rows and what each is called, and notes."""

    verdict: str
    cells: Sequence[Sequence[str]]
    heads: Sequence[str]
    words_of: Callable[[tuple[Any, ...]], Sequence[Any]]
    notes: Sequence[str]


def changes_page(found: Found, real: Sequence[Change], words: Worded) -> bytes:
    """The bytes of the page."""
    return layout.render("changes.html", **_drawn(found, real, words, _LINES))


def changes_fragment(found: Found, real: Sequence[Change], words: Worded, lines: int) -> str:
    """The same for a notebook, with fewer lines."""
    return layout.render_fragment("changes.html", **_drawn(found, real, words, lines))


def _drawn(found: Found, real: Sequence[Change], words: Worded, most: int) -> dict[str, Any]:
    sides = found.sides
    heads, *rows = words.cells
    releases = [
        [side.name, side.report["release_id"], str(side.report.get("date", "")), side.report["promise"]]
        for side in sides
    ]
    return {
        "asked": asked(sides),
        "heading": f"{len(sides)} releases, {sides[0].name} to {sides[-1].name}",
        "verdict": words.verdict,
        "heads": heads,
        "rows": rows,
        "lines": [_lines(panel, real, words, most) for panel in found.panels],
        "releases": releases,
        "notes": words.notes,
    }


def _lines(panel: Panel, changes: Sequence[Change], words: Worded, most: int) -> Part:
    """A small line for each of the rows with real changes and the largest others, over all releases."""
    real = Counter(each.row for each in changes if each.number == panel.number.name)
    ranked = sorted(range(len(panel.names)), key=lambda row: panel.names[row] not in real)[:most]
    drawn = [_spark(words, panel, row, real[panel.names[row]]) for row in ranked]
    which = f"the {most} first of {len(panel.names):,} rows" if len(panel.names) > most else "all rows"
    first, last = panel.sides[0].name, panel.sides[-1].name
    caption = (
        f"{which.capitalize()}, those with real changes before others. Each line goes from {first} to {last}, on its own scale "
        "from 0. The band is what each release states as its 95 % interval. Where a line is broken, the release "
        "does not show the row."
    )
    heads = [*words.heads, "first shown", "last shown", "real changes"]
    what = called(alike(panel.sides), panel.number.name).replace("_", " ")
    return Part(f"{what[:1].upper()}{what[1:]}", drawn=charts.sparks(drawn, heads, len(panel.sides)), caption=caption)


def _spark(words: Worded, panel: Panel, row: int, real: int) -> Spark:
    places = [at for at in range(len(panel.sides)) if panel.shown(at)[row]]
    points = [(at, float(panel.value[at][row]), _end(panel.low[at][row]), _end(panel.high[at][row])) for at in places]
    names = tuple("" if part in (None, "") else texts.name(part) for part in words.words_of(panel.names[row]))
    ends = tuple(
        f"{texts.number(panel.value[at][row].item())} in {panel.sides[at].name}" for at in (places[0], places[-1])
    )
    alt = f"{panel.number.name.replace('_', ' ')}: {ends[0]}, {ends[1]}; {texts.several(real, 'real change')}"
    return Spark(names, points, (*ends, str(real) if real else ""), alt)


def _end(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
