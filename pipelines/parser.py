"""The parser of a command line: strict, without abbreviations, with errors of one line that name the flag."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.command import Command
from headcount.pipelines.flags.flag import add, is_rare
from headcount.pipelines.flags.options import as_flag
from headcount.pipelines.suggestions import did_you_mean, nearest

_FLAG = re.compile(r"--?[A-Za-z]")
_ONE_LETTER = 0.9  # of the measure of `nearest`: so close that one of the two is a slip of the other
_BEAM_HELP = (
    "Beam's own flags (--runner FlinkRunner, SparkRunner or DataflowRunner, --temp_location, ...) are accepted too;\n"
    "what stands after a bare -- is passed on to Beam as it is. With --behind-firewall a runner may start whose server\n"
    "listens on every address, such as Prism (docs/streams.md)."
)


_PROMISE = "what to promise"  # the group to which commands add their own flags
_SHARED_GROUPS = {
    "what to read",
    "what to leave out of the result, at no cost",
    "what to write",
    "whose account it goes on",
    "where the noise comes from",
    "how to run",
}
_SHARED = {"--epsilon", "--delta", "--relation", "--explain"}  # those of it that all jobs have


class _HelpAll(argparse.Action):
    """Prints the help with the rare flags, and stops."""

    def __call__(self, parser: argparse.ArgumentParser, *args: Any) -> NoReturn:
        assert isinstance(parser, Parser)
        print(parser.format_help(rare=True), end="")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """An argument parser without abbreviations, whose errors are one line that names the flag.

    Its help has the command's own flags first and the shared ones after, and the rare ones only if they are asked for.
    """

    def __init__(self, **kwargs: Any) -> None:
        raw = argparse.RawDescriptionHelpFormatter
        super().__init__(allow_abbrev=False, formatter_class=raw, **kwargs)
        add(
            self,
            "--help-all",
            reported=False,
            action=_HelpAll,
            nargs=0,
            dest="help",
            default=argparse.SUPPRESS,
            help="show the rare flags, too, and exit",
        )
        # Of argparse: what is a value though it begins with a dash. Not -5 alone, but also -5e1 and -5:3.
        self._negative_number_matcher = re.compile(r"-\.?[0-9]")

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ").replace(": must be", " must be", 1)
        message = message.replace("the following arguments are required: ", "missing ")
        flag, end, _ = message.partition(": expected one argument")
        if end:
            message = f"{flag}{end}; a value that begins with a dash is given as {flag}=VALUE"
        raise ParameterError(message)

    def format_help(self, rare: bool = False) -> str:
        """The help, with the rare flags or without."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for title, actions in self.sections():
            shown = [action for action in actions if rare or not is_rare(action)]
            formatter.start_section(title)
            formatter.add_arguments(shown)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def sections(self) -> list[tuple[str | None, list[argparse.Action]]]:
        """The flags with their headings in the order of the help: a command's own, those that it shares, and help itself."""
        general: list[tuple[str | None, list[argparse.Action]]] = []
        own: list[tuple[str | None, list[argparse.Action]]] = []
        shared: list[tuple[str | None, list[argparse.Action]]] = []
        for group in self._action_groups:
            actions = list(group._group_actions)
            if group.title == "options":
                general.append((group.title, actions))
            elif group.title == _PROMISE:
                alone = [action for action in actions if not _SHARED & set(action.option_strings)]
                own.append((f"flags of {self.prog}", alone))
                shared.append((group.title, [action for action in actions if action not in alone]))
            else:
                (shared if group.title in _SHARED_GROUPS else own).append((group.title, actions))
        return own + shared + general


def make_parser(command: Command) -> Parser:
    """The parser of one subcommand, with its example at the end of the help."""
    prog, epilog, usage = f"headcount {command.name}", f"example:\n  {command.example}", None
    if command.takes_beam_flags:
        epilog, usage = f"{_BEAM_HELP}\n\n{epilog}", f"{prog} [FLAGS] [FLAGS OF BEAM] [-- MORE FLAGS OF BEAM]"
    parser = Parser(prog=prog, usage=usage, description=command.help, epilog=epilog)
    command.add_arguments(parser)
    add(
        parser,
        "--verbose",
        reported=False,
        action="store_true",
        help="show the logs of Beam and other libraries",
        rare=True,
        python=False,
    )
    return parser


def parse(command: Command, argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parse the arguments of one subcommand into our own and Beam's flags; an unknown flag is an error."""
    own, passed_on = list(argv), []
    if "--" in own and command.takes_beam_flags:
        at = own.index("--")
        own, passed_on = own[:at], own[at + 1 :]
    parser = make_parser(command)
    args, rest = parser.parse_known_args(own)
    _refuse_repeated(parser, own)
    flags = [*parser._option_string_actions]
    unknown, of_beam = _unknown_to_beam(rest) if command.takes_beam_flags else (rest, [])
    if unknown:
        _refuse_unknown(command, flags, of_beam, unknown, own)
    _refuse_slips(flags, of_beam, rest)
    return args, rest + passed_on


def in_flags(command: Command, error: ParameterError) -> ParameterError:
    """A refusal by a mechanism, which has parameters and no flags, with its parameter as a flag if the command has that."""
    if error.parameter is None:
        return error
    flag = as_flag(error.parameter)
    return error.renamed(flag) if flag in make_parser(command)._option_string_actions else error


def _refuse_repeated(parser: Parser, argv: Sequence[str]) -> None:
    """Refuse a flag with one value that is given twice: one of the two would count, in silence."""
    seen = set()
    for word in argv[: argv.index("--") if "--" in argv else None]:
        flag = word.split("=", 1)[0]
        if isinstance(parser._option_string_actions.get(flag), argparse._StoreAction):
            if flag in seen:
                raise ParameterError(f"{flag} is given twice: leave one of them out")
            seen.add(flag)


def _unknown_to_beam(flags: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those of these flags (with their values) that no class of Beam's options knows; and all flags that one knows."""
    if not flags:
        return [], []
    from apache_beam.options.pipeline_options import PipelineOptions, _BeamArgumentParser

    from headcount.pipelines.jobs import loopback  # noqa: F401  # which has one more class of them

    class BeamParser(_BeamArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise ParameterError(message.removeprefix("argument "))

    parser = BeamParser(allow_abbrev=False, add_help=False, conflict_handler="resolve")
    for options in PipelineOptions.__subclasses__():
        if "_add_argparse_args" in vars(options):
            options._add_argparse_args(parser)
    return list(parser.parse_known_args(flags)[1]), list(parser._option_string_actions)


def _refuse_unknown(
    command: Command, own: Sequence[str], of_beam: Sequence[str], unknown: Sequence[str], argv: Sequence[str]
) -> NoReturn:
    first, see = unknown[0], f"see headcount {command.name} --help"
    if not _FLAG.match(first):
        before = [word for word in argv[: argv.index(first)] if _FLAG.match(word)]
        if before and before[-1] == "--input":  # the shell has put names in place of a pattern
            see = "put a pattern of --input in quotes, or give --input before each file"
        raise ParameterError(f"unexpected argument {first!r}; {see}")
    flag = first.split("=", 1)[0]
    near = nearest(flag, own) or nearest(flag, of_beam)
    raise ParameterError(f"unknown flag {flag!r}; {command.elsewhere.get(flag) or did_you_mean(near) or see}")


def _refuse_slips(own: Sequence[str], of_beam: Sequence[str], rest: Sequence[str]) -> None:
    """Refuse a flag of Beam that is probably a slip of one of ours, and would be taken in silence."""
    for flag in [word.split("=", 1)[0] for word in rest]:
        near = nearest(flag, own, _ONE_LETTER) if flag in of_beam else []
        if near:
            raise ParameterError(f"{flag} is a flag of Beam; {did_you_mean(near)} else give it after a bare --")
