"""What a ledger says: lists and totals for people, lines for programs."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headcount.pipelines.ledger import spending
from headcount.pipelines.ledger.records import OPEN, SPENT, Dataset, Entry, Users, now
from headcount.pipelines.reports.summary import aligned
from headcount.pipelines.sinks.formats import not_run
from headcount.pipelines.terminal import one_line

if TYPE_CHECKING:
    from headcount.pipelines.ledger.approvals import Approval

_FIELDS = (
    *("id", "dataset", "span", "state", "at", "who", "release_id", "command", "label", "period"),
    *("epsilon", "delta", "unit", "relation", "user_column", "time_column", "time_zone", "output"),
    *("report_sha256", "rows_sha256", "release_sha256", "parameters_sha256", "runner", "guarantee", "changes"),
)


_HEADS = ("at (UTC)", "state", "epsilon", "delta", "command", "release", "what")


def table(entries: Sequence[Entry]) -> list[tuple[str, ...]]:
    """Headings, and a row of texts for each release."""
    rows: list[tuple[str, ...]] = [_HEADS]
    for entry in entries:
        request = entry.request
        what = ", ".join(filter(None, (request.label, request.period, request.output)))
        epsilon, delta = f"{request.guarantee.epsilon:.4g}", f"{request.guarantee.delta:.2g}"
        at, release_id = entry.changes[0].at[:16], request.release_id
        rows.append(tuple(map(one_line, (at, entry.state, epsilon, delta, request.command, release_id, what))))
    return rows


def listed(dataset: Dataset, entries: Sequence[Entry], approvals: Sequence[Approval] = ()) -> str:
    """A data set with its limit, the plans that were approved, and its releases in order."""
    head = (
        f"data set {dataset.name}, limit {dataset.limit_description()}, to each {dataset.unit} under {dataset.relation}"
    )
    known = dataset.users if dataset.user_column is not None else _first_users(entries)
    head += "" if known is None else f", told apart by {known.description()}"
    head = "\n".join([head, *map(_approval, approvals)])
    if not entries:
        return f"{head}\n  no release yet"
    return "\n".join([head, "", *aligned(table(entries), [True] * len(_HEADS))])


def _approval(approval: Approval) -> str:
    names = ", ".join(release.name for release in approval.releases)
    end = "" if approval.withdrawn is None else f"; withdrawn on {approval.withdrawn[:10]}"
    return one_line(
        f"plan {approval.plan_sha256[:16]} ({names}): approved by {approval.said_by} on {approval.at[:10]}{end}"
    )


def _first_users(entries: Sequence[Entry]) -> Users | None:
    """Whom the first release that counts protects, and so all others."""
    return next((entry.request.users for entry in entries if entry.state in SPENT), None)


def totalled(dataset: Dataset, entries: Sequence[Entry], earlier: bool = True) -> str:
    """What is spent and left under the limit, in each month or year, also the earlier ones, and in all."""
    current = dataset.span(now())
    here = spending.Room(dataset, spending.spent(entries, current))
    lines = [
        f"data set {dataset.name}: limit {dataset.limit_description()}, to each {dataset.unit} under {dataset.relation}",
        f"{f'in {current}' if current else 'spent'}: {here.total.description(dataset.limit_delta)}",
        f"left: {here.description()}",
    ]
    if dataset.per:
        for span in sorted({entry.span for entry in entries} - {current}) if earlier else ():
            lines.append(f"in {span}: {_total(dataset, entries, span).description(dataset.limit_delta)}")
        ever = _total(dataset, entries)
        lines.append(f"in all time, for which there is no limit: {ever.description(dataset.limit_delta)}")
    reserved = sum(entry.state in OPEN for entry in entries)
    if reserved:
        lines.append(
            f"{reserved:,} of these are only reserved, and count: headcount ledger resolve looks at their outputs"
        )
    return "\n".join(lines)


def totalled_json(dataset: Dataset, entries: Sequence[Entry]) -> str:
    """What is spent and left, for a program."""
    return json.dumps(totals(dataset, entries), indent=2, allow_nan=False)


def totals(dataset: Dataset, entries: Sequence[Entry]) -> dict[str, Any]:
    """What is spent and left, as plain values: the current month or year first, and `ever` of all time."""
    current = dataset.span(now())
    spent = spending.spent(entries, current)
    room = spending.Room(dataset, spent)
    earlier = sorted({entry.span for entry in entries} - {current}) if dataset.per else []
    here = _numbers(room.total, dataset, current or None)
    return {
        "dataset": dataset.name,
        "limit": {"epsilon": dataset.limit_epsilon, "delta": dataset.limit_delta, "per": dataset.per},
        "unit": dataset.unit,
        "relation": dataset.relation,
        "spent": here,
        "left": {"epsilon": room.left(), "delta": 0.0},
        "more_like_the_last": room.more_like(spent[-1]) if spent else None,
        "earlier": [_numbers(_total(dataset, entries, span), dataset, span) for span in earlier],
        "ever": _numbers(_total(dataset, entries), dataset, None) if dataset.per else here,
        "only_reserved": sum(entry.state in OPEN for entry in entries),
    }


def _total(dataset: Dataset, entries: Sequence[Entry], span: str | None = None) -> spending.Total:
    return spending.total(spending.spent(entries, span), dataset)


def _numbers(total: spending.Total, dataset: Dataset, span: str | None) -> dict[str, Any]:
    """A total as values; epsilon is null where no epsilon holds at the delta of the limit."""
    return {
        "span": span,
        "releases": total.releases,
        "epsilon": total.epsilon if math.isfinite(total.epsilon) else None,
        "delta": dataset.limit_delta,
        "added_up": {"epsilon": total.sum_epsilon, "delta": total.sum_delta},
    }


def json_lines(entries: Iterable[Entry]) -> str:
    """One object in a line for each entry, with its whole guarantee and history; in ASCII, so that all terminals show it."""
    return "\n".join(json.dumps(entry.as_dict(), allow_nan=False) for entry in entries)


def csv_lines(entries: Iterable[Entry]) -> str:
    """One row for each entry; guarantee and history are JSON in their cells, and no text is run by a spreadsheet."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _FIELDS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for entry in entries:
        row = entry.as_dict()
        row |= {name: row["guarantee"][name] for name in ("epsilon", "delta", "unit", "relation")}
        row |= {name: json.dumps(row[name]) for name in ("guarantee", "changes")}
        writer.writerow({name: not_run(each) if isinstance(each, str) else each for name, each in row.items()})
    return text.getvalue().rstrip("\n")
