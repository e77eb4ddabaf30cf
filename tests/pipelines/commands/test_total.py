"""`headcount total` from end to end: output and report, what --explain says, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.columns.reading import reading
from headcount.mechanisms.histogram.papers.debiased import debiased_count
from headcount.mechanisms.histogram.total import total
from headcount.mechanisms.randomness.keys import KeyFile, Release
from headcount.transforms import Budget
from tests.fixed_key import write_fixed_key

DEBIASED = ["total", "--method", "debiased", "--user", "who", "--item", "item", "--max-per-item", "2", "--epsilon", "1"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """5,000 users with a Poisson number of teas, of mean 1, and all of them with a water; as text and as numbers. A key, and
    files of items."""
    teas = np.random.default_rng(3).poisson(1, 5000)
    user = np.concatenate([np.repeat(np.arange(5000), teas), np.arange(5000)])
    item = np.array(["tea"] * teas.sum() + ["water"] * 5000)
    table = pa.table(
        {"who": user, "item": item, "number": np.where(item == "tea", 3, -7), "times": np.full(len(user), 2)}
    )
    directory = tmp_path_factory.mktemp("events")
    pq.write_table(table, directory / "events.parquet")
    pa.csv.write_csv(table, directory / "events.csv")
    (directory / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    for name, items in (("tea", "tea"), ("both", "tea\ncoffee"), ("numbers", "3\n-7\n12")):
        (directory / name).write_text(items)
    write_fixed_key(directory / "key")
    return directory


def job(place, out, events="events.parquet"):
    return ["--input", place / events, "--key-file", place / "key", "--release-id", "r1", "--output", out]


def contributions(place, count=None):
    table = pq.read_table(place / "events.parquet")
    columns = [table[name].combine_chunks() for name in ("who", "item", *([count] if count else []))]
    return contribution_batch(*columns)


def rows(directory, name="totals"):
    return pq.read_table(directory / f"{name}-00000-of-00001.parquet").to_pylist()


def report_of(directory):
    return json.loads((directory / "report.json").read_text())["details"]


def test_users_and_events_from_one_command_are_those_of_the_pure_function(run, place, tmp_path):
    """No column of items is needed. The number of events is that of the counts."""
    out = tmp_path / "out"
    words = ["total", "--user", "who", "--count", "times", "--epsilon", "1", "--output-files", "2"]
    status, said, err = run(*words, *job(place, out))
    release = Release(KeyFile(place / "key"), "r1").of_rows(reading(user="who", count="times"))
    expected = total(Budget(1)).run([contributions(place, "times")], release, "Total")
    assert (status, err) == (0, []) and "chosen: a bound of" in said and "those beyond are missing" in said
    found = [pq.read_table(out / f"totals-0000{k}-of-00002.parquet").to_pylist() for k in (0, 1)]
    assert found == [expected.to_pylist(), []]
    users, events = expected.to_pylist()
    assert abs(users["bounded_count"] - 5000) < 140 and users["low"] < 5000 < users["high"]
    true = 2 * pq.read_table(place / "events.parquet").num_rows
    assert abs(events["bounded_count"] - true) < 0.05 * true and events["bound"] == report_of(out)["chosen"]["bound"]
    report = report_of(out)
    assert (report["guarantee"]["epsilon"], report["guarantee"]["delta"]) == (1, 0)
    shares = {step["name"]: step["epsilon"] for step in report["guarantee"]["mechanisms"]}
    assert {name: share for name, share in shares.items() if share} == pytest.approx(
        {"users: noise": 0.1, "events: choice of the bound": 0.18, "events: noise": 0.72}
    )
    assert report["parameters"].items() >= {"of": "users and events", "bound": "auto", "method": "bounded"}.items()
    assert "item" not in report["parameters"] and "max_item_bytes" not in report["parameters"]


@pytest.mark.parametrize("events", ["events.csv", "events.jsonl"])
def test_every_format_gives_the_number_of_users(run, place, tmp_path, events):
    """5000 with noise of scale 1: 20 off has a chance of 1e-8."""
    words = ["total", "--user", "who", "--of", "users", "--epsilon", "1"]
    assert run(*words, *job(place, tmp_path / "out", events))[0] == 0
    (row,) = rows(tmp_path / "out")
    assert (row["of"], row["bound"]) == ("users", 1) and abs(row["bounded_count"] - 5000) < 20


def test_users_and_events_of_given_items(run, place, tmp_path):
    """Of tea alone: who drinks none does not count. Noise of scale 10 at most."""
    words = ["total", "--user", "who", "--item", "item", "--domain", place / "tea", "--bound", "20", "--epsilon", "2"]
    assert run(*words, *job(place, tmp_path / "out"))[0] == 0
    table = pq.read_table(place / "events.parquet")
    tea = table.filter(pa.compute.equal(table["item"], "tea"))
    users, events = rows(tmp_path / "out")
    assert abs(users["bounded_count"] - len(tea["who"].unique())) < 100
    assert abs(events["bounded_count"] - tea.num_rows) < 250
    assert report_of(tmp_path / "out")["parameters"].items() >= {"items": 1, "bound": 20, "item": "item"}.items()


def test_a_null_user_is_refused_with_its_row_or_dropped(run, place, tmp_path):
    pq.write_table(pa.table({"who": ["a", None], "times": [1, 1]}), tmp_path / "events.parquet")
    words = ["total", "--user", "who", "--of", "users", "--epsilon", "1", "--output", tmp_path / "out"]
    status, _, err = run(*words, "--input", tmp_path / "events.parquet")
    assert status == 2 and "column 'who', row 2: is null" in err[-1]
    assert run(*words, "--input", tmp_path / "events.parquet", "--drop-null")[0] == 0


def test_a_debiased_count_from_one_command_is_that_of_the_pure_function(run, place, tmp_path):
    out = tmp_path / "out"
    status, said, err = run(*DEBIASED, "--domain", place / "tea", *job(place, out))
    assert (status, err) == (0, [])
    release = Release(KeyFile(place / "key"), "r1").of_rows(reading(user="who"))
    expected = (
        debiased_count(Budget(1), "tea", max_per_item=2).run([contributions(place)], release, "Total").to_pylist()
    )
    assert rows(out, "counts") == expected
    teas = pq.read_table(place / "events.parquet").num_rows - 5000
    assert expected[0]["count"] == pytest.approx(teas, rel=0.05)
    report = report_of(out)
    assert "Poisson with similar means" in json.loads((out / "report.json").read_text())["assumption"]
    assert (report["guarantee"]["epsilon"], report["guarantee"]["delta"]) == (1, 0)
    shares = {step["name"]: step["epsilon"] for step in report["guarantee"]["mechanisms"]}
    assert shares == {"bounding": 0, "noise": 0.9, "number of users": 0.1, "debiasing": 0}
    wanted = {"max_per_item": 2, "items": 1, "largest_mean": 4, "noise": "laplace", "method": "debiased"}
    assert wanted.items() <= report["parameters"].items()
    assert "5000" not in (out / "report.json").read_text(), "the number of users is private"


def test_several_integers_replaced_users_and_gaussian_noise(run, place, tmp_path):
    words = ["total", "--method", "debiased", "--user", "who", "--item", "number", "--domain", place / "numbers"]
    words += [
        "--max-per-item",
        "2",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--noise",
        "gaussian",
        "--relation",
        "replace",
    ]
    assert run(*words, "--users", "5000", *job(place, tmp_path / "out"))[0] == 0
    assert [row["number"] for row in rows(tmp_path / "out", "counts")] == [-7, 3, 12]
    report = report_of(tmp_path / "out")
    assert (report["parameters"]["noise"], report["parameters"]["users"]) == ("gaussian", 5000)
    assert report["guarantee"]["delta"] == 1e-6


def test_explain_reads_nothing(run, place):
    status, out, err = run("total", "--epsilon", "1", "--explain", "--input", "nowhere.parquet")
    assert (status, err) == (0, [])
    for part in ("users: noise of standard deviation 14.14", "1.964 times the bound that is chosen", "97.5 %"):
        assert part in out
    assert "- chosen: bound " in out and "of all events" in out
    out = run("total", "--epsilon", "1", "--of", "events", "--bound", "5", "--explain")[1]
    assert "events: noise of standard deviation 7.07" in out
    out = run(*DEBIASED, "--domain", place / "tea", "--explain")[1]
    for part in ("epsilon = 0.9", "number of users: epsilon = 0.1", "1.1 at 0.5, 1.36 at 1, 2.46 at 2", "Poisson"):
        assert part in out
    assert "is not estimated" not in out
    more = ["--domain", place / "both", "--max-items", "1", "--users", "77", "--largest-mean", "0.1", "--explain"]
    out = run(*DEBIASED, *more)[1]
    assert "more than 1 of the items does not count" in out and "public 77" in out and ": 1 at 0.1\n" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["total"], "missing --epsilon"),
        (["total", "--epsilon", "1", "--of", "rows"], "--of: invalid choice: 'rows'"),
        (["total", "--epsilon", "1", "--of", "users", "--bound", "5"], "--bound 5 is for events, got --of users"),
        (["total", "--epsilon", "1", "--item", "item"], "--item item is of no use without --domain"),
        (["total", "--epsilon", "1", "--max-per-item", "2"], "--max-per-item 2 is of no use to --method bounded"),
        (["total", "--epsilon", "1", "--bound", "0"], "--bound must be a whole number from 1 to 1000000000, or auto"),
        (["total", "--epsilon", "1", "--method", "debiased"], "missing --domain, --max-per-item"),
        ([*DEBIASED, "--of", "users"], "--of users is of no use to --method debiased"),
        ([*DEBIASED, "--bound", "5"], "--bound 5 is of no use to --method debiased"),
        ([*DEBIASED, "--domain", "tea", "--relation", "replace"], "--relation replace needs --users"),
        ([*DEBIASED, "--domain", "tea", "--users", "5", "--users-share", "0.2"], "--users-share 0.2 is of no use with"),
        (
            [*DEBIASED, "--domain", "tea", "--users-share", "2"],
            "--users-share must be a number between 0 and 1, got 2.0",
        ),
        ([*DEBIASED, "--domain", "tea", "--largest-mean", "-1"], "--largest-mean must be a number above 0"),
        ([*DEBIASED, "--domain", "tea", "--noise", "gaussian"], "needs a delta above 0"),
    ],
)
def test_what_is_refused(run, place, monkeypatch, words, said):
    monkeypatch.chdir(place)
    status, out, err = run(*words, "--explain")
    assert (status, out, len(err)) == (2, "", 1) and said in err[0]
