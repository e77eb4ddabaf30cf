"""The releases of a report as jobs: each is the very command line of its command, and so makes the same bytes.

    headcount COMMAND [parameters] --label NAME --period PERIOD --output OUTPUT/NAME
        [--key-file KEY] [--ledger URL --dataset NAME --release-id auto]

With a promise, epsilon and delta are those that `mechanisms.accounting.promise` gives to each release.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.errors import HeadcountError, ParameterError
from headcount.pipelines import parser
from headcount.pipelines.command import JobCommand, load
from headcount.pipelines.flags import flag, options, periods
from headcount.pipelines.flags.account import AUTO
from headcount.pipelines.flags.options import as_flag
from headcount.pipelines.flags.protection import protection, window
from headcount.pipelines.report_file.file import NamedRelease, ReportFile
from headcount.pipelines.report_file.nodes import MistakeError, mistake
from headcount.pipelines.report_file.parameters import Given, argument_list, flags_of
from headcount.pipelines.reports.plan import Plan
from headcount.pipelines.storage import stores

CostAt = Callable[[str, float, float], Sequence[Guarantee]]


@dataclasses.dataclass(frozen=True)
class Job:
    """One release of a report in one period: `argv` is its command line, without the name of the program."""

    report: ReportFile
    release: NamedRelease
    argv: tuple[str, ...]
    output: str
    values: Mapping[str, tuple[str, ...]]  # of its parameters, by their names

    @property
    def name(self) -> str:
        """The name of the release in the file."""
        return self.release.name

    @property
    def command(self) -> JobCommand[Any]:
        """The command that makes it."""
        found = load(self.release.command)
        assert isinstance(found, JobCommand)
        return found

    def args(self) -> argparse.Namespace:
        """The arguments as the command's parser gives them, new each time: commands change theirs."""
        with self.placed():
            found, beam_flags = parser.parse(self.command, self.argv[1:])
        assert not beam_flags
        return found

    def checked(self) -> argparse.Namespace:
        """The arguments, of which the command has refused what does not go together."""
        args = self.args()
        needed = [as_flag(name) for name, action in flags_of(self.command.name).items() if flag.is_needed(action)]
        with self.placed():
            options.require(args, *(each for each in needed if each != "--epsilon"))
            self.command.check(args)
            if self.command.name != "total" and hasattr(args, "item"):  # levels are items by now
                options.require(args, "--item")
            window(args)
            options.condition(args)
        return args

    def plan(self) -> Plan:
        """What the release promises, with its public parameters, by the flags alone: nothing is read."""
        args = self.checked()
        with self.placed():
            item_type = options.item_type(args)
            return self.command.plan(args, self.command.make_mechanism(args, item_type), item_type)

    def guarantee(self) -> Guarantee:
        """What the release writes into the ledger."""
        return protection(self.args()).of(self.plan().guarantee)

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Tell a refusal with its line in the file, and with the file's words for flags."""
        try:
            yield
        except MistakeError:
            raise
        except ParameterError as error:
            raise self._mistake(str(parser.in_flags(self.command, error))) from None
        except HeadcountError as error:  # of the data, or a file
            raise type(error)(str(self._mistake(str(error)))) from None

    def _mistake(self, message: str) -> MistakeError:
        """A refusal of the command: of the line of the flag that it begins with or names, or whose value it quotes, as far as
        the file gives them; else of the release's."""
        given = {**self.release.given, **self.report.account, "output": self.report.output}
        named = [found.replace("-", "_") for found in options.FLAG.findall(message)]
        known = [given[name] for name in named if name in given]
        places = {name: [message.find(repr(text)) for text in self.values[name]] for name in given}
        quoted = sorted((at, given[name].line) for name in given for at in places[name] if at >= 0)
        words = options.FLAG.sub(lambda found: found[1].replace("-", "_"), options.FLAG_IN_BRACKETS.sub("", message))
        if message.startswith("--") and named[0] in given:
            begin = known[0].name
            words = begin + words.removeprefix(named[0])
            words = words if begin.startswith("releases.") else f"{words} (for releases.{self.name})"
        else:
            words = f"releases.{self.name}: {words}"
        lines = [*(each.line for each in known), *(line for _, line in quoted), self.release.line]
        return mistake(self.report.path, lines[0], words)


def jobs(report: ReportFile, period: str | None = None, budgets: Mapping[str, Budget] | None = None) -> list[Job]:
    """The jobs of a report in a period, in the order of the file, with their values read and checked as commands do.

    With a promise, each gets its own of `budgets`; without these, the whole promise, which is for looking alone.
    """
    values = _values(report, period)
    made = [_job(report, release, period, values, budgets) for release in report.releases]
    for job in made:
        job.checked()
    return made


def cost_at(report: ReportFile, period: str | None = None) -> CostAt:
    """What the release of a name would write into the ledger at an epsilon and a delta; nothing is read."""
    values = _values(report, period)

    def cost(name: str, epsilon: float, delta: float) -> Sequence[Guarantee]:
        budgets = {name: Budget(epsilon=epsilon, delta=delta)}
        return (_job(report, report.named(name), period, values, budgets).guarantee(),)

    return cost


def output_of(report: ReportFile, period: str | None) -> str:
    """The folder of the report in a period."""
    return periods.filled(report.output.values[0], _values(report, period))


def _values(report: ReportFile, period: str | None) -> dict[str, str]:
    """What placeholders stand for; refuses a file that has some which the period says nothing of."""
    if period is not None and (not re.fullmatch(r"[^\s/\\{}]{1,64}", period) or not period.strip(".")):
        raise ParameterError(f"--period must be one word such as 2026-W46, as it names folders, got {period!r}")
    values = {} if period is None else periods.values_of(period)
    for given in (report.output, *(each for release in report.releases for each in release.given.values())):
        for name in (found for text in given.values for found in periods.placeholders(text)):
            if period is None:
                raise mistake(
                    report.path,
                    given.line,
                    f"{given.name} has {{{name}}}, and no period is given: add --period 2026-W46",
                )
            if name not in values:
                raise mistake(
                    report.path,
                    given.line,
                    f"{given.name} has {{{name}}}, and the days of --period {period} are not known: give {periods.KINDS}",
                )
    return values


def _job(
    report: ReportFile,
    release: NamedRelease,
    period: str | None,
    values: Mapping[str, str],
    budgets: Mapping[str, Budget] | None,
) -> Job:
    given = {name: _filled(each, values) for name, each in release.given.items()}
    if report.promise is not None:
        budget = Budget(epsilon=report.promise.epsilon, delta=report.promise.delta)
        budget = budget if budgets is None else budgets[release.name]
        given |= {"epsilon": (repr(budget.epsilon),), "delta": (repr(budget.delta),)}
    given.setdefault("label", (release.name,))
    if period is not None:
        given["period"] = (period,)
    output = stores.join(periods.filled(report.output.values[0], values), release.name)
    given |= {"output": (output,)} | {name: each.values for name, each in report.account.items()}
    if "ledger" in given:
        given["release_id"] = (AUTO,)
    return Job(report, release, tuple(argument_list(release.command, given)), output, given)


def _filled(given: Given, values: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(periods.filled(text, values) for text in given.values)
