"""`headcount shape` from end to end: output, report and plot, what --explain says, and what is refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.columns.reading import reading
from headcount.mechanisms.randomness.keys import KeyFile, Release
from headcount.mechanisms.shape.anonymized import noise_parameter
from headcount.mechanisms.shape.auto import shape_histogram
from headcount.mechanisms.shape.distinct import distinct_items
from headcount.mechanisms.shape.estimators import CoverageQuestion, DistinctQuestion, EntropyQuestion
from headcount.mechanisms.shape.isotonic import cumulative_runs
from headcount.mechanisms.shape.properties import ShapeProperties
from headcount.mechanisms.shape.tallies import make_tally
from headcount.mechanisms.shape.tally_noise import noisy_tally
from headcount.pipelines.commands.shape import release
from headcount.transforms import Budget
from tests.fixed_key import write_fixed_key

SHAPE = ["shape", "--user", "who", "--item", "what"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """20,000 events of 5,000 users, and a key."""
    directory = tmp_path_factory.mktemp("shape")
    random = np.random.default_rng(3)
    user, item = random.integers(0, 5000, 20_000), random.zipf(1.5, 20_000) % 3000
    columns = {"who": [f"u{u}" for u in user], "what": [f"i{i}" for i in item], "number": item}
    pq.write_table(pa.table(columns), directory / "events.parquet")
    write_fixed_key(directory / "key")
    return directory


def job(place, out):
    key = ["--key-file", place / "key", "--release-id", "r1"]
    return ["--input", place / "events.parquet", *key, "--output", out]


def expected(place, plan):
    table = pq.read_table(place / "events.parquet")
    batch = contribution_batch(table["who"].combine_chunks(), table["what"].combine_chunks())
    return plan.run([batch], Release(KeyFile(place / "key"), "r1").of_rows(reading(user="who", item=["what"])), "Shape")


def test_a_shape_from_one_command_is_that_of_the_pure_function(run, place, tmp_path):
    out = tmp_path / "out"
    status, said, err = run(*SHAPE, "--epsilon", "1", "--domain-size", "3000", *job(place, out))
    found = pq.read_table(out / "shape-00000-of-00001.parquet")
    plan = shape_histogram(Budget(1), domain_size=3000)
    rows = expected(place, plan)
    assert (status, err) == (0, []) and found.column_names == ["count", "items", "error"]
    assert found.to_pylist() == rows.to_pylist() and len(found) > 10
    report = json.loads((out / "report.json").read_text())
    questions = (EntropyQuestion(accuracy=0.5), DistinctQuestion(), CoverageQuestion())
    answers = ShapeProperties(plan, questions).answers(rows)
    assert {name: report["details"][name] for name in answers.report_fields()} == answers.report_fields()
    assert [row["property"] for row in report["details"]["properties"]] == [
        "entropy",
        "distinct items",
        "support coverage",
    ]
    assert (
        report["details"]["guarantee"]["epsilon"]
        == 1
        == sum(step["epsilon"] for step in report["details"]["guarantee"]["mechanisms"])
    )
    assert {"domain_size": 3000, "mode": "central", "max_items": 1}.items() <= report["details"]["parameters"].items()
    lines = said.splitlines()
    assert lines[0] == report["decision"] == answers.description()
    assert said.split("\n\n")[1] == release.plot(report["details"]) and lines[2].split() == ["users", "items", "error"]
    assert lines[-3:-1] == [report["note"], f"wrote {out} (release r1)"]
    again = tmp_path / "again"
    words = ["--epsilon", "1", "--domain-size", "3000", "--shards", "9", "--output-files", "2"]
    assert run(*SHAPE, *words, *job(place, again))[0] == 0
    parts = [pq.read_table(again / f"shape-0000{k}-of-00002.parquet") for k in range(2)]
    assert parts[0].equals(found) and len(parts[1]) == 0 and parts[1].schema == found.schema


def test_buckets_modes_and_formats(run, place, tmp_path):
    out = tmp_path / "out"
    words = ["--epsilon", "2", "--buckets", "40000", "--mode", "l2", "--max-items", "2", "--coverage", "15000"]
    words += ["--relation", "replace", "--format", "csv"]
    status, said, err = run(*SHAPE, *words, *job(place, out))
    assert (status, err) == (0, [])
    plan = shape_histogram(
        Budget(2), domain_size=None, buckets=40_000, mode="l2", max_items=2, relation=Relation.REPLACE
    )
    rows = expected(place, plan)
    header, *lines = (out / "shape-00000-of-00001.csv").read_text().splitlines()
    assert header == "count,items,error"
    wanted = [(row["count"], row["items"]) for row in rows.to_pylist()]
    assert [tuple(map(int, line.split(",")[:2])) for line in lines] == wanted
    report = json.loads((out / "report.json").read_text())
    assert report["details"]["properties"][2]["samples"] == report["details"]["parameters"]["coverage"] == 15_000
    assert "; among 15,000 samples" in said.splitlines()[0]
    assert (
        said.splitlines()[-3] == report["note"]
        and "for each of at most 2 of its items, chosen at random" in report["note"]
    )
    assert (
        report["details"]["guarantee"]["epsilon"]
        == 2
        == sum(s["epsilon"] for s in report["details"]["guarantee"]["mechanisms"])
    )


@pytest.mark.parametrize("bound", [None, 40])
def test_distinct_items_from_one_command_are_those_of_the_pure_function(run, place, tmp_path, bound):
    """Users have four of the items each; none has 40. The limits miss with probability 0.05 at most, and this key's do not."""
    out = tmp_path / "out"
    words = ["--epsilon", "1", "--property", "distinct-items", *([] if bound is None else ["--max-items", bound])]
    status, said, err = run(*SHAPE, *words, *job(place, out))
    found = pq.read_table(out / "property-00000-of-00001.parquet")
    assert (status, err) == (0, []) and found.to_pylist() == expected(
        place, distinct_items(Budget(1), max_items=bound)
    ).to_pylist()
    (row,) = found.to_pylist()
    distinct = len(set(pq.read_table(place / "events.parquet")["what"].to_pylist()))
    assert row["low"] <= distinct and (row["high"] is None if bound is None else distinct <= row["high"])
    report = json.loads((out / "report.json").read_text())
    assert report["details"]["distinct_items"] == row and report["details"]["parameters"].get("max_items") == bound
    limits = f"at least {row['low']:,}" if bound is None else f"{row['low']:,} to {row['high']:,}"
    assert said.splitlines()[0] == f"distinct items: about {row['count']:,}, {limits} (95 %)"


def test_the_plot_has_a_bar_for_every_bin():
    bins = [{"from": 1, "to": 1, "items": 1000, "error": 4.2}, {"from": 6, "to": 10, "items": 1, "error": 12.0}]
    header, first, second, legend = release.plot({"shape": bins}).splitlines()
    assert first.split() == ["1", "1,000", "4", "#" * 40] and second.split() == ["6", "-", "10", "1", "12", "####"]
    assert len(release.plot({"shape": []}).splitlines()) == 2


def test_explain_reads_nothing(run):
    status, out, err = run(
        "shape", "--epsilon", "1", "--domain-size", "1000", "--explain", "--input", "nowhere.parquet"
    )
    assert (status, err) == (0, [])
    for part in ("cells 1000, mode central", "entropy from the shape", "noise of standard deviation 1.357"):
        assert part in out
    out = run("shape", "--epsilon", "1", "--buckets", "1000000", "--explain")[1]
    assert "buckets 1000000" in out and "known to within some 1,057" in out


def test_the_error_of_the_number_of_items_that_explain_states():
    """The estimated variance of the number of cells with one or more, of a million empty ones: it is known to a hundredth."""
    plan = shape_histogram(Budget(1), domain_size=10**6, mode="l1")
    p, empty = noise_parameter(plan.plan), make_tally(np.zeros(10**6, dtype=np.int64))
    runs = cumulative_runs(noisy_tally(empty, plan.plan.scale, bytes(32)), p)
    assert math.sqrt(runs.variance[0]) == pytest.approx(release._distinct_stddev(p, 10**6), rel=0.01)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "missing --epsilon"),
        (
            ["--epsilon", "1"],
            "give --domain-size or --buckets, a public number: how many items the data has is private",
        ),
        (
            ["--epsilon", "1", "--domain-size", "auto"],
            "--domain-size must be a whole number from 1 to 10^18, got 'auto'",
        ),
        (["--epsilon", "1", "--domain-size", "9", "--buckets", "8"], "got --domain-size 9 and --buckets 8"),
        (["--epsilon", "1", "--buckets", "8", "--mode", "central"], "--mode central needs no --buckets, got 8"),
        (["--epsilon", "1", "--domain-size", "1000000000", "--mode", "central"], "got a domain_size of 1000000000"),
        (["--epsilon", "1", "--domain-size", "9", "--coverage", "0"], "--coverage must be a whole number"),
        (["--epsilon", "0", "--domain-size", "9"], "epsilon must be"),
        (
            ["--epsilon", "1", "--property", "distinct-items", "--samples", "9"],
            "--samples 9 says nothing for --property",
        ),
        (["--epsilon", "1", "--property", "distinct-items", "--domain-size", "9"], "--domain-size 9 says nothing for"),
    ],
)
def test_what_is_refused(run, words, said):
    status, out, err = run("shape", *words, "--explain")
    assert (status, out, len(err)) == (2, "", 1) and said in err[0]
