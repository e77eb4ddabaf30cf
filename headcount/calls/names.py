"""Names alone: which items may be named, and which have the most users.

Each function is the command of its name: the same parameters, defaults, refusals, rows and report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headcount.call import called, suggesting

if TYPE_CHECKING:
    from headcount.call import Columns, Path
    from headcount.result import Result


@suggesting
def partitions(
    data: Any,
    *,
    user: str,
    item: Columns,
    count: str | None = None,
    epsilon: float,
    delta: float = 0.0,
    strategy: str = "auto",
    max_items: int | None = None,
    rounds: int | None = None,
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
    """The items that enough users have, and nothing but their names.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation` of the set of names.

        headcount.partitions(frame, user="user_id", item="page", epsilon=1, delta=1e-8)

    Parameters:
        strategy: how items are selected (default: "auto", chosen privately with the items per user): "laplace", "gaussian",
            "truncated-geometric", "weighted-gaussian", "weighted-laplace", "sips" or "law".
        max_items: items of one user that count at most, for a strategy that is given (default: None).
        rounds: of "sips" and "law" (default: None, 3).
        data, user, item, count, epsilon, delta, and all that follow: as for `histogram`.

    The result has the columns of `item`.
    """
    return called("partitions", locals())


@suggesting
def top(
    data: Any,
    *,
    user: str,
    item: Columns,
    count: str | None = None,
    epsilon: float,
    delta: float = 0.0,
    k: int,
    method: str | None = None,
    k_bar: int | None = None,
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
    """The items with the most users, in order and without counts.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`.

        headcount.top(frame, user="user_id", item="page", k=20, epsilon=1, delta=1e-8)

    Parameters:
        k: how many items to name at most.
        method: "draws" from all items, or "names" first, which finds more of a long top (default: draws below k = 10, and
            else names).
        k_bar: draws look at this many items with the most users (default: 10,000).
        data, user, item, count, epsilon, delta, and all that follow: as for `histogram`.

    The result has rank, and the columns of `item`.
    """
    return called("top", locals())
