"""The flags that make a command a stream, beside those of the command itself."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.flags.flag import add
from headcount.pipelines.flags.options import require

if TYPE_CHECKING:
    from headcount.pipelines.streams.run import Stream

_UNITS = {"hour": 3600, "day": 86_400, "week": 7 * 86_400}
_LONGEST_LOOK = 60
_OWN = ("every", "from_", "wait", "look_every")  # which the command of one window does not have
_HELP = {  # of flags that a command has, and that mean something else of a stream
    "--time": "when a row was: the time by which it is in a window",
    "--windows": "how many windows there are, one after another; each is a release, also one without users",
    "--input": "files of events, or a folder of them, there already or to come: Parquet, Avro, CSV or JSON lines, "
    "also gzip, on this machine or as gs://, s3:// or hdfs://; each is read once: put it there whole, by renaming it; "
    "may be repeated",
    "--output": "the folder of the results: each window has a folder in it, named by when the window begins",
    "--release-id": "the name of this stream, by which it goes on when it is started again: a window has ID.END; auto, "
    "with a ledger: an id that follows from data set, label and parameters",
}
_NOT_OF_STREAMS = {  # flags of a command that a stream does not have, and why
    "protect": "each window of a stream is a release of its own, which promises something to each user in it",
    "period": "the period of a release is its window",
    "overwrite": "a window is published once, and stays as it is",
    "memory_limit": "workers of a stream have memory of their own",
}


def add_stream(parser: argparse.ArgumentParser) -> None:
    """Add the flags to a parser that has those of the command."""
    for action in parser._actions:
        for flag in action.option_strings:
            if flag in _HELP:
                action.help = _HELP[flag]
                vars(action)["rare"] = False
        if action.dest in _NOT_OF_STREAMS:
            action.help = argparse.SUPPRESS
    group = parser.add_argument_group("which windows there are")
    told = "how long a window is: hour, day or week, or a span such as 15m"
    add(group, "--every", reported=False, metavar="SPAN", help=told)
    add(
        group,
        "--from",
        dest="from_",
        reported=False,
        metavar="TIME",
        help="when the first window begins: 2026-11-18, or 2026-11-18T06:00+01:00; UTC if it does not say",
    )
    add(
        group,
        "--wait",
        reported=False,
        metavar="SPAN",
        help="how long after its end a window waits for files that come late, such as 1h; rows that come later are dropped",
    )
    add(
        group,
        "--look-every",
        reported=False,
        metavar="SPAN",
        help="how often to look for files, such as 10s (default: a tenth of a window, from 1s to 60s)",
        rare=True,
    )


def stream_of(args: argparse.Namespace) -> Stream:
    """What makes it a stream, by the flags."""
    from headcount.mechanisms.randomness.windows import Windows
    from headcount.pipelines.streams.run import Stream

    require(args, "--time", "--every", "--from", "--windows", "--wait")
    size = _UNITS.get(args.every) or _seconds(args.every, "every", 1)
    windows = Windows(args.from_, size, args.windows)
    looked = (
        min(max(size // 10, 1), _LONGEST_LOOK)
        if args.look_every is None
        else _seconds(args.look_every, "look_every", 1)
    )
    return Stream(windows, args.time, _seconds(args.wait, "wait", 0), looked)


def of_one_window(args: argparse.Namespace) -> argparse.Namespace:
    """The arguments of the command that each window is a job of; refuses those that a stream does not have."""
    for name, why in _NOT_OF_STREAMS.items():
        if getattr(args, name) not in (None, False, "user"):
            raise ParameterError(f"--{name.replace('_', '-')} is not for streams, as {why}: leave it out")
    given = {name: value for name, value in vars(args).items() if name not in _OWN}
    return argparse.Namespace(**given | {"time": None, "windows": None})


def _seconds(text: str, name: str, least: int) -> int:
    from headcount.mechanisms.people.ask import span

    if text in ("month", "quarter", "year"):
        raise ParameterError(f"{name} must be a span of fixed length, as months are not: give hour, day or week", name)
    found = span(text, name) // 10**6
    if found < least:
        raise ParameterError(f"{name} must be at least {least} s, got {text!r}", name)
    return found
