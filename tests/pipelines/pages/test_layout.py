"""What is made of a template is kept beside the modules, and a page is the same with it and without."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headcount.pipelines.pages import layout


@pytest.fixture
def beside(monkeypatch, tmp_path):
    """A place of its own for what is kept."""
    place = tmp_path / "__pycache__"
    place.mkdir()
    (tmp_path / "templates").symlink_to(layout._TEMPLATES)
    monkeypatch.setattr(layout, "__file__", str(tmp_path / "layout.py"))
    layout._environment.cache_clear()
    yield place
    layout._environment.cache_clear()


def templates() -> list[str]:
    return sorted(path.name for path in Path(layout._TEMPLATES).iterdir() if path.suffix == ".html")


@pytest.mark.parametrize("writes", [True, False])
def test_templates_are_kept_unless_python_shall_keep_nothing(beside, monkeypatch, writes):
    monkeypatch.setattr(sys, "dont_write_bytecode", not writes)
    for _ in range(2):
        for name in templates():
            assert layout._environment().get_template(name) is not None
        layout._environment.cache_clear()
    assert len(list(beside.iterdir())) == (len(templates()) if writes else 0)


def test_where_nothing_can_be_kept_templates_are_made_each_time(beside, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    beside.rmdir()
    assert layout._environment().get_template("page.html") is not None
