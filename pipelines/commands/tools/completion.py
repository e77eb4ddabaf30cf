"""`headcount completion`: a script by which a shell completes commands, flags and their values.

The words are those of the parsers when the script is printed, so that a shell completes at once: it starts nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from headcount.pipelines.command import COMMANDS, Tool, load
from headcount.pipelines.parser import make_parser

# A line is the command, and its part where it has parts as `ledger` has. Commands and parts come first, then the values of
# flags that have a few, then flags; everywhere else a shell completes the names of files.
_SCRIPT = """\
# {shell} completes headcount {version} by this
{before}_headcount() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} line=${{COMP_WORDS[1]}} words=
    case $line in {parted}) [ "$COMP_CWORD" -gt 2 ] && line="$line ${{COMP_WORDS[2]}}" ;; esac
    [ "$COMP_CWORD" -eq 1 ] && line=
    case "$line:$before" in
{words}
        *) [ "${{word#-}}" != "$word" ] && case $line in
{flags}
        esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _headcount headcount"""
_BEFORE = {"bash": "", "zsh": "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.add_argument("shell", choices=[*_BEFORE], metavar="SHELL", help="bash or zsh")


def script(shell: str) -> str:
    """The script for a shell."""
    from importlib import metadata

    parsers = dict(_parsers())
    words, flags = [_case("':'*", COMMANDS)], []
    for line, parser in parsers.items():
        told = [action for action in parser._actions if action.help is not argparse.SUPPRESS]
        if parts := _parts(parser):
            words.append(_case(f"'{line}:'*", parts))
        flags.append(_case(f"'{line}'", (word for action in told for word in _long(action))))
        for action in told:
            if action.choices is not None:
                words += [_case(f"'{line}:{word}'", map(str, action.choices)) for word in _long(action)]
    return _SCRIPT.format(
        shell=shell,
        version=metadata.version("headcount"),
        before=_BEFORE[shell],
        parted="|".join(name for name in COMMANDS if _parts(parsers[name])),
        words="\n".join(f"        {case}" for case in words),
        flags="\n".join(f"            {case}" for case in flags),
    )


def _parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every parser under the words that lead to it, such as `histogram` and `ledger total`."""
    for name in COMMANDS:
        parser = make_parser(load(name))
        yield name, parser
        for part, inner in _parts(parser).items():
            yield f"{name} {part}", inner


def _parts(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found[0]) if found else {}


def _long(action: argparse.Action) -> list[str]:
    return [word for word in action.option_strings if word.startswith("--")]


def _case(pattern: str, words: Iterable[str]) -> str:
    return f"{pattern}) words='{' '.join(words)}' ;;"


def complete(args: argparse.Namespace) -> None:
    """Print the script."""
    print(script(args.shell))


COMMAND = Tool(
    name="completion",
    add_arguments=add_arguments,
    do=complete,
    example="headcount completion bash",
)
