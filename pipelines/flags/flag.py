"""One flag, written once: argparse has its name, values, default and help, and this what else depends on it.

From the flags of a command come its parser and help, its function in Python with signature and docstring, the parameters of its
report, the page of all commands, and the template of Dataflow.
"""

from __future__ import annotations

import argparse
from typing import Any, Literal

Words = str | Literal[False] | None


def add(
    group: argparse._ActionsContainer,
    flag: str,
    *,
    rare: bool = False,
    needed: bool = False,
    python: Words = None,
    kind: str | None = None,
    reported: bool = True,
    **given: Any,
) -> None:
    """Add a flag to a group. A `rare` one is shown by --help-all alone. A `needed` one has no default in Python. `python` says
    what it is to who calls a function, if other words than the help's do; False: functions do not have it. `kind` is its type
    there, if that does not follow from how its text is read. What a job reads, writes and runs on, and where its key and its
    account are, is not `reported` among its parameters."""
    told = {"rare": rare, "needed": needed, "python": python, "kind": kind, "reported": reported}
    vars(group.add_argument(flag, **given)).update(told)


def is_rare(action: argparse.Action) -> bool:
    """Whether only --help-all shows it."""
    return bool(getattr(action, "rare", False))


def is_needed(action: argparse.Action) -> bool:
    """Whether a call in Python must give it."""
    return bool(getattr(action, "needed", False))


def in_python(action: argparse.Action) -> Words:
    """Other words for who calls a function, or False if functions do not have it."""
    words: Words = getattr(action, "python", None)
    return words


def is_reported(action: argparse.Action) -> bool:
    """Whether a report has it among the parameters."""
    return bool(getattr(action, "reported", True))


def kind(action: argparse.Action) -> str | None:
    """The type of it in Python, if it is said."""
    said: str | None = getattr(action, "kind", None)
    return said
