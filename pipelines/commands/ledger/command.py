"""`headcount ledger`: makes data sets with a limit, tells what is spent, and finds out what became of open entries."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from headcount.mechanisms.accounting.budget import digits_up
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.accounting.windows import WINDOWS
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.command import Command, add_json, say
from headcount.pipelines.flags import numbers
from headcount.pipelines.flags.account import add_ledger, release_id
from headcount.pipelines.flags.flag import add
from headcount.pipelines.flags.groups import short_text
from headcount.pipelines.ledger.account import open_ledger
from headcount.pipelines.parser import Parser
from headcount.pipelines.storage import stores

if TYPE_CHECKING:
    from headcount.pipelines.ledger.records import Dataset, Entry

_UNITS = (*WINDOWS, "event")  # events, of pan-private counters


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The subcommands and their flags."""
    parser.usage = f"{parser.prog} WHAT [NAME] [FLAGS] [FLAGS OF BEAM] [-- MORE FLAGS OF BEAM]"
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True, parser_class=Parser)
    made = _part(what, "create", "Add a data set with its limit; the first one makes the ledger.", create)
    made.add_argument("name", metavar="NAME", help="letters, digits, dots, dashes and underscores")
    made.add_argument(
        "--limit-epsilon", type=numbers.number, required=True, metavar="E", help="what all releases together may spend"
    )
    made.add_argument(
        "--limit-delta", type=numbers.number, required=True, metavar="D", help="the delta at which they may spend it"
    )
    made.add_argument(
        "--per",
        choices=("month", "year"),
        help="the limit is for the releases of each calendar month or year (UTC), and over many of these it adds up "
        "(default: for all releases ever)",
    )
    made.add_argument(
        "--adaptive",
        action="store_true",
        help="the limit holds even if what releases cost, and how many there are, is chosen after a look at earlier ones; the "
        "totals are those of zCDP, which are often larger, and not every release has one",
    )
    made.add_argument("--unit", choices=_UNITS, default="user", help="who is promised something (default: %(default)s)")
    made.add_argument(
        "--user",
        metavar="COLUMN",
        help="the column that tells users apart, in every release (default: that of the first release)",
    )
    made.add_argument("--time", metavar="COLUMN", help="when a row was, for --unit user-day and the like")
    made.add_argument(
        "--time-zone", default="UTC", metavar="ZONE", help="where days and the like begin (default: %(default)s)"
    )
    add(
        made,
        "--relation",
        choices=[relation.value for relation in Relation],
        default=Relation.ADD_REMOVE.value,
        help="what a neighbouring input is (default: %(default)s)",
        rare=True,
    )
    made.add_argument(
        "--approved-only",
        action="store_true",
        help="refuse every release that is not of a plan that was approved (see: headcount ledger approve)",
    )
    said = _part(what, "approve", "Say yes to the plan of a report, before anything of it is spent.", approve)
    _add_name(said)
    said.add_argument("file", metavar="FILE", help="the report, a file of YAML (see: docs/report-file.md)")
    said.add_argument(
        "--period",
        type=short_text,
        metavar="PERIOD",
        help="a period of the kind that it is run for, where the file has {period}; the plan is approved for all of them "
        "(default: a week)",
    )
    _add_by(said)
    back = _part(what, "withdraw", "Take back the yes to a plan; what was released under it stays.", withdraw)
    _add_name(back)
    back.add_argument("plan", metavar="DIGEST", help="the digest of the plan, or its beginning")
    _add_by(back)
    shown = _part(what, "show", "List the releases, with what became of each.", show)
    _add_name(shown, optional=True)
    shown.add_argument("--html", metavar="FILE", help="write a page, with what was spent over time, in place of a list")
    totalled = _part(what, "total", "Tell what is spent and what is left, by month or year if the limit is.", total)
    _add_name(totalled)
    add_json(totalled)
    exported = _part(what, "export", "Print all entries for another program, with their whole guarantees.", export)
    _add_name(exported, optional=True)
    add(exported, "--format", choices=("jsonl", "csv"), default="jsonl", help="default: %(default)s")
    resolved = _part(
        what,
        "resolve",
        "Look at the outputs of reserved entries: commit what is there, give back what was never published.",
        resolve,
    )
    _add_name(resolved, optional=True)
    resolved.add_argument("--release-id", type=release_id, metavar="ID", help="only the entry of this release")
    word = resolved.add_mutually_exclusive_group()
    word.add_argument(
        "--gave-up",
        dest="said",
        action="store_const",
        const="gave up",
        help="your word, where it cannot be known: the job of --release-id is over, and published nothing",
    )
    word.add_argument(
        "--published",
        dest="said",
        action="store_const",
        const="published",
        help="your word, where it cannot be known: the output of --release-id was complete, and went elsewhere",
    )


def _part(
    what: argparse._SubParsersAction[Parser], name: str, told: str, do: Callable[[argparse.Namespace], None]
) -> Parser:
    part = what.add_parser(name, help=told, description=told)
    part.set_defaults(do=do)
    add_ledger(part, required=True)
    add(part, "--verbose", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS, rare=True)
    return part


def _add_name(part: argparse.ArgumentParser, optional: bool = False) -> None:
    told = "the data set (default: all)" if optional else "the data set"
    part.add_argument("name", metavar="NAME", nargs="?" if optional else None, help=told)


def _add_by(part: argparse.ArgumentParser) -> None:
    part.add_argument("--by", type=short_text, metavar="WHO", help="who says so (default: whoever runs it)")


def create(args: argparse.Namespace) -> None:
    """Add a data set."""
    from headcount.mechanisms.columns.times import check_zone
    from headcount.pipelines.ledger.records import Users, make_dataset

    users = Users(args.user, args.time, check_zone(args.time_zone) if args.time is not None else None)
    limit = (args.limit_epsilon, args.limit_delta, args.per, args.adaptive)
    dataset = make_dataset(args.name, args.unit, args.relation, *limit, users, args.approved_only)
    ledger = open_ledger(args.ledger)
    ledger.create(dataset)
    print(f"data set {dataset.name} is in {ledger.name}: all releases together may spend {dataset.limit_description()}")


def approve(args: argparse.Namespace) -> None:
    """Store somebody's yes to the plan of a report."""
    from headcount.pipelines.ledger.approvals import Approval
    from headcount.pipelines.ledger.records import who
    from headcount.pipelines.report_file.file import read_file
    from headcount.pipelines.report_file.promised import make_plan

    report, ledger = read_file(args.file), open_ledger(args.ledger)
    named = report.account["dataset"].values[0] if "dataset" in report.account else None
    if named != args.name:
        theirs = "has no data set" if named is None else f"is for data set {named!r}"
        raise ParameterError(f"{args.file} {theirs}, and this is the approval for {args.name!r}: give its own")
    plan = make_plan(report, args.period, ledger.dataset(args.name))
    by = args.by or who()
    ledger.approve(Approval(args.name, plan.sha256, by, [each.approved for each in plan.releases]))
    _, cost = plan.costs()
    say(
        f"approved by {by}: plan {plan.sha256[:16]} of {args.file}, {plan.runs:,} runs of {len(plan.releases)} releases, "
        f"epsilon = {digits_up(cost.epsilon, 4):.4g} at delta = {cost.delta:g} together"
    )


def withdraw(args: argparse.Namespace) -> None:
    """Take back somebody's yes."""
    from headcount.pipelines.ledger.records import who

    found = open_ledger(args.ledger).withdraw(args.name, args.plan, args.by or who())
    say(f"withdrawn: plan {found.plan_sha256[:16]} of data set {args.name}, which {found.said_by} had approved")


def show(args: argparse.Namespace) -> None:
    """List the releases of one data set, or of all."""
    from headcount.pipelines.ledger import descriptions

    ledger = open_ledger(args.ledger)
    found = ledger.datasets() if args.name is None else [ledger.dataset(args.name)]
    if args.html is not None:
        _page(args.html, ledger.name, [(dataset, ledger.entries(dataset.name)) for dataset in found])
        return
    told = (
        descriptions.listed(dataset, ledger.entries(dataset.name), ledger.approved(dataset.name)) for dataset in found
    )
    say("\n\n".join(told))


def _page(path: str, name: str, kept: Sequence[tuple[Dataset, Sequence[Entry]]]) -> None:
    from headcount.pipelines.commands.ledger.page import ledger_page

    content = ledger_page(name, kept)
    try:
        stores.write(path, content)
    except Exception as error:  # every storage has its own
        raise ParameterError(f"--html {path!r} cannot be written: {stores.reason(error)}") from error
    print(f"to look at: {path}")


def total(args: argparse.Namespace) -> None:
    """Tell what is spent and what is left."""
    from headcount.pipelines.ledger import descriptions

    ledger = open_ledger(args.ledger)
    told = descriptions.totalled_json if args.json else descriptions.totalled
    say(told(ledger.dataset(args.name), ledger.entries(args.name)))


def export(args: argparse.Namespace) -> None:
    """Print the entries as JSON lines or CSV."""
    from headcount.pipelines.ledger import descriptions

    ledger = open_ledger(args.ledger)
    if args.name is not None:
        ledger.dataset(args.name)
    entries = ledger.entries(args.name)
    say((descriptions.json_lines if args.format == "jsonl" else descriptions.csv_lines)(entries))


def resolve(args: argparse.Namespace) -> None:
    """Settle what can be settled, and say of each reserved entry what became of it."""
    from headcount.pipelines.ledger.records import GIVEN_BACK
    from headcount.pipelines.ledger.resolve import decide, undecided

    if args.said is not None and args.release_id is None:
        raise ParameterError("--gave-up and --published are your word on one release: give its --release-id")
    ledger = open_ledger(args.ledger)
    if args.name is not None:
        ledger.dataset(args.name)
    entries = undecided(ledger, args.name, args.release_id)
    if all(entry.state == GIVEN_BACK for entry in entries):
        print("no entry is reserved" if args.release_id is None else f"release {args.release_id} is not reserved")
    for entry in entries:
        decision = decide(entry, args.said)
        if entry.state == GIVEN_BACK and decision.settled is None:
            continue
        told = decision.description
        if decision.settled is not None and not ledger.settle(decision.settled):
            told = "left as it is: somebody else has just told what became of it"
        say(f"release {entry.request.release_id} of data set {entry.request.dataset}: {told}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LedgerCommand(Command):
    """A command with parts of its own; flags of Beam say how the stores of outputs are reached."""

    takes_beam_flags: ClassVar[bool] = True

    def run(self, args: argparse.Namespace, beam_flags: Sequence[str]) -> None:
        """Do what the part does."""
        if beam_flags:
            from apache_beam.io.filesystems import FileSystems
            from apache_beam.options.pipeline_options import PipelineOptions

            FileSystems.set_options(PipelineOptions(list(beam_flags)))
        args.do(args)


COMMAND = LedgerCommand(
    name="ledger",
    add_arguments=add_arguments,
    example=(
        "headcount ledger create visits --limit-epsilon 8 --limit-delta 1e-6 --per year --ledger sqlite:///ledger.db\n"
        "  headcount ledger total visits --ledger sqlite:///ledger.db"
    ),
)
