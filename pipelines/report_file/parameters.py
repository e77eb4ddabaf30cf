"""What a release of a report may be told: the flags of its command by their names, but for what the whole report says.

A parameter is kept as the texts that its flag would get, so that a release is just what its command makes of them.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headcount.pipelines.command import COMMANDS, JobCommand, load
from headcount.pipelines.flags.options import as_flag
from headcount.pipelines.flags.periods import wrong_placeholder
from headcount.pipelines.parser import make_parser
from headcount.pipelines.report_file.nodes import Node, mistake
from headcount.pipelines.suggestions import did_you_mean, nearest

# The commands whose results are released; the others look, keep accounts or make data.
RELEASING = tuple(
    "histogram aggregate total funnel retention activity actives partitions top heavy-hitters quantiles distribution shape "
    "choose-bound count-release plume sampled".split()
)
# What is read: for every release alike, unless one says otherwise.
DATA = tuple(
    "input input_format delimiter user time time_zone where join on count drop_null protect windows max_item_bytes".split()
)
KEYS = ("key_file", "key_env", "key_secret")
# What a release cannot be told, and who can.
ELSEWHERE = {
    **{key: "it is the same for the whole report: give it at the top" for key in (*KEYS, "ledger", "dataset")},
    "output": "a release is written to the folder of the report's output that has its name",
    "overwrite": "what is published stays: remove the folder yourself",
    "period": "it is given on the command line, as --period",
    "release_id": "it follows from the data set, the label, the period and all parameters",
    "model": "a report reads events; what headcount shape --model shuffle or pan-private reads comes from elsewhere",
    "explain": "headcount run --check explains every release",
    "verbose": "give --verbose on the command line",
    "help": "see headcount COMMAND --help",
}
BUDGET = ("epsilon", "delta", "rho")
_TRUE, _FALSE = ("true", "True"), ("false", "False")
_WITH_COMMAS = ("bins",)  # one text on the command line, a list here


class Given(NamedTuple):
    """A parameter as the file gives it: the texts for its flag, where it stands, and what it is called there."""

    values: tuple[str, ...]
    line: int
    name: str


@functools.cache
def flags_of(command: str) -> Mapping[str, argparse.Action]:
    """The flags of a command that a release of it may be told, by the names of their parameters."""
    assert isinstance(load(command), JobCommand)
    actions = make_parser(load(command))._actions
    return {name_of(action): action for action in actions if name_of(action) not in ELSEWHERE}


def name_of(action: argparse.Action) -> str:
    """What a flag is called in a file."""
    return action.option_strings[-1].lstrip("-").replace("-", "_")


def is_switch(action: argparse.Action) -> bool:
    """Whether a flag is there or not, and has no value."""
    return isinstance(action, argparse._StoreTrueAction)


def is_repeated(action: argparse.Action) -> bool:
    """Whether a flag may have several values."""
    return isinstance(action, argparse._AppendAction) or action.dest in _WITH_COMMAS


def is_named(action: argparse.Action) -> bool:
    """Whether each value of a flag is NAME=VALUE, for which a mapping stands."""
    return isinstance(action, argparse._AppendAction) and "=" in str(action.metavar)


def read_parameters(node: Node, commands: Iterable[str]) -> dict[str, Given]:
    """The parameters in a mapping for releases of these commands, by their names; refuses one that no command has."""
    known: dict[str, argparse.Action] = {}
    for command in commands:
        known |= {name: action for name, action in flags_of(command).items() if name not in known}
    found: dict[str, Given] = {}
    for key, part in node.parts().items():
        name = key.replace("-", "_")
        if name in ELSEWHERE:
            raise mistake(node.path, part.line, f"{part.name} cannot be given here: {ELSEWHERE[name]}")
        if name not in known:
            raise mistake(node.path, part.line, f"{node.name}: {_unknown(key, part, commands, known)}")
        if name in found:
            raise mistake(node.path, part.line, f"{part.name} is given twice, first in line {found[name].line}")
        found[name] = Given(read_values(part, known[name]), part.line, part.name)
    return found


def _unknown(key: str, part: Node, commands: Iterable[str], known: Mapping[str, argparse.Action]) -> str:
    """What is said of a parameter that there is not."""
    listed = [*commands]
    if part.yaml.id == "scalar" and not part.yaml.value and part.yaml.style is None:
        return f"{key!r} stands alone between commas: put a text that holds commas in quotes"
    of = (
        f"headcount {listed[0]} has no parameter {key!r}" if len(listed) == 1 else f"no release has a parameter {key!r}"
    )
    elsewhere = load(listed[0]).elsewhere.get(as_flag(key)) if len(listed) == 1 else None
    see = f"see headcount {listed[0]} --help" if len(listed) == 1 else "see headcount COMMAND --help"
    return f"{of}; {elsewhere or did_you_mean(nearest(key, known)) or see}"


def read_values(node: Node, action: argparse.Action) -> tuple[str, ...]:
    """The texts that a flag gets: of a list one for each, of names with values NAME=VALUE for each."""
    if is_switch(action):
        text = node.text()
        if text not in (*_TRUE, *_FALSE):
            node.refuse(f"must be true or false, got {text!r}")
        return ("true",) if text in _TRUE else ("false",)
    if node.is_mapping():
        if not is_named(action):
            node.refuse(
                "must be one value, got a mapping" if not is_repeated(action) else "must be values, got a mapping"
            )
        texts = tuple(f"{name}={part.text()}" for name, part in node.parts().items())
    elif is_repeated(action):
        texts = node.texts()
        texts = (",".join(texts),) if action.dest in _WITH_COMMAS else texts
    else:
        texts = (node.text(),)
    check_placeholders(node, texts)
    return texts


def check_placeholders(node: Node, texts: Iterable[str]) -> None:
    """Refuse what stands in braces and is no placeholder."""
    for text in texts:
        words = wrong_placeholder(text)
        if words is not None:
            node.refuse(words)


def read_command(node: Node) -> str:
    """The command of a release."""
    name = node.text()
    if name in RELEASING:
        return name
    dashed = name.replace("_", "-")
    if name in COMMANDS:
        node.refuse(f"must be a command that releases something, one of {', '.join(RELEASING)}, got {name!r}")
    near = [dashed] if dashed in RELEASING else nearest(name, RELEASING)
    node.refuse(f"is unknown: {name!r}; {did_you_mean(near) or 'give one of ' + ', '.join(RELEASING)}")


def argument_list(command: str, given: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The command line of a release, without the name of the program, from the texts of its parameters."""
    actions = {name_of(action): action for action in make_parser(load(command))._actions}
    words = [command]
    for name, values in given.items():
        flag = as_flag(name)
        if is_switch(actions[name]):
            words += [flag] * (values == ("true",))
            continue
        for value in values:
            words += [f"{flag}={value}"] if value.startswith("-") else [flag, value]
    return words
