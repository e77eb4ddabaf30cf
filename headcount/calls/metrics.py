"""Metrics by key: users, events, and sums, means and variances of values.

The function is the command of its name: the same parameters, defaults, refusals, rows and report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from headcount.call import called, suggesting

if TYPE_CHECKING:
    from headcount.call import Columns, Domain, Path
    from headcount.result import Result


@suggesting
def aggregate(
    data: Any,
    *,
    user: str,
    item: Columns,
    count: str | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    rho: float | None = None,
    users: bool = False,
    events: bool = False,
    sum: Columns | None = None,
    mean: Columns | None = None,
    variance: Columns | None = None,
    max_items: int | Literal["auto"] = "auto",
    max_per_item: int | None = None,
    calibrate: str = "totals",
    domain: Domain | None = None,
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
    """How many users and events each item has, and the sum, mean and variance of values: all in one release, with one budget.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`, or delta-approximate rho-zCDP, as the report
    of the result says in words.

        headcount.aggregate(
            frame, user="user_id", item="country", users=True, mean="price:0:100", epsilon=1, delta=1e-8
        )

    Parameters:
        epsilon, rho: the promise, as one or the other; both need a `delta`.
        users, events: whether to count them (default: False).
        sum, mean, variance: the column of the values with the public range that they are cut to, such as "price:0:100", or a
            list of several (default: None). Take the range from what you know of the column, and not from the data. With
            "price:auto" one from 0 on is chosen privately, and with "price:-auto:auto" one with negative numbers.
        max_items: items of one user that count at most (default: "auto", chosen privately within the budget).
        max_per_item: rows of one user that count at most on one item, up to 1000 (default: None, chosen with `max_items`).
        calibrate: "totals" (default) tell how much the bounds left out of users, events and sums; "none" spends nothing on it.
        data, user, item, count, delta, domain, and all that follow: as for `histogram`.

    The result has the columns of `item`, and for each metric its value (users, mean_price), and its noise_stddev, low and high
    (mean_price_low). Totals that are not calibrated are called bounded_users, bounded_events and bounded_sum_price.
    """
    return called("aggregate", locals())
