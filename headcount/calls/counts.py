"""Counts: how often items occur, how many users and events there are, and how much of a user should count.

Each function is the command of its name: the same parameters, defaults, refusals, rows and report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from headcount.call import called, suggesting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headcount.call import Columns, Domain, Path
    from headcount.result import Result


@suggesting
def histogram(
    data: Any,
    *,
    user: str,
    item: Columns,
    count: str | None = None,
    epsilon: float,
    delta: float = 0.0,
    of: str = "events",
    method: str = "estimates",
    calibrate: str | None = None,
    bound: int | Literal["auto"] = "auto",
    bound_share: float | None = None,
    bound_from: Path | Mapping[str, Any] | None = None,
    objective: str | None = None,
    bound_method: str = "auto",
    max_per_item: int | None = None,
    noise: str = "auto",
    domain: Domain | None = None,
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
    """How often each item occurs: estimates of the true counts, with an interval for the noise.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`, as the report of the result says in words.

        headcount.histogram(frame, user="user_id", item=["country", "page"], epsilon=1, delta=1e-8)

    Parameters:
        data: the events, one in a row: a pandas or Polars frame, an Arrow table, batch or reader, a DuckDB relation, whatever
            has `__arrow_c_stream__`, a dict of lists, or a list of dicts.
        user: the column that tells users apart. One person must be one user in it.
        item: the column to count, or a list of several; "seen_at:day" is the day of a time, "age:0,18,30,65" a bin of a number.
        count: the column that says how often a row counts, 10^9 times at most (default: None, once).
        epsilon: the privacy loss of one user at most.
        delta: the probability of losing more; needed unless there is a `domain` (default: 0).
        of: "events" (default), or "users", each once on an item.
        method: "estimates" (default) of the true counts, or "one-stage", noisy counts of what the bound leaves.
        calibrate: "totals" tell how much the bound left out, "none" spends nothing on them (default: None, "totals").
        bound: how much of a user counts (default: "auto", chosen privately within the budget).
        bound_share: the share of epsilon that choosing the bound takes, for "one-stage" (default: None, a tenth).
        bound_from: the report of a `choose_bound`, or its file, in place of `bound`, `max_per_item` and `noise`.
        objective: "error" or "items", what the bound of "one-stage" is chosen for (default: None, "error").
        bound_method: how it is chosen, for "one-stage" (default: "auto").
        max_per_item: events of one user that count at most on one item (default: None, chosen with the bound, or no limit).
        noise: "laplace", "gaussian", or "auto" (default), the better one.
        domain: the items, if they are public, or a file with one in a line: all of them are released (default: None).
        max_relative_error: leave out rows whose noise is above this share of the count (default: None).
        suppress_below: leave out rows whose count is below (default: None).
        relation: "add-remove" (default): neighbours have one user more or less; or "replace".
        drop_null: drop rows without a user, an item or a count, in place of refusing them (default: False).
        max_item_bytes: rows with a longer item are dropped (default: 4096).
        time_zone: where days and the like begin (default: "UTC").
        protect: who is promised something: a "user" with all that it did (default), or weaker, a "user-day", "user-week" or
            "user-month", by the times of the column `time`.
        time: when a row was, for such windows (default: None).
        windows: say what is promised in total to a user who is there in this many windows (default: None, a usual number).
        explode: a column of `item` that holds lists: a row counts for each element (default: None).
        label, period: what this is, and the time it is of, in your words, for the report (default: None).
        key_file, key_env, key_secret: where the key lies (see `headcount key`): a file, an environment variable, or Secret
            Manager's name (default: None, a fresh key that nobody keeps).
        release_id: only to repeat a release of the same input: its id, with its key (default: None, a new one); "auto", with a
            ledger: one that follows from data set, label, period and parameters, so that a call made again is no new release.
        ledger, dataset: the URL of the ledger, and the data set in it, on whose account this goes: the call is refused if too
            little is left, and is charged when it returns (default: None, no account is kept).

    The result has the columns of `item`, and count, noise_stddev, low, high and bounded_count ("one-stage": no count).
    """
    return called("histogram", locals())


@suggesting
def total(
    data: Any,
    *,
    user: str,
    item: Columns | None = None,
    count: str | None = None,
    epsilon: float,
    delta: float = 0.0,
    of: str | None = None,
    domain: Domain | None = None,
    bound: int | Literal["auto"] | None = None,
    method: str = "bounded",
    max_per_item: int | None = None,
    users: int | None = None,
    users_share: float | None = None,
    max_items: int | None = None,
    largest_mean: float | None = None,
    noise: str | None = None,
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
    """How many users and how many events there are, in all or on the items of a public `domain`.

    Guarantee: user-level epsilon-differential privacy under `relation`.

        headcount.total(frame, user="user_id", epsilon=1)

    Parameters:
        item: the column of the items of `domain` (default: None, all rows count).
        of: "users" or "events" (default: None, both, where the users take a tenth of epsilon).
        domain: only rows with these items count, which must be public; or a file with one in a line (default: None, all rows).
        bound: events of one user that count at most (default: None, "auto", chosen privately).
        method: "bounded" (default) counts what is within the bound; "debiased" is the paper's estimate of the totals of each
            item, for users whose counts are Poisson with similar means.
        max_per_item: of "debiased", which needs it: events of one user on an item that count at most.
        users: of "debiased": the number of all users, if it is public (default: None, counted with noise).
        users_share: of "debiased": the share of epsilon for counting the users (default: None, a tenth).
        max_items: of "debiased": how many of the items one user counts for at most (default: None, all).
        largest_mean: of "debiased": events per user on an item that an estimate may reach (default: None, twice the cap).
        noise: of "debiased": "laplace", "gaussian" or "auto" (default: None, "auto").
        data, user, count, epsilon, delta, and all that follow: as for `histogram`.

    The result has a row for each of `of`: of, bound, bounded_count, noise_stddev, low, high.
    """
    return called("total", locals())


@suggesting
def count_release(
    data: Any,
    *,
    user: str,
    item: Columns,
    count: str | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    rho: float | None = None,
    relative_error: float = 0.1,
    k_bar: int = 10_000,
    max_per_item: int | None = None,
    noise_reduction: bool = False,
    strict_target: bool = False,
    start_epsilon: float = 0.0005,
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
    """The users of each item, for as many of the largest items as the budget buys; users count for all of their items.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`, or delta-approximate rho-zCDP.

        headcount.count_release(frame, user="user_id", item="page", rho=0.5, delta=1e-6)

    Parameters:
        epsilon, rho: the promise, as one or the other; both need a `delta`.
        relative_error: how far from the true one most counts may be, as a part of it (default: 0.1).
        k_bar: look at this many items with the most users (default: 10,000).
        max_per_item: count events, at most this many of one user on an item (default: None, users).
        noise_reduction: spend less on counts that are exact enough, for more of them (default: False).
        strict_target: keep to a small `relative_error` also where a count then costs more than finding it (default: False).
        start_epsilon: the epsilon of the first draws, which should find nothing; too low costs little (default: 0.0005).
        data, user, item, count, delta, and all that follow: as for `histogram`.

    The result has the columns of `item`, and bounded_count, noise_stddev, low, high.
    """
    return called("count-release", locals())


@suggesting
def plume(
    data: Any,
    *,
    user: str,
    item: Columns,
    count: str | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    rho: float | None = None,
    max_items: int | Literal["auto"] = "auto",
    max_counted_items: int | Literal["auto"] | None = None,
    alpha: float = 0.5,
    selection: str = "gaussian",
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
    """The users of each item, with items named first and then counted; a bound on a user's items.

    Guarantee: user-level delta-approximate rho-zCDP under `relation`; an epsilon is converted.

        headcount.plume(frame, user="user_id", item="page", rho=0.5, delta=1e-6, max_items=20)

    Parameters:
        epsilon, rho: the promise, as one or the other; both need a `delta`.
        max_items: items of one user that have a part in naming at most (default: "auto", chosen privately).
        max_counted_items: named items that one user counts for at most (default: None, as `max_items`).
        alpha: the share of rho for naming (default: 0.5).
        selection: how items are named: "gaussian" (default), "weighted-gaussian" or "sips".
        data, user, item, count, delta, and all that follow: as for `histogram`.

    The result has the columns of `item`, and bounded_count, noise_stddev, low, high.
    """
    return called("plume", locals())


@suggesting
def choose_bound(
    data: Any,
    *,
    user: str,
    item: Columns,
    count: str | None = None,
    epsilon: float,
    delta: float = 0.0,
    for_epsilon: float,
    for_delta: float = 0.0,
    objective: str | None = None,
    bound_method: str = "auto",
    max_per_item: int | None = None,
    noise: str = "auto",
    domain: Domain | None = None,
    kappa: float | None = None,
    sparsity: int | None = None,
    users: int | None = None,
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
    """How much one user should count, chosen privately for a release that comes later and costs its own budget.

    Guarantee: user-level (epsilon, delta)-differential privacy of the choice alone, under `relation`.

        chosen = headcount.choose_bound(frame, user="user_id", item="page", epsilon=0.1, for_epsilon=0.9, for_delta=1e-8)
        headcount.histogram(
            frame, user="user_id", item="page", epsilon=0.9, delta=1e-8, method="one-stage", bound_from=chosen.report
        )

    Parameters:
        for_epsilon, for_delta: the budget of the later release.
        objective, bound_method, max_per_item, noise, domain: as for `histogram`; the bound is chosen for these.
        kappa: of "em" and "gem" without a domain: what a lost event weighs, 1 or more (default: None, 2).
        sparsity: of Gaussian noise with a domain: how many items the weight of a user may stand for (default: None, a tenth).
        users: of "output-perturbation": a public guess of their number (default: None, 100,000).
        data, user, item, count, epsilon, delta, and all that follow: as for `histogram`.

    The result has one row: bound, max_per_item, noise.
    """
    return called("choose-bound", locals())
