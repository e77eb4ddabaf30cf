"""`headcount audit`: how much of the stated epsilon this installation shows, by running it many times on two neighbours."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING

from headcount.mechanisms.checks import wrong
from headcount.mechanisms.errors import HeadcountError, ParameterError
from headcount.pipelines.command import Tool, add_json, say
from headcount.pipelines.flags import numbers
from headcount.pipelines.flags.flag import add
from headcount.pipelines.suggestions import did_you_mean, nearest

if TYPE_CHECKING:
    from headcount.pipelines.audits.run import Asked, Audited

_ALL = "all"


class RefutedError(HeadcountError):
    """An epsilon that is stated was shown to be too small."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.add_argument("commands", nargs="*", metavar="COMMAND", help="the commands to audit (default: all)")
    parser.add_argument(
        "--broken",
        nargs="?",
        const=_ALL,
        action="append",
        metavar="BUG",
        help="put a known bug in for the length of the audit, which must see it; without a name, one after another",
    )
    parser.add_argument(
        "--public-data",
        metavar="FILE",
        help="a Parquet file of yours that is public, in place of small inputs: its rows, and those without its largest user",
    )
    parser.add_argument(
        "--line",
        metavar="COMMAND",
        help="with --public-data: the command and its flags in one text, such as 'histogram --user u --item page --epsilon 1'",
    )
    parser.add_argument(
        "--runs",
        type=numbers.whole_number(least=40),
        metavar="N",
        help="releases of each neighbour (default: as many as a case needs, 1200 to 6000 mostly)",
    )
    add(
        parser,
        "--confidence",
        type=numbers.number,
        default=0.99,
        metavar="C",
        help="with which all lines hold at once (default: %(default)s)",
        rare=True,
    )
    add(parser, "--processes", type=numbers.whole_number(), metavar="N", help="default: one for each core", rare=True)
    add(parser, "--key-file", metavar="FILE", help="repeats an audit; default: a fresh key", rare=True)
    parser.add_argument("--list", action="store_true", help="list cases and bugs, and run nothing")
    add_json(parser)


def audit(args: argparse.Namespace) -> None:
    """Run it, and tell what was found."""
    from headcount.mechanisms.randomness.keys import KeyFile, ephemeral_key
    from headcount.pipelines.audits import run

    if args.list:
        say(_listed())
        return
    if not 0 < args.confidence < 1:
        raise wrong("--confidence", "must lie between 0 and 1", args.confidence)
    asked = _asked(args)
    source = ephemeral_key() if args.key_file is None else KeyFile(args.key_file)
    source.fetch()
    started = time.monotonic()
    if not args.json:
        say(f"{args.runs or 'some thousand'} releases on each of two inputs that differ in one user")
        say(f"found: it is at least this, with confidence {args.confidence:g} for all lines together\n")
        say(_line("bug", "case", *_NUMBERS, second=_CASE) if args.broken else _line("case", "command", *_NUMBERS))
    done = run.audit(
        asked,
        args.runs,
        args.confidence,
        source,
        processes=args.processes,
        told=lambda each: None if args.json else say(_told(each)),
    )
    if args.json:
        say(json.dumps([each.values() for each in done], indent=2))
    refuted = [each.asked.name for each in done if each.exceeds and each.asked.bug is None]
    unseen = [each.asked.bug for each in done if each.asked.bug is not None and not each.exceeds]
    if refuted:
        raise RefutedError(f"more was found than is stated: {', '.join(refuted)}. Please report this: see SECURITY.md")
    if unseen:
        raise RefutedError(f"not seen: {', '.join(map(str, unseen))}; raise --runs")
    if not args.json:
        end = "every bug was seen" if args.broken else "nothing was found above what is stated"
        say(f"\n{end}, in {time.monotonic() - started:.0f} s")


def _asked(args: argparse.Namespace) -> list[Asked]:
    from headcount.pipelines.audits import run
    from headcount.pipelines.audits.bugs import BUGS
    from headcount.pipelines.audits.cases import CASES

    if (args.public_data is None) != (args.line is None):
        raise ParameterError("--public-data FILE and --line 'COMMAND ...' go together: give both")
    if sum(map(bool, (args.commands, args.broken, args.line))) > 1:
        raise ParameterError("give commands, --broken or --line: one of them")
    if args.broken:
        names = list(BUGS) if _ALL in args.broken else args.broken
        for name in names:
            if name not in BUGS:
                hint = did_you_mean(nearest(name, BUGS)) or f"give one of {', '.join(BUGS)}"
                raise ParameterError(f"--broken {name!r} is no bug that is known; {hint}")
        return run.of_bugs(names)
    if args.line is not None:
        import pyarrow.parquet as pq

        from headcount.pipelines.audits.public_data import of_public_data

        try:
            table = pq.read_table(args.public_data)
        except (OSError, ValueError) as error:
            why = type(error).__name__
            raise ParameterError(f"--public-data {args.public_data!r} cannot be read as Parquet: {why}") from None
        return [run.Asked(args.public_data, of_public_data(args.line, table))]
    known = {case.command for case in CASES.values()}
    for name in args.commands:
        if name not in known:
            hint = did_you_mean(nearest(name, known)) or f"give one of {', '.join(sorted(known))}"
            raise ParameterError(f"nothing is audited of {name!r}; {hint}")
    return run.of_cases(args.commands)


def _listed() -> str:
    from headcount.pipelines.audits.bugs import BUGS
    from headcount.pipelines.audits.cases import CASES

    cases = [f"  {name:<36} {case.command}" for name, case in CASES.items()]
    bugs = [f"  {name:<18} {bug.what} ({bug.where})" for name, bug in BUGS.items()]
    return "\n".join(["cases:", *cases, "", "bugs for --broken:", *bugs])


def _told(audited: Audited) -> str:
    asked, stated, case = audited.asked, audited.stated, audited.asked.case
    numbers = f"{stated.epsilon:.3g}", f"{stated.delta:g}", case.by, f"{audited.found.shown:.3g}"
    if asked.bug is not None:
        return _line(asked.bug, asked.name, *numbers, "seen" if audited.exceeds else "NOT SEEN", second=_CASE)
    share = "MORE THAN STATED" if audited.exceeds else f"{audited.share:.0%}"
    note = f"  of at most {case.most:.0%}: {case.why}" if case.why else ""
    return _line(asked.name, case.command, *numbers, share + note)


_NUMBERS = ("epsilon", "delta", "by", "found")
_CASE = 30  # letters of the cases that see bugs


def _line(*cells: str, second: int = 14) -> str:
    widths = (36, second, 8, 6, 8, 6, 0)
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=False)).rstrip()


COMMAND = Tool(
    name="audit",
    add_arguments=add_arguments,
    do=audit,
    example="headcount audit total --runs 200",
)
