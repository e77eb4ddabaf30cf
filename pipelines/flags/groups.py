"""The groups of flags that commands share."""

from __future__ import annotations

import argparse

from headcount.mechanisms.accounting.relation import Relation
from headcount.pipelines.flags.account import add_account, release_id
from headcount.pipelines.flags.flag import add
from headcount.pipelines.flags.numbers import memory_size, number, whole_number
from headcount.pipelines.flags.protection import add_protection

FORMATS = ("parquet", "avro", "csv", "jsonl")
MOST_FILES = 10_000
_LONGEST_TEXT = 200
HALF_OF_DELTA = " (half of it, with --epsilon)"  # what --rho says of delta where names take half of it


def add_input(parser: argparse.ArgumentParser, values: bool = False, item_needed: bool = True) -> None:
    """Which rows to read, and which columns of them: of items, or of `values`."""
    group = parser.add_argument_group("what to read")
    add_files(group)
    add_columns(group, values, item_needed)


def add_columns(group: argparse._ArgumentGroup, values: bool = False, item_needed: bool = True) -> None:
    """Which columns of the files are read."""
    add(
        group,
        "--user",
        needed=True,
        metavar="COLUMN",
        help="the column that tells users apart; a field of an object by its path, as user.id",
    )
    if values:
        add(group, "--value", needed=True, metavar="COLUMN", help="the column of the values: numbers, dates or times")
    else:
        add_item(group, item_needed)
    add_time_zone(group)
    add_protection(group)
    group.add_argument("--count", metavar="COLUMN", help="how often a row counts, 10^9 times at most (default: once)")
    held = "a value" if values else "an item"
    group.add_argument("--drop-null", action="store_true", help=f"drop rows without a user, {held} or a count")
    add_rows(group)
    if values:
        return
    add(
        group,
        "--max-item-bytes",
        type=whole_number(),
        default=4096,
        metavar="N",
        help="rows with a longer item are dropped (default: %(default)s)",
        rare=True,
    )


def add_rows(group: argparse._ArgumentGroup) -> None:
    """Which rows count, and a public table beside them."""
    group.add_argument(
        "--where",
        metavar="CONDITION",
        help='count only rows for which this holds, such as "country = de and price > 5": =, !=, <, <=, >, >=, in (...), '
        "is null, and, or, not (default: all rows)",
    )
    add_join(
        group,
        "a public table, .csv or .parquet with one row for each key of --on, whose columns can then be used as the "
        "rows' own; rows without a partner have nulls there. It must be public and never be made of the private data: its rows "
        "would tell who is in that",
    )
    group.add_argument("--on", metavar="COLUMN", help="the column by which rows find theirs in the table of --join")


def add_join(group: argparse._ArgumentGroup, what: str) -> None:
    """The file of a public table; `what` it holds is the help."""
    add(
        group,
        "--join",
        reported=False,
        kind="Any",
        python=f"{what}; a frame, or the path of a file".replace(".csv or .parquet with", "with"),
        metavar="FILE",
        help=what,
    )


def add_time_zone(group: argparse._ArgumentGroup) -> None:
    """Where days begin."""
    group.add_argument(
        "--time-zone", default="UTC", metavar="ZONE", help="where COLUMN:day and the like begin (default: %(default)s)"
    )


def add_item(group: argparse._ArgumentGroup, needed: bool = True) -> None:
    """What is counted: one column or several, and what is made of their values."""
    add(
        group,
        "--item",
        needed=needed,
        python='the column to count, or a list of several; "seen_at:day" is the day of a time, "seen_at:last7" the windows of '
        '7 days that it lies in (or last28), "age:0,18,65" a bin of a number',
        action="append",
        metavar="COLUMN",
        help="the column to count; repeated, each combination of several is counted. COLUMN:hour (or day, week, month, year) "
        "is for times, COLUMN:last7 (or last28) counts each in the windows of as many days that it lies in, whose last days "
        "--domain gives, COLUMN:0,18,30,65 puts numbers into bins, COLUMN:int is for whole numbers in text files",
    )
    group.add_argument(
        "--explode", metavar="COLUMN", help="a column of --item that holds lists: a row counts for each element"
    )


def add_levels(group: argparse._ArgumentGroup) -> None:
    """Counts at every level of a key."""
    add(
        group,
        "--levels",
        action="append",
        metavar="A,B,C",
        help="in place of --item: columns from the widest to the finest, as country,region,city; counts at every level, with "
        "what is other under each",
        python='in place of `item`: columns from the widest to the finest, as ["country", "region", "city"], or one text with '
        "commas; counts at every level, with what is other under each",
    )


def add_home(group: argparse._ArgumentGroup) -> None:
    """Each user in one place."""
    add(
        group,
        "--home",
        action="store_true",
        help="with --levels: each user counts in one place alone, where it has the most rows, so that users add up",
    )


def add_files(group: argparse._ArgumentGroup) -> None:
    """Which files to read, and what they are."""
    add(
        group,
        "--input",
        reported=False,
        action="append",
        metavar="GLOB",
        help="files of events, or a folder of them: Parquet, Avro, CSV or JSON lines, also gzip, on this machine or as gs://, "
        "s3:// or hdfs://; or bigquery://project.dataset.table; may be repeated",
        python=False,
    )
    add_kind_of_files(group)


def add_kind_of_files(group: argparse._ArgumentGroup) -> None:
    """What the files of --input are, where their names do not say it."""
    add(
        group,
        "--input-format",
        reported=False,
        choices=FORMATS,
        help="what the files are (default: by the ends of their names)",
        rare=True,
        python=False,
    )
    add(
        group,
        "--delimiter",
        reported=False,
        type=_delimiter,
        metavar="CHARACTER",
        help="what separates the columns of CSV files, or tab (default: a comma)",
        rare=True,
        python=False,
    )


def _delimiter(text: str) -> str:
    """Reads one character that can separate columns. No letter or digit: an unquoted \\t comes as a t."""
    character = "\t" if text in ("tab", r"\t") else text
    if len(character) != 1 or not character.isascii() or character.isalnum() or character in '"\r\n\0':
        raise argparse.ArgumentTypeError(f"must be one character such as ';' or '|', or tab, got {text!r}")
    return character


def add_budget(parser: argparse.ArgumentParser, rho: str | None = None) -> argparse._ArgumentGroup:
    """What is promised to each user; with `rho`, also as zCDP, for commands whose items come from the data and whose noise is
    Gaussian: it says what becomes of delta with --epsilon. Commands add their own parameters to the group that this returns."""
    group = parser.add_argument_group("what to promise")
    one_user = "how much one user can change the result at most"
    add(group, "--epsilon", needed=rho is None, type=number, metavar="E", help=one_user)
    group.add_argument(
        "--delta",
        type=number,
        default=0.0,
        metavar="D",
        help="a small chance on top, far below 1 / (number of users), such as 1e-8; needed where the items are not given, "
        "and for Gaussian noise (default: 0)",
    )
    add(
        group,
        "--relation",
        choices=[relation.value for relation in Relation],
        default=Relation.ADD_REMOVE.value,
        help="what a neighbouring input is: one user more or less, or one replaced (default: %(default)s)",
        rare=True,
    )
    add(
        group,
        "--explain",
        reported=False,
        action="store_true",
        help="print guarantee, threshold and error, read no data, and stop",
        python=False,
    )
    if rho is not None:
        group.add_argument(
            "--rho",
            type=number,
            metavar="R",
            help=f"in place of --epsilon: the promise as zCDP, with --delta for the items{rho}",
        )
    return group


def add_output(parser: argparse.ArgumentParser) -> None:
    """Where the result goes."""
    group = parser.add_argument_group("what to write")
    add(
        group,
        "--output",
        reported=False,
        metavar="DIR",
        help="the directory of the result, or bigquery://project.dataset.table, which is made",
        python=False,
    )
    add(group, "--format", choices=FORMATS, default="parquet", help="default: %(default)s", python=False)
    add(
        group,
        "--overwrite",
        reported=False,
        action="store_true",
        help="replace an earlier output of Headcount",
        python=False,
    )
    add(
        group,
        "--output-files",
        type=whole_number(most=MOST_FILES),
        default=1,
        metavar="N",
        help="number of files (default: 1)",
        rare=True,
        python=False,
    )
    add(
        group,
        "--label",
        reported=False,
        type=short_text,
        metavar="TEXT",
        help="what this is, in your words, for the report",
    )
    add(
        group,
        "--period",
        reported=False,
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


def add_quality(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Which of the released rows are left out, at no cost."""
    group = parser.add_argument_group("what to leave out of the result, at no cost")
    add(
        group,
        "--max-relative-error",
        python="leave out rows whose noise, at 1.96 standard deviations, is above this share of the count",
        type=number,
        metavar="E",
        help="rows whose noise, at 1.96 standard deviations, is above this share of the count (default: none)",
    )
    add(
        group,
        "--suppress-below",
        python="leave out rows whose noisy count is below",
        type=whole_number(),
        metavar="N",
        help="rows whose noisy count is below N (default: none)",
    )
    return group


def add_top(group: argparse._ArgumentGroup) -> None:
    """The largest of the released rows alone."""
    add(
        group,
        "--top",
        python="keep the rows with the largest counts alone, as many as this, in all or `per` group",
        type=whole_number(),
        metavar="N",
        help="all rows but the N with the largest counts, or with --per but the N largest of each group (default: none)",
    )
    add(
        group,
        "--per",
        action="append",
        python="with `top`: the column of the key, or a list of several, by whose values rows are grouped; its name is that in "
        "the result",
        metavar="COLUMN",
        help="with --top: a column of --item, by its name in the result, such as country: the N largest rows for each of its "
        "values; may be repeated",
    )


def add_domain(group: argparse._ArgumentGroup, what: str, needed: bool = False, partly: bool = False) -> None:
    """The files and ranges of a public domain; `what` they hold begins the help. `partly` says that some columns are enough."""
    some = "; of some columns, the others are named from the data, and each has them all" if partly else ""
    add(
        group,
        "--domain",
        reported=False,
        needed=needed,
        kind="Domain",
        python=f"{what}: a list, a frame with the columns of item, or a file of Parquet, CSV, or text with one value per "
        f"line; or a dict of columns to a range such as (first, last), a list or a file, all combinations{some}",
        action="append",
        metavar="[COLUMN=]FILE|FIRST..LAST",
        help=f"{what}: Parquet or CSV with the columns of --item, or text with one value per line; with COLUMN=FILE, or a "
        f"range such as COLUMN=2026-11-01..2026-11-30 or COLUMN=1..12, once for each column, all combinations{some}",
    )


def add_release(parser: argparse.ArgumentParser) -> None:
    """Where the noise comes from."""
    group = parser.add_argument_group("where the noise comes from")
    add_key(group)
    add(
        group,
        "--release-id",
        reported=False,
        type=release_id,
        metavar="ID",
        help="only to repeat a release of the same input: its id (and its key); auto, with a ledger: an id that follows from "
        "data set, label, period and parameters, so that a job that is run again is no new release",
    )
    group = parser.add_argument_group("how to run")
    shards = "shards of users (default: by the size of the input)"
    add(
        group,
        "--shards",
        reported=False,
        type=whole_number(most=1 << 16),
        metavar="N",
        help=shards,
        rare=True,
        python=False,
    )
    limit = "memory of rows that wait, such as 8G, beyond which they wait on disk (default: 512M)"
    add(group, "--memory-limit", reported=False, type=memory_size, metavar="SIZE", help=limit, rare=True, python=False)


def add_key(group: argparse._ArgumentGroup) -> None:
    """Where the key lies."""
    source = group.add_mutually_exclusive_group()
    add(
        source,
        "--key-file",
        reported=False,
        kind="Path",
        metavar="FILE",
        help="key file (see: headcount key), on every worker",
    )
    add(
        source,
        "--key-env",
        reported=False,
        metavar="NAME",
        help="environment variable of the workers with the key",
        rare=True,
    )
    add(
        source,
        "--key-secret",
        reported=False,
        metavar="RESOURCE",
        help="Secret Manager's name of the key, which workers fetch: projects/P/secrets/S/versions/N",
        rare=True,
    )
