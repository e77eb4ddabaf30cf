"""OpenDP's Polars context, with Laplace noise, or Gaussian by zero-concentrated privacy.

Users are sampled before it, uniformly, as its own sample of groups keeps the same groups for everyone. Values are whole
hundredths: noise for floats is for the rounding of their sums, and drowns them. A mean is a sum by a count. Users with one row
a key are its rows; with more, a first query of one row names keys and counts users, for a third of the budget. Intervals are
its own accuracy at 95 %, which it tells for counts and sums.
"""

from __future__ import annotations

from typing import Any

import opendp.prelude as dp
import polars as pl
from exchange import Job, serve

dp.enable_features("contrib")


def release(job: Job) -> dict[str, list[Any]]:
    """The metrics of all keys that it releases."""
    m, c, noise = (job.setting[name] for name in ("m", "c", "noise"))
    ends = round(100 * job.low), round(100 * job.high)
    cents = pl.col("value").mul(100).round().cast(pl.Int64)
    rows = pl.read_parquet(job.log, columns=["user", "item", "value"]).with_columns(cents)
    keys = job.public()
    rho, delta = 0.0, 0.0 if keys else job.delta
    if noise == "gaussian":  # half of delta is the threshold's, if there is one
        delta = delta / 2
        rho = most(job.epsilon, job.delta - delta)
    if keys is not None:  # the bound is for rows on these keys alone
        rows = rows.filter(pl.col("item").is_in(keys))
    pairs = rows.select("user", "item").unique()
    own = pairs.filter(pl.int_range(pl.len()).shuffle().over("user") < m)
    rows = rows.join(own, on=["user", "item"], how="semi")
    rows = rows.filter(pl.int_range(pl.len()).shuffle().over("user", "item") < c)
    length, total = dp.len(signed=True), pl.col("value").dp.sum(ends)

    def asked(rows: Any, c: int, share: float, delta: float, keys: list[str] | None, **columns: Any) -> tuple[Any, Any]:
        """Some columns for a share of the budget, and their accuracy; delta is what names keys."""
        named = {"delta": delta} if delta else {}
        context = dp.Context.compositor(
            data=rows.lazy(),
            privacy_unit=dp.unit_of(contributions=[dp.polars.Bound(by=["item"], num_groups=m, per_group=c)]),
            privacy_loss=dp.loss_of(**({"rho": rho * share} if rho else {"epsilon": job.epsilon * share}), **named),
            split_evenly_over=1,
            margins=[dp.polars.Margin(by=["item"], max_length=10**7, max_groups=10**6)],
        )
        query = context.query().group_by("item").agg(*(each.alias(name) for name, each in columns.items()))
        query = query if keys is None else query.with_keys(pl.LazyFrame({"item": keys}))
        lines = query.summarize(alpha=0.05).iter_rows(named=True)
        return query.release().collect(), {line["column"]: line["accuracy"] for line in lines}

    if c == 1:
        found, accuracy = asked(rows, 1, 1.0, delta, keys, events=length, sum=total)
        found, accuracy["users"] = found.with_columns(users="events"), accuracy["events"]
    else:
        first, accuracy = asked(own, 1, 1 / 3, delta, keys, users=length)
        found, more = asked(rows, c, 2 / 3, 0.0, first["item"].to_list(), events=length, sum=total)
        found, accuracy = found.join(first, on="item"), accuracy | more
    found = found.with_columns(pl.col("sum") / 100).with_columns(mean=pl.col("sum") / pl.col("events"))
    accuracy["sum"] /= 100
    told = {name: found[name].to_list() for name in ("item", "users", "events", "sum", "mean")}
    return told | {f"{name}_half": [half] * len(found) for name, half in accuracy.items()}


def most(epsilon: float, delta: float) -> float:
    """The largest rho that OpenDP itself converts to (epsilon, delta)."""
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)

    def enough(rho: float) -> bool:
        made = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=(0.5 / rho) ** 0.5))
        return made.map(1).epsilon(delta) <= epsilon

    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low


if __name__ == "__main__":
    serve(release)
