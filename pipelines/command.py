"""What a subcommand is: all that `main` knows of each of them, and the one way in which those that run a job go.

Nothing of Beam is imported before a job runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    import apache_beam as beam

    from headcount.mechanisms.mechanism import Promise
    from headcount.mechanisms.randomness.keys import Release
    from headcount.pipelines.jobs.outcome import Outcome
    from headcount.pipelines.jobs.plan import Plan
    from headcount.pipelines.jobs.run import Source

M = TypeVar("M", bound="Promise")
Rows = Iterable[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """One subcommand. A new one is a module with such an object, and one line in `main.COMMANDS`."""

    name: str
    help: str
    example: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    takes_beam_flags: ClassVar[bool] = False  # besides our own

    def run(self, args: argparse.Namespace, beam_flags: Sequence[str]) -> None:
        """Do it. Whatever is refused is a `HeadcountError`."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tool(Command):
    """A subcommand that is no job: one function of the parsed arguments."""

    do: Callable[[argparse.Namespace], None]

    def run(self, args: argparse.Namespace, beam_flags: Sequence[str]) -> None:
        """Do it."""
        self.do(args)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobCommand(Command, Generic[M]):
    """A subcommand that runs one job, or with --explain only says what it would promise.

    `check` refuses flags that do not go together. `make_mechanism` gets the arguments and the type of the items; `make_plan`
    and `explain` get what it made. None of these needs Beam or data: a call in Python has no more than them. `make_transform`
    gives the same mechanism as a transform of contributions, for a release and a number of shards, and
    `source` what the job reads, unless that is events. `show` words what an output tells, from its report and its rows,
    where that is another thing than a table of the largest rows.
    """

    check: Callable[[argparse.Namespace], None]
    make_mechanism: Callable[[argparse.Namespace, type], M]
    make_plan: Callable[[argparse.Namespace, M, type], Plan]
    explain: Callable[[argparse.Namespace, M], str]
    make_transform: Callable[[argparse.Namespace, Release, type, int], beam.PTransform]
    source: Callable[[argparse.Namespace], type[Source] | None] = lambda args: None
    show: Callable[[Mapping[str, Any], Rows], str] | None = None
    takes_beam_flags: ClassVar[bool] = True

    def run(self, args: argparse.Namespace, beam_flags: Sequence[str]) -> None:
        """Run the job, or only explain what it would promise."""
        if args.explain:
            print(self.explained(args))
            return
        outcome = self.job(args, beam_flags)
        if self.show is None:
            say(outcome.told())
        elif outcome.report is not None and outcome.files:
            say(self.show(outcome.report, outcome.rows()))

    def explained(self, args: argparse.Namespace) -> str:
        """The promise in words, before anything is read."""
        from headcount.pipelines import options

        self.check(args)
        return self.explain(args, self.make_mechanism(args, options.item_type(args) or str))

    def job(self, args: argparse.Namespace, beam_flags: Sequence[str]) -> Outcome:
        """Run the job, say what came of it in a few words, and return it."""
        from headcount.pipelines.jobs.run import run_job

        def plan(release: Release, item_type: type, shards: int) -> tuple[Plan, beam.PTransform]:
            made = self.make_mechanism(args, item_type)  # refuses what is wrong before anything of Beam is built
            return self.make_plan(args, made, item_type), self.make_transform(args, release, item_type, shards)

        self.check(args)
        outcome = run_job(args, beam_flags, self.name, plan, self.source(args))
        print(outcome.words())
        return outcome


def say(text: str) -> None:
    """Print what may hold released items, on whatever terminal: a job that has ended well does not fail by a letter."""
    if text:
        encoding = sys.stdout.encoding or "utf-8"
        print(text.encode(encoding, "replace").decode(encoding))


def guarantee_words(args: argparse.Namespace, mechanism: Promise) -> str:
    """The `explain` of a command that has no more to say than its guarantee."""
    return mechanism.guarantee().words()
