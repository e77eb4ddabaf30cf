"""The page of one release, report.html: for whoever wants to see what came out, and what was promised.

It is made from released things alone, report.json and the rows, and is a function of them: the same release has the same page.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from headcount.mechanisms.accounting.windows import WINDOWS
from headcount.pipelines.flags.options import LARGE_EPSILON, hint_text
from headcount.pipelines.pages import layout, promise, results, texts
from headcount.pipelines.pages.rows import read_rows, rows_of
from headcount.pipelines.reports.outcome import Outcome
from headcount.pipelines.reports.summary import missing, title
from headcount.pipelines.sinks.finished import changed_note


def release_page(outcome: Outcome) -> bytes:
    """The page of a complete output."""
    report = outcome.report or {}
    rows = read_rows(outcome, results.needed(report))
    details, about = report["details"], title(report)
    guarantee = details["guarantee"]
    return layout.render(
        "release.html",
        report=report,
        title=report.get("label", about),
        about=about,
        changed=changed_note(report),
        weak=hint_text(guarantee["epsilon"], guarantee["delta"]),
        has_label="label" in report,
        facts=_facts(report),
        parts=results.parts(report, rows),
        left_out=_left_out(report),
        sentence=promise.sentence(guarantee),
        picture=promise.picture(guarantee),
        whom=guarantee["unit"].split("-")[0],
        decision=report.get("decision", "").splitlines(),
        parameters=_pairs(details["parameters"]),
        chosen=_pairs(details.get("chosen", {})),
        steps=guarantee["words"],
        files=report["files"],
        versions=[*details["versions"].items()],
    )


def release_fragment(report: Mapping[str, Any], table: pa.Table, worded: Callable[[str], str]) -> str:
    """The same for a notebook, from rows in memory: what came out and what must be known of it, each line as it is `worded`
    there, and the promise."""
    parts = results.parts(report, rows_of(table, report, results.needed(report)))
    above = {line for part in parts for line in part.words}
    beside = (*missing(report), *(report.get(each) for each in ("protected", "note", "decision")))
    lines = [line for each in beside if each for line in each.splitlines()]
    named = report.get("label", title(report))
    return layout.render_fragment(
        "result.html",
        title=None if named == parts[0].heading else named,
        parts=[dataclasses.replace(part, words=[*map(worded, part.words)]) for part in parts],
        beside=[worded(line) for line in lines if line not in above],
        promise=report["promise"],
    )


def _facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What stands at the top, in a line."""
    guarantee, parameters = report["details"]["guarantee"], report["details"]["parameters"]
    facts = [(each, texts.name(report[each], 200)) for each in ("date", "period") if each in report]
    account = f"data set {texts.name(report['dataset'], 200)}" if "dataset" in report else "none"
    facts.append(("ledger", account))
    facts += [("items", f"{report['rows']:,}")] if report.get("keys") else []
    weak = " (weak)" * (guarantee["epsilon"] > LARGE_EPSILON)
    facts.append(("privacy", f"epsilon {guarantee['epsilon']:.6g}{weak}, delta {guarantee['delta']:.6g}"))
    facts += [("rows", f"where {texts.name(parameters['where'], 200)}")] if "where" in parameters else []
    facts += [("public table", f"by {texts.name(parameters['on'])}")] if "join_digest" in parameters else []
    window = WINDOWS.get(guarantee["unit"])
    if window is not None:
        zone, column = (texts.name(parameters.get(each, "UTC")) for each in ("time_zone", "time"))
        facts.append(("protected", f"what a user did in one {window}, by {column} in {zone}"))
    return [*facts, ("made by", f"headcount {texts.name(report['command'])}")]


def _left_out(report: Mapping[str, Any]) -> list[str]:
    """What is not in the numbers, and why."""
    lines = []
    if "users_needed" in report and report["rows"]:
        lines.append(
            f"an item needs about {report['users_needed']:,} users to be shown, if each counts once: what fewer have is "
            "missing, as it could tell of them"
        )
    if report["details"]["parameters"].get("public_domain"):
        shown = "" if report.get("left_out") else ", and all of them are shown"
        lines.append(f"only items of the given list were counted{shown}")
    lines += [
        *(line.removeprefix("- ") for line in missing(report)),
        *report.get("note", "").splitlines(),
        *report.get("decision", "").splitlines()[1:],
    ]
    return [line for line in lines if line]


def _pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name.replace("_", " "), _value(value)) for name, value in values.items()]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    return f"{value:.15g}" if isinstance(value, float) else texts.name(value, 400)
