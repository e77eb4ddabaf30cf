"""What can be said of all items together: how likely symbols are, and how many items have which count.

Each function is the command of its name: the same parameters, defaults, refusals, rows and report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from headcount.call import called, suggesting

if TYPE_CHECKING:
    from headcount.call import Columns, Domain, Path
    from headcount.result import Result


@suggesting
def distribution(
    data: Any,
    *,
    user: str,
    item: Columns,
    count: str | None = None,
    epsilon: float,
    delta: float = 0.0,
    domain: Domain,
    samples_per_user: int | Literal["auto", "median", "buckets"] = "auto",
    users: int | None = None,
    method: str = "auto",
    hypothesis: str = "ks",
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
    """How likely each of given symbols is, from users with many samples each.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`.

        headcount.distribution(frame, user="user_id", item="genre", domain=["jazz", "rock"], epsilon=1, delta=1e-6)

    Parameters:
        domain: the symbols, which must be public, or a file with one in a line.
        samples_per_user: samples of each user that count; users with fewer are left out (default: "auto", chosen privately).
        users: the number of users with so many samples, if it is public (default: None, counted with noise if needed).
        method: "auto" (default) takes "gaussian" or "laplace"; "dense" and "sparse" are for users who are all alike.
        hypothesis: how "dense" and "sparse" choose: "ks" (default) or "phs".
        data, user, item, count, epsilon, delta, and all that follow: as for `histogram`.

    The result has the columns of `item`, and probability, error.
    """
    return called("distribution", locals())


@suggesting
def shape(
    data: Any,
    *,
    user: str,
    item: Columns,
    count: str | None = None,
    epsilon: float,
    delta: float = 0.0,
    domain_size: int | None = None,
    buckets: int | None = None,
    mode: str = "auto",
    max_items: int | None = None,
    estimate: str = "auto",
    coverage: int | None = None,
    property: str | None = None,
    most: int | None = None,
    samples: int | None = None,
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
    """How many items have which number of users, their entropy and their number, without naming any.

    Guarantee: user-level epsilon-differential privacy under `relation`.

        headcount.shape(frame, user="user_id", item="page", epsilon=1, domain_size=1_000_000)
        headcount.shape(frame, user="user_id", item="page", epsilon=1, property="distinct-items")

    Parameters:
        domain_size: how many items there could be; public, never counted.
        buckets: in place of `domain_size`: hash items into so many buckets, about four for each user.
        mode: "auto" (default), "central", "l1" or "l2".
        max_items: items of one user that count at most (default: None, 1; for "distinct-items" chosen privately).
        estimate: "auto" (default), "likelihood" or "algorithm-1", what is taken from noisy cells.
        coverage: say how many distinct items so many samples would have (default: None, twice as many as there are).
        property: answer this one question in place of a shape: "distinct-items", "entropy", "support-size", "support-coverage".
        most: for "support-size", which needs it: every item is taken to have at least one in so many of all samples.
        samples: with a property: the public number of users' items in all (default: None, counted with a tenth of epsilon).
        data, user, item, count, epsilon, delta, and all that follow: as for `histogram`.

    The result has count, items, error; its report has what follows from them. That of a property has one row.
    """
    return called("shape", locals())
