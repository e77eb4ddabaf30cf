"""Curves by epsilon: one line for each method, with a band from the least to the most of its releases."""

from __future__ import annotations

from collections.abc import Sequence

from headcount.pipelines.pages import charts
from headcount.pipelines.pages.axes import Axis
from headcount.pipelines.pages.charts import Drawn, Line
from headcount.pipelines.studies.run import Cell

# What is drawn of counts and of names: the column, its axis, and what the picture says.
_ITEMS = ("items", Axis("items shown", log=True), "How many items are shown.")
_MISSING = (
    "missing_mass",
    Axis("missing mass", percent=True),
    "Of all pairs of a user and an item, the share whose item is not shown: lower is better.",
)
_OF_COUNTS = (
    _ITEMS,
    (
        "median_error",
        Axis("half of the counts are within", percent=True),
        "How far counts of shown items are from the true ones, as a share of these: half of them are this close, or closer. "
        "Who shows more small items has more to be wrong about.",
    ),
    (
        "saved",
        Axis("saved", percent=True),
        "1 less all errors together, as a share of the true sum; an item that is not shown counts as 0; 100 % is the truth.",
    ),
)
_OF_NAMES = (_ITEMS, _MISSING)


def curves(cells: Sequence[Cell], counts: bool) -> list[tuple[Drawn, str]]:
    """The charts of one question, of counts or of names, each with its caption."""
    drawn = []
    for column, axis, caption in _OF_COUNTS if counts else _OF_NAMES:
        ticks = tuple(sorted({cell.promised.epsilon for cell in cells}))
        across = Axis("epsilon", log=True, ticks=ticks)
        drawn.append((charts.lines(lines(cells, column), across, axis, f"{axis.label} by epsilon"), caption))
    return drawn


def lines(cells: Sequence[Cell], column: str) -> list[Line]:
    """The mean of a column by epsilon for each method, and the least and the most of its releases."""
    found: dict[str, Line] = {}
    for cell in cells:
        line = found.setdefault(cell.method.name, Line(cell.method.name, [], []))
        values = [value for one in cell.scores if (value := getattr(one, column)) is not None]
        if values:
            epsilon = cell.promised.epsilon
            middle = sum(values) / len(values)
            points, band = [*line.points, (epsilon, middle)], [*line.band, (epsilon, min(values), max(values))]
            found[cell.method.name] = Line(line.name, points, band)
    return list(found.values())
