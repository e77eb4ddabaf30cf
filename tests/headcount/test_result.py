"""What a call gives back: printed, as HTML, as a frame, and saved as the command would; and what it refuses, by keywords."""

from __future__ import annotations

import html
import json
import math

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headcount

EVENTS = {"user": [f"u{k % 500}" for k in range(4000)], "<item>": [f"<b>{k % 6}" for k in range(4000)]}
GIVEN = {"user": "user", "item": "<item>", "epsilon": 1, "delta": 1e-6}


@pytest.fixture(scope="module")
def result():
    return headcount.histogram(EVENTS, **GIVEN, label="a <test>", period="2030")


def test_a_result_is_a_table_a_frame_and_a_report(result):
    assert isinstance(result.table, pa.Table) and result.table.num_rows == 6
    assert (
        isinstance(result.to_pandas(), pd.DataFrame) and list(result.to_pandas().columns) == result.table.column_names
    )
    assert (result.report["label"], result.report["period"]) == ("a <test>", "2030")
    assert result.report["promise"].startswith("User-level (epsilon = 1, delta = 1e-06)")
    assert result.report["rows"] == 6 and result.report["details"]["parameters"]["epsilon"] == 1


def test_a_result_shows_itself(result):
    assert repr(result).startswith("counts of events by <item>: 6 items came out") and str(result) == repr(result)
    assert repr(result).splitlines()[-1].startswith("chosen: ")
    shown = result._repr_html_()
    assert shown.count("<table>") == 1 and shown.count("<tr>") == 7
    assert "&lt;b&gt;0" in shown and "<b>" not in shown, "items are text, whatever they hold"
    assert "User-level" in shown


def test_a_notebook_has_the_cautions_that_are_printed(result):
    """Every line that is printed beside the table, and the share that was left out above it."""
    shown = result._repr_html_()
    lines = [line for line in repr(result).splitlines() if line and not line.startswith("  ")]
    assert len(lines) >= 4
    for line in lines:
        assert f"<p>{html.escape(line)}</p>" in shown
    assert result.report["share_left_out"] > 0.2
    assert shown.index("the bound left out about") < shown.index("<table>") < shown.index("count assumes that")


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
    with pytest.raises(headcount.ParameterError, match="^folder .* holds an output already: give another .*overwrite$"):
        result.save(tmp_path / "out")
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
        ({"of": "cats"}, "^of must be one of 'events', 'users', got 'cats'$"),
        ({"max_per_item": 2.5}, "^max_per_item must be a whole number from 1 to 1000000000, got '2.5'$"),
        ({"drop_null": "yes"}, "^drop_null must be True or False, got 'yes'$"),
        ({"user": 7}, "^user must be a text, got 7$"),
        ({"bound_method": "gem"}, "^bound_method gem is for method one-stage: give that, or leave bound_method out$"),
        ({"release_id": "r"}, "^release_id 'r' repeats a release, .*: give key_secret, key_file or key_env$"),
        ({"key_file": "a", "key_env": "b"}, "^give one of key_file and key_env$"),
        ({"label": ""}, "^label must be a text of 1 to 200 characters, got 0$"),
        ({"domain": "/nowhere.txt"}, "^domain '/nowhere.txt' cannot be read"),
        ({"item": ["<item>", "<item>"]}, "is given as a key column 2 times"),
    ],
)
def test_refusals_name_keywords(more, message):
    with pytest.raises(headcount.ParameterError, match=message):
        headcount.histogram(EVENTS, **GIVEN | more)


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
