"""What a rehearsal found: as lines for a terminal, as a table, and as CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.pages import charts, layout
from headcount.pipelines.pages.axes import Axis
from headcount.pipelines.pages.charts import Drawn, Line
from headcount.pipelines.reports.summary import aligned
from headcount.pipelines.storage import stores
from headcount.pipelines.studies.methods import QUESTIONS, Method
from headcount.pipelines.studies.run import Cell
from headcount.pipelines.studies.scores import MEANINGS

#: What stands above everything that a rehearsal shows.
NOT_PRIVATE = "NOT PRIVATE: measured against the exact truth, for data that is public or made up and for no other"

CSV, PAGE = "rehearse.csv", "rehearse.html"

# The columns of the terminal, and what they are called there.
_COUNTS = {
    "items": "items",
    "median_error": "half within",
    "error_90": "90 % within",
    "held": "intervals hold",
    "covered": "events shown",
    "drop_rate": "large missed",
    "total_error": "total off by",
    "saved": "saved",
}
_NAMES = {"items": "items", "missing_mass": "missing mass", "covered": "events shown", "drop_rate": "large missed"}


@dataclasses.dataclass(frozen=True)
class Rehearsal:
    """The cells of a grid on one data set, which `data` describes in words. Not private.

    Printed, it is what the terminal shows; in a notebook, curves and a table of the means.
    """

    data: str
    cells: tuple[Cell, ...]
    releases: int
    large_from: int

    def __repr__(self) -> str:
        return self.text()

    def text(self) -> str:
        """All of it, for a terminal."""
        lines = [NOT_PRIVATE, self._about()]
        for question in self.questions():
            lines += ["", f"{QUESTIONS[question].description}:", "", *self._block(question)]
        return "\n".join([*lines, "", *self._notes()])

    def questions(self) -> list[str]:
        """Those that were asked, in their order."""
        asked = {cell.method.question for cell in self.cells}
        return [question for question in QUESTIONS if question in asked]

    def of(self, question: str) -> list[Cell]:
        """The cells that answer a question, by epsilon, and then as the methods are listed."""
        found = [cell for cell in self.cells if cell.method.question == question]
        return sorted(found, key=lambda cell: cell.promised.epsilon)

    def methods(self) -> list[Method]:
        """The methods that were run, each once."""
        return list(dict.fromkeys(cell.method for cell in self.cells))

    def best(self, question: str) -> set[tuple[str, float]]:
        """At each epsilon, the method whose counts save most, or whose names miss the least mass: none, if nothing is shown."""
        counts = QUESTIONS[question].counts
        found: dict[float, tuple[float, str]] = {}
        for cell in self.of(question):
            worth = None if cell.mean is None else cell.mean.saved if counts else 1 - cell.mean.missing_mass
            if worth is not None and worth > found.get(cell.promised.epsilon, (0.0, ""))[0]:
                found[cell.promised.epsilon] = worth, cell.method.name
        return {(name, epsilon) for epsilon, (_, name) in found.items()}

    def records(self) -> Iterator[dict[str, Any]]:
        """Every release as a row of plain values; a refused budget is one row, without scores."""
        for cell in self.cells:
            shared = {
                "question": cell.method.question,
                "method": cell.method.name,
                "command": cell.method.description(),
                **cell.promised._asdict(),
            }
            if cell.refused is not None:
                yield shared | dict.fromkeys(("release", *MEANINGS, "decision")) | {"refused": cell.refused}
            for number, (one, decision) in enumerate(zip(cell.scores, cell.decisions, strict=True), 1):
                scores = {"release": number, **dataclasses.asdict(one)}
                yield shared | scores | {"decision": decision, "refused": None}

    @property
    def table(self) -> pa.Table:
        """Every release as a row, as an Arrow table."""
        texts = dict.fromkeys(("question", "method", "command", "relation", "decision", "refused"), pa.string())
        rows = list(self.records())
        types = {name: pa.float64() for name in rows[0]} | texts | {"release": pa.int64()} if rows else texts
        return pa.Table.from_pylist(rows, pa.schema(list(types.items())))

    def to_pandas(self) -> Any:
        """Every release as a row, as a pandas frame; it needs pandas."""
        return self.table.to_pandas()

    def csv(self) -> str:
        """Every release as a line."""
        rows, written = list(self.records()), io.StringIO()
        writer = csv.DictWriter(written, rows[0] if rows else ["question"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return written.getvalue()

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> list[str]:
        """Write rehearse.csv and rehearse.html into a folder; the paths of what was written."""
        return write_files(os.fspath(folder), overwrite, {CSV: self.csv().encode(), PAGE: self.html()})

    def html(self) -> bytes:
        """A page of its own, with curves."""
        return layout.render("rehearse.html", **self._drawn())

    def _drawn(self) -> dict[str, Any]:
        parts = []
        for question in self.questions():
            heads, *rows = self._cells(question)
            asked = QUESTIONS[question]
            drawn = curves(self.of(question), asked.counts)
            parts.append({"title": asked.description.capitalize(), "charts": drawn, "heads": heads, "rows": rows})
        bands = " The shaded parts reach from the least to the most of the releases." if self.releases > 1 else ""
        about = f"{self._about()}.{bands}"
        return {"not_private": NOT_PRIVATE, "about": about, "questions": parts, "notes": self._notes()}

    def _about(self) -> str:
        each = "one release" if self.releases == 1 else f"means of {self.releases} releases"
        return f"{self.data}; {each} at each epsilon"

    def _repr_html_(self) -> str:
        return layout.render_fragment("rehearse.html", **self._drawn())

    def _block(self, question: str) -> list[str]:
        cells = self._cells(question)
        return aligned(cells, [at == 1 for at in range(len(cells[0]))])

    def _cells(self, question: str) -> list[list[str]]:
        """The means of a question as texts, under their names."""
        columns, best = _COUNTS if QUESTIONS[question].counts else _NAMES, self.best(question)
        lines = [["epsilon", "method", *columns.values()]]
        before = None
        for cell in self.of(question):
            epsilon = cell.promised.epsilon
            mark = "*" if (cell.method.name, epsilon) in best else ""
            start = ["" if epsilon == before else f"{epsilon:g}", f"{cell.method.name}{mark}"]
            before = epsilon
            values = ["refused"] if cell.mean is None else [shown(name, getattr(cell.mean, name)) for name in columns]
            lines.append(start + values + [""] * (len(columns) - len(values)))
        return lines

    def _notes(self) -> list[str]:
        questions = [QUESTIONS[question] for question in self.questions()]
        notes = ["* the best at its epsilon: counts by what is saved, names by their missing mass"]
        if any(question.counts for question in questions):
            notes += [
                "half within, 90 % within: how far counts of shown items are from the true ones, as a share of these",
                "total off by: the sum of all counts shown against the true sum over all items, shown or not",
                "saved: 1 less all errors together as a share of the true sum; 100 % is the truth, 0 % as nothing shown",
            ]
        if not all(question.counts for question in questions):
            notes.append("missing mass: of all pairs of a user and an item, the share whose item is not shown")
        notes += [
            "events shown: the share of all events that are of items shown; the rest is missing",
            f"large missed: the share of items of {self.large_from:,} users or more that is not shown",
            self._spurious(),
        ]
        notes += [
            f"{method.name}: {method.description()}"
            for method in self.methods()
            if method.description() != f"headcount {method.name}"
        ]
        refused = dict.fromkeys((cell.method.name, cell.refused) for cell in self.cells if cell.refused is not None)
        return notes + [f"{name} refused: {why}" for name, why in refused]

    def _spurious(self) -> str:
        wrong = [cell.method.name for cell in self.cells if any(one.spurious_rate > 0 for one in cell.scores)]
        if wrong:
            return f"items that nobody has were shown by {', '.join(dict.fromkeys(wrong))}: this must not be, please report it"
        return "no item was shown that nobody has"


def write_files(folder: str, overwrite: bool, contents: Mapping[str, bytes]) -> list[str]:
    """Write the files of a study into a folder; the paths of what was written."""
    directory = check_folder(folder, overwrite, list(contents))
    for name, content in contents.items():
        stores.write(stores.join(directory, name), content)
    return [stores.join(folder, name) for name in contents]


def check_folder(folder: str, overwrite: bool, names: Sequence[str] = (CSV, PAGE)) -> str:
    """The folder of a study, which is made; refuses one that cannot be written to, or has such files already."""
    directory = stores.normal(folder)
    try:
        present = [name for name in names if stores.exists(stores.join(directory, name))]
        stores.make_directory(directory)
    except OSError as error:
        raise ParameterError(f"cannot write to the folder {folder!r}: {stores.reason(error)}") from error
    if present and not overwrite:
        raise ParameterError(
            f"the folder {folder!r} has a {present[0]} already: give another, or have it overwritten (--overwrite)"
        )
    return directory


def shown(name: str, value: float | None) -> str:
    """A number of a score as it is shown."""
    if value is None:
        return "-"
    if name == "items":
        return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
    sign = "+" if name == "total_error" and value > 0 else ""
    return f"{sign}{100 * value:.{1 if abs(value) < 0.0995 else 0}f} %"


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
