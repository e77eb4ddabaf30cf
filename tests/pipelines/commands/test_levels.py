"""`headcount histogram --levels`: rows, report, terminal and page of counts at every level of a key."""

from __future__ import annotations

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headcount
from headcount.pipelines.main import main
from tests.fixed_key import write_fixed_key


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("levels")
    random = np.random.default_rng(8)
    user = random.integers(0, 4000, 20_000)
    country = np.array(["de", "fr", "it"])[user % 3]
    city = [f"{c}-{n}" for c, n in zip(country, np.minimum(random.geometric(0.3, 20_000), 12), strict=True)]
    pq.write_table(pa.table({"user": user, "country": country, "city": city}), folder / "log.parquet")
    write_fixed_key(folder / "key")
    return folder


def run(log, output, *more: str) -> int:
    words = ["histogram", "--input", log / "log.parquet", "--user", "user", "--epsilon", "2", "--delta", "1e-6"]
    words += ["--key-file", log / "key", "--release-id", "levels", "--output", output, *more]
    return main([str(word) for word in words])


def test_a_release_in_levels_adds_up_and_says_what_it_is(log, tmp_path, capsys):
    assert run(log, tmp_path / "out", "--levels", "country,city", "--of", "events", "--format", "csv") == 0
    said = capsys.readouterr().out
    assert "(all)" in said and "nodes came out" in said and "add up to its own" in said
    rows = list(csv.DictReader((tmp_path / "out" / "counts-00000-of-00001.csv").open()))
    assert list(rows[0])[:4] == ["level", "country", "city", "other"]
    assert (rows[0]["level"], rows[0]["country"], rows[0]["city"]) == ("all", "", "")
    count = {(row["level"], row["country"], row["city"], row["other"]): int(row["count"]) for row in rows}
    for country in ("de", "fr", "it"):
        below = [value for (level, c, *_), value in count.items() if level == "city" and c == country]
        assert count["country", country, "", "false"] == sum(below) and len(below) > 2
    assert count["all", "", "", "false"] == sum(value for (level, *_), value in count.items() if level == "country")
    assert rows[-1]["level"] == "country" and rows[-1]["other"] == "true"
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["keys"] == ["country", "city"] and report["details"]["parameters"]["levels"] == ["country,city"]
    assert report["columns"]["level"].startswith("what the row is a row of")
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<details open><summary>") == 1 and "(other)" in page and "<script" not in page
    assert main(["show", str(tmp_path / "out")]) == 0
    assert "(all)" in capsys.readouterr().out
    again = ["--input", str(log / "log.parquet"), "--key-file", str(log / "key")]
    assert main(["verify", str(tmp_path / "out"), *again]) == 0


def test_users_of_a_call_are_those_of_the_command(log, tmp_path, capsys):
    assert run(log, tmp_path / "out", "--levels", "country,city") == 0
    table = pq.read_table(log / "log.parquet")
    made = headcount.histogram(
        table, user="user", levels=["country", "city"], epsilon=2, delta=1e-6, key_file=log / "key", release_id="levels"
    )
    assert made.table.equals(pq.read_table(tmp_path / "out" / "counts-00000-of-00001.parquet"))
    assert "several children" in repr(made)
    said = headcount.histogram(table, user="user", levels="country,city", home=True, epsilon=2, delta=1e-6)
    assert "each where it has the most rows" in repr(said)


def test_what_does_not_go_with_levels_is_refused(log, tmp_path, capsys):
    for flags, words in (
        (["--levels", "country"], "levels are 2 to 9 columns"),
        (["--levels", "country,city", "--item", "city"], "--item and --levels both say what is counted"),
        (["--item", "city", "--home"], "--home says where a user counts in levels"),
        (["--levels", "country,city", "--noise", "laplace"], "--noise='laplace' is not for counts in levels"),
        (["--levels", "country,city", "--suppress-below", "10"], "rows in levels add up"),
        (["--levels", "country,city", "--home", "--of", "events"], "home is for users"),
        ([], "missing --item"),
    ):
        assert run(log, tmp_path / "out", *flags) == 2
        assert words in capsys.readouterr().err, flags
        assert not (tmp_path / "out").exists()
    with pytest.raises(headcount.ParameterError, match="missing item"):
        headcount.histogram({"user": [1]}, user="user", epsilon=1, delta=1e-6)


@pytest.mark.slow("jobs")
def test_a_forecast_like_a_release_in_levels_takes_another_number_of_users(log, tmp_path, capsys):
    assert run(log, tmp_path / "out", "--levels", "country,city", "--of", "events", "--format", "csv") == 0
    assert main(["forecast", "--like", str(tmp_path / "out"), "--epsilon", "1", "--users", "8e3"]) == 0
    said = capsys.readouterr().out
    assert (
        "named nodes of its levels); 8,000 users, as given" in said
        and "histogram --of events --levels country,city" in said
    )


@pytest.mark.seconds
def test_explain_in_levels_says_the_promise(capsys):
    assert main("histogram --levels country,city --epsilon 1 --delta 1e-6 --explain".split()) == 0
    said = capsys.readouterr().out
    assert (
        "epsilon = 1" in said and "three made-up logs" in said and "each event at random on one of the leaves" in said
    )
    for line in (
        "- all: 1 with a name; half of the counts are within",
        "- country: ",
        "- city: ",
        "- an item of about",
    ):
        assert line in said
