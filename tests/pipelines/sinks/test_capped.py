"""What a number of events is called, wherever people read it."""

from __future__ import annotations

import pytest

import headcount
from headcount.pipelines.pages.report import report_page
from headcount.pipelines.sinks.capped import called, cap_of, capped
from tests.fixed_key import write_fixed_key

PAGES = ["a", "b", "c"]
ROWS = [(f"u{k}", PAGES[k % 3], k) for k in range(900) for _ in range(4)]
FRAME = {"user": [row[0] for row in ROWS], "page": [row[1] for row in ROWS], "country": ["de"] * len(ROWS)}

_UNLIKE = "at most 3 before and at most 2 after: make one with --like the other, or with its --max-per-item"


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    path = tmp_path_factory.mktemp("key") / "key"
    write_fixed_key(path)
    return {"user": "user", "item": "page", "epsilon": 4, "domain": PAGES, "key_file": path}


@pytest.fixture(scope="module")
def events(given):
    return headcount.histogram(FRAME, of="events", max_per_item=3, release_id="first", period="2026-W45", **given)


def test_events_are_called_what_they_are_on_a_terminal_a_page_and_in_a_notebook(events):
    title, head = "at most 3 of a user on one page", "events, at most 3 a user"
    table = repr(events).splitlines()
    assert table[0].startswith(f"counts of events by page, {title}: 3 items came out")
    (line,) = [line for line in table if line.split()[:1] == ["page"]]
    assert head in line and "count" not in line.split()
    assert f"{title}, and at most" in events.report["columns"]["count"]
    assert any(each.startswith("each number is an estimate of the events") for each in table)
    beyond = "what is beyond 3 of a user on one page is in none of these numbers; headcount total counts it, too"
    assert beyond in table
    shown = events._repr_html_()
    assert head in shown and "count" not in shown.split()
    index = report_page("Weekly", None, [("pages", events.report)]).decode()
    assert title in index and head in index


def test_over_time_too_unless_releases_differ_in_it(events, given):
    """Where they do, no one word is true of all, and the reason says what each counts."""
    later = [
        headcount.histogram(
            FRAME, of="events", max_per_item=cap, release_id=f"cap-{cap}", period=f"2026-W5{cap}", **given
        )
        for cap in (3, 2)
    ]
    same, other = (headcount.diff(events, each) for each in later)
    assert same.heading().startswith("counts of events by page, at most 3 of a user on one page: 2 releases")
    assert "Events, at most 3 a user" in same.html().decode()
    assert other.heading().startswith("counts of events by page: 2 releases")
    assert "at most 3 a user" not in other.html().decode() and _UNLIKE in other.text()


@pytest.mark.parametrize(
    ("command", "parameters", "column", "word", "title"),
    [
        ("histogram", {"of": "users", "max_per_item": 1}, "count", "count", ""),
        ("histogram", {"of": "events"}, "count", "events", ""),
        (
            "histogram",
            {"of": "events", "max_per_item": 1000},
            "count",
            "events, at most 1,000 a user",
            "1,000 of a user",
        ),
        (
            "histogram",
            {"of": "events", "max_per_item": 2},
            "bounded_count",
            "bounded events, at most 2 a user",
            "2 of a user",
        ),
        ("aggregate", {"max_per_item": 5}, "users", "users", ""),
        ("aggregate", {"max_per_item": 5}, "events", "events, at most 5 a user", "5 of a user"),
        ("aggregate", {"max_per_item": 5}, "sum_price", "sum_price, at most 5 rows a user", "5 of a user"),
        ("aggregate", {"max_per_item": 5}, "sum_price_low", "sum_price_low", ""),
        ("count-release", {}, "bounded_count", "bounded_count", ""),
        ("count-release", {"max_per_item": 2}, "bounded_count", "bounded events, at most 2 a user", "2 of a user"),
        ("total", {"max_per_item": 2}, "bounded_count", "bounded_count", ""),
    ],
)
def test_of_each_command(command, parameters, column, word, title):
    report = {"command": command, "columns": {column: ""}, "details": {"parameters": parameters}}
    assert called(report, column) == word
    assert capped(report) == (f"at most {title} on one item" if title else "")


def test_what_was_chosen_goes_before_what_was_given_and_leaves_have_a_limit_in_levels():
    report = {
        "command": "histogram",
        "keys": ["country", "city"],
        "columns": dict.fromkeys(("level", "country", "city", "count"), ""),
        "details": {"parameters": {"of": "events", "max_per_item": None}, "chosen": {"max_per_item": 10}},
    }
    assert cap_of(report) == 10 and capped(report) == "at most 10 of a user on one city"
    flat = {**report, "columns": dict.fromkeys(("country", "city", "count"), "")}
    assert capped(flat) == "at most 10 of a user on one country and city"
    assert called(report, "count") == "events, at most 10 a user and city", "of the nodes above, a user may have more"
    assert called({**report, "keys": ["count"]}, "count") == "count", "a key may have that name"


def test_where_a_user_is_told_apart_by_day_so_are_its_events():
    details = {"parameters": {"of": "events", "max_per_item": 10}, "guarantee": {"unit": "user-day"}}
    report = {"command": "histogram", "keys": ["page"], "columns": {"page": "", "count": ""}, "details": details}
    assert called(report, "count") == "events, at most 10 a user and day"
    assert capped(report) == "at most 10 of a user in one day on one page"
