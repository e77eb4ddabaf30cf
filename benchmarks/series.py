"""Do weeks agree? One log cut into equal weeks, each released by itself, and the largest item of each release.

    python benchmarks/series.py

The weeks differ by chance alone, and users are counted. Estimates are beside bounded counts whose bound is chosen anew each
week, and beside those of the bound of the first week, given. Every release is a call, at (1, 1e-8).
"""

from __future__ import annotations

import argparse

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from _laws import demo_log
from _shared import OUT, write_csv

import headcount

PROMISE = {"user": "user", "item": "item", "epsilon": 1, "delta": 1e-8}


def weeks(number: int) -> list[pa.Table]:
    """The demo's log in equal parts, by chance."""
    demo_log(OUT)
    log = pq.read_table(OUT / "demo-1000000.parquet", columns=["user", "item"])
    week = np.random.default_rng(1).integers(0, number, log.num_rows)
    return [log.filter(pa.array(week == k)) for k in range(number)]


def largest(result: headcount.Result, item: str, column: str) -> float | None:
    """The released number of one item, if it is there."""
    found = result.table.filter(pc.equal(result.table["item"], item))[column].to_pylist()
    return found[0] if found else None


def main() -> None:
    """Release all weeks in three ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weeks", type=int, default=6)
    given = parser.parse_args()
    logs = weeks(given.weeks)
    counted = logs[0]["item"].value_counts()
    item = max(counted.to_pylist(), key=lambda row: row["counts"])["values"]
    bound = None
    rows = []
    for number, log in enumerate(logs, start=1):
        anew = headcount.histogram(log, **PROMISE, method="one-stage")
        chosen = anew.report["details"]["chosen"]["bound"]
        bound = bound or chosen
        kept = headcount.histogram(log, **PROMISE, method="one-stage", bound=bound)
        estimates = headcount.histogram(log, **PROMISE)
        rows.append(
            {
                "week": number,
                "true": pc.count_distinct(log.filter(pc.equal(log["item"], item))["user"]).as_py(),
                "estimate": largest(estimates, item, "count"),
                "low": largest(estimates, item, "low"),
                "high": largest(estimates, item, "high"),
                "bound chosen anew": chosen,
                "its bounded count": largest(anew, item, "bounded_count"),
                "bounded count of one bound": largest(kept, item, "bounded_count"),
            }
        )
        print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    write_csv([{name: str(value) for name, value in row.items()} for row in rows], OUT / "series.csv")


if __name__ == "__main__":
    main()
