"""The functions of `headcount` for editors and type checkers, made of the flags of the commands by `make stubs`."""

from collections.abc import Mapping, Sequence
from typing import Any

from headcount.functions import Columns, Domain, Path
from headcount.mechanisms.sampled.axis import Value
from headcount.result import Result

def actives(
    data: Any,
    *,
    user: str,
    time: str,
    from_: str,
    to: str,
    epsilon: float,
    domain: Domain | None = None,
    noise: str = "auto",
    by: Columns | None = None,
    time_zone: str = "UTC",
    drop_null: bool = False,
    where: str | None = None,
    join: Any | None = None,
    on: str | None = None,
    max_item_bytes: int = 4096,
    delta: float = 0.0,
    relation: str = "add-remove",
    label: str | None = None,
    period: str | None = None,
    ledger: str | None = None,
    dataset: str | None = None,
    clock_checked: bool = False,
    key_file: Path | None = None,
    key_env: str | None = None,
    key_secret: str | None = None,
    release_id: str | None = None,
) -> Result:
    """How many users are active on each day, in the 7 days that end with it, and in the 28: three series in one release.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`; without a delta, by Laplace noise, which is
    far more here.

        headcount.actives(frame, user="user_id", time="viewed_at", from_="2026-11-02", to="2026-11-15", epsilon=1, delta=1e-8)

    Parameters:
        data: the events, one in a row: a pandas or Polars frame, an Arrow table, batch or reader, a DuckDB relation,
            whatever has `__arrow_c_stream__`, a dict of lists, or a list of dicts.
        user: the column that tells users apart; a field of an object by its path, as user.id.
        time: when a row was: a column of times or dates.
        from_: the first day, such as 2026-10-05; it must be public: known without a look at the data.
        to: the last day, which counts, too.
        epsilon: how much one user can change the result at most.
        domain: the values of --by, if they are public; without it, those that enough users have are named, which takes a
            delta: a list, a frame with the columns of item, or a file of Parquet, CSV, or text with one value per line; or
            a dict of columns to a range such as (first, last), a list or a file, all combinations (default: None).
        noise: gaussian takes a delta, and costs less where many releases add up; auto takes the one with less noise
            (default: auto); one of "auto", "laplace", "gaussian".
        by: tell people apart by this column, or a list of several: the value that most of a user's rows have counts, of
            equal ones the first by name (default: None).
        time_zone: where COLUMN:day and the like begin (default: UTC).
        drop_null: drop rows without a user, a time or a value of by (default: False).
        where: count only rows for which this holds, such as "country = de and price > 5": =, !=, <, <=, >, >=, in (...), is
            null, and, or, not (default: all rows).
        join: a public table, with one row for each key of --on, whose columns can then be used as the rows' own; rows
            without a partner have nulls there. It must be public and never be made of the private data: its rows would tell
            who is in that; a frame, or the path of a file (default: None).
        on: the column by which rows find theirs in the table of join (default: None).
        max_item_bytes: rows with a longer value of by are dropped (default: 4096).
        delta: a small chance on top, far below 1 / (number of users), such as 1e-8; needed where the items are not given,
            and for Gaussian noise (default: 0).
        relation: what a neighbouring input is: one user more or less, or one replaced (default: add-remove); one of
            "add-remove", "replace".
        label: what this is, in your words, for the report (default: None).
        period: the time that the events are of, in your words, for the report (default: None).
        ledger: the ledger that keeps the account of releases: sqlite:///FILE or postgresql://USER@HOST/DATABASE (default:
            None).
        dataset: the data set in it (see: headcount ledger create) (default: None).
        clock_checked: the clock of this machine is right, though the newest entry of the data set is long ago: without
            this, a limit for each month refuses a time of 100 days after it, and one for each year a time of 400 days
            (default: False).
        key_file: key file (see: headcount key), on every worker (default: None).
        key_env: environment variable of the workers with the key (default: None).
        key_secret: Secret Manager's name of the key, which workers fetch: projects/P/secrets/S/versions/N (default: None).
        release_id: only to repeat a release of the same input: its id (and its key); auto, with a ledger: an id that
            follows from data set, label, period and parameters, so that a job that is run again is no new release (default:
            None).

    The result has the columns of `by`, and day, window, count, noise_stddev, low, high, share, share_low, share_high.
    """
    ...

def activity(
    data: Any,
    *,
    user: str,
    epsilon: float,
    bins: str | Sequence[int] = "1,2,3,6,11,51",
    domain: Domain | None = None,
    noise: str = "auto",
    count: str | None = None,
    by: Columns | None = None,
    time_zone: str = "UTC",
    drop_null: bool = False,
    where: str | None = None,
    join: Any | None = None,
    on: str | None = None,
    max_item_bytes: int = 4096,
    delta: float = 0.0,
    relation: str = "add-remove",
    label: str | None = None,
    period: str | None = None,
    ledger: str | None = None,
    dataset: str | None = None,
    clock_checked: bool = False,
    key_file: Path | None = None,
    key_env: str | None = None,
    key_secret: str | None = None,
    release_id: str | None = None,
) -> Result:
    """How many users have how many events, in public bins.

    Guarantee: user-level epsilon-differential privacy under `relation`; with delta for Gaussian noise, or where values of
    `by` are named.

        headcount.activity(frame, user="user_id", bins=[1, 2, 3, 6, 11, 51], epsilon=1)

    Parameters:
        data: the events, one in a row: a pandas or Polars frame, an Arrow table, batch or reader, a DuckDB relation,
            whatever has `__arrow_c_stream__`, a dict of lists, or a list of dicts.
        user: the column that tells users apart; a field of an object by its path, as user.id.
        epsilon: how much one user can change the result at most.
        bins: where bins of the number of events begin, which must be public (default: 1,2,3,6,11,51).
        domain: the values of --by, if they are public; without it, those that enough users have are named, which takes a
            delta: a list, a frame with the columns of item, or a file of Parquet, CSV, or text with one value per line; or
            a dict of columns to a range such as (first, last), a list or a file, all combinations (default: None).
        noise: gaussian takes a delta, and costs less where many releases add up; auto takes the one with less noise
            (default: auto); one of "auto", "laplace", "gaussian".
        count: how often a row counts, 10^9 times at most (default: once).
        by: tell people apart by this column, or a list of several: the value that most of a user's events have counts, of
            equal ones the first by name (default: None).
        time_zone: where COLUMN:day and the like begin (default: UTC).
        drop_null: drop rows without a user, a count or a value of by (default: False).
        where: count only rows for which this holds, such as "country = de and price > 5": =, !=, <, <=, >, >=, in (...), is
            null, and, or, not (default: all rows).
        join: a public table, with one row for each key of --on, whose columns can then be used as the rows' own; rows
            without a partner have nulls there. It must be public and never be made of the private data: its rows would tell
            who is in that; a frame, or the path of a file (default: None).
        on: the column by which rows find theirs in the table of join (default: None).
        max_item_bytes: rows with a longer value of by are dropped (default: 4096).
        delta: a small chance on top, far below 1 / (number of users), such as 1e-8; needed where the items are not given,
            and for Gaussian noise (default: 0).
        relation: what a neighbouring input is: one user more or less, or one replaced (default: add-remove); one of
            "add-remove", "replace".
        label: what this is, in your words, for the report (default: None).
        period: the time that the events are of, in your words, for the report (default: None).
        ledger: the ledger that keeps the account of releases: sqlite:///FILE or postgresql://USER@HOST/DATABASE (default:
            None).
        dataset: the data set in it (see: headcount ledger create) (default: None).
        clock_checked: the clock of this machine is right, though the newest entry of the data set is long ago: without
            this, a limit for each month refuses a time of 100 days after it, and one for each year a time of 400 days
            (default: False).
        key_file: key file (see: headcount key), on every worker (default: None).
        key_env: environment variable of the workers with the key (default: None).
        key_secret: Secret Manager's name of the key, which workers fetch: projects/P/secrets/S/versions/N (default: None).
        release_id: only to repeat a release of the same input: its id (and its key); auto, with a ledger: an id that
            follows from data set, label, period and parameters, so that a job that is run again is no new release (default:
            None).

    The result has the columns of `by`, and events, least, most, count, noise_stddev, low, high, share, share_low, share_high.
    """
    ...

def aggregate(
    data: Any,
    *,
    user: str,
    users: bool = False,
    events: bool = False,
    sum: Columns | None = None,
    mean: Columns | None = None,
    variance: Columns | None = None,
    quantile: Columns | None = None,
    share: Columns | None = None,
    ratio: Columns | None = None,
    rho: float | None = None,
    max_items: int | str = "auto",
    max_per_item: int | None = None,
    like: Path | Mapping[str, Any] | None = None,
    calibrate: str = "totals",
    levels: Columns | None = None,
    domain: Domain | None = None,
    item: Columns | None = None,
    explode: str | None = None,
    time_zone: str = "UTC",
    protect: str = "user",
    time: str | None = None,
    windows: int | None = None,
    count: str | None = None,
    drop_null: bool = False,
    where: str | None = None,
    join: Any | None = None,
    on: str | None = None,
    max_item_bytes: int = 4096,
    epsilon: float | None = None,
    delta: float = 0.0,
    relation: str = "add-remove",
    label: str | None = None,
    period: str | None = None,
    ledger: str | None = None,
    dataset: str | None = None,
    clock_checked: bool = False,
    key_file: Path | None = None,
    key_env: str | None = None,
    key_secret: str | None = None,
    release_id: str | None = None,
) -> Result:
    """How many users and events each item has, shares of its users, and the sum, mean, variance and quantiles of values.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`, or delta-approximate rho-zCDP, as the report
    of the result says in words.

        headcount.aggregate(
            frame, user="user_id", item="country", users=True, mean="price:0:100", epsilon=1, delta=1e-8
        )

    Parameters:
        data: the events, one in a row: a pandas or Polars frame, an Arrow table, batch or reader, a DuckDB relation,
            whatever has `__arrow_c_stream__`, a dict of lists, or a list of dicts.
        user: the column that tells users apart; a field of an object by its path, as user.id.
        users: how many users have it (default: False).
        events: how many rows it has, at most max_per_item of one user (default: False).
        sum: the sum of a column's values, with the public range that values are cut to, as "price:0:100", or a list of
            several; take the range from what you know of the column, and not from the data; "price:auto" chooses one from 0
            on privately, and "price:-auto:auto" one with negative numbers (default: None).
        mean: their mean, with the public range that values are cut to, as "price:0:100", or a list of several; take the
            range from what you know of the column, and not from the data; "price:auto" chooses one from 0 on privately, and
            "price:-auto:auto" one with negative numbers (default: None).
        variance: their variance, with the number of rows as divisor, with the public range that values are cut to, as
            "price:0:100", or a list of several; take the range from what you know of the column, and not from the data;
            "price:auto" chooses one from 0 on privately, and "price:-auto:auto" one with negative numbers (default: None).
        quantile: their quantiles of the shares Q, such as 0.5,0.9:price:0:100, with the public range that values are cut
            to, as "0.5,0.9:price:0:100", or a list of several; take the range from what you know of the column, and not
            from the data; "price:auto" chooses one from 0 on privately, and "price:-auto:auto" one with negative numbers
            (default: None).
        share: of its users, the share with a row that meets a condition, with the name of its column, as
            "bought=event=buy", or a list of several (default: None).
        ratio: the sum of one column by the sum of another, with the name of its column and the public ranges that values
            are cut to, as "ctr=clicks:0:10/views:0:50", or a list of several (default: None).
        rho: in place of epsilon: the promise as zCDP, with delta for the items (default: None).
        max_items: items of one user that count at most; auto chooses it privately (default: auto).
        max_per_item: rows of one user that count at most on one item (up to 1000; default: chosen privately).
        like: in place of max_per_item: the folder or report of an earlier release whose c is taken, so that both compare
            (default: None).
        calibrate: totals tell how much the bounds left out of users, events and sums; none spends nothing on them, and
            gives what is left (default: totals); one of "totals", "none".
        levels: in place of `item`: columns from the widest to the finest, as ["country", "region", "city"], or one text
            with commas; counts at every level, with what is other under each (default: None).
        domain: the items, if they are public; all of them are released: a list, a frame with the columns of item, or a file
            of Parquet, CSV, or text with one value per line; or a dict of columns to a range such as (first, last), a list
            or a file, all combinations; of some columns, the others are named from the data, and each has them all
            (default: None).
        item: the column to count, or a list of several; "seen_at:day" is the day of a time, "seen_at:last7" the windows of
            7 days that it lies in (or last28), "age:0,18,65" a bin of a number (default: None).
        explode: a column of item that holds lists: a row counts for each element (default: None).
        time_zone: where COLUMN:day and the like begin (default: UTC).
        protect: who is promised something: a user with all that it did, or what a user did in one day, week or month, which
            is weaker (default: user); one of "user", "user-day", "user-week", "user-month".
        time: when a row was, for protect user-day and the like (default: None).
        windows: say what is promised in total to a user who is there in N days, weeks or months (default: 30, 52, 12).
        count: how often a row counts, 10^9 times at most (default: once).
        drop_null: drop rows without a user, an item or a count (default: False).
        where: count only rows for which this holds, such as "country = de and price > 5": =, !=, <, <=, >, >=, in (...), is
            null, and, or, not (default: all rows).
        join: a public table, with one row for each key of --on, whose columns can then be used as the rows' own; rows
            without a partner have nulls there. It must be public and never be made of the private data: its rows would tell
            who is in that; a frame, or the path of a file (default: None).
        on: the column by which rows find theirs in the table of join (default: None).
        max_item_bytes: rows with a longer item are dropped (default: 4096).
        epsilon: how much one user can change the result at most (default: None).
        delta: a small chance on top, far below 1 / (number of users), such as 1e-8; needed where the items are not given,
            and for Gaussian noise (default: 0).
        relation: what a neighbouring input is: one user more or less, or one replaced (default: add-remove); one of
            "add-remove", "replace".
        label: what this is, in your words, for the report (default: None).
        period: the time that the events are of, in your words, for the report (default: None).
        ledger: the ledger that keeps the account of releases: sqlite:///FILE or postgresql://USER@HOST/DATABASE (default:
            None).
        dataset: the data set in it (see: headcount ledger create) (default: None).
        clock_checked: the clock of this machine is right, though the newest entry of the data set is long ago: without
            this, a limit for each month refuses a time of 100 days after it, and one for each year a time of 400 days
            (default: False).
        key_file: key file (see: headcount key), on every worker (default: None).
        key_env: environment variable of the workers with the key (default: None).
        key_secret: Secret Manager's name of the key, which workers fetch: projects/P/secrets/S/versions/N (default: None).
        release_id: only to repeat a release of the same input: its id (and its key); auto, with a ledger: an id that
            follows from data set, label, period and parameters, so that a job that is run again is no new release (default:
            None).

    The result has the columns of `item`, and for each metric its value (users, mean_price), and its noise_stddev, low and high
    (mean_price_low). A share and a ratio have names of their own, a quantile is called p50_price, with p50_price_rank_stddev,
    low and high. Totals that are not calibrated are called bounded_users, bounded_events and bounded_sum_price.
    """
    ...

def choose_bound(
    data: Any,
    *,
    user: str,
    item: Columns,
    epsilon: float,
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
    explode: str | None = None,
    time_zone: str = "UTC",
    protect: str = "user",
    time: str | None = None,
    windows: int | None = None,
    count: str | None = None,
    drop_null: bool = False,
    where: str | None = None,
    join: Any | None = None,
    on: str | None = None,
    max_item_bytes: int = 4096,
    delta: float = 0.0,
    relation: str = "add-remove",
    label: str | None = None,
    period: str | None = None,
    ledger: str | None = None,
    dataset: str | None = None,
    clock_checked: bool = False,
    key_file: Path | None = None,
    key_env: str | None = None,
    key_secret: str | None = None,
    release_id: str | None = None,
) -> Result:
    """How much one user should count, chosen privately for a release that comes later and costs its own budget.

    Guarantee: user-level (epsilon, delta)-differential privacy of the choice alone, under `relation`.

        chosen = headcount.choose_bound(frame, user="user_id", item="page", epsilon=0.1, for_epsilon=0.9, for_delta=1e-8)
        headcount.histogram(
            frame, user="user_id", item="page", of="events", epsilon=0.9, delta=1e-8, method="one-stage",
            bound_from=chosen.report,
        )

    Parameters:
        data: the events, one in a row: a pandas or Polars frame, an Arrow table, batch or reader, a DuckDB relation,
            whatever has `__arrow_c_stream__`, a dict of lists, or a list of dicts.
        user: the column that tells users apart; a field of an object by its path, as user.id.
        item: the column to count, or a list of several; "seen_at:day" is the day of a time, "seen_at:last7" the windows of
            7 days that it lies in (or last28), "age:0,18,65" a bin of a number.
        epsilon: how much one user can change the result at most.
        for_epsilon: the epsilon of the release that the bound is for.
        for_delta: the delta of that release (default: 0).
        objective: what the bound is chosen for: error, counts close to the truth in total, or items, as many of them as
            possible (default: error; not for estimates); one of "error", "items".
        bound_method: how it is chosen, if not for estimates (default: auto, which is joint, or with domain the one that its
            size favours; dp-gd, output-perturbation and m-quantile, and em and gem without domain, are methods of the paper
            that auto never takes); one of "auto", "joint", "em", "gem", "quantile-rank", "quantile-gem", "dp-gd",
            "output-perturbation", "m-quantile".
        max_per_item: events of one user that count at most on one item (default: chosen with the bound, or none).
        noise: auto takes the better one (default: auto); one of "auto", "laplace", "gaussian".
        domain: the items to count, if they are public; all of them are released: a list, a frame with the columns of item,
            or a file of Parquet, CSV, or text with one value per line; or a dict of columns to a range such as (first,
            last), a list or a file, all combinations (default: None).
        kappa: of bound_method em and gem without domain: what a lost event weighs, 1 or more (default: 2).
        sparsity: of Gaussian noise with domain: how many items the weight of a user may stand for (default: a tenth of
            them).
        users: of bound_method output-perturbation: a public guess of their number (default: 100000).
        explode: a column of item that holds lists: a row counts for each element (default: None).
        time_zone: where COLUMN:day and the like begin (default: UTC).
        protect: who is promised something: a user with all that it did, or what a user did in one day, week or month, which
            is weaker (default: user); one of "user", "user-day", "user-week", "user-month".
        time: when a row was, for protect user-day and the like (default: None).
        windows: say what is promised in total to a user who is there in N days, weeks or months (default: 30, 52, 12).
        count: how often a row counts, 10^9 times at most (default: once).
        drop_null: drop rows without a user, an item or a count (default: False).
        where: count only rows for which this holds, such as "country = de and price > 5": =, !=, <, <=, >, >=, in (...), is
            null, and, or, not (default: all rows).
        join: a public table, with one row for each key of --on, whose columns can then be used as the rows' own; rows
            without a partner have nulls there. It must be public and never be made of the private data: its rows would tell
            who is in that; a frame, or the path of a file (default: None).
        on: the column by which rows find theirs in the table of join (default: None).
        max_item_bytes: rows with a longer item are dropped (default: 4096).
        delta: a small chance on top, far below 1 / (number of users), such as 1e-8; needed where the items are not given,
            and for Gaussian noise (default: 0).
        relation: what a neighbouring input is: one user more or less, or one replaced (default: add-remove); one of
            "add-remove", "replace".
        label: what this is, in your words, for the report (default: None).
        period: the time that the events are of, in your words, for the report (default: None).
        ledger: the ledger that keeps the account of releases: sqlite:///FILE or postgresql://USER@HOST/DATABASE (default:
            None).
        dataset: the data set in it (see: headcount ledger create) (default: None).
        clock_checked: the clock of this machine is right, though the newest entry of the data set is long ago: without
            this, a limit for each month refuses a time of 100 days after it, and one for each year a time of 400 days
            (default: False).
        key_file: key file (see: headcount key), on every worker (default: None).
        key_env: environment variable of the workers with the key (default: None).
        key_secret: Secret Manager's name of the key, which workers fetch: projects/P/secrets/S/versions/N (default: None).
        release_id: only to repeat a release of the same input: its id (and its key); auto, with a ledger: an id that
            follows from data set, label, period and parameters, so that a job that is run again is no new release (default:
            None).

    The result has one row: bound, max_per_item, noise.
    """
    ...

def count_release(
    data: Any,
    *,
    user: str,
    item: Columns,
    rho: float | None = None,
    relative_error: float = 0.1,
    k_bar: int = 10000,
    max_per_item: int | None = None,
    noise_reduction: bool = False,
    strict_target: bool = False,
    start_epsilon: float = 0.0005,
    explode: str | None = None,
    time_zone: str = "UTC",
    protect: str = "user",
    time: str | None = None,
    windows: int | None = None,
    count: str | None = None,
    drop_null: bool = False,
    where: str | None = None,
    join: Any | None = None,
    on: str | None = None,
    max_item_bytes: int = 4096,
    epsilon: float | None = None,
    delta: float = 0.0,
    relation: str = "add-remove",
    max_relative_error: float | None = None,
    suppress_below: int | None = None,
    label: str | None = None,
    period: str | None = None,
    ledger: str | None = None,
    dataset: str | None = None,
    clock_checked: bool = False,
    key_file: Path | None = None,
    key_env: str | None = None,
    key_secret: str | None = None,
    release_id: str | None = None,
) -> Result:
    """The users of each item, for as many of the largest items as the budget buys; users count for all of their items.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`, or delta-approximate rho-zCDP.

        headcount.count_release(frame, user="user_id", item="page", rho=0.5, delta=1e-6)

    Parameters:
        data: the events, one in a row: a pandas or Polars frame, an Arrow table, batch or reader, a DuckDB relation,
            whatever has `__arrow_c_stream__`, a dict of lists, or a list of dicts.
        user: the column that tells users apart; a field of an object by its path, as user.id.
        item: the column to count, or a list of several; "seen_at:day" is the day of a time, "seen_at:last7" the windows of
            7 days that it lies in (or last28), "age:0,18,65" a bin of a number.
        rho: in place of epsilon: the promise as zCDP, with delta for the items (half of it, with epsilon) (default: None).
        relative_error: how far from the true one most counts may be, as a part of it (default: 0.1).
        k_bar: look at the N items with the most users (default: 10000).
        max_per_item: count events, at most this many of one user on an item (default: count users).
        noise_reduction: spend less on counts that are exact enough, for more of them (default: False).
        strict_target: keep to a small relative_error even where measuring a count costs more than finding its item
            (default: False).
        start_epsilon: the epsilon of the first draws, which should find nothing; too low costs little (default: 0.0005).
        explode: a column of item that holds lists: a row counts for each element (default: None).
        time_zone: where COLUMN:day and the like begin (default: UTC).
        protect: who is promised something: a user with all that it did, or what a user did in one day, week or month, which
            is weaker (default: user); one of "user", "user-day", "user-week", "user-month".
        time: when a row was, for protect user-day and the like (default: None).
        windows: say what is promised in total to a user who is there in N days, weeks or months (default: 30, 52, 12).
        count: how often a row counts, 10^9 times at most (default: once).
        drop_null: drop rows without a user, an item or a count (default: False).
        where: count only rows for which this holds, such as "country = de and price > 5": =, !=, <, <=, >, >=, in (...), is
            null, and, or, not (default: all rows).
        join: a public table, with one row for each key of --on, whose columns can then be used as the rows' own; rows
            without a partner have nulls there. It must be public and never be made of the private data: its rows would tell
            who is in that; a frame, or the path of a file (default: None).
        on: the column by which rows find theirs in the table of join (default: None).
        max_item_bytes: rows with a longer item are dropped (default: 4096).
        epsilon: how much one user can change the result at most (default: None).
        delta: a small chance on top, far below 1 / (number of users), such as 1e-8; needed where the items are not given,
            and for Gaussian noise (default: 0).
        relation: what a neighbouring input is: one user more or less, or one replaced (default: add-remove); one of
            "add-remove", "replace".
        max_relative_error: leave out rows whose noise, at 1.96 standard deviations, is above this share of the count
            (default: None).
        suppress_below: leave out rows whose noisy count is below (default: None).
        label: what this is, in your words, for the report (default: None).
        period: the time that the events are of, in your words, for the report (default: None).
        ledger: the ledger that keeps the account of releases: sqlite:///FILE or postgresql://USER@HOST/DATABASE (default:
            None).
        dataset: the data set in it (see: headcount ledger create) (default: None).
        clock_checked: the clock of this machine is right, though the newest entry of the data set is long ago: without
            this, a limit for each month refuses a time of 100 days after it, and one for each year a time of 400 days
            (default: False).
        key_file: key file (see: headcount key), on every worker (default: None).
        key_env: environment variable of the workers with the key (default: None).
        key_secret: Secret Manager's name of the key, which workers fetch: projects/P/secrets/S/versions/N (default: None).
        release_id: only to repeat a release of the same input: its id (and its key); auto, with a ledger: an id that
            follows from data set, label, period and parameters, so that a job that is run again is no new release (default:
            None).

    The result has the columns of `item`, and bounded_count, noise_stddev, low, high.
    """
    ...

def distribution(
    data: Any,
    *,
    user: str,
    item: Columns,
    epsilon: float,
    domain: Domain,
    samples_per_user: int | str = "auto",
    users: int | None = None,
    method: str = "auto",
    hypothesis: str = "ks",
    explode: str | None = None,
    time_zone: str = "UTC",
    protect: str = "user",
    time: str | None = None,
    windows: int | None = None,
    count: str | None = None,
    drop_null: bool = False,
    where: str | None = None,
    join: Any | None = None,
    on: str | None = None,
    max_item_bytes: int = 4096,
    delta: float = 0.0,
    relation: str = "add-remove",
    label: str | None = None,
    period: str | None = None,
    ledger: str | None = None,
    dataset: str | None = None,
    clock_checked: bool = False,
    key_file: Path | None = None,
    key_env: str | None = None,
    key_secret: str | None = None,
    release_id: str | None = None,
) -> Result:
    """How likely each of given symbols is, from users with many samples each.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`.

        headcount.distribution(frame, user="user_id", item="genre", domain=["jazz", "rock"], epsilon=1, delta=1e-6)

    Parameters:
        data: the events, one in a row: a pandas or Polars frame, an Arrow table, batch or reader, a DuckDB relation,
            whatever has `__arrow_c_stream__`, a dict of lists, or a list of dicts.
        user: the column that tells users apart; a field of an object by its path, as user.id.
        item: the column to count, or a list of several; "seen_at:day" is the day of a time, "seen_at:last7" the windows of
            7 days that it lies in (or last28), "age:0,18,65" a bin of a number.
        epsilon: how much one user can change the result at most.
        domain: the symbols, which must be public: a list, a frame with the columns of item, or a file of Parquet, CSV, or
            text with one value per line; or a dict of columns to a range such as (first, last), a list or a file, all
            combinations.
        samples_per_user: samples of each user that count (up to 10000), users with fewer are left out; auto and median
            choose it privately, buckets learns from users of all sizes apart (default: auto).
        users: the number of users with M samples or more, if it is public (default: counted with noise if needed).
        method: auto takes gaussian or laplace, which are right for the mean of users who differ; dense and sparse have
            lower errors where all users are alike, and are far off where they are not (default: auto); one of "auto",
            "dense", "sparse", "gaussian", "laplace".
        hypothesis: how dense and sparse choose probabilities: ks by the largest difference of distribution functions, phs
            by all pairs of hypotheses, as in the paper, which needs more users (default: ks); one of "ks", "phs".
        explode: a column of item that holds lists: a row counts for each element (default: None).
        time_zone: where COLUMN:day and the like begin (default: UTC).
        protect: who is promised something: a user with all that it did, or what a user did in one day, week or month, which
            is weaker (default: user); one of "user", "user-day", "user-week", "user-month".
        time: when a row was, for protect user-day and the like (default: None).
        windows: say what is promised in total to a user who is there in N days, weeks or months (default: 30, 52, 12).
        count: how often a row counts, 10^9 times at most (default: once).
        drop_null: drop rows without a user, an item or a count (default: False).
        where: count only rows for which this holds, such as "country = de and price > 5": =, !=, <, <=, >, >=, in (...), is
            null, and, or, not (default: all rows).
        join: a public table, with one row for each key of --on, whose columns can then be used as the rows' own; rows
            without a partner have nulls there. It must be public and never be made of the private data: its rows would tell
            who is in that; a frame, or the path of a file (default: None).
        on: the column by which rows find theirs in the table of join (default: None).
        max_item_bytes: rows with a longer item are dropped (default: 4096).
        delta: a small chance on top, far below 1 / (number of users), such as 1e-8; needed where the items are not given,
            and for Gaussian noise (default: 0).
        relation: what a neighbouring input is: one user more or less, or one replaced (default: add-remove); one of
            "add-remove", "replace".
        label: what this is, in your words, for the report (default: None).
        period: the time that the events are of, in your words, for the report (default: None).
        ledger: the ledger that keeps the account of releases: sqlite:///FILE or postgresql://USER@HOST/DATABASE (default:
            None).
        dataset: the data set in it (see: headcount ledger create) (default: None).
        clock_checked: the clock of this machine is right, though the newest entry of the data set is long ago: without
            this, a limit for each month refuses a time of 100 days after it, and one for each year a time of 400 days
            (default: False).
        key_file: key file (see: headcount key), on every worker (default: None).
        key_env: environment variable of the workers with the key (default: None).
        key_secret: Secret Manager's name of the key, which workers fetch: projects/P/secrets/S/versions/N (default: None).
        release_id: only to repeat a release of the same input: its id (and its key); auto, with a ledger: an id that
            follows from data set, label, period and parameters, so that a job that is run again is no new release (default:
            None).

    The result has the columns of `item`, and probability, error.
    """
    ...

def funnel(
    data: Any,
    *,
    user: str,
    time: str,
    step: Columns,
    epsilon: float,
    within: str | None = None,
    domain: Domain | None = None,
    noise: str = "auto",
    by: Columns | None = None,
    time_zone: str = "UTC",
    drop_null: bool = False,
    where: str | None = None,
    join: Any | None = None,
    on: str | None = None,
    max_item_bytes: int = 4096,
    delta: float = 0.0,
    relation: str = "add-remove",
    label: str | None = None,
    period: str | None = None,
    ledger: str | None = None,
    dataset: str | None = None,
    clock_checked: bool = False,
    key_file: Path | None = None,
    key_env: str | None = None,
    key_secret: str | None = None,
    release_id: str | None = None,
) -> Result:
    """How many users come to each step of a path, in order of time, and which share of them.

    Guarantee: user-level epsilon-differential privacy under `relation`; with delta for Gaussian noise, or where values of
    `by` are named.

        headcount.funnel(frame, user="user_id", time="viewed_at", step=["page=/", "page=/cart", "page=/paid"], epsilon=1)

    Parameters:
        data: the events, one in a row: a pandas or Polars frame, an Arrow table, batch or reader, a DuckDB relation,
            whatever has `__arrow_c_stream__`, a dict of lists, or a list of dicts.
        user: the column that tells users apart; a field of an object by its path, as user.id.
        time: when a row was: a column of times or dates.
        step: conditions on rows, in the order of the path: ["page=/", "page=/cart", "page=/paid"].
        epsilon: how much one user can change the result at most.
        within: how long the whole path may take from its first step: 7d, 36h, 90m, 30s or 2w (default: any time).
        domain: the values of --by, if they are public; without it, those that enough users have are named, which takes a
            delta: a list, a frame with the columns of item, or a file of Parquet, CSV, or text with one value per line; or
            a dict of columns to a range such as (first, last), a list or a file, all combinations (default: None).
        noise: gaussian takes a delta, and costs less where many releases add up; auto takes the one with less noise
            (default: auto); one of "auto", "laplace", "gaussian".
        by: tell people apart by this column, or a list of several: the value at the row where the path begins counts
            (default: None).
        time_zone: where COLUMN:day and the like begin (default: UTC).
        drop_null: drop rows without a user, a time or a value of by (default: False).
        where: count only rows for which this holds, such as "country = de and price > 5": =, !=, <, <=, >, >=, in (...), is
            null, and, or, not (default: all rows).
        join: a public table, with one row for each key of --on, whose columns can then be used as the rows' own; rows
            without a partner have nulls there. It must be public and never be made of the private data: its rows would tell
            who is in that; a frame, or the path of a file (default: None).
        on: the column by which rows find theirs in the table of join (default: None).
        max_item_bytes: rows with a longer value of by are dropped (default: 4096).
        delta: a small chance on top, far below 1 / (number of users), such as 1e-8; needed where the items are not given,
            and for Gaussian noise (default: 0).
        relation: what a neighbouring input is: one user more or less, or one replaced (default: add-remove); one of
            "add-remove", "replace".
        label: what this is, in your words, for the report (default: None).
        period: the time that the events are of, in your words, for the report (default: None).
        ledger: the ledger that keeps the account of releases: sqlite:///FILE or postgresql://USER@HOST/DATABASE (default:
            None).
        dataset: the data set in it (see: headcount ledger create) (default: None).
        clock_checked: the clock of this machine is right, though the newest entry of the data set is long ago: without
            this, a limit for each month refuses a time of 100 days after it, and one for each year a time of 400 days
            (default: False).
        key_file: key file (see: headcount key), on every worker (default: None).
        key_env: environment variable of the workers with the key (default: None).
        key_secret: Secret Manager's name of the key, which workers fetch: projects/P/secrets/S/versions/N (default: None).
        release_id: only to repeat a release of the same input: its id (and its key); auto, with a ledger: an id that
            follows from data set, label, period and parameters, so that a job that is run again is no new release (default:
            None).

    The result has the columns of `by`, and step, condition, count, noise_stddev, low, high; and share_of_first and
    share_of_before, each with _low and _high.
    """
    ...

def heavy_hitters(
    data: Any,
    *,
    user: str,
    item: Columns,
    epsilon: float,
    phi: float,
    users: int | None = None,
    users_share: float | None = None,
    max_items: int | str = "auto",
    objective: str = "w95",
    explode: str | None = None,
    time_zone: str = "UTC",
    protect: str = "user",
    time: str | None = None,
    windows: int | None = None,
    count: str | None = None,
    drop_null: bool = False,
    where: str | None = None,
    join: Any | None = None,
    on: str | None = None,
    max_item_bytes: int = 4096,
    delta: float = 0.0,
    relation: str = "add-remove",
    label: str | None = None,
    period: str | None = None,
    ledger: str | None = None,
    dataset: str | None = None,
    clock_checked: bool = False,
    key_file: Path | None = None,
    key_env: str | None = None,
    key_secret: str | None = None,
    release_id: str | None = None,
) -> Result:
    """The items that a given share of all users have, from a secret sample and without noise.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`.

        headcount.heavy_hitters(frame, user="user_id", item="page", phi=0.01, users=1_000_000, epsilon=1, delta=1e-8)

    Parameters:
        data: the events, one in a row: a pandas or Polars frame, an Arrow table, batch or reader, a DuckDB relation,
            whatever has `__arrow_c_stream__`, a dict of lists, or a list of dicts.
        user: the column that tells users apart; a field of an object by its path, as user.id.
        item: the column to count, or a list of several; "seen_at:day" is the day of a time, "seen_at:last7" the windows of
            7 days that it lies in (or last28), "age:0,18,65" a bin of a number.
        epsilon: how much one user can change the result at most.
        phi: report the items that at least this share of all users have.
        users: the number of all users, if it is public (default: count them, with noise).
        users_share: the part of epsilon for counting the users, without users (default: 0.1).
        max_items: for how many of its distinct items one user counts at most, a uniform choice; auto chooses the number
            privately, by a tenth of epsilon (default: auto).
        objective: choose rate and threshold for the rarest items that are shown with a chance of 95 % or 50 % (default:
            w95); one of "w95", "w50".
        explode: a column of item that holds lists: a row counts for each element (default: None).
        time_zone: where COLUMN:day and the like begin (default: UTC).
        protect: who is promised something: a user with all that it did, or what a user did in one day, week or month, which
            is weaker (default: user); one of "user", "user-day", "user-week", "user-month".
        time: when a row was, for protect user-day and the like (default: None).
        windows: say what is promised in total to a user who is there in N days, weeks or months (default: 30, 52, 12).
        count: how often a row counts, 10^9 times at most (default: once).
        drop_null: drop rows without a user, an item or a count (default: False).
        where: count only rows for which this holds, such as "country = de and price > 5": =, !=, <, <=, >, >=, in (...), is
            null, and, or, not (default: all rows).
        join: a public table, with one row for each key of --on, whose columns can then be used as the rows' own; rows
            without a partner have nulls there. It must be public and never be made of the private data: its rows would tell
            who is in that; a frame, or the path of a file (default: None).
        on: the column by which rows find theirs in the table of join (default: None).
        max_item_bytes: rows with a longer item are dropped (default: 4096).
        delta: a small chance on top, far below 1 / (number of users), such as 1e-8; needed where the items are not given,
            and for Gaussian noise (default: 0).
        relation: what a neighbouring input is: one user more or less, or one replaced (default: add-remove); one of
            "add-remove", "replace".
        label: what this is, in your words, for the report (default: None).
        period: the time that the events are of, in your words, for the report (default: None).
        ledger: the ledger that keeps the account of releases: sqlite:///FILE or postgresql://USER@HOST/DATABASE (default:
            None).
        dataset: the data set in it (see: headcount ledger create) (default: None).
        clock_checked: the clock of this machine is right, though the newest entry of the data set is long ago: without
            this, a limit for each month refuses a time of 100 days after it, and one for each year a time of 400 days
            (default: False).
        key_file: key file (see: headcount key), on every worker (default: None).
        key_env: environment variable of the workers with the key (default: None).
        key_secret: Secret Manager's name of the key, which workers fetch: projects/P/secrets/S/versions/N (default: None).
        release_id: only to repeat a release of the same input: its id (and its key); auto, with a ledger: an id that
            follows from data set, label, period and parameters, so that a job that is run again is no new release (default:
            None).

    The result has the columns of `item`, and count, noise_stddev, low, high, sampled.
    """
    ...

def histogram(
    data: Any,
    *,
    user: str,
    epsilon: float,
    of: str = "users",
    method: str = "estimates",
    calibrate: str | None = None,
    bound: int | str = "auto",
    max_items: int | None = None,
    levels: Columns | None = None,
    home: bool = False,
    bound_share: float | None = None,
    bound_from: Path | Mapping[str, Any] | None = None,
    objective: str | None = None,
    bound_method: str = "auto",
    max_per_item: int | None = None,
    noise: str = "auto",
    domain: Domain | None = None,
    like: Path | Mapping[str, Any] | None = None,
    item: Columns | None = None,
    explode: str | None = None,
    time_zone: str = "UTC",
    protect: str = "user",
    time: str | None = None,
    windows: int | None = None,
    count: str | None = None,
    drop_null: bool = False,
    where: str | None = None,
    join: Any | None = None,
    on: str | None = None,
    max_item_bytes: int = 4096,
    delta: float = 0.0,
    relation: str = "add-remove",
    max_relative_error: float | None = None,
    suppress_below: int | None = None,
    top: int | None = None,
    per: Columns | None = None,
    label: str | None = None,
    period: str | None = None,
    ledger: str | None = None,
    dataset: str | None = None,
    clock_checked: bool = False,
    key_file: Path | None = None,
    key_env: str | None = None,
    key_secret: str | None = None,
    release_id: str | None = None,
) -> Result:
    """How many users each item has, or how often it occurs: estimates of the true numbers, with 95 % intervals.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`, as the report of the result says in words.

        headcount.histogram(frame, user="user_id", item=["country", "page"], epsilon=1, delta=1e-8)
        headcount.histogram(frame, user="user_id", levels=["country", "region", "city"], epsilon=1, delta=1e-8)

    Parameters:
        data: the events, one in a row: a pandas or Polars frame, an Arrow table, batch or reader, a DuckDB relation,
            whatever has `__arrow_c_stream__`, a dict of lists, or a list of dicts.
        user: the column that tells users apart; a field of an object by its path, as user.id.
        epsilon: how much one user can change the result at most.
        of: what is counted: users, each once on an item, or events (default: users); one of "users", "events".
        method: estimates of the true counts, or one-stage: noisy counts of what the bound leaves (default: estimates); one
            of "estimates", "one-stage".
        calibrate: totals tell how much the bound left out; none spends nothing on them, and gives bounded counts (default:
            totals; for method estimates); one of "totals", "none".
        bound: how much of one user counts at most (up to 1000000000): with method one-stage and without domain, events;
            otherwise the norm that its counts are scaled down to; auto chooses it privately (default: auto).
        max_items: items of one user that name items, at most (up to 10000), where items come from the data: a user of fewer
            loses little by a large K (default: chosen privately, for 8.5 % of epsilon; for method estimates).
        levels: in place of `item`: columns from the widest to the finest, as ["country", "region", "city"], or one text
            with commas; counts at every level, with what is other under each (default: None).
        home: with levels: each user counts in one place alone, where it has the most rows, so that users add up (default:
            False).
        bound_share: share of epsilon that choosing the bound takes, for method one-stage (default: 0.1, or 0.05 with
            objective items).
        bound_from: in place of bound, max_per_item and noise: what headcount choose-bound chose, by its report.json
            (default: None).
        objective: what the bound is chosen for: error, counts close to the truth in total, or items, as many of them as
            possible (default: error; not for estimates); one of "error", "items".
        bound_method: how it is chosen, if not for estimates (default: auto, which is joint, or with domain the one that its
            size favours; dp-gd, output-perturbation and m-quantile, and em and gem without domain, are methods of the paper
            that auto never takes); one of "auto", "joint", "em", "gem", "quantile-rank", "quantile-gem", "dp-gd",
            "output-perturbation", "m-quantile".
        max_per_item: events of one user that count at most on one item (default: chosen with the bound, or none).
        noise: auto takes the better one (default: auto); one of "auto", "laplace", "gaussian".
        domain: the items to count, if they are public; all of them are released: a list, a frame with the columns of item,
            or a file of Parquet, CSV, or text with one value per line; or a dict of columns to a range such as (first,
            last), a list or a file, all combinations; of some columns, the others are named from the data, and each has
            them all (default: None).
        like: in place of max_per_item: the folder or report of an earlier release whose c is taken, so that both compare
            (default: None).
        item: the column to count, or a list of several; "seen_at:day" is the day of a time, "seen_at:last7" the windows of
            7 days that it lies in (or last28), "age:0,18,65" a bin of a number (default: None).
        explode: a column of item that holds lists: a row counts for each element (default: None).
        time_zone: where COLUMN:day and the like begin (default: UTC).
        protect: who is promised something: a user with all that it did, or what a user did in one day, week or month, which
            is weaker (default: user); one of "user", "user-day", "user-week", "user-month".
        time: when a row was, for protect user-day and the like (default: None).
        windows: say what is promised in total to a user who is there in N days, weeks or months (default: 30, 52, 12).
        count: how often a row counts, 10^9 times at most (default: once).
        drop_null: drop rows without a user, an item or a count (default: False).
        where: count only rows for which this holds, such as "country = de and price > 5": =, !=, <, <=, >, >=, in (...), is
            null, and, or, not (default: all rows).
        join: a public table, with one row for each key of --on, whose columns can then be used as the rows' own; rows
            without a partner have nulls there. It must be public and never be made of the private data: its rows would tell
            who is in that; a frame, or the path of a file (default: None).
        on: the column by which rows find theirs in the table of join (default: None).
        max_item_bytes: rows with a longer item are dropped (default: 4096).
        delta: a small chance on top, far below 1 / (number of users), such as 1e-8; needed where the items are not given,
            and for Gaussian noise (default: 0).
        relation: what a neighbouring input is: one user more or less, or one replaced (default: add-remove); one of
            "add-remove", "replace".
        max_relative_error: leave out rows whose noise, at 1.96 standard deviations, is above this share of the count
            (default: None).
        suppress_below: leave out rows whose noisy count is below (default: None).
        top: keep the rows with the largest counts alone, as many as this, in all or `per` group (default: None).
        per: with `top`: the column of the key, or a list of several, by whose values rows are grouped; its name is that in
            the result (default: None).
        label: what this is, in your words, for the report (default: None).
        period: the time that the events are of, in your words, for the report (default: None).
        ledger: the ledger that keeps the account of releases: sqlite:///FILE or postgresql://USER@HOST/DATABASE (default:
            None).
        dataset: the data set in it (see: headcount ledger create) (default: None).
        clock_checked: the clock of this machine is right, though the newest entry of the data set is long ago: without
            this, a limit for each month refuses a time of 100 days after it, and one for each year a time of 400 days
            (default: False).
        key_file: key file (see: headcount key), on every worker (default: None).
        key_env: environment variable of the workers with the key (default: None).
        key_secret: Secret Manager's name of the key, which workers fetch: projects/P/secrets/S/versions/N (default: None).
        release_id: only to repeat a release of the same input: its id (and its key); auto, with a ledger: an id that
            follows from data set, label, period and parameters, so that a job that is run again is no new release (default:
            None).

    The result has the columns of `item`, and count, noise_stddev, low, high and bounded_count ("one-stage": no count, and low
    to high is the range of the noise).
    """
    ...

def partitions(
    data: Any,
    *,
    user: str,
    item: Columns,
    epsilon: float,
    strategy: str = "auto",
    max_items: int | None = None,
    rounds: int | None = None,
    explode: str | None = None,
    time_zone: str = "UTC",
    protect: str = "user",
    time: str | None = None,
    windows: int | None = None,
    count: str | None = None,
    drop_null: bool = False,
    where: str | None = None,
    join: Any | None = None,
    on: str | None = None,
    max_item_bytes: int = 4096,
    delta: float = 0.0,
    relation: str = "add-remove",
    label: str | None = None,
    period: str | None = None,
    ledger: str | None = None,
    dataset: str | None = None,
    clock_checked: bool = False,
    key_file: Path | None = None,
    key_env: str | None = None,
    key_secret: str | None = None,
    release_id: str | None = None,
) -> Result:
    """The items that enough users have, and nothing but their names.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation` of the set of names.

        headcount.partitions(frame, user="user_id", item="page", epsilon=1, delta=1e-8)

    Parameters:
        data: the events, one in a row: a pandas or Polars frame, an Arrow table, batch or reader, a DuckDB relation,
            whatever has `__arrow_c_stream__`, a dict of lists, or a list of dicts.
        user: the column that tells users apart; a field of an object by its path, as user.id.
        item: the column to count, or a list of several; "seen_at:day" is the day of a time, "seen_at:last7" the windows of
            7 days that it lies in (or last28), "age:0,18,65" a bin of a number.
        epsilon: how much one user can change the result at most.
        strategy: how items are selected; auto takes law, and chooses its items per user and rounds privately, unless
            max_items gives them; the others are methods of the papers that auto never takes (default: auto); one of "auto",
            "laplace", "gaussian", "truncated-geometric", "weighted-gaussian", "weighted-laplace", "sips", "law".
        max_items: items of one user that count at most (up to 10000; up to 1048576 where another strategy weighs items,
            else to 1000000000; default: chosen privately).
        rounds: rounds of sips and of law (default: 3).
        explode: a column of item that holds lists: a row counts for each element (default: None).
        time_zone: where COLUMN:day and the like begin (default: UTC).
        protect: who is promised something: a user with all that it did, or what a user did in one day, week or month, which
            is weaker (default: user); one of "user", "user-day", "user-week", "user-month".
        time: when a row was, for protect user-day and the like (default: None).
        windows: say what is promised in total to a user who is there in N days, weeks or months (default: 30, 52, 12).
        count: how often a row counts, 10^9 times at most (default: once).
        drop_null: drop rows without a user, an item or a count (default: False).
        where: count only rows for which this holds, such as "country = de and price > 5": =, !=, <, <=, >, >=, in (...), is
            null, and, or, not (default: all rows).
        join: a public table, with one row for each key of --on, whose columns can then be used as the rows' own; rows
            without a partner have nulls there. It must be public and never be made of the private data: its rows would tell
            who is in that; a frame, or the path of a file (default: None).
        on: the column by which rows find theirs in the table of join (default: None).
        max_item_bytes: rows with a longer item are dropped (default: 4096).
        delta: a small chance on top, far below 1 / (number of users), such as 1e-8; needed where the items are not given,
            and for Gaussian noise (default: 0).
        relation: what a neighbouring input is: one user more or less, or one replaced (default: add-remove); one of
            "add-remove", "replace".
        label: what this is, in your words, for the report (default: None).
        period: the time that the events are of, in your words, for the report (default: None).
        ledger: the ledger that keeps the account of releases: sqlite:///FILE or postgresql://USER@HOST/DATABASE (default:
            None).
        dataset: the data set in it (see: headcount ledger create) (default: None).
        clock_checked: the clock of this machine is right, though the newest entry of the data set is long ago: without
            this, a limit for each month refuses a time of 100 days after it, and one for each year a time of 400 days
            (default: False).
        key_file: key file (see: headcount key), on every worker (default: None).
        key_env: environment variable of the workers with the key (default: None).
        key_secret: Secret Manager's name of the key, which workers fetch: projects/P/secrets/S/versions/N (default: None).
        release_id: only to repeat a release of the same input: its id (and its key); auto, with a ledger: an id that
            follows from data set, label, period and parameters, so that a job that is run again is no new release (default:
            None).

    The result has the columns of `item`.
    """
    ...

def plume(
    data: Any,
    *,
    user: str,
    item: Columns,
    rho: float | None = None,
    max_items: int | str = "auto",
    max_counted_items: int | str | None = None,
    alpha: float = 0.5,
    selection: str = "gaussian",
    explode: str | None = None,
    time_zone: str = "UTC",
    protect: str = "user",
    time: str | None = None,
    windows: int | None = None,
    count: str | None = None,
    drop_null: bool = False,
    where: str | None = None,
    join: Any | None = None,
    on: str | None = None,
    max_item_bytes: int = 4096,
    epsilon: float | None = None,
    delta: float = 0.0,
    relation: str = "add-remove",
    max_relative_error: float | None = None,
    suppress_below: int | None = None,
    label: str | None = None,
    period: str | None = None,
    ledger: str | None = None,
    dataset: str | None = None,
    clock_checked: bool = False,
    key_file: Path | None = None,
    key_env: str | None = None,
    key_secret: str | None = None,
    release_id: str | None = None,
) -> Result:
    """The users of each item, with items named first and then counted; a bound on a user's items.

    Guarantee: user-level delta-approximate rho-zCDP under `relation`; an epsilon is converted.

        headcount.plume(frame, user="user_id", item="page", rho=0.5, delta=1e-6, max_items=20)

    Parameters:
        data: the events, one in a row: a pandas or Polars frame, an Arrow table, batch or reader, a DuckDB relation,
            whatever has `__arrow_c_stream__`, a dict of lists, or a list of dicts.
        user: the column that tells users apart; a field of an object by its path, as user.id.
        item: the column to count, or a list of several; "seen_at:day" is the day of a time, "seen_at:last7" the windows of
            7 days that it lies in (or last28), "age:0,18,65" a bin of a number.
        rho: in place of epsilon: the promise as zCDP, with delta for the items (half of it, with epsilon) (default: None).
        max_items: items of one user that take part in naming, at most; auto chooses it privately (default: auto).
        max_counted_items: named items that one user counts for at most (default: as max_items).
        alpha: share of rho for naming (default: 0.5).
        selection: how items are named (default: gaussian); one of "gaussian", "weighted-gaussian", "sips".
        explode: a column of item that holds lists: a row counts for each element (default: None).
        time_zone: where COLUMN:day and the like begin (default: UTC).
        protect: who is promised something: a user with all that it did, or what a user did in one day, week or month, which
            is weaker (default: user); one of "user", "user-day", "user-week", "user-month".
        time: when a row was, for protect user-day and the like (default: None).
        windows: say what is promised in total to a user who is there in N days, weeks or months (default: 30, 52, 12).
        count: how often a row counts, 10^9 times at most (default: once).
        drop_null: drop rows without a user, an item or a count (default: False).
        where: count only rows for which this holds, such as "country = de and price > 5": =, !=, <, <=, >, >=, in (...), is
            null, and, or, not (default: all rows).
        join: a public table, with one row for each key of --on, whose columns can then be used as the rows' own; rows
            without a partner have nulls there. It must be public and never be made of the private data: its rows would tell
            who is in that; a frame, or the path of a file (default: None).
        on: the column by which rows find theirs in the table of join (default: None).
        max_item_bytes: rows with a longer item are dropped (default: 4096).
        epsilon: how much one user can change the result at most (default: None).
        delta: a small chance on top, far below 1 / (number of users), such as 1e-8; needed where the items are not given,
            and for Gaussian noise (default: 0).
        relation: what a neighbouring input is: one user more or less, or one replaced (default: add-remove); one of
            "add-remove", "replace".
        max_relative_error: leave out rows whose noise, at 1.96 standard deviations, is above this share of the count
            (default: None).
        suppress_below: leave out rows whose noisy count is below (default: None).
        label: what this is, in your words, for the report (default: None).
        period: the time that the events are of, in your words, for the report (default: None).
        ledger: the ledger that keeps the account of releases: sqlite:///FILE or postgresql://USER@HOST/DATABASE (default:
            None).
        dataset: the data set in it (see: headcount ledger create) (default: None).
        clock_checked: the clock of this machine is right, though the newest entry of the data set is long ago: without
            this, a limit for each month refuses a time of 100 days after it, and one for each year a time of 400 days
            (default: False).
        key_file: key file (see: headcount key), on every worker (default: None).
        key_env: environment variable of the workers with the key (default: None).
        key_secret: Secret Manager's name of the key, which workers fetch: projects/P/secrets/S/versions/N (default: None).
        release_id: only to repeat a release of the same input: its id (and its key); auto, with a ledger: an id that
            follows from data set, label, period and parameters, so that a job that is run again is no new release (default:
            None).

    The result has the columns of `item`, and bounded_count, noise_stddev, low, high.
    """
    ...

def quantiles(
    data: Any,
    *,
    user: str,
    value: str,
    epsilon: float,
    lo: Value | str,
    hi: Value | str,
    quantile: float | Sequence[float] | None = None,
    range: tuple[Value, Value] | Sequence[tuple[Value, Value]] | None = None,
    method: str = "tree",
    levels: int | None = None,
    branching: int | None = None,
    rounds: int | None = None,
    time_zone: str = "UTC",
    protect: str = "user",
    time: str | None = None,
    windows: int | None = None,
    count: str | None = None,
    drop_null: bool = False,
    where: str | None = None,
    join: Any | None = None,
    on: str | None = None,
    delta: float = 0.0,
    relation: str = "add-remove",
    label: str | None = None,
    period: str | None = None,
    ledger: str | None = None,
    dataset: str | None = None,
    clock_checked: bool = False,
    key_file: Path | None = None,
    key_env: str | None = None,
    key_secret: str | None = None,
    release_id: str | None = None,
) -> Result:
    """Quantiles of the users' values, or counts of users by ranges of values, from a secret sample and without noise.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`; a user counts with one of its rows.

        headcount.quantiles(frame, user="user_id", value="age", lo=0, hi=120, quantile=[0.25, 0.5], epsilon=1, delta=1e-8)

    Parameters:
        data: the events, one in a row: a pandas or Polars frame, an Arrow table, batch or reader, a DuckDB relation,
            whatever has `__arrow_c_stream__`, a dict of lists, or a list of dicts.
        user: the column that tells users apart; a field of an object by its path, as user.id.
        value: the column of the values: numbers, dates or times.
        epsilon: how much one user can change the result at most.
        lo: the least value: a number, or a date or time in UTC, as 2030-01-31.
        hi: the largest value; what lies outside counts as the ends.
        quantile: a quantile of the values, such as 0.5; may be repeated (default: None).
        range: in place of quantiles: the number of users with a value from A to below B; may be repeated. What is at hi or
            above counts as just below it (default: None).
        method: tree samples a tree over lo to hi once, for all that is asked; search halves lo to hi again and again, with
            a new sample each time, for one quantile (default: tree); one of "tree", "search".
        levels: of the tree: lo to hi is divided into branching^L parts (default: 10).
        branching: of the tree: parts of each part on the next level (default: 2).
        rounds: of the search: how often lo to hi is halved (default: 10).
        time_zone: where COLUMN:day and the like begin (default: UTC).
        protect: who is promised something: a user with all that it did, or what a user did in one day, week or month, which
            is weaker (default: user); one of "user", "user-day", "user-week", "user-month".
        time: when a row was, for protect user-day and the like (default: None).
        windows: say what is promised in total to a user who is there in N days, weeks or months (default: 30, 52, 12).
        count: how often a row counts, 10^9 times at most (default: once).
        drop_null: drop rows without a user, a value or a count (default: False).
        where: count only rows for which this holds, such as "country = de and price > 5": =, !=, <, <=, >, >=, in (...), is
            null, and, or, not (default: all rows).
        join: a public table, with one row for each key of --on, whose columns can then be used as the rows' own; rows
            without a partner have nulls there. It must be public and never be made of the private data: its rows would tell
            who is in that; a frame, or the path of a file (default: None).
        on: the column by which rows find theirs in the table of join (default: None).
        delta: a small chance on top, far below 1 / (number of users), such as 1e-8; needed where the items are not given,
            and for Gaussian noise (default: 0).
        relation: what a neighbouring input is: one user more or less, or one replaced (default: add-remove); one of
            "add-remove", "replace".
        label: what this is, in your words, for the report (default: None).
        period: the time that the events are of, in your words, for the report (default: None).
        ledger: the ledger that keeps the account of releases: sqlite:///FILE or postgresql://USER@HOST/DATABASE (default:
            None).
        dataset: the data set in it (see: headcount ledger create) (default: None).
        clock_checked: the clock of this machine is right, though the newest entry of the data set is long ago: without
            this, a limit for each month refuses a time of 100 days after it, and one for each year a time of 400 days
            (default: False).
        key_file: key file (see: headcount key), on every worker (default: None).
        key_env: environment variable of the workers with the key (default: None).
        key_secret: Secret Manager's name of the key, which workers fetch: projects/P/secrets/S/versions/N (default: None).
        release_id: only to repeat a release of the same input: its id (and its key); auto, with a ledger: an id that
            follows from data set, label, period and parameters, so that a job that is run again is no new release (default:
            None).

    The result has quantile, value, low, high, rank_stddev; or of ranges low, high, count, noise_stddev.
    """
    ...

def retention(
    data: Any,
    *,
    user: str,
    time: str,
    from_: str,
    to: str,
    epsilon: float,
    every: str = "week",
    domain: Domain | None = None,
    noise: str = "auto",
    by: Columns | None = None,
    time_zone: str = "UTC",
    drop_null: bool = False,
    where: str | None = None,
    join: Any | None = None,
    on: str | None = None,
    max_item_bytes: int = 4096,
    delta: float = 0.0,
    relation: str = "add-remove",
    label: str | None = None,
    period: str | None = None,
    ledger: str | None = None,
    dataset: str | None = None,
    clock_checked: bool = False,
    key_file: Path | None = None,
    key_env: str | None = None,
    key_secret: str | None = None,
    release_id: str | None = None,
) -> Result:
    """Of the users who came first in each day, week or month, how many come back in each later one.

    Guarantee: user-level epsilon-differential privacy under `relation`; with delta for Gaussian noise, or where values of
    `by` are named.

        headcount.retention(frame, user="user_id", time="viewed_at", from_="2026-10-05", to="2026-11-15", epsilon=1)

    Parameters:
        data: the events, one in a row: a pandas or Polars frame, an Arrow table, batch or reader, a DuckDB relation,
            whatever has `__arrow_c_stream__`, a dict of lists, or a list of dicts.
        user: the column that tells users apart; a field of an object by its path, as user.id.
        time: when a row was: a column of times or dates.
        from_: the first day, such as 2026-10-05; it must be public: known without a look at the data.
        to: the last day, which counts, too.
        epsilon: how much one user can change the result at most.
        every: the periods; a week begins on Monday (default: week); one of "day", "week", "month".
        domain: the values of --by, if they are public; without it, those that enough users have are named, which takes a
            delta: a list, a frame with the columns of item, or a file of Parquet, CSV, or text with one value per line; or
            a dict of columns to a range such as (first, last), a list or a file, all combinations (default: None).
        noise: gaussian takes a delta, and costs less where many releases add up; auto takes the one with less noise
            (default: auto); one of "auto", "laplace", "gaussian".
        by: tell people apart by this column, or a list of several: the value that most of a user's rows have in its first
            period counts, of equal ones the first by name (default: None).
        time_zone: where COLUMN:day and the like begin (default: UTC).
        drop_null: drop rows without a user, a time or a value of by (default: False).
        where: count only rows for which this holds, such as "country = de and price > 5": =, !=, <, <=, >, >=, in (...), is
            null, and, or, not (default: all rows).
        join: a public table, with one row for each key of --on, whose columns can then be used as the rows' own; rows
            without a partner have nulls there. It must be public and never be made of the private data: its rows would tell
            who is in that; a frame, or the path of a file (default: None).
        on: the column by which rows find theirs in the table of join (default: None).
        max_item_bytes: rows with a longer value of by are dropped (default: 4096).
        delta: a small chance on top, far below 1 / (number of users), such as 1e-8; needed where the items are not given,
            and for Gaussian noise (default: 0).
        relation: what a neighbouring input is: one user more or less, or one replaced (default: add-remove); one of
            "add-remove", "replace".
        label: what this is, in your words, for the report (default: None).
        period: the time that the events are of, in your words, for the report (default: None).
        ledger: the ledger that keeps the account of releases: sqlite:///FILE or postgresql://USER@HOST/DATABASE (default:
            None).
        dataset: the data set in it (see: headcount ledger create) (default: None).
        clock_checked: the clock of this machine is right, though the newest entry of the data set is long ago: without
            this, a limit for each month refuses a time of 100 days after it, and one for each year a time of 400 days
            (default: False).
        key_file: key file (see: headcount key), on every worker (default: None).
        key_env: environment variable of the workers with the key (default: None).
        key_secret: Secret Manager's name of the key, which workers fetch: projects/P/secrets/S/versions/N (default: None).
        release_id: only to repeat a release of the same input: its id (and its key); auto, with a ledger: an id that
            follows from data set, label, period and parameters, so that a job that is run again is no new release (default:
            None).

    The result has the columns of `by`, and cohort, age, count, noise_stddev, low, high, share, share_low, share_high.
    """
    ...

def sampled(
    data: Any,
    *,
    user: str,
    item: Columns,
    epsilon: float,
    max_items: int | str = "auto",
    objective: str = "w95",
    explode: str | None = None,
    time_zone: str = "UTC",
    protect: str = "user",
    time: str | None = None,
    windows: int | None = None,
    count: str | None = None,
    drop_null: bool = False,
    where: str | None = None,
    join: Any | None = None,
    on: str | None = None,
    max_item_bytes: int = 4096,
    delta: float = 0.0,
    relation: str = "add-remove",
    max_relative_error: float | None = None,
    suppress_below: int | None = None,
    label: str | None = None,
    period: str | None = None,
    ledger: str | None = None,
    dataset: str | None = None,
    clock_checked: bool = False,
    key_file: Path | None = None,
    key_env: str | None = None,
    key_secret: str | None = None,
    release_id: str | None = None,
) -> Result:
    """The users of each item, from a secret sample and without noise: no item is shown that nobody has.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`.

        headcount.sampled(frame, user="user_id", item="page", epsilon=1, delta=1e-8)

    Parameters:
        data: the events, one in a row: a pandas or Polars frame, an Arrow table, batch or reader, a DuckDB relation,
            whatever has `__arrow_c_stream__`, a dict of lists, or a list of dicts.
        user: the column that tells users apart; a field of an object by its path, as user.id.
        item: the column to count, or a list of several; "seen_at:day" is the day of a time, "seen_at:last7" the windows of
            7 days that it lies in (or last28), "age:0,18,65" a bin of a number.
        epsilon: how much one user can change the result at most.
        max_items: for how many of its distinct items one user counts at most, a uniform choice; auto chooses the number
            privately, by a tenth of epsilon (default: auto).
        objective: choose rate and threshold for the rarest items that are shown with a chance of 95 % or 50 % (default:
            w95); one of "w95", "w50".
        explode: a column of item that holds lists: a row counts for each element (default: None).
        time_zone: where COLUMN:day and the like begin (default: UTC).
        protect: who is promised something: a user with all that it did, or what a user did in one day, week or month, which
            is weaker (default: user); one of "user", "user-day", "user-week", "user-month".
        time: when a row was, for protect user-day and the like (default: None).
        windows: say what is promised in total to a user who is there in N days, weeks or months (default: 30, 52, 12).
        count: how often a row counts, 10^9 times at most (default: once).
        drop_null: drop rows without a user, an item or a count (default: False).
        where: count only rows for which this holds, such as "country = de and price > 5": =, !=, <, <=, >, >=, in (...), is
            null, and, or, not (default: all rows).
        join: a public table, with one row for each key of --on, whose columns can then be used as the rows' own; rows
            without a partner have nulls there. It must be public and never be made of the private data: its rows would tell
            who is in that; a frame, or the path of a file (default: None).
        on: the column by which rows find theirs in the table of join (default: None).
        max_item_bytes: rows with a longer item are dropped (default: 4096).
        delta: a small chance on top, far below 1 / (number of users), such as 1e-8; needed where the items are not given,
            and for Gaussian noise (default: 0).
        relation: what a neighbouring input is: one user more or less, or one replaced (default: add-remove); one of
            "add-remove", "replace".
        max_relative_error: leave out rows whose noise, at 1.96 standard deviations, is above this share of the count
            (default: None).
        suppress_below: leave out rows whose noisy count is below (default: None).
        label: what this is, in your words, for the report (default: None).
        period: the time that the events are of, in your words, for the report (default: None).
        ledger: the ledger that keeps the account of releases: sqlite:///FILE or postgresql://USER@HOST/DATABASE (default:
            None).
        dataset: the data set in it (see: headcount ledger create) (default: None).
        clock_checked: the clock of this machine is right, though the newest entry of the data set is long ago: without
            this, a limit for each month refuses a time of 100 days after it, and one for each year a time of 400 days
            (default: False).
        key_file: key file (see: headcount key), on every worker (default: None).
        key_env: environment variable of the workers with the key (default: None).
        key_secret: Secret Manager's name of the key, which workers fetch: projects/P/secrets/S/versions/N (default: None).
        release_id: only to repeat a release of the same input: its id (and its key); auto, with a ledger: an id that
            follows from data set, label, period and parameters, so that a job that is run again is no new release (default:
            None).

    The result has the columns of `item`, and count, noise_stddev, low, high, sampled.
    """
    ...

def shape(
    data: Any,
    *,
    user: str,
    item: Columns,
    epsilon: float,
    domain_size: int | None = None,
    buckets: int | None = None,
    mode: str = "auto",
    max_items: int | None = None,
    estimate: str = "auto",
    coverage: int | None = None,
    property: str | None = None,
    most: int | None = None,
    samples: int | None = None,
    explode: str | None = None,
    time_zone: str = "UTC",
    protect: str = "user",
    time: str | None = None,
    windows: int | None = None,
    count: str | None = None,
    drop_null: bool = False,
    where: str | None = None,
    join: Any | None = None,
    on: str | None = None,
    max_item_bytes: int = 4096,
    delta: float = 0.0,
    relation: str = "add-remove",
    label: str | None = None,
    period: str | None = None,
    ledger: str | None = None,
    dataset: str | None = None,
    clock_checked: bool = False,
    key_file: Path | None = None,
    key_env: str | None = None,
    key_secret: str | None = None,
    release_id: str | None = None,
) -> Result:
    """How many items have which number of users, their entropy and their number, without naming any.

    Guarantee: user-level epsilon-differential privacy under `relation`.

        headcount.shape(frame, user="user_id", item="page", epsilon=1, domain_size=1_000_000)
        headcount.shape(frame, user="user_id", item="page", epsilon=1, property="distinct-items")

    Parameters:
        data: the events, one in a row: a pandas or Polars frame, an Arrow table, batch or reader, a DuckDB relation,
            whatever has `__arrow_c_stream__`, a dict of lists, or a list of dicts.
        user: the column that tells users apart; a field of an object by its path, as user.id.
        item: the column to count, or a list of several; "seen_at:day" is the day of a time, "seen_at:last7" the windows of
            7 days that it lies in (or last28), "age:0,18,65" a bin of a number.
        epsilon: how much one user can change the result at most.
        domain_size: how many items there could be, or a number that the distinct items will not exceed; public, never
            counted (default: None).
        buckets: in place of domain_size: hash items into this many buckets, about four for each user; public, never counted
            (default: None).
        mode: auto takes central, which sorts counts before the noise, or l1 if there are buckets or more than ten million
            items; l2 keeps every single count near its true one (default: auto); one of "auto", "central", "l1", "l2".
        max_items: items of one user that count at most (default: 1); for distinct-items: a user with more gives each a part
            of its weight (default: chosen privately).
        estimate: what is taken from noisy cells: likelihood, the most likely shape; algorithm-1, the paper"s own; auto, the
            first unless it is too far from the second (default: auto); one of "auto", "likelihood", "algorithm-1".
        coverage: say how many distinct items M samples (users' items) would have (default: twice as many as there are).
        property: answer this one question, with noise on the exact answer in place of a shape; distinct-items is of all
            that users have, the others of max_items each; support-size needs most; one of "distinct-items", "entropy",
            "support-size", "support-coverage" (default: None).
        most: for support-size: every item is taken to have at least one in M of all samples (default: None).
        samples: a public number, never counted: with property that of users' items in all (default: counted with a tenth of
            epsilon); in the pan-private model about how many events there were, needed with salt.
        explode: a column of item that holds lists: a row counts for each element (default: None).
        time_zone: where COLUMN:day and the like begin (default: UTC).
        protect: who is promised something: a user with all that it did, or what a user did in one day, week or month, which
            is weaker (default: user); one of "user", "user-day", "user-week", "user-month".
        time: when a row was, for protect user-day and the like (default: None).
        windows: say what is promised in total to a user who is there in N days, weeks or months (default: 30, 52, 12).
        count: how often a row counts, 10^9 times at most (default: once).
        drop_null: drop rows without a user, an item or a count (default: False).
        where: count only rows for which this holds, such as "country = de and price > 5": =, !=, <, <=, >, >=, in (...), is
            null, and, or, not (default: all rows).
        join: a public table, with one row for each key of --on, whose columns can then be used as the rows' own; rows
            without a partner have nulls there. It must be public and never be made of the private data: its rows would tell
            who is in that; a frame, or the path of a file (default: None).
        on: the column by which rows find theirs in the table of join (default: None).
        max_item_bytes: rows with a longer item are dropped (default: 4096).
        delta: a small chance on top, far below 1 / (number of users), such as 1e-8; needed where the items are not given,
            and for Gaussian noise (default: 0).
        relation: what a neighbouring input is: one user more or less, or one replaced (default: add-remove); one of
            "add-remove", "replace".
        label: what this is, in your words, for the report (default: None).
        period: the time that the events are of, in your words, for the report (default: None).
        ledger: the ledger that keeps the account of releases: sqlite:///FILE or postgresql://USER@HOST/DATABASE (default:
            None).
        dataset: the data set in it (see: headcount ledger create) (default: None).
        clock_checked: the clock of this machine is right, though the newest entry of the data set is long ago: without
            this, a limit for each month refuses a time of 100 days after it, and one for each year a time of 400 days
            (default: False).
        key_file: key file (see: headcount key), on every worker (default: None).
        key_env: environment variable of the workers with the key (default: None).
        key_secret: Secret Manager's name of the key, which workers fetch: projects/P/secrets/S/versions/N (default: None).
        release_id: only to repeat a release of the same input: its id (and its key); auto, with a ledger: an id that
            follows from data set, label, period and parameters, so that a job that is run again is no new release (default:
            None).

    The result has count, items, error; its report has what follows from them. That of a property has one row.
    """
    ...

def top(
    data: Any,
    *,
    user: str,
    item: Columns,
    epsilon: float,
    k: int,
    overall: bool = False,
    method: str | None = None,
    k_bar: int | None = None,
    explode: str | None = None,
    time_zone: str = "UTC",
    protect: str = "user",
    time: str | None = None,
    windows: int | None = None,
    count: str | None = None,
    drop_null: bool = False,
    where: str | None = None,
    join: Any | None = None,
    on: str | None = None,
    max_item_bytes: int = 4096,
    delta: float = 0.0,
    relation: str = "add-remove",
    label: str | None = None,
    period: str | None = None,
    ledger: str | None = None,
    dataset: str | None = None,
    clock_checked: bool = False,
    key_file: Path | None = None,
    key_env: str | None = None,
    key_secret: str | None = None,
    release_id: str | None = None,
) -> Result:
    """The items with the most users, in order and without counts.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`.

        headcount.top(frame, user="user_id", item="page", k=20, epsilon=1, delta=1e-8)

    Parameters:
        data: the events, one in a row: a pandas or Polars frame, an Arrow table, batch or reader, a DuckDB relation,
            whatever has `__arrow_c_stream__`, a dict of lists, or a list of dicts.
        user: the column that tells users apart; a field of an object by its path, as user.id.
        item: the column to count, or a list of several; "seen_at:day" is the day of a time, "seen_at:last7" the windows of
            7 days that it lies in (or last28), "age:0,18,65" a bin of a number.
        epsilon: how much one user can change the result at most.
        k: how many items to name at most.
        overall: with several item: name the K combinations with the most users in all; for the largest of each country and
            the like, see headcount histogram top (default: False).
        method: draw from all items, or name items first and draw from these, which finds more of a long top (default: draws
            up to k 9, names from 10 on); one of "draws", "names".
        k_bar: draw from the N items with the most users, for method draws (default: 10000).
        explode: a column of item that holds lists: a row counts for each element (default: None).
        time_zone: where COLUMN:day and the like begin (default: UTC).
        protect: who is promised something: a user with all that it did, or what a user did in one day, week or month, which
            is weaker (default: user); one of "user", "user-day", "user-week", "user-month".
        time: when a row was, for protect user-day and the like (default: None).
        windows: say what is promised in total to a user who is there in N days, weeks or months (default: 30, 52, 12).
        count: how often a row counts, 10^9 times at most (default: once).
        drop_null: drop rows without a user, an item or a count (default: False).
        where: count only rows for which this holds, such as "country = de and price > 5": =, !=, <, <=, >, >=, in (...), is
            null, and, or, not (default: all rows).
        join: a public table, with one row for each key of --on, whose columns can then be used as the rows' own; rows
            without a partner have nulls there. It must be public and never be made of the private data: its rows would tell
            who is in that; a frame, or the path of a file (default: None).
        on: the column by which rows find theirs in the table of join (default: None).
        max_item_bytes: rows with a longer item are dropped (default: 4096).
        delta: a small chance on top, far below 1 / (number of users), such as 1e-8; needed where the items are not given,
            and for Gaussian noise (default: 0).
        relation: what a neighbouring input is: one user more or less, or one replaced (default: add-remove); one of
            "add-remove", "replace".
        label: what this is, in your words, for the report (default: None).
        period: the time that the events are of, in your words, for the report (default: None).
        ledger: the ledger that keeps the account of releases: sqlite:///FILE or postgresql://USER@HOST/DATABASE (default:
            None).
        dataset: the data set in it (see: headcount ledger create) (default: None).
        clock_checked: the clock of this machine is right, though the newest entry of the data set is long ago: without
            this, a limit for each month refuses a time of 100 days after it, and one for each year a time of 400 days
            (default: False).
        key_file: key file (see: headcount key), on every worker (default: None).
        key_env: environment variable of the workers with the key (default: None).
        key_secret: Secret Manager's name of the key, which workers fetch: projects/P/secrets/S/versions/N (default: None).
        release_id: only to repeat a release of the same input: its id (and its key); auto, with a ledger: an id that
            follows from data set, label, period and parameters, so that a job that is run again is no new release (default:
            None).

    The result has rank, and the columns of `item`.
    """
    ...

def total(
    data: Any,
    *,
    user: str,
    epsilon: float,
    of: str | None = None,
    domain: Domain | None = None,
    bound: int | str | None = None,
    method: str = "bounded",
    max_per_item: int | None = None,
    users: int | None = None,
    users_share: float | None = None,
    max_items: int | None = None,
    largest_mean: float | None = None,
    noise: str | None = None,
    item: Columns | None = None,
    explode: str | None = None,
    time_zone: str = "UTC",
    protect: str = "user",
    time: str | None = None,
    windows: int | None = None,
    count: str | None = None,
    drop_null: bool = False,
    where: str | None = None,
    join: Any | None = None,
    on: str | None = None,
    max_item_bytes: int = 4096,
    delta: float = 0.0,
    relation: str = "add-remove",
    label: str | None = None,
    period: str | None = None,
    ledger: str | None = None,
    dataset: str | None = None,
    clock_checked: bool = False,
    key_file: Path | None = None,
    key_env: str | None = None,
    key_secret: str | None = None,
    release_id: str | None = None,
) -> Result:
    """How many users and how many events there are, in all or on the items of a public `domain`.

    Guarantee: user-level epsilon-differential privacy under `relation`.

        headcount.total(frame, user="user_id", epsilon=1)

    Parameters:
        data: the events, one in a row: a pandas or Polars frame, an Arrow table, batch or reader, a DuckDB relation,
            whatever has `__arrow_c_stream__`, a dict of lists, or a list of dicts.
        user: the column that tells users apart; a field of an object by its path, as user.id.
        epsilon: how much one user can change the result at most.
        of: what to count (default: both, where the users take a tenth of epsilon); one of "users", "events".
        domain: only rows with these items count, which must be public (default: all rows): a list, a frame with the columns
            of item, or a file of Parquet, CSV, or text with one value per line; or a dict of columns to a range such as
            (first, last), a list or a file, all combinations.
        bound: events of one user that count at most (up to 1000000000); auto chooses it privately (default: auto).
        method: bounded counts what is within the bound; debiased is the paper"s estimate of the totals of each item of
            domain, for users whose counts are Poisson with similar means (default: bounded); one of "bounded", "debiased".
        max_per_item: of debiased: events of one user on an item that count at most (up to 1000000000) (default: None).
        users: of debiased: the number of all users, if it is public; needed with relation replace (default: counted with
            noise).
        users_share: of debiased: the share of epsilon for counting the users, without users (default: 0.1).
        max_items: of debiased: how many of the items one user counts for at most (default: all of them).
        largest_mean: of debiased: events per user on an item that an estimate may reach, on average (default: twice the
            cap).
        noise: of debiased: auto takes the one with the lower standard deviation (default: auto); one of "auto", "laplace",
            "gaussian".
        item: the column to count, or a list of several; "seen_at:day" is the day of a time, "seen_at:last7" the windows of
            7 days that it lies in (or last28), "age:0,18,65" a bin of a number (default: None).
        explode: a column of item that holds lists: a row counts for each element (default: None).
        time_zone: where COLUMN:day and the like begin (default: UTC).
        protect: who is promised something: a user with all that it did, or what a user did in one day, week or month, which
            is weaker (default: user); one of "user", "user-day", "user-week", "user-month".
        time: when a row was, for protect user-day and the like (default: None).
        windows: say what is promised in total to a user who is there in N days, weeks or months (default: 30, 52, 12).
        count: how often a row counts, 10^9 times at most (default: once).
        drop_null: drop rows without a user, an item or a count (default: False).
        where: count only rows for which this holds, such as "country = de and price > 5": =, !=, <, <=, >, >=, in (...), is
            null, and, or, not (default: all rows).
        join: a public table, with one row for each key of --on, whose columns can then be used as the rows' own; rows
            without a partner have nulls there. It must be public and never be made of the private data: its rows would tell
            who is in that; a frame, or the path of a file (default: None).
        on: the column by which rows find theirs in the table of join (default: None).
        max_item_bytes: rows with a longer item are dropped (default: 4096).
        delta: a small chance on top, far below 1 / (number of users), such as 1e-8; needed where the items are not given,
            and for Gaussian noise (default: 0).
        relation: what a neighbouring input is: one user more or less, or one replaced (default: add-remove); one of
            "add-remove", "replace".
        label: what this is, in your words, for the report (default: None).
        period: the time that the events are of, in your words, for the report (default: None).
        ledger: the ledger that keeps the account of releases: sqlite:///FILE or postgresql://USER@HOST/DATABASE (default:
            None).
        dataset: the data set in it (see: headcount ledger create) (default: None).
        clock_checked: the clock of this machine is right, though the newest entry of the data set is long ago: without
            this, a limit for each month refuses a time of 100 days after it, and one for each year a time of 400 days
            (default: False).
        key_file: key file (see: headcount key), on every worker (default: None).
        key_env: environment variable of the workers with the key (default: None).
        key_secret: Secret Manager's name of the key, which workers fetch: projects/P/secrets/S/versions/N (default: None).
        release_id: only to repeat a release of the same input: its id (and its key); auto, with a ledger: an id that
            follows from data set, label, period and parameters, so that a job that is run again is no new release (default:
            None).

    The result has a row for each of `of`: of, bound, bounded_count, noise_stddev, low, high.
    """
    ...
