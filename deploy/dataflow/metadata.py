"""Writes metadata.json, by which Dataflow and its pages know the template's parameters: they are the driver's own flags.

Run it when a flag or a subcommand has changed; a test compares the file with what this makes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from parameters import COMMAND, LEFT_OUT, beam_commands, flags, is_repeated, is_switch

from headcount.pipelines import parser

FILE = Path(__file__).with_name("metadata.json")

# All others are checked by the launcher: which flags a command needs depends on the others.
_REQUIRED = {COMMAND, "key_secret"}


def make() -> dict[str, Any]:
    """The metadata of the template."""
    commands = {command.name: command for command in beam_commands()}
    choice = {
        "name": COMMAND,
        "label": "command",
        "helpText": " ".join(f"{name}: {command.help}" for name, command in commands.items()),
        "isOptional": False,
        **_choices(list(commands), next(iter(commands))),
    }
    parameters: dict[str, dict[str, argparse.Action]] = {}  # by name, then by command
    for command in commands.values():
        for name, action in flags(command).items():
            if name not in LEFT_OUT:
                parameters.setdefault(name, {})[command.name] = action
    return {
        "name": "Headcount",
        "description": "Counts what users do, without giving any user away: user-level differentially private counts.",
        "parameters": [choice, *(_parameter(name, by, len(commands)) for name, by in parameters.items())],
    }


def _parameter(name: str, by_command: dict[str, argparse.Action], commands: int) -> dict[str, Any]:
    """One parameter, which may be a flag of several commands."""
    first = next(iter(by_command.values()))
    made: dict[str, Any] = {
        "name": name,
        "label": " ".join([first.option_strings[-1], *([first.metavar] if first.metavar else [])]),
        "helpText": _help(by_command),
        "isOptional": name not in _REQUIRED,
    }
    if is_switch(first):
        made["paramType"] = "BOOLEAN"
    elif first.choices is not None:
        choices = dict.fromkeys(choice for action in by_command.values() for choice in action.choices or ())
        defaults = {action.default for action in by_command.values()}
        made |= _choices(list(choices), defaults.pop() if len(defaults) == 1 else None)
    else:
        made["paramType"] = "TEXT"
    if len(by_command) < commands:
        made |= {"parentName": COMMAND, "parentTriggerValues": list(by_command)}
    return made


def _choices(values: list[str], default: str | None) -> dict[str, Any]:
    """One of some values. Only with a default is it a list to choose from, since such a list always has a choice made."""
    if default is None:
        return {"paramType": "TEXT", "regexes": [f"^({'|'.join(values)})$"]}
    options = [{"value": value, "label": value} for value in values]
    return {"paramType": "ENUM", "enumOptions": options, "defaultValue": default}


def _help(by_command: dict[str, argparse.Action]) -> str:
    """The help of a flag; that of each command if they differ."""
    commands = {command.name: command for command in beam_commands()}
    texts: dict[str, list[str]] = {}
    for name, action in by_command.items():
        text = parser.make_parser(commands[name])._get_formatter()._expand_help(action)
        texts.setdefault(text, []).append(name)
    help = " ".join(f"{', '.join(names)}: {text}." for text, names in texts.items())
    if len(texts) == 1:
        help = next(iter(texts))
    return f"{help} (several: as a JSON list)" if is_repeated(next(iter(by_command.values()))) else help


if __name__ == "__main__":
    FILE.write_text(json.dumps(make(), indent=2) + "\n", encoding="utf-8")
