"""A function for every command that counts events, made of the command's flags when it is first asked for.

Editors and type checkers read the same in calls.pyi, which `make stubs` writes and tests/headcount/test_stubs.py compares.
"""

from __future__ import annotations

from collections.abc import Callable

from headcount.functions import function
from headcount.result import Result


def __getattr__(name: str) -> Callable[..., Result]:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = made = function(name)
    return made
