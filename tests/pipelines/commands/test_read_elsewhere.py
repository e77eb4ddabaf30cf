"""The files of an output are read as they are, by what people have: pandas, DuckDB, Polars."""

from __future__ import annotations

import datetime
import glob

import duckdb
import pandas as pd
import polars as pl
import pytest

import headcount

DAYS = [datetime.datetime(2026, 11, 1 + day, tzinfo=datetime.UTC) for day in range(5)]
EVENTS = {
    "user": [f"u{k % 500}" for k in range(4000)],
    "page": [f"p{k % 30}" for k in range(4000)],
    "at": [DAYS[k % 5] for k in range(4000)],
}


@pytest.fixture
def result(tmp_path, monkeypatch):
    """An output of three files in a folder `out`, where we are."""
    made = headcount.histogram(EVENTS, user="user", item=["page", "at:day"], epsilon=5, delta=1e-5)
    made.save(tmp_path / "out", output_files=3)
    monkeypatch.chdir(tmp_path)
    return made


def of_result(result):
    return sorted((row["page"], row["at_day"].isoformat(), row["count"]) for row in result.table.to_pylist())


def test_pandas(result):
    frame = pd.read_parquet(glob.glob("out/*.parquet"))
    found = [(page, str(day), count) for page, day, count in zip(frame.page, frame.at_day, frame["count"], strict=True)]
    assert sorted(found) == of_result(result)


def test_polars(result):
    frame = pl.read_parquet("out/*.parquet").select("page", "at_day", "count")
    assert sorted((page, day.isoformat(), count) for page, day, count in frame.rows()) == of_result(result)


def test_duckdb(result):
    with duckdb.connect() as connection:
        rows = connection.sql("select page, at_day, count from 'out/*.parquet'").fetchall()
    assert sorted((page, day.isoformat(), count) for page, day, count in rows) == of_result(result)
