"""Runs of one report count as many events of a user each: the first one chooses, and what a run has begun stays as it is."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headcount
from headcount.mechanisms.accounting.totals import Spent
from headcount.pipelines.ledger.account import open_ledger
from headcount.pipelines.main import main
from headcount.pipelines.report_file.file import read_file
from headcount.pipelines.report_file.jobs import jobs
from headcount.pipelines.report_file.promised import budgets_of, dataset_of
from tests.fixed_key import write_fixed_key

WEEKS = ("2026-W41", "2026-W42", "2026-W43")
LEDGER = """\
ledger: sqlite:///ledger.db
dataset: shop
"""
REPORT = """\
data: {input: "visits/{period}.parquet", user: user}
key_file: key
output: reports/{period}
releases:
  pages: {command: histogram, item: page, of: events, epsilon: 4, domain: "page=1..5"}
"""


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """Weeks in which users do ever more on a page: each would choose a c of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits").mkdir()
    for number, week in enumerate(WEEKS):
        user = np.repeat(np.arange(600), (2, 8, 40)[number])
        pq.write_table(pa.table({"user": user, "page": user % 5 + 1}), tmp_path / f"visits/{week}.parquet")
    write_fixed_key(tmp_path / "key")
    limits = ["--limit-epsilon", "40", "--limit-delta", "1e-6", "--per", "year"]
    assert main(["ledger", "create", "shop", *limits, "--ledger", "sqlite:///ledger.db"]) == 0
    (tmp_path / "report.yaml").write_text(LEDGER + REPORT)
    (tmp_path / "free.yaml").write_text(REPORT.replace("reports/", "free/"))
    return tmp_path


def run(week, file="report.yaml"):
    assert main(["run", file, "--period", week]) == 0


def report_of(folder, week):
    return json.loads((folder / week / "pages/report.json").read_text())


def files(folder):
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("file", ["report.yaml", "free.yaml"])
def test_the_first_run_chooses_and_others_take_what_it_chose(shop, file):
    """Whichever week is first. All of them can be compared."""
    place = shop / ("free" if file == "free.yaml" else "reports")
    for week in (WEEKS[1], WEEKS[0], WEEKS[2]):
        run(week, file)
    reports = [report_of(place, week) for week in WEEKS]
    assert len({each["details"]["chosen"]["max_per_item"] for each in reports}) == 1
    taken = [each["details"]["parameters"].get("like") for each in reports]
    assert taken == [reports[1]["release_id"], None, reports[1]["release_id"]]
    assert "choice of the events" in str(reports[1]["details"]["guarantee"])
    assert "choice of the events" not in str(reports[0]["details"]["guarantee"])
    found = headcount.series([str(place / week / "pages") for week in WEEKS])
    assert found.found.tested == 15 and not any("at most" in change.why for change in found.changes)


def test_a_run_that_is_repeated_makes_the_same_bytes_whatever_came_after_it(shop):
    for week in (WEEKS[1], WEEKS[0], WEEKS[2]):
        run(week)
    before = files(shop / "reports")
    for week in WEEKS:
        run(week)
    assert files(shop / "reports") == before
    for week in WEEKS:  # lost outputs, of which the ledger knows how each was begun
        shutil.rmtree(shop / "reports" / week)
        run(week)
    assert files(shop / "reports") == before
    assert len(open_ledger("sqlite:///ledger.db").entries("shop")) == 3


def test_a_week_that_was_begun_before_others_goes_on_as_it_began(shop):
    """Its output is gone, and another week has chosen since: what it has spent is not spent again."""
    run(WEEKS[0])
    first = report_of(shop / "reports", WEEKS[0])
    shutil.rmtree(shop / "reports")
    run(WEEKS[2])
    run(WEEKS[0])
    assert report_of(shop / "reports", WEEKS[0]) == first
    assert "like" not in report_of(shop / "reports", WEEKS[2])["details"]["parameters"]
    assert len(open_ledger("sqlite:///ledger.db").entries("shop")) == 2


@pytest.mark.parametrize(
    "given",
    ["max_per_item: 7", "like: ../other", "command: histogram, item: page, of: users", "method: one-stage, bound: 9"],
)
def test_what_says_c_itself_or_has_none_is_left_as_it_is(shop, given):
    run(WEEKS[0])
    text = (LEDGER + REPORT).replace("reports/", "others/")
    if given.startswith("command"):
        text = text.replace("of: events", "of: users")
    elif given.startswith("like"):
        text = text.replace("of: events", f"of: events, like: reports/{WEEKS[0]}/pages")
    else:
        text = text.replace("of: events", f"of: events, {given}")
    (shop / "others.yaml").write_text(text)
    for week in WEEKS[1:]:
        run(week, "others.yaml")
    found = [report_of(shop / "others", week)["details"]["parameters"] for week in WEEKS[1:]]
    like = report_of(shop / "reports", WEEKS[0])["release_id"] if given.startswith("like") else None
    assert [each.get("like") for each in found] == [like, like]


def test_a_promise_of_many_runs_holds_where_all_but_the_first_take_c(shop):
    """What they cost in all is more than with the draw of c, for budgets that are as large."""
    text = (
        (LEDGER + REPORT)
        .replace("epsilon: 4, ", "")
        .replace("releases:", "promise: {epsilon: 2, delta: 1e-6, runs: 30}\nreleases:")
    )
    (shop / "many.yaml").write_text(text)
    report = read_file("many.yaml")
    own = budgets_of(report, WEEKS[0], dataset_of(report))
    (job,) = jobs(report, WEEKS[0], own)
    first, later = job.guarantee(), job.later().guarantee()
    assert Spent([first, *[later] * 29]).epsilon(1e-6) <= 2 < 2.02 * Spent([first] * 30).epsilon(1e-6)
    assert first != later
