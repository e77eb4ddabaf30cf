"""The documentation holds together: links lead somewhere, paths are there, and examples import only what is public."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

from headcount.pipelines.questions import PAPER_FLAGS, PAPER_GROUPS

TOP = Path(__file__).resolve().parents[1]
PAGES = sorted([*TOP.glob("*.md"), *TOP.glob("docs/**/*.md"), *TOP.glob("benchmarks/*.md")])
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")
FOLDERS = "headcount|mechanisms|transforms|pipelines|tests|deploy"
ROOMS = "|".join(sorted(path.parent.name for path in TOP.glob("mechanisms/*/__init__.py")))
PATH = re.compile(rf"`((?:{FOLDERS}|{ROOMS})/[\w./-]+)`")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PUBLIC = ("headcount", "headcount.mechanisms", "headcount.transforms")
FAMILIES = {path.parent.name for path in TOP.glob("mechanisms/*/__init__.py") if "Paper" in path.read_text()}


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {"#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def is_there(path: str) -> bool:
    """Whether a path of the repository, or of a room of mechanisms/, is there, also one without its .py."""
    return any((top / name).exists() for top in (TOP, TOP / "mechanisms") for name in (path, f"{path}.py"))


def examples(page: Path) -> list[str]:
    return [code for language, code in FENCED.findall(page.read_text()) if language == "python"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for path, anchor in LINK.findall(page.read_text()):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {path}"
        if anchor:
            assert anchor in anchors(target), f"{page.name} links to {path}{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_of_the_repository_are_there(page):
    missing = {path for path in PATH.findall(page.read_text()) if not is_there(path)}
    assert not missing, f"{page.name} names {sorted(missing)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_import_what_is_public(page):
    for code in examples(page):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headcount"):
                assert node.module in PUBLIC, f"{page.name} imports from {node.module}, which is private"
                module = importlib.import_module(node.module)
                missing = {alias.name for alias in node.names} - {name for name in dir(module) if name[0] != "_"}
                assert not missing, f"{page.name} imports {sorted(missing)} from {node.module}"


def test_the_table_of_mechanisms_is_the_public_face():
    page = (TOP / "docs" / "embedding.md").read_text()
    rows = page[page.index("| names of `headcount.mechanisms`") :].splitlines()[2:]
    named = {name for row in rows if row[:1] == "|" for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == set(importlib.import_module("headcount.mechanisms").__all__)


def test_every_family_has_a_page():
    assert len(FAMILIES) == 7
    assert all((TOP / "docs" / f"{family.replace('_', '-')}.md").exists() for family in FAMILIES)


@pytest.mark.parametrize("family", ["histogram", "partitions", "count-release"])
def test_a_guide_fits_on_a_screen_or_two_and_leads_to_the_rest(family):
    """What a person types, reads and changes; how it works and how close it comes are pages of their own."""
    guide = (TOP / "docs" / f"{family}.md").read_text()
    assert len(guide.splitlines()) <= 80
    assert all(f"({family}-{part}.md" in guide for part in ("how", "close"))


def test_every_method_of_the_papers_is_on_the_page_of_them():
    page = (TOP / "docs" / "paper-methods.md").read_text()
    commands = [f"headcount {name}" for names in PAPER_GROUPS.values() for name in names.split()]
    assert all(f"`{command}" in page for command in commands)
    assert all(flag.removesuffix(" NAME").split(" ", 1)[1] in page for flag in PAPER_FLAGS)


PROOFS = sorted((TOP / "docs" / "proofs").glob("*.md"))
PROOF = re.compile(r'docs/proofs/([\w-]+\.md)(?:,\s+"([^"]+)")?')
DOCSTRINGS = {
    path: ast.get_docstring(ast.parse(path.read_text())) or "" for path in sorted((TOP / "mechanisms").rglob("*.py"))
}


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)


def test_whatever_states_a_guarantee_names_the_page_of_its_proof():
    """A module with a guarantee, and each that the public face takes a mechanism from."""
    face = importlib.import_module("headcount.mechanisms")
    made = {getattr(face, name) for name in face.__all__} - {face.Guarantee}
    homes = {each.__module__.removeprefix("headcount.") for each in made if inspect.isfunction(each)}
    stating = {path for path, text in DOCSTRINGS.items() if "Guarantee:" in text}
    stating |= {
        path
        for path in DOCSTRINGS
        if ".".join(path.relative_to(TOP).with_suffix("").parts) in homes and "def guarantee(" in path.read_text()
    }
    assert len(stating) > 50
    silent = [str(path.relative_to(TOP)) for path in sorted(stating) if not PROOF.search(DOCSTRINGS[path])]
    assert not silent, f"where is the proof of {silent}? name its page of docs/proofs"


def test_pages_and_sections_that_docstrings_name_are_there():
    named = set()
    for path in DOCSTRINGS:
        for page, section in PROOF.findall(path.read_text()):
            assert TOP / "docs" / "proofs" / page in PROOFS, f"{path.name} names {page}"
            begin = " ".join(section.split())
            assert any(line.startswith(begin) for line in headings(TOP / "docs" / "proofs" / page)), (
                f"{path.name}: {begin}"
            )
            named.add(page)
    assert named == {page.name for page in PROOFS} - {"index.md"}, "a page of proofs is of code that names it"


@pytest.mark.parametrize("page", [page for page in PROOFS if page.name != "index.md"], ids=lambda page: page.name)
def test_a_page_of_proofs_says_what_is_claimed_tested_and_assumed(page):
    text = page.read_text()
    assert "**Claim" in text and "**Proof" in text
    assert headings(page)[-2:] == ["What the tests check", "What is assumed"]
    tests = set(re.findall(r"`(tests/[\w/]+\.py)`", text[text.index("## What the tests check") :]))
    assert tests and all((TOP / path).exists() for path in tests)
    assert any(path.startswith("tests/privacy/") for path in tests)
    assert f"({page.name})" in (page.parent / "index.md").read_text()
