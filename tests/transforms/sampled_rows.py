"""Rows of users with items and values: shared by the tests of samples and of quantiles."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pyarrow as pa

from headcount.transforms import Budget

BUDGET = Budget(2, 1e-4)
N = 20_000


def rows_table(rows: int = N) -> pa.Table:
    """Users with ten rows each, on items and with values; the same user has several values."""
    random = np.random.default_rng(3)
    users, items = random.integers(0, rows // 10, rows), (random.pareto(1, rows) * 3).astype(int) % 300
    values = random.normal(5, 3, rows)
    columns = {"user": [f"u{u}" for u in users], "item": [f"i{i}" for i in items], "number": items}
    return pa.table(columns | {"value": values, "whole": np.round(values * 10).astype(int)})


def of_values(collect, rows: list, transform: beam.PTransform, *options: str) -> list:
    return collect(lambda pipeline: pipeline | beam.Create(rows) | "Mine" >> transform, *options)
