"""A headcount command line as the parameters of a Flex Template, and back.

Dataflow knows parameters as a map from names to texts, and hands each to the launcher as `--name=value`. So
- the subcommand is the parameter `command`; of a stream both words, as `stream histogram`;
- a flag is a parameter of its name, with underscores: `--max-per-item 2` is `max_per_item=2`;
- a flag without a value is `true` or `false`: `--overwrite` is `overwrite=true`;
- a flag that may be repeated takes one text, or several as a JSON list: `input=["gs://a/*.csv","gs://b/*.csv"]`;
- an empty text counts as not given, since forms send those too.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence

from headcount.mechanisms.errors import HeadcountError, ParameterError
from headcount.pipelines import releases
from headcount.pipelines.command import COMMANDS, Command, JobCommand, load
from headcount.pipelines.commands.stream import streams
from headcount.pipelines.flags.options import as_parameter
from headcount.pipelines.parser import make_parser, parse

COMMAND = "command"

_AT_HOME = "it starts no job; give it to `headcount` on your own machine"
_NO_FILES = (
    "workers of Dataflow have neither files nor variables of yours, and an image must not hold a key; give key_secret"
)
_NO_STORE = "it is for jobs in one process: workers of Dataflow have memory of their own"
#: Flags of the subcommands that make no sense in a template, and why.
LEFT_OUT = {
    "help": _AT_HOME,
    "help_all": _AT_HOME,
    "explain": _AT_HOME,
    "key_file": _NO_FILES,
    "key_env": _NO_FILES,
    "memory_limit": _NO_STORE,
}

_WORD = re.compile(r"--([A-Za-z_]+)(?:=(.*))?", re.DOTALL)


def beam_commands() -> list[Command]:
    """The subcommands that run as a job of Beam; those that can be a stream also as such."""
    return [*(command for command in map(load, COMMANDS) if isinstance(command, JobCommand)), *streams()]


def flags(command: Command) -> dict[str, argparse.Action]:
    """The flags of a subcommand, by the names of their parameters."""
    actions = make_parser(command)._actions
    return {
        _parameter(action): action
        for action in actions
        if action.option_strings and action.help is not argparse.SUPPRESS  # which are refused
    }


def is_repeated(action: argparse.Action) -> bool:
    """Whether a flag may be given more than once."""
    return isinstance(action, argparse._AppendAction)


def is_switch(action: argparse.Action) -> bool:
    """Whether a flag has no value."""
    return isinstance(action, argparse._StoreTrueAction)


def to_command_line(words: Sequence[str]) -> list[str]:
    """The headcount command line of what a launcher was given; words that are no parameter of ours are left as they are."""
    given = [_WORD.fullmatch(word) for word in words]
    command = _find([found[2] or "" for found in given if found and found[1] == COMMAND])
    actions = flags(command)
    line = command.name.split()
    for word, found in zip(words, given, strict=True):
        if found and found[1] in actions:
            line += _flag(found[1], found[2] or "", actions[found[1]])
        elif not found or found[1] != COMMAND:
            line.append(word)
    return line


def to_parameters(line: Sequence[str]) -> dict[str, str]:
    """The parameters that stand for a headcount command line, which is checked as `headcount` checks it."""
    words = 2 if line[:1] == ["stream"] else 1
    command = _find([" ".join(line[:words])])
    args, beam_flags = parse(command, line[words:])
    if beam_flags:
        raise ParameterError(f"{beam_flags[0]!r} is a flag of Beam: use the ones of gcloud, after a bare --")
    releases.make_release(args, "DataflowRunner")  # without a good name of the key the launcher would only refuse later
    parser = make_parser(command)
    for action in parser._actions:  # the same, but as it was typed
        action.type, action.default = None, argparse.SUPPRESS
    actions = flags(command)
    parameters = {COMMAND: command.name}
    for name, value in vars(parser.parse_args(line[words:])).items():
        _refuse_left_out(name)
        if is_switch(actions[name]):
            parameters[name] = "true"
        elif is_repeated(actions[name]):
            parameters[name] = json.dumps(value) if len(value) > 1 or value[0].startswith("[") else value[0]
        else:
            parameters[name] = value
    return parameters


def _parameter(action: argparse.Action) -> str:
    return as_parameter(action.option_strings[-1])


def _find(names: Sequence[str]) -> Command:
    commands = {command.name: command for command in beam_commands()}
    if len(names) != 1 or names[0] not in commands:
        told = f", got {names[-1]!r}" if names else ""
        raise ParameterError(f"the command must be one of {', '.join(commands)}{told}")
    return commands[names[0]]


def _flag(name: str, value: str, action: argparse.Action) -> list[str]:
    """One parameter as flags of the command line."""
    if value == "":
        return []
    _refuse_left_out(name)
    flag = action.option_strings[-1]
    if is_switch(action):
        if value.lower() not in ("true", "false"):
            raise ParameterError(f"the parameter {name} must be true or false, got {value!r}")
        return [flag] if value.lower() == "true" else []
    return [f"{flag}={each}" for each in (_texts(name, value) if is_repeated(action) else [value])]


def _texts(name: str, value: str) -> list[str]:
    if not value.startswith("["):
        return [value]
    try:
        texts = json.loads(value)
    except ValueError:
        texts = None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ParameterError(
            f"the parameter {name} must be one text, or a JSON list of texts if it starts with a bracket, got {value!r}"
        )
    return texts


def _refuse_left_out(name: str) -> None:
    if name in LEFT_OUT:
        raise ParameterError(f"{name} is not for a template: {LEFT_OUT[name]}")


if __name__ == "__main__":
    # For run.sh: a file of flags for gcloud, which needs no quoting, whatever the values hold.
    try:
        print(json.dumps({"--parameters": to_parameters(sys.argv[1:])}))
    except HeadcountError as error:
        print(f"headcount: {error}", file=sys.stderr)
        sys.exit(2)
