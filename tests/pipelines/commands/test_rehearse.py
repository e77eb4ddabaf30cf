"""`headcount rehearse` and `headcount.rehearse`: what they read, refuse, print and write."""

from __future__ import annotations

import csv
import io
import re

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import headcount
from headcount.pipelines.commands.studies import rehearse
from headcount.pipelines.parser import parse
from headcount.pipelines.studies.rehearsal import NOT_PRIVATE, lines, shown
from headcount.pipelines.studies.scores import MEANINGS
from tests.pipelines.refusals import refused

EVENTS = {
    "user_id": [f"u{k % 400}" for k in range(4000)],
    "page": [f"p{k * k % 7}" for k in range(4000)],
    "hour": [k % 3 for k in range(4000)],
    "n": [1 + k % 2 for k in range(4000)],
}
SHARED = {"user": "user_id", "item": "page", "delta": 1e-6}
COLUMNS = ["question", "method", "command", "epsilon", "delta", "relation", "release", *MEANINGS, "decision", "refused"]


@pytest.fixture(scope="module")
def found():
    """Of each question some methods, two releases of each; the last takes no part in what is refused."""
    methods = ["histogram-events", "count-release", "partitions", "laplace"]
    return headcount.rehearse(public_data=EVENTS, **SHARED, epsilon=[4, 1], methods=methods, releases=2, large_from=50)


def test_what_is_printed_says_first_that_it_is_not_private(found):
    first, second, *rest = repr(found).splitlines()
    assert first == NOT_PRIVATE
    assert second == "4,000 events, 400 users, 4 items; means of 2 releases at each epsilon"
    text = "\n".join(rest)
    blocks = ["how many users have each item:", "how often each item occurs:", "which items there are:"]
    assert [text.index(block) for block in blocks] == sorted(text.index(block) for block in blocks)
    assert "the share of items of 50 users or more" in text and "no item was shown that nobody has" in text
    assert "laplace: headcount partitions --strategy laplace --max-items 4" in text
    assert max(map(len, text.splitlines())) <= 128


def test_rows_of_a_block_are_by_epsilon_and_aligned(found):
    lines = repr(found).splitlines()
    start = lines.index("which items there are:") + 2
    head, *rows = lines[start : start + 5]
    assert head.split()[:5] == ["epsilon", "method", "items", "missing", "mass"]
    assert [row.split()[0].rstrip("*") for row in rows] == ["1", "laplace", "4", "laplace"]
    assert len({len(row) for row in rows}) == 1


def test_a_table_of_all_releases(found):
    table = found.table
    assert table.column_names == COLUMNS
    assert table.num_rows == 4 * 2 * 2 and set(table["release"].to_pylist()) == {1, 2}
    assert table["spurious_rate"].to_pylist() == [0.0] * 16
    assert set(table.filter(pa.compute.equal(table["question"], "names"))["l1"].to_pylist()) == {None}
    assert list(found.to_pandas().columns) == COLUMNS
    assert found.to_pandas().groupby("method").epsilon.unique().map(sorted).tolist() == [[1, 4]] * 4


def test_a_notebook_shows_curves_and_the_means(found):
    text = found._repr_html_()
    assert text.count("<table class=") == 3 and text.count('<svg class="chart"') == 8
    assert text.index(NOT_PRIVATE) < text.index("<table class=") and '<div class="headcount">' in text


def test_csv_has_a_line_for_each_release(found, tmp_path):
    written = found.save(tmp_path / "out")
    assert written == [str(tmp_path / "out" / name) for name in ("rehearse.csv", "rehearse.html")]
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "rehearse.csv").read_text())))
    assert list(rows[0]) == COLUMNS and len(rows) == 16
    assert rows[0]["command"] == "headcount histogram --of events" and rows[0]["decision"].startswith("chosen: ")
    with pytest.raises(headcount.ParameterError, match="has a rehearse.csv already"):
        found.save(tmp_path / "out")
    found.save(tmp_path / "out", overwrite=True)


def test_the_page_has_curves_and_nothing_from_elsewhere(found, tmp_path):
    found.save(tmp_path)
    page = (tmp_path / "rehearse.html").read_text()
    assert page.encode() == found.html(), "the same bytes again"
    assert NOT_PRIVATE in page and page.count('<svg class="chart"') == 3 + 3 + 2
    assert "missing mass by epsilon" in page and ">missing mass</th>" in page
    assert (
        page.count("<h2>") == 3 and "How often each item occurs" in page and "headcount partitions --strategy" in page
    )
    assert not re.search(r"<script|<link|<img|src=|href=|url\(|@import|https?:", page)


def test_lines_are_means_with_a_band_and_leave_out_what_cannot_be_said(found):
    drawn = {line.name: line for line in lines(found.of("events"), "items")}
    (first, _), band = drawn["histogram-events"].points, drawn["histogram-events"].band
    (cell, _) = found.of("events")
    assert first == (1.0, cell.mean.items)
    assert band[0] == (1.0, min(one.items for one in cell.scores), max(one.items for one in cell.scores))
    assert lines(found.of("names"), "l1")[0].points == []


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "events.parquet"
    pq.write_table(pa.table(EVENTS), path)
    return path


def test_the_command_reads_files_with_keys_and_counts(run, log, tmp_path):
    csv_log = tmp_path / "events.csv"
    pyarrow.csv.write_csv(pa.table(EVENTS), csv_log)
    for path in (log, csv_log):
        status, out, err = run(
            *("rehearse", "--public-data", str(path), "--user", "user_id", "--item", "page", "--item", "hour"),
            *("--count", "n", "--question", "users", "--methods", "plume", "--epsilon", "5", "--releases", "1"),
            *("--output", str(tmp_path / path.suffix)),
        )
        assert (status, err) == (0, [])
        assert out.splitlines()[0] == NOT_PRIVATE
        assert "6,000 events, 400 users, 12 items; one release at each epsilon" in out
        assert f"wrote {tmp_path / path.suffix}/rehearse.csv" in out
        assert (tmp_path / path.suffix / "rehearse.csv").exists()


def test_data_that_is_not_said_to_be_public_is_refused(run, log):
    columns = ["--user", "user_id", "--item", "page"]
    refused(run("rehearse", "--input", str(log), *columns), "not private", "--public-data", "headcount forecast")
    refused(run("rehearse", *columns), "missing --public-data")
    with pytest.raises(TypeError):
        headcount.rehearse(EVENTS, **SHARED)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--epsilon", "1,x"], "--epsilon must be a number, got 'x'"),
        (["--epsilon", "1,-1"], "--epsilon must be positive, got -1"),
        (["--epsilon", ","], "--epsilon must be a number"),
        (["--methods", "plum"], "did you mean plume?"),
        (["--question", "counts"], "--question"),
        (["--releases", "0"], "--releases must be a whole number from 1"),
    ],
)
def test_refusals_come_before_anything_is_read(run, flags, words):
    refused(run("rehearse", "--public-data", "no-such-file.csv", "--user", "u", "--item", "i", *flags), words)


def test_an_output_that_exists_is_refused_before_anything_is_read(run, tmp_path):
    (tmp_path / "rehearse.csv").write_text("mine")
    flags = ["--public-data", "no-such-file.csv", "--user", "u", "--item", "i", "--output", str(tmp_path)]
    refused(run("rehearse", *flags), "has a rehearse.csv already")
    assert (tmp_path / "rehearse.csv").read_text() == "mine"


def test_no_events_are_nothing_to_rehearse():
    with pytest.raises(headcount.ParameterError, match="no events"):
        headcount.rehearse(
            public_data={"user_id": pa.array([], pa.string()), "page": pa.array([], pa.string())}, **SHARED
        )


def test_a_refusal_of_python_names_keywords():
    with pytest.raises(headcount.ParameterError, match="^epsilon must be positive"):
        headcount.rehearse(public_data=EVENTS, **SHARED, epsilon=0)
    with pytest.raises(TypeError, match="did you mean 'public_data'"):
        headcount.rehearse(public_dat=EVENTS, **SHARED)


def test_what_some_methods_refuse_is_said_and_what_all_do_is_refused():
    methods, tiny = ["one-stage", "histogram"], SHARED | {"delta": 1e-30}  # too small to name items by law
    found = headcount.rehearse(public_data=EVENTS, **tiny, epsilon=1, methods=methods, releases=1)
    assert sorted(row["refused"] is None for row in found.records()) == [False, True]
    assert "histogram refused: naming items" in repr(found) and "refused" in found._repr_html_()
    with pytest.raises(headcount.ParameterError, match="^delta must be positive"):
        headcount.rehearse(public_data=EVENTS, **SHARED | {"delta": 0}, epsilon=1)


def test_defaults():
    args, _ = parse(rehearse.COMMAND, [])
    assert (args.epsilon, args.delta, args.releases) == ((0.1, 0.5, 1.0, 2.0, 5.0), 1e-8, 3)


def test_numbers_as_they_are_shown():
    assert shown("items", 12.4) == "12" and shown("items", 2.5) == "2.5" and shown("items", 1234) == "1,234"
    assert shown("saved", 0.613) == "61 %" and shown("drop_rate", 0.0123) == "1.2 %" and shown("l1", None) == "-"
    assert shown("total_error", 0.2) == "+20 %" and shown("total_error", -0.2) == "-20 %"
