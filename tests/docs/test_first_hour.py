"""docs/first-hour.md, followed word by word on a copy of the tree: its patches apply, and the tests that it names pass."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / "docs" / "first-hour.md").read_text()
COPIED = ("headcount", "mechanisms", "transforms", "pipelines", "tests", "pyproject.toml")
PYTEST = re.compile(r"^    \.venv/bin/python -m pytest (.*)$", re.MULTILINE)


def examples() -> dict[str, str]:
    """{title: text} of the sections with patches."""
    sections = [section.partition("\n") for section in PAGE.split("\n## ")[1:]]
    return {title: text for title, _, text in sections if "```diff" in text}


@pytest.mark.parametrize("title", examples())
def test_an_example_can_be_followed(tmp_path, title):
    text = examples()[title]
    for name in COPIED:
        copy = shutil.copytree if (TOP / name).is_dir() else shutil.copy
        copy(TOP / name, tmp_path / name)

    def run(*words: str, **given: str) -> None:
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, **given)
        assert done.returncode == 0, (words, done.stdout[-3000:], done.stderr[-3000:])

    for patch in re.findall(r"^```diff\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        run("git", "apply", "-p0", input=patch)
    named = PYTEST.findall(text)
    assert named
    for words in named:
        run(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *shlex.split(words))


def test_there_is_an_example():
    """Who merges one takes it off the page; with the last one gone, the page needs another."""
    assert examples(), "docs/first-hour.md has no change to follow: write another one"
