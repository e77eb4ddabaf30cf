"""Pages of questions about people: what is lost between steps, a triangle that can be read without seeing it, many values."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

import headcount
from headcount.pipelines.pages import people
from tests.fixed_key import write_fixed_key
from tests.pipelines.pages.reading import Page

START = datetime.datetime(2026, 11, 2)


@pytest.fixture
def page(tmp_path):
    write_fixed_key(tmp_path / "key")

    def made(question, **given):
        rows = [
            {
                "user": k,
                "at": START + datetime.timedelta(days=day),
                "page": ["/", "/cart"][day % 2],
                "town": f"t{k % 9}",
            }
            for k in range(900)
            for day in range(1 + k % 5)
        ]
        known = {"user": "user", "epsilon": 5, "key_file": tmp_path / "key", "release_id": "page"}
        getattr(headcount, question)(pa.Table.from_pylist(rows), **known, **given).save(tmp_path / question)
        return Page((tmp_path / question / "report.html").read_text())

    return made


def test_a_funnel_shows_what_is_lost(page):
    found = page("funnel", time="at", step=["page=/", "page=/cart", "page=/"])
    heads, *rows = found.tables[0]
    assert [row[0] for row in rows] == ["1. page=/", "lost on the way", "2. page=/cart", "lost on the way", "3. page=/"]
    counts = [float(row[2].replace(",", "")) for row in rows]
    assert counts[0] - counts[1] == counts[2] and counts[2] - counts[3] == counts[4]
    assert len(found.widths[0]) == 5 and found.widths[0][0] == max(found.widths[0])


def test_a_count_within_its_noise_says_so():
    """Nobody has one event: whatever number stands there must not be read as so many users."""
    row = {"step": 1, "condition": "page=/", "share_of_first": 1.0, "share_of_before": None, "share": 0.0}
    near = row | {"events": "1", "count": 3.0, "low": 0.0, "high": 15.0}
    far = row | {"events": "2", "count": 300.0, "low": 288.0, "high": 312.0}
    for drawn in (people._activity("", [near, far]).drawn, people._funnel("", [near]).drawn):
        assert drawn is not None and ">about 3<" in drawn
    assert ">300<" in str(people._activity("", [near, far]).drawn)


def test_a_triangle_is_a_picture_with_words_and_a_table(page):
    found = page("retention", time="at", every="day", from_="2026-11-02", to="2026-11-06")
    labels = [given["aria-label"] for tag, given in found.tags if tag == "svg" and "aria-label" in given]
    assert any("A triangle of 5 cohorts by age" in label for label in labels)
    assert sum(tag == "rect" and given.get("class") == "cell" for tag, given in found.tags) == 15
    heads, *rows = next(table for table in found.tables if table[0][:2] == ["cohort", "age"])
    assert len(rows) == 15 and rows[0][:2] == ["2026-11-02", "0"]


def test_of_many_values_the_first_are_drawn(page):
    found = page("activity", by="town", bins=[1, 3], domain=[f"t{k}" for k in range(9)])
    assert "The files have 1 more values of town." in found.texts
    assert sum("How many users have how many events: t" in text for text in found.texts) == 8
