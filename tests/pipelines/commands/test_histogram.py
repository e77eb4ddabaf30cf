"""`headcount histogram` over a public list whose counts share a draw of the noise: who looks at the numbers is told."""

from __future__ import annotations

import html
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """3,000 users with about 8 of 20 items each, and the list of these."""
    random, directory = np.random.default_rng(3), tmp_path_factory.mktemp("events")
    user, item = random.integers(0, 3000, 30_000), random.integers(0, 20, 30_000)
    table = pa.table({"who": pa.array(user), "item": pa.array([f"i{each}" for each in item])})
    pq.write_table(table, directory / "events.parquet")
    (directory / "list.txt").write_text("".join(f"i{each}\n" for each in range(20)))
    return directory


@pytest.mark.parametrize("how", ["--method one-stage --noise gaussian", "--noise gaussian", ""])
def test_correlated_errors_are_told_in_report_terminal_page_and_before(run, source, tmp_path, how):
    asked = ["--user", "who", "--item", "item", "--of", "users", "--bound", "4", "--domain", source / "list.txt"]
    words = ["histogram", *asked, "--epsilon", "1", "--delta", "1e-6", *how.split()]
    out = tmp_path / "out"
    status, said, err = run(*words, "--input", source / "events.parquet", "--output", out)
    assert (status, err) == (0, [])
    report = json.loads((out / "report.json").read_text())
    assert "all 20 bounded counts share one draw of the noise" in report["correlated"]
    assert report["correlated"] in said and report["correlated"][1:] in html.unescape((out / "report.html").read_text())
    steps = " ".join(report["details"]["guarantee"]["words"])
    assert "shared by all items a draw of scale" in steps and "stddev of the sum of 20 items" in steps
    status, said, err = run(*words, "--explain")
    assert (status, err) == (0, []) and report["correlated"] in said
    assert run(*words, "--relation", "replace", "--explain")[1].count("correlated") == 0
