"""The public faces: every name is there, and asking for one does not import what it has no need of."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from headcount import mechanisms

HEAVY = ("apache_beam", "dp_accounting", "scipy", "numpy", "pyarrow")


@pytest.mark.parametrize("name", mechanisms.__all__)
def test_every_name_is_there(name):
    found = getattr(mechanisms, name)
    assert found.__module__.startswith("headcount.mechanisms.")
    assert (found.__doc__ or "").strip()
    assert name in dir(mechanisms)


def test_the_names_are_sorted_and_no_room_has_one_of_them():
    assert mechanisms.__all__ == sorted(set(mechanisms.__all__))
    rooms = {path.stem for path in Path(mechanisms.__file__).parent.iterdir()}
    assert not rooms & set(mechanisms.__all__), "an imported package would take the name's place"


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(mechanisms.__file__).read_text())
    typed = {
        alias.asname: (node.module, alias.name)
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(typed, key=str) == mechanisms.__all__
    for name, (module, at_home) in typed.items():
        assert getattr(importlib.import_module(module), at_home) is getattr(mechanisms, name)


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="has no attribute 'epsilon'"):
        _ = mechanisms.epsilon


def imported(statement: str) -> set[str]:
    """Which of the heavy packages a fresh interpreter has imported after a statement."""
    code = f"{statement}\nimport sys\nprint(*(name for name in {HEAVY} if name in sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.seconds
@pytest.mark.parametrize(
    "statement, needed",
    [
        ("import headcount.mechanisms", set()),
        ("from headcount.mechanisms import Bound, Budget, KeyFile, Relation, Release, Zcdp, ZcdpFilter", set()),
        ("from headcount.mechanisms import discrete_laplace", {"numpy"}),
        ("from headcount.mechanisms import *", {"numpy", "pyarrow"}),
    ],
)
def test_a_name_imports_no_more_than_it_needs(statement, needed):
    assert imported(statement) == needed
