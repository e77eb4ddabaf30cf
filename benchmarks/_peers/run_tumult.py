"""Tumult Analytics on Spark in this machine, with users protected by `AddRowsWithID`.

Keys are named by `get_groups`, at most `names` of a user, with half of the budget; only its (epsilon, delta) budgets can do
that. With Laplace noise one session has all queries. With Gaussian noise a second session has the other half of the budget as
rho of zero-concentrated privacy, whose noise grows with the root of a user's keys. Users are a count with one row of a user on
each key, and a mean is a sum by a count, since its `average` pays for a count of its own. It tells no intervals: what it knows
of its noise is private to its code.
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable

from exchange import Job, serve, zcdp  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from tmlt.analytics import (  # noqa: E402
    AddRowsWithID,
    ApproxDPBudget,
    KeySet,
    MaxGroupsPerID,
    MaxRowsPerGroupPerID,
    QueryBuilder,
    RhoZCDPBudget,
    Session,
)


def release(job: Job) -> dict[str, list[Any]]:
    """The metrics of all keys that it releases."""
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": f"{job.output}.warehouse",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    made = queries(spark, job)
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()  # so that the seconds of Java are ours
    return made


def queries(spark: Any, job: Job) -> dict[str, list[Any]]:
    """All of its queries: keys, then users, events and sums, which share what keys have left."""
    m, c, noise = (job.setting[name] for name in ("m", "c", "noise"))
    frame = spark.read.parquet(job.log).select("user", "item", "value").cache()
    public = job.public()
    share = 1.0 if public else 0.5
    session = opened(frame, ApproxDPBudget(job.epsilon, job.delta))
    if public:
        keys = KeySet.from_dict({"item": public})
    else:
        spent = ApproxDPBudget(job.epsilon * (1 - share), job.delta / (2 if noise == "gaussian" else 1))
        groups = session.evaluate(bounded(job.setting.get("names", m), 1).get_groups("item"), spent)
        keys = KeySet.from_dataframe(groups.select("item"))
    parts = 2 if c == 1 else 3
    if noise == "gaussian":
        delta = job.delta if public else job.delta / 2
        rho = zcdp(job.epsilon * share, delta)
        session, each = opened(frame, RhoZCDPBudget(rho)), RhoZCDPBudget(rho / parts)
    else:
        each = ApproxDPBudget(job.epsilon * share / parts, 0)
    found = {"users": told(session, bounded(m, 1).groupby(keys).count(name="n"), each)}
    found["events"] = found["users"] if c == 1 else told(session, bounded(m, c).groupby(keys).count(name="n"), each)
    sums = bounded(m, c).groupby(keys).sum("value", low=job.low, high=job.high, name="n")
    found["sum"] = told(session, sums, each)
    items = sorted(found["users"])
    columns: dict[str, list[Any]] = {"item": items}
    columns |= {name: [float(values[item]) for item in items] for name, values in found.items()}
    pairs = zip(columns["sum"], columns["events"], strict=True)
    return columns | {"mean": [total / count if count else None for total, count in pairs]}


def opened(frame: Any, budget: Any) -> Any:
    """A session whose promise is to users."""
    return Session.from_dataframe(budget, "log", frame, protected_change=AddRowsWithID("user"))


def bounded(m: int, c: int) -> Any:
    """A query of at most m keys of a user, and c rows on each."""
    return QueryBuilder("log").enforce(MaxGroupsPerID("item", m)).enforce(MaxRowsPerGroupPerID("item", c))


def told(session: Any, query: Any, budget: Any) -> dict[str, float]:
    """The released number of each key."""
    return {row["item"]: row["n"] for row in session.evaluate(query, budget).collect()}


if __name__ == "__main__":
    serve(release)
