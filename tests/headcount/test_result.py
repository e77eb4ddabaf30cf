"""What a call gives back: printed, as HTML, as a frame, and saved as the command would; and what it refuses, by keywords."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headcount
from headcount.pipelines.pages.texts import prose
from tests.fixed_key import write_fixed_key

EVENTS = {"user": [f"u{k % 500}" for k in range(4000)], "<item>": [f"<b>{k % 6}" for k in range(4000)]}
GIVEN = {"user": "user", "item": "<item>", "epsilon": 1, "delta": 1e-6}


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Of a fixed key, as in another release the totals may not tell what was left out; and of a bound that leaves out much."""
    key = tmp_path_factory.mktemp("result") / "key"
    write_fixed_key(key)
    return headcount.histogram(EVENTS, **GIVEN, bound=1, label="a <test>", period="2030", key_file=key, release_id="r1")


def test_a_result_is_a_table_a_frame_and_a_report(result):
    assert isinstance(result.table, pa.Table) and result.table.num_rows == 6
    assert (
        isinstance(result.to_pandas(), pd.DataFrame) and list(result.to_pandas().columns) == result.table.column_names
    )
    assert (result.report["label"], result.report["period"]) == ("a <test>", "2030")
    assert result.report["promise"].startswith("User-level (epsilon = 1, delta = 1e-06)")
    assert result.report["rows"] == 6 and result.report["details"]["parameters"]["epsilon"] == 1


def test_a_result_shows_itself(result):
    assert repr(result).startswith("counts of users by <item>: 6 items came out") and str(result) == repr(result)
    assert repr(result).splitlines()[-1].startswith("chosen: ")
    shown = result._repr_html_()
    assert shown.count("<table") == 1 and shown.count("<tr>") == 7 and shown.count('class="fill"') == 6
    assert "&lt;b&gt;0" in shown and "<b>" not in shown, "items are text, whatever they hold"
    assert "<bdi>a &lt;test&gt;</bdi>" in shown and "User-level" in shown
    for row in result.table.to_pylist():
        assert all(f"{round(row[column]):,}" in shown for column in ("count", "low", "high"))


def test_a_notebook_has_the_cautions_that_are_printed(result):
    """Every line that is printed below the heading, and the share that was left out above the table."""
    shown = result._repr_html_()
    _, *lines = [line for line in repr(result).splitlines() if line and not line.startswith("  ")]
    assert len(lines) >= 4
    for line in lines:
        assert f"<p>{prose(line)}</p>" in shown
    assert result.report["share_left_out"] > 0.2
    assert shown.index("The bound left out about") < shown.index("<table") < shown.index("Count assumes that")


def test_what_a_notebook_shows_touches_nothing_beside_it(result):
    """One element, whose style is for itself alone, which fetches and runs nothing."""
    shown = result._repr_html_().strip()
    assert shown.startswith('<div class="headcount">') and shown.endswith("</div>")
    assert shown.count('<div class="headcount">') == 1 and "<script" not in shown and "http" not in shown
    style = shown.partition("<style>")[2].partition("</style>")[0]
    outside = re.sub(r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}", "{}", style)
    assert all(rule.strip().endswith(".headcount") for rule in outside.split("{}")[:-1]), outside
    assert style.count("{") == style.count("}") and "rem" not in style


def test_flags_are_keywords_in_a_notebook_too():
    nobody = headcount.histogram(EVENTS, **GIVEN, where="user = nobody")
    shown = nobody._repr_html_().partition("</style>")[2]
    assert "Nothing came out" in shown and "--" not in shown


def test_a_notebook_shows_what_is_no_list_too():
    total = headcount.total(EVENTS, user="user", epsilon=1)
    funnel = headcount.funnel(EVENTS | {"t": ["2030-01-01"] * 4000}, user="user", time="t", step="user = u1", epsilon=1)
    assert 'class="cards"' in total._repr_html_()
    shown = funnel._repr_html_()
    assert 'class="fill"' in shown and shown.count("How many users came to each step") == 1


def test_a_notebook_shows_very_many_rows_as_a_few():
    """Those that a page has, in the order of a report."""
    many = {"user": [f"u{k // 30}" for k in range(60_000)], "item": [k % 300 for k in range(60_000)]}
    result = headcount.histogram(many, user="user", item="item", domain=range(300), epsilon=1)
    shown = result._repr_html_()
    assert result.table.num_rows == 300 and shown.count('<tr><th scope="row"') == 50
    assert "The 50 largest of 300 items" in shown and len(shown) < 50_000


def test_a_result_is_saved_as_the_command_would(result, tmp_path):
    for format in ("parquet", "avro", "csv", "jsonl"):
        result.save(tmp_path / format, format=format)
        files = sorted(path.name for path in (tmp_path / format).iterdir())
        assert files == [f"counts-00000-of-00001.{format}", "report.html", "report.json"]
        report = json.loads((tmp_path / format / "report.json").read_text())
        assert report["details"]["parameters"]["format"] == format
        own = {"files": 0, "details": 0, "content_sha256": 0}
        assert report | own == result.report | own
    assert pq.read_table(tmp_path / "parquet" / "counts-00000-of-00001.parquet") == result.table
    assert json.loads((tmp_path / "parquet" / "report.json").read_text()) == result.report
    assert not list(tmp_path.glob("*.tmp-*")), "nothing is left beside"


def test_a_folder_is_refused_as_the_command_refuses_it(result, tmp_path):
    result.save(tmp_path / "out")
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    result.save(tmp_path / "out")  # it is there already
    with pytest.raises(headcount.InputError, match="is in folder .* already, with another result.* or overwrite$"):
        result.save(tmp_path / "out", format="csv")
    other = headcount.total(EVENTS, user="user", epsilon=1)
    with pytest.raises(headcount.ParameterError, match="^folder .* holds an output already: give another .*overwrite$"):
        other.save(tmp_path / "out")
    assert before == {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    result.save(tmp_path / "out", overwrite=True, output_files=2)
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 2
    (tmp_path / "out" / "thesis.txt").write_text("x")
    with pytest.raises(headcount.ParameterError, match="holds other files"):
        result.save(tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / "thesis.txt").exists()
    with pytest.raises(headcount.ParameterError, match="^format must be one of 'parquet', .*, got 'xlsx'$"):
        result.save(tmp_path / "other", format="xlsx")
    with pytest.raises(headcount.ParameterError, match="^output_files must be"):
        result.save(tmp_path / "other", output_files=0)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"epsilon": "much"}, "^epsilon must be a number, got 'much'$"),
        ({"epsilon": True}, "^epsilon must be a number, got 'True'$"),
        ({"epsilon": -1}, "^epsilon must be"),
        ({"epsilon": math.nan}, "^epsilon must be"),
        ({"delta": 0}, "^delta must be positive, as .*, for instance delta 1e-8, or give the items by domain$"),
        ({"of": "cats"}, "^of must be one of 'users', 'events', got 'cats'$"),
        ({"max_per_item": 2}, "^max_per_item 2 is for events, and users are counted, .*: add of events$"),
        ({"max_per_item": 2.5}, "^max_per_item must be a whole number from 1 to 1000000000, got '2.5'$"),
        ({"drop_null": "yes"}, "^drop_null must be True or False, got 'yes'$"),
        ({"user": 7}, "^user must be the name of a column, got 7$"),
        ({"bound_method": "gem"}, "^bound_method gem is for method one-stage: give that, or leave bound_method out$"),
        ({"release_id": "r"}, "^release_id 'r' repeats a release, .*: give key_secret, key_file or key_env$"),
        ({"key_file": "a", "key_env": "b"}, "^give one of key_file and key_env$"),
        ({"label": ""}, "^label must be a text of 1 to 200 characters, got 0$"),
        ({"domain": "/nowhere.txt"}, "^domain '/nowhere.txt' cannot be read"),
        ({"item": ["<item>", "<item>"]}, "^item: '<item>' is given as a key column 2 times"),
        ({"protect": "user-day"}, "^time must name the column that says when a row was, as protect is 'user-day'$"),
        ({"time": "at"}, "^time says when a row was, for a protect such as 'user-day'; with 'user' leave it out$"),
    ],
)
def test_refusals_name_keywords(more, message):
    with pytest.raises(headcount.ParameterError, match=message):
        headcount.histogram(EVENTS, **GIVEN | more)


SECRET = ["CANARY-7f3a", "CANARY-7f3b"]


@pytest.mark.parametrize(
    "column", [pd.Series(SECRET), pl.Series(SECRET), pa.array(SECRET), np.array(SECRET), {*SECRET}]
)
@pytest.mark.parametrize("parameter", ["user", "item", "count", "time", "label", "epsilon", "of", "drop_null"])
def test_a_column_in_place_of_its_name_is_told_by_its_type_and_never_shown(parameter, column):
    with pytest.raises(headcount.ParameterError, match=f"^{parameter} must be .*, got an? \\w+$") as refused:
        headcount.histogram(EVENTS, **GIVEN | {parameter: column})
    assert ("the name of a column" in str(refused.value)) == (parameter in ("user", "item", "count", "time"))
    assert type(column).__name__ in str(refused.value) and "CANARY" not in str(refused.value)


def test_a_column_in_a_range_of_values_is_not_shown_either():
    with pytest.raises(headcount.ParameterError, match="^sum must be a text, got a tuple$"):
        headcount.aggregate(EVENTS, sum=(pd.Series(SECRET), 0, 9), **GIVEN)


def test_quantiles_by_item_are_of_aggregate():
    with pytest.raises(
        TypeError, match=r"^quantiles\(\) has no parameter 'item'; .* are of headcount aggregate: item COL"
    ):
        headcount.quantiles({"u": ["a"], "v": [1]}, user="u", item="v", value="v", lo=0, hi=9, epsilon=1)


def test_other_functions_refuse_by_keywords_too():
    with pytest.raises(headcount.ParameterError, match="^missing quantile or range$"):
        headcount.quantiles({"u": ["a"], "v": [1]}, user="u", value="v", lo=0, hi=9, epsilon=1, delta=1e-6)
    with pytest.raises(headcount.ParameterError, match="^k must not exceed k_bar 5, got 9$"):
        headcount.top(EVENTS, k=9, k_bar=5, **GIVEN)
    with pytest.raises(headcount.ParameterError, match="^give domain_size or buckets, a public number"):
        headcount.shape(EVENTS, **GIVEN)
    with pytest.raises(headcount.ParameterError, match="^item .* is of no use without domain"):
        headcount.total(EVENTS, **GIVEN)


def test_nothing_that_came_out_says_what_to_do():
    text = repr(headcount.histogram({"u": ["a", "b"], "item": ["x", "y"]}, **GIVEN | {"user": "u", "item": "item"}))
    assert "no item came out" in text and "is user u the column that tells users apart" in text and "--" not in text
