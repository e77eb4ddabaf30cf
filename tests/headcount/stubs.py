"""What editors and type checkers read of the functions of `headcount.calls`: made of the same flags, and kept in calls.pyi.

`make stubs` writes it.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import headcount
from headcount import functions
from headcount.pipelines.command import JobCommand, load

PLACE = Path(headcount.__file__).resolve().parent / "calls.pyi"
HEAD = '''"""The functions of `headcount` for editors and type checkers, made of the flags of the commands by `make stubs`."""

from collections.abc import Mapping, Sequence
from typing import Any

from headcount.functions import Columns, Domain, Path
from headcount.mechanisms.sampled.axis import Value
from headcount.result import Result
'''


def names() -> list[str]:
    """The functions that are commands on events."""
    names = [name for name in headcount.__all__ if name.islower()]
    return [name for name in names if isinstance(load(name.replace("_", "-")), JobCommand)]


def stub(name: str) -> str:
    """One function, with its signature and docstring."""
    command = load(name.replace("_", "-"))
    assert isinstance(command, JobCommand)
    lines = [f"def {name}(", "    data: Any,", "    *,"]
    for keyword in functions.keywords(command):
        default = "" if keyword.default is keyword.empty else f" = {keyword.default!r}".replace("'", '"')
        lines.append(f"    {keyword.name}: {keyword.annotation}{default},")
    words = textwrap.indent(f'"""{functions.docstring(command)}"""', "    ", lambda line: bool(line.strip()))
    return "\n".join([*lines, ") -> Result:", words, "    ..."])


def stubs() -> str:
    """The whole file."""
    return "\n".join([HEAD, *(stub(name) + "\n" for name in names())])


if __name__ == "__main__":
    PLACE.write_text(stubs(), encoding="utf-8")
