"""The tables of the pages, from what a run of `peers.py --record` wrote; a test holds that pages and results agree."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
RESULTS = TOP / "benchmarks" / "peers.json"
PAGES = {"docs/peers.md": "short", "docs/aggregate.md": "short", "benchmarks/README.md": "long"}
METRICS = ("users", "events", "sum", "mean")
FEWEST = 10  # keys that a setting must release to be the best in hindsight, where keys are named

Line = dict[str, Any]


def rounded(value: Any) -> Any:
    """Numbers of four figures, in whatever holds them."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def words(setting: Line) -> str:
    """A setting as the tables call it."""
    given = [f"m={setting['m']} c={setting['c']}", {"laplace": "Laplace", "gaussian": "Gaussian"}[setting["noise"]]]
    given += ["weighted names first"] if setting.get("select", "").startswith("WEIGHTED") else []
    given += [f"names of {setting['names']}"] if "names" in setting else []
    return ", ".join(given + (["on Beam"] if setting.get("beam") else []))


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def percent(values: list[float]) -> str:
    """The mean of some shares in percent, and half of their range if there are several."""
    if not values:
        return "none"
    spread = f" ± {50 * (max(values) - min(values)):.1g}" if len(values) > 1 else ""
    return f"{100 * mean(values):.2g}{spread}"


def error(line: Line, metric: str) -> str:
    """Theirs and ours on the same keys, in percent."""
    each = line["errors"][metric]
    if line["who"] == "Headcount" or not each["ours"]:
        return percent(each["theirs"])
    return f"{percent(each['theirs'])}; ours {100 * mean(each['ours']):.2g}"


def ratio(line: Line, metric: str) -> float:
    """Their error by ours; infinite where nothing can be compared."""
    each = line["errors"][metric]
    return mean(each["theirs"]) / mean(each["ours"]) if each["theirs"] else float("inf")


def holding(shares: Line) -> str:
    """How often intervals hold, by metric; which metrics have none."""
    told = [f"{name} {share:.2f}".replace("0.", ".") for name, share in shares.items() if share is not None]
    return ", ".join(told) if told else "tells none"


def enough(line: Line, log: Line) -> bool:
    return log["public"] or mean(line["keys"]) >= FEWEST


def best(lines: list[Line], log: Line) -> Line:
    """The best of all settings, for each number by itself: no single setting need be good at all of them."""
    fit = [line for line in lines if enough(line, log)] or lines
    shares = {name: [line["held"][name] for line in fit if line["held"][name] is not None] for name in METRICS}
    return {
        "who": lines[0]["who"],
        "setting": f"best of {len(lines)}, each number by itself",
        "keys": [max(mean(line["keys"]) for line in lines)],
        "errors": {name: min(fit, key=lambda line, name=name: ratio(line, name))["errors"][name] for name in METRICS},
        "held": {name: max(each) if each else None for name, each in shares.items()},
        "cpu": min(line["cpu"] for line in lines),
        "wall": min(line["wall"] for line in lines),
    }


def row(line: Line, versions: Line) -> str:
    cells = [f"{line['who']} {versions[line['who']]}", line["setting"], f"{mean(line['keys']):,.0f}"]
    cells += [error(line, metric) for metric in METRICS]
    seconds = [f"{line['cpu']:.2g}" if line["cpu"] < 10 else f"{line['cpu']:,.0f}", f"{line['wall']:,.0f}"]
    cells += [holding(line["held"]), *seconds]
    return f"| {' | '.join(cells)} |"


def closer(log: Line) -> str:
    """Where another library has a smaller error than ours on the same keys, or names more keys."""
    own, *others = log["lines"]
    found = []
    for line in others:
        for metric in METRICS:
            if line["errors"][metric]["theirs"] and ratio(line, metric) < 1:
                each = line["errors"][metric]
                keys = "" if log["public"] else f", on {mean(line['keys']):,.0f} keys"
                pair = f"{100 * mean(each['theirs']):.2g} % and ours {100 * mean(each['ours']):.2g} %"
                found.append(f"- {metric} of {line['who']} ({line['setting']}): {pair}{keys}")
        if mean(line["keys"]) > mean(own["keys"]):
            found.append(f"- {line['who']} ({line['setting']}) names more keys: {mean(line['keys']):,.0f}")
    if not found:
        return "No setting of another library had a smaller error than ours on the same keys, or named more of them."
    return "\n".join(["Where another library is closer than ours on the same keys:", "", *found])


def table(log: Line, results: Line, form: str) -> str:
    """The table of one log: two lines for each library in short, one for each setting in long."""
    own, *others = log["lines"]
    lines = [own]
    for who in dict.fromkeys(line["who"] for line in others):
        of = [line for line in others if line["who"] == who]
        beam = [line for line in of if line["setting"].endswith("on Beam")]
        local = [line for line in of if line not in beam]
        lines += of if form == "long" else [local[0], best(local, log), *beam]
    heads = [
        "who",
        "bounds",
        "keys",
        *(f"{metric}, %" for metric in METRICS),
        "intervals hold",
        "processor, s",
        "wall, s",
    ]
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *(row(line, results["versions"]) for line in lines)]
    chosen = log["chosen"]
    about = f"**{log['about'][0].upper()}{log['about'][1:]}.** Headcount chose m={chosen['m']} keys of a user"
    return "\n".join([f"{about} and c={chosen['c']} rows on each:", "", *rows, "", closer(log)])


def text(results: Line, form: str) -> str:
    """All that stands between the markers of a page."""
    ours, theirs = results["releases"]
    begin, end = results["load"]
    delta = f"{results['delta']:.0e}".replace("e-0", "e-")
    minutes = sum(line["cpu"] * len(line["keys"]) for log in results["logs"].values() for line in log["lines"]) / 60
    note = (
        f"Epsilon {results['epsilon']:g}, delta {delta}, users added or removed. Headcount has {ours} releases, each "
        f"setting of others {theirs}; Tumult Analytics, and PipelineDP on Beam, one. After ± is half of the range of the "
        f"releases. All processes together took {minutes:.0f} minutes of processor. {results['cores']} cores had "
        f"{results['jobs']} processes of others at a time, and other work (load {begin:g} to {end:g}): compare seconds within "
        "these tables alone, and wall seconds hardly."
    )
    failed = [f"{name}: {reason}." for name, reason in results["missing"].items()]
    note = textwrap.fill(" ".join([note, *failed]), 128)
    return "\n\n".join([*(table(log, results, form) for log in results["logs"].values()), note])


def marked(page: str, results: Line, form: str) -> str:
    """The page with its table as the results have it."""
    begin, end = "<!-- peers: begin, written by benchmarks/peers.py -->", "<!-- peers: end -->"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{text(results, form)}\n{end}{after}"


def write_pages() -> None:
    """Writes the recorded results into all pages."""
    results = json.loads(RESULTS.read_text())
    for name, form in PAGES.items():
        path = TOP / name
        path.write_text(marked(path.read_text(), results, form))
