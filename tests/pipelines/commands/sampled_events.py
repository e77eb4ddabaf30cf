"""Jobs on one log of events with items and values, and what the pure functions are given of it."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.columns.reading import reading
from headcount.mechanisms.randomness.keys import KeyFile, Release
from headcount.mechanisms.sampled.axis import Axis, leaf_column
from headcount.transforms import Budget
from tests.fixed_key import write_fixed_key

SHAPE = ["--user", "who", "--item", "item"]
PROMISE = ["--epsilon", "2", "--delta", "1e-4"]
BUDGET = Budget(2, 1e-4)
START = datetime.datetime(2024, 1, 1)


def make_place(directory):
    """20,000 events of 3,000 users, on items and with values of several types; and a key."""
    random = np.random.default_rng(3)
    user, item, value = random.integers(0, 3000, 20_000), random.geometric(0.1, 20_000), random.normal(5, 3, 20_000)
    times = [START + datetime.timedelta(hours=float(v) * 24 + 240) for v in value]
    columns = {"who": [f"u{u}" for u in user], "item": [f"i{i}" for i in item], "number": item, "value": value}
    table = pa.table(columns | {"time": pa.array(times, pa.timestamp("ms", "UTC"))})
    pq.write_table(table, directory / "events.parquet")
    write_fixed_key(directory / "key")
    return directory


def job(place, out, events="events.parquet"):
    key = ["--key-file", place / "key", "--release-id", "r1"]
    return ["--input", place / events, *key, "--output", out]


def sample(item, user="who"):
    return json.dumps([user, item, None, 4096])


def release(place, item="item"):
    return Release(KeyFile(place / "key"), "r1").of_rows(reading(user="who", item=[item]))


def contributions(place, item, leaves=None, axis=None):
    table = pq.read_table(place / "events.parquet")
    column = table[item].combine_chunks()
    if leaves is not None:
        column = leaf_column(column, axis or Axis("number"), leaves, item)
    return contribution_batch(table["who"].combine_chunks(), column)


def rows(directory, name="counts", files=1):
    return [pq.read_table(directory / f"{name}-{k:05}-of-{files:05}.parquet").to_pylist() for k in range(files)]


def report_of(directory):
    return json.loads((directory / "report.json").read_text())
