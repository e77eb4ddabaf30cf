"""Every example of README and docs runs, in the order of its page, on the data that the README's first command makes.

A page has a directory of its own with that data. A block of text after an example shows what it prints: its words must come,
and its numbers about so, since they are of noise. Keys are fixed, so that the test gives the same each time.
"""

from __future__ import annotations

import shutil

import pytest

from headcount.pipelines.command import COMMANDS, load
from headcount.pipelines.main import main
from tests.docs.pages import NOT_RUN, PAGES, TOP, Block, blocks, commands, differs, run, words
from tests.fixed_key import fix_fresh_keys

LEAST = 60  # examples that run
WITH_EXAMPLES = [page for page in PAGES if any(block.kind != "text" and not block.not_run for block in blocks(page))]
_INTO = ("--output", "--state")


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """The data of all examples: what the first commands of the README make."""
    folder = tmp_path_factory.mktemp("data")
    first = next(block for block in blocks(TOP / "README.md") if block.kind == "shell")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in commands(first.text):
            if words(line)[1] == "generate":
                assert main(words(line)[1:]) == 0
    assert any(folder.iterdir())
    return folder


@pytest.fixture
def reader(data, tmp_path, monkeypatch):
    """A reader's directory: the data, deploy/ of the checkout, and providers.yaml; keys and ids follow from a number."""
    for file in data.iterdir():
        shutil.copy(file, tmp_path)
    (tmp_path / "deploy").symlink_to(TOP / "deploy")
    shutil.copy(TOP / "deploy" / "yaml" / "providers.yaml", tmp_path)
    fix_fresh_keys(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: str(page.relative_to(TOP)))
def test_the_examples_of_a_page_run_and_show_what_it_shows(reader, page):
    names: dict[str, object] = {}
    printed, last = "", ""
    for block in blocks(page):
        if block.not_run:
            continue
        if block.kind == "text":
            line = differs(block.text, printed)
            assert line is None, f"{page.name}, line {block.line}: not printed by {last}: {line!r}\n{printed}"
            continue
        printed, last = run(block, names), f"line {block.line}"


def test_there_are_enough_examples_and_few_that_do_not_run():
    found = [block for page in PAGES for block in blocks(page) if block.kind != "text"]
    ran = [block for block in found if not block.not_run]
    assert len(ran) >= LEAST
    assert len(found) - len(ran) <= 18, "an example that cannot run says so in a comment: needs ..."


def test_no_two_examples_write_to_the_same_place():
    places: dict[str, str] = {}
    for page in PAGES:
        for block in blocks(page):
            for place in written(block):
                where = f"{page.relative_to(TOP)}, line {block.line}"
                assert place not in places, f"{where} and {places[place]} write to {place}"
                places[place] = where


def written(block: Block) -> list[str]:
    """The places to which the commands of a block write, but for the data of the examples itself."""
    if block.kind != "shell":
        return []
    lines = [words(line) for line in commands(block.text) if line.startswith("headcount ")]
    lines = [line for line in lines if line[1] not in ("generate", "key")]
    return [
        line[at + 1].rstrip("/")
        for line in lines
        for at, word in enumerate(line)
        if word in _INTO and "counters" not in line[1] and "--overwrite" not in line
    ]


def test_a_reason_stands_before_each_example_that_is_not_run():
    for page in PAGES:
        lines = page.read_text(encoding="utf-8").splitlines()
        reasons = sum(bool(NOT_RUN.fullmatch(line)) for line in lines)
        assert reasons == sum(bool(block.not_run) for block in blocks(page)), (
            f"{page.name}: a reason without its example"
        )


REPORT = """\
data: {input: visits.parquet, user: user_id}
output: "reports/{period}"
releases: {pages: {command: histogram, item: page, epsilon: 1, delta: 1e-8}}
"""
# An order in which each example finds what it needs; the others stand for themselves.
_FIRST = ("key", "histogram")
# Outputs that an example reads.
_OUTPUTS = {"diff": ("2026-W45/", "2026-W46/"), "series": ("reports/2026-W45/pages/", "reports/2026-W46/pages/")}


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"generate", "demo", "explain-yaml", "stream"}))
def test_the_example_of_a_help_text_runs(reader, name):
    (reader / "devices.txt").write_text("phone\nlaptop\ntablet\n")
    (reader / "report.yaml").write_text(REPORT)
    before = () if name in _FIRST or "out/" not in load(name).example else ("histogram",)
    for folder in _OUTPUTS.get(name, ()):
        run(Block(0, "shell", load("histogram").example.replace("out/", folder), None), {})
    for each in (*before, name):
        run(Block(0, "shell", load(each).example.replace("\n  headcount", "\nheadcount"), None), {})
