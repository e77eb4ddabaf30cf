"""`headcount rehearse`: on public data, what each method would give at each epsilon, against the truth."""

from __future__ import annotations

import argparse
import os
import sys

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.bounding.steps import MAX_BOUND
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.command import Tool, say
from headcount.pipelines.flags import groups, numbers, options
from headcount.pipelines.flags.flag import add
from headcount.pipelines.studies.bar import Bar
from headcount.pipelines.studies.data import Data
from headcount.pipelines.studies.methods import QUESTIONS, Promised, methods_of, named
from headcount.pipelines.studies.rehearsal import Rehearsal, check_folder
from headcount.pipelines.studies.run import grid
from headcount.pipelines.studies.scores import LARGE_FROM

EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0)
DELTA = 1e-8
RELEASES = 3
_MOST_RELEASES = 10_000
_USUAL_SHARE = 0.9  # of the users have no more items than a strategy takes of each, unless it is said


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    group = parser.add_argument_group("what to read: public or made-up data only, as what is printed is not private")
    group.add_argument(
        "--public-data",
        action="append",
        metavar="GLOB",
        help="files of events that nobody needs to protect, or a folder of them: public, or made up (see: headcount "
        "generate); may be repeated",
    )
    add(group, "--input", action="append", help=argparse.SUPPRESS, python=False)  # refused in words
    groups.add_kind_of_files(group)
    groups.add_columns(group)
    group = parser.add_argument_group("what to rehearse")
    group.add_argument(
        "--epsilon",
        type=epsilons,
        default=EPSILONS,
        metavar="E[,E...]",
        help=f"the epsilons (default: {','.join(f'{each:g}' for each in EPSILONS)})",
    )
    group.add_argument("--delta", type=numbers.number, default=DELTA, metavar="D", help="default: %(default)s")
    add(
        group,
        "--relation",
        choices=[relation.value for relation in Relation],
        default=Relation.ADD_REMOVE.value,
        help="what a neighbouring input is (default: %(default)s)",
        rare=True,
    )
    group.add_argument(
        "--question",
        action="append",
        choices=tuple(QUESTIONS),
        help="how often items occur (events), how many users have them (users), or which there are (names); may be repeated "
        "(default: all)",
    )
    group.add_argument(
        "--methods",
        type=words,
        metavar="NAME[,NAME...]",
        help="some of the methods, by the names that the result has for them (default: all)",
    )
    group.add_argument(
        "--releases",
        type=numbers.whole_number(most=_MOST_RELEASES),
        default=RELEASES,
        metavar="N",
        help="how often each method runs at each epsilon (default: %(default)s)",
    )
    group.add_argument(
        "--max-items",
        type=numbers.whole_number(most=MAX_BOUND),
        metavar="K",
        help="for the strategies that name items and choose nothing: items of one user that count at most (default: the "
        "number that nine tenths of the users stay within)",
    )
    add(
        group,
        "--processes",
        type=numbers.whole_number(),
        metavar="N",
        help="how many share the work, each with the data in its memory (default: one for each core)",
        rare=True,
        python=False,
    )
    group.add_argument(
        "--large-from",
        type=numbers.whole_number(),
        default=LARGE_FROM,
        metavar="N",
        help="an item of N users or more is large, and missed if it is not shown (default: %(default)s)",
    )
    group = parser.add_argument_group("what to write")
    add(
        group,
        "--output",
        metavar="DIR",
        help="the folder of rehearse.csv and rehearse.html (default: none)",
        python=False,
    )
    add(group, "--overwrite", action="store_true", help="replace those of an earlier rehearsal", python=False)


def epsilons(text: str) -> tuple[float, ...]:
    """Reads numbers with commas between them, each once."""
    return tuple(dict.fromkeys(numbers.number(part.strip()) for part in text.split(",") if part.strip()))


def words(text: str) -> tuple[str, ...]:
    """Reads names with commas between them."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def check(args: argparse.Namespace) -> None:
    """Refuse what cannot be rehearsed, before anything is read."""
    if args.input is not None:
        raise ParameterError(
            "--input is for private releases, and what rehearse prints is not private: give the data by --public-data if it is "
            "public or made up, and else see headcount forecast, which needs none"
        )
    if not args.epsilon:
        raise ParameterError("--epsilon must be a number, or several with commas between them, got none")
    options.check_windows(args, False)
    named(methods_of(QUESTIONS, 1), args.methods or ())
    for promised in promises(args):
        options.make_budget(argparse.Namespace(**promised._asdict()))


def promises(args: argparse.Namespace) -> list[Promised]:
    """The budgets, by ascending epsilon."""
    return [Promised(epsilon, args.delta, args.relation) for epsilon in sorted(args.epsilon)]


def rehearsed(data: Data, args: argparse.Namespace, processes: int = 1) -> Rehearsal:
    """All methods that are asked for at all epsilons, against the truth of the data."""
    if len(data.items) == 0:
        raise ParameterError("the data has no events, so there is nothing to rehearse")
    methods = methods_of(args.question or QUESTIONS, args.max_items or data.items_per_user(_USUAL_SHARE))
    methods = methods if args.methods is None else named(methods, args.methods)
    asked = promises(args)
    with Bar(sys.stderr, len(methods) * len(asked) * args.releases) as bar:
        cells = grid(
            data, methods, asked, args.releases, large_from=args.large_from, processes=processes, step=bar.step
        )
    if cells and all(cell.refused is not None for cell in cells):
        raise ParameterError(str(cells[0].refused))
    return Rehearsal(data.description(), tuple(cells), args.releases, args.large_from)


def rehearse(args: argparse.Namespace) -> None:
    """Read, run, print, and write what is asked for."""
    check(args)
    options.require(args, "--public-data", "--user", "--item")
    from headcount.pipelines.studies.data import in_memory
    from headcount.pipelines.studies.rows_of_files import read_contributions  # which needs Beam, as flags do not

    if args.output is not None:
        check_folder(args.output, args.overwrite)
    batches, keys = read_contributions(args, args.public_data)
    found = rehearsed(in_memory(batches, keys.item_type), args, args.processes or os.cpu_count() or 1)
    say(found.text())
    if args.output is not None:
        print("\n".join(["", *(f"wrote {path}" for path in found.save(args.output, overwrite=True))]))


COMMAND = Tool(
    name="rehearse",
    add_arguments=add_arguments,
    do=rehearse,
    example=(
        "headcount rehearse --public-data visits.parquet --user user_id --item page \\\n"
        "      --epsilon 0.5,1,2 --delta 1e-8 --output rehearsed/"
    ),
)
