"""A weekly report, task by task: each is one command, and one call in Python that gives the same rows.

Read it as a tutorial. The log has one row per view: who, from which country, which page, when. Every number of the report is
checked against the log itself, within the interval that stands beside it.
"""

from __future__ import annotations

import datetime
import shlex

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headcount
from headcount.pipelines import parser
from headcount.pipelines.command import load
from headcount.pipelines.flags import options
from headcount.pipelines.flags.protection import protection
from headcount.pipelines.ledger import spending
from headcount.pipelines.ledger.records import make_dataset
from headcount.pipelines.main import main
from headcount.pipelines.report_file.file import read_report
from headcount.pipelines.report_file.jobs import jobs
from tests.docs.pages import TOP, blocks, commands
from tests.fixed_key import write_fixed_key

USERS, DAYS = 4000, 7
MONDAY = datetime.datetime(2026, 11, 2)


@pytest.fixture(scope="module")
def week(tmp_path_factory):
    """The log of one week, as a file; and the key of this report, which makes it the same each time."""
    folder = tmp_path_factory.mktemp("week")
    random = np.random.default_rng(7)
    views = random.integers(5, 40, USERS)
    user = np.repeat(np.arange(USERS), views)
    rows = len(user)
    seconds = random.integers(0, DAYS * 86_400, rows)
    log = pa.table(
        {
            "user_id": pa.array([f"u{k}" for k in user]),
            "country": pa.array(["de", "at", "ch"]).take(pa.array(random.choice(3, rows, p=[0.6, 0.25, 0.15]))),
            "page": pa.array(["/", "/prices", "/about", "/jobs"]).take(
                pa.array(random.choice(4, rows, p=[0.5, 0.3, 0.15, 0.05]))
            ),
            "viewed_at": pa.array(np.datetime64(MONDAY, "us") + seconds.astype("timedelta64[s]")),
        }
    )
    pq.write_table(log, folder / "views.parquet")
    write_fixed_key(folder / "key")
    return folder


@pytest.fixture
def log(week):
    """The log as a frame, for the calls; DuckDB sees it as `log`, for the truth."""
    return pq.read_table(week / "views.parquet")


@pytest.fixture
def run(week, tmp_path, capsys):
    """Runs a command on the log, and gives the rows that it wrote."""

    def one(command: str) -> pa.Table:
        flags = f" --input {week}/views.parquet --user user_id --output {tmp_path}/out"
        release = f" --key-file {week}/key --release-id {shlex.split(command)[1]}-week-45"
        assert main(shlex.split(command)[1:] + shlex.split(flags + release)) == 0
        capsys.readouterr()
        (file,) = (tmp_path / "out").glob("*.parquet")
        return pq.read_table(file)

    return one


def key(week, command: str) -> dict[str, object]:
    """What a call is told so that it is the same release as the command's."""
    return {"key_file": week / "key", "release_id": f"{command}-week-45"}


def near(rows: pa.Table, keys: list[str], truth: list[tuple]) -> None:
    """Every count is within three times its interval at 95 % of the truth, which noise misses with a chance of 1e-8."""
    true = {row[:-1]: row[-1] for row in truth}
    for row in rows.to_pylist():
        reach = 3 * (row["high"] - row["low"]) / 2 + 1
        assert abs(row["count"] - true[tuple(row[key] for key in keys)]) <= reach


def test_users_per_page(run, week, log):
    rows = run("headcount histogram --item page --epsilon 1 --delta 1e-8")
    call = headcount.histogram(log, user="user_id", item="page", epsilon=1, delta=1e-8, **key(week, "histogram"))
    assert call.table.equals(rows)
    assert rows["page"].to_pylist() == ["/", "/about", "/jobs", "/prices"]
    near(rows, ["page"], duckdb.sql("select page, count(distinct user_id) from log group by all").fetchall())


def test_events_per_country_page_and_day(run, week, log):
    rows = run(
        "headcount histogram --of events --item country --item page --item viewed_at:day --epsilon 1 --delta 1e-8"
    )
    call = headcount.histogram(
        log,
        user="user_id",
        item=["country", "page", "viewed_at:day"],
        of="events",
        epsilon=1,
        delta=1e-8,
        **key(week, "histogram"),
    )
    assert call.table.equals(rows)
    assert rows.schema.names[:3] == ["country", "page", "viewed_at_day"] and rows.schema.types[2] == pa.date32()
    assert rows.num_rows > 60  # of 84: what few users did on a day stays hidden
    assert rows.to_pylist() == sorted(rows.to_pylist(), key=lambda row: tuple(row.values())[:3])
    counted = "select country, page, viewed_at::date, count(*) from log group by all"
    near(rows, ["country", "page", "viewed_at_day"], duckdb.sql(counted).fetchall())


def test_daily_users(run, week, log):
    """What a user did on one day is protected here, as is usual for daily numbers: the report says that it is weaker."""
    rows = run(
        "headcount histogram --item viewed_at:day --of users --epsilon 1 --delta 1e-8 "
        "--protect user-day --time viewed_at --windows 7"
    )
    call = headcount.histogram(
        log,
        user="user_id",
        item="viewed_at:day",
        of="users",
        epsilon=1,
        delta=1e-8,
        protect="user-day",
        time="viewed_at",
        windows=7,
        **key(week, "histogram"),
    )
    assert call.table.equals(rows) and rows.num_rows == DAYS
    near(
        rows,
        ["viewed_at_day"],
        duckdb.sql("select viewed_at::date, count(distinct user_id) from log group by all").fetchall(),
    )
    assert "User-day-level (epsilon = 1, delta = 1e-08)" in call.report["promise"]
    assert "a user who is there in 7 days is promised epsilon = 7" in call.report["protected"]


def test_users_in_total(run, week, log):
    rows = run("headcount total --of users --epsilon 1")
    call = headcount.total(log, user="user_id", of="users", epsilon=1, **key(week, "total"))
    assert call.table.equals(rows)
    (row,) = rows.to_pylist()
    assert abs(row["bounded_count"] - USERS) < 30  # noise of scale 1: beyond 30 with a chance below 1e-12


def test_top_pages(run, week, log):
    rows = run("headcount top --item page --k 2 --epsilon 1 --delta 1e-8")
    call = headcount.top(log, user="user_id", item="page", k=2, epsilon=1, delta=1e-8, **key(week, "top"))
    assert call.table.equals(rows)
    assert rows["page"].to_pylist() == ["/", "/prices"] and rows["rank"].to_pylist() == [1, 2]


def test_the_tutorial_keeps_its_promise_of_a_year():
    """All of its lines that publish a week go on one account of whole users, and 52 weeks of them are within its limit."""
    lines = [line for block in blocks(TOP / "docs/tutorials/weekly-report.md") for line in commands(block.text)]
    (limit,) = [line for line in lines if "ledger create" in line]
    assert "create shop --limit-epsilon 8 --limit-delta 1e-6 --per year " in limit
    promises = []
    for line in lines:
        words = shlex.split(line, comments=True)
        if "--output" in words and "--input" in words and "2026-W46" in words:
            command = load(words[1])
            args, _ = parser.parse(command, words[2:])
            assert args.dataset == "shop"
            made = command.make_mechanism(args, options.item_type(args))
            promises.append(protection(args).of(made.guarantee()))
    assert len(promises) == 3 and {promise.unit for promise in promises} == {"user"}
    year = spending.total(promises * 52, make_dataset("shop", "user", "add-remove", 8, 1e-6, "year"))
    assert year.epsilon == pytest.approx(6.05, abs=0.01)


def test_the_one_file_of_the_tutorial_says_what_its_lines_say():
    """At most 25 lines, and the command lines that it stands for are those of the page, but for budget, period and place."""
    found = blocks(TOP / "docs/tutorials/weekly-report.md")
    (text,) = [block.text for block in found if block.kind == "yaml"]
    assert len(text.splitlines()) <= 25
    lines = [shlex.split(line) for block in found if block.kind == "shell" for line in commands(block.text)]
    own = {"epsilon", "delta", "period", "output"}
    single = [
        {name: value for name, value in vars(parser.parse(load(words[1]), words[2:])[0]).items() if name not in own}
        for words in lines
        if "--output" in words and "2026-W46" in words
    ]
    of_file = [job.args() for job in jobs(read_report("report.yaml", text), "2026-W47")]
    assert [{name: value for name, value in vars(args).items() if name not in own} for args in of_file] == single
