"""`headcount count` from end to end: output and report, what --explain says, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.debiased import debiased_count
from headcount.mechanisms.randomness.keys import KeyFile, Release
from headcount.pipelines.commands.total import read_items
from headcount.transforms import Budget
from tests.fixed_key import write_fixed_key

SHAPE = ["total", "--user", "who", "--item", "what", "--of", "tea", "--max-per-item", "2", "--epsilon", "1"]


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """5,000 users with a Poisson number of teas, of mean 1, and all of them with a water; as text and as numbers."""
    teas = np.random.default_rng(3).poisson(1, 5000)
    user = np.concatenate([np.repeat(np.arange(5000), teas), np.arange(5000)])
    item = np.array(["tea"] * teas.sum() + ["water"] * 5000)
    table = pa.table({"who": [f"u{u}" for u in user], "what": item, "number": np.where(item == "tea", 3, -7)})
    path = tmp_path_factory.mktemp("events") / "events.parquet"
    pq.write_table(table, path)
    return path


def rows(directory):
    return pq.read_table(directory / "counts-00000-of-00001.parquet").to_pylist()


def test_a_count_from_one_command_is_that_of_the_pure_function(run, events, tmp_path):
    key, out = tmp_path / "key", tmp_path / "out"
    write_fixed_key(key)
    words = ["--input", events, "--key-file", key, "--release-id", "r1", "--output", out]
    status, said, err = run(*SHAPE, *words)
    assert (status, err) == (0, []) and said.startswith(f"wrote {out} (release r1)\n")
    assert said.splitlines()[-1].startswith(
        "count assumes that the number of events of each user on an item is Poisson"
    )
    table = pq.read_table(events)
    batch = contribution_batch(table["who"].combine_chunks(), table["what"].combine_chunks())
    expected = (
        debiased_count(Budget(1), "tea", max_per_item=2).run([batch], Release(KeyFile(key), "r1"), "Total").to_pylist()
    )
    assert rows(out) == expected
    teas = table.num_rows - 5000
    assert expected[0]["count"] == pytest.approx(teas, rel=0.05)
    report = json.loads((out / "report.json").read_text())
    assert (report["details"]["guarantee"]["epsilon"], report["details"]["guarantee"]["delta"]) == (1, 0)
    shares = {step["name"]: step["epsilon"] for step in report["details"]["guarantee"]["mechanisms"]}
    assert shares == {"bounding": 0, "noise": 0.9, "number of users": 0.1, "debiasing": 0}
    assert {"max_per_item": 2, "items": 1, "largest_mean": 4, "noise": "laplace"}.items() <= report["details"][
        "parameters"
    ].items()
    assert "5000" not in (out / "report.json").read_text(), "the number of users is private"


def test_several_integers_replaced_users_and_gaussian_noise(run, events, tmp_path):
    words = [
        "total",
        "--user",
        "who",
        "--item",
        "number",
        "--of",
        "3",
        "--of",
        "-7",
        "--of",
        "12",
        "--max-per-item",
        "2",
    ]
    words += ["--epsilon", "1", "--delta", "1e-6", "--noise", "gaussian", "--relation", "replace", "--users", "5000"]
    assert run(*words, "--input", events, "--output", tmp_path / "out")[0] == 0
    found = rows(tmp_path / "out")
    assert [row["item"] for row in found] == [-7, 3, 12]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert (report["details"]["parameters"]["noise"], report["details"]["parameters"]["users"]) == ("gaussian", 5000)
    assert report["details"]["guarantee"]["delta"] == 1e-6


def test_explain_reads_nothing(run):
    status, out, err = run(*SHAPE, "--explain", "--input", "nowhere.parquet")
    assert (status, err) == (0, [])
    for part in ("epsilon = 0.9", "number of users: epsilon = 0.1", "1.1 at 0.5, 1.36 at 1, 2.46 at 2", "Poisson"):
        assert part in out
    assert "is not estimated" not in out
    more = ["--of", "coffee", "--max-items", "1", "--users", "77", "--largest-mean", "0.1", "--explain"]
    out = run(*SHAPE, *more)[1]
    assert "more than 1 of the items does not count" in out and "public 77" in out and ": 1 at 0.1\n" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--relation", "replace"], "--relation replace needs --users"),
        (["--users", "5", "--users-share", "0.2"], "--users-share 0.2 is of no use with --users"),
        (["--users-share", "2"], "--users-share must be a number between 0 and 1, got 2.0"),
        (["--max-per-item", "0"], "--max-per-item must be a whole number from 1 to 1000000000, got '0'"),
        (["--of", "tea"], "--of 'tea' is given twice"),
        (["--max-item-bytes", "2"], "--of 'tea' is longer than 2 bytes"),
        (["--item-type", "int"], "--of must be a whole number of 64 bits, as the item column holds, got 'tea'"),
        (["--largest-mean", "-1"], "--largest-mean must be a number above 0"),
        (["--noise", "gaussian"], "needs a delta above 0"),
        (["--bound", "5"], "unknown flag '--bound'"),
    ],
)
def test_what_is_refused(run, words, said):
    status, out, err = run(*SHAPE, *words, "--explain")
    assert (status, out, len(err)) == (2, "", 1) and said in err[0]


def test_what_is_missing_is_named(run):
    assert run("total", "--epsilon", "1", "--explain")[2] == ["headcount: missing --of, --max-per-item"]


def test_items_that_are_no_text_are_refused():
    with pytest.raises(ParameterError, match="--of must be text in UTF-8"):
        read_items(["caf\udce9"], str, 4096)
