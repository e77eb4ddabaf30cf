"""The page over all releases of a report, index.html: what each answers in its first rows, with a link to its own page.

It is made from reports of releases alone, and is a function of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headcount.pipelines.pages import layout
from headcount.pipelines.reports.summary import heading, is_list, nothing, table, title
from headcount.pipelines.sinks.output import PAGE

_FIRST = 5  # rows of each release
_BESIDE = ("_stddev", "_low", "_high")  # columns that the page of a release has alone


def report_page(name: str | None, period: str | None, releases: Sequence[tuple[str, Mapping[str, Any]]]) -> bytes:
    """The page, from the report of each release by the name of its folder."""
    first = releases[0][1]
    facts = [("period", period), ("ledger", f"data set {first['dataset']}" if "dataset" in first else "none")]
    parts = [
        {
            "title": report.get("label", folder),
            "about": None if is_list(report) and report["rows"] else title(report),
            "page": f"{folder}/{PAGE}",
            "words": _words(report),
            "rows": _rows(report),
            "promise": report["promise"],
        }
        for folder, report in releases
    ]
    made = sorted({report["headcount"] for _, report in releases})
    shown = [(what, value) for what, value in facts if value is not None]
    return layout.render("report.html", title=name or "Report", facts=shown, parts=parts, versions=", ".join(made))


def _words(report: Mapping[str, Any]) -> list[str]:
    """What stands above the rows: how many there are; or the answer, where it is one."""
    if not is_list(report):
        return report.get("decision", "").splitlines()[:_FIRST]
    return [heading(_first(report)).rstrip(":")] if report["rows"] else nothing(report)[:1]


def _rows(report: Mapping[str, Any]) -> str:
    if not is_list(report) or not report["rows"]:
        return ""
    columns = [name for name in report["columns"] if not name.endswith(_BESIDE)] if not report.get("keys") else None
    lines = table(report, _first(report)["shown"], report.get("keys", []), only=columns)
    return "\n".join(line.removeprefix("  ") for line in lines)


def _first(report: Mapping[str, Any]) -> dict[str, Any]:
    return {**report, "shown": report["shown"][:_FIRST]}
