"""What a subcommand is: all that `main` knows of each of them, and the one way in which those that run a job go.

Nothing of Beam is imported but for a job that runs on it.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from headcount.pipelines.flags.flag import add
from headcount.pipelines.terminal import lines

if TYPE_CHECKING:
    import apache_beam as beam

    from headcount.mechanisms.mechanism import Promise
    from headcount.mechanisms.randomness.keys import Release
    from headcount.pipelines.jobs.job import Looked, Made
    from headcount.pipelines.jobs.source import Source
    from headcount.pipelines.reports.outcome import Outcome
    from headcount.pipelines.reports.plan import Plan

M = TypeVar("M", bound="Promise")
Rows = Iterable[Mapping[str, Any]]


class UnsettledError(Exception):
    """All is done and published, but a ledger could not be told: an exit status of its own, since the entry waits for a person
    or another run."""


class Listed(NamedTuple):
    """What `headcount --help` tells of a subcommand, and the module whose COMMAND it is."""

    module: str
    help: str


# Modules are imported on demand, as libraries take their time to import. So what help tells of them stands here.
COMMANDS = {
    "histogram": Listed(
        "headcount.pipelines.commands.histogram",
        "Count the users of each item, or how often it occurs, without giving any user away.",
    ),
    "aggregate": Listed(
        "headcount.pipelines.commands.aggregate",
        "Compute users, events, and the sum, mean, variance and quantiles of values for each item, in one release.",
    ),
    "choose-bound": Listed(
        "headcount.pipelines.commands.choose_bound",
        "Choose privately how much one user may contribute, for a release that comes later and costs its own budget.",
    ),
    "total": Listed(
        "headcount.pipelines.commands.total",
        "Count how many users and how many events there are, in all or of given items.",
    ),
    "funnel": Listed(
        "headcount.pipelines.commands.people.funnel",
        "Count how many users come to each step of a path, in order of time.",
    ),
    "retention": Listed(
        "headcount.pipelines.commands.people.retention",
        "Count how many of the users who came first in each week come back in each later one.",
    ),
    "activity": Listed(
        "headcount.pipelines.commands.people.activity",
        "Count how many users did it how often.",
    ),
    "actives": Listed(
        "headcount.pipelines.commands.people.actives",
        "Count the users who are active on each day, in the last 7 days and in the last 28.",
    ),
    "plume": Listed(
        "headcount.pipelines.commands.plume",
        "Name items that enough users have, then count the users of each, with a bound on a user's items.",
    ),
    "count-release": Listed(
        "headcount.pipelines.commands.count_release",
        "Release as many of the largest counts as the budget buys; users count for all of their items.",
    ),
    "top": Listed(
        "headcount.pipelines.commands.top", "Name the items with the most users, in order and without counts."
    ),
    "partitions": Listed(
        "headcount.pipelines.commands.partitions", "Name the items that enough users have, and nothing but their names."
    ),
    "shape": Listed(
        "headcount.pipelines.commands.shape.release",
        "Tell how many items have which number of users, their entropy and their number, without naming any.",
    ),
    "randomize": Listed(
        "headcount.pipelines.commands.shape.randomize",
        "Make the messages of users in the shuffle model, whose noise nobody can take off.",
    ),
    "counters": Listed(
        "headcount.pipelines.commands.shape.counters",
        "Keep pan-private counters in a file that may be seen: start it, add events, and renew its noise.",
    ),
    "sampled": Listed(
        "headcount.pipelines.commands.sampled",
        "Estimate how many users have each item from a sample, without noise: no item is shown that nobody has.",
    ),
    "heavy-hitters": Listed(
        "headcount.pipelines.commands.heavy_hitters",
        "Report the items that a given share of all users have, from a sample and without noise.",
    ),
    "quantiles": Listed(
        "headcount.pipelines.commands.quantiles",
        "Find quantiles of the users' values, or count users by ranges of values, from a sample and without noise.",
    ),
    "distribution": Listed(
        "headcount.pipelines.commands.distribution",
        "Learn how likely each of given symbols is, from users with many samples each.",
    ),
    "stream": Listed(
        "headcount.pipelines.commands.stream",
        "Count in windows of time, from files that arrive: a release for each window as it ends.",
    ),
    "run": Listed(
        "headcount.pipelines.commands.report.run",
        "Make all releases of a report from one file, and a page over them.",
    ),
    "rehearse": Listed(
        "headcount.pipelines.commands.studies.rehearse",
        "Run the methods at several epsilons on data that is public or made up, and measure them against its truth.",
    ),
    "forecast": Listed(
        "headcount.pipelines.commands.studies.forecast",
        "Say what an epsilon, bound or method would give, from an earlier release or from assumptions, without any data.",
    ),
    "plan": Listed(
        "headcount.pipelines.commands.report.plan",
        "Say what a report costs in each run and in all, and what it will show, before anything is spent.",
    ),
    "show": Listed(
        "headcount.pipelines.commands.outputs.show",
        "Print a complete output again: what its job said, its rows, its promise.",
    ),
    "verify": Listed(
        "headcount.pipelines.commands.outputs.verify",
        "Check that the files of an output are unchanged; with its input and key, that it came from them.",
    ),
    "statement": Listed(
        "headcount.pipelines.commands.outputs.statement",
        "Tell people outside what a release promises, how, and what it does not protect.",
    ),
    "series": Listed(
        "headcount.pipelines.commands.outputs.series",
        "Put releases of one kind side by side, and tell what changed between them from what is noise.",
    ),
    "diff": Listed(
        "headcount.pipelines.commands.outputs.diff",
        "Tell what changed between two releases of one kind from what is noise.",
    ),
    "ledger": Listed(
        "headcount.pipelines.commands.ledger.command",
        "Keep the account of a data set's releases: its limit, what is spent, and what became of each.",
    ),
    "audit": Listed(
        "headcount.pipelines.commands.tools.audit",
        "Run commands many times on inputs that differ in one user, and tell how much of the stated epsilon shows.",
    ),
    "explain-yaml": Listed(
        "headcount.pipelines.commands.tools.explain_yaml",
        "Print what the steps of a Beam YAML pipeline promise, without running anything of it.",
    ),
    "generate": Listed("headcount.pipelines.commands.tools.generate", "Write a synthetic event log, to try things on."),
    "key": Listed(
        "headcount.pipelines.commands.tools.key", "Make a key file, from which the noise of releases follows."
    ),
    "demo": Listed(
        "headcount.pipelines.commands.tools.demo",
        "Make a synthetic event log, count it privately, and show the result beside the truth.",
    ),
    "completion": Listed(
        "headcount.pipelines.commands.tools.completion",
        "Print a script by which bash or zsh completes commands, flags and their values.",
    ),
}
FIRST_EXAMPLE = (
    "headcount histogram --input visits.parquet --user user_id --item page \\\n"
    "      --epsilon 1 --delta 1e-8 --output out/"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """One subcommand. A new one is a module with such an object, and its lines in `COMMANDS`."""

    name: str
    example: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    elsewhere: Mapping[str, str] = dataclasses.field(default_factory=dict)  # flags of another command: where they are
    takes_beam_flags: ClassVar[bool] = False  # besides our own

    @property
    def help(self) -> str:
        """What it does, in one line."""
        return COMMANDS[self.name].help

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
    where that is another thing than a table of the largest rows. `takes_windows` says whether keys may be windows that
    overlap. `call` is what help() says of its function in Python, with a
    line "Parameters:" under which the flags are told.
    """

    call: str
    check: Callable[[argparse.Namespace], None]
    make_mechanism: Callable[[argparse.Namespace, type], M]
    make_plan: Callable[[argparse.Namespace, M, type], Plan]
    explain: Callable[[argparse.Namespace, M], str]
    make_transform: Callable[[argparse.Namespace, Release, type, int], beam.PTransform]
    source: Callable[[argparse.Namespace], type[Source] | None] = lambda args: None
    show: Callable[[Mapping[str, Any], Rows], str] | None = None
    takes_windows: bool = False
    takes_beam_flags: ClassVar[bool] = True

    def run(self, args: argparse.Namespace, beam_flags: Sequence[str]) -> None:
        """Run the job, or only explain what it would promise."""
        if args.explain:
            say(self.explained(args))
            return
        outcome = self.outcome(args, beam_flags)
        say(outcome.description(self.shown(outcome)))
        if outcome.unsettled is not None:
            raise UnsettledError(outcome.unsettled)

    def shown(self, outcome: Outcome) -> str:
        """What is said of the rows of a job that has ended; nothing of one that is only submitted."""
        if self.show is None:
            return outcome.summary()
        return self.show(outcome.report, outcome.rows()) if outcome.report is not None and outcome.files else ""

    def explained(self, args: argparse.Namespace) -> str:
        """The promise in words, before anything is read."""
        from headcount.pipelines.flags import options, protection

        self.check_flags(args)
        protection.window(args)  # refuses what does not go together
        options.condition(args)
        made = self.make_mechanism(args, options.item_type(args))
        promise, who = made.guarantee(), protection.protection(args)
        # The promise begins with whom it is made to, whatever else a command says of it.
        told = self.explain(args, made).replace(promise.promise_line(), who.of(promise).promise_line())
        return "\n\n".join(filter(None, (told, who.description(promise))))

    def check_flags(self, args: argparse.Namespace) -> None:
        """Refuse what the command refuses, and keys that it does not take."""
        from headcount.pipelines.flags import options

        self.check(args)
        options.check_windows(args, self.takes_windows)

    def plan(self, args: argparse.Namespace, made: M, item_type: type) -> Plan:
        """What the command says of itself. Parameters are as its flags give them, where it does not say otherwise."""
        from headcount.pipelines.flags import options

        flags = argparse.ArgumentParser(add_help=False)
        self.add_arguments(flags)
        plan = self.make_plan(args, made, item_type)
        asked = options.reported(flags, args)
        # What is taken from the file of an earlier release is asked for like what is given: a plan that was approved is of it.
        if any(getattr(args, name, None) is not None for name in ("like", "bound_from")):
            asked |= {name: plan.parameters.get(name) for name in ("bound", "max_per_item", "noise")}
        return dataclasses.replace(plan.stating({**asked, **plan.parameters}), asked=asked)

    def outcome(self, args: argparse.Namespace, beam_flags: Sequence[str], sink: Any = None) -> Outcome:
        """Run the job without a word, and return what came of it; `sink` as for `run_job`."""
        from headcount.pipelines.jobs.run import run_job

        self.check_flags(args)
        return run_job(args, beam_flags, self.name, self.making(args), self.source(args), sink)

    def look(self, args: argparse.Namespace, beam_flags: Sequence[str]) -> Looked:
        """Refuse all of the job that can be refused before it runs, and change nothing."""
        from headcount.pipelines.jobs.run import engine_of, look
        from headcount.pipelines.jobs.source import Events

        self.check_flags(args)
        return look(args, engine_of(args, beam_flags), self.name, self.making(args), self.source(args) or Events)

    def making(self, args: argparse.Namespace) -> Callable[[type], Made]:
        """What the job is, by the type of its items."""
        from headcount.pipelines.jobs.job import Made

        def made(item_type: type) -> Made:
            mechanism = self.make_mechanism(args, item_type)  # refuses what is wrong before anything of Beam is built
            return Made(
                self.plan(args, mechanism, item_type),
                mechanism,
                lambda domain: self.make_mechanism(argparse.Namespace(**vars(args) | {"domain": domain}), item_type),
                lambda release, shards: self.make_transform(args, release, item_type, shards),
            )

        return made


def load(name: str) -> Command:
    """The subcommand of this name."""
    command: Command = importlib.import_module(COMMANDS[name].module).COMMAND
    return command


def add_json(parser: argparse._ActionsContainer) -> None:
    """The flag of commands that tell the same to a program."""
    add(parser, "--json", action="store_true", help="print JSON, for a program", python=False)


def say(text: str) -> None:
    """Print what may hold anybody's words, such as released items, a label, or a report that lies somewhere: on whatever
    terminal, which obeys nothing of it. A job that has ended well does not fail by a letter."""
    if text:
        encoding = sys.stdout.encoding or "utf-8"
        print(lines(text).encode(encoding, "replace").decode(encoding))


def guarantee_description(args: argparse.Namespace, mechanism: Promise) -> str:
    """The `explain` of a command that has no more to say than its guarantee."""
    return mechanism.guarantee().description()
