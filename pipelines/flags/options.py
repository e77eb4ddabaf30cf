"""The command line: parsers, the argument groups that the commands share, and the objects made of them.

An error is one line. Values of parameters are echoed; nothing is read here but a domain file.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.flags.account import add_account
from headcount.pipelines.flags.metrics import values
from headcount.pipelines.flags.numbers import memory_size, number, whole_number
from headcount.pipelines.flags.protection import add_protection, window

if TYPE_CHECKING:
    from headcount.pipelines.sources.columns import Columns

FORMATS = ("parquet", "avro", "csv", "jsonl")
MOST_FILES = 10_000
NAMING = "an item that one user alone has cannot be hidden for certain"  # why there must be a delta
_MEANT = {  # by the flags that every command needs, for whoever has left one out
    "--input": " (the files or the folder to read)",
    "--user": " (the column that tells users apart)",
    "--item": " (the column to count)",
    "--epsilon": " (how much one user can change the result at most, for instance 1)",
    "--output": " (where the result goes)",
    "--lo": " (the least value that counts, known without a look at the data)",
    "--hi": " (the largest one)",
}
_LONGEST_TEXT = 200
LARGE_EPSILON, LARGE_DELTA = 10, 1e-4  # a promise beyond these is hinted at


def as_flag(parameter: str) -> str:
    """How a command line spells a parameter."""
    return f"--{parameter.replace('_', '-')}"


def chosen_items(items: int) -> str:
    """What a reader must know of numbers for which only some of a user's items count."""
    each = "for one of its items" if items == 1 else f"for each of at most {items:,} of its items"
    return (
        f"each user counts once {each}, chosen at random: all numbers are of these alone, not of all that users have "
        "(see --max-items)"
    )


def add_input(parser: argparse.ArgumentParser, values: bool = False) -> None:
    """Which rows to read, and which columns of them: of items, or of `values`."""
    group = parser.add_argument_group("what to read")
    add_files(group)
    add_columns(group, values)


def add_columns(group: argparse._ArgumentGroup, values: bool = False) -> None:
    """Which columns of the files are read."""
    group.add_argument(
        "--user",
        metavar="COLUMN",
        help="the column that tells users apart; a field of an object by its path, as user.id",
    )
    if values:
        group.add_argument("--value", metavar="COLUMN", help="the column of the values: numbers, dates or times")
    else:
        add_item(group)
    add_time_zone(group)
    add_protection(group)
    group.add_argument("--count", metavar="COLUMN", help="how often a row counts, 10^9 times at most (default: once)")
    held = "a value" if values else "an item"
    group.add_argument("--drop-null", action="store_true", help=f"drop rows without a user, {held} or a count")
    if values:
        return
    group.add_argument(
        "--max-item-bytes",
        type=whole_number(),
        default=4096,
        metavar="N",
        help="rows with a longer item are dropped (default: %(default)s)",
    )


def add_time_zone(group: argparse._ArgumentGroup) -> None:
    """Where days begin."""
    group.add_argument(
        "--time-zone", default="UTC", metavar="ZONE", help="where COLUMN:day and the like begin (default: %(default)s)"
    )


def add_item(group: argparse._ArgumentGroup) -> None:
    """What is counted: one column or several, and what is made of their values."""
    group.add_argument(
        "--item",
        action="append",
        metavar="COLUMN",
        help="the column to count; repeated, each combination of several is counted. COLUMN:hour (or day, week, month, year) "
        "is for times, COLUMN:0,18,30,65 puts numbers into bins, COLUMN:int is for whole numbers in text files",
    )
    group.add_argument(
        "--explode", metavar="COLUMN", help="a column of --item that holds lists: a row counts for each element"
    )


def columns(args: argparse.Namespace) -> Columns:
    """The columns that the flags of `add_input` name."""
    from headcount.pipelines.sources.columns import columns_of  # which needs Arrow, as flags do not

    carried = [of.column for of in values(args)]
    return columns_of(args.user, args.item, args.count, args.explode, args.time_zone, window(args), carried)


def rows(args: argparse.Namespace) -> dict[str, Any]:
    """What the flags of `add_input` say of rows, as the parameters of `Contributions` and of the door of a call."""
    names = "user item count drop_null max_item_bytes explode time_zone protect time"
    return {name: getattr(args, name) for name in names.split()} | {"values": values(args)}


def add_files(group: argparse._ArgumentGroup) -> None:
    """Which files to read, and what they are."""
    group.add_argument(
        "--input",
        action="append",
        metavar="GLOB",
        help="files of events, or a folder of them: Parquet, Avro, CSV or JSON lines, also gzip, on this machine or as gs://, "
        "s3:// or hdfs://; or bigquery://project.dataset.table; may be repeated",
    )
    add_kind_of_files(group)


def add_kind_of_files(group: argparse._ArgumentGroup) -> None:
    """What the files of --input are, where their names do not say it."""
    group.add_argument(
        "--input-format", choices=FORMATS, help="what the files are (default: by the ends of their names)"
    )
    group.add_argument(
        "--delimiter",
        type=_delimiter,
        metavar="CHARACTER",
        help="what separates the columns of CSV files, or tab (default: a comma)",
    )


def _delimiter(text: str) -> str:
    """Reads one character that can separate columns. No letter or digit: an unquoted \\t comes as a t."""
    character = "\t" if text in ("tab", r"\t") else text
    if len(character) != 1 or not character.isascii() or character.isalnum() or character in '"\r\n\0':
        raise argparse.ArgumentTypeError(f"must be one character such as ';' or '|', or tab, got {text!r}")
    return character


def add_budget(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """What is promised to each user. Commands add their own parameters to the group that this returns."""
    group = parser.add_argument_group("what to promise")
    group.add_argument("--epsilon", type=number, metavar="E", help="how much one user can change the result at most")
    group.add_argument(
        "--delta",
        type=number,
        default=0.0,
        metavar="D",
        help="a small chance on top, far below 1 / (number of users), such as 1e-8; needed where the items are not given, "
        "and for Gaussian noise (default: 0)",
    )
    group.add_argument(
        "--relation",
        choices=[relation.value for relation in Relation],
        default=Relation.ADD_REMOVE.value,
        help="what a neighbouring input is: one user more or less, or one replaced (default: %(default)s)",
    )
    group.add_argument(
        "--explain", action="store_true", help="print guarantee, threshold and error, read no data, and stop"
    )
    return group


def add_rho(group: argparse._ArgumentGroup, otherwise: str = " (half of it, with --epsilon)") -> None:
    """The promise in another form, for commands whose items come from the data and whose noise is Gaussian; `otherwise` says
    what becomes of delta with --epsilon."""
    group.add_argument(
        "--rho",
        type=number,
        metavar="R",
        help="in place of --epsilon: the promise as zCDP, with --delta for the items" + otherwise,
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """Where the result goes."""
    group = parser.add_argument_group("what to write")
    group.add_argument(
        "--output",
        metavar="DIR",
        help="the directory of the result, or bigquery://project.dataset.table, which is made",
    )
    group.add_argument("--format", choices=FORMATS, default="parquet", help="default: %(default)s")
    group.add_argument("--overwrite", action="store_true", help="replace an earlier output of Headcount")
    group.add_argument(
        "--output-files",
        type=whole_number(most=MOST_FILES),
        default=1,
        metavar="N",
        help="number of files (default: 1)",
    )
    group.add_argument("--label", type=short_text, metavar="TEXT", help="what this is, in your words, for the report")
    group.add_argument(
        "--period",
        type=short_text,
        metavar="TEXT",
        help="the time that the events are of, in your words, for the report",
    )
    add_account(parser)


def short_text(text: str) -> str:
    """Reads the user's own words for a report."""
    if not 0 < len(text) <= _LONGEST_TEXT:
        raise argparse.ArgumentTypeError(f"must be a text of 1 to {_LONGEST_TEXT} characters, got {len(text)}")
    return text


def add_quality(parser: argparse.ArgumentParser) -> None:
    """Which of the released rows are left out, at no cost."""
    group = parser.add_argument_group("what to leave out of the result, at no cost")
    group.add_argument(
        "--max-relative-error",
        type=number,
        metavar="E",
        help="rows whose noise, at 1.96 standard deviations, is above this share of the count (default: none)",
    )
    group.add_argument(
        "--suppress-below", type=whole_number(), metavar="N", help="rows whose noisy count is below N (default: none)"
    )


def add_domain(group: argparse._ArgumentGroup, what: str) -> None:
    """The files of a public domain; `what` they hold begins the help."""
    group.add_argument(
        "--domain",
        action="append",
        metavar="[COLUMN=]FILE",
        help=f"{what}: Parquet or CSV with the columns of --item, or text with one value per line; with COLUMN=FILE, once for "
        "each column, all combinations",
    )


def quality(args: argparse.Namespace) -> dict[str, Any]:
    """The parameters of `add_quality`: for a transform, and for the report."""
    return {"max_relative_error": args.max_relative_error, "suppress_below": args.suppress_below}


def add_release(parser: argparse.ArgumentParser) -> None:
    """Where the noise comes from."""
    group = parser.add_argument_group("where the noise comes from")
    add_key(group)
    group.add_argument(
        "--release-id",
        metavar="ID",
        help="only to repeat a release of the same input: its id (and its key); auto, with a ledger: an id that follows from "
        "data set, label, period and parameters, so that a job that is run again is no new release",
    )
    group = parser.add_argument_group("how to run")
    shards = "shards of users (default: by the size of the input)"
    group.add_argument("--shards", type=whole_number(most=1 << 16), metavar="N", help=shards)
    limit = "memory of rows that wait, such as 8G, beyond which they wait on disk (default: half of the machine's)"
    group.add_argument("--memory-limit", type=memory_size, metavar="SIZE", help=limit)


def add_key(group: argparse._ArgumentGroup) -> None:
    """Where the key lies."""
    source = group.add_mutually_exclusive_group()
    source.add_argument("--key-file", metavar="FILE", help="key file (see: headcount key), on every worker")
    source.add_argument("--key-env", metavar="NAME", help="environment variable of the workers with the key")
    source.add_argument(
        "--key-secret",
        metavar="RESOURCE",
        help="Secret Manager's name of the key, which workers fetch: projects/P/secrets/S/versions/N",
    )


def one_or_all(item: list[str] | None) -> str | list[str] | None:
    """The columns of --item, as they are given in Python: a text, or a list of several."""
    return item[0] if item is not None and len(item) == 1 else item


def shared_parameters(args: argparse.Namespace) -> dict[str, Any]:
    """The public parameters that every job has, for its report."""
    return {
        "user": args.user,
        "item": one_or_all(args.item),
        "count": args.count,
        "explode": args.explode,
        "time_zone": args.time_zone if args.time_zone != "UTC" else None,
        "protect": args.protect if args.protect != "user" else None,
        "time": args.time,
        "windows": args.windows,
        "drop_null": args.drop_null,
        "max_item_bytes": args.max_item_bytes,
        "epsilon": args.epsilon,
        "delta": args.delta,
        "relation": args.relation,
        "format": args.format,
        "output_files": args.output_files,
    }


def typed(args: argparse.Namespace, item_type: type) -> dict[str, Any]:
    """What mechanisms and transforms of a job are told alike, besides their own parameters."""
    return {"relation": Relation.parse(args.relation), "item_type": item_type}


def how_to_run(args: argparse.Namespace, release: Release, shards: int) -> dict[str, Any]:
    """What every transform of a job is told besides the parameters of its mechanism."""
    return {"release": release, "shards": shards, "output_files": args.output_files}


def item_type(args: argparse.Namespace) -> type:
    """What items are inside, by the flags alone: before anything is read."""
    from headcount.mechanisms.keys.columns import parse_columns

    asked = parse_columns(args.item) if getattr(args, "item", None) else ()
    return int if len(asked) == 1 and (asked[0].unit or asked[0].edges) else str


def values_as_items(args: argparse.Namespace) -> argparse.Namespace:
    """The arguments of a command of values for what knows items only, which the values stand in for."""
    from headcount.mechanisms.keys.columns import KeyColumn

    item = None if args.value is None else [KeyColumn(args.value).spec]
    as_items = {"item": item, "explode": None, "max_item_bytes": 4096}
    return argparse.Namespace(**vars(args) | as_items)


def require(args: argparse.Namespace, *flags: str) -> None:
    """Refuse a command line on which one of these flags is missing."""
    missing = [flag for flag in flags if getattr(args, flag.lstrip("-").replace("-", "_")) is None]
    if missing:
        raise ParameterError(f"missing {', '.join(flag + _MEANT.get(flag, '') for flag in missing)}")


def require_delta(args: argparse.Namespace, why: str, otherwise: str = "") -> None:
    """Refuse a command line without a delta, where it is needed because of this."""
    if args.delta == 0:
        raise ParameterError(
            f"--delta must be positive, as {why}, got 0.0: give one far below one over the number of users, for instance "
            f"--delta 1e-8{otherwise}"
        )


def make_budget(args: argparse.Namespace) -> Budget:
    """The budget of `add_budget`."""
    require(args, "--epsilon")
    return Budget(epsilon=args.epsilon, delta=args.delta)


def make_zcdp_or_budget(args: argparse.Namespace) -> Zcdp | Budget:
    """The budget of `add_budget` and `add_rho`, which is given as one or the other."""
    if (args.rho is None) == (args.epsilon is None):
        given = "neither" if args.rho is None else f"--epsilon {args.epsilon} and --rho {args.rho}"
        raise ParameterError(f"give one of --epsilon and --rho, got {given}")
    require_delta(args, NAMING)
    return make_budget(args) if args.rho is None else Zcdp(args.rho, args.delta)


def check_zcdp_or_budget(args: argparse.Namespace) -> None:
    """Refuse a command line that gives neither or both, or no delta."""
    make_zcdp_or_budget(args)


def hint(epsilon: float, delta: float) -> None:
    """One line on standard error for a promise that is allowed and hides little; what is printed otherwise stays as it is."""
    words = hint_words(epsilon, delta)
    if words is not None:
        print(f"headcount: {words}", file=sys.stderr)


def hint_words(epsilon: float, delta: float) -> str | None:
    """What is to be said of a promise that is allowed and hides little."""
    words = []
    if epsilon > LARGE_EPSILON:
        words.append(f"epsilon = {epsilon:g} is above {LARGE_EPSILON}, and one user may change any result a lot")
    if delta > LARGE_DELTA:
        words.append(
            f"delta = {delta:g} is above {LARGE_DELTA:g}, and should be far below one over the number of users"
        )
    return f"this promises little: {'; '.join(words)}" if words else None


def hint_of_flags(args: argparse.Namespace) -> None:
    """The same, by the flags of `add_budget` and `add_rho`, for a command that only explains."""
    rho = getattr(args, "rho", None)
    budget = make_budget(args) if rho is None else Zcdp(rho, args.delta).to_budget(args.delta)
    hint(budget.epsilon, budget.delta)
