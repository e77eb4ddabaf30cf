"""Counts and quantiles from a secret sample, without noise.

Each function is the command of its name: the same parameters, defaults, refusals, rows and report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from headcount.call import called, suggesting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headcount.call import Columns, Path
    from headcount.mechanisms.sampled.axis import Value
    from headcount.result import Result


@suggesting
def sampled(
    data: Any,
    *,
    user: str,
    item: Columns,
    count: str | None = None,
    epsilon: float,
    delta: float = 0.0,
    max_items: int | Literal["auto"] = "auto",
    objective: str = "w95",
    max_relative_error: float | None = None,
    suppress_below: int | None = None,
    relation: str = "add-remove",
    drop_null: bool = False,
    max_item_bytes: int = 4096,
    time_zone: str = "UTC",
    protect: str = "user",
    time: str | None = None,
    windows: int | None = None,
    explode: str | None = None,
    label: str | None = None,
    period: str | None = None,
    key_file: Path | None = None,
    key_env: str | None = None,
    key_secret: str | None = None,
    release_id: str | None = None,
    ledger: str | None = None,
    dataset: str | None = None,
) -> Result:
    """The users of each item, from a secret sample and without noise: no item is shown that nobody has.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`.

        headcount.sampled(frame, user="user_id", item="page", epsilon=1, delta=1e-8)

    Parameters:
        max_items: for how many of its items one user counts at most (default: "auto", chosen privately).
        objective: choose rate and threshold for the rarest items that are shown with a chance of 95 % ("w95", default) or 50 %
            ("w50").
        data, user, item, count, epsilon, delta, and all that follow: as for `histogram`.

    The result has the columns of `item`, and count, noise_stddev, low, high, sampled.
    """
    return called("sampled", locals())


@suggesting
def heavy_hitters(
    data: Any,
    *,
    user: str,
    item: Columns,
    count: str | None = None,
    epsilon: float,
    delta: float = 0.0,
    phi: float,
    users: int | None = None,
    users_share: float | None = None,
    max_items: int | Literal["auto"] = "auto",
    objective: str = "w95",
    relation: str = "add-remove",
    drop_null: bool = False,
    max_item_bytes: int = 4096,
    time_zone: str = "UTC",
    protect: str = "user",
    time: str | None = None,
    windows: int | None = None,
    explode: str | None = None,
    label: str | None = None,
    period: str | None = None,
    key_file: Path | None = None,
    key_env: str | None = None,
    key_secret: str | None = None,
    release_id: str | None = None,
    ledger: str | None = None,
    dataset: str | None = None,
) -> Result:
    """The items that a given share of all users have, from a secret sample and without noise.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`.

        headcount.heavy_hitters(frame, user="user_id", item="page", phi=0.01, users=1_000_000, epsilon=1, delta=1e-8)

    Parameters:
        phi: the share of all users from which on an item is reported.
        users: the number of all users, if it is public (default: None, counted with noise).
        users_share: the part of epsilon for counting the users (default: None, a tenth).
        max_items, objective: as for `sampled`.
        data, user, item, count, epsilon, delta, and all that follow: as for `histogram`.

    The result has the columns of `item`, and count, noise_stddev, low, high, sampled.
    """
    return called("heavy-hitters", locals())


@suggesting
def quantiles(
    data: Any,
    *,
    user: str,
    value: str,
    count: str | None = None,
    epsilon: float,
    delta: float = 0.0,
    lo: Value | str,
    hi: Value | str,
    quantile: float | Sequence[float] | None = None,
    range: tuple[Value, Value] | Sequence[tuple[Value, Value]] | None = None,
    method: str = "tree",
    levels: int | None = None,
    branching: int | None = None,
    rounds: int | None = None,
    relation: str = "add-remove",
    drop_null: bool = False,
    time_zone: str = "UTC",
    protect: str = "user",
    time: str | None = None,
    windows: int | None = None,
    label: str | None = None,
    period: str | None = None,
    key_file: Path | None = None,
    key_env: str | None = None,
    key_secret: str | None = None,
    release_id: str | None = None,
    ledger: str | None = None,
    dataset: str | None = None,
) -> Result:
    """Quantiles of the users' values, or counts of users by ranges of values, from a secret sample and without noise.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`; a user counts with one of its rows.

        headcount.quantiles(frame, user="user_id", value="age", lo=0, hi=120, quantile=[0.25, 0.5], epsilon=1, delta=1e-8)

    Parameters:
        value: the column of the values: numbers, dates or times.
        lo, hi: the least and the largest value, which must be public; what lies outside counts as the ends.
        quantile: one or several of them, such as 0.5 (default: None).
        range: in place of quantiles: pairs (A, B), to count users with a value from A to below B (default: None).
        method: "tree" (default) reads off whatever is asked; "search" halves `lo` to `hi` for one quantile.
        levels, branching: of the tree: it has branching^levels parts (default: None, 10 and 2).
        rounds: of the search: how often `lo` to `hi` is halved (default: None, 10).
        data, user, count, epsilon, delta, and all that follow: as for `histogram`.

    The result has quantile, value, low, high, rank_stddev; or of ranges low, high, count, noise_stddev.
    """
    return called("quantiles", locals())
