"""`headcount count-release` and `headcount top` from end to end: output, report, --explain, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.columns.reading import reading
from headcount.mechanisms.count_release.release import count_release
from headcount.mechanisms.count_release.top_names import top_items
from headcount.mechanisms.randomness.keys import KeyFile, Release
from headcount.transforms import Budget, Zcdp
from tests.fixed_key import write_fixed_key

SHAPE = ["--user", "who", "--item", "item"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """30,000 events of 3,000 users, on items as text and as numbers, with counts; and a key."""
    directory = tmp_path_factory.mktemp("counts")
    random = np.random.default_rng(3)
    user, item = random.integers(0, 3000, 30_000), random.geometric(0.1, 30_000)
    columns = {"who": [f"u{u}" for u in user], "item": [f"i{i}" for i in item], "number": item}
    pq.write_table(pa.table(columns | {"times": random.integers(1, 5, 30_000)}), directory / "events.parquet")
    write_fixed_key(directory / "key")
    return directory


def job(place, out):
    key = ["--key-file", place / "key", "--release-id", "r1"]
    return ["--input", place / "events.parquet", *key, "--output", out]


def expected(place, plan, label, item="item", count=None):
    table = pq.read_table(place / "events.parquet")
    counts = None if count is None else table[count].combine_chunks()
    batch = contribution_batch(table["who"].combine_chunks(), table[item].combine_chunks(), counts)
    release = Release(KeyFile(place / "key"), "r1").of_rows(reading(user="who", item=[item], count=count))
    return plan.run([batch], release, label).to_pylist()


def rows(directory, name="counts", files=1):
    parts = [pq.read_table(directory / f"{name}-{k:05}-of-{files:05}.parquet") for k in range(files)]
    return [part.to_pylist() for part in parts]


@pytest.mark.slow("cuts")
def test_a_release_from_one_command_is_that_of_the_pure_function(run, place, tmp_path):
    out = tmp_path / "out"
    status, said, err = run("count-release", *SHAPE, "--rho", "2", "--delta", "1e-4", *job(place, out))
    (found,) = rows(out)
    assert status == 0 and len(found) > 10
    assert len(err) == 1 and "promises little: delta = 0.00019999" in err[0]
    assert found == expected(place, count_release(Zcdp(2, 1e-4)), "CountRelease")
    report = json.loads((out / "report.json").read_text())
    rounds = sum(line["rounds"] for line in report["details"]["ledger"])
    assert said.splitlines()[0].startswith(f"the largest counts of users by item: {len(found)} items came out")
    assert said.splitlines()[-3] == report["decision"]
    assert report["decision"].startswith(f"released {len(found)} items in {rounds} rounds, rho 1.")
    assert sum(line["items"] for line in report["details"]["ledger"]) == len(found)
    assert (
        report["details"]["spent"]["rho"]
        <= report["details"]["spent"]["rho_budget"]
        == report["details"]["parameters"]["rho"]
        == 2
    )
    assert report["details"]["guarantee"]["delta"] == Zcdp(2, 1e-4).to_budget(1e-4).delta
    assert "epsilon" not in report["details"]["parameters"]
    again = tmp_path / "again"
    assert run("count-release", *SHAPE, "--rho", "2", "--delta", "1e-4", *job(place, again), "--shards", "9")[0] == 0
    assert json.loads((again / "report.json").read_text()) == report and rows(again) == [found]


def test_events_with_an_epsilon_integers_and_files(run, place, tmp_path):
    out = tmp_path / "out"
    words = [
        "count-release",
        "--user",
        "who",
        "--item",
        "number",
        "--count",
        "times",
        "--epsilon",
        "6",
        "--delta",
        "1e-4",
    ]
    words += ["--max-per-item", "3", "--noise-reduction", "--k-bar", "30", "--relative-error", "0.2", "--strict-target"]
    assert run(*words, "--output-files", "3", *job(place, out))[0] == 0
    plan = count_release(
        Budget(6, 1e-4),
        relative_error=0.2,
        k_bar=30,
        max_per_item=3,
        noise_reduction=True,
        strict_target=True,
        item_type=int,
    )
    wanted = expected(place, plan, "CountRelease", "number", "times")
    assert len(wanted) > 5
    found = sorted((row for part in rows(out, files=3) for row in part), key=lambda row: row["number"])
    assert found == [{"number": row.pop("item"), **row} for row in wanted]
    report = json.loads((out / "report.json").read_text())
    assert (report["details"]["guarantee"]["epsilon"], report["details"]["guarantee"]["delta"]) == (6, 1e-4)
    names = {"epsilon": 6, "max_per_item": 3, "noise_reduction": True, "strict_target": True, "k_bar": 30}
    assert names.items() <= report["details"]["parameters"].items()


def test_the_top_from_one_command_is_that_of_the_pure_function(run, place, tmp_path):
    out = tmp_path / "out"
    words = ["top", *SHAPE, "--k", "5", "--epsilon", "3", "--delta", "1e-4", "--relation", "replace"]
    status, said, err = run(*words, *job(place, out))
    first = "each item with the most users, in order: 5 items came out:\n\n  rank  item\n"
    assert (status, err) == (0, []) and said.startswith(first) and f"\nwrote {out} (release r1)\n" in said
    wanted = expected(place, top_items(Budget(3, 1e-4), 5, relation="replace"), "Top")
    assert rows(out, "top") == [wanted]
    assert [row["rank"] for row in wanted] == [1, 2, 3, 4, 5] and list(wanted[0]) == ["rank", "item"]
    report = json.loads((out / "report.json").read_text())
    assert (
        report["details"]["guarantee"]["epsilon"],
        report["details"]["parameters"]["k"],
        report["details"]["parameters"]["k_bar"],
    ) == (3, 5, 10_000)


def test_a_longer_top_is_named_first(run, place, tmp_path):
    out = tmp_path / "out"
    status, said, err = run("top", *SHAPE, "--k", "12", "--epsilon", "3", "--delta", "1e-4", *job(place, out))
    assert (status, err) == (0, []) and "\nchosen: law" in said
    wanted = expected(place, top_items(Budget(3, 1e-4), 12), "Top")
    assert rows(out, "top") == [wanted] and len(wanted) == 12
    report = json.loads((out / "report.json").read_text())
    assert report["details"]["parameters"]["method"] == "names" and "k_bar" not in report["details"]["parameters"]
    assert report["details"]["chosen"]["strategy"] == "law" and report["users_needed"] > 0


def test_explain_reads_nothing(run):
    status, out, err = run("count-release", "--rho", "1", "--delta", "1e-6", "--explain", "--input", "nowhere.parquet")
    assert (status, err) == (0, [])
    for part in ("1e-06-approximate 1-zCDP", "epsilon = 7.766", "finds 1,000 items", "more than some 505 users"):
        assert part in out
    assert (
        "this budget does not buy 10 items" in run("count-release", "--rho", "1e-7", "--delta", "1e-6", "--explain")[1]
    )
    assert "finds 1,000" not in run("count-release", "--rho", "1", "--delta", "1e-6", "--k-bar", "500", "--explain")[1]
    words = ["top", "--k", "20", "--epsilon", "1", "--delta", "1e-8", "--explain"]
    status, out, err = run(*words)
    assert (status, err) == (0, [])
    for part in ("draws among the named", "an item of about", "ranked rightly"):
        assert part in out
    status, out, err = run(*words, "--method", "draws")
    assert (status, err) == (0, [])
    for part in ("draws 20, candidates 10000", "accounting zCDP", "more than some 350 users", "rank 10,001"):
        assert part in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["count-release", "--delta", "1e-6"], "give one of --epsilon and --rho, got neither"),
        (["count-release", "--rho", "1", "--epsilon", "2", "--delta", "1e-6"], "got --epsilon 2.0 and --rho 1.0"),
        (
            ["count-release", "--rho", "1"],
            "--delta must be positive, as an item that one user alone has cannot be hidden",
        ),
        (["count-release", "--rho", "-1", "--delta", "1e-6"], "rho must be positive, got -1.0"),
        (
            ["count-release", "--rho", "1", "--delta", "1e-6", "--relative-error", "0"],
            "--relative-error must be a number from",
        ),
        (
            ["count-release", "--rho", "1", "--delta", "1e-6", "--k-bar", "0"],
            "--k-bar must be a whole number from 1 to 1000000",
        ),
        (["count-release", "--rho", "1", "--delta", "1e-6", "--bound", "5"], "unknown flag '--bound'"),
        (["top", "--epsilon", "1", "--delta", "1e-6"], "missing --k"),
        (["top", "--k", "3", "--epsilon", "1"], "for instance --delta 1e-8"),
        (
            ["top", "--k", "3", "--item", "a:day", "--item", "b", "--epsilon", "1", "--delta", "1e-6"],
            "give --overall for the 3 combinations with the most users in all, or take headcount histogram with --top 3 --per "
            "a_day for the 3 largest of each a_day",
        ),
        (["top", "--k", "3", "--item", "a", "--overall", "--epsilon", "1", "--delta", "1e-6"], "leave it out"),
        (
            ["top", "--method", "draws", "--k", "30", "--k-bar", "20", "--epsilon", "1", "--delta", "1e-6"],
            "must not exceed --k-bar 20, got 30",
        ),
        (
            ["top", "--k", "30", "--k-bar", "20", "--epsilon", "1", "--delta", "1e-6"],
            "--k-bar 20 is for --method draws, and --k 30 goes by names: leave it out, or give draws",
        ),
        (
            ["top", "--method", "names", "--k", "3", "--k-bar", "20", "--epsilon", "1", "--delta", "1e-6"],
            "--k-bar 20 is for --method draws, and got names: leave it out, or give draws",
        ),
        (
            ["top", "--k", "50", "--epsilon", "0.1", "--delta", "0.1", "--method", "draws"],
            "epsilon = 0.1 is too little for k = 50",
        ),
    ],
)
def test_what_is_refused(run, words, said):
    status, out, err = run(*words, "--explain")
    assert (status, out, len(err)) == (2, "", 1) and said in err[0]
