"""The page of one release, report.html: for whoever wants to see what came out, and what was promised.

It is made from released things alone, report.json and the rows, and is a function of them: the same release has the same page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headcount.pipelines.jobs.outcome import Outcome
from headcount.pipelines.jobs.told import missing
from headcount.pipelines.pages import layout, promise, results, texts
from headcount.pipelines.pages.rows import read_rows

# What a command answers, where its name does not say it.
_TITLES = {
    "aggregate": "The numbers of each {keys}",
    "choose-bound": "How much one user may count",
    "count-release": "The largest counts of {keys}",
    "distribution": "How likely each {keys} is",
    "heavy-hitters": "Each {keys} that many users have",
    "partitions": "Each {keys} that enough users have",
    "plume": "How many users have each {keys}",
    "quantiles": "The values of {value} over all users",
    "sampled": "How many users have each {keys}",
    "shape": "What all items have in common, without naming any",
    "top": "Each {keys} with the most users, in order",
}


def release_page(outcome: Outcome) -> bytes:
    """The page of a complete output."""
    report = outcome.report or {}
    rows = read_rows(outcome, results.needed(report))
    details, title = report["details"], _title(report)
    return layout.render(
        "release.html",
        report=report,
        title=report.get("label", title),
        about=title,
        has_label="label" in report,
        facts=_facts(report),
        parts=results.parts(report, rows),
        left_out=_left_out(report),
        sentence=promise.sentence(details["guarantee"]),
        picture=promise.picture(details["guarantee"]),
        whom=details["guarantee"]["unit"].split("-")[0],
        decision=report.get("decision", "").splitlines(),
        parameters=_pairs(details["parameters"]),
        chosen=_pairs(details.get("chosen", {})),
        steps=details["guarantee"]["words"],
        files=report["files"],
        versions=[*details["versions"].items()],
    )


def _title(report: Mapping[str, Any]) -> str:
    """What the release answers, in a few words."""
    command, parameters = report["command"], report["details"]["parameters"]
    *others, last = (texts.name(key) for key in report.get("keys", ["item"]))
    keys = f"{', '.join(others)} and {last}" if others else last
    of = parameters.get("of", "events")
    if command == "histogram" and any(results.is_time(report, key) for key in report.get("keys", [])):
        return f"{of.capitalize()} by {keys}"
    if command == "histogram":
        return f"How many users have each {keys}" if of == "users" else f"How often each {keys} occurs"
    if command == "total":
        found = " and ".join(texts.name(row["of"]) for row in report["shown"] if "of" in row)
        return f"Totals of each {keys}" if report.get("keys") else f"How many {found} there are"
    known = _TITLES.get(command, "A private release by headcount {command}")
    return known.format(keys=keys, value=texts.name(parameters.get("value", "")), command=texts.name(command))


def _facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What stands at the top, in a line."""
    guarantee = report["details"]["guarantee"]
    facts = [("period", texts.name(report["period"], 200))] if "period" in report else []
    facts += [("data set", texts.name(report["dataset"], 200))] if "dataset" in report else []
    facts += [("items", f"{report['rows']:,}")] if report.get("keys") else []
    facts.append(("privacy", f"epsilon {guarantee['epsilon']:.6g}, delta {guarantee['delta']:.6g}"))
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
        lines.append("only items of the given list were counted, and all of them are shown")
    lines += [*missing(report), *report.get("note", "").splitlines(), *report.get("decision", "").splitlines()[1:]]
    return [line for line in lines if line]


def _pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name.replace("_", " "), _value(value)) for name, value in values.items()]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    return f"{value:.15g}" if isinstance(value, float) else texts.name(value, 400)
