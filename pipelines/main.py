"""The command line's entry: finds the subcommand, runs it, and turns every end into an exit status.

0: done. 2: refused, with one line that says why. 3: done and published, but a ledger could not be told. 1: unexpected, with a
traceback. 130, 143: stopped.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn, TextIO

from headcount.mechanisms.errors import HeadcountError, ParameterError
from headcount.pipelines.command import COMMANDS, FIRST_EXAMPLE, UnsettledError, load
from headcount.pipelines.jobs.signals import Stopped
from headcount.pipelines.suggestions import did_you_mean, nearest
from headcount.pipelines.terminal import one_line


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: this process's own) and return its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    verbose = "--verbose" in argv[: argv.index("--") if "--" in argv else None]
    try:
        with _logs(verbose), _no_garbage_collection():
            return _dispatch(argv)
    except HeadcountError as error:
        _say(str(error))
        return 2
    except UnsettledError as error:
        _say(str(error))
        return 3
    except KeyboardInterrupt:
        _say("stopped by SIGINT")
        return 128 + signal.SIGINT
    except Stopped as stop:
        _say(str(stop))
        return stop.status
    except SystemExit as end:  # argparse after --help
        return end.code if isinstance(end.code, int) else 1
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _has_no_reader(sys.stdout):
            return 0  # as in `headcount ... | head`: what is printed comes last, when all is done
        traceback.print_exc()
        return 1


def run() -> NoReturn:
    """Run this process's own command line, and end the process with its status.

    What Python does last is left out: it stops the threads of Beam's client wherever they are. Sometimes it then waits for ever
    for a lock of gRPC that one of them held, after the job has ended and its output is there.
    """
    # A job has small matrices: threads for them would only wait for each other, and burn a core meanwhile.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    status = main()
    atexit._run_exitfuncs()  # a key of this process's own is removed
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # nobody reads it any more
            stream.flush()
    os._exit(status)


def _has_no_reader(stream: TextIO) -> bool:
    """Whether this is a pipe whose other end was closed: a job's own connections may break too."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (AttributeError, OSError, ValueError):  # no file behind it, or no such system call
        return False


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Libraries make so many objects when they are imported that collecting garbage meanwhile takes a fifth of the start.

    A job turns it on again when it runs.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(_help_papers() if argv[1:] == ["papers"] else _help())
        return 0
    if argv[0] in ("-V", "--version"):
        from importlib import metadata

        print(f"headcount {metadata.version('headcount')}")
        return 0
    if argv[0].startswith("-"):
        raise ParameterError(
            f"unknown flag {argv[0]!r} in place of a command; give that first, one of {', '.join(COMMANDS)}, or --help"
        )
    if argv[0] not in COMMANDS:
        from headcount.pipelines.questions import OTHER_WORDS

        near = OTHER_WORDS.get(argv[0]) or nearest(argv[0], COMMANDS)
        hint = did_you_mean(near) or f"give one of {', '.join(COMMANDS)}, or --help"
        raise ParameterError(f"unknown command {argv[0]!r}; {hint}")
    from headcount.pipelines import parser
    from headcount.pipelines.flags import options

    command = load(argv[0])
    args, beam_flags = parser.parse(command, argv[1:])
    try:
        command.run(args, beam_flags)
    except ParameterError as error:
        raise parser.in_flags(command, error) from None
    if getattr(args, "explain", False):
        options.hint_of_flags(args)
    return 0


def _help() -> str:
    """The first page: questions, and the commands that people use daily."""
    from headcount.pipelines.questions import GROUPS, QUESTIONS

    wide = max(len(question.asked) for question in QUESTIONS)
    asked = [f"  {question.asked:<{wide}}  headcount {question.command}" for question in QUESTIONS]
    return "\n".join(
        [
            "usage: headcount COMMAND ...",
            "",
            "Counts what users do, without giving any user away: counts that may be published,",
            "with a report that says exactly what was promised.",
            "",
            "what do you want to know?",
            *asked,
            *_listed(GROUPS),
            "",
            "headcount COMMAND --help shows the flags of a command, --help-all also the rare ones,",
            "headcount --help papers the other methods of the papers, headcount -V the version.",
            "",
            "example:",
            f"  {FIRST_EXAMPLE}",
        ]
    )


def _help_papers() -> str:
    """The second page: methods of the papers that no default takes."""
    from headcount.pipelines.questions import PAPER_FLAGS, PAPER_GROUPS

    wide = max(map(len, PAPER_FLAGS))
    return "\n".join(
        [
            "Methods of the papers that no default takes. They keep the same promise; headcount rehearse runs those",
            "for counts and names beside the defaults, on data that is public.",
            *_listed(PAPER_GROUPS),
            "",
            "by a flag of another command:",
            *(f"  {flag:<{wide}}  {meaning}" for flag, meaning in PAPER_FLAGS.items()),
            "",
            "headcount COMMAND --help shows the flags of a command, --help-all also the rare ones.",
        ]
    )


def _listed(groups: Mapping[str, str]) -> list[str]:
    """Commands with what they do, by group."""
    width = max(map(len, COMMANDS))
    return [
        line
        for heading, names in groups.items()
        for line in ("", f"{heading}:", *(f"  {name:<{width}}  {COMMANDS[name].help}" for name in names.split()))
    ]


def _say(message: str) -> None:
    """One line for the person at the terminal, whatever the message holds."""
    print(f"headcount: {' '.join(one_line(message).split())}", file=sys.stderr)


@contextmanager
def _logs(verbose: bool) -> Iterator[None]:
    """Libraries log and warn only if asked to: a refusal is one line, and logs may hold values of data."""
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        if verbose:
            logging.basicConfig(level=logging.INFO)
            logging.root.setLevel(logging.INFO)
        else:
            logging.disable(logging.CRITICAL)
            warnings.simplefilter("ignore")
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        try:
            yield
        finally:
            logging.disable(before)


if __name__ == "__main__":
    run()
