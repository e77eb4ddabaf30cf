"""What a page shows of questions about people: a funnel with what is lost, bins, a triangle, lines over days.

All rows stand in the order that they have. Where people are told apart by a column, the first values of it are drawn.
"""

from __future__ import annotations

import datetime
import html
from collections.abc import Mapping, Sequence
from typing import Any

from headcount.pipelines.pages import charts, texts
from headcount.pipelines.pages.axes import Axis
from headcount.pipelines.pages.charts import Bar, Line
from headcount.pipelines.pages.parts import Part
from headcount.pipelines.pages.texts import Drawn
from headcount.pipelines.reports.summary import in_range

MOST_ROWS = 20_000  # that a page looks at
_MOST_VALUES = 8  # of a column that people are told apart by
_MOST_COHORTS, _MOST_TEXTS = 60, 14  # that a triangle has, and up to which its cells have numbers
_WIDTH, _LEFT, _TOP, _CELL = 480, 74, 22, 22  # of a triangle, in units of the picture
_LINE = "The thin line on a bar is the 95 % interval."

Report = Mapping[str, Any]
Row = Mapping[str, Any]


def is_about(report: Report) -> bool:
    """Whether a release answers a question about people."""
    return report["command"] in _DRAWN


def parts(report: Report, rows: Sequence[Row]) -> list[Part]:
    """A part for all people, or for each of the first values that they are told apart by."""
    keys, draw = report.get("keys", []), _DRAWN[report["command"]]
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(texts.name(row[key]) for key in keys), []).append(row)
    made = [draw(", ".join(values), held) for values, held in [*groups.items()][:_MOST_VALUES]]
    if len(groups) > _MOST_VALUES:
        more = f"the files have {len(groups) - _MOST_VALUES:,} more values of {', '.join(map(texts.name, keys))}"
        made.append(Part("All others", [more]))
    return made


def _titled(words: str, value: str) -> str:
    return f"{words}: {value}" if value else words


def _share(row: Row, name: str) -> str:
    return "" if row[name] is None else texts.percent(row[name])


def _number(row: Row) -> str:
    """A count, worded by its interval."""
    return in_range(row["count"], row["low"], row["high"], texts.number)


def _funnel(value: str, rows: Sequence[Row]) -> Part:
    """A bar for each step, and between two of them a quiet one for the users who were lost."""
    made = []
    for before, row in zip([None, *rows], rows, strict=False):
        if before is not None:
            lost = before["count"] - row["count"]
            share = "" if row["share_of_before"] is None else texts.percent(1 - row["share_of_before"])
            made.append(Bar(("lost on the way",), texts.number(lost), lost, beside=share, quiet=True))
        named = f"{row['step']}. {texts.name(row['condition'])}"
        beside = f"{_share(row, 'share_of_first')} of the first"
        made.append(Bar((named,), _number(row), row["count"], row["low"], row["high"], beside))
    drawn = charts.bars(made, ["step", "users", "share"])
    caption = f"{_LINE} What is lost is a share of the step before."
    return Part(_titled("How many users came to each step", value), drawn=drawn, caption=caption)


def _activity(value: str, rows: Sequence[Row]) -> Part:
    made = [
        Bar((row["events"],), _number(row), row["count"], row["low"], row["high"], _share(row, "share")) for row in rows
    ]
    return Part(
        _titled("How many users have how many events", value),
        drawn=charts.bars(made, ["events", "users", "share"]),
        caption=_LINE,
    )


def _retention(value: str, rows: Sequence[Row]) -> Part:
    """A triangle whose cells are the darker the larger their share of the cohort is, and the same as a table."""
    cohorts: dict[str, list[Row]] = {}
    for row in rows:
        cohorts.setdefault(str(row["cohort"]), []).append(row)
    shown = dict([*cohorts.items()][:_MOST_COHORTS])
    words = [] if len(shown) == len(cohorts) else [f"these are the first {len(shown)} of {len(cohorts)} cohorts"]
    return Part(
        _titled("How many users of each cohort came back", value),
        words,
        drawn=_triangle(shown),
        caption="A row is a cohort, a column its age: at 0 all users of the cohort, later how many percent of them are there. "
        "The darker a cell is, the more are.",
        folded=("The same as a table, with 95 % intervals", _table(shown)),
    )


def _actives(value: str, rows: Sequence[Row]) -> Part:
    """A line with its interval for each window, over the days."""
    first = datetime.date.fromisoformat(str(rows[0]["day"]))
    series: dict[int, list[tuple[float, Row]]] = {}
    for row in rows:
        day = (datetime.date.fromisoformat(str(row["day"])) - first).days
        series.setdefault(row["window"], []).append((float(day), row))
    drawn = [
        Line(
            "on that day" if window == 1 else f"in {window} days",
            [(day, row["count"]) for day, row in held],
            [(day, row["low"], row["high"]) for day, row in held],
        )
        for window, held in sorted(series.items(), reverse=True)
    ]
    last = {line.name: texts.number(line.points[-1][1]) for line in drawn}
    alt = f"Active users over {len(drawn[0].points)} days. At the end: {', '.join(f'{last[name]} {name}' for name in last)}."
    picture = charts.lines(drawn, Axis(f"days since {first}"), Axis("users"), alt)
    return Part(_titled("How many users are active", value), drawn=picture, caption="The bands are the 95 % intervals.")


def _triangle(cohorts: Mapping[str, Sequence[Row]]) -> Drawn:
    ages = max(map(len, cohorts.values()))
    wide = (_WIDTH - _LEFT) / ages
    later = [row["share"] or 0.0 for held in cohorts.values() for row in held if row["age"] > 0]
    most = max(later, default=0.0) or 1.0
    alt = f"A triangle of {len(cohorts)} cohorts by age. The largest share that came back is {texts.percent(most)}."
    height = _TOP + _CELL * len(cohorts) + 2
    found = [f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{html.escape(alt)}">']
    every = -(-ages // _MOST_TEXTS)
    for age in range(0, ages, every):
        found.append(
            f'<text class="tick" x="{_LEFT + wide * (age + 0.5):.1f}" y="14" text-anchor="middle">{age}</text>'
        )
    for line, (cohort, held) in enumerate(cohorts.items()):
        top = _TOP + _CELL * line
        found.append(f'<text class="tick" x="0" y="{top + 15}">{html.escape(cohort)}</text>')
        for row in held:
            share = 1.0 if row["age"] == 0 else min(1.0, (row["share"] or 0.0) / most)
            left = _LEFT + wide * row["age"]
            opacity = 0.12 if row["age"] == 0 else 0.05 + 0.6 * share
            found.append(
                f'<rect class="cell" x="{left:.1f}" y="{top}" width="{wide - 1:.1f}" height="{_CELL - 1}" '
                f'fill-opacity="{opacity:.2f}"/>'
            )
            if ages <= _MOST_TEXTS:
                told = texts.number(round(row["count"])) if row["age"] == 0 else _percent(row["share"])
                found.append(
                    f'<text class="label" x="{left + wide / 2:.1f}" y="{top + 15}" text-anchor="middle">{told}</text>'
                )
    return Drawn("\n".join([*found, "</svg>"]))


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f}"


def _table(cohorts: Mapping[str, Sequence[Row]]) -> Drawn:
    """The numbers, for whoever cannot see the picture or wants to copy them."""
    heads = ["cohort", "age", "users", "95 % interval", "share"]
    head = "".join(f'<th scope="col"{_NUMBER * (place > 0)}>{each}</th>' for place, each in enumerate(heads))
    lines = []
    for cohort, held in cohorts.items():
        for row in held:
            low, high = (texts.number(round(row[end])) for end in ("low", "high"))
            cells = [str(row["age"]), texts.number(round(row["count"])), f"{low} to {high}", _share(row, "share")]
            numbers = "".join(f"<td{_NUMBER}>{html.escape(each)}</td>" for each in cells)
            lines.append(f'<tr><th scope="row">{html.escape(cohort)}</th>{numbers}</tr>')
    body = f'<table class="rows"><thead><tr>{head}</tr></thead><tbody>'
    return Drawn("\n".join(['<div class="wide">', body, *lines, "</tbody></table>", "</div>"]))


_NUMBER = ' class="number"'
_DRAWN = {"funnel": _funnel, "activity": _activity, "retention": _retention, "actives": _actives}
