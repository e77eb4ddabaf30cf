"""Flags as keywords: the arguments of a call become those that the command's parser would give, and refusals name keywords."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headcount.mechanisms.checks import wrong
from headcount.mechanisms.errors import HeadcountError, ParameterError
from headcount.pipelines.command import Command
from headcount.pipelines.flags.options import FLAG, FLAG_IN_BRACKETS
from headcount.pipelines.parser import make_parser

# What is called otherwise in Python.
_RENAMED = {"output": "folder", "from": "from_"}


def namespace(command: Command, given: Mapping[str, Any]) -> argparse.Namespace:
    """The parsed arguments that these keywords stand for; None is what the command does without the flag."""
    parser = make_parser(command)
    actions = {action.dest: action for action in parser._actions}
    values = {dest: action.default for dest, action in actions.items() if dest != "help"}
    for name, value in given.items():
        if value is not None:
            values[name] = _read(actions[name], value)
    for group in parser._mutually_exclusive_groups:
        both = [action.dest for action in group._group_actions if given.get(action.dest) is not None]
        if len(both) > 1:
            raise ParameterError(f"give one of {' and '.join(both)}")
    return argparse.Namespace(**values)


def in_keywords(message: str) -> str:
    """A message for the command line as one who calls a function reads it."""

    def keyword(found: re.Match[str]) -> str:
        name = found.group(1).replace("-", "_")
        return _RENAMED.get(name, name)

    return FLAG.sub(keyword, FLAG_IN_BRACKETS.sub("", message))


def spelled(error: HeadcountError) -> HeadcountError:
    """The same refusal with keywords for flags."""
    if not isinstance(error, ParameterError):
        return type(error)(in_keywords(str(error)))
    said = ParameterError(in_keywords(str(error)), error.parameter)
    return said if said.parameter is None else said.renamed(said.parameter)


def _read(action: argparse.Action, value: Any) -> Any:
    if isinstance(action, argparse._StoreTrueAction):
        if not isinstance(value, bool):
            raise _refused(action, "must be True or False", value)
        return value
    if action.dest in ("domain", "join"):
        return value  # frames too: a domain is named once the key columns are known, and a table read by `options.preparation`
    if action.dest == "bins" and not isinstance(value, str):
        value = ",".join(map(str, value)) if isinstance(value, Iterable) else value
    if action.dest == "bound_from" and isinstance(value, Mapping):
        from headcount.pipelines.commands.bound_options import choice_in

        return choice_in(value)
    if action.dest == "like" and isinstance(value, Mapping):
        from headcount.pipelines.flags.like import cap_in

        return cap_in(value)
    if isinstance(action, argparse._AppendAction):
        several = isinstance(value, Sequence) and not isinstance(value, str | tuple)
        several = several or action.type is not None and hasattr(value, "tolist")  # numbers may come as an array
        return [_read_one(action, each) for each in (value if several else [value])]
    return _read_one(action, value)


def _read_one(action: argparse.Action, value: Any) -> Any:
    """One value as the parser reads its text: so limits and choices stand in one place."""
    needs_text = action.type is None and not isinstance(value, str | os.PathLike)
    if needs_text or any(map(_holds_data, value if isinstance(value, tuple) else (value,))):
        one = "the name of a column" if action.metavar == "COLUMN" else "a text" if action.type is None else "one value"
        raise _refused(action, f"must be {one}", value)
    text = (
        ":".join(map(str, value)) if isinstance(value, tuple) else os.fspath(value) if _is_path(value) else str(value)
    )
    found: Any = text
    if callable(action.type):
        try:
            found = action.type(text)
        except argparse.ArgumentTypeError as error:
            raise ParameterError(f"{action.dest} {error}", action.dest) from None
    if action.choices is not None and found not in action.choices:
        raise wrong(action.dest, f"must be one of {', '.join(map(repr, action.choices))}", value)
    return found


def _is_path(value: Any) -> bool:
    return isinstance(value, os.PathLike)


def _refused(action: argparse.Action, must: str, value: Any) -> ParameterError:
    """The error for a parameter, which shows its value only if that cannot be a column of the data, or hold one."""
    if isinstance(value, tuple) or _holds_data(value):
        return ParameterError(f"{action.dest} {must}, got a {type(value).__name__}", action.dest)
    return wrong(action.dest, must, value)


def _holds_data(value: Any) -> bool:
    """Whether this may be a column or a frame, such as df.page where "page" was meant."""
    return isinstance(value, Iterable) and not isinstance(value, str)
