"""`headcount histogram --top N --per COLUMN`: the largest released rows of each group, in files, terminal and page."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headcount
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines import yaml_provider
from headcount.pipelines.main import main
from headcount.pipelines.reports.groups import GroupsOf, grouped, groups_of
from headcount.transforms import Budget, Histogram
from tests.fixed_key import write_fixed_key

WORDS = ["histogram", "--user", "user", "--item", "country", "--item", "page", "--epsilon", "3", "--delta", "1e-6"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("top")
    rng = np.random.default_rng(2)
    number = 20_000
    page = [f"p{k}" for k in np.minimum(rng.geometric(0.2, number), 12)]
    country = rng.choice(["at", "de", "fr", "it"], number, p=[0.1, 0.5, 0.3, 0.1])
    table = pa.table({"user": rng.integers(6_000, size=number), "country": country, "page": page})
    pq.write_table(table, folder / "log.parquet")
    write_fixed_key(folder / "key")
    return folder


def run(files, out, *more):
    given = ["--input", str(files / "log.parquet"), "--key-file", str(files / "key"), "--release-id", "top"]
    assert main([*WORDS, *given, "--output", str(out), *more]) == 0
    rows = [row for path in sorted(out.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    return sorted(rows, key=lambda row: (row["country"], row["page"])), json.loads((out / "report.json").read_text())


def test_they_are_the_largest_of_the_rows_that_are_released_without_it(files, tmp_path, capsys):
    every, _ = run(files, tmp_path / "every")
    cut, report = run(files, tmp_path / "cut", "--top", "3", "--per", "country", "--output-files", "3")
    of = GroupsOf(("country",), "count", 3)
    expected = [row for group in grouped(every, of) for row in group.rows[:3]]
    assert cut == sorted(expected, key=lambda row: (row["country"], row["page"])) and len(cut) == 12
    gone = {"rows": len(every) - 12, "because": "they are not among the 3 largest of their country"}
    assert report["left_out"] == [gone] and report["rows"] == 12
    said = capsys.readouterr().out
    assert "12 rows, the 3 largest of each country, with 95 % intervals:" in said
    assert f"{len(every) - 12} rows left out because they are not among the 3 largest of their country" in said
    page = (tmp_path / "cut" / "report.html").read_text()
    assert "The 3 largest of each country" in page
    places = [page.index(f"country {name}</h") for name in ("de", "fr")]
    assert places == sorted(places)
    given = ["--input", str(files / "log.parquet"), "--key-file", str(files / "key")]
    assert main(["verify", str(tmp_path / "cut"), *given]) == 0
    assert "it came from this input with this key" in capsys.readouterr().out


def test_a_call_gives_the_same_rows_and_shows_the_groups(files, tmp_path):
    cut, _ = run(files, tmp_path / "cut", "--top", "2", "--per", "page")
    asked = {"user": "user", "item": ["country", "page"], "epsilon": 3, "delta": 1e-6, "top": 2, "per": "page"}
    result = headcount.histogram(
        pq.read_table(files / "log.parquet"), key_file=files / "key", release_id="top", **asked
    )
    assert result.table.to_pylist() == cut
    assert "the 2 largest of each page" in repr(result) and "row" in repr(result)


def test_without_groups_the_largest_of_all_are_kept(files, tmp_path, capsys):
    every, _ = run(files, tmp_path / "every")
    cut, report = run(files, tmp_path / "cut", "--top", "4")
    assert [row["count"] for row in sorted(cut, key=lambda row: -row["count"])] == sorted(
        (row["count"] for row in every), reverse=True
    )[:4]
    assert groups_of(report) is None and "4 items came out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--per", "country"],
            "--per country says of which groups the largest rows are kept: say how many by top (--top)",
        ),
        (["--top", "2", "--per", "query"], "--per 'query' is no column of the key: give one of 'country', 'page'"),
        (["--top", "2", "--per", "country", "--per", "page"], "has all columns of the key"),
    ],
)
def test_it_refuses(words, message, capsys):
    assert main([*WORDS, *words, "--explain"]) == 2
    assert message in capsys.readouterr().err


def test_levels_and_their_largest_rows_do_not_go_together(capsys):
    words = ["histogram", "--user", "u", "--levels", "a,b", "--epsilon", "1", "--delta", "1e-6", "--top", "2"]
    assert main([*words, "--explain"]) == 2
    assert "rows in levels add up" in capsys.readouterr().err
    with pytest.raises(ParameterError, match="rows in levels add up"):
        Histogram(Budget(1, 1e-6), levels=True, top=2)


def test_a_step_of_yaml_takes_them():
    step = yaml_provider.Histogram(epsilon=1, delta="1e-6", item=["country", "page"], top=3, per=["country"])
    assert step._make(None)._largest.per == ("country",)
    with pytest.raises(ParameterError, match="top must be"):
        yaml_provider.Histogram(epsilon=1, delta="1e-6", item=["country", "page"], top=0)
