"""The files of the project agree with each other: versions, papers, and the commands of the checks."""

from __future__ import annotations

import functools
import re
import shlex
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml

import headcount
from headcount.pipelines.questions import QUESTIONS

TOP = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((TOP / "CITATION.cff").read_text())


def ci_commands() -> list[str]:
    """What .ci/run calls, in its order."""
    return re.findall(r"^make ([\w-]+)$", (TOP / ".ci" / "run").read_text(), re.MULTILINE)


def test_the_five_papers_are_cited_as_the_families_name_them():
    families = [path.read_text() for path in sorted((TOP / "mechanisms").glob("*/__init__.py"))]
    named = {" ".join(re.sub(r"\s+", " ", text).split()) for text in families}
    assert len(CITATION["references"]) == 5
    for paper in CITATION["references"]:
        assert any(f'"{paper["title"]}"' in text and str(paper["year"]) in text for text in named), paper["title"]


def test_one_version_and_one_licence():
    assert headcount.__version__ == metadata.version("headcount")
    released = re.findall(r"^## \[(\d.*?)\]", (TOP / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert CITATION["version"] in released[:1] or not released, "the last one released, or the first to be"
    assert CITATION["license"] == PROJECT["license"]


def test_the_hosted_checks_are_those_of_ci_run():
    workflow = yaml.safe_load((TOP / ".github" / "workflows" / "checks.yml").read_text())
    job = workflow["jobs"]["checks"]
    assert job["strategy"]["matrix"]["make"] == ci_commands()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/install", "make ${{ matrix.make }}"]


def test_what_ci_run_calls_is_a_target():
    targets = set(re.findall(r"^([\w-]+):", (TOP / "Makefile").read_text(), re.MULTILINE))
    assert set(ci_commands()) <= targets


@functools.cache
def pytest_calls() -> list[list[str]]:
    """The words behind `pytest` in everything that .ci/run makes, and what that is made of."""
    makefile = (TOP / "Makefile").read_text().replace("\\\n", " ")
    variables = dict(re.findall(r"^(\w+) := (.*)$", makefile, re.MULTILINE))
    rules = {
        name: (needs, lines) for name, needs, lines in re.findall(r"^([\w-]+):(.*)\n((?:\t.*\n)*)", makefile, re.M)
    }
    wanted, called = ci_commands(), []
    for name in wanted:
        needs, lines = rules[name]
        wanted += [need for need in needs.split() if need in rules]
        for line in lines.splitlines():
            while found := re.search(r"\$\((\w+)\)", line):
                line = line.replace(found[0], variables.get(found[1], found[1]))
            called += [shlex.split(line.partition(" -m pytest ")[2])] if " -m pytest " in line else []
    return called


def markers_of(call: list[str], test: str) -> str | None:
    """The markers of the tests of this file that a call of pytest runs: "" for all, None if it runs none of them."""
    ignored = [word.removeprefix("--ignore=") for word in call if word.startswith("--ignore=")]
    named = [word for word in call if word.startswith("tests")]
    inside = [any(test == place or test.startswith(f"{place}/") for place in places) for places in (named, ignored)]
    return (call[call.index("-m") + 1] if "-m" in call else "") if inside == [True, False] else None


@pytest.mark.parametrize("test", sorted(str(path.relative_to(TOP)) for path in (TOP / "tests").rglob("test_*.py")))
def test_ci_run_runs_every_test(test):
    """A file in no tier, or a marker that every tier leaves out, would be tests that nobody runs."""
    found = {markers_of(call, test) for call in pytest_calls()}
    assert "" in found or {"slow", "not slow"} <= found


def test_audits_are_never_slow():
    audits = [path.read_text() for path in (TOP / "tests" / "privacy").rglob("*.py")]
    assert audits and not [text for text in audits if "mark.slow" in text]


def test_a_test_in_no_tier_would_be_seen():
    calls = pytest_calls()
    assert ["-n", "2", "--dist", "worksteal", "-m", "slow"] in [call[:6] for call in calls]
    assert markers_of(["-m", "slow", "--ignore=tests/docs", "tests"], "tests/docs/test_examples.py") is None
    assert markers_of(["-m", "slow", "--ignore=tests/docs", "tests"], "tests/test_docs.py") == "slow"
    assert {markers_of(call, "elsewhere/test_more.py") for call in calls} == {None}


def test_forms_and_hooks_are_yaml():
    for path in [TOP / ".pre-commit-config.yaml", *sorted((TOP / ".github").rglob("*.yml"))]:
        assert isinstance(yaml.safe_load(path.read_text()), dict), path.name


def test_the_changelog_has_its_sections():
    log = (TOP / "CHANGELOG.md").read_text()
    newest = next(part for part in log.split("\n## [")[1:] if "\n### " in part)
    sections = re.findall(r"^### (.*)$", newest, re.MULTILINE)
    assert "Privacy" in sections
    assert set(sections) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Privacy"}


@pytest.mark.parametrize(("page", "up"), [("README.md", "docs/"), ("docs/index.md", "")])
def test_the_questions_are_those_of_the_help(page, up):
    rows = [f"| {asked} | [`headcount {command}`]({up}{target}) |" for asked, command, target in QUESTIONS]
    assert "\n".join(rows) in (TOP / page).read_text()
