"""The files of the project agree with each other: versions, papers, and the commands of the checks."""

from __future__ import annotations

import functools
import re
import runpy
import shlex
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

import headcount
from headcount.pipelines.questions import QUESTIONS

TOP = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((TOP / "CITATION.cff").read_text())


def ci_commands() -> list[str]:
    """What .ci/run makes, in its order, but for the environments."""
    steps = runpy.run_path(str(TOP / ".ci" / "checks.py"))["STEPS"]
    return [target for step in steps for target in step if not target.startswith(".")]


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


def workflow(name: str) -> dict[str, Any]:
    """The jobs of a workflow."""
    return yaml.safe_load((TOP / ".github" / "workflows" / f"{name}.yml").read_text())["jobs"]


def runs(job: dict[str, Any]) -> list[str]:
    """What a job runs itself."""
    return [step["run"] for step in job.get("steps", []) if "run" in step]


def test_the_hosted_checks_are_those_of_ci_run():
    jobs = workflow("checks")
    pages, checks = jobs["pages"], jobs["checks"]
    made = {*pages["strategy"]["matrix"]["make"], *checks["strategy"]["matrix"]["make"]}
    assert made | {"lint", "types"} == set(ci_commands()) and runs(jobs["quick"]) == ["make lint types quick"]
    assert runs(pages) == ["make ${{ matrix.make }}"]
    assert runs(checks) == [".ci/install", '.ci/run "--$WHAT" ${{ matrix.make }}']
    assert checks["if"] == jobs["macos"]["if"] == "needs.changed.outputs.what != 'docs'"
    assert {*jobs["all"]["needs"], "all"} == {*jobs}, "what is not waited for may fail unseen"


def test_workflows_make_what_the_makefile_has():
    targets = set(re.findall(r"^([\w-]+):", (TOP / "Makefile").read_text(), re.MULTILINE))
    made = [words for name in ("checks", "release") for job in workflow(name).values() for words in runs(job)]
    named = {name for words in made for line in re.findall(r"^make (.*)$", words, re.M) for name in line.split()}
    assert named - {"${{", "matrix.make", "}}"} <= targets


@pytest.mark.parametrize("name", ["checks", "release"])
def test_actions_are_pinned_to_a_commit(name):
    used = re.findall(r"uses: ([^.].*)$", (TOP / ".github" / "workflows" / f"{name}.yml").read_text(), re.MULTILINE)
    assert used and all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", line) for line in used)
    assert len({line.partition("@")[0] for line in used}) == len({*used}), "one version of each"


def test_nothing_is_published_but_by_a_tag_and_no_token_is_kept():
    jobs = workflow("release")
    writes = {name for name, job in jobs.items() if "write" in job.get("permissions", {}).values()}
    assert writes == {"attest", "pypi", "github", "image"}
    assert jobs["attest"]["if"] == "github.ref_type == 'tag'"
    assert {"build", "again", "checks"} == {*jobs["attest"]["needs"]}
    assert jobs["checks"]["uses"] == "./.github/workflows/checks.yml", "which runs everything for a tag"
    for name in writes - {"attest"}:  # which wait for it, or for one that does
        needs = {name}
        while needs - {"attest", "build"}:
            job = needs.difference({"attest", "build"}).pop()
            assert "if" not in jobs[job], "a job is skipped where one that it needs is"
            needs = needs - {job} | {
                *([jobs[job]["needs"]] if isinstance(jobs[job]["needs"], str) else jobs[job]["needs"])
            }
        assert "attest" in needs
    assert "secrets." not in (TOP / ".github" / "workflows" / "release.yml").read_text()


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
    assert audits and not [text for text in audits if "mark.slow" in text or "mark.everything" in text]


def test_a_test_in_no_tier_would_be_seen():
    calls = pytest_calls()
    assert "slow" in [call[call.index("-m") + 1] for call in calls if "-m" in call]
    assert all("EVERYTHING,--everything)" in call for call in calls), "what waits for it runs in `make everything`"
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
