"""Windows that overlap on the command line: what is said before any data, and what is refused."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from headcount.pipelines.main import main
from tests.mechanisms.people.logs import log

HISTOGRAM = [
    "histogram",
    "--user",
    "user",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
    "--item",
    "country",
    "--item",
    "at:last7",
]
DAYS = ["--domain", "at_last7=2026-10-08..2026-10-12"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (HISTOGRAM, "--domain: at:last7 counts in windows of 7 days, and the days that they end with must be public"),
        ([*HISTOGRAM, "--domain", "country=de.txt"], "as at_last7=2026-11-01..2026-11-30, or a list"),
        (
            [*HISTOGRAM, *DAYS, "--protect", "user-day", "--time", "at"],
            "--protect: at:last7 counts a user once in 7 days",
        ),
        (
            [*HISTOGRAM[:-4], "--levels", "country,at:last7"],
            "--levels: at:last7 are windows that overlap, and so no level",
        ),
        ([*HISTOGRAM, "--item", "at:last28", *DAYS], "at:last7 and at:last28 are windows that overlap"),
        (["top", *HISTOGRAM[1:], "--k", "3", "--overall"], "count by at:day here"),
        (["total", "--user", "u", "--epsilon", "1", "--item", "at:last7", *DAYS], "count by at:day here"),
        (["activity", "--user", "user", "--epsilon", "1", "--delta", "1e-6", "--by", "at:last7"], "one value of by"),
    ],
)
def test_it_refuses(words, message, capsys):
    assert main([*words, "--explain"]) == 2
    assert message in capsys.readouterr().err


def test_a_release_says_what_windows_are_and_shows_them_as_series(tmp_path, capsys):
    pq.write_table(log(8, users=3000, rows=9000, minutes=15_000), tmp_path / "log.parquet")
    words = ["--input", str(tmp_path / "log.parquet"), "--output", str(tmp_path / "out")]
    assert main([*HISTOGRAM, *DAYS, *words]) == 0
    assert "one for each at_last7" in capsys.readouterr().out
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert "'at' of the input in windows of 7 days, each by its last day" in report["columns"]["at_last7"]
    assert "by at_last7" in (tmp_path / "out" / "report.html").read_text()
    assert main(["show", str(tmp_path / "out")]) == 0
