"""Releases side by side: what changed between them, and what is noise. Released files are read, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headcount.functions import suggesting

if TYPE_CHECKING:
    from headcount.functions import Path
    from headcount.pipelines.over_time.told import Changes
    from headcount.result import Result


@suggesting
def series(
    releases: Sequence[Path | Result], *, metric: str | Sequence[str] | None = None, false_alarms: float = 0.05
) -> Changes:
    """What changed between releases of one kind, put side by side, and what is within the noise.

    Guarantee: it costs nothing, as it reads what is released already.

        headcount.series(["2026-W44/", "2026-W45/", "2026-W46/"])

    Parameters:
        releases: folders that were saved, or what calls gave, in order of time; two or more.
        metric: test this number alone, such as "count" or "users", or several (default: None, all numbers of the rows).
        false_alarms: the chance, over all rows together, that any change is called real and is none (default: 0.05).

    The result has `rows`, a dict for each change between releases that follow each other, and between the first and the last,
    `real`, those that are more than noise, `table` and `to_pandas()`; `save(folder)` writes changes.csv, rows.csv and
    changes.html, a page with lines and bands.
    """
    return _changes("series", releases, metric, false_alarms)


@suggesting
def diff(
    before: Path | Result,
    after: Path | Result,
    *,
    metric: str | Sequence[str] | None = None,
    false_alarms: float = 0.05,
) -> Changes:
    """What changed between two releases of one kind, and what is within the noise.

    Guarantee: it costs nothing, as it reads what is released already.

        headcount.diff("2026-W45/", "2026-W46/").real

    Parameters:
        before: the folder of the earlier release, or what its call gave.
        after: the later one.
        metric: test this number alone, such as "count" or "users", or several (default: None, all numbers of the rows).
        false_alarms: the chance, over all rows together, that any change is called real and is none (default: 0.05).

    The result has what that of `series` has.
    """
    return _changes("diff", [before, after], metric, false_alarms)


def _changes(command: str, releases: Sequence[Any], metric: Any, false_alarms: Any) -> Changes:
    """What the command finds; a result in memory stands for its folder."""
    import os

    from headcount.keywords import namespace, spelled
    from headcount.mechanisms.checks import wrong
    from headcount.mechanisms.errors import HeadcountError
    from headcount.pipelines.command import load
    from headcount.pipelines.commands.outputs.over_time import read_changes
    from headcount.result import Result

    try:
        args = namespace(load(command), {"metric": metric, "false_alarms": false_alarms})
        if isinstance(releases, str | os.PathLike | Result):
            raise wrong("releases", "must be several folders or results, in order of time", type(releases).__name__)
        given = [each if isinstance(each, Result) else os.fspath(each) for each in releases]
        return read_changes(given, args)
    except HeadcountError as error:
        raise spelled(error) from None
