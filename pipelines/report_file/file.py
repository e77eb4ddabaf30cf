"""The file of a report: what is read, on whose account, what is promised, and the releases by name.

Everything in it that can be wrong without a period is refused when it is read, each mistake in one line with its place;
`jobs` then reads the values as the commands do.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import re
from collections.abc import Collection, Mapping

from headcount.mechanisms.accounting.promise import better_gaussian
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.flags.periods import placeholders
from headcount.pipelines.report_file.nodes import Node, mistake, read_yaml
from headcount.pipelines.report_file.parameters import (
    BUDGET,
    DATA,
    ELSEWHERE,
    KEYS,
    Given,
    check_placeholders,
    flags_of,
    read_command,
    read_parameters,
)
from headcount.pipelines.storage import bigquery, stores

ACCOUNT = ("ledger", "dataset")
TOP = ("title", "data", *KEYS, *ACCOUNT, "output", "promise", "defaults", "releases")
PROMISE = ("epsilon", "delta", "per", "runs")
SPANS = ("month", "year")
NAMES = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"  # of releases, which are folders
MOST_RUNS = 100_000
_LONGEST_TITLE = 200


@dataclasses.dataclass(frozen=True)
class Promise:
    """What all releases of `runs` runs together promise, in each `per` (a month or a year), or ever."""

    epsilon: float
    delta: float
    runs: int
    per: str | None
    line: int


@dataclasses.dataclass(frozen=True)
class NamedRelease:
    """One release: its command, with its own parameters and those that it shares, by their names."""

    name: str
    command: str
    given: Mapping[str, Given]
    line: int
    weight: float = 1.0


@dataclasses.dataclass(frozen=True)
class ReportFile:
    """A report as its file says it. `account` has where the key is, and ledger and data set, as far as they are given."""

    path: str
    output: Given
    account: Mapping[str, Given]
    releases: tuple[NamedRelease, ...]
    promise: Promise | None = None
    title: str | None = None

    @property
    def weights(self) -> dict[str, float]:
        """How much of the promise each release gets, against the others."""
        return {release.name: release.weight for release in self.releases}

    def named(self, name: str) -> NamedRelease:
        """The release of this name."""
        return next(release for release in self.releases if release.name == name)


def read_file(path: str) -> ReportFile:
    """The report of a file."""
    try:
        text = stores.read(path).decode()
    except UnicodeDecodeError as error:
        raise mistake(path, error.object[: error.start].count(b"\n") + 1, "the file must be UTF-8") from None
    except FileNotFoundError:
        raise ParameterError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise ParameterError(f"{path} is a folder: give the file of a report") from None
    except OSError as error:
        raise ParameterError(f"{path} cannot be read: {stores.reason(error)}") from None
    return read_report(path, text)


def read_report(path: str, text: str) -> ReportFile:
    """The report of a text, which errors call `path`."""
    top = read_yaml(path, text)
    if not top.is_mapping():
        raise mistake(path, top.line, "a report is a mapping: data, output, releases")
    parts = {key.replace("-", "_"): part for key, part in top.parts("").items()}
    top.refuse_unknown(top.parts(""), TOP)
    for needed in ("data", "output", "releases"):
        if needed not in parts:
            raise mistake(path, top.line, f"{needed} is missing: {_MEANT[needed]}")
    account = _account(top, parts)
    promise = _promise(parts["promise"]) if "promise" in parts else None
    if promise is not None and "ledger" not in account:
        parts["promise"].refuse("is kept by a ledger, which knows what was released before: give ledger and dataset")
    commands = {name: read_command(_needed(node, "command")) for name, node in _releases(parts["releases"]).items()}
    data = _data(parts["data"], commands.values())
    defaults = read_parameters(parts["defaults"], dict.fromkeys(commands.values())) if "defaults" in parts else {}
    for name in defaults:
        if name in data:
            raise mistake(path, defaults[name].line, f"defaults.{name} is given in data, too: leave one of them out")
    if promise is not None:
        _refuse_budget(path, defaults)
    gaussian = promise is not None and better_gaussian(promise.runs * len(commands), promise.delta)
    releases = tuple(
        _release(node, commands[name], data, defaults, promise, gaussian)
        for name, node in _releases(parts["releases"]).items()
    )
    output = _output(parts["output"], releases, promise)
    title = parts["title"].text() if "title" in parts else None
    if title is not None and not 0 < len(title) <= _LONGEST_TITLE:
        parts["title"].refuse(f"must be a text of 1 to {_LONGEST_TITLE} characters, got {len(title)}")
    return ReportFile(path, output, account, releases, promise, title)


_MEANT = {
    "data": "what is read, with input (the files) and user (the column that tells users apart)",
    "output": "where the report goes, as reports/{period}",
    "releases": "what is released, as pages: {command: histogram, item: page}",
    "command": "what makes it, as command: histogram",
}


def _needed(node: Node, key: str) -> Node:
    parts = node.parts()
    if key not in parts:
        node.refuse(f"has no {key}: {_MEANT[key]}")
    return parts[key]


def _account(top: Node, parts: Mapping[str, Node]) -> dict[str, Given]:
    found = {name: Given((parts[name].text(),), parts[name].line, name) for name in (*KEYS, *ACCOUNT) if name in parts}
    for name, each in found.items():
        if placeholders(each.values[0]):
            parts[name].refuse("is the same in every period: it has no placeholder")
    keys = [name for name in KEYS if name in found]
    if len(keys) > 1:
        parts[keys[1]].refuse(f"is given beside {keys[0]}: leave one of them out")
    if ("ledger" in found) != ("dataset" in found):
        given, missing = ACCOUNT if "ledger" in found else reversed(ACCOUNT)
        parts[given].refuse(f"needs {missing}: the one says where the account is kept, the other whose it is")
    if "ledger" in found and not keys:
        parts["ledger"].refuse(
            "needs a key, by which a run that was stopped goes on: give key_file (see: headcount key)"
        )
    return found


def _promise(node: Node) -> Promise:
    parts = node.parts()
    node.refuse_unknown(parts, PROMISE)
    for needed in ("epsilon", "delta"):
        if needed not in parts:
            node.refuse(f"has no {needed}: give both, as {{epsilon: 2, delta: 1e-6, per: year, runs: 52}}")
    epsilon, delta = _number(parts["epsilon"]), _number(parts["delta"])
    if not 0 < epsilon < math.inf:
        parts["epsilon"].refuse(f"must be a positive number, got {parts['epsilon'].text()}")
    if not 0 <= delta < 1:
        parts["delta"].refuse(f"must be a number from 0 to below 1, got {parts['delta'].text()}")
    per = parts["per"].text() if "per" in parts else None
    if per not in (None, *SPANS):
        parts["per"].refuse(f"must be {' or '.join(SPANS)}, got {per!r}")
    if per is not None and "runs" not in parts:
        node.refuse(f"has no runs: say how many there are in a {per}, as 52")
    return Promise(epsilon, delta, _whole(parts["runs"], MOST_RUNS) if "runs" in parts else 1, per, node.line)


def _number(node: Node) -> float:
    text = node.text()
    try:
        return float(text)
    except ValueError:
        node.refuse(f"must be a number, got {text!r}")


def _whole(node: Node, most: int) -> int:
    text = node.text()
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= most:
        node.refuse(f"must be a whole number from 1 to {most}, got {text!r}")
    return int(text)


def _releases(node: Node) -> dict[str, Node]:
    """The releases by their names, which are folders beside each other."""
    found = node.parts()
    if not found:
        node.refuse(f"is empty: {_MEANT['releases']}")
    folded: dict[str, str] = {}
    for name, part in found.items():
        if not re.fullmatch(NAMES, name):
            raise mistake(
                node.path,
                part.line,
                f"{name!r} is no name of a release, which is a folder: letters, digits, dots, dashes and underscores, up to 64",
            )
        if name.lower() in folded:
            raise mistake(
                node.path,
                part.line,
                f"{part.name} and releases.{folded[name.lower()]} differ in case alone: rename one",
            )
        folded[name.lower()] = name
    return found


def _data(node: Node, commands: Collection[str]) -> dict[str, Given]:
    """What is read, for all releases. Whether a release takes it is decided there."""
    parts = node.parts()
    for key, part in parts.items():
        name = key.replace("-", "_")
        if name in ELSEWHERE:
            raise mistake(node.path, part.line, f"{part.name} cannot be given here: {ELSEWHERE[name]}")
        if name not in DATA and any(name in flags_of(command) for command in commands):
            raise mistake(
                node.path, part.line, f"{part.name} says what is counted: give it in a release, or in defaults"
            )
    node.refuse_unknown(parts, DATA)
    # A histogram has all of them.
    found = read_parameters(node, ["histogram"])
    if "input" not in found:
        node.refuse("has no input: give the files, as visits/{period}/*.parquet")
    if "user" not in found:
        node.refuse("has no user: give the column that tells users apart")
    return found


def _release(
    node: Node,
    command: str,
    data: Mapping[str, Given],
    defaults: Mapping[str, Given],
    promise: Promise | None,
    gaussian: bool,
) -> NamedRelease:
    """One release, told what it shares with the others. Noise that is not given is `gaussian`, if it is said."""
    own_node = _without(node, "command", "weight")
    own, known = read_parameters(own_node, [command]), flags_of(command)
    weight = 1.0
    parts = node.parts()
    if "weight" in parts:
        if promise is None:
            parts["weight"].refuse("divides a promise: give one, or an epsilon for each release and no weight")
        weight = _number(parts["weight"])
        if not 0 < weight < math.inf:
            parts["weight"].refuse(f"must be a positive number, got {parts['weight'].text()}")
    if promise is not None:
        _refuse_budget(node.path, own)
    shared = {**data, **defaults}
    given = {name: each for name, each in shared.items() if name in known} | own
    for name in ("protect", "windows"):
        if name in shared and name not in known and shared[name].values != ("user",):
            raise mistake(
                node.path,
                shared[name].line,
                f"{shared[name].name} is nothing that headcount {command} has, which protects all that a user did "
                f"(release {node.name.removeprefix('releases.')}): give it in the releases that have it",
            )
    windows = given["protect"].values != ("user",) if "protect" in given else False
    if "time" in given and "time" not in own and not windows and not getattr(known["time"], "needed", False):
        del given["time"]  # which is for windows alone
    if "where" in data and "where" in own:
        both = f"({data['where'].values[0]}) and ({own['where'].values[0]})"
        given["where"] = own["where"]._replace(values=(both,))
    if promise is None and not {"epsilon", "rho"} & {*given}:
        node.refuse("has no epsilon: give it here or in defaults, or a promise for all at the top")
    if gaussian and "noise" in known and known["noise"].default == "auto" and "noise" not in given:
        given["noise"] = Given(("gaussian",), node.line, "promise")
    return NamedRelease(node.name.removeprefix("releases."), command, given, node.line, weight)


def _without(node: Node, *keys: str) -> Node:
    """The same mapping without some of its keys."""
    less = copy.copy(node.yaml)
    less.value = [(key, value) for key, value in node.yaml.value if str(key.value) not in keys]
    return dataclasses.replace(node, yaml=less)


def _refuse_budget(path: str, given: Mapping[str, Given]) -> None:
    for name in BUDGET:
        if name in given:
            raise mistake(
                path,
                given[name].line,
                f"{given[name].name} is given beside promise, which says it for every release: leave one of them out",
            )


def _output(node: Node, releases: tuple[NamedRelease, ...], promise: Promise | None) -> Given:
    text = node.text()
    check_placeholders(node, [text])
    if bigquery.is_table(text):
        node.refuse("must be a folder: a report is several releases and a page")
    timed = [
        each for release in releases for each in release.given.values() if any(placeholders(one) for one in each.values)
    ]
    if not placeholders(text):
        if timed:
            node.refuse(f"has no {{period}}, but {timed[0].name} has one: each period would be written over the last")
        if promise is not None and promise.runs > 1:
            node.refuse("has no {period}, and there is more than one run: each would be written over the last")
    return Given((text.rstrip("/") or text,), node.line, node.name)
