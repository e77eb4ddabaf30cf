"""Keys partly public, for whoever looks at the result: report, terminal, page, and what is refused."""

from __future__ import annotations

import csv
import datetime
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

import headcount
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.pipelines.reports import series
from headcount.pipelines.studies.from_release import PublishedRelease, read_release
from tests.fixed_key import write_fixed_key
from tests.pipelines.refusals import refused

DAYS = {"at_day": ("2026-11-01", "2026-11-10")}
RANGE = "at_day=2026-11-01..2026-11-10"


def visits(rows=30_000):
    """3,000 users; on the last of the ten days nobody is there, and page 0 is visited by half of all."""
    random = np.random.default_rng(4)
    page = (random.pareto(1, rows) * 2).astype(int) % 100
    at = pa.array(1_793_491_200 + random.integers(0, 9 * 86_400, rows), pa.timestamp("s"))
    return pa.table({"user": random.integers(0, 3000, rows), "page": [f"p{k:02d}" for k in page], "at": at})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("visits")
    write_fixed_key(folder / "key")
    pq.write_table(visits(), folder / "visits.parquet")
    return folder


@pytest.fixture(scope="module")
def given(place):
    release = {"key_file": place / "key", "release_id": "r"}
    return {"user": "user", "item": ["page", "at:day"], "epsilon": 2, "delta": 1e-6, "domain": DAYS, **release}


@pytest.fixture(scope="module")
def counted(given):
    return headcount.histogram(visits(), **given)


def test_every_named_page_has_all_days_and_the_truth_is_near(counted):
    rows = counted.table.to_pylist()
    pages = {row["page"] for row in rows}
    assert len(rows) == 10 * len(pages) and {row["at_day"] for row in rows} == {
        datetime.date(2026, 11, day) for day in range(1, 11)
    }
    true = visits().append_column("day", pa.array([at.day for at in visits()["at"].to_pylist()]))
    true = true.group_by(["page", "day", "user"]).aggregate([]).group_by(["page", "day"]).aggregate([([], "count_all")])
    there = {(row["page"], row["day"]): row["count_all"] for row in true.to_pylist()}
    held = [row["low"] <= there.get((row["page"], row["at_day"].day), 0) <= row["high"] for row in rows]
    assert np.mean(held) > 0.85  # of one release with a fixed key


def test_a_page_is_named_by_its_users_on_all_days_together(given):
    """Eight users on each of ten days: too few for any day, and enough in all."""
    rare = pa.table(
        {
            "user": range(9000, 9080),
            "page": ["rare"] * 80,
            "at": [datetime.datetime(2026, 11, 1 + k % 10) for k in range(80)],
        }
    )
    rows = pa.concat_tables([visits(), rare.cast(visits(1).schema)])
    found = headcount.histogram(rows, **given).table
    assert found.filter(pa.compute.equal(found["page"], "rare")).num_rows == 10
    alone = headcount.histogram(rows, **{**given, "domain": None}).table
    assert "rare" not in alone["page"].to_pylist() and alone.num_rows < found.num_rows


def test_the_report_says_which_columns_are_public(counted):
    report = counted.report
    parameters = report["details"]["parameters"]
    assert parameters["public_columns"] == [RANGE] and parameters["public_domain"] is False
    assert len(parameters["domain_digest"]) == 64
    assert report["note"].startswith(f"public: {RANGE}; the other columns were named from the data")


def test_the_terminal_has_a_line_for_each_of_the_largest_keys(counted):
    lines = str(counted).splitlines()
    assert re.match(
        r"counts of users by page and at_day: \d+ keys were named, with 10 rows each, one for each at_day; the 10 largest, "
        "with 95 % intervals:",
        lines[0],
    )
    head = next(k for k, line in enumerate(lines) if line.split()[:1] == ["page"])
    assert lines[head].split() == ["page", "mean", "count", "low", "high", "least", "on", "most", "on"]
    table = [line.split() for line in lines[head + 1 : head + 11]]
    of = {row["page"]: [] for row in counted.table.to_pylist()}
    for row in counted.table.to_pylist():
        of[row["page"]].append(row["count"])
    assert [cells[0] for cells in table] == sorted(of, key=lambda page: (-sum(of[page]), page))[:10]
    first, own = table[0], of[table[0][0]]
    assert [float(first[k].replace(",", "")) for k in (1, 4, 6)] == pytest.approx(
        [np.mean(own), min(own), max(own)], rel=1e-3
    )
    assert first[5] == "2026-11-10", "the day on which nobody was there"


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_the_page_has_a_small_line_for_each_of_twelve_keys(counted, tmp_path, format):
    counted.save(tmp_path / "out", format=format, output_files=2)
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count('<svg class="spark"') == 12 and page.count('<polygon class="band') == 12 and "<script" not in page
    drawn = re.search(r'<svg class="spark".*?</svg>', page)[0]
    assert 'role="img"' in drawn and "<title>p00</title><desc>count by at_day: the least is " in drawn
    assert len(re.search(r'<polyline class="line series-0" points="([^"]*)"', drawn)[1].split()) == 10
    assert re.search(r"<h2>The 12 largest of \d+ keys, by at_day</h2>", page)


def test_a_job_shows_the_same_and_so_does_show(run, place, tmp_path, counted):
    words = [
        "--user",
        "user",
        "--item",
        "page",
        "--item",
        "at:day",
        "--epsilon",
        "2",
        "--delta",
        "1e-6",
        "--domain",
        RANGE,
    ]
    source = ["--input", place / "visits.parquet", "--key-file", place / "key", "--release-id", "r"]
    status, said, err = run("histogram", *words, *source, "--output", tmp_path / "out", "--format", "csv")
    assert (status, err) == (0, [])
    shown = str(counted).splitlines()
    assert said.splitlines()[: len(shown)] == shown
    assert shown[0] in run("show", tmp_path / "out")[1]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert f"these were public before: {RANGE}. Which of their values" in run("statement", tmp_path / "out")[1]
    with (tmp_path / "out" / "counts-00000-of-00001.csv").open() as file:
        rows = [*csv.DictReader(file)]
    told = read_release(report, rows)
    assert isinstance(told, PublishedRelease) and told.public is not None
    assert len(told.public) * len(told.bounded) == len(rows) and "public values" in told.description()
    with pytest.raises(InputError, match="at least 10 items"):
        read_release(report, [])


def test_metrics_are_series_too(given, tmp_path):
    result = headcount.aggregate(visits(), users=True, events=True, **given)
    assert "mean events" in str(result) and "keys were named, with 10 rows each" in str(result)
    result.save(tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count('<svg class="spark"') == 24
    assert "<h2>Events, at most 10 a user: the 12 largest of 55 keys, by at_day" in page


def test_rows_with_more_or_other_public_columns_are_no_series(counted):
    report = counted.report
    parameters = report["details"]["parameters"]

    def with_public(*columns):
        details = report["details"] | {"parameters": parameters | {"public_columns": [*columns]}}
        return series.series_of(report | {"details": details})

    assert with_public(RANGE) == series.SeriesOf(("page",), "at_day", "count")
    assert with_public(RANGE, "n=1..2") is None and with_public("at_day=3 values") is None and with_public() is None
    assert series.series_of(report | {"rows": 0}) is None
    assert series.series_of(report | {"rows": series.MOST_ROWS + 1}) is None


def test_explain_says_what_typical_data_gives(run):
    words = ["histogram", "--item", "page", "--item", "at:day", "--epsilon", "1", "--delta", "1e-6", "--domain", RANGE]
    status, said, err = run(*words, "--explain")
    assert (status, err) == (0, []) and f"each event at random on one of {RANGE}" in said
    refused(
        run(*words, "--explain", "--noise", "laplace"),
        "leave it out, or give a list or a range for each key column",
    )
    refused(run(*words, "--explain", "--method", "one-stage"), "--method='one-stage' names and counts keys in one step")
    no_delta = [each for each in words if each not in ("--delta", "1e-6")]
    refused(run(*no_delta, "--explain"), "--delta must be positive", "for instance --delta 1e-8")
    hours = ["--item", "page", "--item", "at:hour", "--domain", "at_hour=2000-01-01T00:00Z..2026-01-01T00:00Z"]
    refused(run("histogram", *hours, "--epsilon", "1", "--delta", "1e-6", "--explain"), "combinations of its columns")


@pytest.mark.parametrize(
    ("call", "more"),
    [
        (headcount.total, {}),
        (headcount.distribution, {}),
        (headcount.choose_bound, {"for_epsilon": 1, "for_delta": 1e-6}),
    ],
)
def test_other_commands_need_all_columns(call, more):
    asked = {"user": "user", "item": ["page", "at:day"], "epsilon": 1, **more}
    with pytest.raises(ParameterError, match="domain is of at_day=.* alone, and all keys must be public here"):
        call(visits(100), **asked, domain=DAYS)
    found = call(visits(100), **asked, domain=DAYS | {"page": ["p00", "p01"]})
    assert found.report["details"]["parameters"]["domain_digest"]
