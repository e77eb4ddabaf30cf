"""Protection by windows on the command line: what counts, what is promised, and that it is said."""

import datetime
import json

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.errors import HeadcountError
from headcount.pipelines import parser
from headcount.pipelines.command import load
from tests.fixed_key import write_fixed_key

USERS, DAYS, EACH = 60, 4, 5
EXACT = ["--epsilon", "1000000", "--delta", "1e-9"]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Every user views one page five times on each of four days."""
    folder = tmp_path_factory.mktemp("windows")
    rows = [(f"u{user}", day) for user in range(USERS) for day in range(DAYS) for _ in range(EACH)]
    start = datetime.datetime(2026, 11, 1, 12)
    at = [start + datetime.timedelta(days=day) for _, day in rows]
    table = pa.table({"who": [user for user, _ in rows], "page": ["/"] * len(rows), "at": at, "age": [30] * len(rows)})
    pq.write_table(table, folder / "log.parquet")
    texts = table.set_column(2, "at", pa.array([each.isoformat() for each in at]))
    pyarrow.csv.write_csv(texts, folder / "log.csv")
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts.to_pylist()))
    write_fixed_key(folder / "key")
    return folder


def counted(run, log, out, *flags, file="log.parquet", promise=EXACT):
    """The one row that a command gives, its report, and what it said."""
    command, *more = flags
    status, said, _ = run(
        command, "--input", log / file, "--user", "who", *promise, *more, "--key-file", log / "key", "--output", out
    )
    assert status == 0
    (rows,) = (pq.read_table(path).to_pylist() for path in out.glob("*.parquet"))
    return rows, json.loads((out / "report.json").read_text()), said


BOUND = ["histogram", "--item", "page", "--of", "events", "--method", "one-stage", "--bound", "2", "--noise", "laplace"]
BY_DAY = ["--protect", "user-day", "--time", "at"]


@pytest.mark.parametrize("file", ["log.parquet", "log.csv", "log.jsonl"])
def test_a_bound_is_one_of_each_window(run, log, tmp_path, file):
    (row,), report, said = counted(run, log, tmp_path / "days", *BOUND, *BY_DAY, "--windows", "3", file=file)
    assert row["bounded_count"] == 2 * USERS * DAYS
    assert report["promise"].startswith("User-day-level") and report["details"]["guarantee"]["unit"] == "user-day"
    told = "a user who is there in 3 days is promised nothing in total"  # at this epsilon
    assert told in report["protected"] and report["protected"] in said
    assert report["details"]["parameters"]["protect"] == "user-day" and report["details"]["parameters"]["time"] == "at"


def test_by_default_a_user_is_protected_with_all_that_it_did(run, log, tmp_path):
    (row,), report, _ = counted(run, log, tmp_path / "all", *BOUND)
    assert row["bounded_count"] == 2 * USERS and report["promise"].startswith("User-level")
    assert "protected" not in report and "protect" not in report["details"]["parameters"]


def test_a_window_of_two_weeks_and_a_zone(run, log, tmp_path):
    (row,), _, _ = counted(run, log, tmp_path / "weeks", *BOUND, "--protect", "user-week", "--time", "at")
    assert row["bounded_count"] == 2 * USERS * 2  # the first day is a Sunday


def test_users_in_total_and_quantiles_take_windows_too(run, log, tmp_path):
    rows, report, said = counted(
        run, log, tmp_path / "total", "total", "--of", "users", *BY_DAY, promise=["--epsilon", "50"]
    )
    assert rows[0]["bounded_count"] == USERS * DAYS and "once for each day" in report["protected"]
    assert (
        "how many users there are: 1 total came out, with the range of the noise:" in said and "far above" not in said
    )
    values = ["quantiles", "--value", "age", "--lo", "0", "--hi", "100", "--quantile", "0.5", *BY_DAY]
    _, report, _ = counted(run, log, tmp_path / "ages", *values, promise=["--epsilon", "2", "--delta", "1e-6"])
    assert report["promise"].startswith("User-day-level")


def explained(*flags: str) -> str:
    command = load("histogram")
    args, _ = parser.parse(command, ["--item", "page", "--epsilon", "1", "--delta", "1e-8", *flags])
    return command.explained(args)


def test_explain_says_who_is_protected_and_what_several_windows_are_worth():
    plain, daily = explained(), explained(*BY_DAY, "--windows", "7")
    assert plain.startswith("User-level (epsilon = 1") and "protected" not in plain
    assert daily.startswith(
        "User-day-level (epsilon = 1, delta = 1e-08) differential privacy under adding or removing one user's"
    )
    assert "weaker" in daily and "in 7 days is promised epsilon = 7 and delta = 6.38e-06 in total" in daily


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--protect", "user-day"], "time must name the column"),
        (["--time", "at"], "for a protect"),
        (["--protect", "day", "--time", "at"], "user-day"),
        (["--protect", "user-day", "--time", "at", "--windows", "0"], "windows"),
    ],
)
def test_what_does_not_go_together_is_refused(flags, told, capsys):
    with pytest.raises((HeadcountError, SystemExit)) as caught:
        explained(*flags)
    assert told in str(caught.value) + capsys.readouterr().err
