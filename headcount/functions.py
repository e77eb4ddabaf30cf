"""The function of a command that counts events: its flags are the keywords, and its checks, rows and report the result."""

from __future__ import annotations

import argparse
import difflib
import functools
import inspect
import os
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from headcount.keywords import in_keywords
from headcount.pipelines.command import Command, JobCommand, load
from headcount.pipelines.flags import flag
from headcount.pipelines.flags.options import as_flag
from headcount.pipelines.parser import make_parser
from headcount.result import Result

Path = str | os.PathLike[str]
Columns = str | Sequence[str]
Domain = Path | Iterable[str] | Iterable[int] | Mapping[str, Any]
P = ParamSpec("P")
R = TypeVar("R")

DATA = (
    "the events, one in a row: a pandas or Polars frame, an Arrow table, batch or reader, a DuckDB relation, whatever has "
    "`__arrow_c_stream__`, a dict of lists, or a list of dicts."
)
_WIDTH = 120


def function(name: str) -> Callable[..., Result]:
    """The function of a command, which has the name of it."""
    command = load(name.replace("_", "-"))
    assert isinstance(command, JobCommand)
    data = inspect.Parameter("data", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Any)
    signature = inspect.Signature([data, *keywords(command)], return_annotation=Result)

    def call(*data: Any, **given: Any) -> Result:
        from headcount.released import released

        refuse_unknown(name, signature, given)
        bound = signature.bind(*data, **given).arguments
        return released(command.name, {each: bound[each] for each in bound if each != "data"}, bound["data"])

    call.__name__ = call.__qualname__ = name
    call.__module__, call.__doc__ = "headcount", docstring(command)
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def arguments(command: Command) -> list[argparse.Action]:
    """The flags that a function has: first those it needs, then those of the command, then those that commands share."""
    parser = make_parser(command)
    needed = [action for action in parser._actions if flag.is_needed(action)]
    others = [action for _, actions in parser.sections() for action in actions if not flag.is_needed(action)]
    return [action for action in needed + others if action.dest != "help" and flag.in_python(action) is not False]


def keywords(command: Command) -> list[inspect.Parameter]:
    """The same as parameters of Python."""
    empty = inspect.Parameter.empty
    return [
        inspect.Parameter(
            action.dest,
            inspect.Parameter.KEYWORD_ONLY,
            default=empty if flag.is_needed(action) else action.default,
            annotation=annotation(action),
        )
        for action in arguments(command)
    ]


def annotation(action: argparse.Action) -> str:
    """The type of a keyword, by how its text is read."""
    if isinstance(action, argparse._StoreTrueAction):
        return "bool"
    one = "str" if action.type is None else str(inspect.signature(action.type).return_annotation)  # type: ignore[arg-type]
    if isinstance(action, argparse._AppendAction):
        one = "Columns" if action.type is None else f"{one} | Sequence[{one}]"
    kind = flag.kind(action) or one
    return kind if flag.is_needed(action) or action.default is not None else f"{kind} | None"


def docstring(command: JobCommand[Any]) -> str:
    """What help() says: the command's own words, with a line for each parameter."""
    parser = make_parser(command)
    lines = [parameter_line("data", DATA)]
    for action in arguments(command):
        words = flag.in_python(action) or in_keywords(parser._get_formatter()._expand_help(action))
        if action.choices is not None:
            words = f"{words}; one of {', '.join(map(repr, action.choices))}".replace("'", '"')
        if not flag.is_needed(action) and "default:" not in words:
            words = f"{words} (default: {action.default!r})"
        lines.append(parameter_line(action.dest, f"{words}."))
    return command.call.replace("Parameters:\n", "\n".join(["Parameters:", *lines, "", ""]), 1)


def parameter_line(name: str, words: str) -> str:
    """One entry of a list of parameters."""
    return textwrap.fill(
        f"{name}: {words}", _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False
    )


def refuse_unknown(name: str, signature: inspect.Signature, given: Mapping[str, Any]) -> None:
    """Refuse a keyword that there is not, with the one that was probably meant, and a call that lacks one."""
    known = signature.parameters
    for each in given:
        if each not in known:
            raise TypeError(f"{name}() has no parameter {each!r}; {_hint(name, each, known)}")
    needed = [each.name for each in known.values() if each.default is each.empty and each.kind is each.KEYWORD_ONLY]
    missing = [repr(each) for each in needed if each not in given]
    if missing:
        several = "s" if len(missing) > 1 else ""
        listed = " and ".join([*([", ".join(missing[:-1])] if several else []), missing[-1]])
        raise TypeError(f"{name}() missing {len(missing)} required keyword-only argument{several}: {listed}")


def suggesting(function: Callable[P, R]) -> Callable[P, R]:
    """The function, but an unknown keyword is refused with the one that was probably meant."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **given: P.kwargs) -> R:
        refuse_unknown(function.__name__, signature, given)
        return function(*args, **given)

    return call


def _hint(function: str, name: str, known: Collection[str]) -> str:
    elsewhere = load(function.replace("_", "-")).elsewhere
    if as_flag(name) in elsewhere:
        return in_keywords(elsewhere[as_flag(name)])
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6) or [each for each in known if each.startswith(name)]
    return f"did you mean {near[0]!r}?" if near else f"see help(headcount.{function})"
