"""Windows that overlap (`at:last7`) in pipelines: the rows of a call, and what is refused where the pipeline is built."""

from __future__ import annotations

import apache_beam as beam
import pyarrow as pa
import pytest

import headcount
from headcount.mechanisms.errors import ParameterError
from headcount.transforms import (
    AnonymizedHistogram,
    Budget,
    Contributions,
    Histogram,
    NoisyCounts,
    RandClip,
    SelectPartitions,
    TopItems,
)
from tests.mechanisms.people.logs import log

BUDGET, DAYS = Budget(5, 1e-3), {"at_last7": ("2026-10-08", "2026-10-12")}
TABLE = log(4, users=300, rows=2000, minutes=15_000)


def test_a_pipeline_gives_the_rows_of_sql_in_all_windows_also_of_dicts(collect):
    one_stage = {"method": "one-stage", "bound": 60, "noise": "gaussian"}
    domain = {"country": ["at", "de", "fr"], **DAYS}
    budget = Budget(10**6, 0.1)

    def build(pipeline):
        # Rows one by one, and so without a schema.
        rows = pipeline | beam.Create(TABLE.select(["user", "country", "at"]).to_pylist())
        read = rows | Contributions("user", ["country", "at:last7"])
        return read | Histogram(budget, domain=domain, **one_stage)

    found = {(row.country, row.at_last7): round(row.bounded_count) for row in collect(build)}
    with pytest.warns(UserWarning, match="promises little"):
        called = headcount.histogram(
            TABLE, user="user", item=["country", "at:last7"], domain=domain, epsilon=10**6, delta=0.1, **one_stage
        ).table
    expected = {(row["country"], row["at_last7"]): round(row["bounded_count"]) for row in called.to_pylist()}
    assert found == expected and len(found) == 15 and min(found.values()) > 20


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (Histogram(BUDGET), "must be public: give a range"),
        (Histogram(BUDGET, domain={"country": ["de", "at"]}), "must be public: give a range"),
        (Histogram(BUDGET, levels=True), "no level"),
        (SelectPartitions(BUDGET), "histogram and aggregate count alone"),
        (TopItems(BUDGET, 5), "histogram and aggregate count alone"),
        (AnonymizedHistogram(Budget(1), domain_size=10), "histogram and aggregate count alone"),
    ],
)
def test_what_does_not_count_windows_refuses_them(transform, message):
    pipeline = beam.Pipeline(runner="FnApiRunner")
    schema = pa.schema([("user", pa.string()), ("country", pa.string()), ("at", pa.timestamp("us"))])
    rows = pipeline | beam.Create([]) | Contributions("user", ["country", "at:last7"], schema=schema)
    with pytest.raises(ParameterError, match=message):
        rows | transform


def test_noise_for_windows_that_others_have_bounded_needs_their_days_too():
    pipeline = beam.Pipeline(runner="FnApiRunner")
    schema = pa.schema([("user", pa.string()), ("at", pa.timestamp("us"))])
    rows = pipeline | beam.Create([]) | Contributions("user", "at:last7", schema=schema)
    limit = RandClip(3)
    with pytest.raises(ParameterError, match="must be public: give a range"):
        rows | limit | NoisyCounts(BUDGET, limit.bound)
