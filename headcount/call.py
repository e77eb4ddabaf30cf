"""How the functions of the face are called: nothing is imported before one of them is."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from headcount.result import Result

Path = str | os.PathLike[str]
Columns = str | Sequence[str]
Domain = Path | Iterable[str] | Iterable[int]
P = ParamSpec("P")
R = TypeVar("R")


def called(command: str, given: Mapping[str, Any]) -> Result:
    """The result of a command on `data`, which is given with its parameters."""
    from headcount.run import released

    return released(command, {name: value for name, value in given.items() if name != "data"}, given["data"])


def suggesting(function: Callable[P, R]) -> Callable[P, R]:
    """The function, but an unknown keyword is refused with the one that was probably meant."""
    known = [*inspect.signature(function).parameters]

    @functools.wraps(function)
    def call(*args: P.args, **given: P.kwargs) -> R:
        for name in given:
            if name not in known:
                raise TypeError(f"{function.__name__}() has no parameter {name!r}; {_hint(name, known, function)}")
        return function(*args, **given)

    return call


def _hint(name: str, known: list[str], function: Callable[..., Any]) -> str:
    import difflib

    from headcount.keywords import in_keywords
    from headcount.pipelines.command import load
    from headcount.pipelines.flags.options import as_flag

    elsewhere = load(function.__name__.replace("_", "-")).elsewhere
    if as_flag(name) in elsewhere:
        return in_keywords(elsewhere[as_flag(name)])
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6) or [each for each in known if each.startswith(name)]
    return f"did you mean {near[0]!r}?" if near else f"see help(headcount.{function.__name__})"
