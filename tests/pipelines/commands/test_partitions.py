"""`headcount partitions` from end to end: output and report, what --explain says, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.columns.reading import reading
from headcount.mechanisms.partitions.select import select_partitions
from headcount.mechanisms.randomness.keys import KeyFile, Release
from headcount.transforms import Budget
from tests.fixed_key import write_fixed_key

SHAPE = ["partitions", "--user", "who", "--item", "item", "--epsilon", "1", "--delta", "1e-6"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """12,000 rows of users of very different size on common and rare items, and a key."""
    directory = tmp_path_factory.mktemp("partitions")
    generator = np.random.default_rng(3)
    item, user = generator.zipf(1.3, 12_000) % 5000, generator.zipf(1.3, 12_000) % 3000
    pq.write_table(pa.table({"who": [f"u{u}" for u in user], "item": item}), directory / "events.parquet")
    write_fixed_key(directory / "key")
    return directory


def flags(place, out, *more):
    key = ["--key-file", place / "key", "--release-id", "r"]
    return [*SHAPE, "--input", place / "events.parquet", "--output", out, *key, *more]


def test_named_items_are_written_and_equal_the_pure_function(run, place, tmp_path):
    out = tmp_path / "out"
    given = ["--strategy", "sips", "--max-items", 4, "--rounds", 2, "--output-files", 2]
    status, said, _ = run(*flags(place, out, *given))
    assert status == 0 and "wrote" in said
    files = sorted(path.name for path in out.iterdir())
    assert files == ["items-00000-of-00002.parquet", "items-00001-of-00002.parquet", "report.html", "report.json"]
    tables = [pq.read_table(out / name) for name in files[:2]]
    assert all(table.schema.names == ["item"] and table.schema.field("item").type == pa.int64() for table in tables)
    events = pq.read_table(place / "events.parquet")
    batch = contribution_batch(events["who"].combine_chunks(), events["item"].combine_chunks())
    selection = select_partitions(Budget(1, 1e-6), strategy="sips", max_items=4, rounds=2, item_type=int)
    release = Release(KeyFile(str(place / "key")), "r").of_rows(reading(user="who"))
    names = selection.run([batch], release, "Partitions").column("item").to_pylist()
    assert sorted(sum((table["item"].to_pylist() for table in tables), [])) == names and len(names) > 5
    report = json.loads((out / "report.json").read_text())
    assert report["details"]["guarantee"]["mechanisms"][1]["details"]["strategy"] == "sips"
    assert {name: report["details"]["parameters"][name] for name in ("strategy", "max_items", "rounds")} == {
        "strategy": "sips",
        "max_items": 4,
        "rounds": 2,
    }
    assert "decision" not in report


def test_items_of_a_user_alone_are_those_of_the_strategy_that_auto_takes(run, place, tmp_path):
    rows = []
    for number, more in enumerate((["--max-items", 4], ["--max-items", 4, "--strategy", "law"])):
        assert run(*flags(place, tmp_path / str(number), *more))[0] == 0
        rows.append(pq.read_table(tmp_path / str(number) / "items-00000-of-00001.parquet"))
    assert rows[0] == rows[1] and rows[0].num_rows > 5


def test_strategy_and_max_items_are_chosen_and_reported(run, place, tmp_path):
    status, said, _ = run(*flags(place, tmp_path / "a", "--format", "csv"))
    report = json.loads((tmp_path / "a" / "report.json").read_text())
    chosen = report["details"]["chosen"]
    assert status == 0 and chosen["strategy"] == "law"
    assert "chosen: law in " in said and f"with at most {chosen['max_items']} item" in said
    assert report["decision"] in said
    whole, choice, bounding, noise = report["details"]["guarantee"]["mechanisms"]
    assert (whole["epsilon"], whole["delta"], choice["epsilon"]) == (1, 1e-6, 0.065)
    assert 0.9 < noise["epsilon"] < 1 and noise["delta"] <= 1e-6
    assert noise["details"]["strategy"] == chosen["strategy"]
    rows = (tmp_path / "a" / "items-00000-of-00001.csv").read_text().splitlines()
    assert rows[0] in ("item", '"item"') and len(rows) > 5
    again = flags(place, tmp_path / "b", "--format", "csv", "--shards", 9, "--direct_runner_bundle_repeat=2")
    assert run(*again)[0] == 0
    assert (tmp_path / "b" / "items-00000-of-00001.csv").read_text().splitlines() == rows
    assert json.loads((tmp_path / "b" / "report.json").read_text()) == report


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            [],
            [
                "choice of the strategy: epsilon = 0.065",
                "- chosen: strategy ",
                "is shown with a chance of 50 %",
            ],
        ),
        (
            ["--strategy", "sips", "--max-items", "100"],
            ["100 items, each weighing 1/sqrt", "round 1: an item of", "with 99.9 %"],
        ),
        (
            ["--strategy", "truncated-geometric", "--max-items", "1"],
            ["threshold 15", "an item of 15 users is named", "with 99.9 %"],
        ),
        (["--strategy", "weighted-laplace", "--max-items", "10"], ["if each counts for 10", "with 99.9 %"]),
        (
            ["--strategy", "law", "--max-items", "10"],
            ["one by the fourth root", "coins: epsilon = 1", "round 3: an item of", "if each counts for 10"],
        ),
        (["--strategy", "law", "--max-items", "1"], ["an item of 14 users is named"]),
        (["--strategy", "gaussian", "--max-items", "10", "--relation", "replace"], ["replacing one user's whole"]),
    ],
)
def test_explain_reads_nothing_and_says_how_many_users_an_item_needs(run, more, words):
    status, said, _ = run(*SHAPE, "--explain", *more)
    assert status == 0
    for word in (*words, "with a chance of 50 %"):
        assert word in said


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--strategy", "sips"], ["--strategy sips needs --max-items"]),
        (
            ["--strategy", "laplace", "--max-items", "5", "--rounds", "2"],
            ["--rounds 2", "--strategy sips", "laplace"],
        ),
        (["--strategy", "some"], ["--strategy", "'some'"]),
        (["--rounds", "9"], ["--rounds must be a whole number from 1 to 8", "'9'"]),
        (["--strategy", "sips", "--max-items", "2000000"], ["at most 1048576", "2000000"]),
    ],
)
def test_refusals_are_one_line_that_names_the_flag(run, more, words):
    status, _, errors = run(*SHAPE, "--explain", *more)
    assert status == 2 and len(errors) == 1
    assert all(word in errors[0] for word in words), errors


def test_delta_is_needed(run):
    status, _, errors = run("partitions", "--epsilon", "1", "--explain")
    assert status == 2 and len(errors) == 1 and "--delta must be positive" in errors[0]
