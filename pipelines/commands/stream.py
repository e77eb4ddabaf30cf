"""`headcount stream`: a command that counts, on files that arrive: a release for each window of time, as it ends."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.accounting.windows import over_releases
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.command import COMMANDS, Command, JobCommand, load, say
from headcount.pipelines.flags import options
from headcount.pipelines.flags.flag import add
from headcount.pipelines.parser import Parser, in_flags
from headcount.pipelines.streams.flags import add_stream, of_one_window, stream_of

NAMES = (
    "histogram",
    "aggregate",
    "partitions",
    "total",
)  # whose windows are known to close while a stream goes on

_EXAMPLE = (
    "headcount stream histogram --input 'visits/**' --time viewed_at --every day --from 2026-11-18 --windows 30 --wait 1h \\\n"
    "      --user user_id --item page --method one-stage --bound 5 --epsilon 1 --delta 1e-8 --output releases/ \\\n"
    "      --key-file headcount-key --release-id visits --runner PrismRunner"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamOf(Command):
    """A command as a stream: what `headcount stream NAME` is."""

    inner: JobCommand[Any]
    takes_beam_flags: ClassVar[bool] = True

    @property
    def help(self) -> str:
        """What it does, in one line."""
        return f"{self.inner.help.removesuffix('.')}; in each window of time, from files that arrive."

    def run(self, args: argparse.Namespace, beam_flags: Sequence[str]) -> None:
        """Run the stream, or only explain what it would promise."""
        try:
            stream, own = stream_of(args), of_one_window(args)
            self.inner.check_flags(own)
            if args.explain:
                say(self._explained(own, stream.windows.number))
                return
            from headcount.pipelines.streams.run import run_stream

            run_stream(own, beam_flags, self.inner.name, self.inner.making(own), self.inner.source(own), stream)
        except ParameterError as error:
            raise in_flags(self, error) from None

    def _explained(self, args: argparse.Namespace, windows: int) -> str:
        """The promise of each window, and what it is for a user who is there in all of them."""
        made = self.inner.make_mechanism(args, options.item_type(args))
        return f"in each window:\n{self.inner.explained(args)}\n\n{in_all(made.guarantee(), windows)}"


def in_all(guarantee: Any, windows: int) -> str:
    """What a user is promised who is there in all windows."""
    if guarantee.relation is not Relation.ADD_REMOVE:
        return "each window is a release of its own; nothing is known under this relation of a user who is in several"
    total = over_releases(guarantee, windows)
    return (
        f"each of the {windows:,} windows is a release of its own: a user who is there in all of them is promised "
        f"epsilon = {total.epsilon:.6g} and delta = {total.delta:.3g} in total"
    )


def streams() -> list[StreamOf]:
    """All commands that can be a stream, as such."""
    return [_stream_of(name) for name in NAMES]


def _stream_of(name: str) -> StreamOf:
    inner = load(name)
    assert isinstance(inner, JobCommand)

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        inner.add_arguments(parser)
        add_stream(parser)

    return StreamOf(name=f"stream {name}", inner=inner, add_arguments=add_arguments, example=_EXAMPLE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands that can be a stream, each with its flags."""
    parser.usage = f"{parser.prog} COMMAND [FLAGS] [FLAGS OF BEAM] [-- MORE FLAGS OF BEAM]"
    what = parser.add_subparsers(dest="what", metavar="COMMAND", required=True, parser_class=Parser)
    for each in streams():
        prog = f"{parser.prog} {each.inner.name}"
        usage = f"{prog} [FLAGS] [FLAGS OF BEAM] [-- MORE FLAGS OF BEAM]"
        told = COMMANDS[each.inner.name].help
        part = what.add_parser(each.inner.name, help=told, description=each.help, prog=prog, usage=usage)
        each.add_arguments(part)
        part.set_defaults(stream=each)
        add(part, "--verbose", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS, rare=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamCommand(Command):
    """The command with a part for each command that can be a stream."""

    takes_beam_flags: ClassVar[bool] = True

    def run(self, args: argparse.Namespace, beam_flags: Sequence[str]) -> None:
        """Run the part."""
        args.stream.run(
            argparse.Namespace(**{k: v for k, v in vars(args).items() if k not in ("what", "stream")}), beam_flags
        )


COMMAND = StreamCommand(name="stream", add_arguments=add_arguments, example=_EXAMPLE)
