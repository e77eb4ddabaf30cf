"""The page of a ledger: what each data set has spent over time against its limit, and its releases."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence

from headcount.pipelines.ledger import descriptions, spending
from headcount.pipelines.ledger.records import SPENT, Dataset, Entry, now
from headcount.pipelines.pages import charts, layout
from headcount.pipelines.pages.axes import Axis
from headcount.pipelines.pages.texts import Drawn

_MOST_POINTS = 60  # of a line: totals are worked out for each


def ledger_page(name: str, kept: Sequence[tuple[Dataset, Sequence[Entry]]]) -> bytes:
    """The page of these data sets with their entries."""
    parts = [
        {
            "title": dataset.name,
            "words": descriptions.totalled(dataset, entries, earlier=False).splitlines()[1:],
            "limit": f"{dataset.limit_description()}, to each {dataset.unit} under {dataset.relation}",
            "drawn": _drawn(dataset, entries),
            "rows": descriptions.table(entries),
        }
        for dataset, entries in kept
    ]
    return layout.render("ledger.html", name=name, at=now()[:16].replace("T", " "), parts=parts)


def _drawn(dataset: Dataset, entries: Sequence[Entry]) -> Drawn | None:
    """What was spent after each release that counts; none without one."""
    counted = [entry for entry in entries if entry.state in SPENT]
    if not counted:
        return None
    first = _time(counted[0])
    steps = [*_steps(dataset, counted, first)]
    end = max(steps[-1][0], 1.0)
    drawn = [
        charts.Line("spent, composed", [(day, composed) for day, composed, _ in steps]),
        charts.Line("spent, added up", [(day, added) for day, _, added in steps]),
        charts.Line("limit", [(0.0, dataset.limit_epsilon), (end, dataset.limit_epsilon)]),
    ]
    each = f"since the beginning of each {dataset.per}" if dataset.per else "by all releases so far"
    return charts.lines(
        drawn,
        Axis(f"days since {first:%Y-%m-%d}"),
        Axis(f"epsilon at delta = {dataset.limit_delta:g}"),
        f"epsilon that is spent {each}, composed and added up, and the limit of {dataset.limit_epsilon:g}",
    )


def _steps(
    dataset: Dataset, entries: Sequence[Entry], first: datetime.datetime
) -> Iterator[tuple[float, float, float]]:
    """Days since the first release, and what is spent then, composed and added up, in the month or year of each."""
    stride = -(-len(entries) // _MOST_POINTS)
    for number, entry in enumerate(entries):
        if number % stride == 0 or number == len(entries) - 1:
            total = spending.total(spending.spent(entries[: number + 1], entry.span), dataset)
            yield (_time(entry) - first).total_seconds() / 86400, total.epsilon, total.sum_epsilon


def _time(entry: Entry) -> datetime.datetime:
    return datetime.datetime.fromisoformat(entry.changes[0].at)
