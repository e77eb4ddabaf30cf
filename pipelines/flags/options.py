"""The command line: parsers, the argument groups that the commands share, and the objects made of them.

An error is one line. Values of parameters are echoed; nothing is read here but a domain file.
"""

from __future__ import annotations

import argparse
import inspect
import keyword
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.flags import flag
from headcount.pipelines.flags.metrics import values
from headcount.pipelines.flags.protection import window

if TYPE_CHECKING:
    from headcount.mechanisms.columns.conditions import Condition
    from headcount.mechanisms.columns.keys import Keys
    from headcount.mechanisms.columns.preparation import Preparation
    from headcount.pipelines.sources.columns import Columns

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
# Flags in a message, for whoever knows parameters by other names; in brackets behind the same as a keyword.
FLAG = re.compile(r"(?<![\w-])--([a-z](?:[a-z-]*[a-z])?)\b")
FLAG_IN_BRACKETS = re.compile(r" \(--[a-z-]+(?:, --[a-z-]+)*\)")
LARGE_EPSILON, LARGE_DELTA = 10, 1e-4  # a promise beyond these is hinted at


def as_flag(parameter: str) -> str:
    """How a command line spells a parameter."""
    return f"--{parameter.rstrip('_').replace('_', '-')}"


def as_parameter(flag: str) -> str:
    """The parameter that a flag gives: Python has words of its own, such as `from`, behind which an underscore stands."""
    name = flag.lstrip("-").replace("-", "_")
    return f"{name}_" if keyword.iskeyword(name) else name


def chosen_items(items: int) -> str:
    """What a reader must know of numbers for which only some of a user's items count."""
    each = "for one of its items" if items == 1 else f"for each of at most {items:,} of its items"
    return (
        f"each user counts once {each}, chosen at random: all numbers are of these alone, not of all that users have "
        "(see --max-items)"
    )


def columns(args: argparse.Namespace) -> Columns:
    """The columns that the flags of `add_input` name."""
    from headcount.pipelines.sources.columns import columns_of  # which needs Arrow, as flags do not

    given = (args.user, args.item, args.count, args.explode, args.time_zone, window(args))
    return columns_of(*given, values(args), preparation(args))


def preparation(args: argparse.Namespace) -> Preparation:
    """What is done to rows before anything else, by the flags of `add_rows`; the table of a file is read once."""
    from headcount.mechanisms.columns.preparation import PublicTable, preparation, public_table
    from headcount.pipelines.storage import stores

    if args.join is not None and args.on is not None and not isinstance(args.join, PublicTable):
        args.join = public_table(args.join, args.on, stores.read)
    return preparation(condition(args), args.join, args.on)


def join_digest(args: argparse.Namespace) -> dict[str, str]:
    """What a report states of the table of --join, as a parameter: a digest of what it holds, in whatever file."""
    found = preparation(args).join if getattr(args, "join", None) is not None else None
    return {} if found is None else {"join_digest": found.digest}


def table_hint(args: argparse.Namespace) -> str | None:
    """What is to be said of a table with a row for each user, which is seldom public."""
    if getattr(args, "join", None) is None or args.on != args.user:
        return None
    return "the table of --join has a row for each user, and is taken as public: what it says of users is not protected"


def condition(args: argparse.Namespace) -> Condition | None:
    """What --where says, if it is there; refuses a text that is no condition, before anything is read."""
    from headcount.mechanisms.columns.conditions import parse_condition

    return None if getattr(args, "where", None) is None else parse_condition(args.where, zone=args.time_zone)


def settle_levels(args: argparse.Namespace) -> None:
    """Take the columns of --levels for those of --item, which it is given in place of."""
    from headcount.mechanisms.columns.key_column import split_columns

    if args.levels is None:
        if getattr(args, "home", False):
            raise ParameterError("--home says where a user counts in levels: give --levels, or leave --home out")
        return
    columns = [column for each in args.levels for column in split_columns(each)]
    if args.item not in (None, columns):
        raise ParameterError("--item and --levels both say what is counted: leave --item out")
    args.item = columns


def shown_keys(args: argparse.Namespace, keys: Keys | None) -> Keys | None:
    """The key columns of the output, of those that rows are read by."""
    from headcount.mechanisms.columns.level_keys import LevelKeys

    return LevelKeys(keys.fields) if keys is not None and getattr(args, "levels", None) else keys


def rows(args: argparse.Namespace) -> dict[str, Any]:
    """What the flags of `add_input` say of prepared rows, as parameters of `Contributions` and of `columns.row_schema`."""
    names = "user item count drop_null max_item_bytes explode time_zone protect time"
    return {name: getattr(args, name) for name in names.split()} | {"values": values(args)}


def quality(args: argparse.Namespace) -> dict[str, Any]:
    """The parameters of `add_quality`: for a transform, and for the report."""
    return {"max_relative_error": args.max_relative_error, "suppress_below": args.suppress_below}


def one_or_all(item: list[str] | None) -> str | list[str] | None:
    """The columns of --item, as they are given in Python: a text, or a list of several."""
    return item[0] if item is not None and len(item) == 1 else item


def of_factory(factory: Callable[..., Any], args: argparse.Namespace) -> dict[str, Any]:
    """What the flags give for the parameters of a factory that have their names."""
    return {name: getattr(args, name) for name in inspect.signature(factory).parameters if hasattr(args, name)}


def reported(parser: argparse.ArgumentParser, args: argparse.Namespace) -> dict[str, Any]:
    """The public parameters of a job by its flags, for its report, which leaves out what is None."""
    found = {action.dest: getattr(args, action.dest) for action in parser._actions if flag.is_reported(action)}
    where = condition(args)
    if where is not None:
        found["where"] = where.text  # in one spelling
    usual = {"time_zone": "UTC", "protect": "user"}  # which are not worth a line
    return {
        name: None if usual.get(name) == value else one_or_all(value) if name in ("item", "by") else value
        for name, value in found.items()
    }


def typed(args: argparse.Namespace, item_type: type) -> dict[str, Any]:
    """What mechanisms and transforms of a job are told alike, besides their own parameters."""
    return {"relation": Relation.parse(args.relation), "item_type": item_type}


def how_to_run(args: argparse.Namespace, release: Release, shards: int) -> dict[str, Any]:
    """What every transform of a job is told besides the parameters of its mechanism."""
    return {"release": release, "shards": shards, "output_files": args.output_files}


def item_type(args: argparse.Namespace) -> type:
    """What items are inside, by the flags alone: before anything is read."""
    from headcount.mechanisms.columns.key_column import parse_columns

    given = getattr(args, "item", None) or getattr(args, "by", None)
    asked = parse_columns(given) if given else ()
    return int if len(asked) == 1 and (asked[0].unit or asked[0].edges) else str


def values_as_items(args: argparse.Namespace) -> argparse.Namespace:
    """The arguments of a command of values for what knows items only, which the values stand in for."""
    from headcount.mechanisms.columns.key_column import KeyColumn

    item = None if args.value is None else [KeyColumn(args.value).spec]
    as_items = {"item": item, "explode": None, "max_item_bytes": 4096}
    return argparse.Namespace(**vars(args) | as_items)


def require(args: argparse.Namespace, *flags: str) -> None:
    """Refuse a command line on which one of these flags is missing."""
    missing = [flag for flag in flags if getattr(args, as_parameter(flag)) is None]
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
    words = hint_text(epsilon, delta)
    if words is not None:
        print(f"headcount: {words}", file=sys.stderr)


def hint_text(epsilon: float, delta: float) -> str | None:
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
