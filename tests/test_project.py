"""The files of the project agree with each other: versions, papers, and the commands of the checks."""

from __future__ import annotations

import re
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
    assert CITATION["version"] == headcount.__version__ == metadata.version("headcount")
    assert CITATION["license"] == PROJECT["license"]


def test_the_hosted_checks_are_those_of_ci_run():
    workflow = yaml.safe_load((TOP / ".github" / "workflows" / "checks.yml").read_text())
    job = workflow["jobs"]["checks"]
    assert job["strategy"]["matrix"]["make"] == ci_commands()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/install", "make ${{ matrix.make }}"]


def test_what_ci_run_calls_is_a_target():
    targets = set(re.findall(r"^([\w-]+):", (TOP / "Makefile").read_text(), re.MULTILINE))
    assert set(ci_commands()) <= targets


def test_forms_and_hooks_are_yaml():
    for path in [TOP / ".pre-commit-config.yaml", *sorted((TOP / ".github").rglob("*.yml"))]:
        assert isinstance(yaml.safe_load(path.read_text()), dict), path.name


def test_the_changelog_has_its_sections():
    log = (TOP / "CHANGELOG.md").read_text()
    sections = re.findall(r"^### (.*)$", log.split("## [")[1], re.MULTILINE)
    assert "Privacy" in sections
    assert set(sections) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Privacy"}


@pytest.mark.parametrize(("page", "up"), [("README.md", "docs/"), ("docs/index.md", "")])
def test_the_questions_are_those_of_the_help(page, up):
    rows = [f"| {asked} | [`headcount {command}`]({up}{target}) |" for asked, command, target in QUESTIONS]
    assert "\n".join(rows) in (TOP / page).read_text()
