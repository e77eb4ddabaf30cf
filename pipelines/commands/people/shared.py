"""What the commands of questions about people share: checks, the plan, and words on noise that is known before any data."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headcount.mechanisms.calibration.expected_error import users_needed
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.people.release import PeopleMechanism
from headcount.pipelines.flags import options
from headcount.pipelines.reports.plan import Plan
from headcount.pipelines.reports.summary import aligned

if TYPE_CHECKING:
    from headcount.pipelines.jobs.source import Source

Row = Mapping[str, Any]
_MOST_TABLES = 12  # of values of --by that a terminal shows


def check(args: argparse.Namespace) -> None:
    """Refuse parameters that do not go together, by the names of their flags."""
    options.require(args, "--epsilon")
    if args.domain is not None and args.by is None:
        raise ParameterError("--domain has the values of --by: give that, too, or leave out --domain")
    if args.by is not None and args.domain is None:
        options.require_delta(
            args,
            "values of --by that one user alone has cannot be hidden for certain",
            "; or give the values, if they are public, by --domain",
        )
    if args.noise == "gaussian":
        options.require_delta(args, "Gaussian noise takes one")


def parameters(args: argparse.Namespace, domain: Any, item_type: type) -> dict[str, Any]:
    """What every factory of these questions is told."""
    return {
        "budget": options.make_budget(args),
        "domain": domain,
        "noise": args.noise,
        **options.typed(args, item_type),
    }


def of_transform(args: argparse.Namespace) -> dict[str, Any]:
    """What every transform of these questions is told of its columns."""
    names = ("user", "time", "count", "by", "drop_null", "max_item_bytes", "time_zone")
    return {name: getattr(args, name) for name in names if hasattr(args, name)}


def plan(made: PeopleMechanism, files: str, note: str, more: Mapping[str, Any] | None = None) -> Plan:
    """What a command says of itself."""
    stated = {"noise": made.table.plans[0].kind, "public_domain": made.domain is not None if made.by else None}
    summary = {} if made.naming is None else users_needed(each.plan for each in made.naming.rounds)
    return Plan(made.guarantee(), stated | dict(more or {}), files, note, summary)


def explained(made: PeopleMechanism, lines: Iterable[str], note: str) -> str:
    """The promise and what it costs, in words, before anything is read."""
    found = [made.guarantee().description(), "", *lines]
    if made.naming is not None:
        needed = users_needed(each.plan for each in made.naming.rounds)["users_needed"]
        found.append(
            f"a value of --by is named from about {needed:,} users on, whose path, first period or events it tells"
        )
    return "\n".join([*found, note])


def source(args: argparse.Namespace) -> type[Source]:
    """What the job reads."""
    from headcount.pipelines.jobs.readers import People

    return People


def shown(
    report: Mapping[str, Any],
    rows: Iterable[Row],
    table: Callable[[Sequence[Row]], list[str]],
    what: str,
) -> str:
    """The rows as tables in their order, one for each value of --by."""
    keys = report.get("keys", [])
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row[key]) for key in keys), []).append(row)
    if not groups:
        needed = f": it takes about {report['users_needed']:,}" if "users_needed" in report else ""
        return f"no value of {', '.join(keys) or 'by'} came out, as none has enough users{needed}"
    lines = [f"{what}:"]
    for values, held in [*groups.items()][:_MOST_TABLES]:
        lines += ["", *([", ".join(f"{key} {value}" for key, value in zip(keys, values, strict=True))] if keys else [])]
        lines += table(held)
    if len(groups) > _MOST_TABLES:
        lines += ["", f"and {len(groups) - _MOST_TABLES:,} more in the files"]
    return "\n".join(lines)


def lined_up(heads: Sequence[str], cells: Iterable[Sequence[str]], texts: int = 1) -> list[str]:
    """Cells below their heads, of which the first columns are texts."""
    return aligned([heads, *cells], [number < texts for number in range(len(heads))])


def number(value: Any) -> str:
    """A count, as a terminal shows it."""
    return f"{float(value):,.0f}"


def share(row: Row, name: str) -> str:
    """A share of a row in percent, with its interval; nothing where there is none."""
    value, low, high = (row[each] for each in (name, f"{name}_low", f"{name}_high"))
    if value in (None, ""):
        return ""
    return f"{100 * float(value):.1f} % ({100 * float(low):.1f} to {100 * float(high):.1f})"
