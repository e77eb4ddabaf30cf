"""What one release is worth, measured against the truth. Nothing of it is private: it is for public or made-up data."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from headcount.mechanisms.histogram.estimates import Estimated
from headcount.pipelines.studies.data import Data
from headcount.pipelines.studies.methods import QUESTIONS

#: Of how many users an item must be for `drop_rate` to miss it.
LARGE_FROM = 100

#: What the numbers mean, by the names of the columns.
MEANINGS = {
    "items": "items shown",
    "median_error": "half of the items shown have a count that is this close to the true one, as a share of it, or closer",
    "error_90": "the same for nine tenths of them",
    "held": "the share of the items shown whose interval, low to high, holds the true number; of estimates",
    "covered": "the share of all events that are of items shown",
    "missing": "the share of all events that are of items not shown",
    "missing_mass": "the share of all pairs of a user and an item whose item is not shown",
    "drop_rate": "the share of the large items that are not shown",
    "spurious_rate": "the share of the items shown that nobody has",
    "total_error": "the sum of the counts shown against the true sum over all items: -0.1 is a tenth too low",
    "l1": "the errors of all items together as a share of the true sum, where an item not shown counts as 0",
    "saved": "1 - l1: 1 is the truth, and 0 is worth as much as nothing shown",
}


@dataclasses.dataclass(frozen=True)
class Score:
    """A release against the truth, or the mean of several; see MEANINGS. None is what cannot be said.

    That is an error of counts where only names are released or nothing is shown, and a drop rate without large items.
    """

    items: float
    median_error: float | None
    error_90: float | None
    held: float | None
    covered: float
    missing: float
    missing_mass: float
    drop_rate: float | None
    spurious_rate: float
    total_error: float | None
    l1: float | None
    saved: float | None


def score(rows: pa.RecordBatch, data: Data, question: str, large_from: int = LARGE_FROM, decision: Any = None) -> Score:
    """What released rows are worth as an answer to the question. `decision` is what was decided on the way: intervals of events
    are of those that the cap on one item lets count."""
    asked, place = QUESTIONS[question], data.places(rows.column("item"))
    true, shown = data.truth(asked.of), np.zeros(len(data.items), dtype=bool)
    held = place >= 0
    shown[place[held]] = True
    large = data.users >= large_from
    covered = _share(data.events[shown].sum(), data.events.sum())
    errors: tuple[float | None, ...] = (None,) * 5
    if asked.counts:
        name = "count" if "count" in rows.schema.names else "bounded_count"
        errors = _errors(np.asarray(rows.column(name), dtype=float), true, place)
    median, most, total, l1, saved = errors
    return Score(
        items=rows.num_rows,
        median_error=median,
        error_90=most,
        held=_held(rows, data, asked.of, place, decision),
        covered=covered,
        missing=1 - covered,
        missing_mass=1 - _share(data.users[shown].sum(), data.users.sum()),
        drop_rate=_share((large & ~shown).sum(), large.sum()) if large.any() else None,
        spurious_rate=_share((~held).sum(), rows.num_rows),
        total_error=total,
        l1=l1,
        saved=saved,
    )


def _held(rows: pa.RecordBatch, data: Data, of: str, place: np.ndarray, decision: Any) -> float | None:
    """The share of estimates whose interval holds the true number: other rows have that of their noise alone."""
    if not isinstance(decision, Estimated) or "count" not in rows.schema.names or rows.num_rows == 0:
        return None
    true = data.truth(of, decision.plan.kept.max_per_item)
    there = np.where(place >= 0, true[place], 0)
    low, high = (np.asarray(rows.column(name), dtype=float) for name in ("low", "high"))
    return float(np.mean((low <= there) & (there <= high)))


def _errors(counts: np.ndarray, true: np.ndarray, place: np.ndarray) -> tuple[float | None, ...]:
    """Median and 90 % quantile of the relative errors of items that somebody has, total error, l1 and what is saved."""
    held = place >= 0
    there = true[place[held]].astype(float)
    error, whole = np.abs(counts[held] - there), float(true.sum())
    relative = error / there
    median, most = (float(np.quantile(relative, share)) if len(relative) else None for share in (0.5, 0.9))
    if whole == 0:
        return median, most, None, None, None
    l1 = float(error.sum() + np.abs(counts[~held]).sum() + whole - there.sum()) / whole
    return median, most, float(counts.sum()) / whole - 1, l1, 1 - l1


def mean(scores: Iterable[Score]) -> Score:
    """The mean of several releases: of each number over those releases that have it."""
    each = list(scores)
    found: dict[str, Any] = {}
    for field in dataclasses.fields(Score):
        values = [value for one in each if (value := getattr(one, field.name)) is not None]
        found[field.name] = statistics.fmean(values) if values else None
    return Score(**found)


def _share(part: int, whole: int) -> float:
    return float(part / whole) if whole else 0.0
