"""Charts as inline SVG: bars with intervals, a cloud of many points, lines. Text stays text, and colours are the page's own.

Our own few functions, and no library of plots: its pictures hold fixed colours for either a light or a dark page, text as
outlines, and other bytes with each version.
"""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from headcount.pipelines.pages.axes import Axis, Scale
from headcount.pipelines.pages.texts import Drawn

# In units of the picture; a page shows it as wide as it has room, and on a phone with larger letters.
_WIDTH, _HEIGHT = 480, 310
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 20, 30, 46
_MOST_POINTS = 500  # beyond, cells tell how many there are
_COLUMNS, _ROWS = 90, 54
_SPARK_WIDTH, _SPARK_HEIGHT = 240, 36
_COLOURS = 8  # in the style, with as many dashes


@dataclasses.dataclass(frozen=True)
class Bar:
    """One row of bars: its names, one for each column, its number as text, and the number with its interval.

    `beside` is one more text behind the number, such as the interval in words; a `quiet` bar is there for comparison.
    """

    names: tuple[str, ...]
    text: str
    value: float
    low: float | None = None
    high: float | None = None
    beside: str = ""
    quiet: bool = False


def bars(
    rows: Sequence[Bar], heads: Sequence[str], dots: bool = False, log: bool = False, shown: slice = slice(None)
) -> Drawn:
    """A table with a bar in each row, from 0, and its interval as a line; as `dots`, each number is a point.

    `heads` are the headings of the names, of the number, and of what is beside it, if there is any. With `log`, bars go by the
    logarithm of one more than their number, which a caption must say. Only `shown` rows are drawn, on the scale of all.
    """

    def size(value: float) -> float:
        return math.log1p(max(value, 0.0)) if log else value

    ends = [size(end) for row in rows for end in (row.value, row.low, row.high) if end is not None]
    most = max((end for end in ends if math.isfinite(end)), default=0.0) or 1.0
    least = min(ends, default=0.0) if dots else 0.0
    has_beside = any(row.beside for row in rows)

    def at(value: float) -> float:
        return 100 * min(max((size(value) - least) / ((most - least) or 1.0), 0.0), 1.0)

    names = len(heads) - 1 - has_beside
    cells = [f'<th scope="col" class="name">{_escaped(head)}</th>' for head in heads[:names]]
    cells += ['<th class="drawn"><span class="unseen">as a bar</span></th>']
    cells += [f'<th scope="col" class="number">{_escaped(head)}</th>' for head in heads[names:]]
    lines = [f"<thead><tr>{''.join(cells)}</tr></thead>", "<tbody>"]
    for row in rows[shown]:
        first, *others = (f"<bdi>{_escaped(name)}</bdi>" for name in row.names)
        cells = [f'<th scope="row" class="name">{first}</th>', *(f'<td class="name">{name}</td>' for name in others)]
        cells.append(f'<td class="drawn">{_one_bar(row, at, dots)}</td>')
        cells.append(f'<td class="number">{_escaped(row.text)}</td>')
        cells += [f'<td class="number beside">{_escaped(row.beside)}</td>'] if has_beside else []
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return Drawn("\n".join(['<div class="wide">', '<table class="bars">', *lines, "</tbody>", "</table>", "</div>"]))


def _one_bar(row: Bar, at: Callable[[float], float], dots: bool) -> str:
    """The number is text beside it, and so whoever does not see the bar misses nothing."""
    parts = ['<svg class="bar" width="100%" height="16" aria-hidden="true" focusable="false">']
    if dots:
        parts.append('<line class="grid" x2="100%" y1="8" y2="8"/>')
    else:
        kind = "fill quiet" if row.quiet else "fill"
        parts.append(f'<rect class="{kind}" y="3" width="{_short(at(row.value))}%" height="10"/>')
    if row.low is not None and row.high is not None:
        low, high = _short(at(row.low)), _short(at(row.high))
        parts.append(f'<line class="whisker" x1="{low}%" x2="{high}%" y1="8" y2="8"/>')
        parts += [f'<line class="whisker" x1="{end}%" x2="{end}%" y1="4.5" y2="11.5"/>' for end in (low, high)]
    if dots:
        parts.append(f'<circle class="dot" cx="{_short(at(row.value))}%" cy="8" r="3.5"/>')
    return "".join([*parts, "</svg>"])


@dataclasses.dataclass(frozen=True)
class Spark:
    """One small line: its names, one for each column, points (place, number, low, high), in their order, and numbers as texts
    beside it; `alt` says all of it in a sentence."""

    names: tuple[str, ...]
    points: Sequence[tuple[int, float, float | None, float | None]]
    texts: tuple[str, ...]
    alt: str


def sparks(rows: Sequence[Spark], heads: Sequence[str], places: int) -> Drawn:
    """A table with a small line in each row, over so many `places`, with the intervals as a band; each on its own scale from 0.

    `heads` are the headings of the names and of the texts behind the line.
    """
    names = len(rows[0].names)
    cells = [f'<th scope="col" class="name">{_escaped(head)}</th>' for head in heads[:names]]
    cells += ['<th class="drawn"><span class="unseen">as a line</span></th>']
    cells += [f'<th scope="col" class="number">{_escaped(head)}</th>' for head in heads[names:]]
    lines = [f"<thead><tr>{''.join(cells)}</tr></thead>", "<tbody>"]
    for row in rows:
        first, *others = (f"<bdi>{_escaped(name)}</bdi>" for name in row.names)
        cells = [f'<th scope="row" class="name">{first}</th>', *(f'<td class="name">{name}</td>' for name in others)]
        cells.append(f'<td class="drawn">{_spark(row, places)}</td>')
        cells += [f'<td class="number beside">{_escaped(text)}</td>' for text in row.texts]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return Drawn("\n".join(['<div class="wide">', '<table class="bars">', *lines, "</tbody>", "</table>", "</div>"]))


def _spark(row: Spark, places: int) -> str:
    ends = [end for _, *numbers in row.points for end in numbers if end is not None]
    least, most = min(0.0, *ends, 0.0), max(0.0, *ends, 0.0) or 1.0

    def at(place: int, number: float) -> str:
        across = (place + 0.5) / places * _SPARK_WIDTH
        return f"{_short(across)},{_short(_SPARK_HEIGHT * (most - number) / (most - least))}"

    parts = [
        f'<svg class="spark" viewBox="0 0 {_SPARK_WIDTH} {_SPARK_HEIGHT}" preserveAspectRatio="none" role="img">',
        f"<title>{_escaped(', '.join(row.names))}</title><desc>{_escaped(row.alt)}</desc>",
    ]
    runs = _runs(row.points)
    for run in runs:
        band = [(place, low, high) for place, _, low, high in run if low is not None and high is not None]
        if band:
            shape = [at(place, high) for place, _, high in band] + [at(place, low) for place, low, _ in reversed(band)]
            parts.append(f'<polygon class="band series-0" points="{" ".join(shape)}"/>')
    for run in runs:
        path = [at(place, number) for place, number, _, _ in run]
        across, down = path[0].split(",") if len(path) == 1 else ("", "")
        parts.append(
            f'<circle class="mark series-0" cx="{across}" cy="{down}" r="2.6"/>'
            if across
            else f'<polyline class="line series-0" points="{" ".join(path)}"/>'
        )
    return "".join([*parts, "</svg>"])


def _runs(points: Sequence[tuple[int, float, float | None, float | None]]) -> list[Sequence[Any]]:
    """Points without a gap between their places: a line is broken where a place has none."""
    cuts = [k for k in range(1, len(points)) if points[k][0] != points[k - 1][0] + 1]
    return [points[start:end] for start, end in zip([0, *cuts], [*cuts, len(points)], strict=True)]


def cloud(points: np.ndarray, x: Axis, y: Axis, alt: str, guides: Sequence[tuple[float, str]] = ()) -> Drawn:
    """Points (x, y), on logarithmic axes: each as a dot, or where there are many, how many there are in each cell of a grid.

    A guide (share, text) is the line on which y is that share of x. The size of the picture is bounded, whatever their number.
    """
    kept = points[np.isfinite(points).all(axis=1) & (points > 0).all(axis=1)]
    across, up = (axis.scale([*ends(kept[:, side])]) for side, axis in ((0, x), (1, y)))
    parts = [*_frame(across, up), *(line for guide in guides for line in _guide(across, up, *guide))]
    if len(kept) <= _MOST_POINTS:
        parts += [f'<circle class="point" cx="{_x(across, a)}" cy="{_y(up, b)}" r="2.6"/>' for a, b in kept]
        return _figure(parts, alt)
    sides = [(np.log10(kept[:, side]) - scale.low) / (scale.high - scale.low) for side, scale in ((0, across), (1, up))]
    cell = [np.clip((side * n).astype(np.int64), 0, n - 1) for side, n in zip(sides, (_COLUMNS, _ROWS), strict=True)]
    where, number = np.unique(cell[0] * _ROWS + cell[1], return_counts=True)
    level = np.floor(np.log10(number)).astype(np.int64)
    wide, high = (_WIDTH - _LEFT - _RIGHT) / _COLUMNS, (_HEIGHT - _TOP - _BOTTOM) / _ROWS
    legend = []
    for power in range(int(level.max()) + 1):
        drawn = "".join(
            f"M{_short(_LEFT + wide * (k // _ROWS))} {_short(_HEIGHT - _BOTTOM - high * (k % _ROWS + 1))}"
            f"h{_short(wide)}v{_short(high)}h{_short(-wide)}z"
            for k in where[level == power].tolist()
        )
        parts.append(f'<path class="cell level-{min(power, 4)}" d="{drawn}"/>')
        swatch = f'<rect class="cell level-{min(power, 4)}" width="14" height="12"/>'
        legend.append((swatch, f"{10**power:,} or more{' at one place' if power == 0 else ''}"))
    return _figure(parts, alt, legend)


@dataclasses.dataclass(frozen=True)
class Line:
    """Points (x, y) that belong together, and where given (x, low, high) around them."""

    name: str
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float, float]] = ()


def lines(drawn: Sequence[Line], x: Axis, y: Axis, alt: str) -> Drawn:
    """Lines with a legend below, told apart by colour and by dashes; at most eight."""
    if len(drawn) > _COLOURS:
        raise ValueError(f"at most {_COLOURS} lines can be told apart, got {len(drawn)}")
    across = x.scale([at for line in drawn for at in _all_x(line)])
    up = y.scale([at for line in drawn for at in _all_y(line)])
    parts, legend = [*_frame(across, up)], []
    for k, line in enumerate(drawn):
        band = [(a, low, high) for a, low, high in line.band if x.has(a) and y.has(low) and y.has(high)]
        if band:
            ends = [(a, high) for a, _, high in band] + [(a, low) for a, low, _ in reversed(band)]
            shape = " ".join(f"{_x(across, a)},{_y(up, b)}" for a, b in ends)
            parts.append(f'<polygon class="band series-{k}" points="{shape}"/>')
    for k, line in enumerate(drawn):
        shown = [(a, b) for a, b in line.points if x.has(a) and y.has(b)]
        path = " ".join(f"{_x(across, a)},{_y(up, b)}" for a, b in shown)
        parts.append(f'<polyline class="line series-{k}" points="{path}"/>')
        parts += [f'<circle class="mark series-{k}" cx="{_x(across, a)}" cy="{_y(up, b)}" r="2.6"/>' for a, b in shown]
        swatch = f'<line class="line series-{k}" x2="28" y1="6" y2="6"/><circle class="mark series-{k}" cx="14" cy="6" r="3"/>'
        legend.append((swatch, line.name))
    return _figure(parts, alt, legend)


def ends(values: np.ndarray) -> Iterator[float]:
    """The smallest and the largest of values, if there are any."""
    if len(values):
        yield from (float(values.min()), float(values.max()))


def _all_x(line: Line) -> Iterator[float]:
    yield from (point[0] for point in (*line.points, *line.band))


def _all_y(line: Line) -> Iterator[float]:
    yield from (value for point in (*line.points, *line.band) for value in point[1:])


def _figure(parts: Sequence[str], alt: str, legend: Sequence[tuple[str, str]] = ()) -> Drawn:
    head = f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{_escaped(alt)}">'
    pages = [head, *parts, "</svg>"]
    if legend:
        entries = (
            f'<li><svg width="28" height="12" aria-hidden="true" focusable="false">{swatch}</svg> {_escaped(text)}</li>'
            for swatch, text in legend
        )
        pages += ['<ul class="legend">', *entries, "</ul>"]
    return Drawn("\n".join(pages))


def _frame(across: Scale, up: Scale) -> Iterator[str]:
    """Grid, numbers and labels of both axes."""
    left, right, top, bottom = _LEFT, _WIDTH - _RIGHT, _TOP, _HEIGHT - _BOTTOM
    for tick in across.ticks:
        at = _x(across, tick)
        yield f'<line class="grid" x1="{at}" x2="{at}" y1="{top}" y2="{bottom}"/>'
        yield f'<text class="tick" x="{at}" y="{bottom}" dy="1.4em" text-anchor="middle">{across.axis.text(tick)}</text>'
    for tick in up.ticks:
        at = _y(up, tick)
        yield f'<line class="grid" x1="{left}" x2="{right}" y1="{at}" y2="{at}"/>'
        yield f'<text class="tick" x="{left - 6}" y="{at}" dy=".35em" text-anchor="end">{up.axis.text(tick)}</text>'
    yield f'<path class="axis" d="M{left} {top}V{bottom}H{right}"/>'
    middle, label = _short((left + right) / 2), _escaped(across.axis.label)
    yield f'<text class="label" x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">{label}</text>'
    yield f'<text class="label" x="2" y="14">{_escaped(up.axis.label)}</text>'


def _guide(across: Scale, up: Scale, share: float, text: str) -> Iterator[str]:
    """The line on which y is this share of x, on logarithmic axes, as far as it is within them; its text at the upper end."""
    first = max(across.low, up.low - math.log10(share))
    last = min(across.high, up.high - math.log10(share))
    if first >= last:
        return
    (x1, y1), (x2, y2) = ((_x(across, 10**at), _y(up, share * 10**at)) for at in (first, last))
    yield f'<line class="guide" x1="{x1}" x2="{x2}" y1="{y1}" y2="{y2}"/>'
    yield f'<text class="guided" x="{x2}" y="{y2}" dx="-4" dy="11" text-anchor="end">{_escaped(text)}</text>'


def _x(scale: Scale, value: float) -> str:
    return _short(_LEFT + scale.share(value) * (_WIDTH - _LEFT - _RIGHT))


def _y(scale: Scale, value: float) -> str:
    return _short(_HEIGHT - _BOTTOM - scale.share(value) * (_HEIGHT - _TOP - _BOTTOM))


def _short(value: float) -> str:
    """A coordinate, to a tenth."""
    return f"{value + 0.0:.1f}".removesuffix(".0")


def _escaped(text: str) -> str:
    return html.escape(text)
