"""`headcount plume` from end to end: output and report, what --explain says, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.count_release.papers.plume import plume
from headcount.mechanisms.randomness.keys import KeyFile, Release
from tests.fixed_key import write_fixed_key

SHAPE = ["plume", "--user", "user", "--item", "item"]


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """3,000 users with some of 300 items."""
    random = np.random.default_rng(3)
    users, items = random.integers(0, 3000, 30_000), (random.pareto(1, 30_000) * 3).astype(int) % 300
    path = tmp_path_factory.mktemp("events") / "events.parquet"
    pq.write_table(pa.table({"user": [f"u{u}" for u in users], "item": [f"i{i}" for i in items]}), path)
    return path


@pytest.mark.slow("cuts")
@pytest.mark.parametrize(
    ("flags", "budget", "given"),
    [
        (["--rho", "1", "--delta", "1e-6", "--max-items", "5"], Zcdp(1, 1e-6), {"max_items": 5}),
        (["--epsilon", "5", "--delta", "1e-4", "--selection", "sips"], Budget(5, 1e-4), {"selection": "sips"}),
    ],
)
def test_one_command_is_the_pure_function(run, events, tmp_path, flags, budget, given):
    key, out = tmp_path / "key", tmp_path / "out"
    write_fixed_key(key)
    words = ["--input", events, "--key-file", key, "--release-id", "r1", "--output", out]
    status, said, _ = run(*SHAPE, *flags, *words)
    assert status == 0
    table, release = pq.read_table(events), plume(budget, **given)
    batch = contribution_batch(table["user"].combine_chunks(), table["item"].combine_chunks())
    expected = release.run([batch], Release(KeyFile(key), "r1"), "Plume").to_pylist()
    assert pq.read_table(out / "counts-00000-of-00001.parquet").to_pylist() == expected
    assert len(expected) > 10 and all(row["bounded_count"] == round(row["bounded_count"]) for row in expected)
    report = json.loads((out / "report.json").read_text())
    assert report["details"]["guarantee"]["epsilon"] == release.promise.epsilon
    assert report["details"]["parameters"]["rho"] == release.zcdp.rho
    if release.choice is not None:
        chosen = report["details"]["chosen"]["max_items"]
        assert f"chosen: {chosen} items per user" in said
        assert f"{chosen} items" in json.dumps(report["details"]["guarantee"]["words"])


def test_explain_tells_the_promise_and_what_typical_data_gives(run):
    status, said, _ = run("plume", "--rho", "0.5", "--delta", "1e-6", "--explain")
    assert status == 0
    for words in (
        "1e-06-approximate 0.5-zCDP",
        "- chosen: max items ",
        "- noise: a standard deviation of about ",
        "of the users of items shown",
    ):
        assert words in said
    _, said, _ = run("plume", "--epsilon", "1", "--delta", "1e-6", "--max-items", "9", "--explain")
    assert "(epsilon = 1, delta = 1e-06)" in said and "9 items, each counting one" in said


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "give one of --epsilon and --rho, got neither"),
        (["--rho", "1", "--epsilon", "1"], "give one of --epsilon and --rho, got --epsilon 1.0 and --rho 1.0"),
        (["--rho", "1"], "--delta must be positive"),
        (["--rho", "1", "--delta", "1e-6", "--max-items", "0"], "--max-items must be"),
        (["--rho", "1", "--delta", "1e-6", "--alpha", "2"], "--alpha must be a number above 0 and below 1, got 2.0"),
    ],
)
def test_what_is_refused(run, flags, words):
    status, _, said = run("plume", *flags, "--explain")
    assert status == 2 and words in said[0]
